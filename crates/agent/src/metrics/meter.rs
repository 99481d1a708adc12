//! What is counted and timed of changes. Everything is atomic: nobody waits to count.

use namewall_dataplane::Way;
use namewall_telemetry::Durations;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) compiled: Durations,
    pub(crate) program: Commits,
    pub(crate) leases: Commits,
    /// Changes of rules by [`WAYS`].
    pub(crate) ways: [AtomicU64; WAYS.len()],
    pub(crate) cut: AtomicU64,
    pub(crate) cuts_forgotten: AtomicU64,
    pub(crate) granted: AtomicU64,
    pub(crate) names_expired: AtomicU64,
    pub(crate) changes: AtomicU64,
    pub(crate) failed_changes: AtomicU64,
    /// Callers of the control socket that found it busy.
    pub(crate) callers_refused: AtomicU64,
}

/// Transactions with the kernel.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    pub(crate) took: Durations,
    pub(crate) failed: AtomicU64,
}

/// The words for the ways of a change.
pub(super) const WAYS: [&str; 3] = ["rebuild", "whole", "pods"];

fn place(way: Way) -> usize {
    match way {
        Way::Rebuild => 0,
        Way::Whole => 1,
        Way::Pods => 2,
    }
}

impl Commits {
    pub(crate) fn ended(&self, took: Duration, is_ok: bool) {
        match is_ok {
            true => self.took.add(took),
            false => _ = self.failed.fetch_add(1, Relaxed),
        }
    }
}

impl Meter {
    pub(crate) fn went(&self, way: Way) {
        self.ways[place(way)].fetch_add(1, Relaxed);
    }

    /// A change that the loop asked for has ended.
    pub(crate) fn changed(&self, is_ok: bool) {
        add(if is_ok { &self.changes } else { &self.failed_changes }, 1);
    }
}

pub(crate) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Relaxed);
}

pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}
