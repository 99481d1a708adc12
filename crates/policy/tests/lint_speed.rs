//! How long linting takes beside compiling:
//! `cargo test --release -p namewall-policy --test lint_speed -- --ignored --nocapture`

use namewall_policy::labels::Selector;
use namewall_policy::lint::lint;
use namewall_policy::model::{
    Action, Clauses, Enforcement, NamedPort, Namespace, NamespaceScope, Peer, Peers, Placement, PodSet, Policy,
    PolicyKind, PolicyRef, PortMatch, Ports, Role, Rule, Subject, Workload, WorkloadKind,
};
use namewall_policy::port::Protocol;
use namewall_policy::{Snapshot, compile};
use std::net::IpAddr;
use std::time::Instant;

const NAMESPACES: usize = 100;

/// 10,000 pods, each a Role of its own as those of a StatefulSet are.
fn pods() -> Snapshot {
    let mut snapshot = Snapshot::default();
    for at in 0..NAMESPACES {
        snapshot.add_namespace(Namespace {
            name: format!("ns{at}").into(),
            labels: [("team", format!("t{}", at % 10))].into_iter().collect(),
            default_deny_ingress: false,
            source: None,
        });
    }
    let http = NamedPort { name: "http".into(), protocol: Protocol::Tcp, port: 8080 };
    for at in 0..10_000usize {
        let namespace = snapshot.ensure_namespace(&format!("ns{}", at % NAMESPACES));
        let labels = [("app", format!("a{}", at / NAMESPACES % 10)), ("pod", format!("p{at}"))].into_iter().collect();
        let role = snapshot.role_of(Role { namespace, labels, host_network: false });
        snapshot.add_workload(Workload {
            kind: WorkloadKind::Pod,
            namespace,
            name: format!("p{at}").into(),
            role,
            addresses: vec![IpAddr::from([10, 1, (at / 250) as u8, (at % 250) as u8])],
            node: None,
            host_network: false,
            ports: [http.clone()].into(),
            source: None,
        });
    }
    snapshot
}

fn app(namespace: NamespaceScope, at: usize) -> PodSet {
    PodSet { namespaces: namespace, pods: Selector::label("app", &format!("a{}", at % 12)) }
}

fn rule(at: usize) -> Rule {
    let network = |text: String| Peer::Network { cidr: text.parse().expect("a block"), except: Vec::new() };
    let peers = match at % 4 {
        0 => Peers::Listed(vec![Peer::Pods(app(NamespaceScope::Matching(Selector::everything()), at))]),
        1 => Peers::Listed(vec![network(format!("{}.{}.0.0/16", 20 + at % 100, at % 200))]),
        2 => Peers::Listed(vec![Peer::Pods(app(NamespaceScope::Named(format!("ns{}", at % NAMESPACES).into()), at))]),
        _ => Peers::Listed(vec![network("0.0.0.0/1".to_owned()), network(format!("10.1.{}.0/24", at % 250))]),
    };
    let ports = match at % 3 {
        0 => Ports::Any,
        1 => Ports::Listed(vec![PortMatch::Named { protocol: Some(Protocol::Tcp), name: "http".into() }]),
        _ => {
            let port = 1000 + at as u16 % 500;
            Ports::Listed(vec![PortMatch::Range { protocol: Protocol::Tcp, low: port, high: port + 5 }])
        }
    };
    let action = [Action::Allow, Action::Deny, Action::Pass][at / 5 % 3];
    Rule { name: None, action, clauses: Clauses::Match { peers, ports }, source: None }
}

fn admin(at: usize, subject: PodSet, rules: usize) -> Policy {
    Policy {
        id: PolicyRef { kind: PolicyKind::ClusterNetworkPolicy, namespace: None, name: format!("c{at}").into() },
        placement: Placement::Admin { priority: at as i32 % 500 },
        enforcement: Enforcement::Enforce,
        subject: Subject { pods: subject, nodes: None },
        egress: (0..rules).map(|r| rule(at * 7 + r)).collect(),
        ingress: (0..rules).map(|r| rule(at * 11 + r * 2)).collect(),
        source: None,
    }
}

fn network(at: usize) -> Policy {
    let namespace: std::sync::Arc<str> = format!("ns{}", at % NAMESPACES).into();
    let allow = |at| Rule { action: Action::Allow, ..rule(at) };
    Policy {
        id: PolicyRef {
            kind: PolicyKind::NetworkPolicy,
            namespace: Some(namespace.clone()),
            name: format!("n{at}").into(),
        },
        placement: Placement::Network { isolates_ingress: true, isolates_egress: at.is_multiple_of(2) },
        enforcement: Enforcement::Enforce,
        subject: Subject { pods: app(NamespaceScope::Named(namespace), at / NAMESPACES), nodes: None },
        egress: (0..3).map(|r| allow(at * 3 + r)).collect(),
        ingress: (0..3).map(|r| allow(at * 5 + r)).collect(),
        source: None,
    }
}

fn time(what: &str, policies: Vec<Policy>) {
    let mut snapshot = pods();
    snapshot.policies = policies;
    let start = Instant::now();
    let (program, _) = compile(&snapshot);
    let compiled = start.elapsed();
    let start = Instant::now();
    let findings = lint(&snapshot, &program);
    let linted = start.elapsed();
    let ratio = linted.as_secs_f64() / compiled.as_secs_f64();
    println!(
        "{what}: {} Classes, compile {compiled:?}, lint {linted:?} ({ratio:.1}x), {} findings",
        program.classes.len(),
        findings.len()
    );
}

#[test]
#[ignore = "a measurement, for release builds"]
fn ten_thousand_pods_and_a_thousand_policies() {
    let everyone = |_| PodSet::all();
    let by_team = |at: usize| PodSet {
        namespaces: NamespaceScope::Matching(Selector::label("team", &format!("t{}", at % 10))),
        pods: Selector::everything(),
    };
    let scattered = |at: usize| PodSet {
        namespaces: NamespaceScope::Matching(Selector::label("team", &format!("t{}", at % 10))),
        pods: Selector::label("app", &format!("a{}", at / 10 % 10)),
    };
    let single = |at: usize| PodSet {
        namespaces: NamespaceScope::Matching(Selector::everything()),
        pods: Selector::label("pod", &format!("p{at}")),
    };
    time(
        "NetworkPolicies, 20 for all",
        (0..980).map(network).chain((0..20).map(|at| admin(at, everyone(at), 10))).collect(),
    );
    time("all for all", (0..1000).map(|at| admin(at, everyone(at), 10)).collect());
    time("by team", (0..1000).map(|at| admin(at, by_team(at), 10)).collect());
    time("by team and app", (0..1000).map(|at| admin(at, scattered(at), 10)).collect());
    time(
        "one pod each, and all",
        (0..1000).map(|at| admin(at, if at % 2 == 0 { single(at) } else { by_team(at) }, 10)).collect(),
    );
    time("one firewall of 8000 rules", vec![admin(0, PodSet::all(), 8000)]);
}
