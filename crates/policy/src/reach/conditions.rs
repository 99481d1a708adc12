//! What cells depend on (S10.5), in words that do not name their ends: "the
//! source" and "the target". So thousands of cells that depend on the same
//! thing are equal, and a picture keeps and describes them once.

use super::matrix::Matrix;
use crate::model::Direction;
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
pub struct Conditions {
    pub(super) across: ConditionsId,
    /// Whether the target runs on the source's node.
    pub(super) same_node: bool,
}

impl Conditions {
    pub fn describe(self, matrix: &Matrix<'_>) -> Vec<String> {
        let mut texts = matrix.conditions(self.across).to_vec();
        if self.same_node {
            texts
                .push("open if the target runs on the node of the source: a node may always reach its own pods".into());
        }
        texts
    }
}

/// Every different list of conditions, once.
#[derive(Debug)]
pub(super) struct ConditionPool {
    all: Vec<Rc<[String]>>,
    ids: FxHashMap<Rc<[String]>, ConditionsId>,
    joins: FxHashMap<(ConditionsId, ConditionsId), ConditionsId>,
}

impl Default for ConditionPool {
    fn default() -> Self {
        let none: Rc<[String]> = Rc::new([]);
        let ids = [(none.clone(), ConditionsId::NONE)].into_iter().collect();
        Self { all: vec![none], ids, joins: FxHashMap::default() }
    }
}

impl ConditionPool {
    pub(super) fn get(&self, id: ConditionsId) -> Rc<[String]> {
        self.all[id.index()].clone()
    }

    pub(super) fn intern(&mut self, mut texts: Vec<String>) -> ConditionsId {
        let mut seen = rustc_hash::FxHashSet::default();
        texts.retain(|text| seen.insert(text.clone()));
        let texts: Rc<[String]> = texts.into();
        let next = ConditionsId(self.all.len() as u32);
        let id = *self.ids.entry(texts.clone()).or_insert(next);
        if id == next {
            self.all.push(texts);
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
