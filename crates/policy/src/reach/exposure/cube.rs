//! Sets of pods that do not exist yet, as cubes: for each dimension (the
//! namespace's name, a label of the namespace, a label of the pod) the cells
//! that are in it. A dimension that a cube does not name is free.

use crate::bits::BitSet;
use std::collections::{BTreeMap, HashMap};

#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct Cube(BTreeMap<usize, Cells>);

/// Cells of one dimension, sorted.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct Cells(Vec<u32>);

impl Cells {
    pub(super) fn new(mut cells: Vec<u32>) -> Self {
        cells.sort_unstable();
        cells.dedup();
        Self(cells)
    }

    pub(super) fn all(count: u32) -> Self {
        Self((0..count).collect())
    }

    pub(super) fn contains(&self, cell: u32) -> bool {
        self.0.binary_search(&cell).is_ok()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn and(&self, other: &Self) -> Self {
        Self(self.0.iter().copied().filter(|&cell| other.contains(cell)).collect())
    }

    fn meets(&self, other: &Self) -> bool {
        self.0.iter().any(|&cell| other.contains(cell))
    }

    pub(super) fn but(&self, other: &Self) -> Self {
        Self(self.0.iter().copied().filter(|&cell| !other.contains(cell)).collect())
    }
}

/// All conditions must hold: a dimension and the cells it may have.
pub(super) type Conditions = Vec<(usize, Cells)>;

impl Cube {
    pub(super) fn get(&self, dimension: usize) -> Option<&Cells> {
        self.0.get(&dimension)
    }

    pub(super) fn dimensions(&self) -> impl Iterator<Item = (usize, &Cells)> {
        self.0.iter().map(|(dimension, cells)| (*dimension, cells))
    }

    pub(super) fn with(mut self, dimension: usize, cells: Cells) -> Self {
        self.0.insert(dimension, cells);
        self
    }

    fn meets(&self, other: &Self) -> bool {
        self.0.iter().all(|(dimension, cells)| other.get(*dimension).is_none_or(|others| cells.meets(others)))
    }

    fn is_inside(&self, other: &Self) -> bool {
        let narrower = |(dimension, cells): (&usize, &Cells)| {
            self.get(*dimension).is_some_and(|own| own.iter().all(|cell| cells.contains(cell)))
        };
        other.0.iter().all(narrower)
    }

    /// The part that meets the conditions, and the rest in pieces that do not overlap.
    pub(super) fn split(&self, conditions: &Conditions, sizes: &[u32]) -> (Option<Self>, Vec<Self>) {
        let mut rest = Vec::new();
        let mut inside = self.clone();
        for (dimension, wanted) in conditions {
            let own = inside.get(*dimension).cloned().unwrap_or_else(|| Cells::all(sizes[*dimension]));
            let (met, missed) = (own.and(wanted), own.but(wanted));
            if met.is_empty() {
                rest.push(inside);
                return (None, rest);
            }
            if !missed.is_empty() {
                rest.push(inside.clone().with(*dimension, missed));
                inside = inside.with(*dimension, met);
            }
        }
        (Some(inside), rest)
    }
}

/// A short description of `wanted` as cubes that hold none of `others`. What is in neither may be in it or not.
pub(super) fn describe(wanted: Vec<Cube>, others: &[&Cube], sizes: &[u32]) -> Vec<Cube> {
    let merged = merge(wanted, sizes);
    let mut wide: Vec<Cube> = Vec::new();
    for cube in &merged {
        if wide.iter().any(|known| cube.is_inside(known)) {
            continue;
        }
        let mut grown = cube.clone();
        // Labels of pods come last and are dropped first: what is left reads as policies are written.
        let dimensions: Vec<usize> = grown.0.keys().rev().copied().collect();
        for dimension in dimensions {
            let Some(cells) = grown.0.remove(&dimension) else { continue };
            if others.iter().any(|other| grown.meets(other)) {
                grown.0.insert(dimension, cells);
            }
        }
        wide.retain(|known| !known.is_inside(&grown));
        wide.push(grown);
    }
    let mut wide = merge(wide, sizes);
    // One cube that others cover together says nothing new.
    let mut at = wide.len();
    while at > 0 {
        at -= 1;
        let rest: Vec<&Cube> =
            wide.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, cube)| cube).collect();
        let needed = merged.iter().any(|cube| cube.meets(&wide[at]) && !rest.iter().any(|one| cube.is_inside(one)));
        if !needed {
            wide.remove(at);
        }
    }
    wide
}

/// Joins cubes that differ in one dimension.
fn merge(mut cubes: Vec<Cube>, sizes: &[u32]) -> Vec<Cube> {
    loop {
        let before = cubes.len();
        for (dimension, &size) in sizes.iter().enumerate() {
            if !cubes.iter().any(|cube| cube.0.contains_key(&dimension)) {
                continue;
            }
            let mut joined: HashMap<Cube, BitSet> = HashMap::with_capacity(cubes.len());
            let mut order: Vec<Cube> = Vec::new();
            for mut cube in cubes {
                let cells = cube.0.remove(&dimension).unwrap_or_else(|| Cells::all(size));
                let known = joined.entry(cube.clone()).or_insert_with(|| {
                    order.push(cube);
                    BitSet::default()
                });
                cells.iter().for_each(|cell| known.insert(cell as usize));
            }
            let whole = |cube: Cube| {
                let cells = Cells(joined[&cube].iter().map(|cell| cell as u32).collect());
                if cells.0.len() == size as usize { cube } else { cube.with(dimension, cells) }
            };
            cubes = order.into_iter().map(whole).collect();
        }
        if cubes.len() == before {
            return cubes;
        }
    }
}
