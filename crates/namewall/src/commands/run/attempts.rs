//! A change that could not be made is tried again until it is: the next change
//! may be days away, and what is in force until then is not what is meant.

use std::time::{Duration, Instant};

/// How long it is waited before the first further attempt, and at most before any.
const AT_FIRST: Duration = Duration::from_secs(1);
const AT_MOST: Duration = Duration::from_secs(5);

/// Whether what is meant is in force, and when to try again if not.
#[derive(Debug, Default)]
pub(super) struct Attempts(Option<Undone>);

#[derive(Clone, Copy, Debug)]
struct Undone {
    since: Instant,
    again: Instant,
    wait: Duration,
}

impl Attempts {
    /// All of it was tried.
    pub(super) fn ended(&mut self, is_done: bool, now: Instant) {
        let after = |since, wait| Undone { since, again: now + wait, wait };
        self.0 = match &self.0 {
            _ if is_done => None,
            None => Some(after(now, AT_FIRST)),
            Some(before) => Some(after(before.since, (before.wait * 2).min(AT_MOST))),
        };
    }

    pub(super) fn are_due(&self, now: Instant) -> bool {
        self.0.is_some_and(|undone| now >= undone.again)
    }

    /// For how long something else has been in force than what is meant.
    pub(super) fn undone_for(&self, now: Instant) -> Option<Duration> {
        self.0.map(|undone| now.saturating_duration_since(undone.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_done_is_tried_again_ever_less_often_but_for_ever() {
        let (began, mut attempts) = (Instant::now(), Attempts::default());
        assert!(!attempts.are_due(began) && attempts.undone_for(began).is_none());
        let mut now = began;
        for wait in [1, 2, 4, 5, 5] {
            attempts.ended(false, now);
            let due = now + Duration::from_secs(wait);
            assert!(!attempts.are_due(due - Duration::from_millis(1)) && attempts.are_due(due));
            now = due;
        }
        assert_eq!(attempts.undone_for(now), Some(now - began));
        attempts.ended(true, now);
        assert!(!attempts.are_due(now + AT_MOST) && attempts.undone_for(now).is_none());
        attempts.ended(false, now);
        assert!(attempts.are_due(now + AT_FIRST), "the next trouble begins anew");
    }
}
