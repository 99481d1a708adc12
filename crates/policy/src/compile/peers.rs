//! Peers and ports of rules, resolved and shared between rules that say the same.

use super::claims::Claims;
use super::roles::RoleIndex;
use crate::addr::{AddrSet, is_own_to_each_machine, own_to_each_machine};
use crate::bits::BitSet;
use crate::domain::{PatternTable, RulePattern};
use crate::labels::Selector;
use crate::model::{Action, Clauses, Peer, Peers, PortMatch, Ports, RoleId, Rule, ServedAddress};
use crate::port::Traffic;
use crate::program::{Matcher, PeerSet, PeerSetId, PortSpec, PortSpecId};
use crate::snapshot::Snapshot;
use crate::unknown::addresses_by_node;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::net::IpAddr;

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

pub(super) struct PeerCompiler<'s, 'c> {
    snapshot: &'s Snapshot,
    claims: &'c Claims,
    peer_sets: FxHashMap<PeerSet, PeerSetId>,
    port_specs: FxHashMap<PortSpec, PortSpecId>,
    patterns: PatternTable,
    /// The addresses of each node, those that only a `hostNetwork` pod there reports among them.
    by_node: Vec<Vec<IpAddr>>,
    /// Which nodes have an address, where a rule speaks of nodes. Empty for an address that a pod has.
    holders: Option<FxHashMap<IpAddr, Vec<usize>>>,
}

impl<'s, 'c> PeerCompiler<'s, 'c> {
    pub(super) fn new(snapshot: &'s Snapshot, claims: &'c Claims) -> Self {
        Self {
            snapshot,
            claims,
            by_node: addresses_by_node(snapshot),
            holders: None,
            peer_sets: FxHashMap::default(),
            port_specs: FxHashMap::default(),
            patterns: PatternTable::default(),
        }
    }

    /// What a readable rule does, to what: its peers on its ports; the API server, on those of its ports that it serves
    /// at each address (S7.3).
    pub(super) fn parts(&mut self, index: &mut RoleIndex<'s>, rule: &'s Rule) -> Vec<(Action, Matcher)> {
        let Clauses::Match { peers, ports } = &rule.clauses else { return Vec::new() };
        let spec = spec_of(ports);
        let served = self.api_server_parts(rule.action, peers, &spec);
        let is_more = |peers: &[Peer]| peers.iter().any(|peer| *peer != Peer::ApiServer);
        let mut parts = Vec::new();
        if served.is_empty() || matches!(peers, Peers::Listed(peers) if is_more(peers)) {
            let set = self.peer_set(index, rule.action, peers);
            parts.extend(self.shared_parts(rule.action, set, spec));
        }
        parts.extend(served.into_iter().map(|matcher| (rule.action, matcher)));
        parts
    }

    fn api_server_parts(&mut self, action: Action, peers: &Peers, spec: &PortSpec) -> Vec<Matcher> {
        let mut served = Vec::new();
        if !matches!(peers, Peers::Listed(peers) if peers.contains(&Peer::ApiServer)) {
            return served;
        }
        for (traffic, addresses) in self.served(Coverage::of(action)) {
            // No kind has both `apiServer` and named ports.
            let spec = PortSpec { numbered: spec.numbered.intersect(&traffic), ..PortSpec::default() };
            if !spec.numbered.is_none() {
                let set = PeerSet { addresses, ..PeerSet::default() };
                served.push(self.intern(set, spec));
            }
        }
        served
    }

    /// S1.9: of pods that share an address, an Allow or Pass must speak of all; a Deny is for each that it speaks of.
    /// A Pass that speaks only of some denies: the others may be denied by what follows it.
    fn shared_parts(&mut self, action: Action, set: PeerSet, spec: PortSpec) -> Vec<(Action, Matcher)> {
        let (all, some) = self.claims.among(&set.roles);
        let with = |mut set: PeerSet, roles: &[RoleId]| {
            roles.iter().for_each(|role| set.roles.insert(role.index()));
            set
        };
        let counts_doubtful = !spec.named.is_empty() && self.claims.have_doubtful_ports();
        let doubtful = PortSpec { counts_doubtful, ..spec.clone() };
        let set = with(set, &all);
        if action == Action::Deny {
            return vec![(action, self.intern(with(set, &some), doubtful))];
        }
        let mut parts = vec![(action, self.intern(set.clone(), spec))];
        if action == Action::Pass && (counts_doubtful || !some.is_empty()) {
            let set = with(if counts_doubtful { set } else { PeerSet::default() }, &some);
            parts.push((Action::Deny, self.intern(set, doubtful)));
        }
        parts
    }

    /// The addresses of the API server, by what it serves there. One on a node may listen at all of the node's
    /// addresses, those that every machine has among them: a Deny covers these, too.
    fn served(&self, coverage: Coverage) -> BTreeMap<Traffic, AddrSet> {
        let mut by_address: BTreeMap<IpAddr, Traffic> = BTreeMap::new();
        let mut of_every_machine = Traffic::none();
        for ServedAddress { address, port } in &self.snapshot.api_server {
            let mut serve = |address: IpAddr| {
                by_address.entry(address).or_default().insert(port.protocol, port.port, port.port);
            };
            serve(*address);
            if coverage == Coverage::Sure {
                continue;
            }
            for addresses in self.by_node.iter().filter(|addresses| addresses.contains(address)) {
                addresses.iter().copied().for_each(&mut serve);
                of_every_machine.insert(port.protocol, port.port, port.port);
            }
        }
        let mut served: BTreeMap<Traffic, AddrSet> = BTreeMap::new();
        for (address, traffic) in by_address {
            served.entry(traffic).or_default().insert_address(address);
        }
        if !of_every_machine.is_none() {
            let addresses = served.entry(of_every_machine).or_default();
            *addresses = addresses.union(&own_to_each_machine());
        }
        served
    }

    fn peer_set(&mut self, index: &mut RoleIndex<'s>, action: Action, peers: &'s Peers) -> PeerSet {
        let mut set = PeerSet::default();
        match peers {
            Peers::Anyone => set.anyone = true,
            Peers::Listed(peers) => {
                let nodes = Coverage::of(action);
                for peer in peers {
                    match peer {
                        Peer::Nodes(selector) => self.add_nodes(&mut set, selector, nodes),
                        Peer::Domain(names) => {
                            let pattern = RulePattern { names: names.clone(), effect: action.into() };
                            set.domains.push(self.patterns.intern(&pattern));
                        }
                        _ => self.add(index, &mut set, peer),
                    }
                }
            }
        }
        set
    }

    fn intern(&mut self, set: PeerSet, spec: PortSpec) -> Matcher {
        let next = PeerSetId(self.peer_sets.len() as u32);
        let peers = *self.peer_sets.entry(set).or_insert(next);
        let next = PortSpecId(self.port_specs.len() as u32);
        Matcher::Clauses { peers, ports: *self.port_specs.entry(spec).or_insert(next) }
    }

    fn add(&mut self, index: &mut RoleIndex<'s>, set: &mut PeerSet, peer: &'s Peer) {
        match peer {
            Peer::Pods(pods) => set.roles.union_with(&index.select(pods)),
            Peer::Network { cidr, except } => {
                let block: AddrSet = [*cidr].into_iter().collect();
                let holes: AddrSet = except.iter().copied().collect();
                set.addresses = set.addresses.union(&block.subtract(&holes));
            }
            // What they stand for depends on the rule's action: see `peer_set`.
            Peer::Nodes(_) | Peer::Domain(_) => {}
            // It has ports of its own: see `parts`.
            Peer::ApiServer => {}
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
