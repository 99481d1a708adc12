//! The moment of a change (security model, 9): a packet that the old Program
//! denies and the new one denies too must not pass while one replaces the other.
//!
//! A pod sends packets as fast as it can, and the table is changed again and
//! again between two Programs that both deny them, each in its own way. In the
//! kernel a packet sees rules as they were when it came, and elements of sets
//! as they are when it asks: every such mixture is met here.

mod common;

use common::{Cluster, PORT, address, has_rights};
use namewall_dataplane::SingleThreaded;
use namewall_dataplane::nft::{Nft, Settings, uninstall};
use namewall_dataplane::render::Scope;
use namewall_policy::labels::Selector;
use namewall_policy::model::{
    Action, Clauses, Enforcement, NamespaceScope, Peer, Peers, Placement, PodSet, Policy, PolicyKind, PolicyRef, Ports,
    Rule, Subject,
};
use namewall_policy::{Instant, Program, Snapshot, compile};
use namewall_sandbox::Sandbox;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const CHANGES: usize = 1500;
const TABLES: usize = 50;
/// A busy machine may take long; what is lost never comes.
const TEST_TIMEOUT: Duration = Duration::from_secs(10);
const NOW: Instant = Instant(Duration::ZERO);
const FROM: &str = "10.0.0.2";
const TO: &str = "10.0.0.3";

fn cluster() -> Cluster {
    Cluster::default().node("n1", &["192.0.2.1"]).pod("shop/web", "n1", &[FROM]).pod("bank/db", "n1", &[TO])
}

fn with(policies: impl IntoIterator<Item = Policy>) -> Program {
    let mut snapshot: Snapshot = cluster().0;
    Arc::make_mut(&mut snapshot.policies).extend(policies);
    compile(&snapshot).0
}

fn policy(kind: PolicyKind, name: &str, placement: Placement) -> Policy {
    let namespace = (kind == PolicyKind::NetworkPolicy).then(|| "shop".into());
    Policy {
        id: PolicyRef { kind, namespace, name: name.into() },
        placement,
        enforcement: Enforcement::Enforce,
        subject: Subject { pods: in_namespace("shop"), nodes: None },
        egress: Vec::new(),
        ingress: Vec::new(),
        source: None,
    }
}

fn in_namespace(name: &str) -> PodSet {
    PodSet { namespaces: NamespaceScope::Named(name.into()), pods: Selector::everything() }
}

/// Shop may send nothing, by a NetworkPolicy of that name.
fn isolated_by(name: &str) -> Program {
    let placement = Placement::Network { isolates_ingress: false, isolates_egress: true };
    with([policy(PolicyKind::NetworkPolicy, name, placement)])
}

/// Shop may send nothing to those, and anything to others, by a policy of that name.
fn denied_by(name: &str, peers: PodSet) -> Program {
    let mut policy = policy(PolicyKind::ClusterNetworkPolicy, name, Placement::Admin { priority: 1 });
    let peers = Peers::Listed(vec![Peer::Pods(peers)]);
    let clauses = Clauses::Match { peers, ports: Ports::Any };
    policy.egress.push(Rule { name: None, action: Action::Deny, clauses, source: None });
    with([policy])
}

#[test]
fn nothing_passes_while_one_isolating_policy_replaces_another() {
    nothing_passes(&isolated_by("one"), &isolated_by("two"));
}

#[test]
fn nothing_passes_while_one_denial_replaces_another() {
    nothing_passes(&denied_by("one", in_namespace("bank")), &denied_by("two", PodSet::all()));
}

#[test]
fn nothing_passes_while_a_denial_replaces_an_isolating_policy() {
    nothing_passes(&isolated_by("one"), &denied_by("two", in_namespace("bank")));
}

/// A base chain drops what comes to its end. It must not do so before its rules are there.
#[test]
fn a_connection_loses_nothing_while_the_table_is_made() {
    if !has_rights() {
        return;
    }
    let sandbox = cluster().build(&[]);
    let node = sandbox.node("n1").expect("the node is there").clone();
    let (from, to) = (socket(&sandbox, FROM, 0), socket(&sandbox, TO, PORT));
    from.connect(SocketAddr::new(address(TO), PORT)).expect("a destination");
    to.connect(from.local_addr().expect("its address")).expect("a destination");
    for socket in [&from, &to] {
        socket.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
    }
    let stop = AtomicBool::new(false);
    let echoes = thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let mut buffer = [0; 1];
            let mut echoes = 0;
            while !stop.load(Ordering::Relaxed) {
                from.send(b"x").and_then(|_| to.recv(&mut buffer)).expect("what was sent arrives");
                to.send(b"y").and_then(|_| from.recv(&mut buffer)).expect("the answer arrives");
                echoes += 1;
            }
            echoes
        });
        let program = denied_by("one", in_namespace("shop"));
        let make = || {
            let mut nft = open();
            nft.replace(&program, NOW).expect("the table is made");
            drop(nft);
            uninstall(&Settings::default().table, TEST_TIMEOUT, &mut |_| {}).expect("it is removed");
        };
        node.enter(|| (0..TABLES).for_each(|_| make())).expect("the node is entered");
        stop.store(true, Ordering::Relaxed);
        asks.join().expect("nothing is lost")
    });
    assert!(echoes > TABLES, "too few to meet a table that is made: {echoes}");
}

/// The table of the node whose namespace the thread is in.
fn open() -> SingleThreaded<Nft> {
    SingleThreaded::new(Nft::open(Settings::default()).expect("nftables"), Scope::default())
}

fn nothing_passes(one: &Program, other: &Program) {
    if !has_rights() {
        return;
    }
    let sandbox = cluster().build(&[]);
    let node = sandbox.node("n1").expect("the node is there").clone();
    let (heard, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let sent = AtomicUsize::new(0);
    let (from, to) = (socket(&sandbox, FROM, 0), socket(&sandbox, TO, PORT));
    to.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    from.connect(SocketAddr::new(address(TO), PORT)).expect("a destination");
    let changes = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                heard.fetch_add(usize::from(to.recv(&mut [0; 16]).is_ok()), Ordering::Relaxed);
            }
        });
        let changed = node.enter(|| {
            let mut nft = open();
            nft.replace(one, NOW).expect("the table is made");
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let _ = from.send(b"x");
                        sent.fetch_add(1, Ordering::Relaxed);
                    }
                });
                let unheard = |_: &usize| heard.load(Ordering::Relaxed) == 0;
                let changes = (1..=CHANGES).take_while(unheard).inspect(|turn| {
                    let next = if turn % 2 == 0 { one } else { other };
                    nft.replace(next, NOW).expect("the table is changed");
                });
                let changes = changes.count();
                stop.store(true, Ordering::Relaxed);
                changes
            })
        });
        changed.expect("the node is entered")
    });
    let (heard, sent) = (heard.into_inner(), sent.into_inner());
    println!("{changes} changes, {sent} packets");
    assert_eq!(heard, 0, "a packet passed at change {changes}, of {sent} sent");
    assert!(sent > 10 * CHANGES, "too few packets to meet a change: {sent}");
}

fn socket(sandbox: &Sandbox, at: &str, port: u16) -> UdpSocket {
    let place = sandbox.place(address(at)).expect("a place");
    place.namespace.enter(|| UdpSocket::bind((place.source, port))).expect("it is entered").expect("a socket")
}
