//! S1.11: what one node passes on for a client on another is judged like a
//! connection from outside, whether or not the client's node has put its own
//! address in the place of the pod's. And S3.4: such a connection that exists is
//! cut by a policy that comes later.

mod common;

use common::{PORT, address, addresses, has_rights, listen_everywhere, probe, route_like};
use namewall_dataplane::CutEstablished;
use namewall_policy::addr::Cidr;
use namewall_policy::labels::Selector;
use namewall_policy::lease::{Instant, LeaseTable};
use namewall_policy::model::{
    Action, Backend, BackendTarget, Clauses, Enforcement, NamespaceScope, Peer, Peers, Placement, PodSet, Policy,
    PolicyKind, PolicyRef, Ports, Rule, Service, ServiceForm, ServiceId, ServicePort, Subject,
};
use namewall_policy::port::Protocol;
use namewall_policy::{Flow, Snapshot, Verdict, compile, evaluate};
use namewall_sandbox::{Cluster, Connection, Measured, Probe, Wanted};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

const NODE_PORT: u16 = 30_080;
/// Each by both families: the node that is asked, another, a pod on each of the two, a pod of other tenants on the
/// other node, and who is denied.
const ASKED: [&str; 2] = ["192.0.2.1", "2001:db8:1::1"];
const OTHER: [&str; 2] = ["192.0.2.2", "2001:db8:1::2"];
const NEAR: [&str; 2] = ["10.0.1.2", "fd00:1::2"];
const FAR: [&str; 2] = ["10.0.2.2", "fd00:2::2"];
const STRANGER: [&str; 2] = ["10.0.2.3", "fd00:2::3"];
const DENIED: [&str; 2] = ["198.51.100.7", "2001:db8:ffff::7"];
/// Services that lead to the denied destination: one whose addresses another node translates too, as an external or a
/// load balancer's address is; one with that as its endpoint; and one with the second as its endpoint.
const OUT: [&str; 2] = ["203.0.113.51", "2001:db8:51::51"];
const CHAINED: [&str; 2] = ["10.96.0.43", "fd96::43"];
const TWICE: [&str; 2] = ["10.96.0.44", "fd96::44"];

/// A Service of `shop` that leads to the destination that is to be denied.
fn snapshot() -> Snapshot {
    let cluster = common::Cluster::default().node("n1", &ASKED).node("n2", &OTHER);
    let cluster =
        cluster.pod("shop/near", "n1", &NEAR).pod("shop/far", "n2", &FAR).pod("lab/stranger", "n2", &STRANGER);
    let mut snapshot = cluster.0;
    let namespace = snapshot.ensure_namespace("shop");
    let backend = |text: &str| Backend { target: BackendTarget::Address(address(text)), port: PORT };
    snapshot.services.push(Service {
        namespace,
        name: "tunnel".into(),
        form: ServiceForm::Balanced,
        addresses: addresses(&["10.96.0.30", "fd96::30"]),
        external: Vec::new(),
        proxied: Vec::new(),
        ports: vec![ServicePort {
            name: None,
            protocol: Protocol::Tcp,
            port: 80,
            node_port: Some(NODE_PORT),
            backends: DENIED.map(backend).to_vec(),
        }],
        source: None,
    });
    snapshot
}

/// The same with Services that lead to Services.
fn with_chains(mut snapshot: Snapshot) -> Snapshot {
    let namespace = snapshot.ensure_namespace("shop");
    for (name, at, to, port) in
        [("out", OUT, DENIED, PORT), ("chained", CHAINED, OUT, 80), ("twice", TWICE, CHAINED, 80)]
    {
        let backend = |text: &str| Backend { target: BackendTarget::Address(address(text)), port };
        let backends = to.map(backend).to_vec();
        snapshot.services.push(Service {
            namespace,
            name: name.into(),
            form: ServiceForm::Balanced,
            addresses: addresses(&at),
            external: Vec::new(),
            proxied: Vec::new(),
            ports: vec![ServicePort { name: None, protocol: Protocol::Tcp, port: 80, node_port: None, backends }],
            source: None,
        });
    }
    snapshot
}

/// The two kinds of gates.
const KINDS: [PolicyKind; 2] = [PolicyKind::ClusterEgressFirewall, PolicyKind::EgressFirewall];

/// The same with a firewall for the pods of a namespace.
fn denied(kind: PolicyKind, whose: &str) -> Snapshot {
    let mut snapshot = snapshot();
    let network = |text: &str| Peer::Network { cidr: Cidr::host(address(text)), except: Vec::new() };
    let clauses = Clauses::Match { peers: Peers::Listed(DENIED.map(network).to_vec()), ports: Ports::Any };
    let pods = PodSet { namespaces: NamespaceScope::Named(whose.into()), pods: Selector::everything() };
    let (placement, namespace) = match kind {
        PolicyKind::EgressFirewall => (Placement::NamespaceGate, Some(whose.into())),
        _ => (Placement::ClusterGate { priority: 5 }, None),
    };
    Arc::make_mut(&mut snapshot.policies).push(Policy {
        id: PolicyRef { kind, namespace, name: "default".into() },
        placement,
        enforcement: Enforcement::Enforce,
        subject: Subject { pods, nodes: None },
        egress: vec![Rule { name: None, action: Action::Deny, clauses, source: None }],
        ingress: Vec::new(),
        source: None,
    });
    snapshot
}

/// The same with pods of `shop` that may open no connection.
fn isolated() -> Snapshot {
    let mut snapshot = snapshot();
    let pods = PodSet { namespaces: NamespaceScope::Named("shop".into()), pods: Selector::everything() };
    Arc::make_mut(&mut snapshot.policies).push(Policy {
        id: PolicyRef { kind: PolicyKind::NetworkPolicy, namespace: Some("shop".into()), name: "closed".into() },
        placement: Placement::Network { isolates_ingress: false, isolates_egress: true },
        enforcement: Enforcement::Enforce,
        subject: Subject { pods, nodes: None },
        egress: Vec::new(),
        ingress: Vec::new(),
        source: None,
    });
    snapshot
}

fn with_program<T>(snapshot: &Snapshot, does: impl FnOnce(&Wanted<'_>) -> T) -> T {
    let (program, outside) = (compile(snapshot).0, addresses(&DENIED));
    does(&Wanted { snapshot, program: &program, outside: &outside, cut: CutEstablished::Always, dns: None })
}

fn build(snapshot: &Snapshot) -> Cluster {
    let built = with_program(snapshot, |wanted| Cluster::build(wanted, &mut |_| {}));
    let mut cluster = built.expect("the sandbox is built");
    listen_everywhere(&mut cluster.sandbox, PORT);
    cluster
}

/// What packets do from each address to the node port of the node that is asked, of the same family. What should open
/// is tried more often: the machine may be busy.
#[track_caller]
fn expect_packets(cluster: &Cluster, sources: &[&str], expected: Measured) {
    let sandbox = &cluster.sandbox;
    let probe = |from: &&str| probe(sandbox, from, &asked(from).to_string(), Protocol::Tcp);
    let probes: Vec<Probe> = sources.iter().map(probe).collect();
    let repeats = if expected == Measured::Open { 20 } else { 2 };
    let measured = sandbox.probe_patiently(&probes, repeats).expect("the probes go out");
    for (from, measured) in sources.iter().zip(measured) {
        assert_eq!(measured, expected, "{from}");
    }
}

fn asked(from: &str) -> SocketAddr {
    SocketAddr::new(of_family(&ASKED, from), NODE_PORT)
}

fn of_family(both: &[&str; 2], like: &str) -> IpAddr {
    address(if address(like).is_ipv4() { both[0] } else { both[1] })
}

/// What is predicted of the same.
fn predicted(snapshot: &Snapshot, from: &str) -> Verdict {
    predicted_at(snapshot, from, asked(from), Protocol::Tcp)
}

/// What is predicted of a connection to the denied destination, by whatever is asked.
fn predicted_at(snapshot: &Snapshot, from: &str, asked: SocketAddr, protocol: Protocol) -> Verdict {
    let program = compile(snapshot).0;
    let to = program.endpoint_at(of_family(&DENIED, from));
    let from = program.endpoint_at(address(from));
    let hop = program.hop_at(&from, asked.ip(), asked.port());
    let via = (Some(asked.ip()) != to.address).then_some(ServiceId(0));
    let flow = Flow { from, to, protocol, port: PORT, via, hop, masker: None };
    evaluate(&program, &LeaseTable::default(), &flow, Instant::default()).verdict
}

#[track_caller]
fn check(masquerades: bool, kind: PolicyKind) {
    let (open, closed) = (snapshot(), denied(kind, "shop"));
    let (mut free, mut firewalled) = (build(&open), build(&closed));
    if masquerades {
        free.masquerade().expect("the nodes masquerade");
        firewalled.masquerade().expect("the nodes masquerade");
    }
    let sources = [FAR, STRANGER, OTHER, NEAR].concat();
    for from in &sources {
        assert_eq!(predicted(&open, from), Verdict::Allow, "{from}");
        assert_eq!(predicted(&closed, from), Verdict::Deny, "{from} with {kind:?}");
    }
    // It is a way there.
    expect_packets(&free, &sources, Measured::Open);
    expect_packets(&firewalled, &sources, Measured::Silent);
    // S7.6: what the node itself opens is not blocked.
    for from in ASKED {
        assert_eq!(predicted(&closed, from), Verdict::Allow, "{from} with {kind:?}");
    }
    expect_packets(&firewalled, &ASKED, Measured::Open);
}

#[test]
fn s1_11_passed_on_for_a_client_whose_node_masquerades() {
    if has_rights() {
        KINDS.into_iter().for_each(|kind| check(true, kind));
    }
}

#[test]
fn s1_11_passed_on_for_a_client_that_is_seen_as_it_is() {
    if has_rights() {
        KINDS.into_iter().for_each(|kind| check(false, kind));
    }
}

/// Only the client's own firewall denies the destination. The Service is of another tenant, without a firewall, so
/// nobody but the client's own node can tell that the connection is denied.
#[track_caller]
fn check_own_gate(masquerades: bool) {
    let closed = denied(PolicyKind::ClusterEgressFirewall, "lab");
    let mut firewalled = build(&closed);
    if masquerades {
        firewalled.masquerade().expect("the nodes masquerade");
    }
    let others = [FAR, OTHER, NEAR].concat();
    for from in &others {
        assert_eq!(predicted(&closed, from), Verdict::Allow, "{from}");
    }
    for from in STRANGER {
        assert_eq!(predicted(&closed, from), Verdict::Deny, "{from}");
    }
    expect_packets(&firewalled, &others, Measured::Open);
    expect_packets(&firewalled, &STRANGER, Measured::Silent);
}

#[test]
fn s1_11_the_clients_own_gate_counts_if_its_node_masquerades() {
    if has_rights() {
        check_own_gate(true);
    }
}

#[test]
fn s1_11_the_clients_own_gate_counts_for_a_client_that_is_seen_as_it_is() {
    if has_rights() {
        check_own_gate(false);
    }
}

/// A pod asks a Service whose endpoint is an address of another Service. The pod's own node translates the first one, and
/// the other node the second one, by which time the pod's address may be gone.
#[track_caller]
fn check_chain(masquerades: bool) {
    let build_chained = |snapshot: &Snapshot| {
        let mut cluster = build(snapshot);
        if masquerades {
            cluster.masquerade().expect("the nodes masquerade");
        }
        for (to, node) in CHAINED.into_iter().zip(ASKED) {
            route_like(cluster.sandbox.outside(), to, node);
        }
        cluster
    };
    let (open, closed) = (with_chains(snapshot()), with_chains(denied(PolicyKind::ClusterEgressFirewall, "lab")));
    let (free, firewalled) = (build_chained(&open), build_chained(&closed));
    let measure = |cluster: &Cluster, from: &str, to: &[&str; 2], expected: Measured| {
        let sandbox = &cluster.sandbox;
        // By one step the other node translates last; by two, the client's own does.
        let index = usize::from(!address(from).is_ipv4());
        let towards = if *to == TWICE { OTHER } else { ASKED };
        route_like(sandbox.outside(), OUT[index], towards[index]);
        let to = SocketAddr::new(of_family(to, from), 80);
        let probes = [probe(sandbox, from, &to.to_string(), Protocol::Tcp)];
        let repeats = if expected == Measured::Open { 20 } else { 2 };
        let measured = sandbox.probe_patiently(&probes, repeats).expect("the probe goes out");
        assert_eq!(measured, [expected], "{from} to {to}");
    };
    for to in [OUT, CHAINED, TWICE] {
        for (far, stranger) in FAR.into_iter().zip(STRANGER) {
            measure(&free, stranger, &to, Measured::Open);
            measure(&firewalled, far, &to, Measured::Open);
            measure(&firewalled, stranger, &to, Measured::Silent);
        }
    }
}

#[test]
fn s7_4_a_service_that_leads_to_a_service_stays_closed_if_nodes_masquerade() {
    if has_rights() {
        check_chain(true);
    }
}

#[test]
fn s7_4_a_service_that_leads_to_a_service_stays_closed_for_a_client_that_is_seen_as_it_is() {
    if has_rights() {
        check_chain(false);
    }
}

/// How long a busy machine may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A way to the denied destination on which a connection is open when a policy comes.
#[derive(Clone, Copy, Debug)]
struct Way {
    from: &'static str,
    asked: SocketAddr,
    protocol: Protocol,
}

/// Every way there, over both versions of IP: directly, by the node port of the pod's own node and of another one, and by
/// the Service; of pods of both namespaces, and of nodes.
fn ways() -> Vec<Way> {
    let mut ways = Vec::new();
    for at in 0..2 {
        let (direct, service) = (address(DENIED[at]), address(["10.96.0.30", "fd96::30"][at]));
        let node_port = SocketAddr::new(address(ASKED[at]), NODE_PORT);
        let mut add = |from, asked, protocol| ways.push(Way { from, asked, protocol });
        for from in [NEAR[at], FAR[at], STRANGER[at]] {
            add(from, SocketAddr::new(direct, PORT), Protocol::Tcp);
            add(from, SocketAddr::new(direct, PORT), Protocol::Udp);
            add(from, SocketAddr::new(service, 80), Protocol::Tcp);
            add(from, node_port, Protocol::Tcp);
        }
        add(OTHER[at], node_port, Protocol::Tcp);
        add(ASKED[at], node_port, Protocol::Tcp);
    }
    ways
}

fn connect(cluster: &Cluster, way: &Way) -> Connection {
    let began = std::time::Instant::now();
    let place = cluster.sandbox.place(address(way.from)).expect("a place");
    loop {
        match cluster.sandbox.connect(&place, way.asked, way.protocol).expect("it is tried") {
            Ok(connection) => return connection,
            Err(measured) => assert!(began.elapsed() < PATIENCE, "{way:?} does not open: {measured:?}"),
        }
    }
}

/// Of the connections that are open, a policy that comes cuts those that it denies, and no other.
#[track_caller]
fn check_cut(masquerades: bool) {
    let ways = ways();
    let policies = [
        ("a ClusterEgressFirewall", denied(PolicyKind::ClusterEgressFirewall, "shop")),
        ("an EgressFirewall", denied(PolicyKind::EgressFirewall, "shop")),
        ("a ClusterEgressFirewall of other pods", denied(PolicyKind::ClusterEgressFirewall, "lab")),
        ("a NetworkPolicy", isolated()),
    ];
    for (policy, closed) in policies {
        let mut cluster = build(&snapshot());
        if masquerades {
            cluster.masquerade().expect("the nodes masquerade");
        }
        let mut connections: Vec<Connection> = ways.iter().map(|way| connect(&cluster, way)).collect();
        with_program(&closed, |wanted| cluster.update(wanted)).expect("the policy comes");
        let is_denied = |way: &Way| predicted_at(&closed, way.from, way.asked, way.protocol) == Verdict::Deny;
        let denied = ways.iter().filter(|way| is_denied(way)).count();
        assert!(denied > 0 && denied < ways.len(), "{policy} denies {denied}");
        for (way, connection) in ways.iter().zip(&mut connections) {
            if !is_denied(way) {
                assert!(connection.alive(PATIENCE).expect("it is tried"), "{way:?} is cut by {policy}");
            } else if way.protocol == Protocol::Tcp {
                assert!(connection.is_reset(PATIENCE), "{way:?} is not cut by {policy}");
            }
        }
        // What is left are connections that nobody resets.
        let is_silent = |way: &Way| is_denied(way) && way.protocol == Protocol::Udp;
        let (silent, mut connections): (Vec<&Way>, Vec<Connection>) =
            ways.iter().zip(connections).filter(|(way, _)| is_silent(way)).unzip();
        // The far end may send to the pod itself, and begins a flow of its own. It may not begin one to the node's address
        // and be heard by the pod.
        if let Some(connection) = connections.first_mut().filter(|_| masquerades) {
            assert!(!cluster.sandbox.hears_far_end(connection), "{:?}: the far end is heard after {policy}", silent[0]);
        }
        let alive = Connection::all_alive(&mut connections, cluster.sandbox.timeout).expect("they are tried");
        let alive: Vec<&Way> = silent.into_iter().zip(alive).filter_map(|(way, alive)| alive.then_some(way)).collect();
        assert!(alive.is_empty(), "not cut by {policy}: {alive:?}");
    }
}

#[test]
fn s3_4_connections_of_pods_whose_node_masquerades_are_cut_by_a_policy_that_comes_later() {
    if has_rights() {
        check_cut(true);
    }
}

#[test]
fn s3_4_translated_connections_are_cut_by_a_policy_that_comes_later() {
    if has_rights() {
        check_cut(false);
    }
}
