//! A set of small numbers, one bit each.

#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct BitSet {
    words: Vec<u64>,
}

impl BitSet {
    pub fn with_capacity(bits: usize) -> Self {
        Self { words: vec![0; bits.div_ceil(64)] }
    }

    pub fn full(bits: usize) -> Self {
        let mut set = Self { words: vec![u64::MAX; bits.div_ceil(64)] };
        if let (Some(last), rest @ 1..) = (set.words.last_mut(), bits % 64) {
            *last = (1 << rest) - 1;
        }
        set
    }

    pub fn insert(&mut self, bit: usize) {
        if bit / 64 >= self.words.len() {
            self.words.resize(bit / 64 + 1, 0);
        }
        self.words[bit / 64] |= 1 << (bit % 64);
    }

    pub fn contains(&self, bit: usize) -> bool {
        self.words.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    pub fn union_with(&mut self, other: &Self) {
        if other.words.len() > self.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    pub fn intersect_with(&mut self, other: &Self) {
        self.words.truncate(other.words.len());
        for (word, keep) in self.words.iter_mut().zip(&other.words) {
            *word &= keep;
        }
    }

    pub fn subtract(&mut self, other: &Self) {
        for (word, gone) in self.words.iter_mut().zip(&other.words) {
            *word &= !gone;
        }
    }

    /// Whether both have the same of the first so many bits.
    pub fn same_below(&self, other: &Self, bits: usize) -> bool {
        let word = |set: &Self, at: usize| set.words.get(at).copied().unwrap_or(0);
        let whole = (0..bits / 64).all(|at| word(self, at) == word(other, at));
        let mask = (1u64 << (bits % 64)) - 1;
        whole && (word(self, bits / 64) ^ word(other, bits / 64)) & mask == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                Some(at * 64 + bit)
            })
        })
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
        fn behaves_as_a_set(a in proptest::collection::btree_set(0usize..200, 0..40), b in proptest::collection::btree_set(0usize..200, 0..40)) {
            let (x, y): (BitSet, BitSet) = (a.iter().copied().collect(), b.iter().copied().collect());
            let apply = |op: fn(&mut BitSet, &BitSet)| { let mut z = x.clone(); op(&mut z, &y); z.iter().collect::<BTreeSet<_>>() };
            prop_assert_eq!(x.iter().collect::<BTreeSet<_>>(), a.clone());
            prop_assert_eq!(apply(BitSet::union_with), &a | &b);
            prop_assert_eq!(apply(BitSet::intersect_with), &a & &b);
            prop_assert_eq!(apply(BitSet::subtract), &a - &b);
        }

        #[test]
        fn full_has_just_its_bits(bits in 0usize..200) {
            prop_assert_eq!(BitSet::full(bits).iter().collect::<Vec<_>>(), (0..bits).collect::<Vec<_>>());
        }
    }
}
