//! What a cluster has, kept up with.
//!
//! Every kind is listed and then watched for itself. Nothing counts before all
//! kinds are known, each as a list of objects or as one the cluster does not
//! have: a cluster whose policies are not known yet would look like one without.
//! When the server is away, what was known stays known.

use crate::client::Connection;
use crate::names::{NameObject, Names};
use crate::publish::Publisher;
use futures_util::{StreamExt, TryStreamExt};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use namewall_cluster::kinds::{DNS_NAME_RESOLVER, Kind, WATCHED};
use namewall_cluster::resolver::Settings as ResolverSettings;
use namewall_cluster::{Key, Listed, Read, Settings, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How often a kind that a cluster does not have is looked for.
const LOOK_FOR_KINDS: Duration = Duration::from_secs(5);
/// So often in a row a kind must be missing before objects that are known are let go.
const BELIEVED: u32 = 4;
/// How long a burst of changes is waited for, and how long at most.
const QUIET: Duration = Duration::from_millis(3);
const LONGEST_BURST: Duration = Duration::from_millis(25);
/// How long after a failure a kind is watched again, at most. When the server is back, what was changed meanwhile
/// waits as long, and as long again if so much has changed that all must be listed.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const NOT_FOUND: u16 = 404;
const GONE: u16 = 410;
const NODE_ADDRESSES: &str = "NodeAddresses";
/// Kinds that change all the time, and are no policies.
const BUSY: [&str; 6] = ["Pod", "EndpointSlice", "Node", "Service", "NodeAddresses", "Namespace"];

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
    /// Kinds that are watched for.
    wanted: BTreeSet<&'static str>,
    /// Kinds that are listed, or that the cluster does not have.
    kinds: BTreeSet<&'static str>,
    /// Kinds that the cluster does not have.
    absent: BTreeSet<&'static str>,
    trouble: BTreeMap<&'static str, String>,
    /// What each node says it enforces: no policy changes with it.
    enforced: BTreeMap<Box<str>, String>,
    changes: u64,
    /// Those of kinds that change seldom: no pods, endpoints, nodes.
    policy_changes: bool,
    last_change: Option<Instant>,
}

#[derive(Debug, Default)]
pub(crate) struct Shared {
    known: Mutex<Known>,
    changed: Condvar,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known, and says so if it is to be seen.
    fn change(&self, kind: &'static str, change: impl FnOnce(&mut Known) -> bool) {
        let mut known = self.lock();
        known.trouble.remove(kind);
        let was_whole = known.is_whole();
        if change(&mut known) {
            if kind != DNS_NAME_RESOLVER.name || !was_whole {
                known.changes += 1;
                known.policy_changes |= !BUSY.contains(&kind);
                known.last_change = Some(Instant::now());
            }
            self.changed.notify_all();
        }
    }

    fn say(&self, kind: &'static str, what: String) {
        self.lock().trouble.insert(kind, what);
        self.changed.notify_all();
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
    /// For all that policies can see.
    pub fn start(connection: &Connection) -> Self {
        Self::start_for(connection, |_| true)
    }

    /// For some kinds.
    pub fn start_for(connection: &Connection, is_wanted: impl Fn(&str) -> bool) -> Self {
        let shared = Arc::new(Shared::default());
        let mut kinds: BTreeMap<&'static str, Vec<Kind>> = BTreeMap::new();
        let wanted = WATCHED.iter().filter(|kind| is_wanted(kind.name));
        wanted.for_each(|kind| kinds.entry(kind.name).or_default().push(*kind));
        shared.lock().wanted = kinds.keys().copied().collect();
        let follow = |versions: Vec<Kind>| {
            let follow = follow(connection.watching.clone(), versions, shared.clone());
            connection.runtime.spawn(follow)
        };
        let tasks = kinds.into_values().map(follow).collect();
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
    pub fn absent(&self) -> Vec<&'static str> {
        self.shared.lock().absent.iter().copied().collect()
    }
}

impl Known {
    fn apply(&mut self, kind: &Kind, object: &serde_json::Value) -> bool {
        self.hear(kind, object);
        let is_new = self.store.apply(kind, object);
        if is_new && *kind == DNS_NAME_RESOLVER {
            let key = Key::of(object);
            let read = self.store.get(kind.name, &key).and_then(|document| NameObject::read(&key, document));
            // One that cannot be read says nothing.
            match read {
                Some(object) => self.names.put(object),
                None => self.names.remove(&key),
            }
            self.new_names.insert(key);
        }
        is_new
    }

    fn hear(&mut self, kind: &Kind, object: &serde_json::Value) {
        if kind.name == NODE_ADDRESSES {
            let digest = object["status"]["enforces"].as_str().unwrap_or_default().to_owned();
            self.enforced.insert(Key::of(object).name, digest);
        }
    }

    /// All DNSNameResolvers anew.
    fn take_names(&mut self) {
        let next = Names::of(self.store.of(DNS_NAME_RESOLVER.name));
        let both = self.names.all().chain(next.all()).map(|object| object.key.clone());
        self.new_names.extend(both);
        self.names = next;
    }

    fn is_whole(&self) -> bool {
        self.wanted.iter().all(|kind| self.kinds.contains(kind))
    }

    fn trouble(&self) -> Vec<Trouble> {
        self.trouble.iter().map(|(kind, what)| Trouble { kind, what: what.clone() }).collect()
    }
}

/// Follows one kind, in the first of these versions that the cluster has, for as long as it has it.
async fn follow(client: Client, versions: Vec<Kind>, shared: Arc<Shared>) {
    let name = versions[0].name;
    let mut looks = 0;
    loop {
        let found = find(&client, &versions).await;
        looks = if matches!(found, Ok(None)) { looks + 1 } else { 0 };
        match found {
            Ok(Some(kind)) => follow_version(&client, kind, &shared).await,
            // A server that has only just started may not know its definitions yet. To believe it would let go of
            // policies that are in force.
            Ok(None) if looks < BELIEVED && shared.lock().store.of(name).next().is_some() => {
                shared.say(name, format!("the API server says that there is no {name} any more"));
            }
            Ok(None) => shared.change(name, |known| {
                // Objects go with their definition.
                let has_gone = known.store.replace(&versions[0], Vec::new());
                if versions[0] == DNS_NAME_RESOLVER {
                    known.take_names();
                }
                let is_news = known.kinds.insert(name) | known.absent.insert(name);
                has_gone | is_news
            }),
            Err(error) => shared.say(name, error.to_string()),
        }
        tokio::time::sleep(LOOK_FOR_KINDS).await;
    }
}

async fn find(client: &Client, versions: &[Kind]) -> Result<Option<Kind>, kube::Error> {
    for kind in versions {
        if kind.is_builtin {
            return Ok(Some(*kind));
        }
        match client.list_api_group_resources(&kind.api_version()).await {
            Ok(list) if list.resources.iter().any(|one| one.name == kind.plural) => return Ok(Some(*kind)),
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == NOT_FOUND => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Between tries: longer and longer, as usual; but half a minute, which is usual too, is long for a policy to wait.
#[derive(Default)]
struct Pauses(watcher::DefaultBackoff);

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|pause| pause.min(LONGEST_PAUSE))
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.0.reset();
    }
}

/// Ends when the cluster no longer has the kind.
async fn follow_version(client: &Client, kind: Kind, shared: &Shared) {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource_of(&kind));
    let mut events = pin!(watcher(api, watcher::Config::default()).backoff(Pauses::default()).into_stream());
    let mut listed = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => {
                listed.clear();
                if kind.name == NODE_ADDRESSES {
                    shared.lock().enforced.clear();
                }
            }
            Ok(Event::InitApply(object)) => {
                let object = whole(object);
                shared.lock().hear(&kind, &object);
                listed.push(Listed::new(&kind, &object));
            }
            Ok(Event::InitDone) => {
                let objects = std::mem::take(&mut listed);
                shared.change(kind.name, |known| {
                    known.absent.remove(kind.name);
                    let is_new = known.kinds.insert(kind.name) | known.store.replace(&kind, objects);
                    if kind == DNS_NAME_RESOLVER {
                        known.take_names();
                    }
                    is_new
                });
            }
            Ok(Event::Apply(object)) => {
                let object = whole(object);
                shared.change(kind.name, |known| known.apply(&kind, &object));
            }
            Ok(Event::Delete(object)) => {
                let key = Key::of(&whole(object));
                shared.change(kind.name, |known| {
                    if kind == DNS_NAME_RESOLVER {
                        known.names.remove(&key);
                        known.new_names.insert(key.clone());
                    }
                    if kind.name == NODE_ADDRESSES {
                        known.enforced.remove(&key.name);
                    }
                    known.store.remove(&kind, &key)
                });
            }
            // The server has forgotten what we have seen last, and all is listed anew.
            Err(watcher::Error::WatchError(status)) if status.code == GONE => {}
            Err(error) => {
                shared.say(kind.name, words(&error));
                if !kind.is_builtin && is_gone(&error) {
                    return;
                }
            }
        }
    }
}

pub(crate) fn resource_of(kind: &Kind) -> ApiResource {
    ApiResource {
        group: kind.group.to_owned(),
        version: kind.version.to_owned(),
        api_version: kind.api_version(),
        kind: kind.name.to_owned(),
        plural: kind.plural.to_owned(),
    }
}

fn whole(object: DynamicObject) -> serde_json::Value {
    serde_json::to_value(object).unwrap_or_default()
}

fn is_gone(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == NOT_FOUND,
        watcher::Error::WatchError(status) => status.code == NOT_FOUND,
        _ => false,
    }
}

/// What a reader can do something about, without how it came to us.
fn words(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.message.clone(),
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => causes(error),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

/// The last cause says most: that a connection was refused, say.
fn causes(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}
