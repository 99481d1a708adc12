//! What the input leaves open (S10.5): the address of a pod that does not exist
//! yet or of a name that is not resolved, and the node that a pod runs on.
//!
//! The walk of S1 judges connections with nothing left open. This module lists
//! the ways in which the unknown parts of a connection may turn out. They are
//! finitely many, since addresses that no rule in question tells apart share a
//! [`Settled`] end.
//!
//! Egress depends on the destination's address and the source's node. Ingress
//! depends on the source's address and on whether both ends share a node. So
//! each side has cases of its own, and a connection is open where a case of
//! either side lets it pass.

mod dependence;
mod predict;
mod whereabouts;
mod words;

pub use dependence::{Condition, Conditions, Dependence, Party};
pub use predict::{Case, Outlook, Prediction};
pub use whereabouts::Whereabouts;
pub(crate) use whereabouts::addresses_by_node;
pub use words::{Described, EndName, Unknown, guessed_pod_network};

use crate::addr::AddrRange;
use crate::flow::Endpoint;
use crate::model::{Direction, NodeId, PolicyId};
use crate::program::{Matcher, Plan, Program};
use crate::reach::{Cuts, Reach};
use std::net::IpAddr;

/// What a walk assumes where the input does not say.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Assumption {
    pub source_node: SourceNode,
    /// Whether the destination runs on the source's node, where its own is not known.
    pub same_node: bool,
}

/// Which firewalls for certain nodes count for a source whose node is not known.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SourceNode {
    /// Those whose first match denies: what the kernel enforces.
    #[default]
    Unfavourable,
    /// Those whose first match allows.
    Favourable,
}

impl SourceNode {
    /// What may be assumed of a source with these policies.
    pub(crate) fn cases(plan: &Plan) -> &'static [Self] {
        match plan.all_in_doubt().next().is_none() {
            true => &[Self::Unfavourable],
            false => &[Self::Unfavourable, Self::Favourable],
        }
    }
}

/// An end with nothing left open.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub(crate) end: Endpoint,
    /// The addresses it stands for, where the address was unknown.
    pub(crate) span: Option<AddrRange>,
    /// The node it stands for, where the node of a `hostNetwork` pod was unknown.
    pub(crate) node: Option<NodeId>,
}

/// An address family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// The families over which two ends may speak. `None` stands for no restriction: both addresses are known, or there is
/// no family in common.
pub(crate) fn families(program: &Program, from: &Endpoint, to: &Endpoint) -> Vec<Option<Family>> {
    if from.address.is_some() && to.address.is_some() {
        return vec![None];
    }
    let common = [Family::V4, Family::V6].into_iter().filter(|&family| speaks(program, from, family));
    let common: Vec<_> = common.filter(|&family| speaks(program, to, family)).map(Some).collect();
    if common.is_empty() { vec![None] } else { common }
}

/// Whether the end has an address of this family, or may have one.
pub(crate) fn speaks(program: &Program, end: &Endpoint, family: Family) -> bool {
    match end.address {
        Some(address) => Family::of(address) == family,
        None => program.whereabouts.has(program, end, family),
    }
}

impl Reach<'_> {
    /// The ways in which a peer of these policies may turn out.
    pub(crate) fn settle(&self, peer: &Endpoint, plan: &Plan, side: Side) -> Vec<Settled> {
        if peer.address.is_some() {
            return vec![Settled { end: peer.clone(), span: None, node: None }];
        }
        let mut cuts = Cuts::default();
        let (mut leases, direction) = (false, side.direction);
        for &policy in judging(plan, direction) {
            for rule in self.program.policy(policy).rules(direction) {
                if let Matcher::Clauses { peers, .. } = self.program.rule(rule).matcher {
                    let peers = self.program.peer_set(peers);
                    cuts.set(&peers.addresses);
                    leases |= !peers.domains.is_empty();
                }
            }
        }
        if leases {
            self.leases.iter().for_each(|lease| cuts.address(lease.address));
        }
        let mut pieces = cuts.pieces();
        pieces.retain(|piece| side.family.is_none_or(|family| Family::of(piece.first) == family));
        let mut settled = Vec::new();
        for place in self.program.whereabouts.places(self.program, peer) {
            for &piece in &pieces {
                let Some(address) = place.addresses.first_within(piece) else { continue };
                let node = place.node.or(peer.node);
                let end = Endpoint { address: Some(address), node, assumed: true, ..peer.clone() };
                settled.push(Settled { end, span: Some(piece), node: place.node });
            }
        }
        settled
    }
}

/// Which side of a walk an end is settled for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) direction: Direction,
    pub(crate) family: Option<Family>,
}

/// The policies of the plan that judge this direction.
pub(crate) fn judging(plan: &Plan, direction: Direction) -> impl Iterator<Item = &PolicyId> {
    plan.each().flat_map(move |plan| {
        let gates = [&plan.cluster_gate, &plan.namespace_gate];
        let gates = gates.into_iter().filter(move |_| direction == Direction::Egress);
        let tiers = plan.tiers(direction);
        gates.chain([&tiers.admin, &tiers.network, &tiers.baseline]).flatten()
    })
}
