//! What cells depend on (S10.5), without the names of their ends: those are
//! "the source" and "the target". So thousands of cells that depend on the same
//! thing are equal, and a picture keeps and describes them once.

use super::matrix::Matrix;
use crate::flow::Endpoint;
use crate::model::Direction;
use crate::port::Traffic;
use crate::unknown::{Condition, Dependence, EndName, Party};
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
    /// For the connections of the cell that are in doubt.
    pub fn list(self, matrix: &Matrix<'_>, in_doubt: &Traffic) -> Vec<Condition<Party>> {
        let mut found = Vec::new();
        for (on, part) in matrix.conditions_listed(self.across).iter() {
            let part = part.intersect(in_doubt);
            if !part.is_none() {
                found.push(Condition { part: (part != *in_doubt).then_some(part), on: on.clone() });
            }
        }
        if self.same_node {
            let on = Dependence::SameNode { from: Party::Source, to: Party::Target };
            found.push(Condition { part: None, on });
        }
        found
    }

    /// In words, for the connections of the cell that are in doubt.
    pub fn describe(self, matrix: &Matrix<'_>, in_doubt: &Traffic) -> Vec<String> {
        let (snapshot, program) = (matrix.snapshot(), matrix.program());
        let name_of = |party: &Party| EndName::Workload(party.to_string());
        let words = |condition: Condition<Party>| condition.describe_as(snapshot, program, &name_of).text;
        self.list(matrix, in_doubt).into_iter().map(words).collect()
    }
}

/// What connections depend on, and which.
pub(super) type Listed = (Dependence<Party>, Traffic);

/// Every different list of conditions, once.
#[derive(Debug)]
pub(super) struct ConditionPool {
    all: Vec<Rc<[Listed]>>,
    ids: FxHashMap<Rc<[Listed]>, ConditionsId>,
    joins: FxHashMap<(ConditionsId, ConditionsId), ConditionsId>,
}

impl Default for ConditionPool {
    fn default() -> Self {
        let none: Rc<[Listed]> = Rc::new([]);
        let ids = [(none.clone(), ConditionsId::NONE)].into_iter().collect();
        Self { all: vec![none], ids, joins: FxHashMap::default() }
    }
}

impl ConditionPool {
    pub(super) fn get(&self, id: ConditionsId) -> Rc<[Listed]> {
        self.all[id.index()].clone()
    }

    pub(super) fn intern(&mut self, conditions: Vec<Listed>) -> ConditionsId {
        let mut merged: Vec<Listed> = Vec::new();
        for (on, part) in conditions {
            match merged.iter_mut().find(|(known, _)| *known == on) {
                Some((_, parts)) => *parts = parts.union(&part),
                None => merged.push((on, part)),
            }
        }
        let merged: Rc<[Listed]> = merged.into();
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

/// What one side depends on, for any pair. Egress depends on the target's address and the source's node, ingress on the
/// source's address and node.
pub(super) fn relative(direction: Direction, dependence: Dependence) -> Dependence<Party> {
    let party = match (direction, &dependence) {
        (Direction::Egress, Dependence::Address { .. } | Dependence::HostNode { .. }) => Party::Target,
        _ => Party::Source,
    };
    dependence.map(|_: Endpoint| party)
}
