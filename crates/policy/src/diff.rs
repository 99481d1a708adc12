//! Which connections a change of the cluster adds, removes or changes: not
//! which lines of which manifest, but what may be opened afterwards.

use crate::addr::{AddrRange, AddrSet, next_address, previous_address};
use crate::domain::DomainPattern;
use crate::model::{WorkloadId, WorkloadKind};
use crate::reach::{CellId, Matrix, OutsideRange, Reachable};
use crate::snapshot::Snapshot;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
    /// A pattern of names, told apart from others of the same text.
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
    pub before: Reachable,
    pub after: Reachable,
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
    equal: FxHashMap<[Option<CellId>; 2], bool>,
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
        let traffic = |at: usize| ids[at].map_or_else(Reachable::default, |id| (*sides[at].matrix.cell(id)).clone());
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
        let mut names: BTreeMap<DomainPattern, [Reachable; 2]> = BTreeMap::new();
        for at in [0, 1] {
            let Some(id) = ids[at] else { continue };
            for (pattern, traffic) in self.sides[at].matrix.names_to(id).iter() {
                names.entry(pattern.clone()).or_default()[at] = traffic.clone();
            }
        }
        for (pattern, [before, after]) in names {
            if before != after {
                self.found.push(Difference { from: end(key), to: End::Name(pattern.to_string()), before, after });
            }
        }
    }
}

fn end((name, kind): &Key) -> End {
    End::Workload { name: name.clone(), kind: *kind }
}

/// Where two accounts of the outside differ, in as few ranges as can be.
fn compare_ranges(old: &[OutsideRange], new: &[OutsideRange]) -> Vec<(AddrRange, Reachable, Reachable)> {
    if old == new {
        return Vec::new();
    }
    let mut by_change: FxHashMap<(Reachable, Reachable), Pieces> = FxHashMap::default();
    let mut cuts: BTreeSet<(bool, IpAddr)> = BTreeSet::new();
    for outside in old.iter().chain(new) {
        cuts.insert((outside.range.first.is_ipv6(), outside.range.first));
        cuts.extend(next_address(outside.range.last).map(|next| (next.is_ipv6(), next)));
    }
    let cuts: Vec<(bool, IpAddr)> = cuts.into_iter().collect();
    let (mut at_old, mut at_new) = (Cursor::new(old), Cursor::new(new));
    for (number, &(v6, first)) in cuts.iter().enumerate() {
        let next = cuts.get(number + 1).filter(|(next_v6, _)| *next_v6 == v6);
        let last = next.and_then(|(_, next)| previous_address(*next)).unwrap_or(if v6 {
            Ipv6Addr::from_bits(u128::MAX).into()
        } else {
            Ipv4Addr::from_bits(u32::MAX).into()
        });
        let (was, is) = (at_old.traffic(first), at_new.traffic(first));
        if was != is {
            by_change.entry((was, is)).or_default().0.push(AddrRange { first, last });
        }
    }
    let mut found: Vec<(AddrRange, Reachable, Reachable)> = Vec::new();
    for ((before, after), ranges) in by_change {
        found.extend(ranges.joined().into_iter().map(|range| (range, before.clone(), after.clone())));
    }
    found.sort_by_key(|(range, ..)| (range.first.is_ipv6(), range.first));
    found
}

/// Ranges that come in order, joined where they touch.
#[derive(Default)]
struct Pieces(Vec<AddrRange>);

impl Pieces {
    fn joined(self) -> Vec<AddrRange> {
        let mut joined: Vec<AddrRange> = Vec::new();
        for range in self.0 {
            match joined.last_mut() {
                Some(last) if next_address(last.last) == Some(range.first) => last.last = range.last,
                _ => joined.push(range),
            }
        }
        joined
    }
}

/// Walks along ranges that are in order.
struct Cursor<'r> {
    ranges: &'r [OutsideRange],
}

impl<'r> Cursor<'r> {
    fn new(ranges: &'r [OutsideRange]) -> Self {
        Self { ranges }
    }

    /// What is open at an address not before any asked for earlier; nothing where no range has it.
    fn traffic(&mut self, address: IpAddr) -> Reachable {
        let ends_before = |range: &AddrRange| (range.last.is_ipv6(), range.last) < (address.is_ipv6(), address);
        while let [first, rest @ ..] = self.ranges
            && ends_before(&first.range)
        {
            self.ranges = rest;
        }
        match self.ranges.first() {
            Some(outside) if AddrSet::from(outside.range).contains(address) => outside.traffic.clone(),
            _ => Reachable::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::Traffic;
    use proptest::prelude::*;

    /// Ranges over a few addresses at the start and the end of IPv4, in order and apart.
    fn account() -> impl Strategy<Value = Vec<OutsideRange>> {
        proptest::collection::vec((0u32..3, 0u16..3), 1..8).prop_map(|steps| {
            let mut ranges = Vec::new();
            let mut next = 0u32;
            for (at, &(gap, port)) in steps.iter().enumerate() {
                let first = next + gap;
                let last = if at + 1 == steps.len() { u32::MAX } else { first + 1 };
                let mut traffic = Traffic::none();
                traffic.insert(crate::port::Protocol::Tcp, 1, port);
                let range =
                    AddrRange { first: Ipv4Addr::from_bits(first).into(), last: Ipv4Addr::from_bits(last).into() };
                ranges.push(OutsideRange { range, traffic: Reachable::exactly(traffic) });
                next = last.saturating_add(1);
            }
            ranges
        })
    }

    fn at(ranges: &[OutsideRange], address: IpAddr) -> Reachable {
        let found = ranges.iter().find(|outside| AddrSet::from(outside.range).contains(address));
        found.map(|outside| outside.traffic.clone()).unwrap_or_default()
    }

    proptest! {
        #[test]
        fn ranges_are_compared_address_by_address(old in account(), new in account()) {
            let found = compare_ranges(&old, &new);
            for bits in (0..40).chain([u32::MAX - 1, u32::MAX]) {
                let address: IpAddr = Ipv4Addr::from_bits(bits).into();
                let (was, is) = (at(&old, address), at(&new, address));
                let told = found.iter().find(|(range, ..)| AddrSet::from(*range).contains(address));
                let expected = (was != is).then_some((was, is));
                prop_assert_eq!(told.map(|(_, was, is)| (was.clone(), is.clone())), expected, "{}", address);
            }
        }
    }
}
