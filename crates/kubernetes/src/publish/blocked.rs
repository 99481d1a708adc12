//! Objects whose writes fail and are retried. They are reported after a few seconds: the addresses may stay valid, and
//! the retries go on, for an hour. Pure; time is an argument.

use namewall_cluster::Key;
use namewall_runtime::Instant;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Writes that fail for less than this are not reported.
const SHORT: Duration = Duration::from_secs(5);

/// At most as many as there are writers.
#[derive(Debug, Default)]
pub(super) struct BlockedObjects(Mutex<BTreeMap<Key, Blocked>>);

#[derive(Debug)]
struct Blocked {
    since: Instant,
    why: String,
}

impl BlockedObjects {
    /// Records that a write of the object failed and is retried.
    pub(super) fn put(&self, key: &Key, why: String, now: Instant) {
        let mut all = self.lock();
        match all.get_mut(key) {
            Some(known) => known.why = why,
            None => _ = all.insert(key.clone(), Blocked { since: now, why }),
        }
    }

    /// Records that the object was written, or that its write is given up.
    pub(super) fn remove(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// The object whose writes have failed for longest, with the error. None if that is no longer than [`SHORT`].
    pub(super) fn lasting(&self, now: Instant) -> Option<String> {
        let all = self.lock();
        let (key, first) = all.iter().min_by_key(|(_, one)| one.since)?;
        let is_lasting = now.since(first.since) >= SHORT;
        is_lasting.then(|| format!("DNSNameResolver {} cannot be written: {}", key.name, first.why))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Blocked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
