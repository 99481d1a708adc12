//! A cache of answers that open nothing new: the same bytes to the same client,
//! but for TTLs that a cache has counted down, while everything they open is open
//! for at least as long as they last. Each set of slots has a lock of its own, and
//! nobody waits for it: a set that another loop uses at this moment has no answer.

use namewall_dns::wire::{RecordType, each_record};
use namewall_policy::Instant;
use namewall_policy::lease::Lifetimes;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

/// The size of the cache. The hash of an answer leads to a set, and it takes one of the slots there. With one slot in a
/// set, every third of 2,000 answers would have to share its slot with another and be read each time.
const SETS: usize = 4_096;
const SLOTS_IN_A_SET: usize = 4;
/// An answer with more records is known by all of its bytes, its TTLs among them.
const MOST_TTLS: usize = 32;
const TTL_BYTES: usize = 4;
const OPT: RecordType = RecordType(41);

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
    /// The last moment at which the answer opens nothing new.
    pub(crate) until: Instant,
    pub(crate) known: Known,
}

/// What an answer to a client is known by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AnswerKey {
    /// Of its client, and of its bytes without the id. Of its TTLs only what each is longer than the lowest.
    hash: u64,
    /// The lowest TTL, as it counts. An answer of the same hash lasts as much longer or shorter as this is.
    lowest: Duration,
}

#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    answer: u64,
    state: State,
    /// The last moment at which the lowest TTL of the answer may end.
    ends: Instant,
    known: Known,
}

impl Memo {
    pub(crate) fn new() -> Self {
        Self { seed: RandomState::new(), sets: (0..SETS).map(|_| Mutex::default()).collect() }
    }

    /// The seed of hashes that nobody outside can foresee.
    pub(crate) fn seed(&self) -> &RandomState {
        &self.seed
    }

    /// What is known of the answer, if it opens nothing new.
    pub(crate) fn get(&self, answer: AnswerKey, state: State, now: Instant) -> Option<Known> {
        let set = self.sets[at(answer.hash)].try_lock().ok()?;
        let slot = set.slots.iter().find(|slot| slot.answer == answer.hash)?;
        (slot.state == state && now + answer.lowest <= slot.ends).then_some(slot.known)
    }

    pub(crate) fn put(&self, answer: AnswerKey, state: State, entry: Entry) {
        let AnswerKey { hash, lowest } = answer;
        let Ok(mut set) = self.sets[at(hash)].try_lock() else { return };
        let known = set.slots.iter().position(|slot| slot.answer == hash);
        let place = known.unwrap_or_else(|| {
            let next = set.next;
            set.next = (next + 1) % SLOTS_IN_A_SET;
            next
        });
        set.slots[place] = Slot { answer: hash, state, ends: entry.until + lowest, known: entry.known };
    }

    /// What an answer to a client is known by.
    pub(crate) fn key(&self, client: IpAddr, answer: &[u8], lifetimes: &Lifetimes) -> AnswerKey {
        let mut hasher = self.seed.build_hasher();
        match client {
            IpAddr::V4(v4) => hasher.write_u32(v4.to_bits()),
            IpAddr::V6(v6) => hasher.write_u128(v6.to_bits()),
        }
        let ttls = Ttls::of(answer).unwrap_or_default();
        let lowest = ttls.all().iter().map(|ttl| ttl.seconds).min().unwrap_or(0);
        let counted = |seconds: u32| lifetimes.counted(Duration::from_secs(seconds.into()));
        let lowest = if lowest == 0 { Duration::ZERO } else { counted(lowest) };
        // Behind the id, which differs each time.
        let mut from = 2;
        for ttl in ttls.all() {
            hasher.write(answer.get(from..ttl.at).unwrap_or_default());
            hasher.write_u64(counted(ttl.seconds).saturating_sub(lowest).as_nanos() as u64);
            from = ttl.at + TTL_BYTES;
        }
        hasher.write(answer.get(from..).unwrap_or_default());
        // An answer that is known by all of its bytes is never taken for one that is not.
        hasher.write_usize(ttls.count);
        AnswerKey { hash: hasher.finish(), lowest }
    }
}

fn at(answer: u64) -> usize {
    answer as usize % SETS
}

/// The TTLs of an answer, in their order.
#[derive(Clone, Copy, Default)]
struct Ttls {
    ttls: [Ttl; MOST_TTLS],
    count: usize,
}

#[derive(Clone, Copy, Default)]
struct Ttl {
    at: usize,
    seconds: u32,
}

impl Ttls {
    /// None if the answer is known by all of its bytes: it cannot be read, or has too many records, or one with a TTL
    /// that counts as 0. Such a TTL counts as the minimum, and so for more than a TTL of 1.
    fn of(answer: &[u8]) -> Option<Self> {
        let (mut found, mut is_usual) = (Self::default(), true);
        let read = each_record(answer, |record| {
            // An OPT record has flags in place of the TTL.
            if record.kind == OPT {
                return;
            }
            match found.ttls.get_mut(found.count) {
                Some(ttl) if (1..=i32::MAX as u32).contains(&record.ttl) => {
                    *ttl = Ttl { at: record.ttl_at, seconds: record.ttl };
                    found.count += 1;
                }
                _ => is_usual = false,
            }
        });
        (read.is_ok() && is_usual).then_some(found)
    }

    fn all(&self) -> &[Ttl] {
        &self.ttls[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(Duration::from_secs(seconds))
    }

    /// Of an answer without TTLs.
    fn key(hash: u64) -> AnswerKey {
        AnswerKey { hash, lowest: Duration::ZERO }
    }

    fn key_of(memo: &Memo, client: IpAddr, answer: &[u8]) -> AnswerKey {
        memo.key(client, answer, &Lifetimes::default())
    }

    /// An answer with records of these TTLs, and with an OPT record that has this in place of its own.
    fn with_ttls(ttls: &[u32], opt: u32) -> Vec<u8> {
        let mut answer = vec![0, 1, 0x81, 0x80, 0, 1, 0, ttls.len() as u8, 0, 0, 0, 1, 1, b'a', 0, 0, 1, 0, 1];
        for ttl in ttls {
            answer.extend([0xc0, 12, 0, 1, 0, 1]);
            answer.extend(ttl.to_be_bytes());
            answer.extend([0, 4, 192, 0, 2, 1]);
        }
        answer.extend([0, 0, 41, 4, 208]);
        answer.extend(opt.to_be_bytes());
        answer.extend([0, 0]);
        answer
    }

    #[test]
    fn an_answer_is_known_by_its_client_and_its_bytes_without_the_id() {
        let memo = Memo::new();
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        assert_eq!(key_of(&memo, one, b"id the same"), key_of(&memo, one, b"ID the same"));
        assert_ne!(key_of(&memo, one, b"id the same"), key_of(&memo, other, b"id the same"));
        assert_ne!(key_of(&memo, one, b"id the same"), key_of(&memo, one, b"id the Same"));
    }

    #[test]
    fn ttls_that_were_counted_down_together_are_one_answer() {
        let memo = Memo::new();
        let key = |ttls: &[u32]| key_of(&memo, IpAddr::from([10, 0, 0, 1]), &with_ttls(ttls, 0));
        let seconds = |key: AnswerKey| key.lowest.as_secs();
        assert_eq!(key(&[60]).hash, key(&[59]).hash);
        assert_eq!((seconds(key(&[60])), seconds(key(&[59]))), (60, 59));
        assert_eq!(key(&[300, 60]).hash, key(&[295, 55]).hash);
        assert_ne!(key(&[300, 60]).hash, key(&[300, 59]).hash, "one of them lasts less long than the other says");
        assert_ne!(key(&[60]).hash, key(&[60, 60]).hash);
        // All that is longer than the maximum counts as the maximum.
        assert_eq!(key(&[86_400]), key(&[86_399]));
        assert_eq!(key(&[86_400, 60]), key(&[80_000, 60]));
        assert_ne!(key(&[86_400, 60]).hash, key(&[86_399, 59]).hash, "only one of them counts for less");
        // What counts as 0 counts for more than 1.
        for ttl in [0, 0x8000_0000, u32::MAX] {
            assert_ne!(key(&[ttl]).hash, key(&[1]).hash);
            assert_eq!(seconds(key(&[ttl, 60])), 0);
            assert_ne!(key(&[ttl, 60]).hash, key(&[ttl, 59]).hash);
        }
        let many = |ttl| key(&[ttl; MOST_TTLS + 1]);
        assert!(many(60).hash != many(59).hash && many(60) == many(60), "it is known by all of its bytes");
        assert_eq!(key(&[60; MOST_TTLS]).hash, key(&[59; MOST_TTLS]).hash);
        let with_opt = |opt| key_of(&memo, IpAddr::from([10, 0, 0, 1]), &with_ttls(&[60], opt));
        assert_ne!(with_opt(0).hash, with_opt(0x8000).hash, "it has no TTL");
    }

    #[test]
    fn an_answer_that_was_counted_down_is_known_until_the_same_moment() {
        let memo = Memo::new();
        let state = State::default();
        let key = |ttl| key_of(&memo, IpAddr::from([10, 0, 0, 1]), &with_ttls(&[ttl], 0));
        // It came at 100 with a TTL of 60: until 160 it may be used.
        memo.put(key(60), state, Entry { until: at(100), known: Known::Open });
        let known = |ttl, seconds| memo.get(key(ttl), state, at(seconds)).is_some();
        assert!(known(60, 100) && known(50, 110) && known(1, 159));
        assert!(!known(60, 101) && !known(51, 110) && !known(2, 159), "each ends a second too late");
        assert!(known(10, 120), "it ends before");
    }

    #[test]
    fn nothing_is_known_past_its_time_or_under_other_rules() {
        let memo = Memo::new();
        let state = State { rule_changes: 1, losses: 1 };
        let known = |memo: &Memo, answer, state, seconds| memo.get(key(answer), state, at(seconds));
        assert_eq!(known(&memo, 7, state, 1), None);
        memo.put(key(7), state, Entry { until: at(5), known: Known::Unspoken });
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
        let known = |memo: &Memo| answers.iter().filter(|one| memo.get(key(**one), state, at(1)).is_some()).count();
        for &answer in &answers[..SLOTS_IN_A_SET] {
            memo.put(key(answer), state, Entry { until: at(5), known: Known::Open });
        }
        assert_eq!(known(&memo), SLOTS_IN_A_SET);
        memo.put(key(answers[0]), state, Entry { until: at(6), known: Known::Open });
        assert_eq!(known(&memo), SLOTS_IN_A_SET, "it keeps its slot");
        memo.put(key(answers[SLOTS_IN_A_SET]), state, Entry { until: at(5), known: Known::Open });
        assert_eq!(known(&memo), SLOTS_IN_A_SET, "one gives way");
        assert_eq!(memo.get(key(answers[0]), state, at(1)), None, "the oldest");
    }

    #[test]
    fn a_flood_of_answers_takes_only_the_places_there_are() {
        let memo = Memo::new();
        let (state, client) = (State::default(), IpAddr::from([10, 0, 0, 1]));
        let put = |key| memo.put(key, state, Entry { until: at(5), known: Known::Open });
        let answer = |number: u32| key_of(&memo, client, &number.to_be_bytes().repeat(2));
        let flood = (0..100_000).map(answer);
        flood.for_each(put);
        let is_known = |number: &u32| memo.get(answer(*number), state, at(5)).is_some();
        let known = (0..100_000_u32).filter(is_known).count();
        assert!((SETS..=SETS * SLOTS_IN_A_SET).contains(&known), "{known}");
        // An answer that has lost its place is read again, and takes one.
        let other = key_of(&memo, IpAddr::from([10, 0, 0, 2]), b"another");
        put(other);
        assert_eq!(memo.get(other, state, at(5)), Some(Known::Open));
    }

    /// A thousand names with their two kinds of addresses, as a node's pods keep asking for.
    #[test]
    fn two_thousand_answers_are_known_at_the_same_time() {
        let memo = Memo::new();
        let state = State { rule_changes: 1, losses: 1 };
        let client = IpAddr::from([10, 0, 0, 1]);
        let answers = (0..2_000_u32).map(|number| number.to_be_bytes().repeat(8));
        let keys: Vec<AnswerKey> = answers.map(|answer| key_of(&memo, client, &answer)).collect();
        keys.iter().for_each(|&key| memo.put(key, state, Entry { until: at(5), known: Known::Open }));
        let known = keys.iter().filter(|key| memo.get(**key, state, at(1)).is_some()).count();
        // By chance five of them may have one set.
        assert!(known >= 1_980, "{known}");
    }
}
