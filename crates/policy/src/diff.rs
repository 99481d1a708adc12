//! Which connections a change of the cluster adds, removes or changes: not
//! which lines of which manifest, but what may be opened afterwards.

use crate::addr::{AddrRange, AddrSet};
use crate::model::{WorkloadId, WorkloadKind};
use crate::port::Traffic;
use crate::reach::{Matrix, OutsideRange, TrafficId};
use crate::snapshot::Snapshot;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::fmt;

/// A cluster before or after.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    pub snapshot: &'a Snapshot,
    pub matrix: &'a Matrix<'a>,
}

/// An end of a connection, by what stays the same across the change.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    Workload {
        name: String,
        kind: WorkloadKind,
    },
    Outside(AddrRange),
    /// A pattern of names, as written.
    Name(String),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workload { name, .. } => f.write_str(name),
            Self::Outside(range) if range.first == range.last => write!(f, "{}", range.first),
            Self::Outside(range) => write!(f, "{range}"),
            Self::Name(pattern) => f.write_str(pattern),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    pub from: End,
    pub to: End,
    pub before: Traffic,
    pub after: Traffic,
}

impl Difference {
    pub fn kind(&self) -> DifferenceKind {
        match (self.before.is_none(), self.after.is_none()) {
            (true, _) => DifferenceKind::Added,
            (_, true) => DifferenceKind::Removed,
            _ => DifferenceKind::Changed,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DifferenceKind {
    Added,
    Removed,
    Changed,
}

/// Workloads are the same if kind, namespace and name are.
type Key = (String, WorkloadKind);

/// Every connection that differs, workloads in order of their names.
pub fn diff(old: Side<'_>, new: Side<'_>) -> Vec<Difference> {
    let mut both: BTreeMap<Key, [Option<WorkloadId>; 2]> = BTreeMap::new();
    for (at, side) in [old, new].into_iter().enumerate() {
        for id in side.snapshot.workload_ids() {
            let key = (side.snapshot.workload_name(id), side.snapshot.workload(id).kind);
            both.entry(key).or_default()[at] = Some(id);
        }
    }
    let keys: Vec<(&Key, [Option<WorkloadId>; 2])> = both.iter().map(|(key, ids)| (key, *ids)).collect();
    let mut compare = Compare { sides: [old, new], equal: FxHashMap::default(), found: Vec::new() };
    for &(from, from_ids) in &keys {
        for &(to, to_ids) in &keys {
            if from != to || from.1 != WorkloadKind::Pod {
                compare.pair((from, from_ids), (to, to_ids));
            }
        }
        compare.outside(from, from_ids);
        compare.names(from, from_ids);
    }
    compare.found
}

struct Compare<'a> {
    sides: [Side<'a>; 2],
    /// Sets met before, by their ids on both sides.
    equal: FxHashMap<[Option<TrafficId>; 2], bool>,
    found: Vec<Difference>,
}

impl Compare<'_> {
    fn pair(
        &mut self,
        (from, from_ids): (&Key, [Option<WorkloadId>; 2]),
        (to, to_ids): (&Key, [Option<WorkloadId>; 2]),
    ) {
        let open = |at: usize| Some(self.sides[at].matrix.between(from_ids[at]?, to_ids[at]?));
        let ids = [open(0), open(1)];
        let sides = self.sides;
        let traffic = |at: usize| ids[at].map_or_else(Traffic::none, |id| (*sides[at].matrix.traffic(id)).clone());
        let equal = *self.equal.entry(ids).or_insert_with(|| traffic(0) == traffic(1));
        if !equal {
            self.found.push(Difference { from: end(from), to: end(to), before: traffic(0), after: traffic(1) });
        }
    }

    fn outside(&mut self, key: &Key, ids: [Option<WorkloadId>; 2]) {
        let sides = self.sides;
        let to = |at: usize| ids[at].map_or_else(Vec::new, |id| sides[at].matrix.outside_to(id).to_vec());
        let from = |at: usize| ids[at].map_or_else(Vec::new, |id| sides[at].matrix.outside_from(id).to_vec());
        for (range, before, after) in compare_ranges(&to(0), &to(1)) {
            self.found.push(Difference { from: end(key), to: End::Outside(range), before, after });
        }
        for (range, before, after) in compare_ranges(&from(0), &from(1)) {
            self.found.push(Difference { from: End::Outside(range), to: end(key), before, after });
        }
    }

    fn names(&mut self, key: &Key, ids: [Option<WorkloadId>; 2]) {
        let mut names: BTreeMap<String, [Traffic; 2]> = BTreeMap::new();
        for at in [0, 1] {
            let Some(id) = ids[at] else { continue };
            for (pattern, traffic) in self.sides[at].matrix.names_to(id) {
                names.entry(pattern.written()).or_default()[at] = traffic;
            }
        }
        for (pattern, [before, after]) in names {
            if before != after {
                self.found.push(Difference { from: end(key), to: End::Name(pattern), before, after });
            }
        }
    }
}

fn end((name, kind): &Key) -> End {
    End::Workload { name: name.clone(), kind: *kind }
}

/// Where two accounts of the outside differ, in as few ranges as can be.
fn compare_ranges(old: &[OutsideRange], new: &[OutsideRange]) -> Vec<(AddrRange, Traffic, Traffic)> {
    if old == new {
        return Vec::new();
    }
    let mut by_change: Vec<(Traffic, Traffic, AddrSet)> = Vec::new();
    let mut add = |before: &Traffic, after: &Traffic, set: AddrSet| {
        if before == after || set.is_empty() {
            return;
        }
        match by_change.iter_mut().find(|(b, a, _)| b == before && a == after) {
            Some((_, _, known)) => *known = known.union(&set),
            None => by_change.push((before.clone(), after.clone(), set)),
        }
    };
    let whole = |ranges: &[OutsideRange]| ranges.iter().fold(AddrSet::default(), |all, r| all.union(&r.range.into()));
    let (all_old, all_new) = (whole(old), whole(new));
    for before in old {
        let here: AddrSet = before.range.into();
        for after in new {
            add(&before.traffic, &after.traffic, here.intersect(&after.range.into()));
        }
        add(&before.traffic, &Traffic::none(), here.subtract(&all_new));
    }
    for after in new {
        add(&Traffic::none(), &after.traffic, AddrSet::from(after.range).subtract(&all_old));
    }
    let mut found: Vec<(AddrRange, Traffic, Traffic)> = Vec::new();
    for (before, after, set) in by_change {
        found.extend(set.ranges().map(|range| (range, before.clone(), after.clone())));
    }
    found.sort_by_key(|(range, ..)| (range.first.is_ipv6(), range.first));
    found
}
