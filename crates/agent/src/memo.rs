//! A cache of answers that open nothing new: the same bytes to the same client,
//! while everything they open is open for at least as long as they last. Each
//! set of slots has a lock of its own, and nobody waits for it: a set that
//! another loop uses at this moment has no answer.

use namewall_policy::Instant;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::Mutex;

/// The size of the cache. The hash of an answer leads to a set, and it takes one of the slots there. With one slot in a
/// set, every third of 2,000 answers would have to share its slot with another and be read each time.
const SETS: usize = 4_096;
const SLOTS_IN_A_SET: usize = 4;

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
    sets: Vec<Mutex<Set>>,
}

#[derive(Default, Debug)]
struct Set {
    slots: [Slot; SLOTS_IN_A_SET],
    /// The slot that the next new answer takes.
    next: usize,
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
        Self { seed: RandomState::new(), sets: (0..SETS).map(|_| Mutex::default()).collect() }
    }

    /// What is known of the answer, if it opens nothing new.
    pub(crate) fn get(&self, answer: u64, state: State, now: Instant) -> Option<Known> {
        let set = self.sets[at(answer)].try_lock().ok()?;
        let slot = set.slots.iter().find(|slot| slot.answer == answer)?;
        (slot.state == state && now <= slot.entry.until).then_some(slot.entry.known)
    }

    pub(crate) fn put(&self, answer: u64, state: State, entry: Entry) {
        let Ok(mut set) = self.sets[at(answer)].try_lock() else { return };
        let known = set.slots.iter().position(|slot| slot.answer == answer);
        let place = known.unwrap_or_else(|| {
            let next = set.next;
            set.next = (next + 1) % SLOTS_IN_A_SET;
            next
        });
        set.slots[place] = Slot { answer, state, entry };
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
    answer as usize % SETS
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
        assert_eq!(known(&memo, 7 + SETS as u64, state, 1), None, "another answer in the same set");
    }

    #[test]
    fn answers_that_meet_in_one_set_are_known_beside_each_other() {
        let memo = Memo::new();
        let state = State { rule_changes: 1, losses: 1 };
        let answers: Vec<u64> = (1..=SLOTS_IN_A_SET as u64 + 1).map(|number| 7 + number * SETS as u64).collect();
        let known = |memo: &Memo| answers.iter().filter(|one| memo.get(**one, state, at(1)).is_some()).count();
        for &answer in &answers[..SLOTS_IN_A_SET] {
            memo.put(answer, state, Entry { until: at(5), known: Known::Open });
        }
        assert_eq!(known(&memo), SLOTS_IN_A_SET);
        memo.put(answers[0], state, Entry { until: at(6), known: Known::Open });
        assert_eq!(known(&memo), SLOTS_IN_A_SET, "it keeps its slot");
        memo.put(answers[SLOTS_IN_A_SET], state, Entry { until: at(5), known: Known::Open });
        assert_eq!(known(&memo), SLOTS_IN_A_SET, "one gives way");
        assert_eq!(memo.get(answers[0], state, at(1)), None, "the oldest");
    }

    /// A thousand names with their two kinds of addresses, as a node's pods keep asking for.
    #[test]
    fn two_thousand_answers_are_known_at_the_same_time() {
        let memo = Memo::new();
        let state = State { rule_changes: 1, losses: 1 };
        let client = IpAddr::from([10, 0, 0, 1]);
        let keys: Vec<u64> = (0..2_000u32).map(|number| memo.key(client, &number.to_be_bytes().repeat(8))).collect();
        keys.iter().for_each(|&key| memo.put(key, state, Entry { until: at(5), known: Known::Open }));
        let known = keys.iter().filter(|key| memo.get(**key, state, at(1)).is_some()).count();
        // By chance five of them may have one set.
        assert!(known >= 1_980, "{known}");
    }
}
