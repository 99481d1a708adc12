//! Objects that there are many of, kept as what was read of them: a cluster has
//! a hundred thousand pods, and a tree of each would fill a node's memory.
//!
//! They are no policies. One with an error counts as far as it can be read, and
//! not as it was: a pod that could stay what it was would be one without an
//! address, and without the policies for it, as soon as its owner spoils it.

use crate::attached::Attached;
use crate::lower::{Described, DescribedService, Endpoints};
use crate::store::Key;
use namewall_policy::Finding;
use std::collections::{BTreeMap, BTreeSet};

/// What was read of one object, and where it stands in the Snapshot.
#[derive(Debug)]
pub(crate) struct Fact<T> {
    /// None if there is nothing to say of it, as of a pod that has ended.
    pub(crate) now: Option<Box<T>>,
    pub(crate) place: Option<u32>,
    findings: Box<[Finding]>,
}

impl<T> Fact<T> {
    pub(crate) fn new(now: Option<T>, findings: Vec<Finding>) -> Self {
        Self { now: now.map(Box::new), place: None, findings: findings.into() }
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
    /// An object that is new, or as it is now: whether anybody could notice.
    pub(crate) fn put(&mut self, key: Key, mut fact: Fact<T>) -> bool {
        if let Some(known) = self.objects.get(&key) {
            if known.now == fact.now && known.findings == fact.findings {
                return false;
            }
            fact.place = known.place;
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
    fn tell(&self, findings: &mut Vec<Finding>) {
        let told = self.told.iter().filter_map(|key| self.objects.get(key));
        told.for_each(|fact| findings.extend_from_slice(&fact.findings));
    }
}

/// All that is kept so.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) pods: Table<Described>,
    pub(crate) services: Table<DescribedService>,
    pub(crate) slices: Table<Endpoints>,
    pub(crate) attached: Attached,
}

impl Facts {
    pub(crate) fn tell(&self, findings: &mut Vec<Finding>) {
        self.pods.tell(findings);
        self.services.tell(findings);
        self.slices.tell(findings);
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
