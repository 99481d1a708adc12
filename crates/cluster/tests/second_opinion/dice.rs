//! Random choices that depend on the seed only.

use std::ops::Range;

/// SplitMix64.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn within(&mut self, range: Range<usize>) -> usize {
        range.start + (self.throw() % range.len() as u64) as usize
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.within(0..100) < percent
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.within(0..from.len())].clone()
    }

    pub(crate) fn times<T>(&mut self, count: Range<usize>, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.within(count);
        (0..count).map(|_| make(self)).collect()
    }
}
