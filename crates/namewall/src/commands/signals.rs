//! Signals, for commands that go on until they are ended.

use anyhow::{Context, Result};
use namewall_agent::{Signal, Signals};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal as Number};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::AsFd;
use std::time::Duration;

/// SIGTERM and SIGINT end the process, SIGHUP reads the settings again.
#[derive(Debug)]
pub(super) struct SystemSignals(SignalFd);

impl SystemSignals {
    /// To be called before the first thread, so that no thread takes them away.
    pub(super) fn take() -> Result<Self> {
        let mut signals = SigSet::empty();
        [Number::SIGTERM, Number::SIGINT, Number::SIGHUP].into_iter().for_each(|signal| signals.add(signal));
        signals.thread_block().context("cannot take signals")?;
        let taken = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC);
        Ok(Self(taken.context("cannot take signals")?))
    }
}

impl Signals for SystemSignals {
    fn wait(&self, time: Duration) -> Option<Signal> {
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO);
        poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], timeout).ok()?;
        let taken = self.0.read_signal().ok()??;
        match Number::try_from(taken.ssi_signo as i32).ok()? {
            Number::SIGHUP => Some(Signal::Reload),
            _ => Some(Signal::Stop),
        }
    }
}
