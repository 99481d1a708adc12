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

use crate::addr::AddrSet;
use crate::finding::Finding;
use crate::model::{
    Action, Backend, BackendTarget, Clauses, Direction, NodeId, PolicyId, RoleId, Rule, Service, ServiceId, WorkloadId,
};
use crate::port::Protocol;
use crate::program::{
    Class, ClassId, CompiledRule, Holder, Matcher, Member, Program, ProgramPolicy, Resolver, ServiceEntry,
};
use crate::snapshot::Snapshot;
use peers::PeerCompiler;
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
                let (action, matcher) = compile_rule(&mut peers, &mut index, rule);
                rules.push(CompiledRule { policy: id, direction, index: at as u32, action, matcher });
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
    let mut program = Program {
        revision: snapshot.revision,
        pod_networks: snapshot.pod_networks.iter().copied().collect::<AddrSet>(),
        policies: Arc::new(policies),
        rules: Arc::new(rules),
        peer_sets: Arc::new(peer_sets),
        port_specs: Arc::new(port_specs),
        patterns: Arc::new(patterns),
        ..Program::default()
    };
    let mut plans = PlanBuilder::new(snapshot, &mut index);
    program.service_gates = plans.service_gates();
    program.services = snapshot.services.iter().map(|service| service_entry(snapshot, &program, service)).collect();
    program.resolvers = resolvers(snapshot);
    let mut classes = Interned::default();
    let mut placing = Placing::default();
    placing.nodes(snapshot);
    placing.workloads(snapshot, 0, |role, node| plans.class_of(role, node, |class| classes.intern(class)));
    program.node_addresses = node_addresses(&placing.by_address);
    let findings = placing.finish(&mut program);
    program.classes = Arc::new(classes.finish());
    (program, findings)
}

/// The Services that are asked at DNS's port. A node's port counts too: it takes the question somewhere else.
fn resolvers(snapshot: &Snapshot) -> Vec<Resolver> {
    const DNS: u16 = 53;
    let mut resolvers = Vec::new();
    for (at, service) in snapshot.services.iter().enumerate() {
        for port in service.ports.iter().filter(|port| matches!(port.protocol, Protocol::Tcp | Protocol::Udp)) {
            let own = service.addresses.iter().copied().filter(|_| port.port == DNS);
            let nodes = snapshot.nodes.iter().flat_map(|node| node.addresses.iter().copied());
            for address in own.chain(nodes.filter(|_| port.node_port == Some(DNS))) {
                let of = |backend: &Backend| match backend.target {
                    BackendTarget::Address(address) | BackendTarget::Workload(_, Some(address)) => vec![address],
                    BackendTarget::Workload(id, None) => snapshot.workload(id).addresses.to_vec(),
                };
                let all = port.backends.iter().flat_map(|one| of(one).into_iter().map(|to| (to, one.port)));
                let backends = all.filter(|(to, _)| to.is_ipv4() == address.is_ipv4()).collect();
                resolvers.push(Resolver { service: ServiceId(at as u32), address, protocol: port.protocol, backends });
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
fn compile_rule<'s>(peers: &mut PeerCompiler<'s>, index: &mut RoleIndex<'s>, rule: &'s Rule) -> (Action, Matcher) {
    match &rule.clauses {
        Clauses::Match { peers: who, ports } => {
            let matcher = Matcher::Clauses { peers: peers.peer_set(index, who), ports: peers.port_spec(ports) };
            (rule.action, matcher)
        }
        Clauses::Unreadable if rule.action == Action::Allow => (Action::Allow, Matcher::Nothing),
        Clauses::Unreadable => (Action::Deny, Matcher::Everything),
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
    by_address: FxHashMap<IpAddr, Holder>,
    members: Vec<Member>,
    /// Whether some address is claimed by two.
    shared: bool,
    findings: Vec<Finding>,
}

impl Placing {
    fn nodes(&mut self, snapshot: &Snapshot) {
        for (at, node) in snapshot.nodes.iter().enumerate() {
            for &address in &node.addresses {
                self.by_address.insert(address, Holder::Node(NodeId(at as u32)));
            }
        }
    }

    /// Places the workloads from this one on.
    fn workloads(
        &mut self,
        snapshot: &Snapshot,
        from: usize,
        mut class_of: impl FnMut(RoleId, Option<NodeId>) -> ClassId,
    ) {
        self.by_address.reserve(snapshot.workloads.len() - from);
        self.members.reserve(snapshot.workloads.len() - from);
        for (at, workload) in snapshot.workloads.iter().enumerate().skip(from) {
            self.members.push(Member {
                class: class_of(workload.role, workload.node),
                role: workload.role,
                node: workload.node,
                host_network: workload.host_network,
                template: workload.is_template(),
                ports: workload.ports.clone(),
                addresses: workload.addresses.clone(),
            });
            self.addresses(snapshot, WorkloadId(at as u32));
        }
    }

    fn addresses(&mut self, snapshot: &Snapshot, id: WorkloadId) {
        let workload = snapshot.workload(id);
        if workload.host_network {
            // Its address is the node's: only "node" and "network" peers see it.
            if let Some(node) = workload.node {
                for &address in workload.addresses.iter() {
                    let holder = self.by_address.entry(address).or_insert(Holder::Node(node));
                    self.shared |= *holder != Holder::Node(node);
                }
            }
            return;
        }
        for &address in workload.addresses.iter() {
            match self.by_address.insert(address, Holder::Pod(id)) {
                Some(Holder::Pod(first)) => {
                    self.by_address.insert(address, Holder::Pod(first));
                    self.findings.push(shared_address(snapshot, id, &snapshot.workload_name(first), address));
                }
                // Judged as the pod's: a pod's policies must not be lost.
                Some(Holder::Node(node)) => {
                    let node = format!("node {}", snapshot.node(node).name);
                    self.findings.push(shared_address(snapshot, id, &node, address));
                }
                None => {}
            }
        }
    }

    fn finish(self, program: &mut Program) -> Vec<Finding> {
        program.has_shared_addresses = self.shared || !self.findings.is_empty();
        program.workloads.extend(self.members);
        program.by_address = Arc::new(self.by_address);
        self.findings
    }
}

fn node_addresses(by_address: &FxHashMap<IpAddr, Holder>) -> Arc<Vec<(IpAddr, NodeId)>> {
    let node = |(&address, &holder): (&IpAddr, &Holder)| match holder {
        Holder::Node(node) => Some((address, node)),
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
