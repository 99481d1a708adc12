//! Namespaces, nodes, workloads and services.

use super::{NAMESPACES, NOBODY, NODE_PORTS, PORTS, ips, labels, read};
use namewall_policy::Snapshot;
use namewall_policy::labels::Labels;
use namewall_policy::model::{
    Backend, BackendTarget, NamedPort, Namespace, NamespaceId, Node, NodeId, Owner, Role, ServedAddress, Service,
    ServiceForm, ServicePort, Workload, WorkloadId, WorkloadKind,
};
use namewall_policy::port::{Protocol, TransportPort};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use std::net::IpAddr;
use std::sync::Arc;

/// Of each node: one address apart from the pods, one of IPv6, one among the pods' (a bridge's), and
/// the first or the last of each family.
const NODE_ADDRESSES: [[&str; 7]; 2] = [
    ["172.16.0.1", "fd01::1", "10.0.0.250", "0.0.0.0", "::", "172.17.0.1", "fe80::1"],
    [
        "172.16.0.2",
        "fd01::2",
        "10.0.1.250",
        "255.255.255.255",
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "172.17.0.1",
        "fe80::1",
    ],
];
/// Of each node: addresses that only its `hostNetwork` pods tell of, beside some of its own or apart from them.
const UNLISTED_ADDRESSES: [[&str; 2]; 2] = [["172.16.0.3", "0.0.0.1"], ["172.16.0.5", "fd01::3"]];
const POD_NETWORKS: [&[&str]; 6] = [
    &["10.0.0.0/24"],
    &[],
    &["10.0.0.0/23"],
    &["10.0.0.0/24", "fd00::/64"],
    &["10.0.0.0/24", "10.0.1.0/24"],
    &["fd00::/64"],
];
/// Its own, a node's, and a pod's.
const API_SERVER: [&str; 4] = ["192.0.2.10", "fd02::1", "172.16.0.1", "10.0.0.1"];

/// Backends of Services besides: pods, and a node.
const BACKENDS: [&str; 4] = ["10.0.0.1", "10.0.0.2", "fd00::1", "172.16.0.1"];

#[derive(Clone, Debug)]
pub(super) struct Cluster {
    namespaces: Vec<(Labels, bool)>,
    nodes: Vec<(Labels, Vec<usize>)>,
    workloads: Vec<Member>,
    services: Vec<Service>,
    pod_networks: &'static [&'static str],
    api_server: Vec<&'static str>,
    /// Roles nobody plays, before all others: enough to fill more than one word of bits.
    unplayed: usize,
}

#[derive(Clone, Debug)]
struct Member {
    namespace: u32,
    labels: Labels,
    kind: WorkloadKind,
    node: Option<u32>,
    host_network: bool,
    interfaces: Interfaces,
    /// Whether it claims an address of the pod before it (S1.9).
    claims: bool,
    /// Which of its node's unlisted addresses a `hostNetwork` pod has.
    unlisted: Vec<usize>,
    ports: Vec<NamedPort>,
}

#[derive(Clone, Copy, Debug)]
enum Interfaces {
    V4,
    V6,
    Dual,
    /// A second one, apart from the pod network.
    Second,
    /// Near the first and the last address of IPv4, and the last of IPv6.
    Edge,
    NoneYet,
}

pub(super) fn clusters() -> impl Strategy<Value = Cluster> {
    let namespaces = prop::collection::vec((labels(), prop::bool::weighted(0.15)), NAMESPACES.len());
    let nodes = prop::collection::vec((labels(), subsequence(vec![0, 1, 2, 3, 4, 5, 6], 0..=7)), NODE_ADDRESSES.len());
    let workloads = prop::collection::vec(members(), 1..7);
    let services = prop::collection::vec(services(), 1..3);
    let api_server = subsequence(API_SERVER.to_vec(), 0..=API_SERVER.len());
    let unplayed = prop_oneof![19 => Just(0), 1 => Just(62)];
    (namespaces, nodes, workloads, services, select(POD_NETWORKS.to_vec()), api_server, unplayed).prop_map(
        |(namespaces, nodes, workloads, services, pod_networks, api_server, unplayed)| Cluster {
            namespaces,
            nodes,
            workloads,
            services,
            pod_networks,
            api_server,
            unplayed,
        },
    )
}

/// With a node port, mostly.
fn services() -> impl Strategy<Value = Service> {
    let protocol = prop_oneof![3 => Just(Protocol::Tcp), 1 => Just(Protocol::Udp)];
    let address = prop_oneof![select(NOBODY.to_vec()), select(BACKENDS.to_vec())];
    let backends = prop::collection::vec((address, select(PORTS.to_vec())), 1..5);
    let port = (protocol, prop::option::weighted(0.8, select(NODE_PORTS.to_vec())), backends);
    let addresses = || prop::collection::vec(select(NOBODY.to_vec()), 1..3);
    let addresses = prop_oneof![2 => Just(Vec::new()), 1 => addresses()];
    let proxied = prop::bool::weighted(0.3);
    (0..3u32, prop::collection::vec(port, 1..4), addresses, proxied).prop_map(
        |(namespace, ports, addresses, proxied)| {
            let addresses: Vec<IpAddr> = addresses.into_iter().map(read).collect();
            Service {
                namespace: NamespaceId(namespace),
                name: "".into(),
                form: ServiceForm::Balanced,
                // Its last address is one of a load balancer outside.
                proxied: addresses.last().copied().filter(|_| proxied).into_iter().collect(),
                addresses,
                external: Vec::new(),
                ports: ports
                    .into_iter()
                    .map(|(protocol, node_port, backends)| service_port(protocol, node_port, &backends))
                    .collect(),
                source: None,
            }
        },
    )
}

fn service_port(protocol: Protocol, node_port: Option<u16>, backends: &[(&str, u16)]) -> ServicePort {
    let backend = |&(address, port): &_| Backend { target: BackendTarget::Address(read(address)), port };
    ServicePort { name: None, protocol, port: 80, node_port, backends: backends.iter().map(backend).collect() }
}

fn members() -> impl Strategy<Value = Member> {
    use Interfaces::{Dual, Edge, NoneYet, Second, V4, V6};
    use WorkloadKind::{DaemonSet, Deployment, Job, Pod};
    let kinds = prop_oneof![4 => Just(Pod), 1 => select(vec![Deployment, DaemonSet, Job])];
    let interfaces = prop_oneof![4 => select(vec![V4, Dual]), 1 => select(vec![V6, Second, Edge, NoneYet])];
    let node = select(vec![None, Some(0), Some(1)]);
    let ports = prop::collection::vec(named_ports(), 0..4);
    let host_network = (prop::bool::weighted(0.15), subsequence(vec![0, 1], 0..=2));
    let interfaces = (interfaces, prop::bool::weighted(0.2));
    (0..3u32, labels(), kinds, node, host_network, interfaces, ports).prop_map(
        |(namespace, labels, kind, node, (host_network, unlisted), (interfaces, claims), ports)| Member {
            namespace,
            labels,
            kind,
            node,
            host_network,
            interfaces,
            claims,
            unlisted,
            ports,
        },
    )
}

/// One name may stand for several numbers and protocols.
fn named_ports() -> impl Strategy<Value = NamedPort> {
    (select(vec!["web", "dns"]), select(vec![Protocol::Tcp, Protocol::Udp]), select(vec![80, 8080, 443]))
        .prop_map(|(name, protocol, port)| NamedPort { name: name.into(), protocol, port })
}

impl Cluster {
    pub(super) fn build(self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.pod_networks = Arc::new(self.pod_networks.iter().map(|text| read(text)).collect());
        // The ports differ by address: those of even numbers are served at two.
        for (at, address) in ips(&self.api_server).into_iter().enumerate() {
            for port in [443, 80].into_iter().take(1 + (at + 1) % 2) {
                let port = TransportPort { protocol: Protocol::Tcp, port };
                snapshot.api_server.push(ServedAddress { address, port });
            }
        }
        for (name, (labels, default_deny_ingress)) in NAMESPACES.into_iter().zip(self.namespaces) {
            snapshot.add_namespace(Namespace { name: name.into(), labels, default_deny_ingress, source: None });
        }
        for (at, (labels, addresses)) in self.nodes.into_iter().enumerate() {
            let addresses = addresses.into_iter().map(|pick| read(NODE_ADDRESSES[at][pick])).collect();
            snapshot.add_node(Node { name: format!("node{at}").into(), labels, addresses, source: None });
        }
        for at in 0..self.unplayed {
            let labels = [("unplayed", at.to_string())].into_iter().collect();
            snapshot.role_of(Role { namespace: NamespaceId(0), labels, host_network: false });
        }
        for member in self.workloads {
            member.add(&mut snapshot);
        }
        for (at, service) in self.services.into_iter().enumerate() {
            snapshot.services.push(Service { name: format!("s{at}").into(), ..service });
        }
        snapshot
    }
}

impl Member {
    fn add(self, snapshot: &mut Snapshot) -> WorkloadId {
        let at = snapshot.workloads.len();
        let node = self.node.map(NodeId);
        let addresses = match (self.kind, self.host_network) {
            (WorkloadKind::Pod, false) => self.claimed(snapshot).unwrap_or_else(|| self.interfaces.addresses(at)),
            (WorkloadKind::Pod, true) => node.map(|node| self.on_host(snapshot, node)).unwrap_or_default(),
            _ => Vec::new(),
        };
        let namespace = NamespaceId(self.namespace);
        let role = Role { namespace, labels: self.labels, host_network: self.host_network };
        let workload = Workload {
            kind: self.kind,
            addresses: addresses.into(),
            node,
            ports: self.ports.into(),
            owner: (!at.is_multiple_of(3)).then(|| Arc::new(Owner { kind: "Deployment".into(), name: "app".into() })),
            ..snapshot.new_pod(role, &format!("w{at}"))
        };
        snapshot.add_workload(workload)
    }
}

impl Member {
    /// One address of the pod before it, besides those of its own; never more than three pods have one.
    fn claimed(&self, snapshot: &Snapshot) -> Option<Vec<IpAddr>> {
        let at = snapshot.workloads.len();
        let before = snapshot.workloads.get(at.checked_sub(1)?).filter(|_| self.claims && !at.is_multiple_of(3))?;
        let claimed = *before.addresses.first().filter(|_| !before.host_network)?;
        let own = self.interfaces.addresses(at).into_iter().filter(|own| own.is_ipv4() != claimed.is_ipv4());
        Some(std::iter::once(claimed).chain(own).collect())
    }

    fn on_host(&self, snapshot: &Snapshot, node: NodeId) -> Vec<IpAddr> {
        let unlisted = self.unlisted.iter().map(|&pick| read(UNLISTED_ADDRESSES[node.index()][pick]));
        snapshot.node(node).addresses.iter().copied().chain(unlisted).collect()
    }
}

impl Interfaces {
    /// Every other pod is in the second block, which may be unknown.
    fn addresses(self, at: usize) -> Vec<IpAddr> {
        let v4 = format!("10.0.{}.{}", at % 2, at + 1);
        let v6 = format!("fd00::{}", at + 1);
        let last_v6 = format!("ffff:ffff:ffff:ffff:ffff:ffff:ffff:{:x}", 0xfffe - at);
        let second = format!("198.51.100.{}", at + 1);
        match self {
            Self::V4 => ips(&[&v4]),
            Self::V6 => ips(&[&v6]),
            Self::Dual => ips(&[&v4, &v6]),
            Self::Second => ips(&[&v4, &second]),
            Self::Edge => ips(&[&format!("0.1.0.{at}"), &format!("255.255.255.{}", 254 - at), &last_v6]),
            Self::NoneYet => Vec::new(),
        }
    }
}
