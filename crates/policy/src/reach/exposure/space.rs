//! The space of pods that do not exist yet: which namespaces and labels the
//! policies can tell apart, and its parts, within which every pod is selected
//! by the same policies and peers.

use super::cube::{Cells, Conditions, Cube};
use crate::labels::{Labels, Requirement, Selector};
use crate::model::{Clauses, Enforcement, Namespace, NamespaceScope, Peer, Peers, PodSet, Policy};
use crate::snapshot::{NAMESPACE_NAME_LABEL, Snapshot};
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The dimension of the namespace's name; it has a cell for each name of interest, and one for every other name.
const NAME: usize = 0;

/// How many parts the pods of one namespace are divided into at most.
pub const MOST_PARTS: usize = 4096;

pub(super) struct Space<'s> {
    snapshot: &'s Snapshot,
    dimensions: Vec<Dimension>,
    /// How many cells each dimension has.
    pub(super) sizes: Vec<u32>,
    /// Where the labels of namespaces, and of pods, are among the dimensions.
    of_namespaces: BTreeMap<Arc<str>, usize>,
    of_pods: BTreeMap<Arc<str>, usize>,
    sets: Vec<&'s PodSet>,
}

/// A cell for each value that is mentioned, one for any other value, and, but for names, one for a missing key.
struct Dimension {
    key: Arc<str>,
    values: Vec<Arc<str>>,
}

impl Dimension {
    fn other(&self) -> u32 {
        self.values.len() as u32
    }

    fn absent(&self) -> u32 {
        self.values.len() as u32 + 1
    }

    fn cell(&self, value: Option<&str>) -> u32 {
        match value {
            None => self.absent(),
            Some(value) => self.values.iter().position(|known| &**known == value).map_or(self.other(), |at| at as u32),
        }
    }

    /// A value that no policy mentions.
    fn another(&self) -> String {
        let mut text = "other".to_owned();
        while self.values.iter().any(|value| **value == *text) {
            text.push('x');
        }
        text
    }
}

/// The parts, and the pods that are not divided, since there would be too many parts.
pub(super) struct Parts {
    pub(super) parts: Vec<Cube>,
    pub(super) unresolved: Vec<PodSet>,
}

impl<'s> Space<'s> {
    pub(super) fn new(snapshot: &'s Snapshot) -> Self {
        let sets = relevant(snapshot);
        let mut names: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut of_namespaces: BTreeMap<Arc<str>, BTreeSet<Arc<str>>> = BTreeMap::new();
        let mut of_pods: BTreeMap<Arc<str>, BTreeSet<Arc<str>>> = BTreeMap::new();
        for set in &sets {
            match &set.namespaces {
                NamespaceScope::Named(name) => _ = names.insert(name.clone()),
                NamespaceScope::Matching(selector) => mention(selector, &mut of_namespaces),
            }
            mention(&set.pods, &mut of_pods);
        }
        names.extend(of_namespaces.remove(NAMESPACE_NAME_LABEL).unwrap_or_default());
        // Their pods are isolated whatever policies say.
        let isolating = snapshot.namespaces.iter().filter(|namespace| namespace.default_deny_ingress);
        names.extend(isolating.map(|namespace| namespace.name.clone()));
        let mut space = Self {
            snapshot,
            sizes: vec![names.len() as u32 + 1],
            dimensions: vec![Dimension { key: NAMESPACE_NAME_LABEL.into(), values: names.into_iter().collect() }],
            of_namespaces: BTreeMap::new(),
            of_pods: BTreeMap::new(),
            sets,
        };
        space.of_namespaces = space.add(of_namespaces);
        space.of_pods = space.add(of_pods);
        space
    }

    fn add(&mut self, keys: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>) -> BTreeMap<Arc<str>, usize> {
        let mut added = BTreeMap::new();
        for (key, values) in keys {
            added.insert(key.clone(), self.dimensions.len());
            self.sizes.push(values.len() as u32 + 2);
            self.dimensions.push(Dimension { key, values: values.into_iter().collect() });
        }
        added
    }

    pub(super) fn parts(&self) -> Parts {
        let scopes: FxHashSet<&NamespaceScope> = self.sets.iter().map(|set| &set.namespaces).collect();
        let mut scopes: Vec<Conditions> = scopes.into_iter().map(|scope| self.of_scope(scope)).collect();
        scopes.sort_unstable();
        let mut found = Parts { parts: Vec::new(), unresolved: Vec::new() };
        for cell in 0..self.sizes[NAME] {
            let name = self.namespace_cube(cell);
            let Some(namespaces) = self.divide(vec![name.clone()], scopes.iter()) else {
                found.unresolved.extend(self.pod_sets(&name));
                continue;
            };
            for namespace in namespaces {
                let here: Vec<&&PodSet> = self
                    .sets
                    .iter()
                    .filter(|set| namespace.split(&self.of_scope(&set.namespaces), &self.sizes).0.is_some())
                    .collect();
                let selectors: BTreeSet<Conditions> =
                    here.into_iter().map(|set| self.conditions(&set.pods, &self.of_pods)).collect();
                match self.divide(vec![namespace.clone()], selectors.iter()) {
                    Some(parts) => found.parts.extend(parts),
                    None => found.unresolved.extend(self.pod_sets(&namespace)),
                }
            }
        }
        found
    }

    fn divide<'c>(&self, mut parts: Vec<Cube>, by: impl Iterator<Item = &'c Conditions>) -> Option<Vec<Cube>> {
        for conditions in by {
            let mut next = Vec::with_capacity(parts.len());
            for part in parts {
                let (inside, rest) = part.split(conditions, &self.sizes);
                next.extend(inside);
                next.extend(rest);
            }
            if next.len() > MOST_PARTS {
                return None;
            }
            parts = next;
        }
        Some(parts)
    }

    /// A namespace that exists has the labels it has; one that does not may have any.
    fn namespace_cube(&self, cell: u32) -> Cube {
        let cube = Cube::default().with(NAME, Cells::new(vec![cell]));
        let Some(namespace) = self.existing(cell) else { return cube };
        self.of_namespaces.iter().fold(cube, |cube, (key, &dimension)| {
            let cell = self.dimensions[dimension].cell(namespace.labels.get(key));
            cube.with(dimension, Cells::new(vec![cell]))
        })
    }

    fn existing(&self, cell: u32) -> Option<&'s Namespace> {
        let name = self.dimensions[NAME].values.get(cell as usize)?;
        Some(self.snapshot.namespace(self.snapshot.namespace_named(name)?))
    }

    fn of_scope(&self, scope: &NamespaceScope) -> Conditions {
        match scope {
            NamespaceScope::Named(name) => {
                vec![(NAME, Cells::new(vec![self.dimensions[NAME].cell(Some(name))]))]
            }
            NamespaceScope::Matching(selector) => self.conditions(selector, &self.of_namespaces),
        }
    }

    fn conditions(&self, selector: &Selector, keys: &BTreeMap<Arc<str>, usize>) -> Conditions {
        let mut conditions: Conditions = Vec::with_capacity(selector.requirements.len());
        for requirement in &selector.requirements {
            let of_name = requirement.key() == NAMESPACE_NAME_LABEL && !keys.contains_key(requirement.key());
            let dimension = if of_name { NAME } else { keys[requirement.key()] };
            let known = &self.dimensions[dimension];
            let listed = |values: &[Arc<str>]| Cells::new(values.iter().map(|value| known.cell(Some(value))).collect());
            let all = Cells::all(self.sizes[dimension]);
            let absent = Cells::new(if of_name { Vec::new() } else { vec![known.absent()] });
            let cells = match requirement {
                Requirement::In { values, .. } => listed(values),
                Requirement::NotIn { values, .. } => all.but(&listed(values)),
                Requirement::Exists { .. } => all.but(&absent),
                Requirement::DoesNotExist { .. } => absent,
            };
            conditions.push((dimension, cells));
        }
        conditions
    }

    /// One pod of the part: its namespace and its labels. The rarer of its choices is the one with fewer labels.
    pub(super) fn example(&self, part: &Cube) -> Example {
        let cell = part.get(NAME).and_then(|cells| cells.iter().next()).unwrap_or(self.dimensions[NAME].other());
        let name = self.dimensions[NAME].values.get(cell as usize).cloned();
        let labels = |keys: &BTreeMap<Arc<str>, usize>| -> Labels {
            let chosen = keys.values().filter_map(|&dimension| self.label(dimension, part.get(dimension)?));
            chosen.collect()
        };
        let exists = self.existing(cell).is_some();
        Example {
            namespace: name,
            namespace_labels: if exists { Labels::default() } else { labels(&self.of_namespaces) },
            labels: labels(&self.of_pods),
        }
    }

    fn label(&self, dimension: usize, cells: &Cells) -> Option<(Arc<str>, Arc<str>)> {
        let known = &self.dimensions[dimension];
        if cells.contains(known.absent()) {
            return None;
        }
        if cells.contains(known.other()) {
            return Some((known.key.clone(), known.another().into()));
        }
        let value = cells.iter().next().and_then(|cell| known.values.get(cell as usize))?;
        Some((known.key.clone(), value.clone()))
    }

    /// Whether the part has the pod that no policy speaks of: without labels, in a new namespace without labels.
    pub(super) fn is_neutral(&self, part: &Cube) -> bool {
        part.dimensions().all(|(dimension, cells)| {
            let known = &self.dimensions[dimension];
            cells.contains(if dimension == NAME { known.other() } else { known.absent() })
        })
    }

    /// The cube in the words of selectors: several where one cannot say it.
    pub(super) fn pod_sets(&self, cube: &Cube) -> Vec<PodSet> {
        let mut sets = vec![(Selector::everything(), Selector::everything())];
        for (dimension, cells) in cube.dimensions() {
            let is_pod = self.of_pods.values().any(|&pod| pod == dimension);
            let alternatives = self.requirements(dimension, cells);
            let mut next = Vec::with_capacity(sets.len() * alternatives.len());
            for (namespaces, pods) in &sets {
                for requirements in &alternatives {
                    let (mut namespaces, mut pods) = (namespaces.clone(), pods.clone());
                    let selector = if is_pod { &mut pods } else { &mut namespaces };
                    selector.requirements.extend(requirements.iter().cloned());
                    next.push((namespaces, pods));
                }
            }
            sets = next;
        }
        let set = |(namespaces, pods)| PodSet { namespaces: scope(namespaces), pods };
        sets.into_iter().map(set).collect()
    }

    /// Each alternative is a list of requirements that must all hold.
    fn requirements(&self, dimension: usize, cells: &Cells) -> Vec<Vec<Requirement>> {
        let known = &self.dimensions[dimension];
        let key = known.key.clone();
        let pick = |inside: bool| -> Vec<Arc<str>> {
            let values = known.values.iter().enumerate();
            values.filter(|(at, _)| cells.contains(*at as u32) == inside).map(|(_, value)| value.clone()).collect()
        };
        let (other, absent) = (cells.contains(known.other()), dimension != NAME && cells.contains(known.absent()));
        let without = pick(false);
        let not_in = (!without.is_empty()).then(|| Requirement::NotIn { key: key.clone(), values: without });
        match (other, absent) {
            (true, true) => vec![not_in.into_iter().collect()],
            (true, false) if dimension == NAME => vec![not_in.into_iter().collect()],
            (true, false) => vec![std::iter::once(Requirement::Exists { key: key.clone() }).chain(not_in).collect()],
            (false, _) => {
                let values = pick(true);
                let listed = (!values.is_empty()).then(|| vec![Requirement::In { key: key.clone(), values }]);
                let missing = absent.then(|| vec![Requirement::DoesNotExist { key }]);
                listed.into_iter().chain(missing).collect()
            }
        }
    }
}

/// One namespace by its name reads as policies are written.
fn scope(selector: Selector) -> NamespaceScope {
    match selector.requirements.as_slice() {
        [Requirement::In { key, values }] if &**key == NAMESPACE_NAME_LABEL && values.len() == 1 => {
            NamespaceScope::Named(values[0].clone())
        }
        _ => NamespaceScope::Matching(selector),
    }
}

/// A pod that stands for all of a part.
pub(super) struct Example {
    /// None for a namespace whose name does not matter.
    pub(super) namespace: Option<Arc<str>>,
    pub(super) namespace_labels: Labels,
    pub(super) labels: Labels,
}

fn mention(selector: &Selector, keys: &mut BTreeMap<Arc<str>, BTreeSet<Arc<str>>>) {
    for requirement in &selector.requirements {
        let mentioned = keys.entry(requirement.key().into()).or_default();
        if let Requirement::In { values, .. } | Requirement::NotIn { values, .. } = requirement {
            mentioned.extend(values.iter().cloned());
        }
    }
}

/// The sets of pods that matter to a new pod: the subjects of all policies, and the peers of those that select a
/// workload that exists.
fn relevant(snapshot: &Snapshot) -> Vec<&PodSet> {
    let mut seen = FxHashSet::default();
    let enforced = snapshot.policies.iter().filter(|policy| policy.enforcement == Enforcement::Enforce);
    let sets = enforced.flat_map(|policy| {
        let peers = if selects_someone(snapshot, policy) { peers(policy) } else { Vec::new() };
        std::iter::once(&policy.subject.pods).chain(peers)
    });
    sets.filter(|set| seen.insert(*set)).collect()
}

fn selects_someone(snapshot: &Snapshot, policy: &Policy) -> bool {
    snapshot.roles.iter().any(|role| policy.subject.pods.selects(role, snapshot.namespace(role.namespace)))
}

fn peers(policy: &Policy) -> Vec<&PodSet> {
    let rules = policy.egress.iter().chain(&policy.ingress);
    let peers = rules.flat_map(|rule| match &rule.clauses {
        Clauses::Match { peers: Peers::Listed(peers), .. } => peers.as_slice(),
        _ => &[],
    });
    let pods = peers.filter_map(|peer| match peer {
        Peer::Pods(set) => Some(set),
        _ => None,
    });
    pods.collect()
}
