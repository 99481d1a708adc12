//! Running a command with text on its standard input.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs the program until it ends. It need not read its input: one that refuses its arguments does not.
pub fn run_with_input(program: &str, args: &[&str], input: &str) -> Output {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {program}: {error}"));
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output().unwrap_or_else(|error| panic!("cannot wait for {program}: {error}"))
}
