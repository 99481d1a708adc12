//! What users are told of a node by Events: that what is meant is not in force
//! there, and that it is again. Few, whatever happens: an API server has enough
//! to do where many nodes are in trouble.

use std::time::{Duration, Instant};

/// How soon another complaint may follow.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// How soon it is tried again to tell what could not be told.
const TRY_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Complaint {
    /// What users take to be wrong.
    told: Option<String>,
    warns_from: Option<Instant>,
    tries_from: Option<Instant>,
}

impl Complaint {
    /// Whether users are to be told what is wrong now, or that nothing is.
    pub(super) fn is_due(&self, error: Option<&str>, now: Instant) -> bool {
        let is_time = |from: Option<Instant>| from.is_none_or(|from| now >= from);
        let is_news = match error {
            None => self.told.is_some(),
            Some(_) => self.told.as_deref() != error && is_time(self.warns_from),
        };
        is_news && is_time(self.tries_from)
    }

    /// It was tried to tell them.
    pub(super) fn ended(&mut self, error: Option<&str>, is_told: bool, now: Instant) {
        if !is_told {
            self.tries_from = Some(now + TRY_EVERY);
            return;
        }
        if error.is_some() {
            self.warns_from = Some(now + WARN_EVERY);
        }
        self.told = error.map(str::to_owned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_is_told_once_and_its_end_at_once() {
        let (now, mut complaint) = (Instant::now(), Complaint::default());
        assert!(!complaint.is_due(None, now), "nobody has complained");
        assert!(complaint.is_due(Some("full"), now));
        complaint.ended(Some("full"), true, now);
        assert!(!complaint.is_due(Some("full"), now + WARN_EVERY), "it is known");
        assert!(!complaint.is_due(Some("fuller"), now) && complaint.is_due(Some("fuller"), now + WARN_EVERY));
        assert!(complaint.is_due(None, now));
        complaint.ended(None, true, now);
        assert!(!complaint.is_due(None, now));
        assert!(!complaint.is_due(Some("full"), now), "it comes and goes");
        assert!(complaint.is_due(Some("full"), now + WARN_EVERY));
    }

    #[test]
    fn what_could_not_be_told_is_tried_again_after_a_while() {
        let (now, mut complaint) = (Instant::now(), Complaint::default());
        complaint.ended(Some("full"), false, now);
        assert!(!complaint.is_due(Some("full"), now) && complaint.is_due(Some("full"), now + TRY_EVERY));
        assert!(!complaint.is_due(None, now + TRY_EVERY), "nobody knows that there was anything");
    }
}
