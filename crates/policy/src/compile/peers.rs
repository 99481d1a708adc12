//! Peers and ports of rules, resolved and shared between rules that say the same.

use super::roles::RoleIndex;
use crate::addr::{AddrSet, is_own_to_each_machine, own_to_each_machine};
use crate::bits::BitSet;
use crate::domain::PatternTable;
use crate::labels::Selector;
use crate::model::{Action, Peer, Peers, PortMatch, Ports, ServedAddress};
use crate::port::Traffic;
use crate::program::{Matcher, PeerSet, PeerSetId, PortSpec, PortSpecId};
use crate::snapshot::Snapshot;
use crate::unknown::addresses_by_node;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What a rule does, with whom and on which ports.
pub(super) struct RuleClauses<'s> {
    pub(super) action: Action,
    pub(super) peers: &'s Peers,
    pub(super) ports: &'s Ports,
}

/// Which addresses a rule for nodes covers (S7.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Coverage {
    /// Every address that one of the nodes may have.
    Any,
    /// Only addresses that nobody else may have: no other node, no pod, no machine on the same link.
    Sure,
}

impl Coverage {
    /// A Deny must not miss an address; an Allow, or a Pass that exempts from rules after it, must not open another's.
    fn of(action: Action) -> Self {
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

    /// What a rule matches: its peers on its ports; and the API server, on those of its ports that it serves at each
    /// address (S7.3).
    pub(super) fn matchers(&mut self, index: &mut RoleIndex<'s>, clauses: &RuleClauses<'s>) -> Vec<Matcher> {
        let peers = clauses.peers;
        let spec = spec_of(clauses.ports);
        let mut served = Vec::new();
        if matches!(peers, Peers::Listed(peers) if peers.contains(&Peer::ApiServer)) {
            for (traffic, addresses) in self.served() {
                let numbered = spec.numbered.intersect(&traffic);
                let named_within = (!spec.named.is_empty()).then_some(traffic);
                let spec = PortSpec { numbered, named: spec.named.clone(), named_within };
                if spec.numbered.is_none() && spec.named.is_empty() {
                    continue;
                }
                let set = PeerSet { addresses, ..PeerSet::default() };
                served.push(Matcher::Clauses { peers: self.intern_peers(set), ports: self.intern_ports(spec) });
            }
        }
        let is_more = |peers: &[Peer]| peers.iter().any(|peer| *peer != Peer::ApiServer);
        let mut matchers = Vec::new();
        if served.is_empty() || matches!(peers, Peers::Listed(peers) if is_more(peers)) {
            let others = Matcher::Clauses { peers: self.peer_set(index, clauses), ports: self.intern_ports(spec) };
            matchers.push(others);
        }
        matchers.extend(served);
        matchers
    }

    /// The addresses of the API server, by what it serves there.
    fn served(&self) -> BTreeMap<Traffic, AddrSet> {
        let mut by_address: BTreeMap<IpAddr, Traffic> = BTreeMap::new();
        for ServedAddress { address, port } in &self.snapshot.api_server {
            by_address.entry(*address).or_default().insert(port.protocol, port.port, port.port);
        }
        let mut served: BTreeMap<Traffic, AddrSet> = BTreeMap::new();
        for (address, traffic) in by_address {
            served.entry(traffic).or_default().insert_address(address);
        }
        served
    }

    fn peer_set(&mut self, index: &mut RoleIndex<'s>, clauses: &RuleClauses<'s>) -> PeerSetId {
        let mut set = PeerSet::default();
        match clauses.peers {
            Peers::Anyone => set.anyone = true,
            Peers::Listed(peers) => {
                let nodes = Coverage::of(clauses.action);
                for peer in peers {
                    match peer {
                        Peer::Nodes(selector) => self.add_nodes(&mut set, selector, nodes),
                        _ => self.add(index, &mut set, peer),
                    }
                }
            }
        }
        self.intern_peers(set)
    }

    fn intern_peers(&mut self, set: PeerSet) -> PeerSetId {
        let next = PeerSetId(self.peer_sets.len() as u32);
        *self.peer_sets.entry(set).or_insert(next)
    }

    fn intern_ports(&mut self, spec: PortSpec) -> PortSpecId {
        let next = PortSpecId(self.port_specs.len() as u32);
        *self.port_specs.entry(spec).or_insert(next)
    }

    fn add(&mut self, index: &mut RoleIndex<'s>, set: &mut PeerSet, peer: &'s Peer) {
        match peer {
            Peer::Pods(pods) => set.roles.union_with(&index.select(pods)),
            Peer::Network { cidr, except } => {
                let block: AddrSet = [*cidr].into_iter().collect();
                let holes: AddrSet = except.iter().copied().collect();
                set.addresses = set.addresses.union(&block.subtract(&holes));
            }
            // Added by `add_nodes`.
            Peer::Nodes(_) => {}
            // It has ports of its own: see `matchers`.
            Peer::ApiServer => {}
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
                // A packet for a group reaches every node on the link, and no list of addresses has it (S1.10).
                set.addresses = set.addresses.union(&own_to_each_machine()).union(&AddrSet::groups());
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

fn spec_of(ports: &Ports) -> PortSpec {
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
    spec
}
