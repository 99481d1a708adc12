//! What a cluster has, kept up with.
//!
//! Every kind is listed and then watched for itself (`follow`). Nothing counts before all
//! kinds are known, each as a list of objects or as one the cluster does not
//! have: a cluster whose policies are not known yet would look like one without.
//! When the server is away, what was known stays known.

use crate::client::Connection;
use crate::follow::follow;
use crate::metrics::WatchMetrics;
use crate::names::{NameObject, Names};
use crate::publish::Publisher;
use namewall_cluster::kinds::{self, Component, DNS_NAME_RESOLVER, Kind, NODE_ADDRESSES, VersionedKind};
use namewall_cluster::resolver::Settings as ResolverSettings;
use namewall_cluster::{Key, Listing, Read, Settings, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How long a burst of changes is waited for, and how long at most.
const QUIET: Duration = Duration::from_millis(3);
const LONGEST_BURST: Duration = Duration::from_millis(25);

/// What stands between us and the objects of a kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    pub kind: &'static str,
    pub what: String,
}

/// The cluster as it is known now.
#[derive(Debug, Default)]
pub(crate) struct Known {
    store: Store,
    /// What the DNSNameResolvers say. Their statuses change all the time, and no policy with them: they count
    /// for themselves.
    pub(crate) names: Names,
    /// Objects of theirs that nobody has asked for since they changed.
    new_names: BTreeSet<Key>,
    /// Kinds that are watched.
    wanted: BTreeSet<&'static Kind>,
    /// Kinds that are listed, or that the cluster does not have.
    kinds: BTreeSet<&'static Kind>,
    /// Kinds that the cluster does not have.
    absent: BTreeSet<&'static Kind>,
    trouble: BTreeMap<&'static Kind, String>,
    /// How often each kind could not be listed or watched.
    failures: BTreeMap<&'static Kind, u64>,
    /// When the server last said anything of each kind.
    heard: BTreeMap<&'static Kind, Instant>,
    /// What each node says it enforces: no policy changes with it.
    enforced: BTreeMap<Arc<str>, String>,
    changes: u64,
    /// Whether a policy has changed.
    policy_changes: bool,
    last_change: Option<Instant>,
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

#[derive(Debug, Default)]
pub(crate) struct Shared {
    known: Mutex<Known>,
    changed: Condvar,
}

impl Shared {
    /// Nothing is known of these kinds yet.
    pub(crate) fn of(kinds: impl IntoIterator<Item = &'static Kind>) -> Self {
        let known = Known { wanted: kinds.into_iter().collect(), ..Known::default() };
        Self { known: Mutex::new(known), changed: Condvar::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known, and says so if it is to be seen.
    pub(crate) fn change(&self, kind: &'static Kind, change: impl FnOnce(&mut Known) -> bool) {
        let mut known = self.lock();
        known.hear(kind);
        let was_whole = known.is_whole();
        if change(&mut known) {
            if *kind != DNS_NAME_RESOLVER || !was_whole {
                known.changes += 1;
                known.policy_changes |= kind.is_policy();
                known.last_change = Some(Instant::now());
            }
            self.changed.notify_all();
        }
    }

    pub(crate) fn say(&self, kind: &'static Kind, what: String) {
        let mut known = self.lock();
        known.trouble.insert(kind, what);
        *known.failures.entry(kind).or_default() += 1;
        drop(known);
        self.changed.notify_all();
    }

    /// Nothing is in the way of a kind, whether or not anything of it has changed.
    pub(crate) fn hear(&self, kind: &'static Kind) {
        self.lock().hear(kind);
    }

    pub(crate) fn has_any(&self, kind: &'static Kind) -> bool {
        self.lock().store.has(kind)
    }
}

/// Watches a cluster until it is dropped.
#[derive(Debug)]
pub struct Watch {
    /// Its runtime has the tasks.
    connection: Connection,
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
    seen: u64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Watch {
    /// Watches the kinds that the table of kinds gives a component.
    pub fn start(connection: &Connection, component: Component) -> Self {
        Self::start_for(connection, kinds::watched(component))
    }

    /// Watches these kinds.
    pub fn start_for(connection: &Connection, kinds: impl IntoIterator<Item = &'static Kind>) -> Self {
        let kinds: BTreeSet<&'static Kind> = kinds.into_iter().collect();
        let shared = Arc::new(Shared::of(kinds.iter().copied()));
        let follow = |kind| connection.runtime.spawn(follow(connection.watching.clone(), kind, shared.clone()));
        let tasks = kinds.into_iter().map(follow).collect();
        Self { connection: connection.clone(), shared, tasks, seen: 0 }
    }

    /// Waits until the cluster is known as a whole; what is in the way if it is not known in time.
    pub fn wait_until_known(&self, patience: Duration) -> Result<(), Vec<Trouble>> {
        let known = self.shared.lock();
        let (known, _) = self
            .shared
            .changed
            .wait_timeout_while(known, patience, |known| !known.is_whole())
            .unwrap_or_else(PoisonError::into_inner);
        if known.is_whole() { Ok(()) } else { Err(known.trouble()) }
    }

    /// Waits for a change, and until a burst of them is over.
    pub fn wait(&self, patience: Duration) -> bool {
        let is_old =
            |known: &mut Known| (known.changes == self.seen && known.new_names.is_empty()) || !known.is_whole();
        let wait = self.shared.changed.wait_timeout_while(self.shared.lock(), patience, is_old);
        let (mut known, _) = wait.unwrap_or_else(PoisonError::into_inner);
        if is_old(&mut known) {
            return false;
        }
        let until = Instant::now() + LONGEST_BURST;
        while known.last_change.is_some_and(|last| last.elapsed() < QUIET) && Instant::now() < until {
            drop(known);
            std::thread::sleep(QUIET);
            known = self.shared.lock();
        }
        true
    }

    pub fn has_changed(&self) -> bool {
        let known = self.shared.lock();
        known.changes != self.seen && known.is_whole()
    }

    /// What the objects say now; what has changed until now is known with it.
    pub fn read(&mut self, settings: &Settings) -> Read {
        let mut known = self.shared.lock();
        self.seen = known.changes;
        known.store.read(settings)
    }

    /// What the objects say now, for who is told of changes by other ways.
    pub fn look(&self, settings: &Settings) -> Read {
        self.shared.lock().store.read(settings)
    }

    /// The DNSNameResolvers that have changed since this was last asked, and what they say now.
    pub fn new_names(&mut self) -> Vec<(Key, Option<NameObject>)> {
        let mut known = self.shared.lock();
        if !known.is_whole() {
            return Vec::new();
        }
        let changed = std::mem::take(&mut known.new_names);
        changed.into_iter().map(|key| (key.clone(), known.names.get(&key).cloned())).collect()
    }

    /// Whether anything but DNSNameResolvers has changed since this was last asked.
    pub fn take_change(&mut self) -> bool {
        let known = self.shared.lock();
        let has_changed = known.changes != self.seen && known.is_whole();
        if has_changed {
            self.seen = known.changes;
        }
        has_changed
    }

    /// Does something with the objects as they are now.
    pub fn with_store<T>(&self, with: impl FnOnce(&Store) -> T) -> T {
        with(&self.shared.lock().store)
    }

    /// Who writes the statuses of the DNSNameResolvers that are seen here.
    pub fn publisher(&self, settings: ResolverSettings) -> Publisher {
        Publisher::new(self.connection.clone(), self.shared.clone(), settings)
    }

    pub fn metrics(&self) -> WatchMetrics {
        WatchMetrics { requests: self.connection.requests.clone(), shared: self.shared.clone() }
    }

    /// How many nodes say that they enforce what has this digest, and how many say anything.
    pub fn enforcing(&self, digest: &str) -> (usize, usize) {
        let known = self.shared.lock();
        (known.enforced.values().filter(|one| **one == digest).count(), known.enforced.len())
    }

    /// Whether a policy has changed since this was last asked.
    pub fn take_policy_change(&mut self) -> bool {
        std::mem::take(&mut self.shared.lock().policy_changes)
    }

    /// What is in the way now.
    pub fn trouble(&self) -> Vec<Trouble> {
        self.shared.lock().trouble()
    }

    /// Kinds that the cluster does not have.
    pub fn absent(&self) -> Vec<&'static Kind> {
        self.shared.lock().absent.iter().copied().collect()
    }
}

impl Known {
    /// The server has said something of a kind: nothing is in the way.
    fn hear(&mut self, kind: &'static Kind) {
        self.trouble.remove(kind);
        self.heard.insert(kind, Instant::now());
    }

    /// How each watch is doing.
    pub(crate) fn watched(&self) -> Vec<WatchedKind> {
        let watched = self.wanted.iter().map(|kind| WatchedKind {
            name: kind.name,
            objects: self.store.count_of(kind),
            age: self.heard.get(kind).map(Instant::elapsed),
            failures: self.failures.get(kind).copied().unwrap_or_default(),
            is_failing: self.trouble.contains_key(kind),
        });
        watched.collect()
    }

    pub(crate) fn apply(&mut self, versioned: VersionedKind, object: &serde_json::Value) -> bool {
        let kind = versioned.kind;
        self.enforced.extend(enforces(kind, object));
        let is_new = self.store.apply(versioned, object);
        if is_new && *kind == DNS_NAME_RESOLVER {
            let key = Key::of(object);
            let read = self.store.get(kind, &key).and_then(|document| NameObject::read(&key, &document));
            // One that cannot be read says nothing.
            match read {
                Some(object) => self.names.put(object),
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

    /// All objects of a kind anew, and what nodes say in them.
    pub(crate) fn replace(&mut self, listing: Listing, enforced: BTreeMap<Arc<str>, String>) -> bool {
        let kind = listing.kind();
        if *kind == NODE_ADDRESSES {
            self.enforced = enforced;
        }
        self.absent.remove(kind);
        let is_new = self.kinds.insert(kind) | self.store.replace(listing);
        if *kind == DNS_NAME_RESOLVER {
            self.take_names();
        }
        is_new
    }

    /// The cluster does not have the kind, nor any object of it.
    pub(crate) fn lose(&mut self, kind: &'static Kind) -> bool {
        let has_gone = self.store.replace(Listing::new(kind.preferred()));
        if *kind == DNS_NAME_RESOLVER {
            self.take_names();
        }
        let is_news = self.kinds.insert(kind) | self.absent.insert(kind);
        has_gone | is_news
    }

    /// All DNSNameResolvers anew.
    fn take_names(&mut self) {
        let Self { store, names, new_names, .. } = self;
        new_names.extend(names.all().map(|object| object.key.clone()));
        names.replace(store.of(&DNS_NAME_RESOLVER));
        new_names.extend(names.all().map(|object| object.key.clone()));
    }

    fn is_whole(&self) -> bool {
        self.wanted.iter().all(|kind| self.kinds.contains(kind))
    }

    fn trouble(&self) -> Vec<Trouble> {
        self.trouble.iter().map(|(kind, what)| Trouble { kind: kind.name, what: what.clone() }).collect()
    }
}

/// What a node says it enforces, if that is what the object is for.
pub(crate) fn enforces(kind: &Kind, object: &serde_json::Value) -> Option<(Arc<str>, String)> {
    let digest = || object["status"]["enforces"].as_str().unwrap_or_default().to_owned();
    (*kind == NODE_ADDRESSES).then(|| (Key::of(object).name, digest()))
}
