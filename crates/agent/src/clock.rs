//! Time, as an argument: the core's instants come from a [`Clock`].

use namewall_policy::Instant;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where the time comes from. It is never 0, which is before any lease.
pub trait Clock: Debug + Send + Sync {
    fn now(&self) -> Instant;
}

/// The system's monotonic clock, counted from its start.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(std::time::Instant);

impl SystemClock {
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant(self.0.elapsed() + Duration::from_secs(1))
    }
}

/// A clock that goes on only when it is told to, for tests and simulations.
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

impl Default for ManualClock {
    fn default() -> Self {
        Self(AtomicU64::new(Duration::from_secs(1).as_millis() as u64))
    }
}

impl ManualClock {
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant(Duration::from_millis(self.0.load(Ordering::SeqCst)))
    }
}
