//! Connections between whatever a cluster has, and the outside.

use super::{LEASED, NAMES, NOBODY, PORTS, read};
use namewall_policy::model::{NodeId, ServiceId, WorkloadId};
use namewall_policy::port::Protocol;
use namewall_policy::{Endpoint, Flow, Hop, Snapshot};
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
    hop: Option<(Index, u16)>,
}

#[derive(Clone, Debug)]
enum End {
    Workload(Index, Index),
    Node(Index, Index),
    Nobody(&'static str),
    Name(&'static str),
}

pub(super) fn flows() -> impl Strategy<Value = FlowPlan> {
    let workload = || (any::<Index>(), any::<Index>()).prop_map(|(which, address)| End::Workload(which, address));
    let node = || (any::<Index>(), any::<Index>()).prop_map(|(which, address)| End::Node(which, address));
    let nobody = || select(NOBODY.to_vec()).prop_map(End::Nobody);
    let from = prop_oneof![10 => workload(), 3 => nobody(), 1 => node()];
    let name = select(NAMES.to_vec()).prop_map(End::Name);
    let leased = select(LEASED[..3].to_vec()).prop_map(End::Nobody);
    let to = prop_oneof![7 => workload(), 4 => nobody(), 2 => leased, 2 => node(), 1 => name];
    let protocols = prop_oneof![
        5 => Just(Protocol::Tcp),
        3 => Just(Protocol::Udp),
        1 => select(vec![Protocol::Sctp, Protocol::Icmp, Protocol::Other(47)]),
    ];
    let via = prop::option::weighted(0.5, any::<Index>());
    let hop = prop::option::weighted(0.2, (any::<Index>(), select(PORTS.to_vec())));
    (from, to, protocols, select(PORTS.to_vec()), (via, hop)).prop_map(|(from, to, protocol, port, (via, hop))| {
        let port = if protocol.has_ports() { port } else { 0 };
        FlowPlan { from, to, protocol, port, via, hop }
    })
}

impl FlowPlan {
    pub(super) fn build(&self, snapshot: &Snapshot) -> Flow {
        Flow {
            from: self.from.build(snapshot),
            to: self.to.build(snapshot),
            protocol: self.protocol,
            port: self.port,
            via: self.via.map(|which| ServiceId(which.index(snapshot.services.len()) as u32)),
            hop: self.hop.and_then(|(which, port)| {
                let node = NodeId(which.index(snapshot.nodes.len()) as u32);
                let address = *snapshot.node(node).addresses.first()?;
                Some(Hop { node, address, port })
            }),
        }
    }
}

impl End {
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
