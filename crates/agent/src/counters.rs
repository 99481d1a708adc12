//! What was learned, and what was not.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts since the start.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Answers that opened something.
    pub learned: u64,
    /// Addresses that are never leased (S6.8).
    pub refused: u64,
    /// Addresses in an answer that the question's name does not lead to (S6.1).
    pub foreign: u64,
    /// Times the kernel did not take what was to be opened.
    pub failed: u64,
}

#[derive(Default, Debug)]
pub(crate) struct Counting {
    pub(crate) learned: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) foreign: AtomicU64,
    pub(crate) failed: AtomicU64,
}

impl Counting {
    pub(crate) fn add(&self, counter: impl Fn(&Self) -> &AtomicU64, count: usize) {
        counter(self).fetch_add(count as u64, Relaxed);
    }

    pub(crate) fn read(&self) -> Counters {
        Counters {
            learned: self.learned.load(Relaxed),
            refused: self.refused.load(Relaxed),
            foreign: self.foreign.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }
}
