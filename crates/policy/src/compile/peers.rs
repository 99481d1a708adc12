//! Peers and ports of rules, resolved and shared between rules that say the same.

use super::roles::RoleIndex;
use crate::addr::AddrSet;
use crate::bits::BitSet;
use crate::domain::PatternTable;
use crate::model::{Action, Peer, Peers, PortMatch, Ports};
use crate::port::Traffic;
use crate::program::{PeerSet, PeerSetId, PortSpec, PortSpecId};
use crate::snapshot::Snapshot;
use crate::unknown::addresses_by_node;
use rustc_hash::FxHashMap;
use std::net::IpAddr;

pub(super) struct PeerCompiler<'s> {
    snapshot: &'s Snapshot,
    peer_sets: FxHashMap<PeerSet, PeerSetId>,
    port_specs: FxHashMap<PortSpec, PortSpecId>,
    patterns: PatternTable,
    /// The addresses of each node, those that only a `hostNetwork` pod there reports among them.
    by_node: Vec<Vec<IpAddr>>,
}

impl<'s> PeerCompiler<'s> {
    pub(super) fn new(snapshot: &'s Snapshot) -> Self {
        Self {
            snapshot,
            by_node: addresses_by_node(snapshot),
            peer_sets: FxHashMap::default(),
            port_specs: FxHashMap::default(),
            patterns: PatternTable::default(),
        }
    }

    pub(super) fn peer_set(&mut self, index: &mut RoleIndex<'s>, action: Action, peers: &'s Peers) -> PeerSetId {
        let mut set = PeerSet::default();
        match peers {
            Peers::Anyone => set.anyone = true,
            Peers::Listed(peers) => {
                for peer in peers {
                    self.add(index, &mut set, peer);
                }
                // A packet for a group reaches every node on the link (S1.10), and no list of addresses has the
                // group in it. So a Deny of nodes means groups too; an Allow of nodes does not open them.
                if action == Action::Deny && !set.nodes.is_empty() {
                    set.addresses = set.addresses.union(&AddrSet::groups());
                }
            }
        }
        let next = PeerSetId(self.peer_sets.len() as u32);
        *self.peer_sets.entry(set).or_insert(next)
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

fn in_order<T, I>(map: FxHashMap<T, I>, number: impl Fn(&I) -> u32) -> Vec<T> {
    let mut entries: Vec<(T, I)> = map.into_iter().collect();
    entries.sort_unstable_by_key(|(_, id)| number(id));
    entries.into_iter().map(|(value, _)| value).collect()
}
