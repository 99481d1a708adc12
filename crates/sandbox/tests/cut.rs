//! What a cut leaves behind in the kernel (S3.4), beyond what scenarios show.

mod common;

use common::{PORT, address, addresses, has_rights, isolating, run_in};
use namewall_dataplane::CutEstablished;
use namewall_policy::model::{Backend, BackendTarget, Direction, Service, ServiceForm, ServicePort};
use namewall_policy::port::Protocol;
use namewall_policy::{Snapshot, compile};
use namewall_sandbox::{Cluster, Listen, Namespace, Wanted, Wiring};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

const CLIENT: &str = "10.0.1.2:40000";
const DEADLINE: Duration = Duration::from_secs(20);

fn snapshot() -> Snapshot {
    let cluster = common::Cluster::default().node("n1", &["192.0.2.1"]).node("n2", &["192.0.2.2"]);
    cluster.pod("shop/web", "n1", &["10.0.1.2"]).pod("shop/db", "n2", &["10.0.2.2"]).0
}

fn connect_from_the_same_port(namespace: &Namespace) -> Result<OwnedFd, Errno> {
    let to = SocketAddr::new(address("10.0.2.2"), PORT);
    let open = || {
        let fd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&fd, sockopt::ReuseAddr, &true)?;
        setsockopt(&fd, sockopt::SendTimeout, &TimeVal::new(10, 0))?;
        setsockopt(&fd, sockopt::Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 })?;
        bind(fd.as_raw_fd(), &SockaddrStorage::from(CLIENT.parse::<SocketAddr>().expect("an address and a port")))?;
        connect(fd.as_raw_fd(), &SockaddrStorage::from(to)).map(|()| fd)
    };
    namespace.enter(open).expect("the namespace is entered")
}

#[test]
fn s3_4_a_new_connection_between_the_same_ports_is_judged_like_any_other() {
    if !has_rights() {
        return;
    }
    let (open, closed) = (snapshot(), isolating(snapshot(), Direction::Ingress));
    let (opened, isolating) = (compile(&open).0, compile(&closed).0);
    let (outside, cut) = (&[][..], CutEstablished::Always);
    let before = Wanted { snapshot: &open, program: &opened, outside, cut, dns: None };
    let after = Wanted { snapshot: &closed, program: &isolating, outside, cut, dns: None };
    let mut cluster = Cluster::build(&before, &mut |_| {}).expect("the sandbox is built");
    let listen = Listen { address: address("10.0.2.2"), protocol: Protocol::Tcp, port: PORT };
    cluster.sandbox.ensure_listening(&[listen]).expect("the server listens");
    let client = cluster.sandbox.place(address("10.0.1.2")).expect("the client is there").namespace;
    let first = connect_from_the_same_port(&client).expect("it is open");
    cluster.update(&after).expect("the policy comes");
    for node in ["n1", "n2"] {
        let namespace = cluster.sandbox.node(node).expect("the node is there");
        let listed = run_in(namespace, Command::new("nft").args(["list", "set", "inet", "namewall", "cut4"]));
        for tuple in ["10.0.1.2 . 10.0.2.2 . tcp . 40000 . 8080", "10.0.2.2 . 10.0.1.2 . tcp . 8080 . 40000"] {
            assert!(listed.contains(tuple), "{node}: {listed}");
        }
    }
    drop(first);
    cluster.restart(&before).expect("the policy goes, and with it the agent");
    let listed = run_in(
        cluster.sandbox.node("n1").expect("the node is there"),
        Command::new("nft").args(["list", "set", "inet", "namewall", "cut4"]),
    );
    assert!(listed.contains("40000"), "a new agent leaves them: {listed}");
    connect_from_the_same_port(&client).expect("a SYN begins a new connection");
}

const SERVICE: [&str; 2] = ["10.96.0.30", "fd96::30"];
const CLIENT_ADDRESSES: [&str; 2] = ["10.0.1.2", "fd00:1::2"];
const ON_THE_SAME_NODE: [&str; 2] = ["10.0.1.3", "fd00:1::3"];
const ON_ANOTHER_NODE: [&str; 2] = ["10.0.2.2", "fd00:2::2"];

/// A Service with one backend.
fn with_service(backend: [&str; 2]) -> Snapshot {
    let cluster = common::Cluster::default()
        .node("n1", &["192.0.2.1", "2001:db8:1::1"])
        .node("n2", &["192.0.2.2", "2001:db8:1::2"])
        .pod("shop/web", "n1", &CLIENT_ADDRESSES)
        .pod("shop/near", "n1", &ON_THE_SAME_NODE)
        .pod("shop/far", "n2", &ON_ANOTHER_NODE);
    let mut snapshot = cluster.0;
    let namespace = snapshot.ensure_namespace("shop");
    let backends = backend.map(|text| Backend { target: BackendTarget::Address(address(text)), port: PORT });
    snapshot.services.push(Service {
        namespace,
        name: "db".into(),
        form: ServiceForm::Balanced,
        addresses: addresses(&SERVICE),
        external: Vec::new(),
        proxied: Vec::new(),
        ports: vec![ServicePort {
            name: None,
            protocol: Protocol::Tcp,
            port: 80,
            node_port: None,
            backends: backends.to_vec(),
        }],
        source: None,
    });
    snapshot
}

/// The client means the Service's address, so a reset from the backend's would tell it nothing. On a bridge the kernel
/// does not translate the reset that it sends.
#[test]
fn s3_4_a_cut_connection_through_a_service_is_reset_for_both_ends_on_bridges_too() {
    if !has_rights() {
        return;
    }
    for wiring in [Wiring::Bridged, Wiring::Routed] {
        for backend in [ON_THE_SAME_NODE, ON_ANOTHER_NODE] {
            let open = with_service(backend);
            let closed = isolating(open.clone(), Direction::Ingress);
            let (opened, isolating) = (compile(&open).0, compile(&closed).0);
            let (outside, cut) = (&[][..], CutEstablished::Always);
            let before = Wanted { snapshot: &open, program: &opened, outside, cut, dns: None };
            let after = Wanted { snapshot: &closed, program: &isolating, outside, cut, dns: None };
            let mut cluster = Cluster::build_wired(&before, wiring, &mut |_| {}).expect("the sandbox is built");
            let place = |at: &str| cluster.sandbox.place(address(at)).expect("it is there").namespace;
            let ends: Vec<[TcpStream; 2]> = (0..2)
                .map(|version| {
                    let at = SocketAddr::new(address(backend[version]), PORT);
                    let listen = place(backend[version]).enter(|| TcpListener::bind(at)).expect("in its namespace");
                    let to = SocketAddr::new(address(SERVICE[version]), 80);
                    let connect = || TcpStream::connect_timeout(&to, DEADLINE);
                    let client = place(CLIENT_ADDRESSES[0]).enter(connect).expect("in its namespace");
                    let (server, _) = listen.expect("it listens").accept().expect("a connection");
                    [client.expect("it is open"), server]
                })
                .collect();
            cluster.update(&after).expect("the policy comes");
            for mut end in ends.iter().flatten() {
                end.set_read_timeout(Some(DEADLINE)).expect("a timeout");
                let told = end.write_all(b"x").and_then(|()| end.read_exact(&mut [0]));
                let kind = told.expect_err("it is cut").kind();
                assert_eq!(kind, ErrorKind::ConnectionReset, "{wiring:?} {backend:?} {:?}", end.local_addr());
            }
        }
    }
}

/// The reset for the node's own end comes in by its loopback, from the pod's address.
#[test]
fn s3_4_the_nodes_own_end_of_a_cut_connection_is_reset_too() {
    if !has_rights() {
        return;
    }
    let nodes = ["192.0.2.1", "2001:db8:1::1"];
    let open = common::Cluster::default().node("n1", &nodes).pod("shop/web", "n1", &CLIENT_ADDRESSES).0;
    let closed = isolating(open.clone(), Direction::Egress);
    let (opened, isolating) = (compile(&open).0, compile(&closed).0);
    let (outside, cut) = (&[][..], CutEstablished::Always);
    let before = Wanted { snapshot: &open, program: &opened, outside, cut, dns: None };
    let after = Wanted { snapshot: &closed, program: &isolating, outside, cut, dns: None };
    for wiring in [Wiring::Bridged, Wiring::Routed] {
        let mut cluster = Cluster::build_wired(&before, wiring, &mut |_| {}).expect("the sandbox is built");
        let node = cluster.sandbox.node("n1").expect("the node is there").clone();
        let pod = cluster.sandbox.place(address(CLIENT_ADDRESSES[0])).expect("it is there").namespace;
        let ends = nodes.map(|at| {
            let at = SocketAddr::new(address(at), PORT);
            let listen = node.enter(|| TcpListener::bind(at)).expect("in its namespace").expect("it listens");
            let client = pod.enter(|| TcpStream::connect_timeout(&at, DEADLINE)).expect("in its namespace");
            [listen.accept().expect("a connection").0, client.expect("it is open")]
        });
        cluster.update(&after).expect("the policy comes");
        for mut end in ends.iter().flatten() {
            end.set_read_timeout(Some(DEADLINE)).expect("a timeout");
            let told = end.write_all(b"x").and_then(|()| end.read_exact(&mut [0]));
            let kind = told.expect_err("it is cut").kind();
            assert_eq!(kind, ErrorKind::ConnectionReset, "{wiring:?} {:?}", end.local_addr());
        }
    }
}
