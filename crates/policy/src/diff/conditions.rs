//! What a difference depends on, before and after (S10.5).

use super::{DiffEnd, Difference, Side};
use crate::addr::{AddrRange, AddrSet};
use crate::flow::Endpoint;
use crate::model::NodeId;
use crate::port::Traffic;
use crate::reach::{GroupId, GroupPair, OutsideRange, Reachable};
use crate::snapshot::Snapshot;
use crate::unknown::{Condition, Dependence, Party};
use std::collections::BTreeSet;

/// The rows of both ends on one side. None for an end that is no workload, or is not there.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Rows {
    pub(super) from: Option<GroupId>,
    pub(super) to: Option<GroupId>,
}

impl Difference {
    /// What the connections in doubt depend on before the change and after it. The sides are those that were compared.
    /// It is found when it is asked for, since there may be millions of differences.
    pub fn depends_on(&self, old: Side<'_>, new: Side<'_>) -> [Vec<Condition<Party>>; 2] {
        let of = |side: Side<'_>, rows: Rows, open: &Reachable| {
            // An end that is no workload has no row.
            let is_target = |end: &Endpoint| end.workload.map(|id| side.groups.of(id)) == rows.to;
            let conditions = self.find_conditions(side, rows, open);
            conditions.into_iter().map(|condition| condition.relative(is_target)).collect()
        };
        [of(old, self.rows[0], &self.before), of(new, self.rows[1], &self.after)]
    }

    fn find_conditions(&self, side: Side<'_>, rows: Rows, open: &Reachable) -> Vec<Condition> {
        let asked = open.depends();
        if asked.is_none() {
            return Vec::new();
        }
        let Side { matrix, groups, .. } = side;
        let example = |row: GroupId| groups.get(row).example();
        let outside = |range: AddrRange| OutsideRange { range, traffic: open.clone() };
        match (rows, &self.from, &self.to) {
            (Rows { from: Some(from), to: Some(to) }, ..) => groups.depends_on(matrix, GroupPair { from, to }, &asked),
            (Rows { from: Some(from), .. }, _, DiffEnd::Outside(range)) => {
                matrix.outside_to_depends_on(example(from), &outside(*range), &asked)
            }
            (Rows { from: Some(from), .. }, _, DiffEnd::Name(pattern)) => {
                matrix.name_depends_on(example(from), pattern, &asked)
            }
            (Rows { to: Some(to), .. }, DiffEnd::Outside(range), _) => {
                matrix.outside_from_depends_on(&outside(*range), example(to), &asked)
            }
            _ => Vec::new(),
        }
    }
}

/// What decides about a connection, by what stays the same across a change.
#[derive(PartialEq)]
pub(super) enum Decides<'a> {
    Address { party: Party, part: Option<&'a Traffic>, open: &'a AddrSet },
    Node { party: Party, part: Option<&'a Traffic>, open: BTreeSet<&'a str> },
}

/// The addresses and nodes that open the connections in doubt, to be compared with those of the other side. Which nodes
/// a firewall is for is not compared: the connections that it opens or closes are.
pub(super) fn deciding<'a>(snapshot: &'a Snapshot, list: &'a [Condition<Party>]) -> Vec<Decides<'a>> {
    let names = |nodes: &'a [NodeId]| nodes.iter().map(|&node| &*snapshot.node(node).name).collect::<BTreeSet<&str>>();
    let decides = |condition: &'a Condition<Party>| match &condition.on {
        Dependence::Address { end, open, .. } => {
            Some(Decides::Address { party: *end, part: condition.part.as_ref(), open })
        }
        Dependence::HostNode { end, open, .. } => {
            Some(Decides::Node { party: *end, part: condition.part.as_ref(), open: names(open) })
        }
        Dependence::SourceNode { .. }
        | Dependence::SameNode { .. }
        | Dependence::PassedOn { .. }
        | Dependence::PastNodes { .. }
        | Dependence::NextNode { .. } => None,
    };
    list.iter().filter_map(decides).collect()
}
