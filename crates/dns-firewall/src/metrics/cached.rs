//! What is counted of a cache, beside hits and misses.

use std::sync::atomic::{AtomicU64, Ordering};

/// Of the cache of a server block. It outlives the cache, which begins anew with each Corefile.
#[derive(Debug, Default)]
pub(crate) struct CacheMeter {
    /// Answers, and denials, that others took the place of.
    pub(super) evictions: [AtomicU64; 2],
    /// Answers that were not to the question.
    pub(super) drops: AtomicU64,
    /// Answers that were given after their time.
    pub(super) served_stale: AtomicU64,
    /// Answers that were asked for again before their end.
    pub(super) prefetches: AtomicU64,
}

impl CacheMeter {
    pub(crate) fn evicted(&self, is_success: bool) {
        self.evictions[usize::from(!is_success)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn dropped(&self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn gave_stale(&self) {
        self.served_stale.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn prefetched(&self) {
        self.prefetches.fetch_add(1, Ordering::Relaxed);
    }
}
