//! The next Program from the one before, where only pods have come, gone or
//! changed: what the policies say is kept, and only what is new is matched.

use super::plans::PlanBuilder;
use super::{Interned, compile, place_workloads, service_entry};
use crate::finding::Finding;
use crate::model::{Clauses, Peer, Peers, Service};
use crate::program::{CompiledRule, Matcher, PeerSet, PeerSetId, Program};
use crate::snapshot::Snapshot;
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;

/// The same as [`compile()`], from what was compiled before: the numbers of
/// policies, rules and classes stay as long as the policies do.
pub fn compile_next((before, program): (&Snapshot, &Program), next: &Snapshot) -> (Program, Vec<Finding>) {
    if !only_pods_differ(before, next) {
        return compile(next);
    }
    let mut compiled = Program {
        revision: next.revision,
        classes: program.classes.clone(),
        policies: program.policies.clone(),
        rules: program.rules.clone(),
        peer_sets: program.peer_sets.clone(),
        port_specs: program.port_specs.clone(),
        patterns: program.patterns.clone(),
        pod_networks: program.pod_networks.clone(),
        service_gates: program.service_gates.clone(),
        ..Program::default()
    };
    let new_roles = before.roles.len()..next.roles.len();
    if !new_roles.is_empty() {
        (compiled.rules, compiled.peer_sets) = with_roles(program, next, new_roles);
    }
    compiled.services = next.services.iter().map(|service| service_entry(next, &compiled, service)).collect();
    let mut plans = PlanBuilder::knowing(next, program);
    let mut classes = None;
    let known = &program.classes;
    let findings = place_workloads(next, &mut compiled, |role, node| {
        plans.class_of(role, node, |class| classes.get_or_insert_with(|| Interned::of(known)).intern(class))
    });
    if let Some(classes) = classes {
        compiled.classes = Arc::new(classes.finish());
    }
    (compiled, findings)
}

/// Roles are only ever added, and everything else but pods is as it was.
fn only_pods_differ(before: &Snapshot, next: &Snapshot) -> bool {
    let frontend = |service: &Service| {
        let ports = service.ports.iter().map(|port| (port.protocol, port.port, port.node_port)).collect::<Vec<_>>();
        (service.namespace, service.addresses.clone(), ports)
    };
    // A node has the addresses its hostNetwork pods tell of.
    let on_nodes = |snapshot: &'_ Snapshot| {
        let host = snapshot.workloads.iter().filter(|workload| workload.host_network);
        host.map(|workload| (workload.node, workload.addresses.clone())).collect::<Vec<_>>()
    };
    before.policies == next.policies
        && on_nodes(before) == on_nodes(next)
        && before.namespaces == next.namespaces
        && before.nodes == next.nodes
        && before.pod_networks == next.pod_networks
        && before.api_server == next.api_server
        && next.roles.starts_with(&before.roles)
        && before.services.len() == next.services.len()
        && before.services.iter().zip(&next.services).all(|(a, b)| frontend(a) == frontend(b))
}

/// The rules with the new Roles among their peers, where they are.
fn with_roles(program: &Program, next: &Snapshot, new: Range<usize>) -> (Arc<Vec<CompiledRule>>, Arc<Vec<PeerSet>>) {
    let mut rules = program.rules.to_vec();
    let mut peer_sets: Vec<PeerSet> = Vec::new();
    let mut interned: FxHashMap<(PeerSetId, Vec<usize>), PeerSetId> = FxHashMap::default();
    for rule in &mut rules {
        let Matcher::Clauses { peers, ports } = rule.matcher else { continue };
        let policy = next.policy(rule.policy);
        let clauses = &policy.rules(rule.direction)[rule.index as usize].clauses;
        let listed = match clauses {
            Clauses::Match { peers: Peers::Listed(peers), .. } => peers.as_slice(),
            _ => &[],
        };
        let is_peer = |at: &usize| {
            let role = &next.roles[*at];
            let namespace = next.namespace(role.namespace);
            listed.iter().any(|peer| matches!(peer, Peer::Pods(pods) if pods.selects(role, namespace)))
        };
        let more: Vec<usize> = new.clone().filter(is_peer).collect();
        let id = *interned.entry((peers, more)).or_insert_with_key(|(peers, more)| {
            let mut set = program.peer_set(*peers).clone();
            more.iter().for_each(|&role| set.roles.insert(role));
            peer_sets.push(set);
            PeerSetId(peer_sets.len() as u32 - 1)
        });
        rule.matcher = Matcher::Clauses { peers: id, ports };
    }
    (Arc::new(rules), Arc::new(peer_sets))
}
