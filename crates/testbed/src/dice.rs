//! Random choices that depend on the seed only.

use std::ops::Range;

/// A random number generator (SplitMix64): the same seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn within(&mut self, range: Range<usize>) -> usize {
        range.start + (self.throw() % range.len() as u64) as usize
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.within(0..100) < percent
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.within(0..from.len())].clone()
    }

    /// As many values as a random number within `count` says.
    pub fn times<T>(&mut self, count: Range<usize>, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.within(count);
        (0..count).map(|_| make(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests name the seed of what they find, so a seed must mean the same for ever.
    #[test]
    fn a_seed_gives_the_same_numbers_on_every_machine() {
        let mut dice = Dice::new(7);
        let numbers: Vec<usize> = (0..6).map(|_| dice.within(0..1000)).collect();
        assert_eq!(numbers, [487, 804, 346, 203, 674, 305]);
    }
}
