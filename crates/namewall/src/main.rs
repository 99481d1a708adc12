//! The namewall binary: reads arguments, runs a command, sets the exit code.

mod cli;
mod commands;
mod conditions;
mod input;
mod logging;
mod output;
mod picture;
mod plugin;
mod unread;

use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    end_at_bugs();
    if commands::cni::is_called() {
        return commands::cni::play();
    }
    let done = match plugin::is_called(std::env::args_os().next().as_deref()) {
        true => plugin::run(plugin::Plugin::parse()),
        false => commands::run(cli::Cli::parse().command),
    };
    match done {
        Ok(code) => code,
        // Whoever reads our output may stop reading: `namewall matrix … | head`.
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(anstream::stderr(), "{}error:{:#} {error:#}", output::BAD, output::BAD).ok();
            ExitCode::from(2)
        }
    }
}

/// A panic of any thread ends the process, and whoever watches over it starts another; but not where somebody
/// answers for it: then the others are served on.
fn end_at_bugs() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        if !namewall_dns::is_caught() {
            std::process::abort();
        }
    }));
}
