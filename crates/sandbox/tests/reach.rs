//! Without a firewall everybody reaches everybody, over every protocol and both
//! families; and a drop, a refusal and a hole in the routing look different.

mod common;

use common::{Cluster, EVERY_PROTOCOL, PORT, address, has_rights, listen_everywhere, measure, nft, probe, run_in};
use namewall_policy::port::Protocol;
use namewall_sandbox::{Error, Listen, Measured, Probe, Sandbox};
use nix::errno::Errno;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::Instant;

const OUTSIDE: [&str; 3] = ["203.0.113.7", "2001:db8:ffff::7", "169.254.169.254"];

fn cluster() -> Cluster {
    Cluster::default()
        .node("n1", &["192.0.2.1", "2001:db8:1::1", "198.51.100.1"])
        .node("n2", &["192.0.2.2", "2001:db8:1::2"])
        .pod("shop/web", "n1", &["10.0.1.2", "fd00:1::2"])
        .pod("shop/api", "n1", &["10.0.1.3", "fd00:1::3"])
        .pod("shop/db", "n2", &["10.0.2.2", "fd00:2::2", "10.9.9.9"])
        .pod("ops/old", "n2", &["10.0.2.3"])
        .pod("ops/new", "n2", &["fd00:2::3"])
        .pod("*ops/agent", "n2", &["192.0.2.2"])
}

/// A cluster in which everybody listens, if this process may build one.
fn listening() -> Option<Sandbox> {
    if !has_rights() {
        return None;
    }
    let mut sandbox = cluster().build(&OUTSIDE);
    listen_everywhere(&mut sandbox, PORT);
    Some(sandbox)
}

/// Every pair of addresses of one family.
fn pairs(sandbox: &Sandbox, protocols: &[Protocol]) -> Vec<Probe> {
    let all: Vec<IpAddr> = sandbox.topology().addresses().collect();
    let mut probes = Vec::new();
    for &from in &all {
        for &to in all.iter().filter(|to| to.is_ipv4() == from.is_ipv4()) {
            for &protocol in protocols {
                let from = sandbox.place(from).expect("a place");
                probes.push(Probe { from, to: SocketAddr::new(to, PORT), protocol });
            }
        }
    }
    probes
}

/// Fails with every probe that brought something else.
fn expect_all(sandbox: &Sandbox, probes: &[Probe], expected: Measured) {
    // An answer may be late again and again on a busy machine; what is dropped is dropped every time.
    let repeats = if expected == Measured::Open { 50 } else { 0 };
    let measured = sandbox.probe_patiently(probes, repeats).expect("sockets for all");
    let wrong = probes.iter().zip(&measured).filter(|(_, measured)| **measured != expected);
    let wrong: Vec<String> = wrong
        .map(|(probe, found)| format!("{} -> {}/{}: {found}", probe.from.source, probe.to, probe.protocol))
        .collect();
    assert!(wrong.is_empty(), "{} of {} not {expected}:\n{}", wrong.len(), probes.len(), wrong.join("\n"));
}

#[test]
fn everybody_reaches_everybody() {
    let Some(sandbox) = listening() else { return };
    let probes = pairs(&sandbox, &EVERY_PROTOCOL);
    let start = Instant::now();
    expect_all(&sandbox, &probes, Measured::Open);
    println!("{} probes, all open: {:?}", probes.len(), start.elapsed());
}

#[test]
fn a_host_network_pod_is_its_node() {
    if !has_rights() {
        return;
    }
    let sandbox = cluster().build(&[]);
    assert!(std::sync::Arc::ptr_eq(sandbox.pod("ops/agent").unwrap(), sandbox.node("n2").unwrap()));
    assert!(!std::sync::Arc::ptr_eq(sandbox.pod("shop/db").unwrap(), sandbox.node("n2").unwrap()));
}

#[test]
fn a_port_without_a_listener_refuses() {
    if !has_rights() {
        return;
    }
    let mut sandbox = cluster().build(&OUTSIDE);
    let refusing = pairs(&sandbox, &[Protocol::Tcp, Protocol::Udp]);
    expect_all(&sandbox, &refusing, Measured::Refused);
    // Here nobody at all speaks SCTP: the kernel says so.
    assert_eq!(measure(&sandbox, "10.0.1.2", "10.0.2.2", Protocol::Sctp), Measured::Refused);
    assert_eq!(measure(&sandbox, "fd00:1::2", "fd00:2::2", Protocol::Sctp), Measured::Refused);
    listen_everywhere(&mut sandbox, PORT + 1);
    expect_all(&sandbox, &pairs(&sandbox, &[Protocol::Tcp, Protocol::Udp, Protocol::Sctp]), Measured::Refused);
}

#[test]
fn an_address_that_listens_does_not_speak_for_its_neighbour() {
    if !has_rights() {
        return;
    }
    let mut sandbox = cluster().build(&OUTSIDE);
    let wanted = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].map(|protocol| Listen {
        address: address("203.0.113.7"),
        protocol,
        port: PORT,
    });
    sandbox.ensure_listening(&wanted).unwrap();
    sandbox.ensure_listening(&wanted).unwrap();
    for protocol in wanted.map(|listen| listen.protocol) {
        assert_eq!(measure(&sandbox, "10.0.1.2", "203.0.113.7", protocol), Measured::Open, "{protocol}");
        assert_eq!(measure(&sandbox, "10.0.1.2", "169.254.169.254", protocol), Measured::Refused, "{protocol}");
    }
}

#[test]
fn a_dropped_packet_is_silent() {
    let Some(sandbox) = listening() else { return };
    nft(
        sandbox.node("n1").unwrap(),
        "add table inet wall; \
         add chain inet wall forward { type filter hook forward priority 0; policy drop; }; \
         add chain inet wall out { type filter hook output priority 0; ip daddr 203.0.113.7 drop; };",
    );
    let web = |to, protocol| probe(&sandbox, "10.0.1.2", to, protocol);
    let web6 = |to, protocol| probe(&sandbox, "fd00:1::2", to, protocol);
    let node = |to, protocol| probe(&sandbox, "192.0.2.1", to, protocol);
    let dropped = EVERY_PROTOCOL.iter().flat_map(|&protocol| {
        [
            web("10.0.1.3", protocol),
            web("10.0.2.2", protocol),
            web("10.0.2.2:9", protocol),
            web("203.0.113.7", protocol),
            web6("fd00:1::3", protocol),
            web6("fd00:2::2", protocol),
            node("203.0.113.7", protocol),
        ]
    });
    expect_all(&sandbox, &dropped.collect::<Vec<_>>(), Measured::Silent);
    let kept = EVERY_PROTOCOL.iter().flat_map(|&protocol| {
        [web("10.0.1.2", protocol), web("192.0.2.1", protocol), node("10.0.1.2", protocol), node("192.0.2.2", protocol)]
    });
    expect_all(&sandbox, &kept.collect::<Vec<_>>(), Measured::Open);
}

#[test]
fn a_rejected_packet_is_not_silent() {
    let Some(sandbox) = listening() else { return };
    nft(
        sandbox.node("n2").unwrap(),
        "add table inet wall; \
         add chain inet wall forward { type filter hook forward priority 0; }; \
         add rule inet wall forward reject with icmpx type admin-prohibited;",
    );
    for protocol in EVERY_PROTOCOL {
        let measured = measure(&sandbox, "10.0.1.2", "10.0.2.2", protocol);
        assert_eq!(measured, Measured::Unreachable(Errno::EHOSTUNREACH), "{protocol}");
        let measured = measure(&sandbox, "fd00:1::2", "fd00:2::2", protocol);
        assert_eq!(measured, Measured::Unreachable(Errno::EACCES), "{protocol}");
    }
}

#[test]
fn an_address_that_nobody_has_is_unreachable() {
    if !has_rights() {
        return;
    }
    let sandbox = cluster().build(&OUTSIDE);
    for protocol in EVERY_PROTOCOL {
        let measured = measure(&sandbox, "10.0.1.2", "10.0.7.7", protocol);
        assert!(matches!(measured, Measured::Unreachable(_)), "{protocol}: {measured}");
    }
    assert!(matches!(sandbox.place(address("10.0.7.7")), Err(Error::NoSuchAddress(_))));
}

#[test]
fn a_connection_tracked_by_the_node_works_over_every_protocol() {
    let Some(sandbox) = listening() else { return };
    for (_, node) in sandbox.nodes() {
        nft(
            node,
            "add table inet wall; \
             add chain inet wall forward { type filter hook forward priority 0; policy drop; }; \
             add rule inet wall forward ct state established,related accept; \
             add rule inet wall forward ct state new ip daddr { 10.0.2.2, 203.0.113.7 } accept; \
             add rule inet wall forward ct state new ip6 daddr fd00:2::2 accept;",
        );
    }
    for protocol in EVERY_PROTOCOL {
        for (from, to) in [("10.0.1.2", "10.0.2.2"), ("fd00:1::2", "fd00:2::2"), ("10.0.1.2", "203.0.113.7")] {
            assert_eq!(measure(&sandbox, from, to, protocol), Measured::Open, "{from} -> {to}/{protocol}");
        }
        assert_eq!(measure(&sandbox, "10.0.1.2", "10.0.2.3", protocol), Measured::Silent, "{protocol}");
    }
}

#[test]
fn a_batch_that_nobody_answers_takes_one_timeout() {
    let Some(sandbox) = listening() else { return };
    nft(
        sandbox.node("n2").unwrap(),
        "add table inet wall; add chain inet wall forward { type filter hook forward priority 0; policy drop; };",
    );
    let protocols = EVERY_PROTOCOL.iter().cycle();
    let probes: Vec<Probe> =
        protocols.take(1000).map(|&protocol| probe(&sandbox, "10.0.1.2", "10.0.2.2", protocol)).collect();
    let start = Instant::now();
    expect_all(&sandbox, &probes, Measured::Silent);
    // One after the other they would take a thousand.
    assert!(start.elapsed() < sandbox.timeout * 500, "{:?}", start.elapsed());
    let start = Instant::now();
    sandbox.probe_patiently(&probes[..8], 2).unwrap();
    assert!(start.elapsed() >= sandbox.timeout * 3);
}

#[test]
fn a_large_batch_to_one_host_is_answered() {
    let Some(sandbox) = listening() else { return };
    for protocol in EVERY_PROTOCOL {
        for (from, to) in [("10.0.1.2", "10.0.2.2"), ("fd00:1::2", "fd00:2::2")] {
            let probes: Vec<Probe> = (0..500).map(|_| probe(&sandbox, from, to, protocol)).collect();
            let start = Instant::now();
            expect_all(&sandbox, &probes, Measured::Open);
            println!("500 {protocol} probes to {to}: {:?}", start.elapsed());
        }
    }
}

#[test]
fn a_translated_connection_is_answered() {
    let Some(sandbox) = listening() else { return };
    nft(
        sandbox.node("n1").unwrap(),
        "add table ip nat; add chain ip nat pre { type nat hook prerouting priority -100; }; \
         add rule ip nat pre ip daddr 10.96.0.1 meta l4proto { tcp, udp, sctp } dnat to 10.0.2.2 : th dport map { 80 : 8080 }; \
         add table ip6 nat; add chain ip6 nat pre { type nat hook prerouting priority -100; }; \
         add rule ip6 nat pre ip6 daddr fd96::1 dnat to fd00:2::2;",
    );
    for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
        assert_eq!(measure(&sandbox, "10.0.1.2", "10.96.0.1:80", protocol), Measured::Open, "{protocol}");
        assert_eq!(measure(&sandbox, "fd00:1::2", "fd96::1", protocol), Measured::Open, "{protocol}");
    }
}

#[test]
fn nothing_of_it_is_seen_from_the_machine() {
    if !has_rights() {
        return;
    }
    let sandbox = cluster().build(&OUTSIDE);
    let links = run_in(sandbox.node("n1").unwrap(), Command::new("cat").arg("/proc/self/net/dev"));
    let of_pod = links.lines().filter_map(|line| line.trim().split_once(':')).find(|(name, _)| name.starts_with("pod"));
    let (of_pod, _) = of_pod.expect("the node has a link to a pod");
    let own = std::fs::read_to_string("/proc/self/net/dev").unwrap();
    assert!(!own.contains(&format!("{of_pod}:")), "{own}");
}
