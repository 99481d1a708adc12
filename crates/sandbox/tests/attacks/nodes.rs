//! A pod tries every address that its node answers for, on interfaces that no
//! Node object tells of, and at local routes. A plain rule has the addresses that
//! the Node object lists; namewall has those that the node's kernel tells.

use crate::common::{self, addresses, nft, run_in};
use crate::{DEADLINE, SILENCE};
use namewall_dataplane::CutEstablished;
use namewall_dataplane::netlink::Addresses;
use namewall_policy::addr::is_own_to_each_machine;
use namewall_policy::labels::Selector;
use namewall_policy::model::{
    Action, Clauses, Enforcement, Peer, Peers, Placement, PodSet, Policy, PolicyKind, PolicyRef, Ports, Rule, Subject,
};
use namewall_policy::{Snapshot, compile};
use namewall_sandbox::{Cluster, Namespace, Wanted};
use namewall_testbed::program;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PORT: u16 = 9100;
const LISTED: [&str; 2] = ["192.0.2.1", "fd00:99::1"];
const POD: [&str; 2] = ["10.244.1.10", "fd00:1::10"];
/// Interfaces with addresses. IPv6 does not answer for addresses of an interface that is down.
const MORE: [(&str, &str, &str, &[&str]); 3] = [
    ("spare", "bridge", "down", &["192.0.2.99"]),
    ("second", "bridge", "up", &["192.0.2.98", "fd00:99::98"]),
    ("br9", "bridge", "up", &["10.99.0.1", "fd00:99::97"]),
];
/// Routes of type `local`, and the addresses of each that are tried. No interface has them.
const LOCAL_ROUTES: [(&str, &[&str]); 4] = [
    ("198.18.7.7/32", &["198.18.7.7"]),
    ("198.18.8.0/26", &["198.18.8.0", "198.18.8.9", "198.18.8.63"]),
    ("fd00:97::7/128", &["fd00:97::7"]),
    ("fd00:98::10/124", &["fd00:98::10", "fd00:98::1f"]),
];

fn snapshot(node: &[&str]) -> Snapshot {
    common::Cluster::default().node("n1", node).pod("shop/attacker", "n1", &POD).0
}

/// No pod reaches a node.
fn denied(node: &[&str]) -> Snapshot {
    let mut snapshot = snapshot(node);
    let clauses = Clauses::Match { peers: Peers::Listed(vec![Peer::Nodes(Selector::default())]), ports: Ports::Any };
    Arc::make_mut(&mut snapshot.policies).push(Policy {
        id: PolicyRef { kind: PolicyKind::ClusterEgressFirewall, namespace: None, name: "no-nodes".into() },
        placement: Placement::ClusterGate { priority: 0 },
        enforcement: Enforcement::Enforce,
        subject: Subject { pods: PodSet::all(), nodes: None },
        egress: vec![Rule { name: None, action: Action::Deny, clauses, source: None }],
        ingress: Vec::new(),
        source: None,
    });
    snapshot
}

/// A cluster whose node has more interfaces, and listens everywhere.
struct World {
    cluster: Cluster,
    _listeners: [TcpListener; 2],
}

impl World {
    fn build(snapshot: &Snapshot) -> Self {
        let program = compile(snapshot).0;
        let cut = CutEstablished::Always;
        let wanted = Wanted { snapshot, program: &program, outside: &[], cut, dns: None };
        let cluster = Cluster::build(&wanted, &mut |_| {}).expect("the sandbox is built");
        let node = cluster.sandbox.node("n1").expect("the node");
        for (name, kind, state, at) in MORE {
            ip(node, &["link", "add", name, "type", kind]);
            if state == "up" {
                ip(node, &["link", "set", name, "up"]);
            }
            for address in at {
                let length = if address.contains(':') { 128 } else { 32 };
                let mut words = vec!["address", "add", "dev", name];
                let with_length = format!("{address}/{length}");
                words.push(&with_length);
                // A bridge without ports has no carrier, and would wait with its addresses.
                words.extend(address.contains(':').then_some("nodad"));
                ip(node, &words);
            }
        }
        for (block, _) in LOCAL_ROUTES {
            let version = if block.contains(':') { "-6" } else { "-4" };
            ip(node, &[version, "route", "add", "local", block, "dev", "lo"]);
        }
        let listen = || {
            let v6 = TcpListener::bind(("::", PORT)).expect("a listener of both versions");
            // Where IPv6 sockets are not for IPv4, too.
            let v4 = TcpListener::bind(("0.0.0.0", PORT)).or_else(|_| v6.try_clone()).expect("a listener");
            [v4, v6]
        };
        let listeners = node.enter(listen).expect("in the node");
        Self { cluster, _listeners: listeners }
    }

    fn node(&self) -> &Namespace {
        self.cluster.sandbox.node("n1").expect("the node")
    }

    /// Those of the addresses at which a connection opens within this time. All are tried at once.
    fn open(&self, all: &[IpAddr], within: Duration) -> Vec<IpAddr> {
        std::thread::scope(|scope| {
            let attempts: Vec<_> = all.iter().map(|&to| (to, scope.spawn(move || self.opens(to, within)))).collect();
            let opened = attempts.into_iter().filter_map(|(to, attempt)| attempt.join().expect("a try").then_some(to));
            opened.collect()
        })
    }

    /// Whether a connection opens within this time.
    fn opens(&self, to: IpAddr, within: Duration) -> bool {
        let pod = self.cluster.sandbox.pod("shop/attacker").expect("the pod");
        let connect = || TcpStream::connect_timeout(&SocketAddr::new(to, PORT), within).is_ok();
        let began = Instant::now();
        loop {
            if pod.enter(connect).expect("in the pod") {
                return true;
            }
            if began.elapsed() >= within {
                return false;
            }
        }
    }
}

fn ip(node: &Namespace, words: &[&str]) {
    run_in(node, Command::new(program("ip")).args(words));
}

fn attacked() -> Vec<IpAddr> {
    let of_interfaces = MORE.iter().flat_map(|(.., at)| addresses(at));
    of_interfaces.chain(LOCAL_ROUTES.iter().flat_map(|(_, at)| addresses(at))).collect()
}

#[test]
fn s7_2_no_address_that_a_node_answers_for_is_left_open() {
    if !common::has_rights() {
        return;
    }
    let (listed, attacked) = (addresses(&LISTED), attacked());
    let all = [listed.clone(), attacked.clone()].concat();
    let nothing = Vec::<IpAddr>::new();
    let plain = World::build(&snapshot(&LISTED));
    assert_eq!(plain.open(&all, DEADLINE), all, "these are open before there is a rule");
    for (family, pod, node) in [("ip", POD[0], LISTED[0]), ("ip6", POD[1], LISTED[1])] {
        nft(
            plain.node(),
            &format!(
                "add table {family} plain; \
                 add chain {family} plain input {{ type filter hook input priority 0; }}; \
                 add rule {family} plain input {family} saddr {pod} {family} daddr {node} drop"
            ),
        );
    }
    assert_eq!(plain.open(&listed, SILENCE), nothing, "the plain rule is in force");
    assert_eq!(plain.open(&attacked, DEADLINE), attacked, "the others are no attack at all");
    drop(plain);

    let mut world = World::build(&snapshot(&LISTED));
    let learned = world.node().enter(|| Addresses::open().and_then(|mut all| all.read())).expect("in the node");
    let learned = learned.expect("the node's kernel tells its addresses").listed;
    let learned: Vec<String> =
        learned.iter().filter(|address| !is_own_to_each_machine(**address)).map(ToString::to_string).collect();
    let texts: Vec<&str> = learned.iter().map(String::as_str).collect();
    let mut enforce = |snapshot: &Snapshot, within: Duration| {
        let program = compile(snapshot).0;
        let cut = CutEstablished::Always;
        let wanted = Wanted { snapshot, program: &program, outside: &[], cut, dns: None };
        world.cluster.update(&wanted).expect("the node enforces what it has learned");
        world.open(&all, within)
    };
    // Without a policy all of them can be reached, so that a closed one is closed by the policy.
    assert_eq!(enforce(&snapshot(&texts), DEADLINE), all, "these are open before there is a policy");
    assert_eq!(enforce(&denied(&texts), SILENCE), nothing, "these are open");
}
