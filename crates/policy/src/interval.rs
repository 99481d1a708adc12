//! Sets of points as sorted, disjoint, inclusive ranges: the arithmetic under
//! port sets and address sets. Exact, never sampled.

use std::fmt;

/// A type whose values lie on a finite line.
pub trait Point: Copy + Ord + fmt::Debug {
    const MIN: Self;
    const MAX: Self;
    /// The next point, or `None` at the end of the line.
    fn next(self) -> Option<Self>;
    /// The previous point, or `None` at the start of the line.
    fn prev(self) -> Option<Self>;
}

macro_rules! point {
    ($($t:ty),*) => {$(
        impl Point for $t {
            const MIN: Self = <$t>::MIN;
            const MAX: Self = <$t>::MAX;
            fn next(self) -> Option<Self> { self.checked_add(1) }
            fn prev(self) -> Option<Self> { self.checked_sub(1) }
        }
    )*};
}
point!(u16, u32, u128);

/// A set of points, kept as sorted ranges that neither overlap nor touch.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IntervalSet<P> {
    ranges: Vec<(P, P)>,
}

impl<P> Default for IntervalSet<P> {
    fn default() -> Self {
        Self { ranges: Vec::new() }
    }
}

impl<P: Point> IntervalSet<P> {
    pub fn empty() -> Self {
        Self::default()
    }

    pub fn full() -> Self {
        Self::range(P::MIN, P::MAX)
    }

    /// The points from `low` to `high`, both included; empty if `low > high`.
    pub fn range(low: P, high: P) -> Self {
        let ranges = if low <= high { vec![(low, high)] } else { Vec::new() };
        Self { ranges }
    }

    pub fn ranges(&self) -> &[(P, P)] {
        &self.ranges
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.ranges == [(P::MIN, P::MAX)]
    }

    pub fn contains(&self, point: P) -> bool {
        let after = self.ranges.partition_point(|&(low, _)| low <= point);
        after > 0 && point <= self.ranges[after - 1].1
    }

    /// The lowest point of the set from `low` to `high`.
    pub fn first_within(&self, low: P, high: P) -> Option<P> {
        let at = self.ranges.partition_point(|&(_, last)| last < low);
        let &(first, _) = self.ranges.get(at)?;
        Some(first.max(low)).filter(|point| *point <= high)
    }

    pub fn insert(&mut self, low: P, high: P) {
        if low > high {
            return;
        }
        // Everything that overlaps or touches the new range melts into it.
        let touches_below = |&(_, end): &(P, P)| end.next().is_some_and(|next| next < low);
        let from = self.ranges.partition_point(touches_below);
        let starts_before = |&(start, _): &(P, P)| start.prev().is_none_or(|prev| prev <= high);
        let to = from + self.ranges[from..].partition_point(starts_before);
        let melted = self.ranges[from..to].iter().fold((low, high), |(a, b), &(c, d)| (a.min(c), b.max(d)));
        self.ranges.splice(from..to, [melted]);
    }

    pub fn union(&self, other: &Self) -> Self {
        if self.is_empty() {
            return other.clone();
        }
        if other.is_empty() {
            return self.clone();
        }
        let mut all: Vec<(P, P)> = Vec::with_capacity(self.ranges.len() + other.ranges.len());
        all.extend_from_slice(&self.ranges);
        all.extend_from_slice(&other.ranges);
        Self::from_ranges(all)
    }

    /// Builds a set from ranges in any order.
    pub fn from_ranges(mut ranges: Vec<(P, P)>) -> Self {
        ranges.retain(|&(low, high)| low <= high);
        ranges.sort_unstable();
        let mut merged: Vec<(P, P)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match merged.last_mut() {
                Some(last) if last.1.next().is_none_or(|next| next >= low) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        Self { ranges: merged }
    }

    pub fn intersect(&self, other: &Self) -> Self {
        let (mut i, mut j) = (0, 0);
        let mut ranges = Vec::new();
        while let (Some(&(a, b)), Some(&(c, d))) = (self.ranges.get(i), other.ranges.get(j)) {
            let (low, high) = (a.max(c), b.min(d));
            if low <= high {
                ranges.push((low, high));
            }
            if b < d { i += 1 } else { j += 1 }
        }
        Self { ranges }
    }

    pub fn complement(&self) -> Self {
        let mut ranges = Vec::with_capacity(self.ranges.len() + 1);
        let mut start = Some(P::MIN);
        for &(low, high) in &self.ranges {
            if let (Some(from), Some(to)) = (start, low.prev())
                && from <= to
            {
                ranges.push((from, to));
            }
            start = high.next();
        }
        if let Some(from) = start {
            ranges.push((from, P::MAX));
        }
        Self { ranges }
    }

    pub fn subtract(&self, other: &Self) -> Self {
        if self.is_empty() || other.is_empty() {
            return self.clone();
        }
        self.intersect(&other.complement())
    }

    pub fn is_subset(&self, other: &Self) -> bool {
        self.ranges.iter().all(|&(low, high)| {
            let after = other.ranges.partition_point(|&(start, _)| start <= low);
            after > 0 && high <= other.ranges[after - 1].1
        })
    }

    pub fn intersects(&self, other: &Self) -> bool {
        !self.intersect(other).is_empty()
    }
}

impl<P: Point> fmt::Debug for IntervalSet<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ranges.iter().map(|(a, b)| format!("{a:?}..={b:?}"))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arbitrary() -> impl Strategy<Value = IntervalSet<u16>> {
        let edge = prop_oneof![0u16..20, 65_516u16..=65_535];
        proptest::collection::vec((edge.clone(), edge), 0..6).prop_map(IntervalSet::from_ranges)
    }

    fn well_formed(set: &IntervalSet<u16>) -> bool {
        set.ranges.iter().all(|(a, b)| a <= b)
            && set.ranges.windows(2).all(|w| w[0].1.next().is_some_and(|next| next < w[1].0))
    }

    proptest! {
        #[test]
        fn operations_agree_with_membership(a in arbitrary(), b in arbitrary(), low in 0u16..20, high in 0u16..20) {
            let mut grown = a.clone();
            grown.insert(low, high);
            let (union, both, less, not) = (a.union(&b), a.intersect(&b), a.subtract(&b), a.complement());
            for set in [&grown, &union, &both, &less, &not] {
                prop_assert!(well_formed(set), "{set:?}");
            }
            for p in (0u16..25).chain(65_510..=65_535) {
                let (x, y) = (a.contains(p), b.contains(p));
                prop_assert_eq!(grown.contains(p), x || (low <= p && p <= high));
                prop_assert_eq!(union.contains(p), x || y);
                prop_assert_eq!(both.contains(p), x && y);
                prop_assert_eq!(less.contains(p), x && !y);
                prop_assert_eq!(not.contains(p), !x);
            }
            prop_assert_eq!(a.is_subset(&b), less.is_empty());
            prop_assert_eq!(a.intersects(&b), !both.is_empty());
        }
    }
}
