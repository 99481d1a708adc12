//! Snapshot → Program. Total: whatever the input, there is a Program, and what
//! could not be taken as meant is a Finding and closed.
//!
//! Selectors are matched once a Role and rules are resolved once a policy, so
//! the work grows with Roles and rules; a pod more of a known Role costs a
//! table entry.

mod claims;
mod next;
mod peers;
mod plans;
mod roles;

pub use next::compile_next;
pub use roles::asked_labels;

use crate::addr::{AddrSet, Cidr, is_own_to_each_machine};
use crate::finding::Finding;
use crate::model::{
    Action, Backend, BackendTarget, Clauses, Direction, NodeId, PolicyId, Rule, Service, ServiceId, ServicePort,
    Workload, WorkloadId,
};
use crate::node_ports::NodePorts;
use crate::pieces::Pieces;
use crate::port::Protocol;
use crate::program::{
    Class, ClassId, CompiledRule, Holder, Matcher, Member, Program, ProgramPolicy, Resolver, ServiceEntry,
    SharedAddresses,
};
use crate::shards::Shards;
use crate::snapshot::Snapshot;
use crate::unknown::Whereabouts;
use claims::Claims;
use peers::PeerCompiler;
use plans::PlanBuilder;
use roles::RoleIndex;
use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Compiles the whole cluster.
pub fn compile(snapshot: &Snapshot) -> (Program, Vec<Finding>) {
    let mut index = RoleIndex::new(snapshot);
    let mut placing = Placing::default();
    placing.nodes(snapshot);
    snapshot.workload_ids().for_each(|id| placing.place(snapshot, id));
    let claims = Claims::new(snapshot, &placing.shared.holders);
    let mut peers = PeerCompiler::new(snapshot, &claims);
    let (mut policies, mut rules) = (Vec::new(), Vec::new());
    for (at, policy) in snapshot.policies.iter().enumerate() {
        let id = PolicyId(at as u32);
        let mut direction = |direction| {
            let start = rules.len() as u32;
            for (at, rule) in policy.rules(direction).iter().enumerate() {
                let parts = compile_rule(&mut peers, &mut index, rule).into_iter();
                rules.extend(parts.map(|(action, matcher)| CompiledRule {
                    policy: id,
                    direction,
                    index: at as u32,
                    action,
                    matcher,
                }));
            }
            start..rules.len() as u32
        };
        policies.push(ProgramPolicy {
            id: policy.id.clone(),
            placement: policy.placement,
            enforcement: policy.enforcement,
            subject: policy.subject.clone(),
            egress: direction(Direction::Egress),
            ingress: direction(Direction::Ingress),
        });
    }
    let (peer_sets, port_specs, patterns) = peers.finish();
    let mut plans = PlanBuilder::new(snapshot, &mut index);
    let mut program = Program {
        pod_networks: Arc::new(snapshot.pod_networks.iter().copied().collect()),
        whereabouts: Arc::new(Whereabouts::new(snapshot)),
        policies: Arc::new(policies),
        rules: Arc::new(rules),
        peer_sets: Arc::new(peer_sets),
        port_specs: Arc::new(port_specs),
        patterns: Arc::new(patterns),
        roles_bound: snapshot.roles.len() + claims.role_count(),
        service_gates: Arc::new(plans.service_gates()),
        service_addresses: Arc::new(service_addresses(snapshot)),
        dns_services: Arc::new(dns_services(snapshot)),
        ..Program::default()
    };
    let services = snapshot.services.iter().map(|service| service_entry(snapshot, &program, service));
    program.services = Arc::new(services.collect());
    program.resolvers = resolvers(snapshot, &program.dns_services);
    let mut classes = Interned::default();
    let members = snapshot.workloads.iter().map(|workload| {
        let class = plans.class_of(workload.role, workload.node, |class| classes.intern(class));
        member(workload, class)
    });
    program.workloads = members.collect();
    program.class_of = plans.finish();
    let mut classes = classes.finish();
    join(&mut program.workloads, &mut classes, &claims);
    program.classes = Arc::new(classes);
    program.node_addresses = node_addresses(&placing.by_address);
    program.by_address = placing.by_address;
    let findings = placing.shared.findings.clone();
    program.shared = Arc::new(placing.shared);
    program.node_ports = Arc::new(NodePorts::new(snapshot, &program, None));
    (program, findings)
}

fn member(workload: &Workload, class: ClassId) -> Member {
    Member {
        class,
        role: workload.role,
        node: workload.node,
        host_network: workload.host_network,
        template: workload.is_template(),
        ports: workload.ports.clone(),
        doubtful_ports: Arc::default(),
        addresses: workload.addresses.clone(),
    }
}

/// Pods that share an address are judged as all of them (S1.9).
fn join(members: &mut Pieces<Member>, classes: &mut Vec<Class>, claims: &Claims) {
    for joint in &claims.joints {
        let all: Vec<&Class> = joint.pods.iter().map(|id| &classes[members[id.index()].class.index()]).collect();
        let class = Class::joint(&all);
        let known = classes.iter().position(|known| *known == class);
        let id = ClassId(known.unwrap_or(classes.len()) as u32);
        if known.is_none() {
            classes.push(class);
        }
        for pod in &joint.pods {
            let own = members[pod.index()].clone();
            let (ports, doubtful_ports) = (joint.ports.clone(), joint.doubtful_ports.clone());
            let joined = Member { class: id, role: joint.role, node: joint.node, ports, doubtful_ports, ..own };
            members.set(pod.index(), joined);
        }
    }
}

fn service_addresses(snapshot: &Snapshot) -> AddrSet {
    snapshot.services.iter().flat_map(|service| &service.addresses).map(|&address| Cidr::host(address)).collect()
}

const DNS: u16 = 53;

/// A port at which DNS is asked. A node's port counts too: it takes the question somewhere else.
fn is_of_dns(port: &ServicePort) -> bool {
    matches!(port.protocol, Protocol::Tcp | Protocol::Udp) && (port.port == DNS || port.node_port == Some(DNS))
}

fn dns_services(snapshot: &Snapshot) -> Vec<ServiceId> {
    let with_dns = snapshot.services.iter().enumerate().filter(|(_, service)| service.ports.iter().any(is_of_dns));
    with_dns.map(|(at, _)| ServiceId(at as u32)).collect()
}

/// How the Services that answer DNS are asked.
fn resolvers(snapshot: &Snapshot, dns_services: &[ServiceId]) -> Vec<Resolver> {
    let mut resolvers = Vec::new();
    for &id in dns_services {
        let service = &snapshot.services[id.index()];
        for port in service.ports.iter().filter(|port| is_of_dns(port)) {
            let own = service.translated().filter(|_| port.port == DNS);
            let nodes = snapshot.nodes.iter().flat_map(|node| node.addresses.iter().copied());
            let is_port = |address: &IpAddr| port.node_port == Some(DNS) && service.is_served_over(address.is_ipv4());
            for address in own.chain(nodes.filter(is_port)) {
                let of = |backend: &Backend| match backend.target {
                    BackendTarget::Address(address) => vec![address],
                    BackendTarget::Workload(id) => snapshot.workload(id).addresses.to_vec(),
                };
                let all = port.backends.iter().flat_map(|one| of(one).into_iter().map(|to| (to, one.port)));
                let backends = all.filter(|(to, _)| to.is_ipv4() == address.is_ipv4()).collect();
                resolvers.push(Resolver { service: id, address, protocol: port.protocol, backends });
            }
        }
    }
    resolvers
}

/// Classes, each once.
#[derive(Default)]
struct Interned {
    by_class: FxHashMap<Class, ClassId>,
}

impl Interned {
    fn of(classes: &[Class]) -> Self {
        let number = |(at, class): (usize, &Class)| (class.clone(), ClassId(at as u32));
        Self { by_class: classes.iter().enumerate().map(number).collect() }
    }

    fn intern(&mut self, class: Class) -> ClassId {
        let next = ClassId(self.by_class.len() as u32);
        *self.by_class.entry(class).or_insert(next)
    }

    fn finish(self) -> Vec<Class> {
        let mut classes: Vec<(Class, ClassId)> = self.by_class.into_iter().collect();
        classes.sort_unstable_by_key(|(_, id)| *id);
        classes.into_iter().map(|(class, _)| class).collect()
    }
}

/// S4.2 and S10.1: what cannot be read in full never widens access.
fn compile_rule<'s>(
    peers: &mut PeerCompiler<'s, '_>,
    index: &mut RoleIndex<'s>,
    rule: &'s Rule,
) -> Vec<(Action, Matcher)> {
    match &rule.clauses {
        Clauses::Match { .. } => peers.parts(index, rule),
        Clauses::Unreadable if rule.action == Action::Allow => vec![(Action::Allow, Matcher::Nothing)],
        Clauses::Unreadable => vec![(Action::Deny, Matcher::Everything)],
    }
}

fn service_entry(snapshot: &Snapshot, program: &Program, service: &Service) -> ServiceEntry {
    let mut frontends = Vec::new();
    if program.service_gates.get(&service.namespace).is_some_and(|gates| !gates.is_empty()) {
        for port in &service.ports {
            let own = service.addresses.iter().map(|&address| (address, port.protocol, port.port));
            frontends.extend(own);
            if let Some(node_port) = port.node_port {
                let nodes = snapshot.nodes.iter().flat_map(|node| &node.addresses);
                let nodes = nodes.filter(|address| service.is_served_over(address.is_ipv4()));
                frontends.extend(nodes.map(|&address| (address, port.protocol, node_port)));
            }
        }
    }
    ServiceEntry { namespace: service.namespace, frontends }
}

/// Who has which address, so far.
#[derive(Default)]
struct Placing {
    by_address: Shards<IpAddr, Holder>,
    shared: SharedAddresses,
}

impl Placing {
    fn nodes(&mut self, snapshot: &Snapshot) {
        for (at, node) in snapshot.nodes.iter().enumerate() {
            for &address in &node.addresses {
                self.node(address, NodeId(at as u32));
            }
        }
    }

    fn node(&mut self, address: IpAddr, node: NodeId) {
        let holder = match self.by_address.get(&address) {
            Some(Holder::Pod(_) | Holder::SomeNode(_)) => return,
            Some(Holder::Node(known)) if *known == node => return,
            Some(Holder::Node(_)) => Holder::SomeNode(node),
            // It tells nothing of who sent a packet: a pod on the same link may have it too.
            None if is_own_to_each_machine(address) => return,
            None => Holder::Node(node),
        };
        self.by_address.insert(address, holder);
    }

    fn place(&mut self, snapshot: &Snapshot, id: WorkloadId) {
        let workload = snapshot.workload(id);
        if workload.host_network {
            // Its address is the node's: only "node" and "network" peers see it.
            let Some(node) = workload.node else { return };
            for &address in workload.addresses.iter() {
                match self.by_address.get(&address) {
                    Some(Holder::Node(known)) if *known == node => {}
                    Some(_) => {
                        self.shared.addresses.insert(address);
                        self.node(address, node);
                    }
                    None => self.node(address, node),
                }
            }
            return;
        }
        for &address in workload.addresses.iter() {
            let other = match self.by_address.get(&address).copied() {
                Some(Holder::Pod(first)) => {
                    self.claim(snapshot, id, Claim { address, first });
                    continue;
                }
                Some(Holder::Node(node) | Holder::SomeNode(node)) => {
                    // Judged as the pod's: a pod's policies must not be lost.
                    let node = format!("node {}", snapshot.node(node).name);
                    self.by_address.insert(address, Holder::Pod(id));
                    node
                }
                None => {
                    self.by_address.insert(address, Holder::Pod(id));
                    continue;
                }
            };
            self.shared.addresses.insert(address);
            self.shared.findings.push(shared_address(snapshot, id, &other, address));
        }
    }
}

fn node_addresses(by_address: &Shards<IpAddr, Holder>) -> Arc<Vec<(IpAddr, NodeId)>> {
    let node = |(&address, &holder): (&IpAddr, &Holder)| match holder {
        Holder::Node(node) | Holder::SomeNode(node) => Some((address, node)),
        Holder::Pod(_) => None,
    };
    let mut nodes: Vec<(IpAddr, NodeId)> = by_address.iter().filter_map(node).collect();
    nodes.sort_unstable();
    Arc::new(nodes)
}

/// An address that a pod has already.
struct Claim {
    address: IpAddr,
    first: WorkloadId,
}

impl Placing {
    /// Another pod has the address, too.
    fn claim(&mut self, snapshot: &Snapshot, id: WorkloadId, Claim { address, first }: Claim) {
        let holders = self.shared.holders.entry(address).or_insert_with(|| vec![first]);
        if !holders.contains(&id) {
            holders.push(id);
            self.shared.addresses.insert(address);
            self.shared.findings.push(shared_by_pods(snapshot, id, &Claim { address, first }));
        }
    }
}

fn shared_by_pods(snapshot: &Snapshot, pod: WorkloadId, Claim { address, first }: &Claim) -> Finding {
    let other = snapshot.workload_name(*first);
    let object = format!("Pod {}", snapshot.workload_name(pod));
    // No policy can tell them apart: one is replaced by the other.
    let finding = if snapshot.workload(pod).role == snapshot.workload(*first).role {
        let message = format!("{address} is the address of Pod {other} too, which has the same labels");
        Finding::hint("shared-address", object, message)
    } else {
        let message = format!(
            "{address} is the address of Pod {other} too. Nobody can tell which of them has it, so the policies of both \
             must allow a connection. Remove the pod that is gone, or set hostNetwork where the pod is on its node's \
             network"
        );
        Finding::error("shared-address", object, message)
    };
    finding.at("status.podIP").from_source(snapshot.workload(pod).source.clone())
}

fn shared_address(snapshot: &Snapshot, pod: WorkloadId, other: &str, address: IpAddr) -> Finding {
    let message = format!(
        "{address} is the address of {other} too, and a connection can be only one's. \
         Remove what is gone, or set hostNetwork where the pod is on its node's network"
    );
    Finding::error("shared-address", format!("Pod {}", snapshot.workload_name(pod)), message)
        .at("status.podIP")
        .from_source(snapshot.workload(pod).source.clone())
}
