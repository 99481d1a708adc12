//! Snapshot → Program. Total: whatever the input, there is a Program, and what
//! could not be taken as meant is a Finding and closed.
//!
//! Selectors are matched once a Role and rules are resolved once a policy, so
//! the work grows with Roles and rules; a pod more of a known Role costs a
//! table entry.

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
use crate::port::Protocol;
use crate::program::{
    Class, ClassId, CompiledRule, Holder, Matcher, Member, Program, ProgramPolicy, Resolver, ServiceEntry,
    SharedAddresses,
};
use crate::shards::Shards;
use crate::snapshot::Snapshot;
use crate::unknown::Whereabouts;
use peers::{PeerCompiler, RuleClauses};
use plans::PlanBuilder;
use roles::RoleIndex;
use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Compiles the whole cluster.
pub fn compile(snapshot: &Snapshot) -> (Program, Vec<Finding>) {
    let mut index = RoleIndex::new(snapshot);
    let mut peers = PeerCompiler::new(snapshot);
    let (mut policies, mut rules) = (Vec::new(), Vec::new());
    for (at, policy) in snapshot.policies.iter().enumerate() {
        let id = PolicyId(at as u32);
        let mut direction = |direction| {
            let start = rules.len() as u32;
            for (at, rule) in policy.rules(direction).iter().enumerate() {
                let (action, matchers) = compile_rule(&mut peers, &mut index, rule);
                let of_rule = matchers.into_iter();
                rules.extend(of_rule.map(|matcher| CompiledRule {
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
        roles_bound: snapshot.roles.len(),
        service_gates: Arc::new(plans.service_gates()),
        service_addresses: Arc::new(service_addresses(snapshot)),
        dns_services: Arc::new(dns_services(snapshot)),
        ..Program::default()
    };
    let services = snapshot.services.iter().map(|service| service_entry(snapshot, &program, service));
    program.services = Arc::new(services.collect());
    program.resolvers = resolvers(snapshot, &program.dns_services);
    let mut classes = Interned::default();
    let mut placing = Placing::default();
    placing.nodes(snapshot);
    let members = snapshot.workloads.iter().enumerate().map(|(at, workload)| {
        placing.place(snapshot, WorkloadId(at as u32));
        let class = plans.class_of(workload.role, workload.node, |class| classes.intern(class));
        member(workload, class)
    });
    program.workloads = members.collect();
    program.class_of = plans.finish();
    program.classes = Arc::new(classes.finish());
    program.node_addresses = node_addresses(&placing.by_address);
    program.by_address = placing.by_address;
    let findings = placing.shared.findings.clone();
    program.shared = Arc::new(placing.shared);
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
        addresses: workload.addresses.clone(),
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
            let own = service.addresses.iter().copied().filter(|_| port.port == DNS);
            let nodes = snapshot.nodes.iter().flat_map(|node| node.addresses.iter().copied());
            for address in own.chain(nodes.filter(|_| port.node_port == Some(DNS))) {
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
fn compile_rule<'s>(peers: &mut PeerCompiler<'s>, index: &mut RoleIndex<'s>, rule: &'s Rule) -> (Action, Vec<Matcher>) {
    match &rule.clauses {
        Clauses::Match { peers: who, ports } => {
            (rule.action, peers.matchers(index, &RuleClauses { action: rule.action, peers: who, ports }))
        }
        Clauses::Unreadable if rule.action == Action::Allow => (Action::Allow, vec![Matcher::Nothing]),
        Clauses::Unreadable => (Action::Deny, vec![Matcher::Everything]),
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
            let other = match self.by_address.get(&address) {
                Some(Holder::Pod(first)) => snapshot.workload_name(*first),
                Some(Holder::Node(node) | Holder::SomeNode(node)) => {
                    // Judged as the pod's: a pod's policies must not be lost.
                    let node = format!("node {}", snapshot.node(*node).name);
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

fn shared_address(snapshot: &Snapshot, pod: WorkloadId, other: &str, address: IpAddr) -> Finding {
    let message = format!(
        "{address} is the address of {other} too, and a connection can be only one's. \
         Remove what is gone, or set hostNetwork where the pod is on its node's network"
    );
    Finding::error("shared-address", format!("Pod {}", snapshot.workload_name(pod)), message)
        .at("status.podIP")
        .from_source(snapshot.workload(pod).source.clone())
}
