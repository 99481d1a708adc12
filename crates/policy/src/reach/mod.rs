//! What may be opened at all: the same walk as [`evaluate`](crate::evaluate()),
//! over exact sets of connections instead of one connection.

mod exposure;
mod groups;
mod matrix;
mod outside;
mod views;

pub use exposure::{Exposure, exposure};
pub(crate) use groups::row_name;
pub use groups::{Cell, Group, GroupId, Groups};
pub use matrix::{Matrix, TrafficId, address_pairs};
pub use outside::OutsideRange;

use crate::flow::Endpoint;
use crate::lease::{Instant, Lease, LeaseTable};
use crate::model::{Action, Direction, NamedPort, PolicyId};
use crate::port::Traffic;
use crate::program::{CompiledRule, Matcher, PeerSet, Plan, Program, Tiers};
use std::net::IpAddr;

/// Where reachability is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Reach<'a> {
    pub program: &'a Program,
    pub leases: &'a LeaseTable,
    pub now: Instant,
}

impl Reach<'_> {
    /// Every connection that may be opened from one end to the other.
    pub fn between(&self, from: &Endpoint, to: &Endpoint) -> Traffic {
        let same = from.workload.is_some() && from.workload == to.workload;
        if same && self.program.pod(from).is_some_and(|member| !member.template) {
            return Traffic::all();
        }
        let egress = self.egress(from, to);
        if egress.is_none() { egress } else { egress.intersect(&self.ingress(from, to)) }
    }

    /// What the source's gates and tiers let out.
    pub fn egress(&self, from: &Endpoint, to: &Endpoint) -> Traffic {
        let Some(member) = self.program.pod(from) else { return Traffic::all() };
        self.plan_egress(&self.program.class(member.class).enforced, to)
    }

    pub(crate) fn plan_egress(&self, plan: &Plan, to: &Endpoint) -> Traffic {
        let side =
            Side { direction: Direction::Egress, peer: to, ports: self.named_ports(to), in_doubt: &plan.in_doubt };
        let mut open = self.gate(&plan.cluster_gate, &side, Traffic::all());
        if !self.in_pod_network(to) {
            open = self.gate(&plan.namespace_gate, &side, open);
        }
        if open.is_none() { open } else { self.tiers(&plan.egress, &side, open) }
    }

    /// What the destination's tiers let in.
    pub fn ingress(&self, from: &Endpoint, to: &Endpoint) -> Traffic {
        let Some(member) = self.program.pod(to) else { return Traffic::all() };
        if from.node.is_some() && from.node == member.node {
            return Traffic::all();
        }
        self.ingress_across(from, to)
    }

    /// The same as if the source were not the destination's own node.
    pub(crate) fn ingress_across(&self, from: &Endpoint, to: &Endpoint) -> Traffic {
        let Some(member) = self.program.pod(to) else { return Traffic::all() };
        self.plan_ingress(&self.program.class(member.class).enforced, &member.ports, from)
    }

    pub(crate) fn plan_ingress(&self, plan: &Plan, ports: &[NamedPort], from: &Endpoint) -> Traffic {
        let side = Side { direction: Direction::Ingress, peer: from, ports, in_doubt: &[] };
        self.tiers(&plan.ingress, &side, Traffic::all())
    }

    fn named_ports(&self, to: &Endpoint) -> &[NamedPort] {
        self.program.pod(to).map_or(&[], |member| &member.ports)
    }

    fn opening(&self, set: &PeerSet, address: IpAddr) -> Option<&Lease> {
        if set.domains.is_empty() {
            return None;
        }
        self.leases.opening(address, self.now, |pattern| self.program.lists_pattern(set, pattern))
    }

    fn in_pod_network(&self, end: &Endpoint) -> bool {
        self.program.pod(end).is_some()
            || end.address.is_some_and(|address| end.node.is_none() && self.program.pod_networks.contains(address))
    }

    /// A gate only takes away: what a Deny matches first is closed.
    fn gate(&self, policies: &[PolicyId], side: &Side<'_>, open: Traffic) -> Traffic {
        if policies.is_empty() {
            return open;
        }
        let Split { denied, .. } = self.split(policies, side, open.clone());
        open.subtract(&denied)
    }

    fn tiers(&self, tiers: &Tiers, side: &Side<'_>, open: Traffic) -> Traffic {
        let admin = self.split(&tiers.admin, side, open);
        let left = admin.passed.union(&admin.left);
        if left.is_none() {
            return admin.allowed;
        }
        if tiers.isolated {
            let network = self.split(&tiers.network, side, left);
            return admin.allowed.union(&network.allowed);
        }
        let baseline = self.split(&tiers.baseline, side, left);
        admin.allowed.union(&baseline.allowed).union(&baseline.passed).union(&baseline.left)
    }

    /// Shares the open connections out among the rules, first match first.
    fn split(&self, policies: &[PolicyId], side: &Side<'_>, open: Traffic) -> Split {
        let mut split = Split { left: open, ..Split::default() };
        for &policy in policies {
            for id in self.program.policy(policy).rules(side.direction) {
                let rule = self.program.rule(id);
                if rule.action == Action::Allow && side.in_doubt.contains(&policy) {
                    continue;
                }
                let Some(ports) = self.matched(rule, side) else { continue };
                let hit = split.left.intersect(&ports);
                if hit.is_none() {
                    continue;
                }
                split.left = split.left.subtract(&hit);
                let pile = match rule.action {
                    Action::Allow => &mut split.allowed,
                    Action::Deny => &mut split.denied,
                    Action::Pass => &mut split.passed,
                };
                *pile = pile.union(&hit);
                if split.left.is_none() {
                    return split;
                }
            }
        }
        split
    }

    /// The connections a rule matches with this peer, if any.
    fn matched(&self, rule: &CompiledRule, side: &Side<'_>) -> Option<Traffic> {
        let (peers, ports) = match rule.matcher {
            Matcher::Clauses { peers, ports } => (self.program.peer_set(peers), self.program.port_spec(ports)),
            Matcher::Nothing => return None,
            Matcher::Everything => return Some(Traffic::all()),
        };
        let leased = || {
            let address = side.peer.address?;
            self.opening(peers, address)
        };
        let met = self.program.in_peer_set(peers, side.peer, rule.action) || leased().is_some();
        met.then(|| ports.at(side.ports))
    }
}

/// One side's question: who the peer is, and which ports the destination names.
struct Side<'a> {
    direction: Direction,
    peer: &'a Endpoint,
    ports: &'a [NamedPort],
    /// Policies whose Allow rules do not count.
    in_doubt: &'a [PolicyId],
}

/// How an ordered list of rules shared connections out.
#[derive(Default)]
struct Split {
    allowed: Traffic,
    denied: Traffic,
    passed: Traffic,
    /// What no rule matched.
    left: Traffic,
}
