//! Where ends without a known address may be.

use super::Family;
use crate::addr::{AddrSet, Cidr};
use crate::flow::Endpoint;
use crate::interval::IntervalSet;
use crate::model::NodeId;
use crate::program::Program;
use crate::snapshot::Snapshot;
use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

/// The addresses that unknown ends may have, worked out once for a cluster.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Whereabouts {
    /// A pod without an address: the pod networks. Where none is known, any IPv4 address that is not reserved, a
    /// node's, a Service's or the API server's.
    pub pods: AddrSet,
    /// A name that is not resolved: any IPv4 address outside that is not reserved.
    pub names: AddrSet,
    /// A load balancer outside: any address that is neither reserved nor anybody's in the cluster.
    pub outside: AddrSet,
    /// The addresses of each node, those that only a `hostNetwork` pod there reports among them.
    pub nodes: Vec<Vec<IpAddr>>,
}

/// One group of addresses that an end may have.
pub(super) struct AddressGroup<'a> {
    pub(super) addresses: Cow<'a, AddrSet>,
    /// The node of a `hostNetwork` pod, where it was unknown.
    pub(super) node: Option<NodeId>,
}

/// Addresses that neither a pod nor a server outside has.
const RESERVED: [([u8; 4], u8); 5] =
    [([0, 0, 0, 0], 8), ([127, 0, 0, 0], 8), ([169, 254, 0, 0], 16), ([224, 0, 0, 0], 4), ([240, 0, 0, 0], 4)];

/// The IPv6 addresses that hosts outside have, by their first 16 bits: global ones and unique local ones.
const GLOBAL_V6: [(u16, u8); 2] = [(0x2000, 3), (0xfc00, 7)];

fn v6_block(first: u16) -> IpAddr {
    Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0).into()
}

impl Whereabouts {
    pub(crate) fn new(snapshot: &Snapshot) -> Self {
        let reserved = RESERVED.iter().map(|&(address, prefix)| Cidr::new(address.into(), prefix)).collect();
        let unreserved = any_v4().subtract(&reserved);
        let pod_networks: AddrSet = snapshot.pod_networks.iter().copied().collect();
        let nodes = addresses_by_node(snapshot);
        let inside = taken(snapshot, &nodes);
        let global: AddrSet = GLOBAL_V6.iter().map(|&(first, prefix)| Cidr::new(v6_block(first), prefix)).collect();
        Self {
            outside: unreserved.union(&global).subtract(&pod_networks).subtract(&inside),
            names: unreserved.subtract(&pod_networks),
            pods: if pod_networks.is_empty() { unreserved.subtract(&inside) } else { pod_networks },
            nodes,
        }
    }

    pub(super) fn has(&self, program: &Program, end: &Endpoint, family: Family) -> bool {
        self.places(program, end).iter().any(|place| match family {
            Family::V4 => !place.addresses.v4.is_empty(),
            Family::V6 => !place.addresses.v6.is_empty(),
        })
    }

    /// The addresses that the end may have.
    pub(super) fn places(&self, program: &Program, end: &Endpoint) -> Vec<AddressGroup<'_>> {
        if program.pod(end).is_some() {
            return vec![AddressGroup { addresses: Cow::Borrowed(&self.pods), node: None }];
        }
        if let Some(node) = end.node {
            return vec![AddressGroup { addresses: Cow::Owned(self.of_node(node)), node: None }];
        }
        if end.workload.is_none() {
            let addresses = if end.name.is_some() { &self.names } else { &self.outside };
            return vec![AddressGroup { addresses: Cow::Borrowed(addresses), node: None }];
        }
        if self.nodes.is_empty() {
            return vec![AddressGroup { addresses: Cow::Owned(any_v4()), node: None }];
        }
        let nodes = (0..self.nodes.len() as u32).map(NodeId);
        nodes.map(|node| AddressGroup { addresses: Cow::Owned(self.of_node(node)), node: Some(node) }).collect()
    }

    /// A node whose addresses are not known may have any.
    fn of_node(&self, node: NodeId) -> AddrSet {
        match self.nodes.get(node.index()).filter(|addresses| !addresses.is_empty()) {
            Some(addresses) => addresses.iter().map(|&address| Cidr::host(address)).collect(),
            None => any_v4(),
        }
    }
}

fn any_v4() -> AddrSet {
    AddrSet { v4: IntervalSet::full(), v6: IntervalSet::empty() }
}

/// Addresses that belong to something else than a pod.
fn taken(snapshot: &Snapshot, nodes: &[Vec<IpAddr>]) -> AddrSet {
    let services = snapshot.services.iter().flat_map(|service| &service.addresses);
    let api_server = snapshot.api_server.iter().map(|served| &served.address);
    nodes.iter().flatten().chain(services).chain(api_server).map(|&address| Cidr::host(address)).collect()
}

pub(crate) fn addresses_by_node(snapshot: &Snapshot) -> Vec<Vec<IpAddr>> {
    let mut addresses: Vec<Vec<IpAddr>> = snapshot.nodes.iter().map(|node| node.addresses.clone()).collect();
    for workload in snapshot.workloads.iter().filter(|workload| workload.host_network) {
        if let Some(node) = workload.node {
            addresses[node.index()].extend(workload.addresses.iter());
        }
    }
    addresses
}
