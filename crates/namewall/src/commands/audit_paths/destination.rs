//! What a user asks about: an address, a network, nodes, the API server or the metadata service.

use anyhow::{Result, bail};
use namewall_policy::addr::{AddrSet, Cidr, parse_address};
use namewall_policy::model::{BackendTarget, Node, ServedAddress, Service};
use namewall_policy::port::{Protocol, Traffic, TransportPort};
use namewall_policy::{Endpoint, Program, Snapshot};
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The metadata service of clouds.
const METADATA: [&str; 2] = ["169.254.169.254", "fd00:ec2::254"];

/// A destination as it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Destination {
    Network(Cidr),
    Node(String),
    Nodes,
    ApiServer,
    Metadata,
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "nodes" => return Ok(Self::Nodes),
            "apiserver" => return Ok(Self::ApiServer),
            "metadata" => return Ok(Self::Metadata),
            _ => {}
        }
        if let Some(name) = text.strip_prefix("node/") {
            return Ok(Self::Node(name.to_owned()));
        }
        if let Some(address) = parse_address(text) {
            return Ok(Self::Network(Cidr::host(address)));
        }
        if text.contains('/') || text.contains(':') {
            return text.parse().map(Self::Network).map_err(|error| format!("{error}"));
        }
        Ok(Self::Node(text.to_owned()))
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(cidr) if *cidr == Cidr::host(cidr.address()) => write!(f, "{}", cidr.address()),
            Self::Network(cidr) => write!(f, "{cidr}"),
            Self::Node(name) => write!(f, "node {name}"),
            Self::Nodes => f.write_str("nodes"),
            Self::ApiServer => f.write_str("apiserver"),
            Self::Metadata => f.write_str("metadata"),
        }
    }
}

/// Where the destination is.
pub(super) struct Place {
    /// Addresses that are known one by one.
    pub(super) spots: Vec<Spot>,
    /// A network, of which addresses that nobody has are asked about by ranges.
    pub(super) network: Option<Cidr>,
    all: AddrSet,
}

/// An address of the destination.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Spot {
    pub(super) address: IpAddr,
    /// Only this port; without it every port and protocol.
    pub(super) port: Option<u16>,
}

impl Spot {
    pub(super) fn end(&self, program: &Program) -> Endpoint {
        program.endpoint_at(self.address)
    }

    /// The connections that are asked about.
    pub(super) fn asked(&self) -> Traffic {
        let Some(port) = self.port else { return Traffic::all() };
        let mut only = Traffic::none();
        only.insert(Protocol::Tcp, port, port);
        only
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address, self.port) {
            (address, None) => write!(f, "{address}"),
            (IpAddr::V4(address), Some(port)) => write!(f, "{address}:{port}/TCP"),
            (IpAddr::V6(address), Some(port)) => write!(f, "[{address}]:{port}/TCP"),
        }
    }
}

impl Place {
    pub(super) fn of(destination: &Destination, snapshot: &Snapshot) -> Result<Self> {
        let every_port = |address: &IpAddr| Spot { address: *address, port: None };
        let of_node = |node: &Node| node.addresses.iter().map(every_port).collect::<Vec<Spot>>();
        let mut network = None;
        let spots: BTreeSet<Spot> = match destination {
            Destination::Network(cidr) if *cidr == Cidr::host(cidr.address()) => {
                [Spot { address: cidr.address(), port: None }].into()
            }
            Destination::Network(cidr) => {
                network = Some(*cidr);
                let pods = snapshot.workload_ids().flat_map(|id| snapshot.workload(id).addresses.to_vec());
                let nodes = snapshot.nodes.iter().flat_map(|node| node.addresses.clone());
                let inside = pods.chain(nodes).filter(|address| cidr.contains(*address));
                inside.map(|address| Spot { address, port: None }).collect()
            }
            Destination::Node(name) => match snapshot.nodes.iter().find(|node| *node.name == **name) {
                Some(node) => of_node(node).into_iter().collect(),
                None => {
                    let known: Vec<&str> = snapshot.nodes.iter().map(|node| &*node.name).take(5).collect();
                    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                    bail!("there is no node `{name}`; the first nodes there are: {known}");
                }
            },
            Destination::Nodes => snapshot.nodes.iter().flat_map(of_node).collect(),
            Destination::ApiServer => api_server(snapshot),
            Destination::Metadata => {
                METADATA.iter().filter_map(|text| parse_address(text)).map(|a| every_port(&a)).collect()
            }
        };
        if spots.is_empty() && network.is_none() {
            bail!(
                "no address of {destination} is known; give the objects that say them: Nodes, the Service `kubernetes`"
            );
        }
        let mut all = AddrSet::default();
        spots.iter().for_each(|spot| all.insert_address(spot.address));
        network.into_iter().for_each(|cidr| all.insert(cidr));
        Ok(Self { spots: spots.into_iter().collect(), network, all })
    }

    /// Whether a connection to it is one to the destination.
    pub(super) fn has(&self, address: IpAddr, port: TransportPort) -> bool {
        let is_meant = |spot: &Spot| {
            spot.address == address
                && spot.port.is_none_or(|number| port.protocol == Protocol::Tcp && port.port == number)
        };
        self.spots.iter().any(is_meant) || self.network.is_some_and(|cidr| cidr.contains(address))
    }

    /// Whether it is an address of the destination, at whatever port.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.all.contains(address)
    }

    /// The part of the range that is a part of the network.
    pub(super) fn within(&self, first: IpAddr, last: IpAddr) -> Option<Vec<Cidr>> {
        let mut network = AddrSet::default();
        network.insert(self.network?);
        let mut range = AddrSet::default();
        namewall_policy::addr::AddrRange { first, last }.cidrs().for_each(|cidr| range.insert(cidr));
        let blocks: Vec<Cidr> = range.intersect(&network).ranges().flat_map(|range| range.cidrs()).collect();
        (!blocks.is_empty()).then_some(blocks)
    }
}

/// Its endpoints, each at its own port, and all addresses of a node that is one; and addresses that only settings tell.
/// The Service itself is a way to them.
fn api_server(snapshot: &Snapshot) -> BTreeSet<Spot> {
    let is_it = |service: &&Service| {
        *service.name == *"kubernetes" && *snapshot.namespace(service.namespace).name == *"default"
    };
    let services: Vec<&Service> = snapshot.services.iter().filter(is_it).collect();
    let backends = services.iter().flat_map(|service| &service.ports).flat_map(|port| &port.backends);
    let mut spots: BTreeSet<Spot> = backends
        .filter_map(|backend| match backend.target {
            BackendTarget::Address(address) => Some(Spot { address, port: Some(backend.port) }),
            BackendTarget::Workload(_) => None,
        })
        .collect();
    for &ServedAddress { address, port } in &snapshot.api_server {
        if !services.iter().any(|service| service.addresses.contains(&address)) {
            spots.insert(Spot { address, port: Some(port.port) });
        }
    }
    for Spot { address: endpoint, port } in spots.clone() {
        for node in snapshot.nodes.iter().filter(|node| node.addresses.contains(&endpoint)) {
            spots.extend(node.addresses.iter().map(|&address| Spot { address, port }));
        }
    }
    spots
}
