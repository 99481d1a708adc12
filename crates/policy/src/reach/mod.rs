//! What may be opened at all: the same walk as [`evaluate`](crate::evaluate()),
//! over exact sets of connections instead of one connection.

mod conditions;
mod cuts;
mod exposure;
mod groups;
mod matrix;
mod outside;
mod reachable;
mod views;

pub use conditions::CellConditions;
pub(crate) use cuts::Cuts;
pub use exposure::{Exposure, Exposures, MOST_PARTS, NamedTraffic, NewPods, exposure};
pub(crate) use groups::row_name;
pub use groups::{Cell, Group, GroupId, GroupPair, Groups};
pub use matrix::{CellId, Matrix};
pub use outside::OutsideRange;
pub use reachable::Reachable;

use crate::flow::Endpoint;
use crate::lease::{Instant, LeaseRef, LeaseTable};
use crate::model::{Action, Direction, PolicyId};
use crate::port::Traffic;
use crate::program::{CompiledRule, Matcher, Member, NamedPorts, PeerSet, Plan, Program, Tiers};
use crate::unknown::{Assumption, Family, Settled, Side, SourceNode, families};
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
    pub fn between(&self, from: &Endpoint, to: &Endpoint) -> Reachable {
        if self.program.is_same_pod(from, to) && self.program.pod(from).is_some_and(|member| !member.template) {
            return Reachable::all();
        }
        // The ends may choose the family: what is open over one of them is open.
        let open = families(self.program, from, to).into_iter().map(|family| {
            let egress = self.egress_over(from, to, family);
            if egress.is_none() { egress } else { egress.intersect(&self.ingress_over(from, to, family)) }
        });
        open.reduce(|all, more| all.union(&more)).unwrap_or_default()
    }

    /// What the source's gates and tiers let out.
    pub fn egress(&self, from: &Endpoint, to: &Endpoint) -> Reachable {
        self.egress_over(from, to, None)
    }

    /// What the destination's tiers let in.
    pub fn ingress(&self, from: &Endpoint, to: &Endpoint) -> Reachable {
        self.ingress_over(from, to, None)
    }

    pub(crate) fn egress_over(&self, from: &Endpoint, to: &Endpoint, family: Option<Family>) -> Reachable {
        if self.plan_of(from).is_none() {
            return Reachable::all();
        }
        Reachable::over(self.egress_cases(from, to, family).into_iter().map(|case| case.traffic))
    }

    /// What is let out in each way the unknowns may turn out; none if the source has no policies.
    pub(crate) fn egress_cases(&self, from: &Endpoint, to: &Endpoint, family: Option<Family>) -> Vec<SideCase> {
        let Some(plan) = self.plan_of(from) else { return Vec::new() };
        let mut cases = Vec::new();
        for settled in self.settle(to, plan, Side { direction: Direction::Egress, family }) {
            for &source_node in SourceNode::cases(plan) {
                let traffic = self.plan_egress(plan, &settled.end, source_node);
                let assumption = Assumption { source_node, ..Assumption::default() };
                cases.push(SideCase { settled: settled.clone(), assumption, traffic });
            }
        }
        cases
    }

    pub(crate) fn ingress_over(&self, from: &Endpoint, to: &Endpoint, family: Option<Family>) -> Reachable {
        if self.plan_of(to).is_none() {
            return Reachable::all();
        }
        let side = Inward { family, across: false };
        Reachable::over(self.ingress_cases(from, to, side).into_iter().map(|case| case.traffic))
    }

    /// What is let in in each way the unknowns may turn out; none if the destination has no policies.
    pub(crate) fn ingress_cases(&self, from: &Endpoint, to: &Endpoint, side: Inward) -> Vec<SideCase> {
        let Some(plan) = self.plan_of(to) else { return Vec::new() };
        let (ports, node) = (self.named_ports(to), self.program.pod(to).and_then(|member| member.node));
        let mut cases = Vec::new();
        for settled in self.settle(from, plan, Side { direction: Direction::Ingress, family: side.family }) {
            for same_node in self.same_node_cases(&settled.end, to).filter(|same_node| !(side.across && *same_node)) {
                let own_node = same_node || (node.is_some() && settled.end.node == node);
                let is_open = own_node && !side.across;
                let traffic = if is_open { Traffic::all() } else { self.plan_ingress(plan, ports, &settled.end) };
                let assumption = Assumption { same_node, ..Assumption::default() };
                cases.push(SideCase { settled: settled.clone(), assumption, traffic });
            }
        }
        cases
    }

    /// The same as if the source were not the destination's own node.
    pub(crate) fn ingress_across(&self, from: &Endpoint, to: &Endpoint, family: Option<Family>) -> Reachable {
        if self.plan_of(to).is_none() {
            return Reachable::all();
        }
        let side = Inward { family, across: true };
        Reachable::over(self.ingress_cases(from, to, side).into_iter().map(|case| case.traffic))
    }

    /// The policies of the pod at this end.
    pub(crate) fn plan_of(&self, end: &Endpoint) -> Option<&Plan> {
        self.program.pod(end).map(|member| &self.program.class(member.class).enforced)
    }

    /// What may be assumed of whether the pod runs on the source's node: both, where the pod's node is not known.
    pub(crate) fn same_node_cases(&self, from: &Endpoint, to: &Endpoint) -> impl Iterator<Item = bool> + use<> {
        let unknown = from.node.is_some() && self.program.pod(to).is_some_and(|member| member.node.is_none());
        [Some(false), unknown.then_some(true)].into_iter().flatten()
    }

    /// What a plan lets out to an end with a known address.
    pub(crate) fn plan_egress(&self, plan: &Plan, to: &Endpoint, source_node: SourceNode) -> Traffic {
        all_allow(plan, |plan| self.one_plan_egress(plan, to, source_node))
    }

    fn one_plan_egress(&self, plan: &Plan, to: &Endpoint, source_node: SourceNode) -> Traffic {
        let doubt = Doubt { policies: &plan.in_doubt, source_node };
        let side = Peering { direction: Direction::Egress, peer: to, ports: self.named_ports(to), doubt };
        let mut open = self.gate(&plan.cluster_gate, &side, Traffic::all());
        open = open.subtract(&self.program.denied_at(plan, to));
        if !self.in_pod_network(to) {
            open = self.gate(&plan.namespace_gate, &side, open);
        }
        if open.is_none() { open } else { self.tiers(&plan.egress, &side, open) }
    }

    /// What a plan lets in from an end with a known address.
    pub(crate) fn plan_ingress(&self, plan: &Plan, ports: NamedPorts<'_>, from: &Endpoint) -> Traffic {
        let doubt = Doubt { policies: &[], source_node: SourceNode::default() };
        let side = Peering { direction: Direction::Ingress, peer: from, ports, doubt };
        all_allow(plan, |plan| self.tiers(&plan.ingress, &side, Traffic::all()))
    }

    /// Whether an egress rule of the policy matches some of these connections.
    pub(crate) fn has_rule(&self, policy: PolicyId, to: &Endpoint, traffic: &Traffic) -> bool {
        let doubt = Doubt { policies: &[], source_node: SourceNode::default() };
        let side = Peering { direction: Direction::Egress, peer: to, ports: self.named_ports(to), doubt };
        let mut rules = self.program.policy(policy).rules(Direction::Egress).map(|id| self.program.rule(id));
        rules.any(|rule| self.matched(rule, &side).is_some_and(|hit| !hit.intersect(traffic).is_none()))
    }

    fn named_ports(&self, to: &Endpoint) -> NamedPorts<'_> {
        self.program.pod(to).map(Member::named_ports).unwrap_or_default()
    }

    fn opening(&self, set: &PeerSet, address: IpAddr) -> Option<LeaseRef<'_>> {
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
    fn gate(&self, policies: &[PolicyId], side: &Peering<'_>, open: Traffic) -> Traffic {
        if policies.is_empty() {
            return open;
        }
        let Split { denied, .. } = self.split(policies, side, open.clone());
        open.subtract(&denied)
    }

    fn tiers(&self, tiers: &Tiers, side: &Peering<'_>, open: Traffic) -> Traffic {
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
    fn split(&self, policies: &[PolicyId], side: &Peering<'_>, open: Traffic) -> Split {
        let mut split = Split { left: open, ..Split::default() };
        for &policy in policies {
            if side.doubt.policies.contains(&policy) {
                self.share_doubtful(policy, side, &mut split);
            } else {
                self.share(policy, side, &mut split);
            }
            if split.left.is_none() {
                break;
            }
        }
        split
    }

    fn share(&self, policy: PolicyId, side: &Peering<'_>, split: &mut Split) {
        for id in self.program.policy(policy).rules(side.direction) {
            let rule = self.program.rule(id);
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
        }
    }

    /// A firewall that may be for other nodes takes its share only as far as is assumed.
    fn share_doubtful(&self, policy: PolicyId, side: &Peering<'_>, split: &mut Split) {
        let mut own = Split { left: split.left.clone(), ..Split::default() };
        self.share(policy, side, &mut own);
        let (taken, pile) = match side.doubt.source_node {
            SourceNode::Favourable => (own.allowed, &mut split.allowed),
            SourceNode::Unfavourable => (own.denied, &mut split.denied),
        };
        split.left = split.left.subtract(&taken);
        *pile = pile.union(&taken);
    }

    /// The connections a rule matches with this peer, if any.
    fn matched(&self, rule: &CompiledRule, side: &Peering<'_>) -> Option<Traffic> {
        let (peers, ports) = match rule.matcher {
            Matcher::Clauses { peers, ports } => (self.program.peer_set(peers), self.program.port_spec(ports)),
            Matcher::Nothing => return None,
            Matcher::Everything => return Some(Traffic::all()),
        };
        let leased = || {
            let address = side.peer.address?;
            self.opening(peers, address)
        };
        let met = self.program.in_peer_set(peers, side.peer) || leased().is_some();
        met.then(|| ports.at(side.ports))
    }
}

/// What the plans of all pods that share an address let pass (S1.9).
fn all_allow(plan: &Plan, open: impl Fn(&Plan) -> Traffic) -> Traffic {
    plan.each().map(open).reduce(|all, more| all.intersect(&more)).unwrap_or_default()
}

/// How the destination's side is asked.
#[derive(Clone, Copy)]
pub(crate) struct Inward {
    pub(crate) family: Option<Family>,
    /// Whether both ends are taken to be on different nodes.
    pub(crate) across: bool,
}

/// What one side of the walk lets pass in one way its unknowns may turn out.
pub(crate) struct SideCase {
    pub(crate) settled: Settled,
    pub(crate) assumption: Assumption,
    pub(crate) traffic: Traffic,
}

/// One side's question: who the peer is, and which ports the destination names.
struct Peering<'a> {
    direction: Direction,
    peer: &'a Endpoint,
    ports: NamedPorts<'a>,
    doubt: Doubt<'a>,
}

/// Firewalls that may be for other nodes, and what is assumed of them.
struct Doubt<'a> {
    policies: &'a [PolicyId],
    source_node: SourceNode,
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
