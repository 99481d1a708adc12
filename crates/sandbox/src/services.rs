//! Services by DNAT in a node's namespace, as kube-proxy does it: where a
//! connection enters, its destination becomes a backend's, each in turn. And
//! load balancers outside, which take what no node translates (`ipMode: Proxy`)
//! and pass it on as their own.

use crate::topology::Topology;
use namewall_dataplane::nft::rule::{Action, End, Rule, Test};
use namewall_dataplane::nft::set::Version;
use namewall_dataplane::nft::table::{Fallback, Hook, HookKind, Point, Table};
use namewall_policy::Snapshot;
use namewall_policy::model::{BackendTarget, ServicePort};
use namewall_policy::port::Protocol;
use std::net::{IpAddr, SocketAddr};

/// Where kube-proxy's tables translate.
const DESTINATION_NAT: i32 = -100;
const SOURCE_NAT: i32 = 100;
/// Before anything is translated.
const BEFORE: i32 = -110;

/// The table for one node.
pub(crate) fn table(snapshot: &Snapshot, topology: &Topology, node: &str) -> Table {
    let mut table = chains();
    let own = topology.nodes.get(node).map(|plan| plan.addresses.as_slice()).unwrap_or_default();
    for service in &snapshot.services {
        for port in &service.ports {
            let asked = service.translated().map(|address| SocketAddr::new(address, port.port));
            let is_served = |address: &&IpAddr| service.is_served_over(address.is_ipv4());
            let node_port = |at: u16| own.iter().filter(is_served).map(move |&address| SocketAddr::new(address, at));
            for asked in asked.chain(port.node_port.into_iter().flat_map(node_port)) {
                let backends = backends(snapshot, port, asked.is_ipv4());
                translate(&mut table, port.protocol, asked, &backends);
            }
        }
    }
    source_nat(&mut table, topology, node);
    table
}

/// The table of the load balancers outside. They go to the node port, at every node in turn, or to the backends where
/// there is none; over the version of IP that they are asked over.
pub(crate) fn relays(snapshot: &Snapshot, topology: &Topology) -> Table {
    let mut table = chains();
    for service in &snapshot.services {
        let proxied = service.proxied.iter().filter(|address| topology.outside.contains(address));
        for (address, port) in proxied.flat_map(|address| service.ports.iter().map(move |port| (*address, port))) {
            let is_ipv4 = address.is_ipv4();
            let first = |addresses: &[IpAddr]| addresses.iter().copied().find(|one| one.is_ipv4() == is_ipv4);
            let nodes = topology.nodes.values().filter_map(|node| first(&node.addresses));
            let by_node = port.node_port.filter(|_| service.is_served_over(is_ipv4));
            let by_node = by_node.into_iter().flat_map(|at| nodes.clone().map(move |node| SocketAddr::new(node, at)));
            let mut to: Vec<SocketAddr> = by_node.collect();
            if to.is_empty() {
                to = backends(snapshot, port, is_ipv4);
            }
            translate(&mut table, port.protocol, SocketAddr::new(address, port.port), &to);
        }
    }
    for version in Version::BOTH {
        let tests = vec![Test::Version(version), Test::Translated];
        table.add_rule("postrouting", Rule::new(tests, Action::Masquerade));
    }
    table
}

/// The chains that translate, without rules.
fn chains() -> Table {
    let mut table = Table::default();
    let chains = [
        ("unserved", Point::Prerouting, BEFORE, HookKind::Filter),
        ("prerouting", Point::Prerouting, DESTINATION_NAT, HookKind::Nat),
        ("output", Point::Output, DESTINATION_NAT, HookKind::Nat),
        ("postrouting", Point::Postrouting, SOURCE_NAT, HookKind::Nat),
    ];
    for (name, point, priority, kind) in chains {
        table.chains.entry(name.to_owned()).or_default().hook =
            Some(Hook { point, device: None, priority, kind, fallback: Fallback::Accept });
    }
    table
}

/// The backends of one family.
fn backends(snapshot: &Snapshot, port: &ServicePort, v4: bool) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for backend in &port.backends {
        let addresses = match backend.target {
            BackendTarget::Address(address) => vec![address],
            BackendTarget::Workload(id) => snapshot.workload(id).addresses.to_vec(),
        };
        let of_family = addresses.into_iter().find(|address| address.is_ipv4() == v4);
        found.extend(of_family.map(|address| SocketAddr::new(address, backend.port)));
    }
    found
}

fn translate(table: &mut Table, protocol: Protocol, asked: SocketAddr, backends: &[SocketAddr]) {
    let Some(number) = protocol_number(protocol) else { return };
    let port = Test::Port { low: asked.port(), high: asked.port() };
    let asked = [is(End::Destination, asked.ip()), Test::Protocol(number), port];
    if backends.is_empty() {
        // kube-proxy would refuse; here nothing may look like an answer.
        table.add_rule("unserved", Rule::new(asked, Action::Drop));
        return;
    }
    for (at, backend) in backends.iter().enumerate() {
        let left = (backends.len() - at) as u32;
        let turn = (left > 1).then_some(Test::EveryNth(left));
        let tests: Vec<Test> = asked.iter().cloned().chain(turn).collect();
        for chain in ["prerouting", "output"] {
            let to = Action::TranslateTo { address: backend.ip(), port: backend.port() };
            table.add_rule(chain, Rule::new(tests.clone(), to));
        }
    }
}

/// A pod that reaches itself must see another source, and an answer must come
/// back by the node that translated the question.
fn source_nat(table: &mut Table, topology: &Topology, node: &str) {
    let pods = || topology.pods.values().filter(|pod| !pod.host_network);
    let mut add = |tests: Vec<Test>, action| table.add_rule("postrouting", Rule::new(tests, action));
    for &address in pods().filter(|pod| *pod.node == *node).flat_map(|pod| &pod.addresses) {
        let itself = vec![Test::Translated, is(End::Source, address), is(End::Destination, address)];
        add(itself, Action::Masquerade);
    }
    // What comes from pods of this node, or goes to them, comes back this way by itself.
    for &address in pods().filter(|pod| *pod.node == *node).flat_map(|pod| &pod.addresses) {
        for end in [End::Source, End::Destination] {
            add(vec![Test::Translated, is(end, address)], Action::Return);
        }
    }
    for version in Version::BOTH {
        add(vec![Test::Version(version), Test::Translated], Action::Masquerade);
    }
}

/// What many CNI plugins do: packets of pods that leave the node for anybody but a pod get the node's address.
pub(crate) fn leaving(topology: &Topology, node: &str) -> Table {
    let mut table = Table::default();
    let (point, priority, kind) = (Point::Postrouting, SOURCE_NAT - 1, HookKind::Nat);
    table.chains.entry("leaving".to_owned()).or_default().hook =
        Some(Hook { point, device: None, priority, kind, fallback: Fallback::Accept });
    let pods = || topology.pods.values().filter(|pod| !pod.host_network);
    for &address in pods().flat_map(|pod| &pod.addresses) {
        table.add_rule("leaving", Rule::new([is(End::Destination, address)], Action::Return));
    }
    for &address in pods().filter(|pod| *pod.node == *node).flat_map(|pod| &pod.addresses) {
        table.add_rule("leaving", Rule::new([is(End::Source, address)], Action::Masquerade));
    }
    table
}

fn is(end: End, address: IpAddr) -> Test {
    Test::Between { end, low: address, high: address }
}

fn protocol_number(protocol: Protocol) -> Option<u8> {
    match protocol {
        Protocol::Tcp => Some(6),
        Protocol::Udp => Some(17),
        Protocol::Sctp => Some(132),
        Protocol::Icmp | Protocol::Other(_) => None,
    }
}
