//! Signals as the loop sees them. The binary takes them from the system.

use crate::source::Event;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    Stop,
    /// Read the settings again.
    Reload,
}

pub trait Signals {
    /// Waits for a signal, at most for this time.
    fn wait(&self, time: Duration) -> Option<Signal>;
}

impl From<Signal> for Event {
    fn from(signal: Signal) -> Self {
        match signal {
            Signal::Stop => Self::Stop,
            Signal::Reload => Self::Reload,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Duration, Signal, Signals};

    /// Nobody sends any, and nobody waits.
    pub(crate) struct NoSignals;

    impl Signals for NoSignals {
        fn wait(&self, _time: Duration) -> Option<Signal> {
            None
        }
    }
}
