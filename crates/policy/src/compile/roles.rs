//! Which Roles a selector selects, by posting lists: a label a policy never
//! asks about is never indexed, and a selector costs the Roles it finds.

use crate::bits::BitSet;
use crate::labels::{Requirement, Selector};
use crate::model::{Clauses, NamespaceScope, Peer, Peers, PodSet, Policy};
use crate::snapshot::Snapshot;
use rustc_hash::{FxHashMap, FxHashSet};

pub(super) struct RoleIndex<'s> {
    snapshot: &'s Snapshot,
    /// Roles of pods that are not on the host's network.
    pods: BitSet,
    by_namespace: Vec<Vec<u32>>,
    by_key: FxHashMap<&'s str, FxHashMap<&'s str, Vec<u32>>>,
    found: FxHashMap<&'s PodSet, BitSet>,
}

impl<'s> RoleIndex<'s> {
    pub(super) fn new(snapshot: &'s Snapshot) -> Self {
        let asked = asked_labels(&snapshot.policies);
        let mut pods = BitSet::default();
        let mut by_namespace = vec![Vec::new(); snapshot.namespaces.len()];
        let mut by_key: FxHashMap<&str, FxHashMap<&str, Vec<u32>>> = FxHashMap::default();
        for (at, role) in snapshot.roles.iter().enumerate().filter(|(_, role)| !role.host_network) {
            pods.insert(at);
            by_namespace[role.namespace.index()].push(at as u32);
            for (key, value) in role.labels.iter().filter(|(key, _)| asked.contains(key)) {
                by_key.entry(key).or_default().entry(value).or_default().push(at as u32);
            }
        }
        Self { snapshot, pods, by_namespace, by_key, found: FxHashMap::default() }
    }

    /// The Roles in the set; `hostNetwork` ones are never in it (S1).
    pub(super) fn select(&mut self, set: &'s PodSet) -> BitSet {
        if let Some(roles) = self.found.get(set) {
            return roles.clone();
        }
        let roles = match &set.namespaces {
            NamespaceScope::Named(name) => self.in_namespace(name, &set.pods),
            NamespaceScope::Matching(namespaces) => {
                let mut roles = self.matching(&set.pods);
                if !namespaces.is_everything() {
                    roles.intersect_with(&self.in_namespaces(namespaces));
                }
                roles
            }
        };
        self.found.insert(set, roles.clone());
        roles
    }

    fn in_namespace(&self, name: &str, pods: &Selector) -> BitSet {
        let Some(id) = self.snapshot.namespace_named(name) else {
            return BitSet::default();
        };
        let roles = self.by_namespace[id.index()].iter().map(|&role| role as usize);
        roles.filter(|&role| pods.matches(&self.snapshot.roles[role].labels)).collect()
    }

    fn in_namespaces(&self, selector: &Selector) -> BitSet {
        let mut roles = BitSet::default();
        for (at, namespace) in self.snapshot.namespaces.iter().enumerate() {
            if selector.matches(&namespace.labels) {
                self.by_namespace[at].iter().for_each(|&role| roles.insert(role as usize));
            }
        }
        roles
    }

    fn matching(&self, selector: &Selector) -> BitSet {
        let mut roles = self.pods.clone();
        for requirement in &selector.requirements {
            match requirement {
                Requirement::In { key, values } => roles.intersect_with(&self.with_values(key, values)),
                Requirement::NotIn { key, values } => roles.subtract(&self.with_values(key, values)),
                Requirement::Exists { key } => roles.intersect_with(&self.with_key(key)),
                Requirement::DoesNotExist { key } => roles.subtract(&self.with_key(key)),
            }
        }
        roles
    }

    fn with_values(&self, key: &str, values: &[std::sync::Arc<str>]) -> BitSet {
        let mut roles = BitSet::default();
        if let Some(by_value) = self.by_key.get(key) {
            for posting in values.iter().filter_map(|value| by_value.get(&**value)) {
                posting.iter().for_each(|&role| roles.insert(role as usize));
            }
        }
        roles
    }

    fn with_key(&self, key: &str) -> BitSet {
        let mut roles = BitSet::default();
        for posting in self.by_key.get(key).into_iter().flat_map(FxHashMap::values) {
            posting.iter().for_each(|&role| roles.insert(role as usize));
        }
        roles
    }
}

/// The keys of the labels that some policy asks pods for: by no other label can it tell two of them apart.
pub fn asked_labels(policies: &[Policy]) -> FxHashSet<&str> {
    policies.iter().flat_map(pod_sets).flat_map(keys).collect()
}

/// Every set of pods a policy speaks of.
fn pod_sets(policy: &Policy) -> impl Iterator<Item = &PodSet> {
    let peers = policy.egress.iter().chain(&policy.ingress).flat_map(|rule| match &rule.clauses {
        Clauses::Match { peers: Peers::Listed(peers), .. } => peers.as_slice(),
        _ => &[],
    });
    let peers = peers.filter_map(|peer| match peer {
        Peer::Pods(pods) => Some(pods),
        _ => None,
    });
    std::iter::once(&policy.subject.pods).chain(peers)
}

fn keys(set: &PodSet) -> impl Iterator<Item = &str> {
    set.pods.requirements.iter().map(Requirement::key)
}
