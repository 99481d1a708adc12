//! The Program: compiled, backend-neutral rules for the Classes of a cluster.
//! [`evaluate`](crate::evaluate()) walks it, and the kernel's tables are
//! rendered from it: one source for both answers.

use crate::addr::AddrSet;
use crate::bits::BitSet;
use crate::domain::{PatternId, PatternTable};
use crate::finding::Finding;
use crate::model::{
    Action, Direction, NamedPort, NamespaceId, NodeId, Placement, PolicyId, PolicyRef, RoleId, ServiceId, WorkloadId,
};
use crate::model::{Enforcement, Subject};
use crate::node_ports::NodePorts;
use crate::pieces::Pieces;
use crate::port::{Protocol, Traffic};
use crate::shards::Shards;
use crate::unknown::Whereabouts;
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

crate::model::id! {
    /// Workloads with exactly the same policies.
    ClassId,
    RuleId, PeerSetId, PortSpecId,
}

#[derive(Clone, Default, Debug)]
pub struct Program {
    // What policies make of it is shared with the next Program as long as they stay the same.
    pub classes: Arc<Vec<Class>>,
    pub policies: Arc<Vec<ProgramPolicy>>,
    pub rules: Arc<Vec<CompiledRule>>,
    pub peer_sets: Arc<Vec<PeerSet>>,
    pub port_specs: Arc<Vec<PortSpec>>,
    pub patterns: Arc<PatternTable>,
    pub workloads: Pieces<Member>,
    /// Who has which address. Loopback and IPv6 link-local addresses are not in it: every machine has its own.
    pub by_address: Shards<IpAddr, Holder>,
    /// The addresses of nodes among them.
    pub node_addresses: Arc<Vec<(IpAddr, NodeId)>>,
    /// Addresses that are claimed by two.
    pub(crate) shared: Arc<SharedAddresses>,
    /// The Class of each Role, on each node where nodes matter.
    pub(crate) class_of: Shards<(RoleId, Option<NodeId>), ClassId>,
    /// Every Role that somebody plays is below this.
    pub roles_bound: usize,
    /// The blocks pods get their addresses from, as far as they are known.
    pub pod_networks: Arc<AddrSet>,
    /// Where ends without an address may be.
    pub whereabouts: Arc<Whereabouts>,
    /// Which gates stand before a Service's backends outside, by the Service's namespace (S1.11, S7.4).
    pub service_gates: Arc<FxHashMap<NamespaceId, ServiceGates>>,
    /// The Services, as far as a gate stands before them.
    pub services: Arc<Vec<ServiceEntry>>,
    /// Node ports, and which of them cluster gates close.
    pub node_ports: Arc<NodePorts>,
    /// All their addresses.
    pub service_addresses: Arc<AddrSet>,
    /// The Services that answer DNS.
    pub resolvers: Vec<Resolver>,
    /// Which those are.
    pub(crate) dns_services: Arc<Vec<ServiceId>>,
}

/// Addresses that are claimed by two, and what is told of it.
#[derive(Default, Debug)]
pub(crate) struct SharedAddresses {
    pub(crate) addresses: FxHashSet<IpAddr>,
    /// Those that several pods claim, with all of them.
    pub(crate) holders: FxHashMap<IpAddr, Vec<WorkloadId>>,
    pub(crate) findings: Vec<Finding>,
}

/// What the walk needs to know of a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceEntry {
    pub namespace: NamespaceId,
    /// Where it is asked, node ports among them; empty if no gate stands before it.
    pub frontends: Vec<(IpAddr, Protocol, u16)>,
}

/// A Service that is asked at DNS's port: by one of its addresses, over one protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolver {
    pub service: ServiceId,
    pub address: IpAddr,
    pub protocol: Protocol,
    /// Who answers, of the same version of IP.
    pub backends: Vec<(IpAddr, u16)>,
}

impl Resolver {
    pub fn is_answered_by(&self, address: IpAddr) -> bool {
        self.backends.iter().any(|(backend, _)| *backend == address)
    }
}

/// Who has an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    Pod(WorkloadId),
    Node(NodeId),
    /// Several nodes, so that the address does not tell which. This is one of them.
    SomeNode(NodeId),
}

/// What the walk needs to know of a workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    pub class: ClassId,
    pub role: RoleId,
    pub node: Option<NodeId>,
    pub host_network: bool,
    pub template: bool,
    pub ports: Arc<[NamedPort]>,
    /// Ports that only some of the pods which share its address name. They count where a rule denies (S1.9).
    pub doubtful_ports: Arc<[NamedPort]>,
    pub addresses: Arc<[IpAddr]>,
}

/// The policies of a Class, in the order of S1, as they are enforced; and,
/// where some are only audited, as they would be.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct Class {
    pub enforced: Plan,
    pub audited: Option<Plan>,
}

#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct Plan {
    pub cluster_gate: Vec<PolicyId>,
    /// Those of the cluster gate that may be for these pods or not, since their
    /// node is not known: each counts only if its first match denies.
    pub in_doubt: Vec<PolicyId>,
    pub namespace_gate: Vec<PolicyId>,
    pub egress: Tiers,
    pub ingress: Tiers,
    /// The plans of other pods that share an address with these: all of them must allow (S1.9).
    pub also: Vec<Plan>,
}

/// So many different plans are judged one after the other: chains of the kernel can be 16 deep. An address that more
/// pods share, with other policies each, is closed.
const MOST_PLANS: usize = 4;

impl Class {
    /// The Class of pods that are judged as one.
    pub(crate) fn joint(classes: &[&Self]) -> Self {
        let enforced = classes.iter().map(|class| &class.enforced);
        let audited = classes.iter().map(|class| class.audited.as_ref().unwrap_or(&class.enforced));
        let any_audited = classes.iter().any(|class| class.audited.is_some());
        Self { enforced: Plan::joint(enforced), audited: any_audited.then(|| Plan::joint(audited)) }
    }
}

impl Plan {
    fn joint<'p>(plans: impl Iterator<Item = &'p Self>) -> Self {
        let mut all: Vec<Self> = Vec::new();
        for plan in plans {
            if !all.contains(plan) {
                all.push(plan.clone());
            }
        }
        if all.len() > MOST_PLANS {
            let closed = Tiers { isolated: true, ..Tiers::default() };
            return Self { egress: closed.clone(), ingress: closed, ..Self::default() };
        }
        let mut all = all.into_iter();
        let first = all.next().unwrap_or_default();
        Self { also: all.collect(), ..first }
    }

    /// This plan, and those that must allow too.
    pub fn each(&self) -> impl DoubleEndedIterator<Item = &Self> {
        std::iter::once(self).chain(&self.also)
    }

    /// The firewalls of all of them that may be for other nodes.
    pub fn all_in_doubt(&self) -> impl Iterator<Item = PolicyId> {
        self.each().flat_map(|plan| &plan.in_doubt).copied()
    }

    pub fn tiers(&self, direction: Direction) -> &Tiers {
        match direction {
            Direction::Egress => &self.egress,
            Direction::Ingress => &self.ingress,
        }
    }
}

#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct Tiers {
    pub admin: Vec<PolicyId>,
    pub network: Vec<PolicyId>,
    /// Whether the NetworkPolicy tier ends here, one way or the other (S1.6).
    pub isolated: bool,
    pub baseline: Vec<PolicyId>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramPolicy {
    pub id: PolicyRef,
    pub placement: Placement,
    pub enforcement: Enforcement,
    pub subject: Subject,
    pub egress: Range<u32>,
    pub ingress: Range<u32>,
}

impl ProgramPolicy {
    pub fn rules(&self, direction: Direction) -> impl DoubleEndedIterator<Item = RuleId> + use<> {
        let range = match direction {
            Direction::Egress => self.egress.clone(),
            Direction::Ingress => self.ingress.clone(),
        };
        range.map(RuleId)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompiledRule {
    pub policy: PolicyId,
    pub direction: Direction,
    /// The place of the rule it is made of among the policy's rules of this direction. A rule whose peers differ in
    /// ports becomes several, one after the other.
    pub index: u32,
    /// What it does: an unreadable Deny or Pass denies (S4.2).
    pub action: Action,
    pub matcher: Matcher,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Matcher {
    Clauses {
        peers: PeerSetId,
        ports: PortSpecId,
    },
    /// An unreadable Allow.
    Nothing,
    /// An unreadable Deny or Pass.
    Everything,
}

/// The peers of a rule, resolved.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct PeerSet {
    pub anyone: bool,
    /// Roles of pods.
    pub roles: BitSet,
    /// Networks less their holes, addresses of nodes, of the API server.
    pub addresses: AddrSet,
    /// Nodes, for ends whose address is not known.
    pub nodes: BitSet,
    pub domains: Vec<PatternId>,
}

/// The ports of a rule.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct PortSpec {
    pub numbered: Traffic,
    pub named: Vec<(Option<Protocol>, Arc<str>)>,
    /// Whether a name counts that only some of the pods which share an address carry (S1.9).
    pub counts_doubtful: bool,
}

/// The named ports of a destination.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NamedPorts<'a> {
    pub certain: &'a [NamedPort],
    /// Those of some of the pods which share its address.
    pub doubtful: &'a [NamedPort],
}

impl Member {
    pub fn named_ports(&self) -> NamedPorts<'_> {
        NamedPorts { certain: &self.ports, doubtful: &self.doubtful_ports }
    }
}

impl PortSpec {
    /// The connections it matches at a destination with these named ports.
    pub fn at(&self, ports: NamedPorts<'_>) -> Traffic {
        let mut traffic = self.numbered.clone();
        for port in self.counting(ports) {
            traffic.insert(port.protocol, port.port, port.port);
        }
        traffic
    }

    pub fn matches(&self, protocol: Protocol, port: u16, ports: NamedPorts<'_>) -> bool {
        self.numbered.contains(protocol, port)
            || self.counting(ports).any(|named| named.protocol == protocol && named.port == port)
    }

    /// The ports among these that the names stand for.
    pub fn counting<'p>(&self, ports: NamedPorts<'p>) -> impl Iterator<Item = &'p NamedPort> {
        let doubtful = ports.doubtful.iter().filter(|_| self.counts_doubtful);
        ports.certain.iter().chain(doubtful).filter(|port| !self.named.is_empty() && self.names(port))
    }

    fn names(&self, port: &NamedPort) -> bool {
        self.named.iter().any(|(protocol, name)| *name == port.name && protocol.is_none_or(|p| p == port.protocol))
    }
}

/// The gates before the Services of a namespace, for clients whose pod is not known. A connection must pass both.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ServiceGates {
    /// ClusterEgressFirewalls, in their order.
    pub cluster: Vec<ServiceGate>,
    /// The namespace's EgressFirewall: only for destinations outside the pod network.
    pub namespace: Vec<ServiceGate>,
}

impl ServiceGates {
    pub fn each(&self) -> impl Iterator<Item = &ServiceGate> {
        self.into_iter()
    }

    pub fn is_empty(&self) -> bool {
        self.cluster.is_empty() && self.namespace.is_empty()
    }
}

impl<'a> IntoIterator for &'a ServiceGates {
    type Item = &'a ServiceGate;
    type IntoIter = std::iter::Chain<std::slice::Iter<'a, ServiceGate>, std::slice::Iter<'a, ServiceGate>>;

    fn into_iter(self) -> Self::IntoIter {
        self.cluster.iter().chain(&self.namespace)
    }
}

/// A firewall as it stands before the Services of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceGate {
    pub policy: PolicyId,
    /// Its Allow rules count only if it selects every pod there; its Deny rules always do.
    pub selects_all: bool,
}

impl Program {
    pub fn policy(&self, id: PolicyId) -> &ProgramPolicy {
        &self.policies[id.index()]
    }

    /// The gates before the backends of a Service.
    pub fn gates_before(&self, service: ServiceId) -> Option<&ServiceGates> {
        let namespace = self.services.get(service.index())?.namespace;
        self.service_gates.get(&namespace)
    }

    /// Whether the policy itself isolates; one of `extensions/v1beta1` does not, its namespace does.
    pub fn isolates(&self, id: PolicyId, direction: Direction) -> bool {
        match self.policy(id).placement {
            Placement::Network { isolates_ingress, isolates_egress } => match direction {
                Direction::Egress => isolates_egress,
                Direction::Ingress => isolates_ingress,
            },
            _ => false,
        }
    }

    /// The Class of the pod at this address, if there is one.
    pub fn class_at(&self, address: IpAddr) -> Option<ClassId> {
        match self.by_address.get(&address)? {
            Holder::Pod(id) => Some(self.member(*id).class),
            Holder::Node(_) | Holder::SomeNode(_) => None,
        }
    }

    /// The patterns that some egress rule of the Class speaks of, audited ones among them: what its
    /// workloads may learn (S6.10).
    pub fn names_of(&self, id: ClassId) -> BitSet {
        let class = self.class(id);
        let mut names = BitSet::default();
        for plan in std::iter::once(&class.enforced).chain(&class.audited) {
            // Of pods that share an address, all must allow the name, and the Deny of one counts.
            let all: Vec<BitSet> = plan.each().map(|plan| self.names_in(plan)).collect();
            let common = all.iter().cloned().reduce(|mut common, one| {
                common.intersect_with(&one);
                common
            });
            let is_denied = |id: &usize| self.patterns.get(PatternId(*id as u32)).denies();
            let denied: BitSet = all.iter().flat_map(BitSet::iter).filter(is_denied).collect();
            names.union_with(&common.unwrap_or_default());
            names.union_with(&denied);
        }
        names
    }

    fn names_in(&self, plan: &Plan) -> BitSet {
        let Tiers { admin, network, baseline, .. } = &plan.egress;
        let gates = [&plan.cluster_gate, &plan.in_doubt, &plan.namespace_gate];
        let policies = gates.into_iter().chain([admin, network, baseline]).flatten();
        let rules = policies.flat_map(|&policy| self.policy(policy).rules(Direction::Egress));
        self.names_in_rules(rules.map(|rule| self.rule(rule)))
    }

    /// The patterns that some egress rule denies.
    pub fn denied_names(&self) -> BitSet {
        self.patterns.iter().filter(|(_, pattern)| pattern.denies()).map(|(PatternId(id), _)| id as usize).collect()
    }

    /// The patterns of the rules of gates before Services. Every node judges them, whoever its pods are (S1.11).
    pub fn names_before_services(&self) -> BitSet {
        let gates = self.service_gates.values().flat_map(ServiceGates::each);
        let rules = gates.flat_map(|gate| self.policy(gate.policy).rules(Direction::Egress));
        self.names_in_rules(rules.map(|rule| self.rule(rule)))
    }

    fn names_in_rules<'r>(&self, rules: impl Iterator<Item = &'r CompiledRule>) -> BitSet {
        let mut names = BitSet::default();
        for rule in rules {
            if let Matcher::Clauses { peers, .. } = rule.matcher {
                self.peer_set(peers).domains.iter().for_each(|pattern| names.insert(pattern.0 as usize));
            }
        }
        names
    }

    /// All pods that claim the address; none unless there are several (S1.9).
    pub fn sharing(&self, address: IpAddr) -> &[WorkloadId] {
        self.shared.holders.get(&address).map_or(&[], Vec::as_slice)
    }

    /// Whether both addresses are surely one pod's: the same pods hold the one and the other.
    pub fn have_one_holder(&self, one: IpAddr, other: IpAddr) -> bool {
        let holder = |address| self.by_address.get(&address);
        one == other || (holder(one) == holder(other) && self.sharing(one) == self.sharing(other))
    }

    /// Whether the same pods claim the same addresses in both.
    pub fn shares_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared) || self.shared.holders == other.shared.holders
    }

    pub fn rule(&self, id: RuleId) -> &CompiledRule {
        &self.rules[id.index()]
    }

    /// Whether both were made of one rule of a policy.
    pub fn is_part_of_same(&self, one: RuleId, other: RuleId) -> bool {
        let written = |id| {
            let CompiledRule { policy, direction, index, .. } = self.rule(id);
            (policy, direction, index)
        };
        written(one) == written(other)
    }

    pub fn member(&self, id: WorkloadId) -> &Member {
        &self.workloads[id.index()]
    }

    pub fn class(&self, id: ClassId) -> &Class {
        &self.classes[id.index()]
    }

    pub fn peer_set(&self, id: PeerSetId) -> &PeerSet {
        &self.peer_sets[id.index()]
    }

    pub fn port_spec(&self, id: PortSpecId) -> &PortSpec {
        &self.port_specs[id.index()]
    }
}
