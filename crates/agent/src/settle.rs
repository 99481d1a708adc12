//! When to decide which connections a change has forbidden (S3.4).
//!
//! New connections are judged by a change at once. What to cut is decided when
//! the policies have settled, since one `kubectl apply` arrives as several
//! changes:
//!
//! ```text
//! default-deny ──► enforced ── 12 ms ──► allow-web ──► enforced ── quiet ──► cut what the last one forbids
//! ```
//! Packets of connections that exist are not judged, so what both ends of this
//! line allow is never lost.

use namewall_policy::Instant;
use std::time::Duration;

/// How long policies take to settle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settle {
    /// Without a change for this long.
    pub quiet: Duration,
    /// Or this long after the first change.
    pub at_most: Duration,
}

impl Default for Settle {
    fn default() -> Self {
        Self { quiet: Duration::from_millis(200), at_most: Duration::from_secs(2) }
    }
}

impl Settle {
    /// Every change counts as settled.
    pub const AT_ONCE: Self = Self { quiet: Duration::ZERO, at_most: Duration::ZERO };
}

/// Whether connections have to be judged, and when.
#[derive(Debug)]
pub(crate) struct Settling {
    pub(crate) settle: Settle,
    owed: Option<Owed>,
}

#[derive(Clone, Copy, Debug)]
struct Owed {
    first: Instant,
    last: Instant,
    /// It was tried, and is tried again with the next attempt at a change.
    failed: bool,
}

impl Settling {
    pub(crate) fn new(settle: Settle) -> Self {
        Self { settle, owed: None }
    }

    /// A change is in force. One that narrows may forbid connections that exist; another may allow again what an
    /// earlier one forbids.
    pub(crate) fn changed(&mut self, narrows: bool, now: Instant) {
        match &mut self.owed {
            Some(owed) => owed.last = now,
            None if narrows => self.owed = Some(Owed { first: now, last: now, failed: false }),
            None => {}
        }
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let Settle { quiet, at_most } = self.settle;
        self.owed.is_some_and(|owed| !owed.failed && (now >= owed.last + quiet || now >= owed.first + at_most))
    }

    /// True if every change counts as settled.
    pub(crate) fn is_at_once(&self) -> bool {
        self.settle == Settle::AT_ONCE
    }

    /// True if it was tried and failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.owed.is_some_and(|owed| owed.failed)
    }

    pub(crate) fn ended(&mut self, succeeded: bool) {
        match succeeded {
            true => self.owed = None,
            false => self.owed.iter_mut().for_each(|owed| owed.failed = true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Instant {
        Instant(Duration::from_millis(milliseconds))
    }

    #[test]
    fn s3_4_it_is_due_after_a_quiet_time_and_at_most_so_long_after_the_first_change() {
        let mut settling = Settling::new(Settle::default());
        settling.changed(false, at(0));
        assert!(!settling.is_due(at(5_000)), "nothing was narrowed");
        settling.changed(true, at(1_000));
        assert!(!settling.is_due(at(1_199)) && settling.is_due(at(1_200)));
        settling.changed(false, at(1_150));
        assert!(!settling.is_due(at(1_349)) && settling.is_due(at(1_350)), "any change may allow something again");
        (0..20).for_each(|turn| settling.changed(true, at(1_200 + turn * 100)));
        assert!(!settling.is_due(at(2_999)) && settling.is_due(at(3_000)), "changes that never end");
        settling.ended(true);
        assert!(!settling.is_due(at(60_000)));
    }

    #[test]
    fn what_failed_waits_for_the_next_attempt() {
        let mut settling = Settling::new(Settle::AT_ONCE);
        settling.changed(true, at(0));
        assert!(settling.is_due(at(0)));
        settling.ended(false);
        assert!(!settling.is_due(at(60_000)) && settling.has_failed());
        settling.ended(true);
        assert!(!settling.has_failed());
    }
}
