//! Snapshot → Program. Total: whatever the input, there is a Program, and what
//! could not be taken as meant is a Finding and closed.
//!
//! Selectors are matched once a Role and rules are resolved once a policy, so
//! the work grows with Roles and rules; a pod more of a known Role costs a
//! table entry.

mod peers;
mod plans;
mod roles;

use crate::addr::AddrSet;
use crate::finding::Finding;
use crate::model::{Action, Clauses, Direction, Policy, PolicyId, Rule, Service, WorkloadId};
use crate::program::{Class, ClassId, CompiledRule, Holder, Matcher, Member, Program, ProgramPolicy, ServiceEntry};
use crate::snapshot::Snapshot;
use peers::PeerCompiler;
use plans::PlanBuilder;
use roles::RoleIndex;
use rustc_hash::FxHashMap;
use std::net::IpAddr;

/// Compiles the whole cluster.
pub fn compile(snapshot: &Snapshot) -> (Program, Vec<Finding>) {
    let mut index = RoleIndex::new(snapshot);
    let mut program = Program {
        revision: snapshot.revision,
        pod_networks: snapshot.pod_networks.iter().copied().collect::<AddrSet>(),
        ..Program::default()
    };
    let mut peers = PeerCompiler::new(snapshot);
    for (at, policy) in snapshot.policies.iter().enumerate() {
        let id = PolicyId(at as u32);
        let egress = compile_rules(&mut program, &mut peers, &mut index, (id, policy, Direction::Egress));
        let ingress = compile_rules(&mut program, &mut peers, &mut index, (id, policy, Direction::Ingress));
        program.policies.push(ProgramPolicy {
            id: policy.id.clone(),
            placement: policy.placement,
            enforcement: policy.enforcement,
            subject: policy.subject.clone(),
            egress,
            ingress,
        });
    }
    (program.peer_sets, program.port_specs, program.patterns) = peers.finish();

    let mut plans = PlanBuilder::new(snapshot, &mut index);
    program.service_gates = plans.service_gates();
    program.services = snapshot.services.iter().map(|service| service_entry(snapshot, &program, service)).collect();
    let findings = place_workloads(snapshot, &mut plans, &mut program);
    (program, findings)
}

fn compile_rules<'s>(
    program: &mut Program,
    peers: &mut PeerCompiler<'s>,
    index: &mut RoleIndex<'s>,
    (policy_id, policy, direction): (PolicyId, &'s Policy, Direction),
) -> std::ops::Range<u32> {
    let start = program.rules.len() as u32;
    for (at, rule) in policy.rules(direction).iter().enumerate() {
        let (action, matcher) = compile_rule(peers, index, rule);
        program.rules.push(CompiledRule { policy: policy_id, direction, index: at as u32, action, matcher });
    }
    start..program.rules.len() as u32
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

fn place_workloads(snapshot: &Snapshot, plans: &mut PlanBuilder<'_>, program: &mut Program) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut by_class: FxHashMap<Class, ClassId> = FxHashMap::default();
    for (at, node) in snapshot.nodes.iter().enumerate() {
        for &address in &node.addresses {
            program.by_address.insert(address, Holder::Node(crate::model::NodeId(at as u32)));
        }
    }
    for (at, workload) in snapshot.workloads.iter().enumerate() {
        let id = WorkloadId(at as u32);
        let class = plans.class_of(workload.role, workload.node, |class| {
            let next = ClassId(program.classes.len() as u32);
            *by_class.entry(class.clone()).or_insert_with(|| {
                program.classes.push(class);
                next
            })
        });
        program.workloads.push(Member {
            class,
            role: workload.role,
            node: workload.node,
            host_network: workload.host_network,
            template: workload.is_template(),
            ports: workload.ports.clone(),
        });
        if workload.host_network {
            // Its address is the node's: only "node" and "network" peers see it.
            if let Some(node) = workload.node {
                for &address in &workload.addresses {
                    program.by_address.entry(address).or_insert(Holder::Node(node));
                }
            }
            continue;
        }
        for &address in &workload.addresses {
            match program.by_address.insert(address, Holder::Pod(id)) {
                Some(Holder::Pod(first)) => {
                    program.by_address.insert(address, Holder::Pod(first));
                    findings.push(shared_address(snapshot, id, &snapshot.workload_name(first), address));
                }
                // Judged as the pod's: a pod's policies must not be lost.
                Some(Holder::Node(node)) => {
                    let node = format!("node {}", snapshot.node(node).name);
                    findings.push(shared_address(snapshot, id, &node, address));
                }
                None => {}
            }
        }
    }
    findings
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
