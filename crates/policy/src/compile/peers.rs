//! Peers and ports of rules, resolved and shared between rules that say the same.

use super::roles::RoleIndex;
use crate::addr::AddrSet;
use crate::bits::BitSet;
use crate::domain::PatternTable;
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
                for peer in peers {
                    self.add(index, &mut set, peer);
                }
                // A packet for a group reaches every node on the link (S1.10), and no list of addresses has the
                // group in it. So a Deny of nodes means groups too; an Allow of nodes does not open them.
                if clauses.action == Action::Deny && !set.nodes.is_empty() {
                    set.addresses = set.addresses.union(&AddrSet::groups());
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
            // It has ports of its own: see `matchers`.
            Peer::ApiServer => {}
            Peer::Domain(pattern) => set.domains.push(self.patterns.intern(pattern)),
        }
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
