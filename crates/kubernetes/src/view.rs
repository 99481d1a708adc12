//! The cluster as it is known now: what the watches have said, and which kinds
//! are still missing. Pure; time is an argument.

use crate::addresses::Enforces;
use crate::names::{NameObject, Names};
use jiff::Timestamp;
use namewall_cluster::kinds::{DNS_NAME_RESOLVER, Kind, NODE_ADDRESSES, VersionedKind};
use namewall_cluster::{Key, Listing, Store};
use namewall_runtime::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What stands between us and the objects of a kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    pub kind: &'static str,
    pub what: String,
}

/// The cluster as it is known now.
#[derive(Debug, Default)]
pub(crate) struct ClusterView {
    pub(crate) store: Store,
    /// What the DNSNameResolvers say. Their statuses change all the time, and no policy with them: they count
    /// for themselves.
    pub(crate) names: Names,
    /// Objects of theirs that nobody has asked for since they changed.
    pub(crate) new_names: BTreeSet<Key>,
    /// Kinds that are watched.
    pub(crate) wanted: BTreeSet<&'static Kind>,
    /// Kinds that are listed, or that the cluster does not have.
    kinds: BTreeSet<&'static Kind>,
    /// Kinds that the cluster does not have.
    pub(crate) absent: BTreeSet<&'static Kind>,
    pub(crate) trouble: BTreeMap<&'static Kind, String>,
    /// How often each kind could not be listed or watched.
    pub(crate) failures: BTreeMap<&'static Kind, u64>,
    /// When the server last said anything of each kind.
    heard: BTreeMap<&'static Kind, Instant>,
    /// What each node says it enforces: no policy changes with it.
    pub(crate) enforced: BTreeMap<Arc<str>, Enforces>,
    pub(crate) changes: u64,
    /// Whoever waits for a change is to go on at once.
    pub(crate) is_woken: bool,
    /// Whether a policy has changed.
    pub(crate) policy_changes: bool,
    pub(crate) last_change: Option<Instant>,
}

/// How the watch of a kind is doing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchedKind {
    pub(crate) name: &'static str,
    pub(crate) objects: usize,
    /// Since when the server has said nothing; None if it never has.
    pub(crate) age: Option<Duration>,
    pub(crate) failures: u64,
    pub(crate) is_failing: bool,
}

impl ClusterView {
    /// Nothing is known of these kinds yet.
    pub(crate) fn of(kinds: impl IntoIterator<Item = &'static Kind>) -> Self {
        Self { wanted: kinds.into_iter().collect(), ..Self::default() }
    }

    /// The server has said something of a kind: nothing is in the way.
    pub(crate) fn hear(&mut self, kind: &'static Kind, now: Instant) {
        self.trouble.remove(kind);
        self.heard.insert(kind, now);
    }

    /// How each watch is doing.
    pub(crate) fn watched(&self, now: Instant) -> Vec<WatchedKind> {
        let watched = self.wanted.iter().map(|kind| WatchedKind {
            name: kind.name,
            objects: self.store.count_of(kind),
            age: self.heard.get(kind).map(|heard| now.since(*heard)),
            failures: self.failures.get(kind).copied().unwrap_or_default(),
            is_failing: self.trouble.contains_key(kind),
        });
        watched.collect()
    }

    pub(crate) fn apply(&mut self, versioned: VersionedKind, object: &serde_json::Value, now: Timestamp) -> bool {
        let kind = versioned.kind;
        self.enforced.extend(enforces(kind, object));
        let is_new = self.store.apply(versioned, object);
        if is_new && *kind == DNS_NAME_RESOLVER {
            let key = Key::of(object);
            // One that cannot be read says nothing.
            match NameObject::of_json(&key, object) {
                Some(object) => self.names.put(object, now),
                None => self.names.remove(&key),
            }
            self.new_names.insert(key);
        }
        // Also of what has changed in nothing that is kept.
        if let (true, Some(version)) = (*kind == DNS_NAME_RESOLVER, object["metadata"]["resourceVersion"].as_str()) {
            self.names.set_version(&Key::of(object), version);
        }
        is_new
    }

    pub(crate) fn remove(&mut self, kind: &'static Kind, key: &Key) -> bool {
        if *kind == DNS_NAME_RESOLVER {
            self.names.remove(key);
            self.new_names.insert(key.clone());
        }
        if *kind == NODE_ADDRESSES {
            self.enforced.remove(&key.name);
        }
        self.store.remove(kind, key)
    }

    /// All objects of a kind anew.
    pub(crate) fn replace(&mut self, listed: ListedKind, now: Timestamp) -> bool {
        let ListedKind { listing, enforced } = listed;
        let kind = listing.kind();
        if *kind == NODE_ADDRESSES {
            self.enforced = enforced;
        }
        self.absent.remove(kind);
        let is_new = self.kinds.insert(kind) | self.store.replace(listing);
        if *kind == DNS_NAME_RESOLVER {
            self.take_names(now);
        }
        is_new
    }

    /// The cluster does not have the kind, nor any object of it.
    pub(crate) fn lose(&mut self, kind: &'static Kind, now: Timestamp) -> bool {
        let has_gone = self.store.replace(Listing::new(kind.preferred()));
        if *kind == DNS_NAME_RESOLVER {
            self.take_names(now);
        }
        let is_news = self.kinds.insert(kind) | self.absent.insert(kind);
        has_gone | is_news
    }

    /// All DNSNameResolvers anew.
    fn take_names(&mut self, now: Timestamp) {
        let Self { store, names, new_names, .. } = self;
        new_names.extend(names.all().map(|object| object.key.clone()));
        names.replace(store.of(&DNS_NAME_RESOLVER), now);
        new_names.extend(names.all().map(|object| object.key.clone()));
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.wanted.iter().all(|kind| self.kinds.contains(kind))
    }

    pub(crate) fn trouble(&self) -> Vec<Trouble> {
        self.trouble.iter().map(|(kind, what)| Trouble { kind: kind.name, what: what.clone() }).collect()
    }
}

/// All objects of a kind.
#[derive(Debug)]
pub(crate) struct ListedKind {
    listing: Listing,
    /// What nodes say in them.
    enforced: BTreeMap<Arc<str>, Enforces>,
}

impl ListedKind {
    pub(crate) fn new(versioned: VersionedKind) -> Self {
        Self { listing: Listing::new(versioned), enforced: BTreeMap::new() }
    }

    pub(crate) fn push(&mut self, object: &serde_json::Value) {
        self.enforced.extend(enforces(self.listing.kind(), object));
        self.listing.push(object);
    }
}

/// What a node says it enforces, if that is what the object is for.
fn enforces(kind: &Kind, object: &serde_json::Value) -> Option<(Arc<str>, Enforces)> {
    (*kind == NODE_ADDRESSES).then(|| (Key::of(object).name, Enforces::of(object)))
}
