//! Time, as an argument: monotonic instants for waiting and expiry, and the time
//! of day for what is written into objects.

use jiff::{SignedDuration, Timestamp};
use namewall_policy::Instant;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where the time comes from.
pub trait Clock: Debug + Send + Sync {
    /// The monotonic time. It is never 0, which is before any lease.
    fn now(&self) -> Instant;

    /// The time of day. Clocks of two machines differ, and one may be set back.
    fn wall(&self) -> Timestamp;
}

/// The system's clocks; the monotonic one is counted from its start.
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

    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that goes on only when it is told to, for tests and simulations. Clones go on together.
#[derive(Clone, Debug)]
pub struct ManualClock {
    /// In nanoseconds.
    elapsed: Arc<AtomicU64>,
    /// The time of day when the monotonic time was 0.
    wall_at_zero: Timestamp,
}

/// 2026-01-01T00:00:00Z: any fixed time does.
const WALL_AT_ZERO: i64 = 1_767_225_600;

impl Default for ManualClock {
    fn default() -> Self {
        let elapsed = Arc::new(AtomicU64::new(nanoseconds(Duration::from_secs(1))));
        Self { elapsed, wall_at_zero: Timestamp::from_second(WALL_AT_ZERO).unwrap_or_default() }
    }
}

impl ManualClock {
    pub fn advance(&self, by: Duration) {
        self.elapsed.fetch_add(nanoseconds(by), Ordering::SeqCst);
    }

    /// The clock of another machine: it goes on with this one, and its time of day differs by this much.
    pub fn skewed_by(&self, skew: SignedDuration) -> Self {
        let wall_at_zero = self.wall_at_zero.checked_add(skew).unwrap_or(self.wall_at_zero);
        Self { elapsed: self.elapsed.clone(), wall_at_zero }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant(Duration::from_nanos(self.elapsed.load(Ordering::SeqCst)))
    }

    fn wall(&self) -> Timestamp {
        self.wall_at_zero.checked_add(self.now().0).unwrap_or(Timestamp::MAX)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skewed_clocks_go_on_together() {
        let clock = ManualClock::default();
        let other = clock.skewed_by(SignedDuration::from_secs(-90));
        clock.advance(Duration::from_millis(1500));
        assert_eq!((clock.now(), other.now()), (Instant(Duration::from_millis(2500)), clock.now()));
        assert_eq!(clock.wall().duration_since(other.wall()), SignedDuration::from_secs(90));
    }
}
