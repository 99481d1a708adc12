//! The next Program from the one before, where only pods have come, gone or
//! changed: what the policies say is kept, and only what is new is matched.

use super::plans::PlanBuilder;
use super::{Interned, compile, member, resolvers};
use crate::finding::Finding;
use crate::model::{Clauses, Peer, Peers, Service, Workload, WorkloadId};
use crate::node_ports::{Before, NodePorts, leads_on};
use crate::pieces::differing;
use crate::program::{CompiledRule, Holder, Matcher, PeerSet, PeerSetId, Program};
use crate::shards::Shards;
use crate::snapshot::Snapshot;
use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

/// The same as [`compile()`], from what was compiled before: the numbers of
/// policies, rules and classes stay as long as the policies do.
pub fn compile_next(before: &Snapshot, program: &Program, next: &Snapshot) -> (Program, Vec<Finding>) {
    if !only_pods_differ(before, program, next) {
        return compile(next);
    }
    let changed: Vec<usize> = differing(&before.workloads, &next.workloads).collect();
    let Some(by_address) = with_changed(before, program, next, &changed) else { return compile(next) };
    let mut compiled = Program { by_address, ..program.clone() };
    let new_roles = before.roles.len()..next.roles.len();
    if !new_roles.is_empty() && !program.shared.holders.is_empty() {
        // The Roles of pods that share an address are numbered after all others.
        return compile(next);
    }
    if !new_roles.is_empty() {
        (compiled.rules, compiled.peer_sets) = with_roles(program, next, new_roles);
        compiled.roles_bound = next.roles.len();
    }
    compiled.resolvers = resolvers(next, &compiled.dns_services);
    let mut plans = PlanBuilder::knowing(next, program);
    let mut classes = None;
    for &at in &changed {
        let workload = &next.workloads[at];
        let class = plans.class_of(workload.role, workload.node, |class| {
            classes.get_or_insert_with(|| Interned::of(&program.classes)).intern(class)
        });
        let member = member(workload, class);
        match at < compiled.workloads.len() {
            true => compiled.workloads.set(at, member),
            false => compiled.workloads.push(member),
        }
    }
    compiled.class_of = plans.finish();
    if let Some(classes) = classes {
        compiled.classes = Arc::new(classes.finish());
    }
    let workloads = changed.iter().flat_map(|&at| [before.workloads.get(at), next.workloads.get(at)]).flatten();
    let touched = workloads.flat_map(|workload| workload.addresses.iter().copied()).collect();
    let known = Before { node_ports: &program.node_ports, touched };
    let node_ports = NodePorts::new(next, &compiled, Some(known));
    if node_ports != *program.node_ports {
        compiled.node_ports = Arc::new(node_ports);
    }
    (compiled, program.shared.findings.clone())
}

/// Who has which address now; none where one may hide another's, or have hidden it.
fn with_changed(
    before: &Snapshot,
    program: &Program,
    next: &Snapshot,
    changed: &[usize],
) -> Option<Shards<IpAddr, Holder>> {
    let mut by_address = program.by_address.clone();
    let is_shared = |workload: &Workload| workload.addresses.iter().any(|one| program.shared.addresses.contains(one));
    // All that go first: one may take what another had.
    for workload in changed.iter().filter_map(|&at| before.workloads.get(at)) {
        if is_shared(workload) || !tells_nothing_of_its_node(before, workload) {
            return None;
        }
        if !workload.host_network {
            workload.addresses.iter().for_each(|address| _ = by_address.remove(address));
        }
    }
    for &at in changed {
        let workload = next.workloads.get(at)?;
        if is_shared(workload) || !tells_nothing_of_its_node(next, workload) {
            return None;
        }
        let own = workload.addresses.iter().filter(|_| !workload.host_network);
        for &address in own {
            if by_address.insert(address, Holder::Pod(WorkloadId(at as u32))).is_some() {
                return None;
            }
        }
    }
    Some(by_address)
}

/// A node has the addresses its `hostNetwork` pods tell of: whether this one tells of none that is not known anyhow.
fn tells_nothing_of_its_node(snapshot: &Snapshot, workload: &Workload) -> bool {
    let known = |node: crate::model::NodeId| &snapshot.node(node).addresses;
    let is_known = |address: &IpAddr| workload.node.is_some_and(|node| known(node).contains(address));
    !workload.host_network || workload.addresses.iter().all(is_known)
}

/// Roles are only ever added, and everything else but pods is as it was.
fn only_pods_differ(before: &Snapshot, program: &Program, next: &Snapshot) -> bool {
    same(&before.policies, &next.policies)
        && same(&before.namespaces, &next.namespaces)
        && same(&before.nodes, &next.nodes)
        && same(&before.pod_networks, &next.pod_networks)
        && before.api_server == next.api_server
        && (Arc::ptr_eq(&before.roles, &next.roles) || next.roles.starts_with(&before.roles))
        && before.workloads.len() <= next.workloads.len()
        && before.services.len() == next.services.len()
        && differing(&before.services, &next.services)
            .map(|at| (&before.services[at], &next.services[at]))
            // Where a Service leads to other Services is known from one compilation to the next.
            .all(|(one, other)| is_asked_the_same(one, other) && leads_on(program, one).eq(leads_on(program, other)))
}

fn same<T: PartialEq>(one: &Arc<T>, other: &Arc<T>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

/// Whether only its backends are others.
fn is_asked_the_same(one: &Service, other: &Service) -> bool {
    let asked = |service: &Service| {
        let ports = service.ports.iter().map(|port| (port.protocol, port.port, port.node_port));
        ports.collect::<Vec<_>>()
    };
    one.namespace == other.namespace
        && one.addresses == other.addresses
        && one.proxied == other.proxied
        && asked(one) == asked(other)
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
        Subject, Workload,
    };

    fn pod(snapshot: &mut Snapshot, at: u16) -> Workload {
        let namespace = snapshot.ensure_namespace("shop");
        let labels: Labels = [("app", ["web", "api", "db"][usize::from(at % 3)])].into_iter().collect();
        let [high, low] = at.to_be_bytes();
        let pod = snapshot.new_pod(Role { namespace, labels, host_network: false }, &format!("pod-{at}"));
        Workload { addresses: [IpAddr::from([10, 0, high, low])].into(), ..pod }
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
        let ((short, told), (long, also_told)) = (compile_next(&before, &program, &next), compile(&next));
        assert_eq!(told.len(), also_told.len());
        assert_eq!(short.by_address, long.by_address);
        assert_eq!(short.workloads.len(), long.workloads.len());
        for (one, other) in short.workloads.iter().zip(long.workloads.iter()) {
            assert_eq!((one.role, one.node, &one.addresses), (other.role, other.node, &other.addresses));
            assert_eq!(short.class(one.class), long.class(other.class));
        }
        let new = short.workloads.not_shared_with(&program.workloads).count();
        assert_eq!(short.workloads.len() - new, shared);
        assert_eq!(short.roles_bound, long.roles_bound);
    }

    #[test]
    fn what_stays_is_shared_and_the_rest_is_the_same_as_compiled_anew() {
        check(|_| {}, 300);
        let goes = |at: usize| move |next: &mut Snapshot| next.workloads.set(at, next.workloads[at].vacated());
        check(goes(299), 256);
        check(goes(130), 172);
        check(goes(0), 172);
        let come = |next: &mut Snapshot| {
            let pod = pod(next, 300);
            next.add_workload(pod);
        };
        check(come, 256);
        let takes = |next: &mut Snapshot| {
            let pod = pod(next, 7);
            next.workloads.set(7, next.workloads[7].vacated());
            next.workloads.set(200, pod);
        };
        check(takes, 44);
        let changed = |next: &mut Snapshot| next.workloads.get_mut(140).unwrap().role = next.workloads[141].role;
        check(changed, 172);
        // Numbers are others: nothing is taken for granted.
        check(|next| next.workloads.edit(|all| drop(all.pop())), 0);
        check(|next| next.workloads.edit(|all| drop(all.remove(0))), 0);
        // Two pods claim one address: nothing is taken for granted.
        let claim = |next: &mut Snapshot| {
            next.workloads.get_mut(299).unwrap().addresses = next.workloads[0].addresses.clone();
        };
        check(claim, 0);
        let new_role = |next: &mut Snapshot| {
            let mut role = next.role(next.workloads[0].role).clone();
            role.labels = [("app", "web"), ("tier", "front")].into_iter().collect();
            let role = next.role_of(role);
            next.workloads.get_mut(200).unwrap().role = role;
        };
        check(new_role, 172);
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
        let (short, _) = compile_next(&before, &program, &next);
        let Matcher::Clauses { peers, .. } = short.rules[0].matcher else { panic!("it has peers") };
        assert!(short.peer_set(peers).roles.contains(id.index()));
    }
}
