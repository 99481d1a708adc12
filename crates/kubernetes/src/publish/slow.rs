//! Whether answers wait for the API server. Pure; time is an argument.

use namewall_runtime::Instant;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long after a late write an answer waits again, as a trial.
const NEXT_TRIAL: Duration = Duration::from_secs(1);

/// While the API server is slow answers do not wait for it: names must not be slow because it is away. Once a second
/// one answer waits, to find out whether the API server has caught up.
#[derive(Debug, Default)]
pub(super) struct Slow(Mutex<Option<Instant>>);

impl Slow {
    /// How long an answer waits now.
    pub(super) fn patience(&self, hold: Duration, now: Instant) -> Duration {
        let mut next_trial = self.lock();
        match *next_trial {
            Some(at) if now < at => Duration::ZERO,
            Some(_) => {
                *next_trial = Some(now + NEXT_TRIAL);
                hold
            }
            None => hold,
        }
    }

    /// A write was late. The next trial stays when it is.
    pub(super) fn begin(&self, now: Instant) {
        self.lock().get_or_insert(now + NEXT_TRIAL);
    }

    /// The API server has caught up.
    pub(super) fn end(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_millis(50);

    #[test]
    fn s8_5_one_late_write_does_not_end_the_waiting_for_good() {
        let (slow, start) = (Slow::default(), Instant::default());
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(slow.patience(HOLD, at(0)), HOLD);
        slow.begin(at(50));
        assert_eq!(slow.patience(HOLD, at(51)), Duration::ZERO);
        assert_eq!(slow.patience(HOLD, at(1_049)), Duration::ZERO);
        assert_eq!(slow.patience(HOLD, at(1_050)), HOLD, "a trial");
        assert_eq!(slow.patience(HOLD, at(1_051)), Duration::ZERO, "one at a time");
        slow.end();
        assert_eq!(slow.patience(HOLD, at(1_052)), HOLD);
    }
}
