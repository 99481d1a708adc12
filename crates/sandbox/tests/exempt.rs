//! What passes without being judged, and what only looks like it.

mod common;

use common::{EVERY_PROTOCOL, PORT, address, addresses, has_rights, isolating, measure, nft};
use namewall_dataplane::CutEstablished;
use namewall_policy::model::Direction;
use namewall_policy::port::Protocol;
use namewall_policy::{Snapshot, compile};
use namewall_sandbox::{Cluster, Measured, ProbeSource, Wanted};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, recv, sendto, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
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
