//! Randomness, as an argument.

use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where random numbers come from. They spread load; nothing secret is made of them.
pub trait Random: Debug + Send + Sync {
    fn number(&self) -> u64;

    /// A random part of a pause, so that two that have met do not meet again at once.
    fn part_of(&self, pause: Duration) -> Duration {
        const PARTS: u64 = 1000;
        pause.mul_f64((self.number() % PARTS) as f64 / PARTS as f64)
    }
}

/// A generator (SplitMix64) whose numbers follow from its seed.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// With a seed that differs for each process.
    pub fn from_system() -> Self {
        Self::new(RandomState::new().hash_one(0))
    }
}

impl Random for SeededRandom {
    fn number(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulations name the seed of what they find, so a seed must mean the same for ever.
    #[test]
    fn a_seed_gives_the_same_numbers_on_every_machine() {
        let random = SeededRandom::new(7);
        let numbers: Vec<u64> = (0..6).map(|_| random.number() % 1000).collect();
        assert_eq!(numbers, [487, 804, 346, 203, 674, 305]);
    }

    #[test]
    fn a_part_is_never_all_of_a_pause() {
        let random = SeededRandom::new(1);
        assert!((0..1000).all(|_| random.part_of(Duration::from_secs(1)) < Duration::from_secs(1)));
    }
}
