//! A change that failed is tried again until it succeeds. The next change of the
//! cluster may be days away, and until then something else is in force than what
//! is meant.

use namewall_policy::Instant;
use std::time::Duration;

/// How long to wait after the first failure, and at most.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Whether the last change failed, and when to try it again.
#[derive(Debug, Default)]
pub(crate) struct Retry(Option<Failed>);

#[derive(Clone, Copy, Debug)]
struct Failed {
    since: Instant,
    again_at: Instant,
    wait: Duration,
}

impl Retry {
    pub(crate) fn ended(&mut self, succeeded: bool, now: Instant) {
        let after = |since, wait| Failed { since, again_at: now + wait, wait };
        self.0 = match &self.0 {
            _ if succeeded => None,
            None => Some(after(now, FIRST_WAIT)),
            Some(before) => Some(after(before.since, (before.wait * 2).min(LONGEST_WAIT))),
        };
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.0.is_some_and(|failed| now >= failed.again_at)
    }

    /// How long changes have failed.
    pub(crate) fn failing_for(&self, now: Instant) -> Option<Duration> {
        self.0.map(|failed| now.since(failed.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_change_is_tried_less_and_less_often_but_never_given_up() {
        let (began, mut retry) = (Instant(Duration::from_secs(100)), Retry::default());
        assert!(!retry.is_due(began) && retry.failing_for(began).is_none());
        let mut now = began;
        for wait in [1, 2, 4, 5, 5] {
            retry.ended(false, now);
            let due = now + Duration::from_secs(wait);
            assert!(!retry.is_due(now + Duration::from_millis(1_000 * wait - 1)) && retry.is_due(due));
            now = due;
        }
        assert_eq!(retry.failing_for(now), Some(now.since(began)));
        retry.ended(true, now);
        assert!(!retry.is_due(now + LONGEST_WAIT) && retry.failing_for(now).is_none());
        retry.ended(false, now);
        assert!(retry.is_due(now + FIRST_WAIT), "the next failure starts from the first wait");
    }
}
