//! Policies of every kind, with what each kind can say and a little more.

use super::{NAMESPACES, namespace_selectors, patterns, read, selectors};
use namewall_policy::addr::Cidr;
use namewall_policy::domain::Wildcard;
use namewall_policy::labels::Selector;
use namewall_policy::model::{
    Action, Clauses, Enforcement, NamespaceScope, Peer, Peers, Placement, PodSet, Policy, PolicyKind, PolicyRef,
    PortMatch, Ports, Rule, Subject,
};
use namewall_policy::port::Protocol;
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::Arc;

/// Blocks with pods, nodes and strangers in and just beside them. The halves
/// of IPv4 are there to be put together again.
const BLOCKS: [&str; 17] = [
    "0.0.0.0/0",
    "10.0.0.0/24",
    "10.0.0.0/23",
    "10.0.1.0/24",
    "10.0.0.0/30",
    "10.0.0.1/32",
    "10.0.1.2/31",
    "192.0.2.0/24",
    "192.0.2.0/31",
    "172.16.0.0/31",
    "172.16.0.0/24",
    "0.0.0.0/1",
    "128.0.0.0/1",
    "::/0",
    "fd00::/64",
    "fd00::/126",
    "2001:db8::/32",
];

pub(super) fn policies() -> impl Strategy<Value = Policy> {
    prop_oneof![
        3 => network_policy(),
        2 => v1beta1(),
        3 => admin(),
        4 => baseline(),
        3 => cluster_egress_firewall(),
        2 => egress_firewall(),
    ]
}

/// Gives each policy a name of its own; the order of the names is not that of
/// the list. There is one `default` of the kinds that have only that.
pub(super) fn name_apart(policies: Vec<Policy>) -> Vec<Policy> {
    let mut kept: Vec<Policy> = Vec::new();
    for (at, mut policy) in policies.into_iter().enumerate() {
        let only_one = matches!(policy.id.kind, PolicyKind::BaselineAdminNetworkPolicy | PolicyKind::EgressFirewall);
        if !only_one {
            policy.id.name = format!("{}{at}", policy.id.name).into();
        }
        if kept.iter().all(|other| other.id != policy.id) {
            kept.push(policy);
        }
    }
    kept
}

/// What all kinds have, in the order of the arguments that differ.
fn policy(
    kinds: impl Strategy<Value = (PolicyKind, Placement)>,
    subjects: impl Strategy<Value = (Option<Arc<str>>, Subject)>,
    egress: impl Strategy<Value = Vec<Rule>>,
    ingress: impl Strategy<Value = Vec<Rule>>,
) -> impl Strategy<Value = Policy> {
    let enforcement = prop_oneof![3 => Just(Enforcement::Enforce), 1 => Just(Enforcement::Audit)];
    (kinds, subjects, egress, ingress, enforcement, select(vec!["a", "b", "c"])).prop_map(
        |((kind, placement), (namespace, subject), egress, ingress, enforcement, name)| Policy {
            id: PolicyRef { kind, namespace, name: name.into() },
            placement,
            enforcement,
            subject,
            egress,
            ingress,
            source: None,
        },
    )
}

fn network_policy() -> impl Strategy<Value = Policy> {
    let kinds = (prop::bool::weighted(0.7), any::<bool>()).prop_map(|(isolates_ingress, isolates_egress)| {
        (PolicyKind::NetworkPolicy, Placement::Network { isolates_ingress, isolates_egress })
    });
    let rules = || rules(allows(), peers(plain_peers()), ports(), 0..4);
    policy(kinds, namespaced_subjects(), rules(), rules())
}

/// Whether it isolates is not for the policy to say (S3.1), so both are tried.
fn v1beta1() -> impl Strategy<Value = Policy> {
    let kinds = any::<bool>().prop_map(|isolates_ingress| {
        (PolicyKind::NetworkPolicyV1Beta1, Placement::Network { isolates_ingress, isolates_egress: false })
    });
    let ingress = rules(allows(), peers(pod_sets().prop_map(Peer::Pods)), ports(), 0..4);
    policy(kinds, namespaced_subjects(), Just(Vec::new()), ingress)
}

fn admin() -> impl Strategy<Value = Policy> {
    let kinds = (any::<bool>(), priorities()).prop_map(|(cluster, priority)| {
        let kind = if cluster { PolicyKind::ClusterNetworkPolicy } else { PolicyKind::AdminNetworkPolicy };
        (kind, Placement::Admin { priority })
    });
    let egress = prop_oneof![
        3 => rules(any_action(), peers(all_peers()), ports(), 0..3),
        2 => rules(allows(), peers(named_peers(Wildcard::Subdomains)), ports(), 0..3),
    ];
    policy(kinds, cluster_subjects(), egress, rules(any_action(), peers(all_peers()), ports(), 0..3))
}

fn baseline() -> impl Strategy<Value = Policy> {
    let cluster = || {
        priorities()
            .prop_map(|priority| (PolicyKind::ClusterNetworkPolicy, Placement::Baseline { priority: Some(priority) }))
    };
    let default = || Just((PolicyKind::BaselineAdminNetworkPolicy, Placement::Baseline { priority: None }));
    let rules = || rules(any_action(), peers(all_peers()), ports(), 0..3);
    policy(prop_oneof![cluster(), default()], cluster_subjects(), rules(), rules())
}

fn cluster_egress_firewall() -> impl Strategy<Value = Policy> {
    let kinds =
        priorities().prop_map(|priority| (PolicyKind::ClusterEgressFirewall, Placement::ClusterGate { priority }));
    let egress = prop_oneof![
        3 => rules(allow_or_deny(), peers(all_peers()), ports(), 0..4),
        2 => rules(allows(), peers(named_peers(Wildcard::Subdomains)), ports(), 0..3),
    ];
    policy(kinds, cluster_subjects(), egress, Just(Vec::new()))
}

fn egress_firewall() -> impl Strategy<Value = Policy> {
    let kinds = Just((PolicyKind::EgressFirewall, Placement::NamespaceGate));
    let subjects = namespaced_subjects().prop_map(|(namespace, mut subject)| {
        subject.pods.pods.requirements.clear();
        (namespace, subject)
    });
    let egress = rules(allow_or_deny(), peers(named_peers(Wildcard::OneLabel)), ports(), 0..4);
    policy(kinds, subjects, egress, Just(Vec::new())).prop_map(|mut policy| {
        policy.id.name = "default".into();
        policy
    })
}

fn namespaced_subjects() -> impl Strategy<Value = (Option<Arc<str>>, Subject)> {
    (select(NAMESPACES.to_vec()), mostly_everything(selectors())).prop_map(|(namespace, pods)| {
        let pods = PodSet { namespaces: NamespaceScope::Named(namespace.into()), pods };
        (Some(namespace.into()), Subject { pods, nodes: None })
    })
}

fn cluster_subjects() -> impl Strategy<Value = (Option<Arc<str>>, Subject)> {
    let nodes = prop::option::weighted(0.25, selectors());
    (mostly_everything(namespace_selectors()), mostly_everything(selectors()), nodes).prop_map(
        |(namespaces, pods, nodes)| {
            let pods = PodSet { namespaces: NamespaceScope::Matching(namespaces), pods };
            (None, Subject { pods, nodes })
        },
    )
}

/// A policy that selects nobody tells little.
fn mostly_everything(selectors: impl Strategy<Value = Selector>) -> impl Strategy<Value = Selector> {
    prop_oneof![Just(Selector::everything()), selectors]
}

/// Few, so that they collide.
fn priorities() -> impl Strategy<Value = i32> {
    0..3
}

fn rules(
    actions: impl Strategy<Value = Action>,
    peers: impl Strategy<Value = Peers>,
    ports: impl Strategy<Value = Ports>,
    count: std::ops::Range<usize>,
) -> impl Strategy<Value = Vec<Rule>> {
    let clauses = (peers, ports, prop::bool::weighted(0.05)).prop_map(|(mut peers, ports, unreadable)| {
        // No kind has both the API server and named ports.
        let has_names =
            matches!(&ports, Ports::Listed(ports) if ports.iter().any(|port| matches!(port, PortMatch::Named { .. })));
        if let Peers::Listed(peers) = &mut peers {
            peers.retain(|peer| !has_names || *peer != Peer::ApiServer);
        }
        if unreadable { Clauses::Unreadable } else { Clauses::Match { peers, ports } }
    });
    let rule = (actions, clauses).prop_map(|(action, clauses)| Rule { name: None, action, clauses, source: None });
    prop::collection::vec(rule, count)
}

fn allows() -> impl Strategy<Value = Action> {
    Just(Action::Allow)
}

fn allow_or_deny() -> impl Strategy<Value = Action> {
    select(vec![Action::Allow, Action::Deny])
}

fn any_action() -> impl Strategy<Value = Action> {
    select(vec![Action::Allow, Action::Deny, Action::Pass])
}

fn peers(peer: impl Strategy<Value = Peer>) -> impl Strategy<Value = Peers> {
    let listed = prop::collection::vec(peer, 1..4).prop_map(Peers::Listed);
    prop_oneof![3 => Just(Peers::Anyone), 16 => listed, 1 => Just(Peers::Listed(Vec::new()))]
}

fn plain_peers() -> impl Strategy<Value = Peer> {
    prop_oneof![pod_sets().prop_map(Peer::Pods), networks()]
}

fn all_peers() -> impl Strategy<Value = Peer> {
    prop_oneof![
        3 => pod_sets().prop_map(Peer::Pods),
        3 => networks(),
        1 => selectors().prop_map(Peer::Nodes),
        1 => Just(Peer::ApiServer),
    ]
}

/// For rules that may speak of names.
fn named_peers(wildcard: Wildcard) -> impl Strategy<Value = Peer> {
    prop_oneof![
        4 => patterns(wildcard).prop_map(Peer::Domain),
        2 => networks(),
        1 => selectors().prop_map(Peer::Nodes),
    ]
}

fn pod_sets() -> impl Strategy<Value = PodSet> {
    let named = select(NAMESPACES.to_vec()).prop_map(|name| NamespaceScope::Named(name.into()));
    let matching = namespace_selectors().prop_map(NamespaceScope::Matching);
    (prop_oneof![1 => named, 2 => matching], selectors()).prop_map(|(namespaces, pods)| PodSet { namespaces, pods })
}

/// Holes may also be where the block is not.
fn networks() -> impl Strategy<Value = Peer> {
    let block = || select(BLOCKS.to_vec()).prop_map(read::<Cidr>);
    let holes = prop_oneof![Just(Vec::new()), prop::collection::vec(block(), 1..3)];
    (block(), holes).prop_map(|(cidr, except)| Peer::Network { cidr, except })
}

fn ports() -> impl Strategy<Value = Ports> {
    let protocols = || prop_oneof![4 => Just(Protocol::Tcp), 2 => Just(Protocol::Udp), 1 => Just(Protocol::Sctp)];
    let range = (protocols(), select(vec![80, 1, 443, 8080]), select(vec![80, 443, 8080, u16::MAX]))
        .prop_map(|(protocol, one, other)| PortMatch::Range { protocol, low: one.min(other), high: one.max(other) });
    let named = (prop::option::of(protocols()), select(vec!["web", "dns", "nobody-has-it"]))
        .prop_map(|(protocol, name)| PortMatch::Named { protocol, name: name.into() });
    let listed = prop::collection::vec(prop_oneof![2 => range, 1 => named], 1..4).prop_map(Ports::Listed);
    prop_oneof![10 => Just(Ports::Any), 10 => listed, 1 => Just(Ports::Listed(Vec::new()))]
}
