//! What the rules seen so far match together, and whether that is all that
//! another rule matches. Exact, and where it cannot be, it says no.
//!
//! Rules are added in any order, since only their union counts; they are kept
//! apart by their ports. A rule is then asked about element by element: each
//! Role, each stretch of addresses, each node, each name.

use super::pieces::{Matched, Region, pieces_held};
use super::scene::{RuleView, Scene};
use crate::addr::AddrSet;
use crate::bits::BitSet;
use crate::domain::PatternId;
use crate::model::{Clauses, Peer, Peers};
use crate::program::{Matcher, PeerSet, PeerSetId, PortSpec, PortSpecId, RuleId};
use rustc_hash::FxHashMap;

pub(super) struct Covered<'a> {
    scene: &'a Scene<'a>,
    groups: Vec<PortGroup>,
    by_ports: FxHashMap<PortSpecId, usize>,
    /// All groups as one: whoever is not in here is matched by no rule.
    total: Whom,
    /// The first rule of those that say the same.
    first: FxHashMap<(PeerSetId, PortSpecId), RuleId>,
    /// Names by their domain.
    domains: FxHashMap<&'a str, Vec<(PatternId, PortSpecId)>>,
}

/// The rules with certain ports.
struct PortGroup {
    ports: PortSpecId,
    whom: Whom,
}

#[derive(Default)]
struct Whom {
    everyone: bool,
    every_pod: bool,
    every_name: bool,
    roles: BitSet,
    nodes: BitSet,
    addresses: AddrSet,
}

impl<'a> Covered<'a> {
    pub(super) fn new(scene: &'a Scene<'a>) -> Self {
        Self {
            scene,
            groups: Vec::new(),
            by_ports: FxHashMap::default(),
            total: Whom::default(),
            first: FxHashMap::default(),
            domains: FxHashMap::default(),
        }
    }

    pub(super) fn add(&mut self, rule: RuleView<'_>) {
        // What an unreadable rule matches nobody meant; it has its own finding.
        let Matcher::Clauses { peers, ports } = rule.compiled.matcher else { return };
        if *self.first.entry((peers, ports)).or_insert(rule.id) != rule.id {
            return;
        }
        let set = self.scene.program.peer_set(peers);
        let at = *self.by_ports.entry(ports).or_insert_with(|| {
            self.groups.push(PortGroup { ports, whom: Whom::default() });
            self.groups.len() - 1
        });
        self.groups[at].whom.add(self.scene, set);
        self.total.add(self.scene, set);
        for &id in &set.domains {
            let domain = self.scene.program.patterns.get(id).names.domain().as_str();
            self.domains.entry(domain).or_default().push((id, ports));
        }
    }

    /// A rule with the very same peers and ports.
    pub(super) fn same_as(&self, rule: RuleView<'_>) -> Option<RuleId> {
        let Matcher::Clauses { peers, ports } = rule.compiled.matcher else { return None };
        self.first.get(&(peers, ports)).copied()
    }

    /// Whether the rules match all that this one matches, and that is not nothing.
    pub(super) fn holds(&self, rule: RuleView<'_>) -> bool {
        let Matcher::Clauses { peers, ports } = rule.compiled.matcher else { return false };
        let (set, ports) = (self.scene.program.peer_set(peers), self.scene.program.port_spec(ports));
        if ports.numbered.is_none() && ports.named.is_empty() {
            return false;
        }
        let unknown = has_unknown(self.scene, rule);
        let nobody = set.roles.is_empty() && set.addresses.is_empty() && set.nodes.is_empty() && set.domains.is_empty();
        if nobody && !set.anyone && !unknown {
            return false;
        }
        if set.anyone || unknown {
            return self.everyone(ports);
        }
        // Most rules end here: somebody they match no other rule does.
        let within = |part: &BitSet, whole: &BitSet| part.outside(whole).is_none();
        if !within(&set.roles, &self.total.roles) || !set.addresses.is_subset(&self.total.addresses) {
            return false;
        }
        self.roles(set, ports) && self.addresses(set, ports) && self.nodes(set, ports) && self.names(set, ports)
    }

    fn everyone(&self, wanted: &PortSpec) -> bool {
        self.matched(|whom| whom.everyone).holds(wanted)
    }

    /// Whether the rules match every pod on these ports.
    pub(super) fn holds_every_pod(&self, ports: PortSpecId) -> bool {
        let wanted = self.scene.program.port_spec(ports);
        let parts = self.useful(wanted).map(|(whom, ports)| (&whom.roles, ports));
        pieces_held(self.scene.roles.clone(), wanted, parts)
    }

    fn roles(&self, set: &PeerSet, wanted: &PortSpec) -> bool {
        let parts = self.useful(wanted).map(|(whom, ports)| (&whom.roles, ports));
        pieces_held(set.roles.clone(), wanted, parts)
    }

    fn addresses(&self, set: &PeerSet, wanted: &PortSpec) -> bool {
        let parts = self.useful(wanted).map(|(whom, ports)| (&whom.addresses, ports));
        pieces_held(set.addresses.clone(), wanted, parts)
    }

    /// Nodes are matched by their addresses; those whose addresses nobody knows, as nodes.
    fn nodes(&self, set: &PeerSet, wanted: &PortSpec) -> bool {
        let nodes = set.nodes.iter();
        let bare: BitSet = nodes.filter(|&at| self.scene.snapshot.nodes[at].addresses.is_empty()).collect();
        let parts = self.useful(wanted).map(|(whom, ports)| (&whom.nodes, ports));
        pieces_held(bare, wanted, parts)
    }

    fn names(&self, set: &PeerSet, wanted: &PortSpec) -> bool {
        let patterns = &self.scene.program.patterns;
        set.domains.iter().all(|&id| {
            let pattern = patterns.get(id);
            let mut matched = self.matched(|whom| whom.every_name);
            // Only a pattern for the same domain, or one above it, can cover this one.
            let above = pattern.names.domain().suffixes().filter_map(|suffix| self.domains.get(suffix)).flatten();
            for &(_, ports) in above.filter(|(above, _)| patterns.get(*above).covers(pattern)) {
                matched.add(self.scene.program.port_spec(ports));
            }
            matched.holds(wanted)
        })
    }

    /// The ports of all groups that match these.
    fn matched(&self, those: impl Fn(&Whom) -> bool) -> Matched {
        let mut matched = Matched::default();
        for group in self.groups.iter().filter(|group| those(&group.whom)) {
            matched.add(self.scene.program.port_spec(group.ports));
        }
        matched
    }

    /// The groups that match some of these ports.
    fn useful(&self, wanted: &PortSpec) -> impl Iterator<Item = (&Whom, &'a PortSpec)> {
        let some = |ports: &PortSpec| !wanted.named.is_empty() || !ports.numbered.intersect(&wanted.numbered).is_none();
        let program = self.scene.program;
        let groups = self.groups.iter().map(|group| (&group.whom, program.port_spec(group.ports)));
        groups.filter(move |(_, ports)| some(ports))
    }
}

impl Whom {
    fn add(&mut self, scene: &Scene<'_>, set: &PeerSet) {
        if set.anyone {
            self.addresses = AddrSet::full();
        }
        self.roles.union_with(&set.roles);
        self.nodes.union_with(&set.nodes);
        if !set.addresses.is_empty() && !self.everyone {
            set.addresses.v4.ranges().iter().for_each(|&(low, high)| self.addresses.v4.insert(low, high));
            set.addresses.v6.ranges().iter().for_each(|&(low, high)| self.addresses.v6.insert(low, high));
        }
        if !self.every_pod && scene.covers_pods(&self.addresses) {
            self.every_pod = true;
            self.roles = scene.roles.clone();
        }
        self.every_name |= scene.covers_names(&self.addresses);
        if !self.everyone && self.addresses.v4.is_full() && self.addresses.v6.is_full() {
            self.everyone = true;
            self.nodes = BitSet::full(scene.snapshot.nodes.len());
        }
    }
}

/// Whether there are peers of whom nothing is known here, so that only a rule for everyone surely matches them.
fn has_unknown(scene: &Scene<'_>, rule: RuleView<'_>) -> bool {
    let Clauses::Match { peers: Peers::Listed(peers), .. } = &rule.written.clauses else { return false };
    peers.iter().any(|peer| match peer {
        Peer::Pods(_) => !scene.has_workloads(),
        Peer::Nodes(_) => !scene.nodes_known,
        Peer::ApiServer => scene.snapshot.api_server.is_empty(),
        Peer::Network { .. } | Peer::Domain(_) => false,
    })
}
