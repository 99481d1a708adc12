//! What lints claim is true, whatever the policies: a rule that is said to be
//! shadowed can be removed and no connection fares differently; a pod that is
//! said to reach no DNS server reaches none.

use namewall_policy::domain::{DomainName, DomainPattern, RulePattern, Wildcard};
use namewall_policy::labels::Selector;
use namewall_policy::lint::lint;
use namewall_policy::model::{
    Action, Clauses, Enforcement, NamedPort, NamespaceScope, Node, Peer, Peers, Placement, PodSet, Policy, PolicyKind,
    PolicyRef, PortMatch, Ports, Role, Rule, Subject, Workload,
};
use namewall_policy::port::Protocol;
use namewall_policy::reach::Reach;
use namewall_policy::{Endpoint, Flow, Instant, Lease, LeaseTable, Snapshot, Verdict, compile, evaluate};
use proptest::prelude::*;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const APPS: [&str; 3] = ["web", "api", "db"];

fn cluster() -> Snapshot {
    let mut snapshot = Snapshot::default();
    let namespace = snapshot.ensure_namespace("shop");
    let node = snapshot.add_node(Node {
        name: "n0".into(),
        labels: [("zone", "a")].into_iter().collect(),
        addresses: vec![IpAddr::from([192, 168, 0, 1])],
        source: None,
    });
    for (at, app) in APPS.into_iter().enumerate() {
        let labels = [("app", app)].into_iter().collect();
        let pod = snapshot.new_pod(Role { namespace, labels, host_network: false }, app);
        let http = NamedPort { name: "http".into(), protocol: Protocol::Tcp, port: 80 + at as u16 };
        let addresses = [IpAddr::from([10, 0, 0, at as u8])].into();
        snapshot.add_workload(Workload { addresses, node: Some(node), ports: [http].into(), ..pod });
    }
    snapshot
}

fn pods() -> impl Strategy<Value = PodSet> {
    prop_oneof![
        Just(PodSet::all()),
        (0..3usize).prop_map(|at| PodSet {
            namespaces: NamespaceScope::Named("shop".into()),
            pods: Selector::label("app", APPS[at])
        })
    ]
}

fn peer() -> impl Strategy<Value = Peer> {
    let network = prop_oneof![
        Just("0.0.0.0/0"),
        Just("::/0"),
        Just("0.0.0.0/1"),
        Just("128.0.0.0/1"),
        Just("10.0.0.0/31"),
        Just("10.0.0.0/30"),
        Just("203.0.113.0/25"),
        Just("203.0.113.128/25"),
        Just("203.0.113.0/24"),
    ];
    let name = prop_oneof![Just("a.example"), Just("*.example"), Just("*.a.example"), Just("b.a.example")];
    prop_oneof![
        4 => network.prop_map(|text| Peer::Network { cidr: text.parse().expect("a block"), except: Vec::new() }),
        4 => pods().prop_map(Peer::Pods),
        1 => Just(Peer::Nodes(Selector::label("zone", "a"))),
        2 => name.prop_map(|text| {
            Peer::Domain(DomainPattern::parse(text, Wildcard::Subdomains).expect("a pattern"))
        }),
    ]
}

fn ports() -> impl Strategy<Value = Ports> {
    let tcp = |low, high| PortMatch::Range { protocol: Protocol::Tcp, low, high };
    let one = prop_oneof![
        Just(tcp(80, 80)),
        Just(tcp(80, 81)),
        Just(tcp(81, 82)),
        Just(tcp(1, u16::MAX)),
        Just(PortMatch::Named { protocol: Some(Protocol::Tcp), name: "http".into() }),
        Just(PortMatch::Named { protocol: None, name: "http".into() }),
    ];
    prop_oneof![Just(Ports::Any), proptest::collection::vec(one, 1..3).prop_map(Ports::Listed)]
}

fn rule() -> impl Strategy<Value = Rule> {
    let action = prop_oneof![Just(Action::Allow), Just(Action::Deny), Just(Action::Pass)];
    let peers = prop_oneof![
        1 => Just(Peers::Anyone),
        9 => proptest::collection::vec(peer(), 1..3).prop_map(Peers::Listed),
    ];
    (action, peers, ports()).prop_map(|(action, peers, ports)| Rule {
        name: None,
        action,
        clauses: Clauses::Match { peers, ports },
        source: None,
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    let rules = || proptest::collection::vec(rule(), 0..4);
    (0..3i32, pods(), rules(), rules(), any::<bool>()).prop_map(|(priority, pods, egress, ingress, audit)| Policy {
        id: PolicyRef { kind: PolicyKind::AdminNetworkPolicy, namespace: None, name: "p".into() },
        placement: Placement::Admin { priority },
        enforcement: if audit { Enforcement::Audit } else { Enforcement::Enforce },
        subject: Subject { pods, nodes: None },
        egress,
        ingress,
        source: None,
    })
}

/// Every kind of connection the rules above can tell apart.
fn flows(snapshot: &Snapshot) -> Vec<Flow> {
    let (program, _) = compile(snapshot);
    let outside = ["203.0.113.1", "203.0.113.200", "8.8.8.8", "200.1.1.1", "192.168.0.1", "10.0.0.3", "2001:db8::1"];
    let addresses = outside.iter().map(|text| text.parse().expect("an address"));
    let mut ends: Vec<Endpoint> = addresses.map(|address| program.endpoint_at(address)).collect();
    ends.extend(snapshot.workload_ids().flat_map(|id| program.endpoints(snapshot, id)));
    let mut flows = Vec::new();
    for from in &ends {
        for to in ends.iter().filter(|to| from.workload.is_some() || to.workload.is_some()) {
            for (protocol, port) in [
                (Protocol::Tcp, 80),
                (Protocol::Tcp, 81),
                (Protocol::Tcp, 82),
                (Protocol::Tcp, 9),
                (Protocol::Udp, 80),
                (Protocol::Icmp, 0),
            ] {
                flows.push(Flow {
                    from: from.clone(),
                    to: to.clone(),
                    protocol,
                    port,
                    via: None,
                    hop: None,
                    masker: None,
                });
            }
        }
    }
    flows
}

/// Each name at an address of its own, as every pattern would lease it, and at one inside, as patterns that deny do.
fn leases() -> LeaseTable {
    let mut table = LeaseTable::default();
    for (name, address) in [("a.example", "8.8.8.8"), ("b.a.example", "200.1.1.1"), ("c.example", "203.0.113.200")] {
        for pattern in ["a.example", "*.example", "*.a.example", "b.a.example"] {
            let pattern = DomainPattern::parse(pattern, Wildcard::Subdomains).expect("a pattern");
            let name: DomainName = name.parse().expect("a name");
            if pattern.matches(&name) {
                let (address, expiry): (IpAddr, _) =
                    (address.parse().expect("an address"), Instant(Duration::from_secs(10)));
                let inside = "192.168.0.1".parse().expect("an address");
                let (allows, denies) = (RulePattern::allow(pattern.clone()), RulePattern::deny(pattern));
                for (pattern, address) in [(allows, address), (denies.clone(), address), (denies, inside)] {
                    table.grant(Lease { pattern, name: name.clone(), address, expiry, asked_by: None });
                }
            }
        }
    }
    table
}

fn verdicts(snapshot: &Snapshot, flows: &[Flow]) -> Vec<(Verdict, bool)> {
    let ((program, _), leases) = (compile(snapshot), leases());
    let decide = |flow| evaluate(&program, &leases, flow, Instant::default());
    flows.iter().map(decide).map(|decision| (decision.verdict, decision.would_deny.is_some())).collect()
}

fn shadowed(snapshot: &Snapshot) -> Vec<(usize, bool, usize)> {
    let (program, _) = compile(snapshot);
    let found = lint(snapshot, &program).into_iter().filter(|finding| finding.code == "shadowed-rule");
    found
        .map(|finding| {
            let policy = finding.object.trim_start_matches("AdminNetworkPolicy p").parse().expect("a number");
            let (egress, index) = match finding.path.strip_prefix("spec.egress[") {
                Some(rest) => (true, rest),
                None => (false, finding.path.strip_prefix("spec.ingress[").expect("a rule")),
            };
            (policy, egress, index.trim_end_matches(']').parse().expect("a number"))
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_shadowed_rule_can_be_removed(policies in proptest::collection::vec(policy(), 1..5)) {
        let mut snapshot = cluster();
        snapshot.policies = Arc::new(policies);
        for (at, policy) in Arc::make_mut(&mut snapshot.policies).iter_mut().enumerate() {
            policy.id.name = format!("p{at}").into();
        }
        let flows = flows(&snapshot);
        let before = verdicts(&snapshot, &flows);
        for (policy, egress, index) in shadowed(&snapshot) {
            let mut less = snapshot.clone();
            let policy = &mut Arc::make_mut(&mut less.policies)[policy];
            if egress { policy.egress.remove(index) } else { policy.ingress.remove(index) };
            for (at, (a, b)) in before.iter().zip(verdicts(&less, &flows)).enumerate() {
                // An enforced rule may be shadowed as things are, and not if what is audited were enforced.
                prop_assert_eq!(a.0, b.0, "{:?}", flows[at]);
            }
        }
    }

    /// Whatever stands between: a rule that was given before is found.
    #[test]
    fn a_repeated_rule_is_found(rules in proptest::collection::vec(rule(), 1..4), again in 0..3usize) {
        let mut snapshot = cluster();
        let again = rules[again % rules.len()].clone();
        let last = rules.len();
        snapshot.policies = Arc::new(vec![Policy {
            id: PolicyRef { kind: PolicyKind::AdminNetworkPolicy, namespace: None, name: "p0".into() },
            placement: Placement::Admin { priority: 1 },
            enforcement: Enforcement::Enforce,
            subject: Subject { pods: PodSet::all(), nodes: None },
            egress: rules.into_iter().chain([again]).collect(),
            ingress: Vec::new(),
            source: None,
        }]);
        prop_assert!(shadowed(&snapshot).contains(&(0, true, last)));
    }

    #[test]
    fn who_forgot_dns_reaches_none(policies in proptest::collection::vec(policy(), 1..4), isolated in any::<bool>()) {
        let mut snapshot = cluster();
        snapshot.policies = Arc::new(policies);
        for (at, policy) in Arc::make_mut(&mut snapshot.policies).iter_mut().enumerate() {
            policy.enforcement = Enforcement::Enforce;
            if isolated && at == 0 {
                policy.placement = Placement::Network { isolates_ingress: false, isolates_egress: true };
                policy.egress.iter_mut().for_each(|rule| rule.action = Action::Allow);
            }
        }
        let ((program, _), flows) = (compile(&snapshot), flows(&snapshot));
        let leases = LeaseTable::default();
        let reach = Reach { program: &program, leases: &leases, now: Instant::default() };
        for finding in lint(&snapshot, &program).iter().filter(|finding| finding.code == "forgets-dns") {
            let id = snapshot.workload_ids().find(|id| finding.message.contains(&snapshot.workload_name(*id)));
            let id = id.expect("it names a workload");
            for flow in flows.iter().filter(|flow| flow.from.workload == Some(id)) {
                if flow.to.address.is_some_and(|address| address.is_ipv4()) {
                    let open = reach.egress(&flow.from, &flow.to).open;
                    prop_assert!(!open.contains(Protocol::Udp, 53) && !open.contains(Protocol::Tcp, 53), "{finding}");
                }
            }
        }
    }

    /// Whatever the policies and whatever is known of the cluster: there are findings or there are none.
    #[test]
    fn any_snapshot_is_linted(
        policies in proptest::collection::vec((policy(), 0..7usize, any::<bool>()), 0..5),
        pods in 0..4usize, nodes in any::<bool>(),
    ) {
        let mut snapshot = cluster();
        snapshot.workloads.edit(|all| {
            all.truncate(pods);
            all.iter_mut().for_each(|workload| workload.node = None);
        });
        if !nodes {
            Arc::make_mut(&mut snapshot.nodes).clear();
        }
        for (policy, kind, on_nodes) in policies {
            let (kind, placement) = [
                (PolicyKind::AdminNetworkPolicy, Placement::Admin { priority: 1 }),
                (PolicyKind::ClusterNetworkPolicy, Placement::Baseline { priority: Some(1) }),
                (PolicyKind::BaselineAdminNetworkPolicy, Placement::Baseline { priority: None }),
                (PolicyKind::ClusterEgressFirewall, Placement::ClusterGate { priority: 1 }),
                (PolicyKind::EgressFirewall, Placement::NamespaceGate),
                (PolicyKind::NetworkPolicy, Placement::Network { isolates_ingress: true, isolates_egress: on_nodes }),
                (PolicyKind::NetworkPolicyV1Beta1, Placement::Network { isolates_ingress: false, isolates_egress: false }),
            ][kind];
            let nodes = on_nodes.then(|| Selector::label("zone", "b"));
            let subject = Subject { nodes, ..policy.subject };
            let id = PolicyRef { kind, namespace: Some("elsewhere".into()), name: "p".into() };
            Arc::make_mut(&mut snapshot.policies).push(Policy { id, placement, subject, ..policy });
        }
        let (program, _) = compile(&snapshot);
        lint(&snapshot, &program);
    }
}
