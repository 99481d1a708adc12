//! A change makes the difference, and leaves the rest alone.

mod common;

use common::{Cluster, EVERY_PROTOCOL, PORT, address, addresses, has_rights, listen_everywhere, measure, nft};
use namewall_policy::port::Protocol;
use namewall_sandbox::{Connection, Measured, Progress, Sandbox};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long silence must last.
const SOON: Duration = Duration::from_millis(300);
/// How long a busy machine may take to answer.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn base() -> Cluster {
    Cluster::default()
        .node("n1", &["192.0.2.1"])
        .node("n2", &["192.0.2.2"])
        .pod("shop/web", "n1", &["10.0.1.2", "fd00:1::2"])
        .pod("shop/db", "n2", &["10.0.2.2", "fd00:2::2"])
}

fn connect(sandbox: &Sandbox, from: &str, to: &str, protocol: Protocol) -> Connection {
    let from = sandbox.place(address(from)).expect("a place");
    let opened = sandbox.connect(&from, SocketAddr::new(address(to), PORT), protocol).expect("a socket");
    opened.unwrap_or_else(|measured| panic!("{to}/{protocol}: {measured}"))
}

#[test]
fn an_address_is_taken_over_by_another_pod() {
    if !has_rights() {
        return;
    }
    let mut sandbox = base().pod("shop/old", "n2", &["10.0.2.9", "fd00:2::9"]).build(&[]);
    listen_everywhere(&mut sandbox, PORT);
    let mut old = connect(&sandbox, "10.0.1.2", "10.0.2.9", Protocol::Tcp);
    let left = sandbox.place(address("10.0.2.9")).unwrap();

    // The new pod is on another node, too.
    let changes = sandbox.update(&base().pod("shop/new", "n1", &["10.0.2.9", "fd00:2::9"]).0, &[]).unwrap();
    assert_eq!(changes.pods_removed, ["shop/old".into()]);
    assert_eq!(changes.pods_added, ["shop/new".into()]);
    assert!(sandbox.pod("shop/old").is_none());
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        assert_eq!(measure(&sandbox, "10.0.1.2", "10.0.2.9", protocol), Measured::Refused, "{protocol}");
    }
    listen_everywhere(&mut sandbox, PORT);
    for protocol in EVERY_PROTOCOL {
        for (from, to) in [("10.0.1.2", "10.0.2.9"), ("10.0.2.2", "10.0.2.9"), ("fd00:2::2", "fd00:2::9")] {
            assert_eq!(measure(&sandbox, from, to, protocol), Measured::Open, "{from} -> {to}/{protocol}");
            assert_eq!(measure(&sandbox, to, from, protocol), Measured::Open, "{to} -> {from}/{protocol}");
        }
    }
    assert!(!old.alive(SOON).unwrap());
    // Whoever still holds the old pod's namespace finds it empty.
    assert!(!Arc::ptr_eq(&left.namespace, sandbox.pod("shop/new").unwrap()));
    let devices = left.namespace.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev")).unwrap().unwrap();
    assert!(!devices.contains("eth0"), "{devices}");
}

#[test]
fn what_stays_keeps_its_connections() {
    if !has_rights() {
        return;
    }
    let mut sandbox = base().build(&["203.0.113.7"]);
    listen_everywhere(&mut sandbox, PORT);
    let mut kept = Vec::new();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        kept.push(connect(&sandbox, "10.0.1.2", "10.0.2.2", protocol));
        kept.push(connect(&sandbox, "fd00:1::2", "fd00:2::2", protocol));
        kept.push(connect(&sandbox, "10.0.1.2", "203.0.113.7", protocol));
    }
    let web = sandbox.pod("shop/web").unwrap().clone();
    let more = base().pod("shop/more", "n3", &["10.0.3.2"]).pod("shop/two", "n1", &["10.0.1.9"]);
    let changes = sandbox.update(&more.0, &addresses(&["203.0.113.7", "203.0.113.8"])).unwrap();
    assert_eq!((changes.nodes_added.len(), changes.pods_added.len(), changes.pods_removed.len()), (1, 2, 0));
    listen_everywhere(&mut sandbox, PORT);
    assert_eq!(measure(&sandbox, "10.0.1.2", "10.0.3.2", Protocol::Tcp), Measured::Open);
    assert_eq!(measure(&sandbox, "10.0.3.2", "203.0.113.8", Protocol::Udp), Measured::Open);
    let changes = sandbox.update(&base().0, &addresses(&["203.0.113.7"])).unwrap();
    assert_eq!((changes.nodes_removed.len(), changes.pods_removed.len()), (1, 2));
    assert!(Arc::ptr_eq(&web, sandbox.pod("shop/web").unwrap()));
    assert!(Connection::all_alive(&mut kept, TEST_TIMEOUT).unwrap().into_iter().all(|alive| alive));
    assert!(matches!(measure(&sandbox, "10.0.1.2", "10.0.3.2", Protocol::Tcp), Measured::Unreachable(_)));
    assert!(sandbox.update(&base().0, &addresses(&["203.0.113.7"])).unwrap() == Default::default());
}

#[test]
fn a_connection_that_is_cut_is_dead() {
    if !has_rights() {
        return;
    }
    let mut sandbox = base().build(&[]);
    listen_everywhere(&mut sandbox, PORT);
    let mut cut: Vec<Connection> =
        [Protocol::Tcp, Protocol::Udp].map(|protocol| connect(&sandbox, "10.0.1.2", "10.0.2.2", protocol)).into();
    assert_eq!(Connection::all_alive(&mut cut, TEST_TIMEOUT).unwrap(), [true, true]);
    let node = sandbox.node("n1").unwrap();
    nft(node, "add table ip wall; add chain ip wall f { type filter hook forward priority 0; policy drop; };");
    assert_eq!(Connection::all_alive(&mut cut, SOON).unwrap(), [false, false]);
    let from = sandbox.place(address("10.0.1.2")).unwrap();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let opened = sandbox.connect(&from, SocketAddr::new(address("10.0.2.2"), PORT), protocol).unwrap();
        assert_eq!(opened.err(), Some(Measured::Silent), "{protocol}");
    }
    nft(node, "delete table ip wall");
    // TCP sends again what was lost, a little later.
    assert_eq!(Connection::all_alive(&mut cut, Duration::from_secs(60)).unwrap(), [true, true]);
}

#[test]
fn a_nodes_addresses_change_under_its_pods() {
    if !has_rights() {
        return;
    }
    let mut sandbox = base().build(&[]);
    listen_everywhere(&mut sandbox, PORT);
    let mut kept = connect(&sandbox, "10.0.1.2", "10.0.2.2", Protocol::Tcp);
    let moved = Cluster::default()
        .node("n1", &["192.0.2.11", "2001:db8::11"])
        .node("n2", &["192.0.2.2"])
        .pod("shop/web", "n1", &["10.0.1.2", "fd00:1::2"])
        .pod("shop/db", "n2", &["10.0.2.2", "fd00:2::2"]);
    assert_eq!(sandbox.update(&moved.0, &[]).unwrap(), Default::default());
    listen_everywhere(&mut sandbox, PORT);
    for protocol in EVERY_PROTOCOL {
        assert_eq!(measure(&sandbox, "10.0.2.2", "192.0.2.11", protocol), Measured::Open, "{protocol}");
        assert_eq!(measure(&sandbox, "2001:db8::11", "fd00:2::2", protocol), Measured::Open, "{protocol}");
    }
    assert!(matches!(measure(&sandbox, "10.0.2.2", "192.0.2.1", Protocol::Tcp), Measured::Unreachable(_)));
    assert!(kept.alive(TEST_TIMEOUT).unwrap());
    sandbox.update(&base().0, &[]).unwrap();
    listen_everywhere(&mut sandbox, PORT);
    assert_eq!(measure(&sandbox, "10.0.2.2", "192.0.2.1", Protocol::Tcp), Measured::Open);
}

#[test]
fn a_new_address_answers_at_once() {
    if !has_rights() {
        return;
    }
    let mut sandbox = base().build(&[]);
    for round in 0..40 {
        let new = format!("2001:db8::{round}");
        let changed = base().node("n3", &[&new]).pod("shop/new", "n1", &[&format!("fd00:9::{round}")]);
        sandbox.update(&changed.0, &addresses(&[&format!("2001:db8:1::{round}")])).unwrap();
        for to in [new, format!("fd00:9::{round}"), format!("2001:db8:1::{round}")] {
            assert_eq!(measure(&sandbox, "fd00:2::2", &to, Protocol::Icmp), Measured::Open, "{to}");
        }
    }
}

#[test]
fn fifty_pods_are_built_step_by_step() {
    if !has_rights() {
        return;
    }
    let mut cluster = Cluster::default();
    for node in 1..=3 {
        cluster = cluster.node(&format!("n{node}"), &[&format!("192.0.2.{node}"), &format!("2001:db8::{node}")]);
    }
    for pod in 0..50 {
        let (node, name) = (format!("n{}", pod % 3 + 1), format!("shop/p{pod}"));
        cluster = cluster.pod(&name, &node, &[&format!("10.0.0.{pod}"), &format!("fd00::1:{pod}")]);
    }
    let mut steps = Vec::new();
    let start = Instant::now();
    let mut sandbox = cluster.build_watched(&["203.0.113.7"], &mut |progress| steps.push(progress));
    let took = start.elapsed();
    println!("50 pods on 3 nodes: {took:?}");
    assert_eq!(steps.len(), 53);
    assert_eq!(steps.last(), Some(&Progress { done: 53, total: 53 }));
    let start = Instant::now();
    listen_everywhere(&mut sandbox, PORT);
    println!("listening on four protocols everywhere: {:?}", start.elapsed());
    let start = Instant::now();
    let open = (1..50).map(|pod| measure(&sandbox, "10.0.0.0", &format!("10.0.0.{pod}"), Protocol::Tcp));
    assert!(open.into_iter().all(|measured| measured == Measured::Open));
    println!("49 probes one after another: {:?}", start.elapsed());
}
