//! Verdicts hold with the rules that the real kube-proxy writes, in its
//! iptables and its nftables form. Every redirector to a denied destination is
//! a way there without a firewall, and none with one, as the core predicts.
//! The sandbox's own translation of Services is taken away here. Connections that
//! such rules have translated are cut by a firewall that comes later (S3.4).

mod api;
#[path = "../common/mod.rs"]
mod common;
mod proxy;

use api::{List, Lists};
use common::{PORT, address, addresses, has_rights, listen_everywhere, nft, probe};
use namewall_dataplane::CutEstablished;
use namewall_policy::addr::Cidr;
use namewall_policy::ask::{Host, Names, Target, World as AskedWorld};
use namewall_policy::labels::Selector;
use namewall_policy::lease::{self, LeaseTable};
use namewall_policy::model::{
    Action, Backend, BackendTarget, Clauses, Enforcement, NamespaceScope, Peer, Peers, Placement, PodSet, Policy,
    PolicyKind, PolicyRef, Ports, Rule, Service, ServiceForm, ServiceId, ServicePort, Subject,
};
use namewall_policy::port::Protocol;
use namewall_policy::{Flow, Prediction, Program, Snapshot, Verdict, compile, evaluate};
use namewall_sandbox::{Cluster, Connection, Measured, Probe, Wanted};
use namewall_testbed::{peer, program};
use proxy::{Form, KubeProxy, Machine, Objects};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Each by both families: two nodes, a pod on each of them, a client and a destination outside.
const N1: [&str; 2] = ["192.0.2.1", "2001:db8:1::1"];
const N2: [&str; 2] = ["192.0.2.2", "2001:db8:1::2"];
const NEAR: [&str; 2] = ["10.0.1.2", "fd00:1::2"];
const FAR: [&str; 2] = ["10.0.2.2", "fd00:2::2"];
const CLIENT: [&str; 2] = ["203.0.113.9", "2001:db8:113::9"];
const DENIED: [&str; 2] = ["198.51.100.7", "2001:db8:ffff::7"];
/// The addresses of the Services.
const CLUSTER: [&str; 2] = ["10.96.0.30", "fd96::30"];
const EXTERNAL: [&str; 2] = ["203.0.113.80", "2001:db8:113::80"];
const BALANCER: [&str; 2] = ["203.0.113.81", "2001:db8:113::81"];
/// One that no node translates.
const PROXIED: [&str; 2] = ["203.0.113.83", "2001:db8:113::83"];
const WEB: [&str; 2] = ["10.96.0.31", "fd96::31"];
const WEB_EXTERNAL: [&str; 2] = ["203.0.113.82", "2001:db8:113::82"];
const PODS: &str = "10.0.0.0/16,fd00::/16";

/// The Service that leads to the denied destination, and one of a pod.
const TUNNEL: ServiceId = ServiceId(0);
/// How long a busy machine may take.
const PATIENCE: Duration = Duration::from_secs(60);
const TUNNEL_PORT: u16 = 30_080;
const WEB_PORT: u16 = 30_081;

fn snapshot() -> Snapshot {
    let cluster = common::Cluster::default().node("n1", &N1).node("n2", &N2);
    let mut snapshot = cluster.pod("shop/near", "n1", &NEAR).pod("shop/far", "n2", &FAR).0;
    let namespace = snapshot.ensure_namespace("shop");
    let services = [
        ("tunnel", [CLUSTER, EXTERNAL, BALANCER, PROXIED].concat(), TUNNEL_PORT, DENIED),
        ("web", [WEB, WEB_EXTERNAL].concat(), WEB_PORT, NEAR),
    ];
    for (name, at, node_port, backends) in services {
        let target = |text: &str| match name {
            "web" => BackendTarget::Workload(namewall_policy::model::WorkloadId(0)),
            _ => BackendTarget::Address(address(text)),
        };
        let mut backends: Vec<Backend> =
            backends.iter().map(|text| Backend { target: target(text), port: PORT }).collect();
        backends.dedup();
        snapshot.services.push(Service {
            namespace,
            name: name.into(),
            form: ServiceForm::Balanced,
            addresses: addresses(&at),
            external: addresses(&at).split_off(CLUSTER.len()),
            proxied: addresses(&at).into_iter().filter(|one| addresses(&PROXIED).contains(one)).collect(),
            ports: vec![ServicePort {
                name: None,
                protocol: Protocol::Tcp,
                port: 80,
                node_port: Some(node_port),
                backends,
            }],
            source: None,
        });
    }
    snapshot
}

/// The same with a firewall for the pods of `shop`.
fn denied() -> Snapshot {
    let mut snapshot = snapshot();
    let network = |text: &str| Peer::Network { cidr: Cidr::host(address(text)), except: Vec::new() };
    let clauses = Clauses::Match { peers: Peers::Listed(DENIED.map(network).to_vec()), ports: Ports::Any };
    let pods = PodSet { namespaces: NamespaceScope::Named("shop".into()), pods: Selector::everything() };
    Arc::make_mut(&mut snapshot.policies).push(Policy {
        id: PolicyRef { kind: PolicyKind::ClusterEgressFirewall, namespace: None, name: "partner".into() },
        placement: Placement::ClusterGate { priority: 5 },
        enforcement: Enforcement::Enforce,
        subject: Subject { pods, nodes: None },
        egress: vec![Rule { name: None, action: Action::Deny, clauses, source: None }],
        ingress: Vec::new(),
        source: None,
    });
    snapshot
}

/// The pod behind `web` lets in one pod of the other node, and no other source.
fn closed() -> Snapshot {
    let mut snapshot = snapshot();
    let network = |text: &str| Peer::Network { cidr: Cidr::host(address(text)), except: Vec::new() };
    let clauses = Clauses::Match { peers: Peers::Listed(FAR.map(network).to_vec()), ports: Ports::Any };
    let pods = PodSet { namespaces: NamespaceScope::Named("shop".into()), pods: Selector::everything() };
    Arc::make_mut(&mut snapshot.policies).push(Policy {
        id: PolicyRef { kind: PolicyKind::NetworkPolicy, namespace: Some("shop".into()), name: "closed".into() },
        placement: Placement::Network { isolates_ingress: true, isolates_egress: false },
        enforcement: Enforcement::Enforce,
        subject: Subject { pods, nodes: None },
        egress: Vec::new(),
        ingress: vec![Rule { name: None, action: Action::Allow, clauses, source: None }],
        source: None,
    });
    snapshot
}

/// The same Services as the API server has them.
fn lists(node: &str) -> Lists {
    let service = |name: &str, kind: &str, at: [&str; 2], node_port: u16| {
        json!({
            "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1"},
            "spec": {
                "type": kind, "clusterIP": at[0], "clusterIPs": at, "ipFamilies": ["IPv4", "IPv6"],
                "externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster",
                "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": PORT, "nodePort": node_port}],
            },
        })
    };
    let mut tunnel = service("tunnel", "LoadBalancer", CLUSTER, TUNNEL_PORT);
    tunnel["spec"]["externalIPs"] = json!(EXTERNAL);
    let ingress =
        [BALANCER.map(|ip| json!({"ip": ip, "ipMode": "VIP"})), PROXIED.map(|ip| json!({"ip": ip, "ipMode": "Proxy"}))];
    tunnel["status"] = json!({"loadBalancer": {"ingress": ingress.concat()}});
    let mut web = service("web", "NodePort", WEB, WEB_PORT);
    web["spec"]["externalIPs"] = json!(WEB_EXTERNAL);
    let slices = [("tunnel", DENIED), ("web", NEAR)];
    let slices = slices.iter().flat_map(|(name, at)| at.map(|address| endpoint_slice(name, address)));
    let addresses = if node == "n1" { N1 } else { N2 };
    let node = json!({
        "metadata": {"name": node, "uid": node, "resourceVersion": "1"},
        "status": {"addresses": addresses.map(|address| json!({"type": "InternalIP", "address": address}))},
    });
    vec![
        List { path: "/api/v1/services", kind: "ServiceList", version: "v1", items: vec![tunnel, web] },
        List {
            path: "/apis/discovery.k8s.io/v1/endpointslices",
            kind: "EndpointSliceList",
            version: "discovery.k8s.io/v1",
            items: slices.collect(),
        },
        List { path: "/api/v1/nodes", kind: "NodeList", version: "v1", items: vec![node] },
        List {
            path: "/apis/networking.k8s.io/v1/servicecidrs",
            kind: "ServiceCIDRList",
            version: "networking.k8s.io/v1",
            items: Vec::new(),
        },
    ]
}

fn endpoint_slice(service: &str, at: &str) -> Value {
    let family = if address(at).is_ipv4() { "IPv4" } else { "IPv6" };
    let name = format!("{service}-{}", family.to_lowercase());
    let mut endpoint = json!({"addresses": [at], "conditions": {"ready": true}});
    if NEAR.contains(&at) {
        // kube-proxy masquerades a hairpin only where it knows that the pod is its node's.
        endpoint["nodeName"] = json!("n1");
    }
    json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": name, "resourceVersion": "1",
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": family,
        "ports": [{"name": "http", "port": PORT, "protocol": "TCP"}],
        "endpoints": [endpoint],
    })
}

/// A cluster whose nodes have kube-proxy's own rules.
struct World {
    name: &'static str,
    cluster: Cluster,
    program: Program,
    _proxies: Vec<KubeProxy>,
}

impl World {
    fn build(name: &'static str, snapshot: &Snapshot, form: Form) -> Self {
        let (program, outside) = (compile(snapshot).0, addresses(&[DENIED, CLIENT].concat()));
        let wanted = Wanted { snapshot, program: &program, outside: &outside, cut: CutEstablished::Always, dns: None };
        let mut cluster = Cluster::build(&wanted, &mut |_| {}).expect("the sandbox is built");
        listen_everywhere(&mut cluster.sandbox, PORT);
        let wanted: Vec<&str> = [CLUSTER, EXTERNAL, BALANCER, WEB, WEB_EXTERNAL, DENIED, NEAR].concat();
        let proxies = [("n1", N1), ("n2", N2)].map(|(name, at)| {
            let node = cluster.sandbox.node(name).expect("a node");
            let machine = Machine { name, address: at[0], pods: PODS };
            KubeProxy::start(node, machine, form, Objects { lists: lists(name), wanted: &wanted, unwanted: &PROXIED })
        });
        Self { name, cluster, program, _proxies: proxies.into() }
    }

    /// Goes on to another state. The sandbox's own translation, which comes with that, is taken away again.
    fn change(&mut self, snapshot: &Snapshot) {
        let (program, outside) = (compile(snapshot).0, addresses(&[DENIED, CLIENT].concat()));
        let wanted = Wanted { snapshot, program: &program, outside: &outside, cut: CutEstablished::Always, dns: None };
        self.cluster.update(&wanted).expect("the change is enforced");
        for node in ["n1", "n2"] {
            nft(self.cluster.sandbox.node(node).expect("a node"), "delete table inet kube-proxy");
        }
        self.program = program;
    }

    /// An open connection on each way.
    fn connect(&self, ways: &[Way]) -> Vec<Connection> {
        let sandbox = &self.cluster.sandbox;
        let connect = |way: &Way| {
            let (place, began) = (sandbox.place(address(way.from)).expect("a place"), Instant::now());
            loop {
                match sandbox.connect(&place, way.to, Protocol::Tcp).expect("it is tried") {
                    Ok(connection) => return connection,
                    Err(found) => assert!(began.elapsed() < PATIENCE, "{}: {found:?}", way.name),
                }
            }
        };
        ways.iter().map(connect).collect()
    }

    /// What packets do on each way, all at once. What should open is tried more often: the machine may be busy.
    fn packets(&self, ways: &[Way], repeats: usize) -> Vec<Measured> {
        let sandbox = &self.cluster.sandbox;
        let probe = |way: &Way| probe(sandbox, way.from, &way.to.to_string(), Protocol::Tcp);
        let probes: Vec<Probe> = ways.iter().map(probe).collect();
        sandbox.probe_patiently(&probes, repeats).expect("the probes go out")
    }

    /// Every way fares as it should, with packets and in the core.
    fn check(&self, ways: &[Way], expected: Verdict) {
        let (measured, repeats) = match expected {
            Verdict::Allow => (Measured::Open, 20),
            Verdict::Deny => (Measured::Silent, 2),
        };
        for (way, packets) in ways.iter().zip(self.packets(ways, repeats)) {
            let (world, way_name) = (self.name, &way.name);
            assert_eq!(self.predicted(way), expected, "{way_name}, {world}");
            assert_eq!(packets, measured, "{way_name}, {world}");
        }
    }

    fn predicted(&self, way: &Way) -> Verdict {
        let (program, to) = (&self.program, way.backend);
        let from = program.endpoint_at(address(way.from));
        let hop = program.hop_at(&from, way.to.ip(), way.to.port());
        let (to, via) = (program.endpoint_at(to), Some(way.service));
        let flow = Flow { from, to, protocol: Protocol::Tcp, port: PORT, via, hop, masker: None };
        evaluate(program, &LeaseTable::default(), &flow, lease::Instant::default()).verdict
    }

    /// What the offline commands say of the way as users write it, and what packets do.
    fn compare(&self, snapshot: &Snapshot, ways: &[Way]) -> Vec<(Prediction, Measured)> {
        let (leases, names) = (LeaseTable::default(), Names::default());
        let domain = "cluster.local".parse().expect("a name");
        let (program, now) = (&self.program, lease::Instant::default());
        let asked = AskedWorld { snapshot, program, leases: &leases, names: &names, cluster_domain: &domain, now };
        let predict = |way: &Way| {
            let target =
                Target { host: Host::Address(way.to.ip()), protocol: Protocol::Tcp, port: Some(way.to.port()) };
            let routes = asked.routes(&Host::Address(address(way.from)), &target).expect("it leads somewhere");
            asked.predict(&routes)
        };
        ways.iter().map(predict).zip(self.packets(ways, 3)).collect()
    }
}

/// A connection to a Service.
struct Way {
    name: String,
    from: &'static str,
    to: SocketAddr,
    service: ServiceId,
    backend: IpAddr,
}

/// Every redirector to the denied destination, from a pod and from outside.
fn redirectors() -> Vec<Way> {
    let ways = [
        ("ClusterIP, from a pod", NEAR, CLUSTER, 80),
        ("external IP, from a pod", NEAR, EXTERNAL, 80),
        ("load-balancer IP, from a pod", NEAR, BALANCER, 80),
        ("NodePort of its own node, from a pod", NEAR, N1, TUNNEL_PORT),
        ("NodePort of another node, from a pod", FAR, N1, TUNNEL_PORT),
        ("NodePort of another node, from a pod of the first", NEAR, N2, TUNNEL_PORT),
        ("NodePort, from outside", CLIENT, N1, TUNNEL_PORT),
        ("NodePort of the second node, from outside", CLIENT, N2, TUNNEL_PORT),
        ("external IP, from outside", CLIENT, EXTERNAL, 80),
        ("load-balancer IP, from outside", CLIENT, BALANCER, 80),
    ];
    by_family(&ways, TUNNEL, DENIED)
}

/// Ways to a pod, which no rule forbids.
fn to_a_pod() -> Vec<Way> {
    let ways = [
        ("hairpin", NEAR, WEB, 80),
        ("ClusterIP of a pod, from another node", FAR, WEB, 80),
        ("NodePort of a pod, from outside", CLIENT, N1, WEB_PORT),
    ];
    by_family(&ways, ServiceId(1), NEAR)
}

/// Ways to a pod that lets in one pod of another node. Where kube-proxy puts a node's address in the place of that
/// pod's, the pod's node cannot tell who it is.
fn to_a_closed_pod() -> Vec<(Drawn, Prediction, Measured)> {
    vec![
        (("ClusterIP", FAR, WEB, 80), Prediction::Allow, Measured::Open),
        (("NodePort of its own node", FAR, N2, WEB_PORT), Prediction::Depends, Measured::Silent),
        (("NodePort of the pod's node", FAR, N1, WEB_PORT), Prediction::Depends, Measured::Open),
        (("external IP", FAR, WEB_EXTERNAL, 80), Prediction::Depends, Measured::Silent),
        (("NodePort of the second node, from outside", CLIENT, N2, WEB_PORT), Prediction::Deny, Measured::Silent),
        (("external IP, from outside", CLIENT, WEB_EXTERNAL, 80), Prediction::Deny, Measured::Silent),
    ]
}

/// Ways by a load balancer that no node translates: what offline says, and what packets do, without a firewall and with
/// one. From outside, the load balancer decides whether it comes by a node; in the sandbox it does.
fn by_a_proxy() -> Vec<(Drawn, [(Prediction, Measured); 2])> {
    let open = (Prediction::Allow, Measured::Open);
    vec![
        (("mode Proxy, from a pod", NEAR, PROXIED, 80), [open, (Prediction::Deny, Measured::Silent)]),
        (("mode Proxy, from a pod of the second node", FAR, PROXIED, 80), [open, (Prediction::Deny, Measured::Silent)]),
        (("mode Proxy, from outside", CLIENT, PROXIED, 80), [open, (Prediction::Depends, Measured::Silent)]),
    ]
}

type Drawn = (&'static str, [&'static str; 2], [&'static str; 2], u16);

fn by_family(ways: &[Drawn], service: ServiceId, backend: [&'static str; 2]) -> Vec<Way> {
    let mut all = Vec::new();
    for (at, family) in ["IPv4", "IPv6"].into_iter().enumerate() {
        all.extend(ways.iter().map(|&(name, from, to, port)| Way {
            name: format!("{name}, {family}"),
            from: from[at],
            to: SocketAddr::new(address(to[at]), port),
            service,
            backend: address(backend[at]),
        }));
    }
    all
}

#[track_caller]
fn check(form: Form) {
    if !has_rights() {
        return;
    }
    peer("kubernetes");
    ["nft", "iptables-save", "ip6tables-save"].iter().for_each(|name| drop(program(name)));
    let free = World::build("without a firewall", &snapshot(), form);
    let firewalled = World::build("with a firewall", &denied(), form);
    free.check(&redirectors(), Verdict::Allow);
    firewalled.check(&redirectors(), Verdict::Deny);
    free.check(&to_a_pod(), Verdict::Allow);
    firewalled.check(&to_a_pod(), Verdict::Allow);
    let (drawn, expected): (Vec<Drawn>, Vec<[(Prediction, Measured); 2]>) = by_a_proxy().into_iter().unzip();
    let ways = by_family(&drawn, TUNNEL, DENIED);
    for (at, (world, snapshot)) in [(&free, snapshot()), (&firewalled, denied())].into_iter().enumerate() {
        for ((way, found), expected) in ways.iter().zip(world.compare(&snapshot, &ways)).zip(expected.iter().cycle()) {
            assert_eq!(found, expected[at], "{}, {}", way.name, world.name);
        }
    }
}

/// A connection that a policy denies later is cut, whoever opened it and whatever source address kube-proxy gave it.
#[track_caller]
fn check_cut(form: Form) {
    if !has_rights() {
        return;
    }
    peer("kubernetes");
    let mut world = World::build("with a firewall that comes later", &snapshot(), form);
    let (denied_ways, others) = (redirectors(), to_a_pod());
    let (mut cut, mut kept) = (world.connect(&denied_ways), world.connect(&others));
    world.change(&denied());
    for (way, connection) in denied_ways.iter().zip(&mut cut) {
        assert!(connection.is_reset(PATIENCE), "{} is not cut", way.name);
    }
    for (way, connection) in others.iter().zip(&mut kept) {
        assert!(connection.alive(PATIENCE).expect("it is tried"), "{} is cut", way.name);
    }
}

#[test]
fn s3_4_connections_that_kube_proxy_has_translated_by_iptables_are_cut() {
    check_cut(Form::Iptables);
}

#[test]
fn s3_4_connections_that_kube_proxy_has_translated_by_nftables_are_cut() {
    check_cut(Form::Nftables);
}

/// S1.11: offline says *depends* wherever kube-proxy may hide a pod that is let in, and never the wrong thing.
#[track_caller]
fn check_masked(form: Form) {
    if !has_rights() {
        return;
    }
    peer("kubernetes");
    let snapshot = closed();
    let world = World::build("with a closed pod", &snapshot, form);
    let (drawn, expected): (Vec<Drawn>, Vec<(Prediction, Measured)>) =
        to_a_closed_pod().into_iter().map(|(way, predicted, measured)| (way, (predicted, measured))).unzip();
    let ways = by_family(&drawn, ServiceId(1), NEAR);
    for ((way, found), expected) in ways.iter().zip(world.compare(&snapshot, &ways)).zip(expected.iter().cycle()) {
        assert_eq!(found, *expected, "{}", way.name);
    }
}

#[test]
fn s1_11_offline_knows_that_kube_proxy_may_replace_the_source_with_iptables() {
    check_masked(Form::Iptables);
}

#[test]
fn s1_11_offline_knows_that_kube_proxy_may_replace_the_source_with_nftables() {
    check_masked(Form::Nftables);
}

#[test]
fn s7_4_denied_with_the_rules_of_kube_proxy_for_iptables() {
    check(Form::Iptables);
}

#[test]
fn s7_4_denied_with_the_rules_of_kube_proxy_for_nftables() {
    check(Form::Nftables);
}
