//! A cache of answers that open nothing new: the same bytes to the same client,
//! while everything they open is open for at least as long as they last. Each
//! slot has a lock of its own: loops that answer at once meet only where two of
//! their answers have one slot.

use namewall_policy::Instant;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::Mutex;

/// The size of the cache. An answer takes the slot that its hash leads to.
const SLOTS: usize = 4_096;

/// An answer means the same only while this is the same.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct State {
    /// How often the rules have changed.
    pub(crate) rule_changes: u64,
    /// How often a lease was lost before it expired.
    pub(crate) losses: u64,
}

#[derive(Debug)]
pub(crate) struct Memo {
    /// A random seed, so that nobody can make two answers with one hash.
    seed: RandomState,
    slots: Vec<Mutex<Slot>>,
}

/// What is known of an answer that opens nothing new.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// Everything it opens is open.
    #[default]
    Open,
    /// No rule of the client speaks of its name.
    Unspoken,
}

/// What is known of an answer, and until when.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) until: Instant,
    pub(crate) known: Known,
}

#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    answer: u64,
    state: State,
    entry: Entry,
}

impl Memo {
    pub(crate) fn new() -> Self {
        Self { seed: RandomState::new(), slots: (0..SLOTS).map(|_| Mutex::default()).collect() }
    }

    /// What is known of the answer, if it opens nothing new.
    pub(crate) fn get(&self, answer: u64, state: State, now: Instant) -> Option<Known> {
        // A slot that is being written is not known yet.
        let slot = *self.slots[at(answer)].try_lock().ok()?;
        (slot.answer == answer && slot.state == state && now <= slot.entry.until).then_some(slot.entry.known)
    }

    pub(crate) fn put(&self, answer: u64, state: State, entry: Entry) {
        if let Ok(mut slot) = self.slots[at(answer)].try_lock() {
            *slot = Slot { answer, state, entry };
        }
    }

    /// The hash of an answer to a client, without the id, which differs each time.
    pub(crate) fn key(&self, client: IpAddr, answer: &[u8]) -> u64 {
        let mut hasher = self.seed.build_hasher();
        match client {
            IpAddr::V4(v4) => hasher.write_u32(v4.to_bits()),
            IpAddr::V6(v6) => hasher.write_u128(v6.to_bits()),
        }
        hasher.write(answer.get(2..).unwrap_or_default());
        hasher.finish()
    }
}

fn at(answer: u64) -> usize {
    answer as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> Instant {
        Instant(Duration::from_secs(seconds))
    }

    #[test]
    fn an_answer_is_known_by_its_client_and_its_bytes_without_the_id() {
        let memo = Memo::new();
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        assert_eq!(memo.key(one, b"id the same"), memo.key(one, b"ID the same"));
        assert_ne!(memo.key(one, b"id the same"), memo.key(other, b"id the same"));
        assert_ne!(memo.key(one, b"id the same"), memo.key(one, b"id the Same"));
    }

    #[test]
    fn nothing_is_known_past_its_time_or_under_other_rules() {
        let memo = Memo::new();
        let state = State { rule_changes: 1, losses: 1 };
        let known = |memo: &Memo, answer, state, seconds| memo.get(answer, state, at(seconds));
        assert_eq!(known(&memo, 7, state, 1), None);
        memo.put(7, state, Entry { until: at(5), known: Known::Unspoken });
        assert_eq!((known(&memo, 7, state, 5), known(&memo, 7, state, 6)), (Some(Known::Unspoken), None));
        assert_eq!(known(&memo, 7, State { rule_changes: 2, ..state }, 1), None);
        assert_eq!(known(&memo, 7, State { losses: 2, ..state }, 1), None);
        assert_eq!(known(&memo, 7 + SLOTS as u64, state, 1), None, "another answer in the same slot");
    }
}
