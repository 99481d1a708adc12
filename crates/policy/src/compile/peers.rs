//! Peers and ports of rules, resolved and shared between rules that say the same.

use super::roles::RoleIndex;
use crate::addr::{AddrSet, Cidr};
use crate::bits::BitSet;
use crate::domain::PatternTable;
use crate::interval::IntervalSet;
use crate::model::{Peer, Peers, PortMatch, Ports};
use crate::port::Traffic;
use crate::program::{Overlap, PeerSet, PeerSetId, PortSpec, PortSpecId};
use crate::snapshot::Snapshot;
use rustc_hash::FxHashMap;
use std::net::IpAddr;

pub(super) struct PeerCompiler<'s> {
    snapshot: &'s Snapshot,
    peer_sets: FxHashMap<PeerSet, PeerSetId>,
    port_specs: FxHashMap<PortSpec, PortSpecId>,
    patterns: PatternTable,
    /// The addresses a pod without one may get.
    unassigned: AddrSet,
    /// The addresses a name may have: any of IPv4's.
    unresolved: AddrSet,
    /// The addresses of nodes; any of IPv4's where none is known.
    on_nodes: AddrSet,
    /// Those of each node, also those that only a `hostNetwork` pod there tells of.
    by_node: Vec<Vec<IpAddr>>,
}

impl<'s> PeerCompiler<'s> {
    pub(super) fn new(snapshot: &'s Snapshot) -> Self {
        let any_v4 = AddrSet { v4: IntervalSet::full(), v6: IntervalSet::empty() };
        let pod_networks: AddrSet = snapshot.pod_networks.iter().copied().collect();
        let by_node = by_node(snapshot);
        let mut on_nodes = AddrSet::default();
        for &address in by_node.iter().flatten() {
            on_nodes.insert_address(address);
        }
        let unassigned =
            if pod_networks.is_empty() { somewhere(snapshot, &any_v4.subtract(&on_nodes)) } else { pod_networks };
        Self {
            snapshot,
            by_node,
            on_nodes: if on_nodes.is_empty() { any_v4.clone() } else { on_nodes },
            peer_sets: FxHashMap::default(),
            port_specs: FxHashMap::default(),
            patterns: PatternTable::default(),
            unassigned,
            unresolved: any_v4,
        }
    }

    pub(super) fn peer_set(&mut self, index: &mut RoleIndex<'s>, peers: &'s Peers) -> PeerSetId {
        let mut set = PeerSet::default();
        match peers {
            Peers::Anyone => set.anyone = true,
            Peers::Listed(peers) => {
                for peer in peers {
                    self.add(index, &mut set, peer);
                }
            }
        }
        set.unassigned = overlap(&self.unassigned, &set.addresses);
        set.unplaced = self.unplaced(&set);
        set.unresolved = overlap(&self.unresolved, &set.addresses);
        let next = PeerSetId(self.peer_sets.len() as u32);
        *self.peer_sets.entry(set).or_insert(next)
    }

    /// A `hostNetwork` pod will have the addresses of some node.
    fn unplaced(&self, set: &PeerSet) -> Overlap {
        let nodes = self.snapshot.nodes.len();
        let selected = set.nodes.iter().count();
        if nodes > 0 && selected == nodes {
            return Overlap::All;
        }
        match overlap(&self.on_nodes, &set.addresses) {
            Overlap::None if selected > 0 => Overlap::Some,
            by_address => by_address,
        }
    }

    fn add(&mut self, index: &mut RoleIndex<'s>, set: &mut PeerSet, peer: &'s Peer) {
        match peer {
            Peer::Pods(pods) => set.roles.union_with(&index.select(pods)),
            Peer::Network { cidr, except } => {
                let block: AddrSet = [*cidr].into_iter().collect();
                let holes: AddrSet = except.iter().copied().collect();
                set.addresses = set.addresses.union(&block.subtract(&holes));
            }
            Peer::Nodes(selector) => {
                let mut nodes = BitSet::default();
                for (at, node) in self.snapshot.nodes.iter().enumerate() {
                    if selector.matches(&node.labels) {
                        nodes.insert(at);
                        self.by_node[at].iter().for_each(|&address| set.addresses.insert_address(address));
                    }
                }
                set.nodes.union_with(&nodes);
            }
            Peer::ApiServer => {
                self.snapshot.api_server.iter().for_each(|&address| set.addresses.insert_address(address));
            }
            Peer::Domain(pattern) => set.domains.push(self.patterns.intern(pattern)),
        }
    }

    pub(super) fn port_spec(&mut self, ports: &Ports) -> PortSpecId {
        let mut spec = PortSpec::default();
        match ports {
            Ports::Any => spec.numbered = Traffic::all(),
            Ports::Listed(ports) => {
                for port in ports {
                    match port {
                        PortMatch::Range { protocol, low, high } => spec.numbered.insert(*protocol, *low, *high),
                        PortMatch::Named { protocol, name } => spec.named.push((*protocol, name.clone())),
                    }
                }
            }
        }
        let next = PortSpecId(self.port_specs.len() as u32);
        *self.port_specs.entry(spec).or_insert(next)
    }

    pub(super) fn finish(self) -> (Vec<PeerSet>, Vec<PortSpec>, PatternTable) {
        (in_order(self.peer_sets, |id| id.0), in_order(self.port_specs, |id| id.0), self.patterns)
    }
}

fn by_node(snapshot: &Snapshot) -> Vec<Vec<IpAddr>> {
    let mut addresses: Vec<Vec<IpAddr>> = snapshot.nodes.iter().map(|node| node.addresses.clone()).collect();
    for workload in snapshot.workloads.iter().filter(|workload| workload.host_network) {
        if let Some(node) = workload.node {
            addresses[node.index()].extend(workload.addresses.iter());
        }
    }
    addresses
}

/// Where pods may be if no pod network is known: of the addresses that no node has, those that are not
/// reserved, nor the API server's or a Service's.
fn somewhere(snapshot: &Snapshot, on_no_node: &AddrSet) -> AddrSet {
    const RESERVED: [([u8; 4], u8); 5] =
        [([0, 0, 0, 0], 8), ([127, 0, 0, 0], 8), ([169, 254, 0, 0], 16), ([224, 0, 0, 0], 4), ([240, 0, 0, 0], 4)];
    let mut taken: AddrSet = RESERVED.iter().map(|&(address, prefix)| Cidr::new(address.into(), prefix)).collect();
    let services = snapshot.services.iter().flat_map(|service| &service.addresses);
    for &address in services.chain(&snapshot.api_server) {
        taken.insert_address(address);
    }
    on_no_node.subtract(&taken)
}

fn in_order<T, I>(map: FxHashMap<T, I>, number: impl Fn(&I) -> u32) -> Vec<T> {
    let mut entries: Vec<(T, I)> = map.into_iter().collect();
    entries.sort_unstable_by_key(|(_, id)| number(id));
    entries.into_iter().map(|(value, _)| value).collect()
}

fn overlap(possible: &AddrSet, matched: &AddrSet) -> Overlap {
    if possible.is_subset(matched) {
        Overlap::All
    } else if possible.intersects(matched) {
        Overlap::Some
    } else {
        Overlap::None
    }
}
