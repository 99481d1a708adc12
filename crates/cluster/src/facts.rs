//! Objects that there are many of, kept as what was read of them: a cluster has
//! a hundred thousand pods, and a tree of each would fill a node's memory.

use crate::kept::Told;
use crate::lower::{Described, DescribedService, Endpoints};
use crate::store::Key;
use namewall_policy::{Finding, Severity};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What was read of one object, and where it stands in the Snapshot.
#[derive(Debug)]
pub(crate) struct Fact<T> {
    /// None if there is nothing to say of it, as of a pod that has ended.
    pub(crate) now: Option<Box<T>>,
    pub(crate) place: Option<u32>,
    findings: Box<[Finding]>,
    /// Nothing was wrong with it, now or when it was read that way.
    is_good: bool,
}

impl<T> Fact<T> {
    pub(crate) fn new(now: Option<T>, findings: Vec<Finding>) -> Self {
        let is_good = !findings.iter().any(|finding| finding.severity == Severity::Error);
        Self { now: now.map(Box::new), place: None, findings: findings.into(), is_good }
    }

    fn is_wrong(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }
}

/// The objects of a kind, and which of them have changed since anybody looked.
#[derive(Debug)]
pub(crate) struct Table<T> {
    pub(crate) objects: BTreeMap<Key, Fact<T>>,
    pub(crate) changed: BTreeSet<Key>,
    /// The places of those that have gone.
    pub(crate) gone: Vec<u32>,
    /// Those that there is something to tell of.
    told: BTreeSet<Key>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), changed: BTreeSet::new(), gone: Vec::new(), told: BTreeSet::new() }
    }
}

impl<T: PartialEq> Table<T> {
    /// An object that is new, or as it is now: whether anybody could notice. One with an error keeps its last good
    /// version; one that never had one counts as far as it can be read.
    pub(crate) fn put(&mut self, key: Key, mut fact: Fact<T>) -> bool {
        if let Some(known) = self.objects.get_mut(&key) {
            let is_kept = known.is_good && !fact.is_good;
            if (is_kept || known.now == fact.now) && known.findings == fact.findings {
                return false;
            }
            fact.place = known.place;
            if is_kept {
                (fact.now, fact.is_good) = (known.now.take(), true);
            }
        }
        match fact.findings.is_empty() {
            true => _ = self.told.remove(&key),
            false => _ = self.told.insert(key.clone()),
        }
        self.objects.insert(key.clone(), fact);
        self.changed.insert(key);
        true
    }

    /// What it was.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Box<T>> {
        let fact = self.objects.remove(key)?;
        self.changed.remove(key);
        self.told.remove(key);
        self.gone.extend(fact.place);
        fact.now
    }

    /// All there is something to say of.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.objects.values().filter_map(|fact| fact.now.as_deref())
    }

    /// Those of a namespace.
    pub(crate) fn within<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Fact<T>> {
        let first = Key { namespace: namespace.into(), name: "".into() };
        self.objects.range(first..).take_while(|(key, _)| *key.namespace == *namespace).map(|(_, fact)| fact)
    }

    /// All of them are in the Snapshot, each in its place.
    pub(crate) fn settle(&mut self) {
        self.changed.clear();
        self.gone.clear();
    }

    /// Adds what there is to tell.
    fn tell(&self, kind: &str, told: &mut Told) {
        for (key, fact) in self.told.iter().filter_map(|key| Some((key, self.objects.get(key)?))) {
            told.findings.extend_from_slice(&fact.findings);
            if fact.is_good && fact.is_wrong() {
                told.kept.push(Arc::from(format!("{kind} {}/{}", key.namespace, key.name)));
            }
        }
    }
}

/// All that is kept so.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) pods: Table<Described>,
    pub(crate) services: Table<DescribedService>,
    pub(crate) slices: Table<Endpoints>,
}

impl Facts {
    pub(crate) fn tell(&self, told: &mut Told) {
        self.pods.tell("Pod", told);
        self.services.tell("Service", told);
        self.slices.tell("EndpointSlice", told);
    }

    /// What objects list for a Service; nothing if none does.
    pub(crate) fn endpoints_of<'a>(&'a self, namespace: &'a str, service: &'a str) -> Vec<&'a Endpoints> {
        let all = self.slices.within(namespace).filter_map(|fact| fact.now.as_deref());
        all.filter(|endpoints| *endpoints.service == *service).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.pods.objects.len() + self.services.objects.len() + self.slices.objects.len()
    }
}
