//! Connections between whatever a cluster has, and the outside.

use super::{LEASED, NAMES, NOBODY, PORTS, read};
use namewall_policy::model::{NodeId, ServiceId, Workload, WorkloadId};
use namewall_policy::port::Protocol;
use namewall_policy::{Endpoint, Flow, Hop, Masker, Snapshot};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::net::IpAddr;

/// A connection whose ends are still to be found in a cluster.
#[derive(Clone, Debug)]
pub(super) struct FlowPlan {
    from: End,
    to: End,
    protocol: Protocol,
    port: u16,
    via: Option<Index>,
    hop: Option<HopPlan>,
    /// Its source may be masked by the node that translates it.
    masked: bool,
}

/// A node that is asked at a port: at one of a Service, if there is one, or at any.
#[derive(Clone, Debug)]
struct HopPlan {
    /// An address of a Service is asked for instead, if there is one.
    at_service: bool,
    node: Index,
    address: Index,
    port: u16,
    service_port: Option<Index>,
}

#[derive(Clone, Debug)]
enum End {
    Workload(Index, Index),
    Node(Index, Index),
    Nobody(&'static str),
    Name(&'static str),
    /// A load balancer outside, whose address nobody knows.
    LoadBalancer,
}

pub(super) fn flows() -> impl Strategy<Value = FlowPlan> {
    let workload = || (any::<Index>(), any::<Index>()).prop_map(|(which, address)| End::Workload(which, address));
    let node = || (any::<Index>(), any::<Index>()).prop_map(|(which, address)| End::Node(which, address));
    let nobody = || select(NOBODY.to_vec()).prop_map(End::Nobody);
    let from = prop_oneof![20 => workload(), 6 => nobody(), 2 => node(), 1 => Just(End::LoadBalancer)];
    let name = select(NAMES.to_vec()).prop_map(End::Name);
    let leased = select(LEASED[..3].to_vec()).prop_map(End::Nobody);
    let to = prop_oneof![7 => workload(), 4 => nobody(), 2 => leased, 2 => node(), 1 => name];
    let protocols = prop_oneof![
        5 => Just(Protocol::Tcp),
        3 => Just(Protocol::Udp),
        1 => select(vec![Protocol::Sctp, Protocol::Icmp, Protocol::Other(47)]),
    ];
    let via = prop::option::weighted(0.5, any::<Index>());
    let service_port = prop::option::weighted(0.95, any::<Index>());
    let hop = (prop::bool::weighted(0.2), any::<Index>(), any::<Index>(), select(PORTS.to_vec()), service_port);
    let hop = hop.prop_map(|(at_service, node, address, port, service_port)| HopPlan {
        at_service,
        node,
        address,
        port,
        service_port,
    });
    let hop = prop::option::weighted(0.5, hop);
    let through = (via, hop, prop::bool::weighted(0.2));
    (from, to, protocols, select(PORTS.to_vec()), through).prop_map(|(from, to, protocol, port, (via, hop, masked))| {
        let port = if protocol.has_ports() { port } else { 0 };
        FlowPlan { from, to, protocol, port, via, hop, masked }
    })
}

impl FlowPlan {
    pub(super) fn build(&self, snapshot: &Snapshot) -> Flow {
        let asked = self.hop.as_ref().and_then(|hop| hop.asked(snapshot));
        Flow {
            from: self.from.build(snapshot),
            to: self.to.build(snapshot),
            protocol: asked.map_or(self.protocol, |(protocol, _)| protocol),
            port: self.port,
            via: self.via.map(|which| ServiceId(which.index(snapshot.services.len()) as u32)),
            hop: self.hop.as_ref().filter(|_| self.from.has_known_node(snapshot)).and_then(|hop| {
                let services: Vec<IpAddr> = snapshot.services.iter().flat_map(|one| one.translated()).collect();
                // What becomes of it is up to routes. For ends without addresses `evaluate` would have to choose.
                let has_addresses = [&self.from, &self.to].iter().all(|end| end.build(snapshot).address.is_some());
                if hop.at_service && has_addresses && !services.is_empty() {
                    return Some(Hop { node: None, address: *hop.address.get(&services), port: hop.port });
                }
                let node = NodeId(hop.node.index(snapshot.nodes.len()) as u32);
                let addresses = &snapshot.node(node).addresses;
                let address = (!addresses.is_empty()).then(|| *hop.address.get(addresses))?;
                Some(Hop { node: Some(node), address, port: asked.map_or(hop.port, |(_, port)| port) })
            }),
            masker: self.masker(snapshot).filter(|_| self.masked && self.hop.is_none()),
        }
    }
}

impl FlowPlan {
    /// Who may put its address in the source's place.
    fn masker(&self, snapshot: &Snapshot) -> Option<Masker> {
        match self.from.build(snapshot) {
            Endpoint { workload: Some(id), .. } => {
                let workload = snapshot.workload(id);
                (!workload.host_network).then(|| workload.node.map_or(Masker::AnyNode, Masker::Node))
            }
            Endpoint { node: Some(_), .. } => None,
            Endpoint { address: None, name: None, .. } => Some(Masker::LoadBalancer),
            _ => Some(Masker::AnyNode),
        }
    }
}

impl HopPlan {
    /// The node port of a Service that it asks for.
    fn asked(&self, snapshot: &Snapshot) -> Option<(Protocol, u16)> {
        let ports = snapshot.services.iter().flat_map(|service| &service.ports);
        let ports: Vec<(Protocol, u16)> = ports.filter_map(|port| Some((port.protocol, port.node_port?))).collect();
        let service_port = self.service_port.as_ref().filter(|_| !ports.is_empty())?;
        Some(*service_port.get(&ports))
    }
}

impl End {
    /// Whether the node of this end is surely known: no two pods of different nodes share an address.
    fn has_known_node(&self, snapshot: &Snapshot) -> bool {
        let Self::Workload(which, _) = self else { return true };
        let own = which.get(&snapshot.workloads.iter().collect::<Vec<_>>()).node;
        let all = || snapshot.workloads.iter();
        let share = |one: &Workload, other: &Workload| one.addresses.iter().any(|at| other.addresses.contains(at));
        own.is_some() && all().all(|one| all().all(|other| one.node == other.node || !share(one, other)))
    }

    fn build(&self, snapshot: &Snapshot) -> Endpoint {
        match self {
            Self::Workload(which, address) => {
                let id = WorkloadId(which.index(snapshot.workloads.len()) as u32);
                let workload = snapshot.workload(id);
                Endpoint {
                    workload: Some(id),
                    node: workload.node.filter(|_| workload.host_network),
                    address: (!workload.addresses.is_empty()).then(|| *address.get(&workload.addresses)),
                    ..Endpoint::default()
                }
            }
            Self::Node(which, address) => {
                let id = NodeId(which.index(snapshot.nodes.len()) as u32);
                let addresses = &snapshot.node(id).addresses;
                let address = (!addresses.is_empty()).then(|| *address.get(addresses));
                Endpoint { node: Some(id), address, ..Endpoint::default() }
            }
            // The last address of IPv4 may be a node's.
            Self::Nobody(address) => {
                let address = read(address);
                Endpoint { node: node_at(snapshot, address), address: Some(address), ..Endpoint::default() }
            }
            Self::Name(name) => Endpoint::name(read(name)),
            Self::LoadBalancer => Endpoint::default(),
        }
    }
}

/// The node that has the address, if no other machine may.
fn node_at(snapshot: &Snapshot, address: IpAddr) -> Option<NodeId> {
    let at = snapshot.nodes.iter().position(|node| node.addresses.contains(&address));
    at.filter(|_| !is_others_too(snapshot, address)).map(|at| NodeId(at as u32))
}

/// Whether a node's address may be another machine's as well.
pub(crate) fn is_others_too(snapshot: &Snapshot, address: IpAddr) -> bool {
    let having = snapshot.nodes.iter().filter(|node| node.addresses.contains(&address));
    having.count() > 1 || address == read::<IpAddr>("fe80::1")
}
