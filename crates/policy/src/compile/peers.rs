//! Peers and ports of rules, resolved and shared between rules that say the same.

use super::roles::RoleIndex;
use crate::addr::{AddrSet, is_own_to_each_machine, own_to_each_machine};
use crate::bits::BitSet;
use crate::domain::PatternTable;
use crate::labels::Selector;
use crate::model::{Action, Peer, Peers, PortMatch, Ports};
use crate::port::Traffic;
use crate::program::{PeerSet, PeerSetId, PortSpec, PortSpecId};
use crate::snapshot::Snapshot;
use crate::unknown::addresses_by_node;
use rustc_hash::FxHashMap;
use std::net::IpAddr;

/// Which addresses a rule for nodes covers (S7.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Coverage {
    /// Every address that one of the nodes may have.
    Any,
    /// Only addresses that nobody else may have: no other node, no pod, no machine on the same link.
    Sure,
}

impl Coverage {
    /// A Deny must not miss an address; an Allow, or a Pass that exempts from rules after it, must not open another's.
    pub(super) fn of(action: Action) -> Self {
        match action {
            Action::Deny => Self::Any,
            Action::Allow | Action::Pass => Self::Sure,
        }
    }
}

pub(super) struct PeerCompiler<'s> {
    snapshot: &'s Snapshot,
    peer_sets: FxHashMap<PeerSet, PeerSetId>,
    port_specs: FxHashMap<PortSpec, PortSpecId>,
    patterns: PatternTable,
    /// The addresses of each node, those that only a `hostNetwork` pod there reports among them.
    by_node: Vec<Vec<IpAddr>>,
    /// Which nodes have an address, where a rule speaks of nodes. Empty for an address that a pod has.
    holders: Option<FxHashMap<IpAddr, Vec<usize>>>,
}

impl<'s> PeerCompiler<'s> {
    pub(super) fn new(snapshot: &'s Snapshot) -> Self {
        Self {
            snapshot,
            by_node: addresses_by_node(snapshot),
            holders: None,
            peer_sets: FxHashMap::default(),
            port_specs: FxHashMap::default(),
            patterns: PatternTable::default(),
        }
    }

    pub(super) fn peer_set(&mut self, index: &mut RoleIndex<'s>, peers: &'s Peers, nodes: Coverage) -> PeerSetId {
        let mut set = PeerSet::default();
        match peers {
            Peers::Anyone => set.anyone = true,
            Peers::Listed(peers) => {
                for peer in peers {
                    match peer {
                        Peer::Nodes(selector) => self.add_nodes(&mut set, selector, nodes),
                        _ => self.add(index, &mut set, peer),
                    }
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
            Peer::Nodes(_) => {}
            Peer::ApiServer => {
                self.snapshot.api_server.iter().for_each(|&address| set.addresses.insert_address(address));
            }
            Peer::Domain(pattern) => set.domains.push(self.patterns.intern(pattern)),
        }
    }

    fn add_nodes(&mut self, set: &mut PeerSet, selector: &Selector, coverage: Coverage) {
        let mut nodes = BitSet::default();
        for (at, node) in self.snapshot.nodes.iter().enumerate() {
            if selector.matches(&node.labels) {
                nodes.insert(at);
            }
        }
        if nodes.is_empty() {
            return;
        }
        let addresses = nodes.iter().flat_map(|at| self.by_node[at].iter().copied());
        match coverage {
            Coverage::Any => {
                addresses.for_each(|address| set.addresses.insert_address(address));
                set.addresses = set.addresses.union(&own_to_each_machine());
            }
            Coverage::Sure => {
                let holders = self.holders.get_or_insert_with(|| holders(self.snapshot, &self.by_node));
                let is_sure = |address: &IpAddr| {
                    let holders = holders.get(address).map_or(&[][..], Vec::as_slice);
                    !holders.is_empty()
                        && holders.iter().all(|at| nodes.contains(*at))
                        && !is_own_to_each_machine(*address)
                };
                addresses.filter(is_sure).for_each(|address| set.addresses.insert_address(address));
            }
        }
        set.nodes.union_with(&nodes);
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

fn holders(snapshot: &Snapshot, by_node: &[Vec<IpAddr>]) -> FxHashMap<IpAddr, Vec<usize>> {
    let mut holders: FxHashMap<IpAddr, Vec<usize>> = FxHashMap::default();
    for (at, addresses) in by_node.iter().enumerate() {
        addresses.iter().for_each(|address| holders.entry(*address).or_default().push(at));
    }
    for pod in snapshot.workloads.iter().filter(|pod| !pod.host_network) {
        for address in pod.addresses.iter() {
            if let Some(nodes) = holders.get_mut(address) {
                nodes.clear();
            }
        }
    }
    holders
}

fn in_order<T, I>(map: FxHashMap<T, I>, number: impl Fn(&I) -> u32) -> Vec<T> {
    let mut entries: Vec<(T, I)> = map.into_iter().collect();
    entries.sort_unstable_by_key(|(_, id)| number(id));
    entries.into_iter().map(|(value, _)| value).collect()
}
