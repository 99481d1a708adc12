//! A set of small numbers, one bit each, from the first that is in it to the
//! last: what is of one namespace has numbers that are near each other, and a
//! large cluster has a set for every rule.

const BITS: usize = u64::BITS as usize;

/// Neither the first word nor the last is zero, so that sets are equal if they have the same numbers.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct BitSet {
    /// How many words of zeros come before.
    skipped: usize,
    words: Vec<u64>,
}

impl BitSet {
    pub fn full(bits: usize) -> Self {
        let mut set = Self { skipped: 0, words: vec![u64::MAX; bits.div_ceil(BITS)] };
        if let (Some(last), rest @ 1..) = (set.words.last_mut(), bits % BITS) {
            *last = (1 << rest) - 1;
        }
        set
    }

    pub fn insert(&mut self, bit: usize) {
        let at = bit / BITS;
        self.reach(at, at + 1);
        self.words[at - self.skipped] |= 1 << (bit % BITS);
    }

    pub fn contains(&self, bit: usize) -> bool {
        self.word(bit / BITS) >> (bit % BITS) & 1 == 1
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    pub fn union_with(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        self.reach(other.skipped, other.end());
        let from = other.skipped - self.skipped;
        for (word, more) in self.words[from..].iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    pub fn intersect_with(&mut self, other: &Self) {
        for (at, word) in self.words.iter_mut().enumerate() {
            *word &= other.word(self.skipped + at);
        }
        self.trim();
    }

    pub fn subtract(&mut self, other: &Self) {
        for (at, word) in self.words.iter_mut().enumerate() {
            *word &= !other.word(self.skipped + at);
        }
        self.trim();
    }

    /// Whether both have the same of the first so many bits.
    pub fn same_below(&self, other: &Self, bits: usize) -> bool {
        let whole = (0..bits / BITS).all(|at| self.word(at) == other.word(at));
        let mask = (1u64 << (bits % BITS)) - 1;
        whole && (self.word(bits / BITS) ^ other.word(bits / BITS)) & mask == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (self.skipped..).zip(&self.words).flat_map(|(at, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                Some(at * BITS + bit)
            })
        })
    }

    fn end(&self) -> usize {
        self.skipped + self.words.len()
    }

    fn word(&self, at: usize) -> u64 {
        at.checked_sub(self.skipped).and_then(|at| self.words.get(at)).copied().unwrap_or(0)
    }

    /// Makes room for these words. Whoever asks writes to the first and the last of them.
    fn reach(&mut self, from: usize, to: usize) {
        if self.is_empty() {
            self.skipped = from;
        }
        if from < self.skipped {
            self.words.splice(0..0, std::iter::repeat_n(0, self.skipped - from));
            self.skipped = from;
        }
        if to > self.end() {
            self.words.resize(to - self.skipped, 0);
        }
    }

    fn trim(&mut self) {
        let zero = |word: &&u64| **word == 0;
        self.words.truncate(self.words.len() - self.words.iter().rev().take_while(zero).count());
        let leading = self.words.iter().take_while(zero).count();
        self.words.drain(..leading);
        self.skipped = if self.is_empty() { 0 } else { self.skipped + leading };
    }
}

impl FromIterator<usize> for BitSet {
    fn from_iter<I: IntoIterator<Item = usize>>(bits: I) -> Self {
        let mut set = Self::default();
        for bit in bits {
            set.insert(bit);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_as_a_set(a in proptest::collection::btree_set(0usize..400, 0..20), b in proptest::collection::btree_set(0usize..400, 0..20)) {
            let (x, y): (BitSet, BitSet) = (a.iter().copied().collect(), b.iter().copied().collect());
            let apply = |op: fn(&mut BitSet, &BitSet)| { let mut z = x.clone(); op(&mut z, &y); z.iter().collect::<BTreeSet<_>>() };
            prop_assert_eq!(x.iter().collect::<BTreeSet<_>>(), a.clone());
            prop_assert!((0..500).all(|bit| x.contains(bit) == a.contains(&bit)));
            prop_assert!((0..500).all(|bit| x.same_below(&y, bit) == a.range(..bit).eq(b.range(..bit))));
            prop_assert_eq!(apply(BitSet::union_with), &a | &b);
            prop_assert_eq!(apply(BitSet::intersect_with), &a & &b);
            prop_assert_eq!(apply(BitSet::subtract), &a - &b);
        }

        /// However they came about.
        #[test]
        fn sets_of_the_same_numbers_are_equal(a in proptest::collection::vec(0usize..400, 0..20), b in proptest::collection::btree_set(0usize..400, 0..20)) {
            let (whole, mut part): (BitSet, BitSet) = (a.iter().copied().collect(), a.iter().rev().copied().collect());
            prop_assert_eq!(&whole, &part);
            let more: BitSet = b.iter().copied().collect();
            part.union_with(&more);
            part.subtract(&more);
            let left: BitSet = a.iter().copied().filter(|bit| !b.contains(bit)).collect();
            prop_assert_eq!(part, left);
            let (mut both, mut none) = (whole.clone(), whole.clone());
            both.intersect_with(&more);
            prop_assert_eq!(both, b.iter().copied().filter(|bit| whole.contains(*bit)).collect());
            none.subtract(&whole);
            prop_assert!(none.is_empty() && none == BitSet::default());
        }

        #[test]
        fn full_has_just_its_bits(bits in 0usize..200) {
            prop_assert_eq!(BitSet::full(bits).iter().collect::<Vec<_>>(), (0..bits).collect::<Vec<_>>());
        }
    }
}
