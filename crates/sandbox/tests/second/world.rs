//! Pods with two networks, and who listens in the second one.
//!
//! ```text
//! attacker, victim   shop     may send nothing and hear nothing
//! friend             trusted  no policies
//! open               open     no policies
//! every pod                   may not reach a node
//! outside                     a host in the second network; it also answers for the node's address
//! ```

use crate::common::{self, run_in};
use crate::frame::{ARP, Arp, BROADCAST, Ends, Mac, VLAN, frame, kind_of, udp};
use namewall_dataplane::CutEstablished;
use namewall_policy::labels::Selector;
use namewall_policy::model::{
    Action, Clauses, Enforcement, NamespaceScope, Peer, Peers, Placement, PodSet, Policy, PolicyKind, PolicyRef, Ports,
    Rule, Subject,
};
use namewall_policy::{Snapshot, compile};
use namewall_sandbox::{Cluster, Namespace, Sandbox, Wanted};
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, recv, sendto, socket};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const PORT: u16 = 9000;
const NODE: &str = "n1";
/// The node's address, and what the outside answers for in the second network.
const NODE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const NODE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 99, 0, 0, 0, 0, 0, 1);
const TCP_TIMEOUT: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(60);

/// A host of the second network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Host {
    pub(crate) name: &'static str,
    last: u8,
}

pub(crate) const ATTACKER: Host = Host { name: "shop/attacker", last: 10 };
pub(crate) const VICTIM: Host = Host { name: "shop/victim", last: 20 };
pub(crate) const FRIEND: Host = Host { name: "trusted/friend", last: 30 };
pub(crate) const OPEN: Host = Host { name: "open/open", last: 40 };
pub(crate) const OUTSIDE: Host = Host { name: "", last: 99 };
const PODS: [Host; 4] = [ATTACKER, VICTIM, FRIEND, OPEN];
/// Pods that forward, and an address of the friend that the host outside reaches through each.
const ROUTERS: [(Host, Ipv4Addr); 2] =
    [(ATTACKER, Ipv4Addr::new(172, 31, 0, 10)), (OPEN, Ipv4Addr::new(172, 31, 0, 40))];

impl Host {
    /// Its address in the second network.
    pub(crate) fn at(self, is_ipv4: bool) -> IpAddr {
        match is_ipv4 {
            true => Ipv4Addr::new(172, 16, 0, self.last).into(),
            false => Ipv6Addr::new(0xfd00, 16, 0, 0, 0, 0, 0, self.last.into()).into(),
        }
    }

    fn link_local(self) -> Ipv6Addr {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, self.last.into())
    }

    /// A pod's own address in the cluster's network.
    pub(crate) fn own(self) -> [String; 2] {
        [format!("10.244.1.{}", self.last), format!("fd00:1::{:x}", self.last)]
    }
}

/// What the second network is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Network {
    Macvlan,
    Bridge,
}

/// Who may hear of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ear {
    Victim,
    Friend,
    Outside,
    /// Every frame that comes to the host outside.
    OutsidesWire,
}

impl Ear {
    pub(crate) const ALL: [Self; 4] = [Self::Victim, Self::Friend, Self::Outside, Self::OutsidesWire];
}

/// Makes a frame that ends with a nonce.
type MakeFrame = Box<dyn Fn(&[u8]) -> Vec<u8>>;

enum How {
    /// A datagram of a usual socket.
    Socket(SocketAddr),
    /// A frame of a packet socket.
    Frame(MakeFrame),
}

/// A way for a pod to be heard.
pub(crate) struct Path {
    pub(crate) name: String,
    pub(crate) ear: Ear,
    from: Host,
    how: How,
}

pub(crate) fn policies() -> Vec<Policy> {
    let all = || PodSet { namespaces: NamespaceScope::Named("shop".into()), pods: Selector::default() };
    let deny_nodes = Rule {
        name: None,
        action: Action::Deny,
        clauses: Clauses::Match { peers: Peers::Listed(vec![Peer::Nodes(Selector::default())]), ports: Ports::Any },
        source: None,
    };
    vec![
        Policy {
            id: PolicyRef { kind: PolicyKind::NetworkPolicy, namespace: Some("shop".into()), name: "closed".into() },
            placement: Placement::Network { isolates_ingress: true, isolates_egress: true },
            enforcement: Enforcement::Enforce,
            subject: Subject { pods: all(), nodes: None },
            egress: Vec::new(),
            ingress: Vec::new(),
            source: None,
        },
        Policy {
            id: PolicyRef { kind: PolicyKind::ClusterEgressFirewall, namespace: None, name: "no-nodes".into() },
            placement: Placement::ClusterGate { priority: 0 },
            enforcement: Enforcement::Enforce,
            subject: Subject { pods: PodSet::all(), nodes: None },
            egress: vec![deny_nodes],
            ingress: Vec::new(),
            source: None,
        },
    ]
}

fn snapshot(policies: Vec<Policy>) -> Snapshot {
    let mut cluster = common::Cluster::default().node(NODE, &[&NODE_V4.to_string(), &NODE_V6.to_string()]);
    for pod in PODS {
        let [v4, v6] = pod.own();
        cluster = cluster.pod(pod.name, NODE, &[&v4, &v6]);
    }
    let mut snapshot = cluster.0;
    *Arc::make_mut(&mut snapshot.policies) = policies;
    snapshot
}

enum Held {
    Plain(Box<Sandbox>),
    Namewall(Box<Cluster>),
}

enum Listener {
    Udp(UdpSocket),
    Wire(OwnedFd),
}

pub(crate) struct World {
    held: Held,
    ears: Vec<(Ear, Vec<Listener>)>,
    _servers: Vec<TcpListener>,
}

impl World {
    pub(crate) fn without_namewall(network: Network) -> Self {
        let sandbox = Sandbox::build(&snapshot(policies()), &[], &mut |_| {}).expect("a sandbox");
        Self::finish(Held::Plain(Box::new(sandbox)), network)
    }

    /// The network comes after namewall, as a second network does that is added to a pod.
    pub(crate) fn with_namewall(network: Network) -> Self {
        let snapshot = snapshot(policies());
        let (program, _) = compile(&snapshot);
        let cluster = Cluster::build(&wanted(&snapshot, &program), &mut |_| {}).expect("a cluster");
        let mut world = Self::finish(Held::Namewall(Box::new(cluster)), network);
        world.follow();
        world
    }

    fn finish(held: Held, network: Network) -> Self {
        let mut world = Self { held, ears: Vec::new(), _servers: Vec::new() };
        world.connect_all(network);
        world.forward_through_pods();
        world.listen();
        world
    }

    pub(crate) fn sandbox(&self) -> &Sandbox {
        match &self.held {
            Held::Plain(sandbox) => sandbox,
            Held::Namewall(cluster) => &cluster.sandbox,
        }
    }

    pub(crate) fn cluster(&mut self) -> &mut Cluster {
        match &mut self.held {
            Held::Namewall(cluster) => cluster,
            Held::Plain(_) => panic!("there is no namewall"),
        }
    }

    /// What the agent's loop does when the kernel says that something has changed.
    pub(crate) fn follow(&mut self) {
        self.cluster().follow_namespaces();
    }

    /// Other policies, by the agents that are there or by new ones.
    pub(crate) fn change(&mut self, policies: Vec<Policy>, restarts: bool) {
        let snapshot = snapshot(policies);
        let (program, _) = compile(&snapshot);
        let wanted = wanted(&snapshot, &program);
        let done = match restarts {
            true => self.cluster().restart(&wanted).map(drop),
            false => self.cluster().update(&wanted),
        };
        done.expect("the change is enforced");
    }

    pub(crate) fn node(&self) -> &Namespace {
        self.sandbox().node(NODE).expect("the node")
    }

    /// No policies; the node has these addresses besides, as its kernel tells.
    pub(crate) fn learn(&mut self, addresses: &[IpAddr]) {
        let snapshot = snapshot(Vec::new());
        let mut learned = snapshot.clone();
        Arc::make_mut(&mut learned.nodes)[0].addresses.extend(addresses);
        let (program, _) = compile(&learned);
        self.cluster().update(&wanted(&snapshot, &program)).expect("the change is enforced");
    }

    pub(crate) fn namespace(&self, host: Host) -> &Arc<Namespace> {
        let found = if host == OUTSIDE { Some(self.sandbox().outside()) } else { self.sandbox().pod(host.name) };
        found.expect("it was built")
    }

    fn connect_all(&self, network: Network) {
        let node = self.sandbox().node(NODE).expect("the node");
        let ip = |arguments: &str| run_in(node, Command::new("ip").args(arguments.split_whitespace()));
        let outside = self.sandbox().outside().path();
        ip(&format!("link add up0 type veth peer name net1 netns {}", outside.display()));
        ip("link set up0 up");
        if network == Network::Bridge {
            ip("link add br1 type bridge");
            ip("link set br1 up");
            ip("link set up0 master br1");
        }
        for (number, pod) in PODS.into_iter().enumerate() {
            let path = self.namespace(pod).path();
            match network {
                Network::Macvlan => {
                    ip(&format!("link add link up0 name net1 netns {} type macvlan mode bridge", path.display()));
                }
                Network::Bridge => {
                    ip(&format!("link add second{number} type veth peer name net1 netns {}", path.display()));
                    ip(&format!("link set second{number} master br1 up"));
                }
            }
        }
        for host in PODS.into_iter().chain([OUTSIDE]) {
            let inside = |arguments: &str| {
                run_in(self.namespace(host), Command::new("ip").args(arguments.split_whitespace()));
            };
            inside(&format!("address add {}/24 dev net1", host.at(true)));
            inside(&format!("address add {}/64 dev net1 nodad", host.at(false)));
            inside(&format!("address add {}/64 dev net1 nodad", host.link_local()));
            inside("link set net1 up");
            if host == OUTSIDE {
                inside(&format!("address add {NODE_V4}/32 dev lo"));
                inside(&format!("address add {NODE_V6}/128 dev lo"));
            } else {
                inside(&format!("route add {NODE_V4}/32 via {}", OUTSIDE.at(true)));
                inside(&format!("-6 route add {NODE_V6}/128 via {}", OUTSIDE.at(false)));
            }
        }
    }

    fn forward_through_pods(&self) {
        let inside = |host: Host, arguments: &str| {
            run_in(self.namespace(host), Command::new("ip").args(arguments.split_whitespace()));
        };
        for (router, to) in ROUTERS {
            let set = || {
                let set = |setting: &str, value| {
                    std::fs::write(format!("/proc/sys/net/ipv4/{setting}"), value).expect("a setting");
                };
                set("ip_forward", "1");
                // Or the host outside would learn of the short way.
                set("conf/all/send_redirects", "0");
                set("conf/net1/send_redirects", "0");
            };
            self.namespace(router).enter(set).expect("in its namespace");
            inside(FRIEND, &format!("address add {to}/32 dev lo"));
            inside(router, &format!("route add {to}/32 via {}", FRIEND.at(true)));
            inside(OUTSIDE, &format!("route add {to}/32 via {}", router.at(true)));
        }
    }

    fn listen(&mut self) {
        let mut ears = Vec::new();
        let mut servers = Vec::new();
        for (ear, host) in [(Ear::Victim, VICTIM), (Ear::Friend, FRIEND), (Ear::Outside, OUTSIDE)] {
            let open = || {
                let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT)).expect("a socket of both versions");
                socket.set_nonblocking(true).expect("a socket that does not wait");
                (socket, TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)).expect("a socket of both versions"))
            };
            let (udp, tcp) = self.namespace(host).enter(open).expect("in its namespace");
            ears.push((ear, vec![Listener::Udp(udp)]));
            servers.push(tcp);
        }
        let wire = || Listener::Wire(packet_socket(SockProtocol::EthAll));
        ears.push((Ear::OutsidesWire, vec![self.namespace(OUTSIDE).enter(wire).expect("in its namespace")]));
        (self.ears, self._servers) = (ears, servers);
    }

    pub(crate) fn hear(&self, ear: Ear) -> BTreeSet<u64> {
        let mut heard = BTreeSet::new();
        let mut buffer = [0; 2048];
        for listener in self.ears.iter().filter(|(one, _)| *one == ear).flat_map(|(_, listeners)| listeners) {
            loop {
                let length = match listener {
                    Listener::Udp(socket) => socket.recv(&mut buffer).ok(),
                    Listener::Wire(socket) => recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT).ok(),
                };
                let Some(length) = length else { break };
                heard.extend(buffer[..length].last_chunk().map(|nonce| u64::from_be_bytes(*nonce)));
            }
        }
        heard
    }

    /// A socket that has every frame which comes to the host outside from now on.
    pub(crate) fn wire_outside(&self) -> OwnedFd {
        self.namespace(OUTSIDE).enter(|| packet_socket(SockProtocol::EthAll)).expect("in its namespace")
    }

    /// True if one of the frames that have come has these bytes in it.
    pub(crate) fn has_heard(&self, wire: &OwnedFd, bytes: &[u8]) -> bool {
        let mut buffer = [0; 2048];
        let mut found = false;
        while let Ok(length) = recv(wire.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            found |= buffer[..length].windows(bytes.len()).any(|part| part == bytes);
        }
        found
    }

    /// The index of a pod's second interface, inside the pod.
    pub(crate) fn second_index(&self, host: Host) -> u32 {
        self.namespace(host).enter(|| link("net1").ifindex()).expect("in its namespace") as u32
    }

    pub(crate) fn send(&self, path: &Path, nonce: u64) {
        let nonce = nonce.to_be_bytes();
        let bytes = match &path.how {
            How::Socket(_) => Vec::new(),
            How::Frame(frame) => frame(&nonce),
        };
        let to = match path.how {
            How::Socket(to) => Some(to),
            How::Frame(_) => None,
        };
        let send = || match to {
            Some(to) => {
                let any: IpAddr =
                    if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
                // The kernel tells a sender of what is dropped on its way out.
                let _ = UdpSocket::bind((any, 0)).expect("a socket").send_to(&nonce, to);
            }
            None => {
                let _ = sendto(packet_socket(SockProtocol::Raw).as_raw_fd(), &bytes, &link("net1"), MsgFlags::empty());
            }
        };
        self.namespace(path.from).enter(send).expect("in its namespace");
    }

    /// Whether a TCP connection is made. One that should be is tried for a while by the caller's expectation.
    pub(crate) fn connects(&self, from: Host, to: Host, is_ipv4: bool) -> bool {
        let at = SocketAddr::new(to.at(is_ipv4), PORT);
        let is_denied = from == ATTACKER;
        let began = Instant::now();
        loop {
            let connect = || TcpStream::connect_timeout(&at, TCP_TIMEOUT).is_ok();
            if self.namespace(from).enter(connect).expect("in its namespace") {
                return true;
            }
            if is_denied || began.elapsed() > DEADLINE {
                return false;
            }
        }
    }

    fn mac(&self, host: Host) -> Mac {
        let found = self.namespace(host).enter(|| link("net1").addr()).expect("in its namespace");
        found.expect("a hardware address")
    }

    fn by_socket(from: Host, to: IpAddr, ear: Ear) -> Path {
        let how = How::Socket(SocketAddr::new(to, PORT));
        Path { name: format!("{} to {to}", from.name), ear, from, how }
    }

    fn by_frame(&self, from: Host, tags: &'static [u16], source: IpAddr) -> Path {
        let is_ipv4 = source.is_ipv4();
        let (at, ends) = (OUTSIDE.at(is_ipv4), Ends { from: self.mac(from), to: self.mac(OUTSIDE) });
        let make = move |nonce: &[u8]| {
            let packet = udp(SocketAddr::new(source, 5000), SocketAddr::new(at, PORT), nonce);
            frame(ends, tags, kind_of(at), &packet)
        };
        let name = format!("{} by a packet socket, with {} VLAN tags, from {source}", from.name, tags.len());
        Path { name, ear: Ear::OutsidesWire, from, how: How::Frame(Box::new(make)) }
    }

    /// What policies deny.
    pub(crate) fn denied(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        for is_ipv4 in [true, false] {
            let node: IpAddr = if is_ipv4 { NODE_V4.into() } else { NODE_V6.into() };
            paths.extend([
                Self::by_socket(ATTACKER, VICTIM.at(is_ipv4), Ear::Victim),
                Self::by_socket(OPEN, VICTIM.at(is_ipv4), Ear::Victim),
                Self::by_socket(ATTACKER, FRIEND.at(is_ipv4), Ear::Friend),
                Self::by_socket(ATTACKER, OUTSIDE.at(is_ipv4), Ear::Outside),
                Self::by_socket(OPEN, node, Ear::Outside),
                self.by_frame(ATTACKER, &[], ATTACKER.at(is_ipv4)),
                self.by_frame(ATTACKER, &[VLAN], ATTACKER.at(is_ipv4)),
                self.by_frame(ATTACKER, &[VLAN, VLAN], ATTACKER.at(is_ipv4)),
                self.by_frame(ATTACKER, &[], OPEN.at(is_ipv4)),
                self.by_frame(OPEN, &[], FRIEND.at(is_ipv4)),
                self.by_frame(OPEN, &[], node),
            ]);
        }
        paths.extend(ROUTERS.map(|(router, to)| Path {
            name: format!("another host through {}", router.name),
            ear: Ear::Friend,
            from: OUTSIDE,
            how: How::Socket(SocketAddr::new(to.into(), PORT)),
        }));
        paths.push(self.by_arp());
        paths.push(self.by_link_local());
        paths
    }

    /// ARP that takes another pod's address.
    fn by_arp(&self) -> Path {
        let (own, all) = (self.mac(ATTACKER), BROADCAST);
        let IpAddr::V4(stolen) = OPEN.at(true) else { unreachable!("it is IPv4") };
        let make = move |nonce: &[u8]| {
            let arp = Arp { operation: 1, sender: (own, stolen), target: ([0; 6], stolen) };
            let packet = [arp.packet(), nonce.to_vec()].concat();
            frame(Ends { from: own, to: all }, &[], ARP, &packet)
        };
        Path {
            name: "ARP for another's second address".to_owned(),
            ear: Ear::OutsidesWire,
            from: ATTACKER,
            how: How::Frame(Box::new(make)),
        }
    }

    /// IPv6 without an address that anybody has given.
    fn by_link_local(&self) -> Path {
        let at = SocketAddrV6::new(OUTSIDE.link_local(), PORT, 0, self.second_index(ATTACKER));
        Path {
            name: "to a link-local address".to_owned(),
            ear: Ear::Outside,
            from: ATTACKER,
            how: How::Socket(at.into()),
        }
    }

    /// What policies allow.
    pub(crate) fn allowed(&self) -> Vec<Path> {
        let both = [true, false].into_iter();
        both.flat_map(|is_ipv4| {
            [
                Self::by_socket(OPEN, FRIEND.at(is_ipv4), Ear::Friend),
                Self::by_socket(FRIEND, OUTSIDE.at(is_ipv4), Ear::Outside),
            ]
        })
        .collect()
    }
}

fn wanted<'a>(snapshot: &'a Snapshot, program: &'a namewall_policy::Program) -> Wanted<'a> {
    Wanted { snapshot, program, outside: &[], cut: CutEstablished::default(), dns: None }
}

fn packet_socket(protocol: SockProtocol) -> OwnedFd {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let protocol = (protocol == SockProtocol::EthAll).then_some(protocol);
    socket(AddressFamily::Packet, SockType::Raw, flags, protocol).expect("a packet socket")
}

fn link(name: &str) -> LinkAddr {
    let all = getifaddrs().expect("interfaces");
    let mut links = all.filter(|one| one.interface_name == name).filter_map(|one| one.address);
    links.find_map(|address| address.as_link_addr().copied()).unwrap_or_else(|| panic!("no interface {name}"))
}
