//! Objects that cannot be written now, though they are tried again: users are told of them before the addresses are
//! over, which may take an hour. Pure; time is an argument.

use namewall_cluster::Key;
use namewall_runtime::Instant;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Writes that are late by less than this are no trouble.
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
    /// The object could not be written, and is tried again.
    pub(super) fn put(&self, key: &Key, why: String, now: Instant) {
        let mut all = self.lock();
        match all.get_mut(key) {
            Some(known) => known.why = why,
            None => _ = all.insert(key.clone(), Blocked { since: now, why }),
        }
    }

    /// The object was written, or is not tried again.
    pub(super) fn remove(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// The object that has waited longest, and why. None if that has not lasted.
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
