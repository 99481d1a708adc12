//! Answers that would change nothing: the same bytes to the same client, as long
//! as what they open is open, and no longer would be.

use namewall_policy::Instant;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;

/// So many are remembered; who comes to the same place takes it.
const PLACES: usize = 4_096;

/// What must be the same for an answer to mean the same.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct State {
    /// How often the law has changed.
    pub(crate) laws: u64,
    /// How often a lease has ended before its time.
    pub(crate) losses: u64,
}

#[derive(Debug)]
pub(crate) struct Memo {
    /// By a seed nobody knows: no two answers can be made to look alike.
    seed: RandomState,
    places: Vec<Place>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Place {
    answer: u64,
    state: State,
    until: Instant,
}

impl Memo {
    pub(crate) fn new() -> Self {
        Self { seed: RandomState::new(), places: vec![Place::default(); PLACES] }
    }

    /// Whether the answer is known to change nothing.
    pub(crate) fn has(&self, answer: u64, state: State, now: Instant) -> bool {
        let place = self.places[at(answer)];
        place.answer == answer && place.state == state && now <= place.until
    }

    pub(crate) fn put(&mut self, answer: u64, state: State, until: Instant) {
        self.places[at(answer)] = Place { answer, state, until };
    }

    /// What an answer to a client is known by. Its id is another each time.
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
    answer as usize % PLACES
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
    fn nothing_is_known_past_its_time_or_under_another_law() {
        let mut memo = Memo::new();
        let state = State { laws: 1, losses: 1 };
        assert!(!memo.has(7, state, at(1)));
        memo.put(7, state, at(5));
        assert!(memo.has(7, state, at(5)) && !memo.has(7, state, at(6)));
        assert!(!memo.has(7, State { laws: 2, ..state }, at(1)));
        assert!(!memo.has(7, State { losses: 2, ..state }, at(1)));
        assert!(!memo.has(7 + PLACES as u64, state, at(1)), "another in the same place");
    }
}
