//! Signals, as commands that go on until they are told to end take them.

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::AsFd;
use std::time::Duration;

/// Those that end a process, or have it read its files again.
pub(super) fn take_signals() -> Result<SignalFd> {
    let mut signals = SigSet::empty();
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().for_each(|signal| signals.add(signal));
    signals.thread_block().context("cannot take signals")?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).context("cannot take signals")
}

/// Waits for one, but not longer.
pub(super) fn next_signal(signals: &SignalFd, time: Duration) -> Option<Signal> {
    let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO);
    poll(&mut [PollFd::new(signals.as_fd(), PollFlags::POLLIN)], timeout).ok()?;
    let told = signals.read_signal().ok()??;
    Signal::try_from(told.ssi_signo as i32).ok()
}
