//! When users get an Event about a node: that its policies are not in force, and
//! that they are again. Events are few, since many nodes may be in trouble at
//! once and share one API server.

use namewall_policy::Instant;
use std::time::Duration;

/// The shortest time between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// How long to wait after an Event could not be written.
const TRY_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Warning {
    /// The error users know of.
    written: Option<String>,
    warn_at: Option<Instant>,
    try_at: Option<Instant>,
}

impl Warning {
    /// Whether an Event is due about this error, or about its end.
    pub(crate) fn is_due(&self, error: Option<&str>, now: Instant) -> bool {
        let is_time = |at: Option<Instant>| at.is_none_or(|at| now >= at);
        let is_news = match error {
            None => self.written.is_some(),
            Some(_) => self.written.as_deref() != error && is_time(self.warn_at),
        };
        is_news && is_time(self.try_at)
    }

    /// An Event was tried.
    pub(crate) fn ended(&mut self, error: Option<&str>, is_written: bool, now: Instant) {
        if !is_written {
            self.try_at = Some(now + TRY_EVERY);
            return;
        }
        if error.is_some() {
            self.warn_at = Some(now + WARN_EVERY);
        }
        self.written = error.map(str::to_owned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_is_one_event_and_its_end_another() {
        let (now, mut warning) = (Instant(Duration::from_secs(1)), Warning::default());
        assert!(!warning.is_due(None, now), "there was no error");
        assert!(warning.is_due(Some("full"), now));
        warning.ended(Some("full"), true, now);
        assert!(!warning.is_due(Some("full"), now + WARN_EVERY), "it is known");
        assert!(!warning.is_due(Some("fuller"), now) && warning.is_due(Some("fuller"), now + WARN_EVERY));
        assert!(warning.is_due(None, now));
        warning.ended(None, true, now);
        assert!(!warning.is_due(None, now));
        assert!(!warning.is_due(Some("full"), now), "it comes and goes");
        assert!(warning.is_due(Some("full"), now + WARN_EVERY));
    }

    #[test]
    fn an_event_that_could_not_be_written_is_tried_again_after_a_while() {
        let (now, mut warning) = (Instant(Duration::from_secs(1)), Warning::default());
        warning.ended(Some("full"), false, now);
        assert!(!warning.is_due(Some("full"), now) && warning.is_due(Some("full"), now + TRY_EVERY));
        assert!(!warning.is_due(None, now + TRY_EVERY), "nobody knows of an error");
    }
}
