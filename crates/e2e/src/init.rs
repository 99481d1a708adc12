//! The first process of a process namespace: when it ends, so does every other
//! one there, whoever started it. It takes in those whose parents are gone, as
//! containerd's shims are, and ends with the run, or when it is told to.

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use std::process::{Command, ExitCode};

/// What a shell says of who was interrupted.
const INTERRUPTED: u8 = 130;

pub(crate) fn run() -> ExitCode {
    play().unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}

fn play() -> std::io::Result<ExitCode> {
    let waited_for: SigSet = [Signal::SIGCHLD, Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    // The run is started before: it, and all that it starts, hears signals as usual.
    let run = Command::new("/proc/self/exe").args(std::env::args_os().skip(1)).spawn()?.id();
    waited_for.thread_block()?;
    let signals = SignalFd::new(&waited_for)?;
    loop {
        while let Some((process, code)) = take_in()? {
            if process as u32 == run {
                return Ok(ExitCode::from(code));
            }
        }
        let told = signals.read_signal()?.map(|told| told.ssi_signo as i32);
        if told.is_some_and(|signal| signal != Signal::SIGCHLD as i32) {
            return Ok(ExitCode::from(INTERRUPTED));
        }
    }
}

/// One that has ended, and how.
fn take_in() -> std::io::Result<Option<(i32, u8)>> {
    match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(process, code)) => Ok(Some((process.as_raw(), code as u8))),
        Ok(WaitStatus::Signaled(process, signal, _)) => Ok(Some((process.as_raw(), 128 + signal as u8))),
        Ok(_) | Err(Errno::ECHILD) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
