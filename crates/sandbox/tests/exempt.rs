//! What passes without being judged, and what only looks like it.

mod common;

use common::{EVERY_PROTOCOL, PORT, address, addresses, has_rights, isolating, measure, nft};
use namewall_dataplane::CutEstablished;
use namewall_policy::model::Direction;
use namewall_policy::port::Protocol;
use namewall_policy::{Snapshot, compile};
use namewall_sandbox::{Ask, Cluster, Heard, Measured, Packets, ProbeSource, Wanted};
use namewall_scenario::zones::Transport;
use namewall_scenario::{Scenario, run_in};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, recv, sendto, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

const WEB: &str = "10.0.1.2";
const WEB6: &str = "fd00:1::2";
const NODE6: &str = "2001:db8::1";
const OUTSIDE: &str = "203.0.113.7";

fn snapshot() -> Snapshot {
    common::Cluster::default().node("n1", &["192.0.2.1", NODE6]).pod("shop/web", "n1", &[WEB, WEB6]).0
}

fn build(snapshot: &Snapshot) -> Cluster {
    let (program, outside) = (compile(snapshot).0, addresses(&[OUTSIDE]));
    let wanted = Wanted { snapshot, program: &program, outside: &outside, cut: CutEstablished::Always, dns: None };
    Cluster::build(&wanted, &mut |_| {}).expect("the sandbox is built")
}

/// A socket at a place, which waits for a while when it is read.
fn at(place: &ProbeSource, port: u16, kind: SockType, protocol: SockProtocol) -> OwnedFd {
    let at = SocketAddr::new(place.source, port);
    let open = || {
        let family = if at.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let fd = socket(family, kind, SockFlag::SOCK_CLOEXEC, protocol)?;
        setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::new(0, 100_000))?;
        bind(fd.as_raw_fd(), &SockaddrStorage::from(at)).map(|()| fd)
    };
    place.namespace.enter(open).expect("the namespace is entered").expect("a socket is opened")
}

fn send(fd: &OwnedFd, message: &[u8], to: SocketAddr) {
    let sent = sendto(fd.as_raw_fd(), message, &SockaddrStorage::from(to), MsgFlags::empty());
    sent.expect("a message is sent");
}

/// Whether this comes within a while, whatever else does.
fn hears(fd: &OwnedFd, message: &[u8]) -> bool {
    let deadline = Instant::now() + Duration::from_millis(400);
    let mut buffer = [0; 2048];
    while Instant::now() < deadline {
        match recv(fd.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(length) if buffer[..length].ends_with(message) => return true,
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(error) => panic!("{error}"),
        }
    }
    false
}

/// What a TFTP server sends from a port of its own, which the kernel's helper expects after a request.
fn hears_what_is_expected(cluster: &Cluster) -> bool {
    let udp = |place: &ProbeSource, port| at(place, port, SockType::Datagram, SockProtocol::Udp);
    let node = cluster.sandbox.node("n1").expect("the node is there");
    nft(
        node,
        "table inet helpers { ct helper tftp { type \"tftp\" protocol udp; }; \
         chain pre { type filter hook prerouting priority filter; udp dport 69 ct helper set \"tftp\"; }; }",
    );
    let place = |text| cluster.sandbox.place(address(text)).expect("a place");
    let (client, server) = (udp(&place(WEB), 40_001), udp(&place(OUTSIDE), 4000));
    send(&client, b"\0\x01file\0octet\0", SocketAddr::new(address(OUTSIDE), 69));
    std::thread::sleep(Duration::from_millis(50));
    send(&server, b"\0\x03\0\x01data", SocketAddr::new(address(WEB), 40_001));
    hears(&client, b"data")
}

#[test]
fn s1_of_what_is_related_only_errors_pass() {
    if !has_rights() {
        return;
    }
    assert!(hears_what_is_expected(&build(&snapshot())), "nobody forbids it");
    let closed = build(&isolating(snapshot(), Direction::Ingress));
    assert!(!hears_what_is_expected(&closed), "a helper's expectation opens nothing");
    let refused = measure(&closed.sandbox, WEB, OUTSIDE, Protocol::Udp);
    assert_eq!(refused, Measured::Refused, "an error about what was let through");
}

/// Neighbours ask for each other with the highest hop limit, which no packet that was routed has.
#[test]
fn s1_only_neighbours_may_look_for_each_other() {
    let icmp = |place: &ProbeSource| at(place, 0, SockType::Raw, SockProtocol::IcmpV6);
    const SOLICITATION: u8 = 135;
    if !has_rights() {
        return;
    }
    let hears_with = |cluster: &Cluster, hops: i32| {
        let place = |text| cluster.sandbox.place(address(text)).expect("a place");
        let (pod, node) = (icmp(&place(WEB6)), icmp(&place(NODE6)));
        setsockopt(&pod, sockopt::Ipv6Ttl, &hops).expect("the hop limit is set");
        // The kernel writes the checksum.
        let mut message = vec![SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(b"sixteen octets !");
        send(&pod, &message, SocketAddr::new(address(NODE6), 0));
        hears(&node, &message[4..])
    };
    let (open, closed) = (build(&snapshot()), build(&isolating(snapshot(), Direction::Egress)));
    assert!(hears_with(&open, 64), "nobody forbids it");
    assert!(hears_with(&closed, 255), "a neighbour is found whatever the policies say");
    assert!(!hears_with(&closed, 64), "and nothing else goes under that name");
    assert!(!hears_with(&closed, 254));
    for protocol in EVERY_PROTOCOL {
        assert_eq!(
            measure(&closed.sandbox, WEB6, &format!("[{NODE6}]:{PORT}"), protocol),
            Measured::Silent,
            "{protocol}"
        );
    }
}

/// Nobody may ask for names, and everything else is open. A Service has the ports of namewall's own server behind it.
const NO_NAMES: &str = "
topology:
  manifests: [base/cluster.yaml]
  objects:
    - apiVersion: namewall.dev/v1alpha1
      kind: ClusterEgressFirewall
      metadata: {name: no-names}
      spec:
        priority: 1
        rules:
          - action: Deny
            to: [{networks: [0.0.0.0/0, '::/0']}]
            ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]
    - apiVersion: v1
      kind: Service
      metadata: {name: tunnel, namespace: shop}
      spec:
        clusterIP: 10.96.0.77
        ports: [{name: udp, protocol: UDP, port: 5353}, {name: tcp, protocol: TCP, port: 5353}]
    - apiVersion: discovery.k8s.io/v1
      kind: EndpointSlice
      metadata: {name: tunnel, namespace: shop, labels: {kubernetes.io/service-name: tunnel}}
      addressType: IPv4
      endpoints: [{addresses: [172.18.0.3]}]
      ports: [{name: udp, protocol: UDP, port: 1053}, {name: tcp, protocol: TCP, port: 1053}]
  dns:
    servers: {203.0.113.53: {}, '2001:db8:53::1': {}}
    zones: {api.example: {A: [198.51.100.7], ttl: 60}}
probes:
  - shop/api -> 198.51.100.9:443/TCP: allow
";

/// S6.9, S7: who may not ask a DNS server does not ask namewall's in its place, at the ports that it takes questions to.
#[test]
fn s6_9_the_ports_that_questions_are_taken_to_answer_nobody_else() {
    if !has_rights() {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios/names");
    let scenario = |text: &str| Scenario::parse(text, "inline", &folder).unwrap_or_else(|error| panic!("{error}"));
    let up = |scenario: &Scenario| {
        let mut packets = Packets::for_scenario(scenario);
        let outcome = run_in(&mut packets, scenario);
        assert!(outcome.passed(), "{}", outcome.failures(scenario).join("\n"));
        packets
    };
    let ask = |packets: &Packets, from: &str, server: &str, via: Transport| -> Option<Heard> {
        let sandbox = &packets.cluster().expect("a cluster").sandbox;
        let (name, kind) = ("api.example".parse().expect("a name"), "A".parse().expect("a type"));
        let server = server.parse().expect("an address and a port");
        let ask = Ask { server, name, kind, via: Some(via), edns: Some(1232), mixed_case: false };
        let place = sandbox.place(address(from)).expect("a place");
        sandbox.ask(&place, &[ask], 1).unwrap_or_else(|error| panic!("{error}")).pop().flatten()
    };
    // Where everybody may ask, the question is taken, so the server is there and would answer.
    let open = NO_NAMES.replace("action: Deny", "action: Allow");
    let open = up(&scenario(&open));
    for via in [Transport::Udp, Transport::Tcp] {
        assert!((0..20).any(|_| ask(&open, "10.244.2.10", "203.0.113.53:53", via).is_some()), "{via:?}");
    }
    drop(open);
    let closed = up(&scenario(NO_NAMES));
    // A pod of the node, and one of the other node; the usual port and that of a certain server; through a Service.
    let v4 = ["172.18.0.3:1053", "172.18.0.3:1054", "10.96.0.77:5353"];
    for via in [Transport::Udp, Transport::Tcp] {
        for server in v4 {
            assert_eq!(ask(&closed, "10.244.2.10", server, via), None, "{server} over {via:?}");
            assert_eq!(ask(&closed, "10.244.1.10", server, via), None, "{server} over {via:?} from the other node");
        }
        let server = "[fd00:18::3]:1053";
        assert_eq!(ask(&closed, "fd00:244:2::10", server, via), None, "{server} over {via:?}");
    }
    // What else listens at the node is no concern of it.
    let sandbox = &closed.cluster().expect("a cluster").sandbox;
    let refused = measure(sandbox, "10.244.2.10", "172.18.0.3:2053", Protocol::Tcp);
    assert_eq!(refused, Measured::Refused);
}
