//! A pod puts a packet into a tunnel of a node. The node takes out what is
//! inside, with a source that no guard has seen: that of a pod of another node,
//! which may reach an isolated pod. No right is needed to send UDP to an overlay
//! port.
//!
//! ```text
//! attacker ─► node:8472 [ from friend to victim ] ─► the node unwraps it ─► victim
//! ```
//! Every way is first shown to come through while namewall enforces the policies
//! and the node has a tunnel that namewall does not know yet.

use crate::common::{self, address, addresses, route_like, run_in};
use crate::frame::{Ends, Mac, behind_options, frame, kind_of, udp, vxlan};
use crate::world::{at, link, mac_in, packet_socket};
use crate::{AGAIN, DEADLINE, SILENCE};
use namewall_dataplane::{CutEstablished, Tunnels};
use namewall_policy::labels::Selector;
use namewall_policy::model::{
    Action, Backend, BackendTarget, Clauses, Enforcement, NamespaceScope, Peer, Peers, Placement, PodSet, Policy,
    PolicyKind, PolicyRef, Ports, Rule, Service, ServiceForm, ServicePort, Subject,
};
use namewall_policy::port::Protocol;
use namewall_policy::{Snapshot, compile};
use namewall_sandbox::{Cluster, Namespace, Sandbox, Wanted, Wiring, gateway_of};
use namewall_testbed::program;
use nix::sys::socket::{MsgFlags, SockProtocol, SockaddrStorage, recv, sendto};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Instant;

const PORT: u16 = 9200;
/// A device with a network of its own, and one that takes every network and both versions of IP.
const FLANNEL: u16 = 8472;
const EXTERNAL: u16 = 4789;
const NETWORK: u8 = 42;
const TUNNEL_MAC: Mac = [2, 0, 0, 0, 0, 0x42];
/// What friends and the attacker say directly. No way has these numbers.
const FRIENDS_NONCE: u64 = u64::MAX;
const ATTACKERS_NONCE: u64 = u64::MAX - 1;
const SERVICE_PORT: u16 = 7000;
const NODE_PORT: u16 = 30_472;

const NODES: [[&str; 2]; 2] = [["192.0.2.1", "fd00:99::1"], ["192.0.2.2", "fd00:99::2"]];
const ATTACKER: [&str; 2] = ["10.244.1.10", "fd00:1::10"];
/// An isolated pod of each node, and a pod of the other node that may reach it.
const VICTIMS: [[&str; 2]; 2] = [["10.244.1.20", "fd00:1::20"], ["10.244.2.20", "fd00:2::20"]];
const FRIENDS: [[&str; 2]; 2] = [["10.244.2.30", "fd00:2::30"], ["10.244.1.30", "fd00:1::30"]];
const OUTSIDE: [&str; 2] = ["198.51.100.7", "2001:db8::7"];
/// Services that lead to the tunnel of each node.
const SERVICES: [&str; 2] = ["10.96.0.41", "10.96.0.42"];

fn snapshot() -> Snapshot {
    let cluster = common::Cluster::default().node("n1", &NODES[0]).node("n2", &NODES[1]);
    let cluster = cluster.pod("shop/attacker", "n1", &ATTACKER);
    let cluster = cluster.pod("shop/victim-0", "n1", &VICTIMS[0]).pod("shop/victim-1", "n2", &VICTIMS[1]);
    let cluster = cluster.pod("trusted/friend-0", "n2", &FRIENDS[0]).pod("trusted/friend-1", "n1", &FRIENDS[1]);
    let mut snapshot = cluster.0;
    let in_namespace =
        |name: &str| PodSet { namespaces: NamespaceScope::Named(name.into()), pods: Selector::default() };
    let peers = Peers::Listed(vec![Peer::Pods(in_namespace("trusted"))]);
    let clauses = Clauses::Match { peers, ports: Ports::Any };
    Arc::make_mut(&mut snapshot.policies).push(Policy {
        id: PolicyRef { kind: PolicyKind::NetworkPolicy, namespace: Some("shop".into()), name: "closed".into() },
        placement: Placement::Network { isolates_ingress: true, isolates_egress: false },
        enforcement: Enforcement::Enforce,
        subject: Subject { pods: in_namespace("shop"), nodes: None },
        egress: Vec::new(),
        ingress: vec![Rule { name: None, action: Action::Allow, clauses, source: None }],
        source: None,
    });
    let namespace = snapshot.ensure_namespace("shop");
    for (node, service) in SERVICES.into_iter().enumerate() {
        let backend = Backend { target: BackendTarget::Address(address(NODES[node][0])), port: FLANNEL };
        snapshot.services.push(Service {
            namespace,
            name: format!("tunnel-{node}").into(),
            form: ServiceForm::Balanced,
            addresses: addresses(&[service]),
            external: Vec::new(),
            proxied: Vec::new(),
            ports: vec![ServicePort {
                name: None,
                protocol: Protocol::Udp,
                port: SERVICE_PORT,
                node_port: Some(NODE_PORT + node as u16),
                backends: vec![backend],
            }],
            source: None,
        });
    }
    snapshot
}

/// A way into a tunnel.
struct Way {
    name: String,
    /// Whose tunnel it is.
    node: usize,
    to: SocketAddr,
    /// The version of the packet inside.
    carries_v4: bool,
    /// True if the datagram comes in fragments.
    is_large: bool,
}

impl Way {
    /// What the datagram has in it.
    fn payload(&self, nonce: u64) -> Vec<u8> {
        let index = usize::from(!self.carries_v4);
        let (from, to) = (address(FRIENDS[self.node][index]), address(VICTIMS[self.node][index]));
        let mut data = vec![0; if self.is_large { 1400 } else { 0 }];
        data.extend(nonce.to_be_bytes());
        let inside = udp(at(from, 7), at(to, PORT), &data);
        let ends = Ends { from: [2, 0, 0, 0, 0, 0x43], to: TUNNEL_MAC };
        vxlan(NETWORK, &frame(ends, &[], kind_of(to), &inside))
    }
}

fn ways(wiring: Wiring) -> Vec<Way> {
    let mut ways = Vec::new();
    let mut add = |name: String, node: usize, to: SocketAddr| {
        for carries_v4 in [true, false] {
            let inside = if carries_v4 { "IPv4" } else { "IPv6" };
            let name = format!("{name}, {inside} inside");
            ways.push(Way { name: name.clone(), node, to, carries_v4, is_large: false });
            ways.push(Way { name: format!("{name}, in fragments"), node, to, carries_v4, is_large: true });
        }
    };
    for (node, name) in [(0, "its own node"), (1, "another node")] {
        for port in [FLANNEL, EXTERNAL] {
            add(format!("{name} at port {port}"), node, at(address(NODES[node][0]), port));
        }
        add(format!("{name} over IPv6"), node, at(address(NODES[node][1]), EXTERNAL));
        add(format!("a Service that leads to {name}"), node, at(address(SERVICES[node]), SERVICE_PORT));
        for asked in [0, 1] {
            let port = NODE_PORT + node as u16;
            let at_node = at(address(NODES[asked][0]), port);
            add(format!("a node port of n{} that leads to {name}", asked + 1), node, at_node);
        }
    }
    add("every host of the link".to_owned(), 0, at(address("224.0.0.1"), FLANNEL));
    if wiring == Wiring::Bridged {
        for (node, pod) in [(0, ATTACKER), (1, VICTIMS[1])] {
            add(format!("the bridge of n{}", node + 1), node, at(gateway_of(address(pod[0])), FLANNEL));
            add(format!("the bridge of n{} over IPv6", node + 1), node, at(gateway_of(address(pod[1])), EXTERNAL));
        }
        add("the broadcast address of the bridge".to_owned(), 0, at(address("10.244.1.255"), FLANNEL));
    }
    ways
}

struct World {
    cluster: Cluster,
    wiring: Wiring,
    /// What the victims have heard.
    ears: Vec<UdpSocket>,
}

fn listen(namespace: &Namespace, to: IpAddr, port: u16) -> UdpSocket {
    let open = || {
        let socket = UdpSocket::bind((to, port)).expect("a socket");
        socket.set_nonblocking(true).expect("a socket that does not wait");
        socket
    };
    namespace.enter(open).expect("in its namespace")
}

fn drain(ears: &[UdpSocket], heard: &mut BTreeSet<u64>) {
    let mut buffer = [0; 2048];
    for ear in ears {
        while let Ok(length) = ear.recv(&mut buffer) {
            heard.extend(buffer[..length].last_chunk().map(|nonce| u64::from_be_bytes(*nonce)));
        }
    }
}

fn listen_to_victims(sandbox: &Sandbox) -> Vec<UdpSocket> {
    let pod = |name: &str| sandbox.pod(name).expect("the pod");
    let victims = [pod("shop/victim-0"), pod("shop/victim-1")];
    victims.iter().zip(VICTIMS).flat_map(|(pod, at)| at.map(|at| listen(pod, address(at), PORT))).collect()
}

fn add_tunnels(sandbox: &Sandbox) {
    for (name, [v4, _]) in ["n1", "n2"].into_iter().zip(NODES) {
        let node = sandbox.node(name).expect("the node");
        let mac = TUNNEL_MAC.map(|byte| format!("{byte:02x}")).join(":");
        let ip = |text: String| run_in(node, Command::new(program("ip")).args(text.split_whitespace()));
        ip(format!("link add flannel.1 address {mac} type vxlan id {NETWORK} dstport {FLANNEL} local {v4} nolearning"));
        ip(format!("link add external address {mac} type vxlan external dstport {EXTERNAL}"));
        for device in ["flannel.1", "external"] {
            ip(format!("link set {device} up"));
        }
    }
}

impl World {
    fn build(wiring: Wiring) -> Self {
        let (snapshot, outside) = (snapshot(), addresses(&OUTSIDE));
        let program = compile(&snapshot).0;
        let cut = CutEstablished::Always;
        let wanted = Wanted { snapshot: &snapshot, program: &program, outside: &outside, cut, dns: None };
        let cluster = Cluster::build_wired(&wanted, wiring, &mut |_| {}).expect("a cluster");
        if wiring == Wiring::Bridged {
            for (to, node) in VICTIMS[1].into_iter().zip(NODES[1]) {
                route_like(cluster.sandbox.outside(), &gateway_of(address(to)).to_string(), node);
            }
        }
        Self { ears: listen_to_victims(&cluster.sandbox), cluster, wiring }
    }

    /// The nodes get tunnels, as a network plugin makes them. Namewall is not told.
    fn add_tunnels(&self) {
        add_tunnels(&self.cluster.sandbox);
    }

    /// Namewall learns what its nodes' kernels tell.
    fn update(&mut self) {
        let (snapshot, outside) = (snapshot(), addresses(&OUTSIDE));
        let mut learned = snapshot.clone();
        // An agent also knows the addresses of its node's bridge.
        if self.wiring == Wiring::Bridged {
            for (node, pod) in [ATTACKER, VICTIMS[1]].iter().enumerate() {
                let nodes = Arc::make_mut(&mut learned.nodes);
                nodes[node].addresses.extend(pod.iter().map(|pod| gateway_of(address(pod))));
            }
        }
        let program = compile(&learned).0;
        let cut = CutEstablished::Always;
        let wanted = Wanted { snapshot: &snapshot, program: &program, outside: &outside, cut, dns: None };
        self.cluster.update(&wanted).expect("the change is enforced");
    }

    /// The names of the ways that lead to a victim, for who is at this address. Where all should, they are repeated
    /// until they do.
    fn play<'w>(&self, from: &Namespace, ways: &'w [Way], all_should: bool) -> BTreeSet<&'w str> {
        let (mut heard, began) = (BTreeSet::new(), Instant::now());
        drain(&self.ears, &mut BTreeSet::new());
        loop {
            let send = || {
                let sockets = ["0.0.0.0:0", "[::]:0"].map(|any| UdpSocket::bind(any).expect("a socket"));
                sockets[0].set_broadcast(true).expect("broadcast");
                for (number, way) in ways.iter().enumerate().filter(|(number, _)| !heard.contains(&(*number as u64))) {
                    let socket = &sockets[usize::from(way.to.is_ipv6())];
                    // A wire may be full for a moment, and an attacker tries again.
                    let _ = socket.send_to(&way.payload(number as u64), way.to);
                }
            };
            from.enter(send).expect("in its namespace");
            sleep(if all_should { AGAIN } else { SILENCE });
            drain(&self.ears, &mut heard);
            // What was said directly may come late.
            heard.retain(|number| *number < ways.len() as u64);
            if !all_should || heard.len() == ways.len() || began.elapsed() > DEADLINE {
                return heard.iter().map(|number| ways[*number as usize].name.as_str()).collect();
            }
        }
    }

    /// What the victims have heard once all of them have heard their friends, while the attacker speaks to them as well.
    fn hears_directly(&self, attacker: &Namespace) -> BTreeSet<u64> {
        let (mut heard, began) = (vec![BTreeSet::new(); self.ears.len()], Instant::now());
        let victims = (0..VICTIMS.len()).flat_map(|node| VICTIMS[node].map(|to| (node, at(address(to), PORT))));
        let victims: Vec<(usize, SocketAddr)> = victims.collect();
        let say = |from: &Namespace, to: SocketAddr, nonce: u64| {
            let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let _ = from
                .enter(|| UdpSocket::bind(any).expect("a socket").send_to(&nonce.to_be_bytes(), to))
                .expect("in its namespace");
        };
        loop {
            for &(node, to) in &victims {
                say(attacker, to, ATTACKERS_NONCE);
                say(self.pod(&format!("trusted/friend-{node}")), to, FRIENDS_NONCE);
            }
            let all_hear = heard.iter().all(|heard| heard.contains(&FRIENDS_NONCE));
            sleep(if all_hear { SILENCE } else { AGAIN });
            for (ear, heard) in self.ears.iter().zip(&mut heard) {
                drain(std::slice::from_ref(ear), heard);
            }
            if all_hear {
                return heard.into_iter().flatten().collect();
            }
            assert!(began.elapsed() < DEADLINE, "the victims do not hear their friends: {heard:?}");
        }
    }

    fn pod(&self, name: &str) -> &Namespace {
        self.cluster.sandbox.pod(name).expect("the pod")
    }

    /// Waits until a datagram from here arrives there.
    fn arrives(&self, from: &Namespace, to: SocketAddr, ear: &UdpSocket) -> bool {
        let (mut heard, began) = (BTreeSet::new(), Instant::now());
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let send = || {
            let socket = UdpSocket::bind(any).expect("a socket");
            let _ = socket.send_to(&u64::MAX.to_be_bytes(), to);
        };
        while !heard.contains(&u64::MAX) && began.elapsed() < DEADLINE {
            from.enter(send).expect("in its namespace");
            sleep(AGAIN);
            drain(std::slice::from_ref(ear), &mut heard);
        }
        heard.contains(&u64::MAX)
    }
}

#[track_caller]
fn check(wiring: Wiring, masquerades: bool) {
    let ways = ways(wiring);
    let names: BTreeSet<&str> = ways.iter().map(|way| way.name.as_str()).collect();
    assert_eq!(names.len(), ways.len(), "every way has a name of its own");
    let mut world = World::build(wiring);
    if masquerades {
        world.cluster.masquerade().expect("the nodes masquerade");
    }
    world.add_tunnels();
    let attacker = world.cluster.sandbox.pod("shop/attacker").expect("the pod").clone();
    assert_eq!(world.hears_directly(&attacker), BTreeSet::from([FRIENDS_NONCE]), "a policy denies the direct way");
    let open = world.play(&attacker, &ways, true);
    let harmless: Vec<&str> = names.difference(&open).copied().collect();
    assert_eq!(harmless, Vec::<&str>::new(), "no attack at all");

    world.update();
    world.cluster.denials().expect("the log is read");
    assert_eq!(world.play(&attacker, &ways, false), BTreeSet::new(), "these come through");
    let why = "overlay port or tunnel protocol of a node, where no pod may send";
    let denials = world.cluster.denials().expect("the log is read");
    assert!(denials.iter().any(|denied| denied.rule == why), "{denials:?}");
    let counts = world.cluster.counts().expect("rules count");
    assert!(counts[why].packets >= ways.len() as u64 / 2, "{counts:?}");

    // The nodes themselves speak by the tunnels, each with the other.
    let plain = |way: &Way| NODES.iter().flatten().any(|node| address(node) == way.to.ip()) && way.to.port() < 10_000;
    let by_nodes: Vec<Way> = ways_of(wiring, |way| plain(way) && way.node == 0);
    let node = world.cluster.sandbox.node("n2").expect("the node").clone();
    assert_eq!(world.play(&node, &by_nodes, true).len(), by_nodes.len(), "nodes use their tunnels");
    // And a pod may run a tunnel of its own, to another pod and to the outside.
    for (to, ear) in [(FRIENDS[1], world.pod("trusted/friend-1")), (OUTSIDE, world.cluster.sandbox.outside())] {
        for to in to.map(address) {
            let ear = listen(ear, to, FLANNEL);
            assert!(world.arrives(&attacker, at(to, FLANNEL), &ear), "a pod's own tunnel to {to}");
        }
    }
}

fn ways_of(wiring: Wiring, is_meant: impl Fn(&Way) -> bool) -> Vec<Way> {
    ways(wiring).into_iter().filter(is_meant).collect()
}

#[test]
fn s1_9_no_pod_puts_packets_into_the_tunnels_of_nodes() {
    if common::has_rights() {
        check(Wiring::Routed, false);
    }
}

#[test]
fn s1_9_no_pod_on_a_bridge_puts_packets_into_the_tunnels_of_nodes() {
    if common::has_rights() {
        check(Wiring::Bridged, false);
    }
}

#[test]
fn s1_9_no_pod_whose_node_masquerades_puts_packets_into_the_tunnels_of_nodes() {
    if common::has_rights() {
        check(Wiring::Routed, true);
    }
}

/// The protocols of GRE, of IPv4 and of IPv6 inside IP, where a raw socket of the node stands for the tunnel.
#[test]
fn s1_9_no_pod_sends_packets_of_tunnel_protocols_to_nodes() {
    if !common::has_rights() {
        return;
    }
    let protocols = [(4, ipproto::IPIP), (41, ipproto::IPV6), (47, ipproto::GRE)];
    let raw = |namespace: &Namespace, is_v4: bool, protocol| -> OwnedFd {
        let family = if is_v4 { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let opened = namespace.enter(|| socket_with(family, SocketType::RAW, flags, Some(protocol)));
        opened.expect("in its namespace").expect("a raw socket")
    };
    let mut world = World::build(Wiring::Routed);
    let attacker = world.cluster.sandbox.pod("shop/attacker").expect("the pod").clone();
    let nodes = ["n1", "n2"].map(|name| world.cluster.sandbox.node(name).expect("the node").clone());
    let mut ways: BTreeMap<String, (OwnedFd, OwnedFd, SocketAddr)> = BTreeMap::new();
    for (node, at_node) in nodes.iter().zip(NODES) {
        for to in at_node.map(address) {
            for (number, protocol) in protocols {
                let (send, ear) = (raw(&attacker, to.is_ipv4(), protocol), raw(node, to.is_ipv4(), protocol));
                ways.insert(format!("protocol {number} to {to}"), (send, ear, SocketAddr::new(to, 0)));
            }
        }
    }
    let try_all = |mark: u64| -> BTreeSet<&str> {
        for (send, _, to) in ways.values() {
            let _ = sendto(send.as_raw_fd(), &mark.to_be_bytes(), &SockaddrStorage::from(*to), MsgFlags::empty());
        }
        sleep(SILENCE);
        let mut buffer = [0; 2048];
        let mut hears = |ear: &OwnedFd| {
            let mut found = false;
            while let Ok(length) = recv(ear.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                found |= buffer[..length].ends_with(&mark.to_be_bytes());
            }
            found
        };
        ways.iter().filter(|(_, (_, ear, _))| hears(ear)).map(|(name, _)| name.as_str()).collect()
    };
    let (mut open, began) = (BTreeSet::new(), Instant::now());
    while open.len() < ways.len() {
        assert!(began.elapsed() < DEADLINE, "no attack at all; only {open:?}");
        open.extend(try_all(1));
    }
    world
        .cluster
        .add_tunnels(Tunnels { ports: BTreeSet::new(), protocols: protocols.map(|(number, _)| number).into() });
    world.update();
    assert_eq!(try_all(2), BTreeSet::new(), "these come through");
}

/// Datagrams of a pod with rights of its own: from other sources than its own, and behind a header of options.
fn forged(sandbox: &Sandbox) -> Vec<(String, Vec<u8>)> {
    let node = mac_in(sandbox.node("n1").expect("the node"), "cni0");
    let ends = Ends { from: mac_in(sandbox.pod("shop/attacker").expect("the pod"), "eth0"), to: node };
    let (own, gateway) = (ATTACKER.map(address), ATTACKER.map(address).map(gateway_of));
    let sources = [
        ("its own address", own),
        ("another pod's address", FRIENDS[1].map(address)),
        ("the address of a pod of another node", FRIENDS[0].map(address)),
        ("nobody's address in the bridge's network", ["10.244.1.77", "fd00:1::77"].map(address)),
        ("the address of another node", NODES[1].map(address)),
        ("the node's address on the bridge", gateway),
        ("an address outside", ["203.0.113.9", "2001:db8:9::9"].map(address)),
    ];
    let mut frames: Vec<(String, Vec<u8>)> = Vec::new();
    for (of, source) in sources {
        for (index, from) in source.into_iter().enumerate() {
            let to = address(NODES[0][index]);
            // A kernel takes nothing from its own address.
            if from == gateway[index] {
                continue;
            }
            let way = Way { name: String::new(), node: 0, to: at(to, EXTERNAL), carries_v4: true, is_large: false };
            let packet = |nonce: usize| udp(at(from, 7), way.to, &way.payload(nonce as u64));
            let sent = packet(frames.len());
            frames.push((format!("from {of} to {to}"), frame(ends, &[], kind_of(to), &sent)));
            if to.is_ipv6() {
                let hidden = behind_options(packet(frames.len()));
                frames.push((format!("from {of} to {to}, behind options"), frame(ends, &[], kind_of(to), &hidden)));
            }
        }
    }
    frames
}

fn play_forged(sandbox: &Sandbox, ears: &[UdpSocket], frames: &[(String, Vec<u8>)], all_should: bool) -> Vec<String> {
    let (mut heard, began) = (BTreeSet::new(), Instant::now());
    loop {
        let send = || {
            let (socket, eth0) = (packet_socket(SockProtocol::Raw), link("eth0"));
            for (_, frame) in frames {
                let _ = sendto(socket.as_raw_fd(), frame, &eth0, MsgFlags::empty());
            }
        };
        sandbox.pod("shop/attacker").expect("the pod").enter(send).expect("in the pod");
        sleep(if all_should { AGAIN } else { SILENCE });
        drain(ears, &mut heard);
        if !all_should || heard.len() == frames.len() || began.elapsed() > DEADLINE {
            return heard.into_iter().map(|number| frames[number as usize].0.clone()).collect();
        }
    }
}

/// Whether or not it is known which interface is whose.
#[test]
fn s1_9_no_forged_source_leads_into_the_tunnels_of_nodes() {
    if !common::has_rights() {
        return;
    }
    let (snapshot, outside) = (snapshot(), addresses(&OUTSIDE));
    let plain = Sandbox::build_wired(&snapshot, &outside, Wiring::Bridged, &mut |_| {}).expect("a sandbox");
    add_tunnels(&plain);
    let (ears, frames) = (listen_to_victims(&plain), forged(&plain));
    assert_eq!(play_forged(&plain, &ears, &frames, true).len(), frames.len(), "no attack at all");
    drop(plain);
    for knows_interfaces in [true, false] {
        let mut world = World::build(Wiring::Bridged);
        world.add_tunnels();
        if !knows_interfaces {
            world.cluster.forget_interfaces();
        }
        world.update();
        let frames = forged(&world.cluster.sandbox);
        let open = play_forged(&world.cluster.sandbox, &world.ears, &frames, false);
        assert_eq!(open, Vec::<String>::new(), "these come through; interfaces are known: {knows_interfaces}");
    }
}
