//! The core's time, from the system's clock.

use namewall_policy::Instant;
use std::time::Duration;

/// Counts from when it was made. The core's times are never 0, which is before any lease.
#[derive(Clone, Copy, Debug)]
pub struct Clock(std::time::Instant);

impl Clock {
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    pub fn now(&self) -> Instant {
        Instant(self.0.elapsed() + Duration::from_secs(1))
    }
}
