//! What was learned, and what was not.

use namewall_policy::lease::Refusal;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts since the start.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Answers that opened something.
    pub learned: u64,
    /// Answers to pods with rules by name that had to be read: nothing was known of them.
    pub read: u64,
    /// Addresses that are never leased (S6.8).
    pub refused: u64,
    /// The same by reason.
    pub(crate) refused_by: [u64; REASONS.len()],
    /// Leases that were closed since their address has become one that is never leased, by reason.
    pub(crate) revoked_by: [u64; REASONS.len()],
    /// Addresses in an answer that the question's name does not lead to (S6.1).
    pub foreign: u64,
    /// Addresses beyond the bound of a name in one answer: only the first are leased (S6.5).
    pub over_bound: u64,
    /// Times the kernel did not take what was to be opened.
    pub failed: u64,
}

/// The words for reasons to refuse an address.
pub(crate) const REASONS: [&str; 9] =
    ["loopback", "link_local", "multicast", "unspecified", "metadata", "service", "node", "pod", "listed"];

fn place(reason: Refusal) -> usize {
    match reason {
        Refusal::Loopback => 0,
        Refusal::LinkLocal => 1,
        Refusal::Multicast => 2,
        Refusal::Unspecified => 3,
        Refusal::Metadata => 4,
        Refusal::Service => 5,
        Refusal::Node(_) => 6,
        Refusal::Pod => 7,
        Refusal::Listed => 8,
    }
}

#[derive(Default, Debug)]
pub(crate) struct Counting {
    pub(crate) learned: AtomicU64,
    pub(crate) read: AtomicU64,
    refused: [AtomicU64; REASONS.len()],
    revoked: [AtomicU64; REASONS.len()],
    pub(crate) foreign: AtomicU64,
    pub(crate) over_bound: AtomicU64,
    pub(crate) failed: AtomicU64,
}

impl Counting {
    pub(crate) fn add(&self, counter: impl Fn(&Self) -> &AtomicU64, count: usize) {
        counter(self).fetch_add(count as u64, Relaxed);
    }

    pub(crate) fn refuse(&self, reason: Refusal) {
        self.refused[place(reason)].fetch_add(1, Relaxed);
    }

    pub(crate) fn revoke(&self, reason: Refusal) {
        self.revoked[place(reason)].fetch_add(1, Relaxed);
    }

    pub(crate) fn read(&self) -> Counters {
        let refused_by = self.refused.each_ref().map(|count| count.load(Relaxed));
        Counters {
            learned: self.learned.load(Relaxed),
            read: self.read.load(Relaxed),
            refused: refused_by.iter().sum(),
            refused_by,
            revoked_by: self.revoked.each_ref().map(|count| count.load(Relaxed)),
            foreign: self.foreign.load(Relaxed),
            over_bound: self.over_bound.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }
}
