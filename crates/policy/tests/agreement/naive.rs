//! The walk of S1 once more, as slowly and plainly as it can be written: loop
//! over all policies, sort them, look at every rule. It follows
//! docs/semantics.md, reads the Snapshot, and knows nothing of Programs, Classes
//! or sets.

mod cases;
mod matching;

pub(crate) use cases::Case;
use namewall_policy::model::{
    Action, BackendTarget, Clauses, Direction, Enforcement, NamespaceId, NodeId, Placement, Policy, PolicyKind,
    PolicyRef, Rule, Workload, WorkloadId,
};
use namewall_policy::port::Protocol;
use namewall_policy::{Endpoint, Flow, Instant, Lease, Masker, Prediction, Snapshot, Stage};
use std::net::IpAddr;

/// What the verdict rests on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct World<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) leases: &'a [Lease],
    pub(crate) now: Instant,
}

/// A rule, by its policy and its place there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RuleAt {
    pub(crate) policy: PolicyRef,
    pub(crate) direction: Direction,
    pub(crate) index: usize,
}

/// What settled one direction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Because {
    OwnAddress,
    OwnNode,
    NoSubject,
    Rule(RuleAt),
    /// NetworkPolicy rules have no order: any of these is a good reason.
    AnyOf(Vec<RuleAt>),
    Isolated,
    Default,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    Allowed { egress: Because, ingress: Because },
    Denied { stage: Stage, because: Because },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Judgement {
    pub(crate) why: Why,
    pub(crate) would_deny: Option<Why>,
}

type Step = Result<Because, (Stage, Because)>;

/// The judgement of a flow with known addresses.
pub(crate) fn judge(world: World<'_>, flow: &Flow) -> Judgement {
    judge_case(world, flow, &Doubt::Closed)
}

fn judge_case(world: World<'_>, flow: &Flow, doubt: &Doubt<'_>) -> Judgement {
    let why = Walk { world, flow, doubt, with_audited: false }.run();
    let would_deny = match why {
        Why::Allowed { .. } => Some(Walk { world, flow, doubt, with_audited: true }.run()),
        Why::Denied { .. } => None,
    };
    // S11: only a denial is news.
    Judgement { why, would_deny: would_deny.filter(|why| matches!(why, Why::Denied { .. })) }
}

/// Whether a flow is allowed in all cases, in none, or in some (S10.5).
///
/// `masks` are the ends that the destination's node may see in the source's place (S1.11).
pub(crate) fn predict(world: World<'_>, flow: &Flow, masks: &[Endpoint]) -> Prediction {
    let outcomes = |case: &Case| {
        let why = judge_case(world, &case.flow, &Doubt::Case(case)).why;
        let mut outcomes = vec![matches!(why, Why::Allowed { .. })];
        let (doubt, apart) = (Doubt::Case(case), Case { same_node: false, ..case.clone() });
        let egress = Walk { world, flow: &case.flow, doubt: &doubt, with_audited: false }.egress().is_ok();
        for from in masks {
            let seen = Flow { from: from.clone(), hop: None, masker: None, ..case.flow.clone() };
            let doubt = Doubt::Case(&apart);
            let ingress = Walk { world, flow: &seen, doubt: &doubt, with_audited: false }.ingress().is_ok();
            outcomes.push(egress && ingress);
        }
        // A load balancer may go past all nodes, where nobody judges.
        if flow.masker == Some(Masker::LoadBalancer) && world.pod(&flow.to).is_none() {
            outcomes.push(true);
        }
        // Nobody may translate an address of a Service that a Service leads to.
        if flow.hop.is_some_and(|hop| hop.node.is_none()) {
            outcomes.push(false);
        }
        outcomes
    };
    let of_family = |cases: &Vec<Case>| {
        let outcomes: Vec<bool> = cases.iter().flat_map(outcomes).collect();
        match (outcomes.iter().all(|open| *open), outcomes.contains(&true)) {
            (true, _) => Prediction::Allow,
            (_, false) => Prediction::Deny,
            _ => Prediction::Depends,
        }
    };
    let families: Vec<Prediction> = world.cases(flow).iter().map(of_family).collect();
    for best in [Prediction::Allow, Prediction::Depends] {
        if families.contains(&best) {
            return best;
        }
    }
    Prediction::Deny
}

/// The nodes that may put their address in the source's place: the one that passes a connection on to another node, and
/// the source's own, if the one that is asked has the pod itself.
pub(crate) fn maskers(world: World<'_>, flow: &Flow) -> Vec<NodeId> {
    let Some(pod) = world.pod(&flow.to) else { return Vec::new() };
    // A pod is on one node with itself, which judges before it replaces a source.
    if (Walk { world, flow, doubt: &Doubt::Closed, with_audited: false }).to_itself(pod) {
        return Vec::new();
    }
    let at = world.node_of(pod);
    let Some(hop) = flow.hop.and_then(|hop| hop.node) else {
        let all = (0..world.snapshot.nodes.len() as u32).map(NodeId);
        let translates = |node: &NodeId| match flow.masker {
            _ if flow.hop.is_some() => true,
            None => false,
            Some(Masker::AnyNode | Masker::LoadBalancer) => true,
            Some(Masker::Node(own)) => own == *node,
        };
        return all.filter(|node| translates(node) && at != Some(*node)).collect();
    };
    let mut nodes = Vec::new();
    if at != Some(hop) {
        nodes.push(hop);
    }
    if at.is_none() || at == Some(hop) {
        nodes.extend(world.pod(&flow.from).and_then(|pod| world.node_of(pod)));
    }
    nodes
}

/// What counts of firewalls for certain nodes, where the source's node is not known.
enum Doubt<'a> {
    /// Each counts only if its first match denies.
    Closed,
    Case(&'a Case),
}

struct Walk<'a> {
    world: World<'a>,
    flow: &'a Flow,
    doubt: &'a Doubt<'a>,
    /// Whether audited objects count as if they were enforced.
    with_audited: bool,
}

impl<'a> Walk<'a> {
    fn run(&self) -> Why {
        let both = self.egress().and_then(|egress| Ok((egress, self.ingress()?)));
        match both {
            Ok((egress, ingress)) => Why::Allowed { egress, ingress },
            Err((stage, because)) => Why::Denied { stage, because },
        }
    }

    /// S1.9: every pod that shares an address with the source must allow.
    fn egress(&self) -> Step {
        let Some(pod) = self.world.pod(&self.flow.from) else {
            self.service_gate()?;
            return Ok(Because::NoSubject);
        };
        if self.to_itself(pod) {
            return Ok(Because::OwnAddress);
        }
        let because = all_allow(self.world.judged_as(pod).into_iter().map(|pod| self.egress_of(pod)))?;
        if self.flow.hop.is_some() {
            self.service_gate()?;
        }
        Ok(because)
    }

    fn egress_of(&self, pod: &Workload) -> Step {
        if let Some(hop) = self.flow.hop {
            // Its own node knows only where it was addressed to; the other one asks the cluster gates once more.
            let first = self.flow.before(hop);
            let because = Walk { flow: &first, ..*self }.egress_of(pod)?;
            self.cluster_gate(pod)?;
            return Ok(because);
        }
        self.cluster_gate(pod)?;
        self.node_port_gate(pod)?;
        if !self.stays_in_pod_network() {
            self.gate(Stage::NamespaceGate, &self.placed(pod, |at| at == Placement::NamespaceGate))?;
        }
        self.tiers(pod, Direction::Egress)
    }

    fn ingress(&self) -> Step {
        let Some(pod) = self.world.pod(&self.flow.to) else {
            return Ok(Because::NoSubject);
        };
        if self.to_itself(pod) {
            return Ok(Because::OwnAddress);
        }
        let assumed = matches!(self.doubt, Doubt::Case(case) if case.same_node);
        if self.flow.from.node.is_some() && (self.flow.from.node == self.world.node_of(pod) || assumed) {
            return Ok(Because::OwnNode);
        }
        all_allow(self.world.judged_as(pod).into_iter().map(|pod| self.tiers(pod, Direction::Ingress)))
    }

    fn to_itself(&self, pod: &Workload) -> bool {
        let own = match (self.flow.from.address, self.flow.to.address) {
            (Some(from), Some(to)) if [from, to].iter().all(|one| pod.addresses.contains(one)) => {
                from == to || self.world.holders(from) == self.world.holders(to)
            }
            _ => true,
        };
        self.flow.from.workload == self.flow.to.workload && own && !pod.is_template() && self.flow.hop.is_none()
    }

    fn stays_in_pod_network(&self) -> bool {
        let Flow { to, .. } = self.flow;
        let in_a_block = |ip| self.world.snapshot.pod_networks.iter().any(|block| matching::in_block(block, ip));
        let is_of_pods = |ip| in_a_block(ip) && self.world.nodes_with(ip).is_empty();
        self.world.pod(to).is_some() || (to.node.is_none() && to.address.is_some_and(is_of_pods))
    }

    /// A firewall that may be for pods on other nodes counts only if its first match denies, or as the case says.
    fn cluster_gate(&self, pod: &Workload) -> Result<(), (Stage, Because)> {
        for firewall in self.placed(pod, |at| matches!(at, Placement::ClusterGate { .. })) {
            let in_doubt = self.world.in_doubt(&firewall.subject, pod);
            if in_doubt && !self.is_for_source(firewall) {
                continue;
            }
            for (index, rule) in firewall.egress.iter().enumerate() {
                match self.action(rule, Direction::Egress) {
                    Some(Action::Deny) => {
                        let because = Because::Rule(rule_at(firewall, Direction::Egress, index));
                        return Err((Stage::ClusterGate, because));
                    }
                    Some(_) if !in_doubt || matches!(self.doubt, Doubt::Case(_)) => return Ok(()),
                    Some(_) => break,
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// S1.11: every backend of a frontend that is asked for, of the same family and whatever names are known, and every
    /// backend of frontends among them. What is in doubt counts if it denies.
    fn node_port_gate(&self, pod: &Workload) -> Result<(), (Stage, Because)> {
        let Flow { to, protocol, port, .. } = self.flow;
        let Some(asked) = to.address.filter(|_| !to.assumed) else { return Ok(()) };
        let world = World { leases: &[], ..self.world };
        let mut asked = vec![(asked, *port)];
        let mut at = 0;
        while let Some(&(address, port)) = asked.get(at) {
            at += 1;
            for (address, port) in self.world.behind(address, *protocol, port) {
                let to = self.world.end_at(address);
                let flow = Flow { to, port, via: None, hop: None, masker: None, ..self.flow.clone() };
                Walk { world, flow: &flow, doubt: &Doubt::Closed, ..*self }.cluster_gate(pod)?;
                if !asked.contains(&(address, port)) {
                    asked.push((address, port));
                }
            }
        }
        Ok(())
    }

    fn is_for_source(&self, firewall: &Policy) -> bool {
        let Doubt::Case(case) = self.doubt else { return true };
        let at = self.world.snapshot.policies.iter().position(|policy| policy.id == firewall.id);
        at.is_none_or(|at| case.for_source[at])
    }

    fn gate(&self, stage: Stage, policies: &[&Policy]) -> Result<(), (Stage, Because)> {
        match self.first_match(policies, Direction::Egress) {
            Some((Action::Deny, rule)) => Err((stage, Because::Rule(rule))),
            _ => Ok(()),
        }
    }

    /// S7.4, for those who are no subjects themselves because they are outside; and S1.11, for those on another node.
    fn service_gate(&self) -> Result<(), (Stage, Because)> {
        let Flow { from, to, via, .. } = self.flow;
        let Some(service) = via else { return Ok(()) };
        let is_outside = from.workload.is_none() && from.node.is_none();
        if !(is_outside || self.flow.hop.is_some()) || self.world.pod(to).is_some() {
            return Ok(());
        }
        let namespace = self.world.snapshot.services[service.index()].namespace;
        self.gate_of_tenants(namespace, &self.all(|at| matches!(at, Placement::ClusterGate { .. })))?;
        if self.stays_in_pod_network() {
            return Ok(());
        }
        self.gate_of_tenants(namespace, &self.all(|at| at == Placement::NamespaceGate))
    }

    /// Every Deny of a firewall that is for a pod of the namespace; an Allow only if it is for all pods there.
    fn gate_of_tenants(&self, namespace: NamespaceId, firewalls: &[&Policy]) -> Result<(), (Stage, Because)> {
        for firewall in firewalls {
            if !self.world.scope_includes(&firewall.subject.pods.namespaces, namespace) {
                continue;
            }
            let every_pod = firewall.subject.pods.pods.requirements.is_empty()
                && firewall.subject.nodes.as_ref().is_none_or(|nodes| nodes.requirements.is_empty());
            for (index, rule) in firewall.egress.iter().enumerate() {
                match self.action(rule, Direction::Egress) {
                    Some(Action::Deny) => {
                        let because = Because::Rule(rule_at(firewall, Direction::Egress, index));
                        return Err((Stage::ServiceGate, because));
                    }
                    Some(_) if every_pod => return Ok(()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn tiers(&self, pod: &Workload, direction: Direction) -> Step {
        let admin = self.placed(pod, |at| matches!(at, Placement::Admin { .. }));
        match self.first_match(&admin, direction) {
            Some((Action::Allow, rule)) => return Ok(Because::Rule(rule)),
            Some((Action::Deny, rule)) => return Err((Stage::Admin(direction), Because::Rule(rule))),
            Some((Action::Pass, _)) | None => {}
        }
        if let Some(settled) = self.network_policies(pod, direction) {
            return settled;
        }
        let baseline = self.placed(pod, |at| matches!(at, Placement::Baseline { .. }));
        match self.first_match(&baseline, direction) {
            Some((Action::Allow, rule)) => Ok(Because::Rule(rule)),
            Some((Action::Deny, rule)) => Err((Stage::Baseline(direction), Because::Rule(rule))),
            Some((Action::Pass, _)) | None => Ok(Because::Default),
        }
    }

    /// `None` if nothing isolates the pod in this direction.
    fn network_policies(&self, pod: &Workload, direction: Direction) -> Option<Step> {
        let annotated =
            direction == Direction::Ingress && self.world.snapshot.namespace(pod.namespace).default_deny_ingress;
        let mut isolated = annotated;
        let mut matching = Vec::new();
        for policy in self.placed(pod, |at| matches!(at, Placement::Network { .. })) {
            let counts = match policy.placement {
                _ if policy.id.kind == PolicyKind::NetworkPolicyV1Beta1 => annotated,
                Placement::Network { isolates_ingress, .. } if direction == Direction::Ingress => isolates_ingress,
                Placement::Network { isolates_egress, .. } => isolates_egress,
                _ => false,
            };
            if !counts {
                continue;
            }
            isolated = true;
            for (index, rule) in policy.rules(direction).iter().enumerate() {
                if self.action(rule, direction) == Some(Action::Allow) {
                    matching.push(rule_at(policy, direction, index));
                }
            }
        }
        match (isolated, matching.is_empty()) {
            (false, _) => None,
            (true, true) => Some(Err((Stage::Network(direction), Because::Isolated))),
            (true, false) => Some(Ok(Because::AnyOf(matching))),
        }
    }

    fn first_match(&self, policies: &[&Policy], direction: Direction) -> Option<(Action, RuleAt)> {
        for policy in policies {
            for (index, rule) in policy.rules(direction).iter().enumerate() {
                if let Some(action) = self.action(rule, direction) {
                    return Some((action, rule_at(policy, direction, index)));
                }
            }
        }
        None
    }

    /// What the rule does to this connection, if it matches it.
    fn action(&self, rule: &Rule, direction: Direction) -> Option<Action> {
        let peer = match direction {
            Direction::Egress => &self.flow.to,
            Direction::Ingress => &self.flow.from,
        };
        match &rule.clauses {
            Clauses::Unreadable if rule.action == Action::Allow => None,
            Clauses::Unreadable => Some(Action::Deny),
            Clauses::Match { peers, ports } => {
                // S1.9: an end may be one of several pods that share an address, and nobody knows which.
                let (peer, to) = (self.world.may_be(peer), self.world.may_be(&self.flow.to));
                let asked = matching::Asked { action: rule.action, flow: self.flow };
                let speaks = |peer: &Endpoint| self.world.peers_match(peers, peer, &asked);
                let asks = |to: &Endpoint| self.world.ports_match(ports, self.flow, to);
                let (all, any) =
                    (peer.iter().all(speaks) && to.iter().all(asks), peer.iter().any(speaks) && to.iter().any(asks));
                match rule.action {
                    Action::Deny => any.then_some(Action::Deny),
                    Action::Allow => all.then_some(Action::Allow),
                    Action::Pass if all => Some(Action::Pass),
                    Action::Pass => any.then_some(Action::Deny),
                }
            }
        }
    }

    /// The policies in this place of the walk that select the pod, first to last.
    fn placed(&self, pod: &Workload, place: impl Fn(Placement) -> bool) -> Vec<&'a Policy> {
        let mut policies = self.all(place);
        policies.retain(|policy| self.world.selects(&policy.subject, pod));
        policies
    }

    fn all(&self, place: impl Fn(Placement) -> bool) -> Vec<&'a Policy> {
        let mut policies = Vec::new();
        for policy in self.world.snapshot.policies.iter() {
            if place(policy.placement) && (policy.enforcement == Enforcement::Enforce || self.with_audited) {
                policies.push(policy);
            }
        }
        policies.sort_by_key(|policy| {
            let (without_priority, priority) = match policy.placement {
                Placement::ClusterGate { priority } | Placement::Admin { priority } => (false, priority),
                Placement::Baseline { priority } => (priority.is_none(), priority.unwrap_or(0)),
                Placement::NamespaceGate | Placement::Network { .. } => (false, 0),
            };
            (without_priority, priority, policy.id.kind.name(), policy.id.name.clone())
        });
        policies
    }
}

/// What the first says that is not the default.
fn all_allow(steps: impl Iterator<Item = Step>) -> Step {
    let all: Vec<Because> = steps.collect::<Result<_, _>>()?;
    Ok(all.into_iter().find(|because| *because != Because::Default).unwrap_or(Because::Default))
}

fn rule_at(policy: &Policy, direction: Direction, index: usize) -> RuleAt {
    RuleAt { policy: policy.id.clone(), direction, index }
}

impl<'a> World<'a> {
    /// The backends to which another node may translate what is asked for at this address: through a node port,
    /// through an address of a Service that is a backend of a Service, or through a load balancer outside.
    fn behind(&self, address: IpAddr, protocol: Protocol, port: u16) -> Vec<(IpAddr, u16)> {
        let services =
            || self.snapshot.services.iter().flat_map(|service| service.ports.iter().map(move |p| (service, p)));
        let backends = || services().flat_map(|(_, port)| &port.backends);
        let is_chained = !self.is_pods(address) && backends().any(|one| one.target == BackendTarget::Address(address));
        let mut found = Vec::new();
        for (service, asked) in services().filter(|(_, asked)| asked.protocol == protocol) {
            let mut own = service.addresses.iter();
            let is_of_family = own.len() == 0 || own.any(|one| one.is_ipv4() == address.is_ipv4());
            let by_node = self.is_nodes(address) && asked.node_port == Some(port) && is_of_family;
            let is_proxied = service.proxied.contains(&address);
            let by_address = asked.port == port && (is_proxied || is_chained && service.addresses.contains(&address));
            for backend in asked.backends.iter().filter(|_| by_node || by_address) {
                let addresses = match backend.target {
                    BackendTarget::Address(address) => vec![address],
                    BackendTarget::Workload(id) => self.snapshot.workload(id).addresses.to_vec(),
                };
                // A load balancer may translate from one version of IP to the other.
                let any_family = is_proxied && asked.port == port;
                let of_family = addresses.into_iter().filter(|one| any_family || one.is_ipv4() == address.is_ipv4());
                found.extend(of_family.map(|address| (address, backend.port)));
            }
        }
        found
    }

    /// The pods that have the address.
    fn holders(&self, address: IpAddr) -> Vec<WorkloadId> {
        let has = |id: &WorkloadId| {
            let pod = self.snapshot.workload(*id);
            !pod.host_network && pod.addresses.contains(&address)
        };
        self.snapshot.workload_ids().filter(has).collect()
    }

    /// True if a node has the address and no pod claims it.
    fn is_nodes(&self, address: IpAddr) -> bool {
        !self.nodes_with(address).is_empty() && !self.is_pods(address) && !matching::is_of_every_machine(address)
    }

    /// Whoever has the address, as packets show it.
    fn end_at(&self, address: IpAddr) -> Endpoint {
        let workload = self.holders(address).first().copied();
        let node = match self.nodes_with(address).as_slice() {
            [only] if workload.is_none() && !matching::is_of_every_machine(address) => Some(NodeId(*only as u32)),
            _ => None,
        };
        Endpoint { workload, node, address: Some(address), ..Endpoint::default() }
    }

    /// The pods that a pod is judged as: itself, those with one of its addresses, those with one of theirs, and so on.
    fn joined(&self, pod: &Workload) -> Vec<WorkloadId> {
        let mut found: Vec<WorkloadId> = Vec::new();
        let mut addresses: Vec<IpAddr> = pod.addresses.to_vec();
        while let Some(address) = addresses.pop() {
            for holder in self.holders(address) {
                if !found.contains(&holder) {
                    found.push(holder);
                    addresses.extend(self.snapshot.workload(holder).addresses.iter());
                }
            }
        }
        found.sort();
        found
    }

    fn judged_as(&self, pod: &'a Workload) -> Vec<&'a Workload> {
        let joined: Vec<_> = self.joined(pod).into_iter().map(|id| self.snapshot.workload(id)).collect();
        if joined.is_empty() { vec![pod] } else { joined }
    }

    /// The node, if all it is judged as are there.
    fn node_of(&self, pod: &'a Workload) -> Option<NodeId> {
        let joined = self.judged_as(pod);
        pod.node.filter(|node| joined.iter().all(|other| other.node == Some(*node)))
    }

    /// The end as each of the pods that it may be.
    fn may_be(&self, end: &Endpoint) -> Vec<Endpoint> {
        let joined = self.pod(end).map(|pod| self.joined(pod)).unwrap_or_default();
        if joined.is_empty() {
            return vec![end.clone()];
        }
        joined.into_iter().map(|id| Endpoint { workload: Some(id), ..end.clone() }).collect()
    }

    /// The end as a pod, which a `hostNetwork` pod is not to any policy (S1).
    fn pod(&self, end: &Endpoint) -> Option<&'a Workload> {
        let workload = self.snapshot.workload(end.workload?);
        (!workload.host_network).then_some(workload)
    }

    fn namespace_labels(&self, id: NamespaceId) -> Vec<(&'a str, &'a str)> {
        self.snapshot.namespaces[id.index()].labels.iter().collect()
    }
}
