//! Time, as an argument: monotonic instants for waiting and expiry, and the time
//! of day for what is written into objects.

use jiff::{SignedDuration, Timestamp};
use namewall_policy::Instant;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
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

/// The system's clocks, moved by as many seconds as a file says: two numbers, for the monotonic time and for the time
/// of day. So a test makes the clocks of a whole process jump.
#[cfg(any(test, feature = "testing"))]
#[derive(Clone, Debug)]
pub struct ShiftedClock {
    clock: SystemClock,
    file: std::path::PathBuf,
}

#[cfg(any(test, feature = "testing"))]
impl ShiftedClock {
    pub fn start(file: std::path::PathBuf) -> Self {
        Self { clock: SystemClock::start(), file }
    }

    fn shift(&self, at: usize) -> i64 {
        let text = std::fs::read_to_string(&self.file).expect("the file with the clock's shift is read");
        let number = text.split_whitespace().nth(at).and_then(|number| number.parse().ok());
        number.expect("the file has two numbers of seconds")
    }
}

#[cfg(any(test, feature = "testing"))]
impl Clock for ShiftedClock {
    fn now(&self) -> Instant {
        self.clock.now() + Duration::from_secs(self.shift(0).unsigned_abs())
    }

    fn wall(&self) -> Timestamp {
        let shifted = self.clock.wall().checked_add(SignedDuration::from_secs(self.shift(1)));
        shifted.unwrap_or(Timestamp::MAX)
    }
}

/// A clock that goes on only when it is told to, for tests and simulations. Clones go on together.
#[derive(Clone, Debug)]
pub struct ManualClock {
    /// In nanoseconds.
    elapsed: Arc<AtomicU64>,
    /// The time of day when the monotonic time was 0.
    wall_at_zero: Timestamp,
    /// The seconds that the time of day was set forward since.
    step: Arc<AtomicI64>,
}

/// 2026-01-01T00:00:00Z: any fixed time does.
const WALL_AT_ZERO: i64 = 1_767_225_600;

impl Default for ManualClock {
    fn default() -> Self {
        let elapsed = Arc::new(AtomicU64::new(nanoseconds(Duration::from_secs(1))));
        let wall_at_zero = Timestamp::from_second(WALL_AT_ZERO).unwrap_or_default();
        Self { elapsed, wall_at_zero, step: Arc::default() }
    }
}

impl ManualClock {
    pub fn advance(&self, by: Duration) {
        self.elapsed.fetch_add(nanoseconds(by), Ordering::SeqCst);
    }

    /// The clock of another machine: it goes on with this one, and its time of day differs by this much.
    pub fn skewed_by(&self, skew: SignedDuration) -> Self {
        let wall_at_zero = self.wall_at_zero.checked_add(skew).unwrap_or(self.wall_at_zero);
        Self { elapsed: self.elapsed.clone(), wall_at_zero, step: Arc::default() }
    }
}

impl ManualClock {
    /// Sets the time of day forward, or back if it is negative, of this clock and its clones.
    pub fn step_wall(&self, seconds: i64) {
        self.step.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant(Duration::from_nanos(self.elapsed.load(Ordering::SeqCst)))
    }

    fn wall(&self) -> Timestamp {
        let step = SignedDuration::from_secs(self.step.load(Ordering::SeqCst));
        let set = self.wall_at_zero.checked_add(step).unwrap_or(self.wall_at_zero);
        set.checked_add(self.now().0).unwrap_or(Timestamp::MAX)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shifted_clock_jumps_when_its_file_changes() {
        let file = std::env::temp_dir().join(format!("namewall-clock-{}", std::process::id()));
        std::fs::write(&file, "0 0").expect("a file");
        let clock = ShiftedClock::start(file.clone());
        let (now, wall) = (clock.now(), clock.wall());
        std::fs::write(&file, "600 -86400").expect("a file");
        assert!(clock.now().since(now) >= Duration::from_secs(600));
        assert!(clock.wall() < wall);
        std::fs::remove_file(file).expect("it is ours");
    }

    #[test]
    fn skewed_clocks_go_on_together() {
        let clock = ManualClock::default();
        let other = clock.skewed_by(SignedDuration::from_secs(-90));
        clock.advance(Duration::from_millis(1500));
        assert_eq!((clock.now(), other.now()), (Instant(Duration::from_millis(2500)), clock.now()));
        assert_eq!(clock.wall().duration_since(other.wall()), SignedDuration::from_secs(90));
    }
}
