//! The cluster that is attacked, and who listens in it.
//!
//! ```text
//! attacker, victim   shop     may send nothing; victim hears what `trusted` sends
//! friend             trusted  no policies
//! open               open     no policies
//! free               free     no policies, and may reach nodes; all others may not
//! ```

use crate::common::nft;
use crate::frame::Mac;
use namewall_dataplane::CutEstablished;
use namewall_dataplane::guard::link_local;
use namewall_dataplane::nft::put_table;
use namewall_dataplane::nft::rule::{Action as Do, End, Hardware, Rule, Test};
use namewall_dataplane::nft::table::{Chain, Fallback, Hook, HookKind, Point, Table};
use namewall_policy::labels::{Labels, Selector};
use namewall_policy::model::{
    Action, Clauses, Enforcement, NamespaceScope, Node, Peer, Peers, Placement, PodSet, Policy, PolicyKind, PolicyRef,
    Ports, Role, Rule as PolicyRule, Subject, Workload,
};
use namewall_policy::{Snapshot, compile};
use namewall_sandbox::{Cluster, Namespace, Sandbox, Wanted, Wiring, gateway_of};
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recv, sendto, setsockopt, socket,
    sockopt,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

pub(crate) const PORT: u16 = 9000;
/// At every loopback address of the node, it leads to the node's own service at another one.
pub(crate) const LOOPBACK_NODE_PORT: u16 = 30_090;
/// The friend sends from here, and has a connection with the victim and with the server outside.
pub(crate) const FRIENDS_PORT: u16 = 5000;
const LENGTH: usize = 8;
pub(crate) type Nonce = u64;

/// The addresses of a pod.
#[derive(Clone, Copy)]
pub(crate) struct Host {
    pub(crate) name: &'static str,
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
}

const fn pod(name: &'static str, last: u8) -> Host {
    let (v4, v6) = (Ipv4Addr::new(10, 244, 1, last), Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, last as u16));
    Host { name, v4, v6 }
}

impl Host {
    pub(crate) fn at(&self, is_ipv4: bool) -> IpAddr {
        if is_ipv4 { self.v4.into() } else { self.v6.into() }
    }
}

pub(crate) const ATTACKER: Host = pod("shop/attacker", 10);
pub(crate) const VICTIM: Host = pod("shop/victim", 20);
pub(crate) const FRIEND: Host = pod("trusted/friend", 30);
pub(crate) const OPEN: Host = pod("open/open", 40);
pub(crate) const FREE: Host = pod("free/free", 50);
/// An address of the pod network that no pod has.
pub(crate) const UNUSED: Host = pod("", 77);
const PODS: [Host; 5] = [ATTACKER, VICTIM, FRIEND, OPEN, FREE];
pub(crate) const NODE: Host =
    Host { name: "n1", v4: Ipv4Addr::new(192, 0, 2, 1), v6: Ipv6Addr::new(0xfd00, 99, 0, 0, 0, 0, 0, 1) };
pub(crate) const SERVER: Host =
    Host { name: "outside", v4: Ipv4Addr::new(198, 51, 100, 7), v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7) };

/// Which addresses the cluster has. Its kernels have IPv6 in any case, as on real nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Families {
    Both,
    V4,
}

impl Families {
    /// For each version of IP that the cluster has, whether it is IPv4.
    fn all(self) -> &'static [bool] {
        match self {
            Self::Both => &[true, false],
            Self::V4 => &[true],
        }
    }

    fn of(self, host: Host) -> impl Iterator<Item = IpAddr> {
        self.all().iter().map(move |&is_ipv4| host.at(is_ipv4))
    }
}

/// What an agent learns from its node, and no manifest says.
#[derive(Default)]
struct Learned {
    /// The node's addresses on its bridge.
    node: BTreeSet<IpAddr>,
    /// Link-local addresses of pods, by name.
    pods: BTreeMap<&'static str, IpAddr>,
}

fn snapshot(families: Families, learned: &Learned) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let mut addresses: Vec<IpAddr> = families.of(NODE).collect();
    addresses.extend(&learned.node);
    snapshot.add_node(Node { name: NODE.name.into(), labels: Labels::default(), addresses, source: None });
    for pod in PODS {
        let (namespace, name) = pod.name.split_once('/').expect("NAMESPACE/NAME");
        let namespace = snapshot.ensure_namespace(namespace);
        let node = Some(snapshot.ensure_node(NODE.name));
        let workload = snapshot.new_pod(Role { namespace, labels: Labels::default(), host_network: false }, name);
        let addresses = families.of(pod).chain(learned.pods.get(pod.name).copied());
        snapshot.add_workload(Workload { addresses: addresses.collect(), node, ..workload });
    }
    let in_namespace =
        |name: &str| PodSet { namespaces: NamespaceScope::Named(name.into()), pods: Selector::default() };
    let rule = |action, peers| PolicyRule {
        name: None,
        action,
        clauses: Clauses::Match { peers: Peers::Listed(vec![peers]), ports: Ports::Any },
        source: None,
    };
    let policies = Arc::make_mut(&mut snapshot.policies);
    policies.push(Policy {
        id: PolicyRef { kind: PolicyKind::NetworkPolicy, namespace: Some("shop".into()), name: "closed".into() },
        placement: Placement::Network { isolates_ingress: true, isolates_egress: true },
        enforcement: Enforcement::Enforce,
        subject: Subject { pods: in_namespace("shop"), nodes: None },
        egress: Vec::new(),
        ingress: vec![rule(Action::Allow, Peer::Pods(in_namespace("trusted")))],
        source: None,
    });
    policies.extend(["shop", "trusted", "open"].map(|whose| Policy {
        id: PolicyRef {
            kind: PolicyKind::ClusterEgressFirewall,
            namespace: None,
            name: format!("no-nodes-for-{whose}").into(),
        },
        placement: Placement::ClusterGate { priority: 0 },
        enforcement: Enforcement::Enforce,
        subject: Subject { pods: in_namespace(whose), nodes: None },
        egress: vec![rule(Action::Deny, Peer::Nodes(Selector::default()))],
        ingress: Vec::new(),
        source: None,
    }));
    snapshot
}

/// What stands between the pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Firewall {
    /// What an administrator would write first: `-s ATTACKER -d VICTIM -j DROP`, and the same for nodes and the rest.
    Plain,
    Namewall,
    /// The same where nobody knows which interface is whose.
    Unknowing,
}

enum Held {
    Plain(Box<Sandbox>),
    Namewall(Box<Cluster>),
}

pub(crate) struct World {
    held: Held,
    pub(crate) wiring: Wiring,
    pub(crate) families: Families,
    ears: Vec<(Ear, Vec<Listener>)>,
    connected: Vec<UdpSocket>,
}

/// Who may hear of an attack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ear {
    Victim,
    Friend,
    Open,
    Node,
    Outside,
    /// Every frame that reaches a pod, whatever it makes of it.
    VictimsWire,
    AttackersWire,
}

impl Ear {
    pub(crate) const ALL: [Self; 7] =
        [Self::Victim, Self::Friend, Self::Open, Self::Node, Self::Outside, Self::VictimsWire, Self::AttackersWire];
}

enum Listener {
    Udp(UdpSocket),
    Wire(OwnedFd),
}

impl Listener {
    fn udp(address: IpAddr, port: u16) -> Self {
        let socket = UdpSocket::bind((address, port)).expect("a socket");
        socket.set_nonblocking(true).expect("a socket that does not wait");
        Self::Udp(socket)
    }

    /// What it has heard: the end of each message, where a nonce stands.
    fn drain(&self, heard: &mut BTreeSet<Nonce>) {
        let mut buffer = [0; 2048];
        loop {
            let length = match self {
                Self::Udp(socket) => socket.recv(&mut buffer).ok(),
                Self::Wire(socket) => recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT).ok(),
            };
            let Some(length) = length else { return };
            if let Some(nonce) = buffer[..length].last_chunk::<LENGTH>() {
                heard.insert(Nonce::from_be_bytes(*nonce));
            }
        }
    }
}

impl World {
    pub(crate) fn build(firewall: Firewall, wiring: Wiring) -> Self {
        Self::build_of(firewall, wiring, Families::Both)
    }

    pub(crate) fn build_of(firewall: Firewall, wiring: Wiring, families: Families) -> Self {
        let outside: Vec<IpAddr> = families.of(SERVER).collect();
        let cluster = Plan { families, outside: &outside, wiring };
        let snapshot = snapshot(families, &Learned::default());
        let held = match firewall {
            Firewall::Plain => {
                let sandbox = Sandbox::build_wired(&snapshot, &outside, wiring, &mut |_| {}).expect("a sandbox");
                let node = sandbox.node(NODE.name).expect("the node").clone();
                node.enter(|| put_table("plain", &plain_rules())).expect("in the node").expect("a table");
                Held::Plain(Box::new(sandbox))
            }
            Firewall::Namewall => Held::Namewall(Box::new(guarded(&snapshot, cluster))),
            Firewall::Unknowing => Held::Namewall(Box::new(unknowing(&snapshot, cluster))),
        };
        let mut world = Self { held, wiring, families, ears: Vec::new(), connected: Vec::new() };
        world.serve_on_loopback();
        world.follow_source_routes();
        world.listen();
        world
    }

    pub(crate) fn sandbox(&self) -> &Sandbox {
        match &self.held {
            Held::Plain(sandbox) => sandbox,
            Held::Namewall(cluster) => &cluster.sandbox,
        }
    }

    pub(crate) fn namespace(&self, host: Host) -> &Arc<Namespace> {
        let found = match host.name {
            "n1" => self.sandbox().node("n1"),
            "outside" => Some(self.sandbox().outside()),
            pod => self.sandbox().pod(pod),
        };
        found.expect("it was built")
    }

    /// Node ports on loopback, as kube-proxy's iptables mode has them.
    fn serve_on_loopback(&self) {
        let node = self.namespace(NODE);
        let allow = || std::fs::write("/proc/sys/net/ipv4/conf/all/route_localnet", "1");
        node.enter(allow).expect("in the node").expect("the setting can be written");
        nft(
            node,
            &format!(
                "add table ip loopback; \
                 add chain ip loopback node-ports {{ type nat hook prerouting priority dstnat; }}; \
                 add rule ip loopback node-ports ip daddr 127.0.0.0/8 udp dport {LOOPBACK_NODE_PORT} dnat to 127.0.0.2:{PORT}"
            ),
        );
    }

    /// Kernels do not follow source routes by default, and some administrators let them.
    fn follow_source_routes(&self) {
        for host in [NODE, VICTIM] {
            let allow = || std::fs::write("/proc/sys/net/ipv4/conf/all/accept_source_route", "1");
            self.namespace(host).enter(allow).expect("in its namespace").expect("the setting can be written");
        }
    }

    fn listen(&mut self) {
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let hosts = [
            (Ear::Victim, VICTIM, PORT),
            (Ear::Open, OPEN, PORT),
            (Ear::Node, NODE, PORT),
            (Ear::Outside, SERVER, PORT),
        ];
        let mut ears = Vec::new();
        for (ear, host, port) in hosts {
            let open = || {
                let v4 = Listener::udp(any[0], port);
                let Listener::Udp(v6) = udp_v6_only(port) else { unreachable!("it is UDP") };
                vec![v4, Listener::Udp(v6)]
            };
            ears.push((ear, self.namespace(host).enter(open).expect("in its namespace")));
        }
        for (ear, host) in [(Ear::VictimsWire, VICTIM), (Ear::AttackersWire, ATTACKER)] {
            let open = || vec![Listener::Wire(packet_socket(SockProtocol::EthAll))];
            ears.push((ear, self.namespace(host).enter(open).expect("in its namespace")));
        }
        // The friend's connections, so that its own port is where answers are expected.
        let friends = || {
            let open = |at: IpAddr| {
                let socket = UdpSocket::bind((at, FRIENDS_PORT)).expect("the friend's socket");
                socket.set_nonblocking(true).expect("a socket that does not wait");
                socket
            };
            self.families.of(FRIEND).map(open).collect::<Vec<_>>()
        };
        let friends = self.namespace(FRIEND).enter(friends).expect("in its namespace");
        let clones = friends.iter().map(|socket| Listener::Udp(socket.try_clone().expect("another handle"))).collect();
        ears.push((Ear::Friend, clones));
        self.connected = friends;
        self.ears = ears;
    }

    /// The friend speaks to the victim and to the server outside, which opens connections for both.
    pub(crate) fn friend_speaks(&self, nonce: Nonce) {
        for (socket, &is_ipv4) in self.connected.iter().zip(self.families.all()) {
            for to in [VICTIM, SERVER] {
                let _ = socket.send_to(&nonce.to_be_bytes(), (to.at(is_ipv4), PORT));
            }
        }
    }

    /// To each ear, those speak who may, over each version of IP that the cluster has: `of` says what, by whether it is
    /// IPv4. The server outside answers in the friend's own connection.
    pub(crate) fn speak_to_all(&self, of: impl Fn(bool) -> Nonce) {
        for (socket, &is_ipv4) in self.connected.iter().zip(self.families.all()) {
            for to in [VICTIM, SERVER, OPEN] {
                let _ = socket.send_to(&of(is_ipv4).to_be_bytes(), (to.at(is_ipv4), PORT));
            }
            self.say(FREE, at(NODE.at(is_ipv4), PORT), of(is_ipv4));
            // A node may always reach its own pods.
            self.say(NODE, at(ATTACKER.at(is_ipv4), PORT), of(is_ipv4));
        }
        let outside = self.ears.iter().filter(|(ear, _)| *ear == Ear::Outside).flat_map(|(_, listeners)| listeners);
        for listener in outside {
            let Listener::Udp(socket) = listener else { continue };
            let is_ipv4 = socket.local_addr().expect("it is bound").is_ipv4();
            // Over a version that the cluster does not have, the friend has no address.
            let _ = socket.send_to(&of(is_ipv4).to_be_bytes(), (FRIEND.at(is_ipv4), FRIENDS_PORT));
        }
    }

    /// The versions of IP that the cluster has: for each whether it is IPv4.
    pub(crate) fn versions(&self) -> &'static [bool] {
        self.families.all()
    }

    /// A datagram of an honest socket.
    pub(crate) fn say(&self, host: Host, to: SocketAddr, nonce: Nonce) {
        let any = if to.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
        let send = || UdpSocket::bind((any, 0)).and_then(|socket| socket.send_to(&nonce.to_be_bytes(), to));
        let _ = self.namespace(host).enter(send).expect("in its namespace");
    }

    pub(crate) fn hear(&self, ear: Ear) -> BTreeSet<Nonce> {
        let mut heard = BTreeSet::new();
        let ears = self.ears.iter().filter(|(one, _)| *one == ear).flat_map(|(_, listeners)| listeners);
        ears.for_each(|listener| listener.drain(&mut heard));
        heard
    }

    /// Puts a frame on the pod's wire.
    pub(crate) fn send(&self, from: Host, frame: &[u8]) {
        let send = || {
            let socket = packet_socket(SockProtocol::Raw);
            let eth0 = link("eth0");
            // A wire may be full for a moment, and an attacker tries again.
            let _ = sendto(socket.as_raw_fd(), frame, &eth0, MsgFlags::empty());
        };
        self.namespace(from).enter(send).expect("in its namespace");
    }

    pub(crate) fn mac(&self, host: Host) -> Mac {
        mac_in(self.namespace(host), if host.name == "n1" { "cni0" } else { "eth0" })
    }

    /// The hardware address of the node, as a pod sees it.
    pub(crate) fn hop_of(&self, pod: Host) -> Mac {
        match self.wiring {
            Wiring::Routed => self.mac(pod),
            Wiring::Bridged => self.mac(NODE),
        }
    }

    /// Where frames go that are not for a neighbour.
    pub(crate) fn next_hop(&self, to: Host) -> Mac {
        let is_pod = PODS.iter().any(|pod| pod.name == to.name);
        match self.wiring {
            // Both ends of every link have one hardware address.
            Wiring::Routed => self.mac(ATTACKER),
            Wiring::Bridged if is_pod => self.mac(to),
            Wiring::Bridged => self.mac(NODE),
        }
    }

    /// The link-local address of a pod, or of the node on its bridge or on its pods' links.
    pub(crate) fn link_local(&self, host: Host) -> Ipv6Addr {
        if host.name != NODE.name || self.wiring == Wiring::Bridged {
            return link_local(Hardware(self.mac(host)));
        }
        let read = || getifaddrs().expect("interfaces").filter_map(|one| one.address).collect::<Vec<_>>();
        let all = self.namespace(NODE).enter(read).expect("in the node");
        let mut v6 = all.iter().filter_map(|one| Some(one.as_sockaddr_in6()?.ip()));
        v6.find(Ipv6Addr::is_unicast_link_local).expect("the node has a link-local address on its pods' links")
    }
}

fn udp_v6_only(port: u16) -> Listener {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet6, SockType::Datagram, flags, None).expect("a socket");
    setsockopt(&socket, sockopt::Ipv6V6Only, &true).expect("IPv6 alone");
    let any = nix::sys::socket::SockaddrIn6::from(std::net::SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0));
    bind(socket.as_raw_fd(), &any).expect("its port");
    Listener::Udp(socket.into())
}

pub(crate) fn packet_socket(protocol: SockProtocol) -> OwnedFd {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let protocol = (protocol == SockProtocol::EthAll).then_some(protocol);
    socket(AddressFamily::Packet, SockType::Raw, flags, protocol).expect("a packet socket")
}

pub(crate) fn mac_in(namespace: &Namespace, interface: &str) -> Mac {
    let found = namespace.enter(|| link(interface).addr()).expect("in its namespace");
    found.expect("a hardware address")
}

pub(crate) fn link(name: &str) -> LinkAddr {
    let all = getifaddrs().expect("interfaces");
    let mut links = all.filter(|one| one.interface_name == name).filter_map(|one| one.address);
    links.find_map(|address| address.as_link_addr().copied()).unwrap_or_else(|| panic!("no interface {name}"))
}

/// How a cluster is built.
#[derive(Clone, Copy)]
struct Plan<'a> {
    families: Families,
    outside: &'a [IpAddr],
    wiring: Wiring,
}

/// A namewall that knows what an agent knows: the node's addresses on its bridge, and pods' link-local ones. On links of
/// their own it knows none of pods, as an agent that has found interfaces by routes.
fn guarded(snapshot: &Snapshot, plan: Plan<'_>) -> Cluster {
    let Plan { families, outside, wiring } = plan;
    let wanted = |program| Wanted { snapshot, program, outside, cut: CutEstablished::default(), dns: None };
    let (program, _) = compile(snapshot);
    let mut cluster = Cluster::build_wired(&wanted(&program), wiring, &mut |_| {}).expect("a cluster");
    let mut learned = Learned::default();
    if wiring == Wiring::Bridged {
        learned.node = on_bridge(&cluster, families);
        for pod in PODS {
            let own = mac_in(cluster.sandbox.pod(pod.name).expect("the pod"), "eth0");
            learned.pods.insert(pod.name, link_local(Hardware(own)).into());
        }
    }
    let (program, _) = compile(&self::snapshot(families, &learned));
    cluster.update(&wanted(&program)).expect("the change is enforced");
    cluster
}

/// A namewall that knows what `run` knows of pods on a bridge: their addresses, and the node's.
fn unknowing(snapshot: &Snapshot, plan: Plan<'_>) -> Cluster {
    let Plan { families, outside, wiring } = plan;
    let wanted = |program| Wanted { snapshot, program, outside, cut: CutEstablished::default(), dns: None };
    let (program, _) = compile(snapshot);
    let mut cluster = Cluster::build_wired(&wanted(&program), wiring, &mut |_| {}).expect("a cluster");
    cluster.forget_interfaces();
    let learned = Learned { node: on_bridge(&cluster, families), ..Learned::default() };
    let (program, _) = compile(&self::snapshot(families, &learned));
    cluster.update(&wanted(&program)).expect("the change is enforced");
    cluster
}

/// The node's addresses on its bridge, the broadcast address of the bridge's network among them.
fn on_bridge(cluster: &Cluster, families: Families) -> BTreeSet<IpAddr> {
    let bridge = mac_in(cluster.sandbox.node(NODE.name).expect("the node"), "cni0");
    let gateways = PODS.into_iter().flat_map(|pod| families.of(pod).map(gateway_of));
    let more = [link_local(Hardware(bridge)).into(), Ipv4Addr::new(10, 244, 1, 255).into()];
    gateways.chain(more).collect()
}

fn plain_rules() -> Table {
    let drop = |from: IpAddr, to: IpAddr| {
        let between = |end, address| Test::Between { end, low: address, high: address };
        Rule::new([between(End::Source, from), between(End::Destination, to)], Do::Drop)
    };
    let mut rules = Vec::new();
    for is_ipv4 in [true, false] {
        let from = ATTACKER.at(is_ipv4);
        rules.extend([VICTIM, OPEN, NODE, SERVER].map(|to| drop(from, to.at(is_ipv4))));
        rules.push(drop(OPEN.at(is_ipv4), VICTIM.at(is_ipv4)));
        rules.push(drop(FREE.at(is_ipv4), VICTIM.at(is_ipv4)));
        rules.push(drop(OPEN.at(is_ipv4), NODE.at(is_ipv4)));
    }
    let mut table = Table::default();
    for (name, point) in [("forward", Point::Forward), ("input", Point::Input)] {
        let hook = Hook { point, device: None, priority: 0, kind: HookKind::Filter, fallback: Fallback::Accept };
        table.chains.insert(name.to_owned(), Chain { hook: Some(hook), rules: rules.clone(), comment: None });
    }
    table
}

pub(crate) fn at(address: impl Into<IpAddr>, port: u16) -> SocketAddr {
    SocketAddr::new(address.into(), port)
}
