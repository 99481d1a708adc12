//! The rows of a matrix as people think of them: one a workload, not one a pod.
//!
//! Pods of one owner share a row across nodes, and so do pods without an owner
//! that have the same labels. A row is split only where its pods really fare
//! differently. What a pod's own node may open to it (S1) is no such difference:
//! a [`Cell`] says it beside the rest.

use super::conditions::CellConditions;
use super::matrix::{ALL, CellId, Likeness, Matrix};
use super::outside::OutsideRange;
use crate::model::{NamespaceId, NodeId, Owner, RoleId, WorkloadId, WorkloadKind};
use crate::port::Traffic;
use crate::snapshot::Snapshot;
use crate::unknown::Condition;
use rustc_hash::FxHashMap;
use std::rc::Rc;
use std::sync::Arc;

crate::model::id! {
    /// A row of a matrix.
    GroupId,
}

/// Two rows of a matrix: connections from the one to the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupPair {
    pub from: GroupId,
    pub to: GroupId,
}

/// Workloads that share a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    pub namespace: NamespaceId,
    /// The kind of the owner, or of the workload itself.
    pub kind: Arc<str>,
    /// The owner's name. Where a row is split, or has no owner, with its pods: `db (db-0)`, `web-1 +4`.
    pub name: Arc<str>,
    /// Never empty, in the order of the input.
    pub members: Vec<WorkloadId>,
    /// The workload its pods are replicas of, or the template that it shows.
    pub owner: Option<Owner>,
    nodes: Vec<Option<NodeId>>,
}

impl Group {
    /// A workload that fares as all of the row do.
    pub fn example(&self) -> WorkloadId {
        self.members[0]
    }

    /// One pod that no controller made. To itself everything is open, which says nothing.
    pub fn is_lone_pod(&self) -> bool {
        self.members.len() == 1 && &*self.kind == WorkloadKind::Pod.name()
    }
}

/// What a row may open to another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cell {
    pub open: CellId,
    /// Pods of the row open everything to those that run on their own node (S1).
    pub own_node: bool,
}

/// The rows of a matrix.
#[derive(Clone, Debug)]
pub struct Groups {
    all: Vec<Group>,
    of: Vec<GroupId>,
    by_pod: bool,
}

/// What pods must have in common to share a row.
#[derive(Clone, PartialEq, Eq, Hash)]
enum RowKey {
    Owner(NamespaceId, Owner),
    /// A Role has the namespace and the labels.
    Labels(RoleId),
    Alone(WorkloadId),
}

impl Groups {
    /// A row for every pod and template.
    pub fn by_pod(matrix: &Matrix<'_>) -> Self {
        let snapshot = matrix.snapshot();
        let rows = snapshot.workload_ids().map(|id| {
            let workload = snapshot.workload(id);
            let (namespace, kind) = (workload.namespace, workload.kind.name().into());
            let (members, nodes) = (vec![id], vec![matrix.program().member(id).node]);
            Group { namespace, kind, name: workload.name.clone(), members, owner: None, nodes }
        });
        Self { all: rows.collect(), of: (0..snapshot.workloads.len() as u32).map(GroupId).collect(), by_pod: true }
    }

    /// A row for every workload, in the order of their first pods.
    pub fn by_workload(matrix: &Matrix<'_>) -> Self {
        let snapshot = matrix.snapshot();
        let mut numbers: FxHashMap<RowKey, usize> = FxHashMap::default();
        let mut kin: Vec<(RowKey, Vec<WorkloadId>)> = Vec::new();
        for id in snapshot.workload_ids() {
            let key = key(snapshot, id);
            let at = *numbers.entry(key.clone()).or_insert_with(|| {
                kin.push((key, Vec::new()));
                kin.len() - 1
            });
            kin[at].1.push(id);
        }
        let mut split = Split::new(matrix);
        let mut groups = Self { all: Vec::new(), of: vec![GroupId(0); snapshot.workloads.len()], by_pod: false };
        for (key, members) in kin {
            // A template stands for pods that are not there. Here they are.
            let is_pod = |id: &WorkloadId| !snapshot.workload(*id).is_template();
            let (pods, templates): (Vec<_>, Vec<_>) = members.into_iter().partition(is_pod);
            let first = GroupId(groups.all.len() as u32);
            let parts = split.parts(if pods.is_empty() { &templates } else { &pods });
            templates.iter().for_each(|id| groups.of[id.index()] = first);
            let is_split = parts.len() > 1;
            for members in parts {
                let row = GroupId(groups.all.len() as u32);
                members.iter().for_each(|id| groups.of[id.index()] = row);
                groups.all.push(group(matrix, &key, is_split, members));
            }
        }
        groups
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (GroupId, &Group)> {
        self.all.iter().enumerate().map(|(at, group)| (GroupId(at as u32), group))
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn get(&self, id: GroupId) -> &Group {
        &self.all[id.index()]
    }

    /// The row that shows a workload.
    pub fn of(&self, id: WorkloadId) -> GroupId {
        self.of[id.index()]
    }

    /// The rows of a workload, by the name of a pod, a template or an owner.
    pub fn named(&self, namespace: NamespaceId, name: &str) -> Vec<GroupId> {
        let is_it = |group: &Group| {
            let owner = group.owner.as_ref().map(|owner| &*owner.name);
            group.namespace == namespace && (&*group.name == name || owner == Some(name))
        };
        self.iter().filter(|(_, group)| is_it(group)).map(|(id, _)| id).collect()
    }

    /// `namespace/name`.
    pub fn name(&self, snapshot: &Snapshot, id: GroupId) -> String {
        let group = self.get(id);
        format!("{}/{}", snapshot.namespace(group.namespace).name, group.name)
    }

    /// What one row may open to another; within a row, between two of its pods.
    pub fn cell(&self, matrix: &Matrix<'_>, from: GroupId, to: GroupId) -> Cell {
        let (source, target) = (self.get(from), self.get(to));
        if self.by_pod {
            return Cell { open: matrix.between(source.example(), target.example()), own_node: false };
        }
        if from == to && source.is_lone_pod() {
            return Cell { open: ALL, own_node: false };
        }
        let open = matrix.across(source.example(), target.example());
        match own_node(matrix, source, target) {
            _ if open == ALL => Cell { open, own_node: false },
            OwnNode::Never => Cell { open, own_node: false },
            OwnNode::Sometimes => Cell { open, own_node: true },
            OwnNode::Always => Cell { open: ALL, own_node: false },
        }
    }

    /// What these connections of a [`cell`](Self::cell) depend on. That pods may share a node is told by the cell.
    pub fn depends_on(&self, matrix: &Matrix<'_>, pair: GroupPair, asked: &Traffic) -> Vec<Condition> {
        let (from, to) = (self.get(pair.from).example(), self.get(pair.to).example());
        match self.by_pod {
            true => matrix.depends_on(from, to, asked),
            false => matrix.depends_on_across(from, to, asked),
        }
    }

    /// What a cell depends on. The same for every pair whose unknowns decide in the same way, whatever the pair is called.
    pub fn conditions(&self, matrix: &Matrix<'_>, from: GroupId, to: GroupId) -> CellConditions {
        let (from, to) = (self.get(from).example(), self.get(to).example());
        match self.by_pod {
            true => matrix.cell_conditions(from, to),
            // A row of several pods says by `own_node` that they may share a node.
            false => CellConditions { same_node: false, ..matrix.cell_conditions(from, to) },
        }
    }

    /// What may be opened to a row from outside. A row on several nodes leaves out
    /// what each pod's own node may open to it.
    pub fn outside_from(&self, matrix: &Matrix<'_>, to: GroupId) -> Rc<[OutsideRange]> {
        let group = self.get(to);
        let is_exact = self.by_pod || matches!(group.nodes[..], [_]);
        if is_exact { matrix.outside_from(group.example()) } else { matrix.outside_across(group.example()) }
    }

    /// The same for a comparison: a workload that moves to another node fares as before.
    pub(crate) fn outside_anywhere(&self, matrix: &Matrix<'_>, to: GroupId) -> Rc<[OutsideRange]> {
        let example = self.get(to).example();
        if self.by_pod { matrix.outside_from(example) } else { matrix.outside_across(example) }
    }
}

fn key(snapshot: &Snapshot, id: WorkloadId) -> RowKey {
    let workload = snapshot.workload(id);
    if let Some(owner) = &workload.owner {
        return RowKey::Owner(workload.namespace, (**owner).clone());
    }
    if workload.is_template() {
        let owner = Owner { kind: workload.kind.name().into(), name: workload.name.clone() };
        return RowKey::Owner(workload.namespace, owner);
    }
    // Without labels there is nothing to say that two pods are the same.
    if snapshot.role(workload.role).labels.is_empty() { RowKey::Alone(id) } else { RowKey::Labels(workload.role) }
}

fn group(matrix: &Matrix<'_>, key: &RowKey, is_split: bool, members: Vec<WorkloadId>) -> Group {
    let workload = matrix.snapshot().workload(members[0]);
    let owner = match key {
        RowKey::Owner(_, owner) => Some(owner.clone()),
        RowKey::Labels(_) | RowKey::Alone(_) => None,
    };
    let kind = owner.as_ref().map_or_else(|| workload.kind.name().into(), |owner| owner.kind.clone());
    let name = row_name(owner.as_ref(), is_split, &workload.name, members.len()).into();
    let mut nodes: Vec<Option<NodeId>> = members.iter().map(|&id| matrix.program().member(id).node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    Group { namespace: workload.namespace, kind, name, members, owner, nodes }
}

/// What a row is called: by its owner, and by its first pod where the owner has other rows too.
pub(crate) fn row_name(owner: Option<&Owner>, is_split: bool, first: &str, count: usize) -> String {
    let pods = if count > 1 { format!("{first} +{}", count - 1) } else { first.to_owned() };
    match owner {
        Some(owner) if is_split => format!("{} ({pods})", owner.name),
        Some(owner) => owner.name.to_string(),
        None => pods,
    }
}

/// How often a source is on the node of its target, and uses that node's network.
enum OwnNode {
    Never,
    Sometimes,
    Always,
}

fn own_node(matrix: &Matrix<'_>, source: &Group, target: &Group) -> OwnNode {
    let snapshot = matrix.snapshot();
    let uses_node = |group: &Group| snapshot.workload(group.example()).host_network;
    if !uses_node(source) || uses_node(target) {
        return OwnNode::Never;
    }
    let is_unknown = |group: &Group| group.nodes.contains(&None);
    match (&source.nodes[..], &target.nodes[..]) {
        _ if is_unknown(source) || is_unknown(target) => OwnNode::Sometimes,
        ([Some(one)], [Some(other)]) if one == other => OwnNode::Always,
        (nodes, others) if nodes.iter().flatten().any(|node| others.contains(&Some(*node))) => OwnNode::Sometimes,
        _ => OwnNode::Never,
    }
}

/// Tells workloads apart that fare differently.
struct Split<'m, 'a> {
    matrix: &'m Matrix<'a>,
    /// One workload of each likeness, and the likeness of each workload.
    examples: Vec<WorkloadId>,
    likeness: Vec<usize>,
}

/// How workloads of a likeness fare with those of every other, themselves included.
#[derive(PartialEq)]
struct Fate {
    host_network: bool,
    cells: Vec<[CellId; 2]>,
}

impl<'m, 'a> Split<'m, 'a> {
    fn new(matrix: &'m Matrix<'a>) -> Self {
        let mut known: FxHashMap<Likeness, usize> = FxHashMap::default();
        let mut examples = Vec::new();
        let ids = matrix.snapshot().workload_ids();
        let likeness = ids.map(|id| {
            *known.entry(matrix.likeness(id)).or_insert_with(|| {
                examples.push(id);
                examples.len() - 1
            })
        });
        let likeness = likeness.collect();
        Self { matrix, examples, likeness }
    }

    /// Members that fare the same, in the order of their first.
    fn parts(&mut self, members: &[WorkloadId]) -> Vec<Vec<WorkloadId>> {
        let mut by_likeness: Vec<(usize, Vec<WorkloadId>)> = Vec::new();
        for &id in members {
            let likeness = self.likeness[id.index()];
            match by_likeness.iter_mut().find(|(known, _)| *known == likeness) {
                Some((_, ids)) => ids.push(id),
                None => by_likeness.push((likeness, vec![id])),
            }
        }
        if by_likeness.len() == 1 {
            return by_likeness.into_iter().map(|(_, ids)| ids).collect();
        }
        let mut parts: Vec<(Fate, Vec<WorkloadId>)> = Vec::new();
        for (_, ids) in by_likeness {
            let fate = self.fate(ids[0]);
            let same =
                |(known, others): &&mut (Fate, Vec<WorkloadId>)| *known == fate && self.same_world(ids[0], others[0]);
            match parts.iter_mut().find(same) {
                Some((_, others)) => others.extend(ids),
                None => parts.push((fate, ids)),
            }
        }
        let mut parts: Vec<Vec<WorkloadId>> = parts.into_iter().map(|(_, ids)| ids).collect();
        parts.iter_mut().for_each(|ids| ids.sort_unstable());
        parts.sort_unstable();
        parts
    }

    fn fate(&self, id: WorkloadId) -> Fate {
        let cells = self.examples.iter().map(|&other| [self.matrix.across(id, other), self.matrix.across(other, id)]);
        Fate { host_network: self.matrix.snapshot().workload(id).host_network, cells: cells.collect() }
    }

    /// Whether both fare the same with the outside and with names.
    fn same_world(&self, one: WorkloadId, other: WorkloadId) -> bool {
        let matrix = self.matrix;
        matrix.outside_to(one) == matrix.outside_to(other)
            && matrix.outside_across(one) == matrix.outside_across(other)
            && matrix.names_to(one) == matrix.names_to(other)
    }
}
