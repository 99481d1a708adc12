//! Which connections a change of the cluster adds, removes or changes: not
//! which lines of which manifest, but what may be opened afterwards.

use crate::addr::{AddrRange, AddrSet, next_address, previous_address};
use crate::domain::DomainPattern;
use crate::model::Direction;
use crate::reach::{CellConditions, CellId, Group, Groups, Matrix, OutsideRange, Reachable};
use crate::snapshot::Snapshot;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

mod conditions;
mod rows;

use conditions::{Rows, deciding};
use rows::DiffRow;

/// A cluster before or after.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    pub snapshot: &'a Snapshot,
    pub matrix: &'a Matrix<'a>,
    /// The rows to compare: workloads or pods, the same on both sides.
    pub groups: &'a Groups,
}

/// An end of a connection, by what stays the same across the change.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DiffEnd {
    Workload {
        name: String,
        kind: Arc<str>,
    },
    Outside(AddrRange),
    /// A pattern of names. Its text tells `*.b` of one label from `*.b` of many.
    Name(DomainPattern),
}

impl DiffEnd {
    /// The kind of a workload, or `Outside` or `Name`.
    pub fn kind(&self) -> &str {
        match self {
            Self::Workload { kind, .. } => kind,
            Self::Outside(_) => "Outside",
            Self::Name(_) => "Name",
        }
    }
}

impl fmt::Display for DiffEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workload { name, .. } => f.write_str(name),
            Self::Outside(range) if range.first == range.last => write!(f, "{}", range.first),
            Self::Outside(range) => write!(f, "{range}"),
            Self::Name(pattern) => write!(f, "{pattern}"),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    pub from: DiffEnd,
    pub to: DiffEnd,
    pub before: Reachable,
    pub after: Reachable,
    rows: [Rows; 2],
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

/// Every connection that differs, rows in order of their names.
pub fn diff(old: Side<'_>, new: Side<'_>) -> Vec<Difference> {
    let rows = rows::pair(old, new);
    let (equal, alike) = Default::default();
    let mut compare = Compare { sides: [old, new], equal, alike, found: Vec::new() };
    for (at, from) in rows.iter().enumerate() {
        for (other, to) in rows.iter().enumerate() {
            if at != other || !compare.is_lone_pod(from) {
                compare.pair(from, to);
            }
        }
        compare.outside(from);
        compare.names(from);
    }
    compare.found
}

struct Compare<'a> {
    sides: [Side<'a>; 2],
    /// Sets met before, by their ids on both sides.
    equal: FxHashMap<[Option<CellId>; 2], bool>,
    /// Whether the same addresses and nodes decide about a pair in doubt, by what is in doubt on both sides.
    alike: FxHashMap<[(CellId, CellConditions); 2], bool>,
    found: Vec<Difference>,
}

impl Compare<'_> {
    /// A pod to itself is always open, which says nothing.
    fn is_lone_pod(&self, row: &DiffRow) -> bool {
        let mut present = self.sides.iter().zip(row.groups).filter_map(|(side, group)| Some(side.groups.get(group?)));
        present.all(Group::is_lone_pod)
    }

    fn pair(&mut self, from: &DiffRow, to: &DiffRow) {
        let sides = self.sides;
        let open = |at: usize| Some(sides[at].groups.cell(sides[at].matrix, from.groups[at]?, to.groups[at]?).open);
        let ids = [open(0), open(1)];
        let traffic = |at: usize| ids[at].map_or_else(Reachable::default, |id| (*sides[at].matrix.cell(id)).clone());
        let equal = *self.equal.entry(ids).or_insert_with(|| traffic(0) == traffic(1));
        let rows = [0, 1].map(|at| Rows { from: from.groups[at], to: to.groups[at] });
        if !equal || !self.is_decided_alike(ids, rows) {
            let (before, after) = (traffic(0), traffic(1));
            self.found.push(Difference { from: from.end(), to: to.end(), before, after, rows });
        }
    }

    /// Whether a pair with the same connections in doubt is open for the same addresses and nodes on both sides.
    fn is_decided_alike(&mut self, ids: [Option<CellId>; 2], rows: [Rows; 2]) -> bool {
        let [Some(old), Some(new)] = ids else { return true };
        let in_doubt = self.sides[0].matrix.cell(old).depends();
        if in_doubt.is_none() {
            return true;
        }
        let sides = self.sides;
        let conditions = |at: usize| {
            let Side { matrix, groups, .. } = sides[at];
            Some(groups.conditions(matrix, rows[at].from?, rows[at].to?))
        };
        let (Some(before), Some(after)) = (conditions(0), conditions(1)) else { return true };
        *self.alike.entry([(old, before), (new, after)]).or_insert_with(|| {
            let [old, new] = sides;
            let (before, after) = (before.list(old.matrix, &in_doubt), after.list(new.matrix, &in_doubt));
            deciding(old.snapshot, &before) == deciding(new.snapshot, &after)
        })
    }

    fn outside(&mut self, row: &DiffRow) {
        let sides = self.sides;
        let ranges = |at: usize, direction: Direction| {
            let Some(id) = row.groups[at] else { return Vec::new() };
            let Side { matrix, groups, .. } = sides[at];
            match direction {
                Direction::Egress => matrix.outside_to(groups.get(id).example()).to_vec(),
                Direction::Ingress => groups.outside_anywhere(matrix, id).to_vec(),
            }
        };
        let [to, from] =
            [Direction::Egress, Direction::Ingress].map(|way| compare_ranges(&ranges(0, way), &ranges(1, way)));
        for (range, before, after) in to {
            let rows = row.groups.map(|from| Rows { from, to: None });
            self.found.push(Difference { from: row.end(), to: DiffEnd::Outside(range), before, after, rows });
        }
        for (range, before, after) in from {
            let rows = row.groups.map(|to| Rows { from: None, to });
            self.found.push(Difference { from: DiffEnd::Outside(range), to: row.end(), before, after, rows });
        }
    }

    fn names(&mut self, row: &DiffRow) {
        let sides = self.sides;
        let example = |at: usize| row.groups[at].map(|id| sides[at].groups.get(id).example());
        let known = [0, 1].map(|at| example(at).map(|id| sides[at].matrix.names_to(id)));
        let listed = |at: usize| known[at].iter().flat_map(|known| known.iter());
        let names: BTreeSet<&DomainPattern> = listed(0).chain(listed(1)).map(|(pattern, _)| pattern).collect();
        for pattern in names {
            // A side whose rules do not speak of the name may still let it pass.
            let open = |at: usize| match listed(at).find(|(known, _)| known == pattern) {
                Some((_, open)) => open.clone(),
                None => example(at).map(|id| sides[at].matrix.name_to(id, pattern)).unwrap_or_default(),
            };
            let (before, after) = (open(0), open(1));
            if before != after {
                let rows = row.groups.map(|from| Rows { from, to: None });
                self.found.push(Difference {
                    from: row.end(),
                    to: DiffEnd::Name(pattern.clone()),
                    before,
                    after,
                    rows,
                });
            }
        }
    }
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
