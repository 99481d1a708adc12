//! The namewall binary: reads arguments, runs a command, sets the exit code.

mod cli;
mod commands;
mod input;
mod output;
mod picture;

use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match commands::run(cli.command) {
        Ok(code) => code,
        // Whoever reads our output may stop reading: `namewall matrix … | head`.
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(anstream::stderr(), "{}error:{:#} {error:#}", output::BAD, output::BAD).ok();
            ExitCode::from(2)
        }
    }
}
