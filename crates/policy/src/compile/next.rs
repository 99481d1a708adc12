//! The next Program from the one before, where only pods have come, gone or
//! changed: what the policies say is kept, and only what is new is matched.

use super::plans::PlanBuilder;
use super::{Interned, Placing, compile, resolvers, service_entry};
use crate::finding::Finding;
use crate::model::{Clauses, Peer, Peers, Service};
use crate::program::{CompiledRule, Holder, Matcher, Members, PeerSet, PeerSetId, Program};
use crate::snapshot::Snapshot;
use rustc_hash::FxHashMap;
use std::net::IpAddr;
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
        node_addresses: program.node_addresses.clone(),
        ..Program::default()
    };
    let new_roles = before.roles.len()..next.roles.len();
    if !new_roles.is_empty() {
        (compiled.rules, compiled.peer_sets) = with_roles(program, next, new_roles);
    }
    compiled.resolvers = resolvers(next);
    compiled.services = next.services.iter().map(|service| service_entry(next, &compiled, service)).collect();
    let same = same_workloads(before, next);
    let mut placing = Placing::default();
    match without_others(before, program, same) {
        Some(by_address) => placing.by_address = by_address,
        None => return compile(next),
    }
    compiled.workloads = program.workloads.first(same);
    let mut plans = PlanBuilder::knowing(next, program, same);
    let mut classes = None;
    let known = &program.classes;
    placing.workloads(next, same, |role, node| {
        plans.class_of(role, node, |class| classes.get_or_insert_with(|| Interned::of(known)).intern(class))
    });
    let findings = placing.finish(&mut compiled);
    if let Some(classes) = classes {
        compiled.classes = Arc::new(classes.finish());
    }
    (compiled, findings)
}

/// How many of the first workloads are the same, in whole pieces.
fn same_workloads(before: &Snapshot, next: &Snapshot) -> usize {
    let pairs = before.workloads.iter().zip(&next.workloads);
    let same = pairs.take_while(|(one, other)| one == other).count();
    same / Members::PIECE * Members::PIECE
}

/// The addresses of nodes and of the first workloads; none where one may have hidden another's.
fn without_others(before: &Snapshot, program: &Program, first: usize) -> Option<FxHashMap<IpAddr, Holder>> {
    if program.has_shared_addresses {
        return None;
    }
    let mut by_address = FxHashMap::clone(&program.by_address);
    let others = before.workloads.iter().skip(first).filter(|workload| !workload.host_network);
    for address in others.flat_map(|workload| workload.addresses.iter()) {
        by_address.remove(address);
    }
    Some(by_address)
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
    (Arc::ptr_eq(&before.policies, &next.policies) || before.policies == next.policies)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::{Labels, Selector};
    use crate::model::{
        Action, Enforcement, NamespaceScope, Placement, PodSet, Policy, PolicyKind, PolicyRef, Ports, Role, Rule,
        Subject, Workload, WorkloadKind,
    };

    fn pod(snapshot: &mut Snapshot, at: u16) -> Workload {
        let namespace = snapshot.ensure_namespace("shop");
        let labels: Labels = [("app", ["web", "api", "db"][usize::from(at % 3)])].into_iter().collect();
        let role = snapshot.role_of(Role { namespace, labels, host_network: false });
        let [high, low] = at.to_be_bytes();
        Workload {
            kind: WorkloadKind::Pod,
            namespace,
            name: format!("pod-{at}").into(),
            role,
            addresses: [IpAddr::from([10, 0, high, low])].into(),
            node: None,
            host_network: false,
            ports: Arc::default(),
            source: None,
        }
    }

    fn app(name: &str) -> PodSet {
        PodSet { namespaces: NamespaceScope::Named("shop".into()), pods: Selector::label("app", name) }
    }

    /// Three hundred pods: more than one piece.
    fn cluster() -> Snapshot {
        let mut snapshot = Snapshot::default();
        for at in 0..300 {
            let pod = pod(&mut snapshot, at);
            snapshot.add_workload(pod);
        }
        let clauses = Clauses::Match { peers: Peers::Listed(vec![Peer::Pods(app("web"))]), ports: Ports::Any };
        Arc::make_mut(&mut snapshot.policies).push(Policy {
            id: PolicyRef { kind: PolicyKind::NetworkPolicy, namespace: Some("shop".into()), name: "api".into() },
            placement: Placement::Network { isolates_ingress: true, isolates_egress: false },
            enforcement: Enforcement::Enforce,
            subject: Subject { pods: app("api"), nodes: None },
            egress: Vec::new(),
            ingress: vec![Rule { name: None, action: Action::Allow, clauses, source: None }],
            source: None,
        });
        snapshot
    }

    /// Both ways lead to the same Program, and share what they can.
    #[track_caller]
    fn check(change: impl FnOnce(&mut Snapshot), shared: usize) {
        let before = cluster();
        let (program, _) = compile(&before);
        let mut next = before.clone();
        change(&mut next);
        let ((short, told), (long, also_told)) = (compile_next((&before, &program), &next), compile(&next));
        assert_eq!(told.len(), also_told.len());
        assert_eq!(short.by_address, long.by_address);
        assert_eq!(short.workloads.len(), long.workloads.len());
        for (one, other) in short.workloads.iter().zip(long.workloads.iter()) {
            assert_eq!((one.role, one.node, &one.addresses), (other.role, other.node, &other.addresses));
            assert_eq!(short.class(one.class), long.class(other.class));
        }
        let new = short.workloads.not_shared_with(&program.workloads).count();
        assert_eq!(short.workloads.len() - new, shared);
    }

    #[test]
    fn what_stays_is_shared_and_the_rest_is_the_same_as_compiled_anew() {
        check(|_| {}, 256);
        check(|next| drop(next.workloads.pop()), 256);
        check(|next| drop(next.workloads.remove(130)), 128);
        check(|next| drop(next.workloads.remove(0)), 0);
        let come = |next: &mut Snapshot| {
            let pod = pod(next, 300);
            next.add_workload(pod);
        };
        check(come, 256);
        let changed = |next: &mut Snapshot| next.workloads[140].role = next.workloads[141].role;
        check(changed, 128);
        // Two pods claim one address: nothing is taken for granted.
        check(|next| next.workloads[299].addresses = next.workloads[0].addresses.clone(), 256);
        let new_role = |next: &mut Snapshot| {
            let mut role = next.role(next.workloads[0].role).clone();
            role.labels = [("app", "web"), ("tier", "front")].into_iter().collect();
            next.workloads[200].role = next.role_of(role);
        };
        check(new_role, 128);
    }

    #[test]
    fn a_new_role_is_among_the_peers_it_should_be() {
        let before = cluster();
        let (program, _) = compile(&before);
        let mut next = before.clone();
        let mut role = next.role(next.workloads[0].role).clone();
        role.labels = [("app", "web"), ("tier", "front")].into_iter().collect();
        let id = next.role_of(role);
        let mut pod = pod(&mut next, 400);
        pod.role = id;
        next.add_workload(pod);
        let (short, _) = compile_next((&before, &program), &next);
        let Matcher::Clauses { peers, .. } = short.rules[0].matcher else { panic!("it has peers") };
        assert!(short.peer_set(peers).roles.contains(id.index()));
    }
}
