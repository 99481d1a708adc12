//! Which row of one cluster is which of the other.
//!
//! Names of pods change with every rollout, and a row may be split on one side
//! alone. So a row of the difference is a pair of rows: those that share a pod
//! or a template, and else those of the same owner.

use super::{DiffEnd, Side};
use crate::model::Owner;
use crate::reach::{GroupId, row_name};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A row of either side, or of one.
pub(super) struct DiffRow {
    name: String,
    kind: Arc<str>,
    pub(super) groups: [Option<GroupId>; 2],
}

impl DiffRow {
    pub(super) fn end(&self) -> DiffEnd {
        DiffEnd::Workload { name: self.name.clone(), kind: self.kind.clone() }
    }
}

/// A pod or a template, by what stays the same across a change.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Unit {
    namespace: Arc<str>,
    kind: &'static str,
    name: Arc<str>,
}

type Pair = [Option<GroupId>; 2];

/// The rows of both sides, in order of their names.
pub(super) fn pair(old: Side<'_>, new: Side<'_>) -> Vec<DiffRow> {
    let sides = [old, new];
    let mut places: BTreeMap<Unit, Pair> = BTreeMap::new();
    for (at, side) in sides.into_iter().enumerate() {
        for (id, group) in side.groups.iter() {
            for &member in &group.members {
                places.entry(unit(side, member)).or_default()[at] = Some(id);
            }
        }
    }
    let partners = Partners::new(sides, places.values().copied());
    let mut rows: BTreeMap<Pair, Vec<&Unit>> = BTreeMap::new();
    for (unit, &place) in &places {
        rows.entry(partners.complete(place)).or_default().push(unit);
    }
    let mut owners: BTreeMap<(Arc<str>, &Owner), usize> = BTreeMap::new();
    for &pair in rows.keys() {
        if let Some(key) = owner(sides, pair) {
            *owners.entry(key).or_default() += 1;
        }
    }
    let name = |(&pair, units): (&Pair, &Vec<&Unit>)| {
        let (at, id) = newest(pair)?;
        let group = sides[at].groups.get(id);
        let is_split = owner(sides, pair).is_some_and(|key| owners[&key] > 1);
        let here: Vec<&&Unit> = units.iter().filter(|unit| places[**unit][at] == Some(id)).collect();
        let first = here.first()?;
        let text = row_name(group.owner.as_ref(), is_split, &first.name, here.len());
        Some(DiffRow { name: format!("{}/{text}", first.namespace), kind: group.kind.clone(), groups: pair })
    };
    let mut named: Vec<DiffRow> = rows.iter().filter_map(name).collect();
    named.sort_by(|a, b| (&a.name, &a.kind).cmp(&(&b.name, &b.kind)));
    named
}

fn unit(side: Side<'_>, id: crate::model::WorkloadId) -> Unit {
    let workload = side.snapshot.workload(id);
    let namespace = side.snapshot.namespace(workload.namespace).name.clone();
    Unit { namespace, kind: workload.kind.name(), name: workload.name.clone() }
}

/// The side and the row after the change, or before it where there is none after.
fn newest(pair: Pair) -> Option<(usize, GroupId)> {
    pair[1].map(|id| (1, id)).or(pair[0].map(|id| (0, id)))
}

fn owner<'a>(sides: [Side<'a>; 2], pair: Pair) -> Option<(Arc<str>, &'a Owner)> {
    let (at, id) = newest(pair)?;
    let group = sides[at].groups.get(id);
    Some((sides[at].snapshot.namespace(group.namespace).name.clone(), group.owner.as_ref()?))
}

/// Finds the other side's row for pods that are on one side alone.
struct Partners {
    /// By side: the partners of each row through pods that are on both sides.
    seen: [BTreeMap<GroupId, BTreeSet<GroupId>>; 2],
    /// By side: the only row of the same owner on the other side.
    owned: [BTreeMap<GroupId, GroupId>; 2],
}

impl Partners {
    fn new(sides: [Side<'_>; 2], places: impl Iterator<Item = Pair>) -> Self {
        let mut seen: [BTreeMap<GroupId, BTreeSet<GroupId>>; 2] = Default::default();
        for place in places {
            if let [Some(old), Some(new)] = place {
                seen[0].entry(old).or_default().insert(new);
                seen[1].entry(new).or_default().insert(old);
            }
        }
        let rows = sides.map(|side| {
            let mut rows: BTreeMap<(Arc<str>, &Owner), Vec<GroupId>> = BTreeMap::new();
            for (id, group) in side.groups.iter() {
                let namespace = side.snapshot.namespace(group.namespace).name.clone();
                if let Some(owner) = &group.owner {
                    rows.entry((namespace, owner)).or_default().push(id);
                }
            }
            rows
        });
        let mut owned: [BTreeMap<GroupId, GroupId>; 2] = Default::default();
        for at in [0, 1] {
            for (key, ids) in &rows[at] {
                if let Some([only]) = rows[1 - at].get(key).map(Vec::as_slice) {
                    owned[at].extend(ids.iter().map(|&id| (id, *only)));
                }
            }
        }
        Self { seen, owned }
    }

    fn complete(&self, place: Pair) -> Pair {
        match place {
            [Some(old), None] => [Some(old), self.partner(0, old)],
            [None, Some(new)] => [self.partner(1, new), Some(new)],
            both => both,
        }
    }

    fn partner(&self, at: usize, id: GroupId) -> Option<GroupId> {
        let seen = self.seen[at].get(&id).filter(|partners| partners.len() == 1);
        seen.and_then(|partners| partners.first().copied()).or_else(|| self.owned[at].get(&id).copied())
    }
}
