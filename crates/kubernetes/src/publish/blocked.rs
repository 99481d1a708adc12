//! Objects whose writes fail. They are reported after a few seconds: the addresses may stay valid, and the retries go
//! on, for an hour. Pure; time is an argument.

use namewall_cluster::Key;
use namewall_runtime::Instant;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Writes that fail for less than this are not reported.
const SHORT: Duration = Duration::from_secs(5);
/// An object counts as written again when no write of it has failed for so long: one that is given up says nothing.
const LONG: Duration = Duration::from_secs(15);

/// At most as many as there are objects.
#[derive(Debug, Default)]
pub(super) struct BlockedObjects(Mutex<BTreeMap<Key, Blocked>>);

#[derive(Debug)]
struct Blocked {
    since: Instant,
    /// When a write failed last.
    last: Instant,
    why: String,
}

impl BlockedObjects {
    /// Records that a write of the object failed.
    pub(super) fn put(&self, key: &Key, why: String, now: Instant) {
        let mut all = self.lock();
        all.retain(|_, one| now.since(one.last) <= LONG);
        match all.get_mut(key) {
            Some(known) => (known.last, known.why) = (now, why),
            None => _ = all.insert(key.clone(), Blocked { since: now, last: now, why }),
        }
    }

    /// Records that the object was written.
    pub(super) fn remove(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// The object whose writes have failed for longest, with the error. None if that is no longer than [`SHORT`].
    pub(super) fn lasting(&self, now: Instant) -> Option<String> {
        let all = self.lock();
        let is_lasting = |one: &Blocked| one.last.since(one.since) >= SHORT && now.since(one.last) <= LONG;
        let lasting = all.iter().filter(|(_, one)| is_lasting(one));
        let (key, first) = lasting.min_by_key(|(_, one)| one.since)?;
        Some(format!("DNSNameResolver {} cannot be written: {}", key.name, first.why))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Blocked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(Duration::from_secs(seconds))
    }

    #[test]
    fn an_object_whose_writes_are_given_up_one_after_the_other_stays_blocked() {
        let (blocked, key) = (BlockedObjects::default(), Key { namespace: "namewall".into(), name: "dns-1".into() });
        let fail = |from: u64, to: u64| (from..to).for_each(|second| blocked.put(&key, "busy".to_owned(), at(second)));
        fail(100, 103);
        assert_eq!(blocked.lasting(at(103)), None, "it may be over soon");
        fail(103, 130);
        assert!(blocked.lasting(at(130)).is_some());
        // The first write is given up, and the next fails as well.
        fail(135, 160);
        assert!((135..160).all(|second| blocked.lasting(at(second)).is_some()));
        assert!(blocked.lasting(at(174)).is_some());
        assert_eq!(blocked.lasting(at(176)), None, "nothing is written, and nothing fails");
        fail(200, 203);
        assert_eq!(blocked.lasting(at(203)), None, "it is another outage");
        fail(203, 210);
        blocked.remove(&key);
        assert_eq!(blocked.lasting(at(210)), None, "it was written");
    }
}
