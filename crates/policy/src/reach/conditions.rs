//! What cells depend on (S10.5), in words that do not name their ends: "the
//! source" and "the target". So thousands of cells that depend on the same
//! thing are equal, and a picture keeps and describes them once.

use super::matrix::Matrix;
use crate::model::Direction;
use crate::port::Traffic;
use crate::program::Program;
use crate::snapshot::Snapshot;
use crate::unknown::{Dependence, describe_with};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// An interned list of conditions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ConditionsId(u32);

impl ConditionsId {
    /// No condition at all.
    pub(super) const NONE: Self = Self(0);

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a cell depends on. Cells with equal conditions are described by the same words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CellConditions {
    pub(super) across: ConditionsId,
    /// Whether the target may run on the source's node.
    pub(super) same_node: bool,
}

impl CellConditions {
    /// In words, for the connections of the cell that are in doubt.
    pub fn describe(self, matrix: &Matrix<'_>, in_doubt: &Traffic) -> Vec<String> {
        let mut texts = Vec::new();
        for (text, part) in matrix.conditions_named(self.across).iter() {
            let part = part.intersect(in_doubt);
            match part == *in_doubt {
                true => texts.push(text.clone()),
                false if part.is_none() => {}
                false => texts.push(format!("{part}: {text}")),
            }
        }
        if self.same_node {
            texts
                .push("open if the target runs on the node of the source: a node may always reach its own pods".into());
        }
        texts
    }
}

/// A condition in words, and the connections it is about.
type Worded = (String, Traffic);

/// Every different list of conditions, once.
#[derive(Debug)]
pub(super) struct ConditionPool {
    all: Vec<Rc<[Worded]>>,
    ids: FxHashMap<Rc<[Worded]>, ConditionsId>,
    joins: FxHashMap<(ConditionsId, ConditionsId), ConditionsId>,
}

impl Default for ConditionPool {
    fn default() -> Self {
        let none: Rc<[Worded]> = Rc::new([]);
        let ids = [(none.clone(), ConditionsId::NONE)].into_iter().collect();
        Self { all: vec![none], ids, joins: FxHashMap::default() }
    }
}

impl ConditionPool {
    pub(super) fn get(&self, id: ConditionsId) -> Rc<[Worded]> {
        self.all[id.index()].clone()
    }

    pub(super) fn intern(&mut self, conditions: Vec<Worded>) -> ConditionsId {
        let mut merged: Vec<Worded> = Vec::new();
        for (text, part) in conditions {
            match merged.iter_mut().find(|(known, _)| *known == text) {
                Some((_, parts)) => *parts = parts.union(&part),
                None => merged.push((text, part)),
            }
        }
        let merged: Rc<[Worded]> = merged.into();
        let next = ConditionsId(self.all.len() as u32);
        let id = *self.ids.entry(merged.clone()).or_insert(next);
        if id == next {
            self.all.push(merged);
        }
        id
    }

    pub(super) fn join(&mut self, a: ConditionsId, b: ConditionsId) -> ConditionsId {
        if a == b || b == ConditionsId::NONE {
            return a;
        }
        if a == ConditionsId::NONE {
            return b;
        }
        if let Some(&known) = self.joins.get(&(a, b)) {
            return known;
        }
        let both = self.all[a.index()].iter().chain(self.all[b.index()].iter()).cloned().collect();
        let id = self.intern(both);
        self.joins.insert((a, b), id);
        id
    }
}

/// What one side depends on. Egress depends on the target's address and the source's node, ingress on the source's
/// address and node.
pub(super) fn describe(world: (&Snapshot, &Program), direction: Direction, dependence: &Dependence) -> String {
    let end = match (direction, dependence) {
        (Direction::Egress, Dependence::Address { .. } | Dependence::HostNode { .. }) => "the target",
        _ => "the source",
    };
    describe_with(world, dependence, &|_| end.to_owned())
}
