//! Running a command with text on its standard input.

use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

/// Runs the program until it ends. It need not read its input: one that refuses its arguments does not.
pub fn run_with_input(program: &str, args: &[&str], input: &str) -> Output {
    let output = output_with_input(Command::new(program).args(args), input);
    output.unwrap_or_else(|error| panic!("cannot run {program}: {error}"))
}

/// The same for a command that is prepared already. Another thread writes the input: a program that answers while it
/// reads would wait for its answers to be read.
pub fn output_with_input(command: &mut Command, input: &str) -> io::Result<Output> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let stdin = child.stdin.take();
    std::thread::scope(|threads| {
        threads.spawn(|| stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
        child.wait_with_output()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipe holds 64 KiB: a program that answers while it reads must be read from while it is written to.
    #[test]
    fn a_program_may_answer_while_it_reads() {
        let input = "x".repeat(1 << 20);
        assert_eq!(run_with_input("cat", &[], &input).stdout.len(), input.len());
    }
}
