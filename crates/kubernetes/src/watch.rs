//! What a cluster has, kept up with.
//!
//! Every kind is listed and then watched for itself (`follow`). Nothing counts before all
//! kinds are known, each as a list of objects or as one the cluster does not
//! have: a cluster whose policies are not known yet would look like one without.
//! When the server is away, what was known stays known.

use crate::client::Connection;
use crate::environment::{Environment, whole_seconds};
use crate::follow::{Sink, follow};
use crate::metrics::WatchMetrics;
use crate::names::NameObject;
use crate::publish::Publisher;
use crate::view::{ClusterView, ListedKind, Trouble, WatchedKind};
use futures_util::future::{AbortHandle, abortable};
use jiff::Timestamp;
use namewall_cluster::kinds::{self, Component, DNS_NAME_RESOLVER, Kind, VersionedKind};
use namewall_cluster::resolver::Settings as ResolverSettings;
use namewall_cluster::{Key, PodAddresses, Read, Settings, Store};
use namewall_runtime::Clock;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(crate) struct Shared {
    known: Mutex<ClusterView>,
    pub(crate) changed: Condvar,
    clock: Arc<dyn Clock>,
}

impl Shared {
    /// Nothing is known of these kinds yet.
    pub(crate) fn of(kinds: impl IntoIterator<Item = &'static Kind>, clock: Arc<dyn Clock>) -> Self {
        Self { known: Mutex::new(ClusterView::of(kinds)), changed: Condvar::new(), clock }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ClusterView> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known, and says so if it is to be seen.
    pub(crate) fn change(&self, kind: &'static Kind, change: impl FnOnce(&mut ClusterView, Timestamp) -> bool) {
        let (wall, now) = (whole_seconds(&*self.clock), self.clock.now());
        let mut known = self.lock();
        known.hear(kind, now);
        let was_whole = known.is_whole();
        if change(&mut known, wall) {
            if *kind != DNS_NAME_RESOLVER || !was_whole {
                known.changes += 1;
                known.policy_changes |= kind.is_policy();
                known.last_change = Some(now);
            }
            self.changed.notify_all();
        }
    }

    /// How each watch is doing.
    pub(crate) fn watched(&self) -> Vec<WatchedKind> {
        self.lock().watched(self.clock.now())
    }
}

impl Sink for Shared {
    type Listing = ListedKind;

    fn begin_list(&self, versioned: VersionedKind) -> ListedKind {
        ListedKind::new(versioned)
    }

    fn push(&self, listing: &mut ListedKind, object: &Value) {
        listing.push(object);
    }

    fn replace(&self, kind: &'static Kind, listing: ListedKind) {
        self.change(kind, |known, now| known.replace(listing, now));
    }

    fn apply(&self, versioned: VersionedKind, object: &Value) {
        self.change(versioned.kind, |known, now| known.apply(versioned, object, now));
    }

    fn remove(&self, kind: &'static Kind, object: &Value) {
        self.change(kind, |known, _| known.remove(kind, &Key::of(object)));
    }

    fn lose(&self, kind: &'static Kind) {
        self.change(kind, |known, now| known.lose(kind, now));
    }

    fn say(&self, kind: &'static Kind, what: String) {
        let mut known = self.lock();
        known.trouble.insert(kind, what);
        *known.failures.entry(kind).or_default() += 1;
        drop(known);
        self.changed.notify_all();
    }

    fn hear(&self, kind: &'static Kind) {
        self.lock().hear(kind, self.clock.now());
    }

    fn has_any(&self, kind: &'static Kind) -> bool {
        self.lock().store.has(kind)
    }
}

/// Ends the wait for a change, from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

impl Waker {
    pub fn wake(&self) {
        self.0.lock().is_woken = true;
        self.0.changed.notify_all();
    }
}

/// Watches a cluster until it is dropped.
#[derive(Debug)]
pub struct Watch {
    pub(crate) environment: Environment,
    pub(crate) shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
    pub(crate) seen: u64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Watch {
    /// Watches the kinds that the table of kinds gives a component.
    pub fn start(connection: &Connection, component: Component) -> Self {
        Self::start_for(connection, kinds::watched(component))
    }

    /// Watches these kinds.
    pub fn start_for(connection: &Connection, kinds: impl IntoIterator<Item = &'static Kind>) -> Self {
        Self::start_in(connection.environment(), kinds)
    }

    /// Watches these kinds in an environment of any sort.
    pub fn start_in(environment: &Environment, kinds: impl IntoIterator<Item = &'static Kind>) -> Self {
        let kinds: BTreeSet<&'static Kind> = kinds.into_iter().collect();
        let shared = Arc::new(Shared::of(kinds.iter().copied(), environment.clock.clone()));
        let follow = |kind| {
            let (task, handle) = abortable(follow(environment.for_task(), kind, shared.clone()));
            environment.tasks.spawn(Box::pin(async move { _ = task.await }));
            handle
        };
        let tasks = kinds.into_iter().map(follow).collect();
        Self { environment: environment.clone(), shared, tasks, seen: 0 }
    }

    /// Whether the cluster is known as a whole.
    pub fn is_known(&self) -> bool {
        self.shared.lock().is_whole()
    }

    pub fn has_changed(&self) -> bool {
        let known = self.shared.lock();
        known.changes != self.seen && known.is_whole()
    }

    /// What the objects say now; what has changed until now is known with it.
    pub fn read(&mut self, settings: &Settings) -> Read {
        self.read_with(settings, |_| ()).0
    }

    /// The same, and what else the store that was read says.
    pub fn read_with<T>(&mut self, settings: &Settings, with: impl FnOnce(&Store) -> T) -> (Read, T) {
        let mut known = self.shared.lock();
        self.seen = known.changes;
        let read = known.store.read(settings);
        (read, with(&known.store))
    }

    /// Does something with the objects, before they are read or between two readings.
    pub fn with_store_mut<T>(&self, with: impl FnOnce(&mut Store) -> T) -> T {
        with(&mut self.shared.lock().store)
    }

    /// Takes the addresses that this node's runtime has given its pods. They are in what is read next.
    pub fn attach(&self, pods: &[PodAddresses]) {
        self.shared.lock().store.attach(pods);
    }

    pub fn waker(&self) -> Waker {
        Waker(self.shared.clone())
    }

    /// What the objects say now, for callers that learn of changes by other ways.
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
        Publisher::new(self.environment.clone(), self.shared.clone(), settings)
    }

    pub fn metrics(&self) -> WatchMetrics {
        WatchMetrics { requests: self.environment.requests.clone(), shared: self.shared.clone() }
    }

    /// The digest of the EgressFirewalls that each node says it enforces.
    pub fn enforced_egress_firewalls(&self) -> BTreeMap<Arc<str>, String> {
        let known = self.shared.lock();
        known.enforced.iter().map(|(node, enforced)| (node.clone(), enforced.egress_firewalls.clone())).collect()
    }

    /// The nodes that say that they enforce the ClusterEgressFirewalls with this digest.
    pub fn enforcing(&self, digest: &str) -> BTreeSet<Arc<str>> {
        let known = self.shared.lock();
        let enforcing = known.enforced.iter().filter(|(_, enforced)| enforced.cluster_egress_firewalls == digest);
        enforcing.map(|(node, _)| node.clone()).collect()
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
