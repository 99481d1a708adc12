//! What was looked up goes into the status of the DNSNameResolvers it concerns
//! (S8.3), so that a name looked up on one node is open on all.
//!
//! Writers meet: each reads the object, changes its status by what it knows, and
//! writes it back if nobody else has meanwhile; otherwise once more.

use crate::client::Connection;
use crate::watch::Shared;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use namewall_cluster::Key;
use namewall_cluster::api::dns_name_resolver::Status;
use namewall_cluster::kinds::DNS_NAME_RESOLVER;
use namewall_cluster::resolver::{Lookup, Resolver, Settings};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Objects that are written at the same time.
const AT_ONCE: usize = 16;
/// More that wait than this, and the API server is not asked for more: names are learned as before.
const MOST_WAITING: u64 = 10_000;
const TRIES: u32 = 6;
const TRY_AGAIN: Duration = Duration::from_millis(20);
const CONFLICT: u16 = 409;
const NOT_FOUND: u16 = 404;

/// What became of a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Addresses with their TTLs.
    Found(Vec<(IpAddr, u32)>),
    /// The name of the rcode, or why there is none.
    Failed(String),
    /// Time went by: what is over goes.
    Passed,
}

/// What came of what was published.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Published {
    pub written: u64,
    pub conflicts: u64,
    pub failed: u64,
    /// Not even tried: too many waited.
    pub left_out: u64,
    /// Answers that went out before it was written.
    pub late: u64,
}

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    conflicts: AtomicU64,
    failed: AtomicU64,
    left_out: AtomicU64,
    late: AtomicU64,
}

/// Writes statuses, each in its turn.
#[derive(Debug)]
pub struct Publisher {
    connection: Connection,
    shared: Arc<Shared>,
    settings: Settings,
    /// Whose objects are written; all, if there are none.
    namespaces: Vec<String>,
    room: Arc<Semaphore>,
    waiting: Arc<(Mutex<u64>, Condvar)>,
    counts: Arc<Counts>,
}

impl Publisher {
    pub(crate) fn new(connection: Connection, shared: Arc<Shared>, settings: Settings) -> Self {
        let room = Arc::new(Semaphore::new(AT_ONCE));
        let namespaces = Vec::new();
        Self { connection, shared, settings, namespaces, room, waiting: Arc::default(), counts: Arc::default() }
    }

    /// Only objects of these namespaces.
    pub fn within(mut self, namespaces: Vec<String>) -> Self {
        self.namespaces = namespaces;
        self
    }

    /// Notes what became of a lookup of a name, which is lower case and has its last dot; whether any object
    /// says something else, and is being written.
    pub fn note(&self, name: &str, outcome: &Outcome) -> bool {
        let concerned: Vec<Key> = {
            let known = self.shared.lock();
            let would_change = |pattern: &str, status: &Status| {
                let mut status = status.clone();
                apply(Resolver { pattern, status: &mut status }, (name, self.settings), outcome)
            };
            let is_ours = |key: &Key| {
                self.namespaces.is_empty() || self.namespaces.iter().any(|namespace| **namespace == *key.namespace)
            };
            let objects = known.names.matching(name).filter(|one| is_ours(&one.key));
            objects.filter(|one| would_change(&one.pattern, &one.status)).map(|one| one.key.clone()).collect()
        };
        concerned.into_iter().filter(|key| self.write(key.clone(), name.to_owned(), outcome.clone())).count() > 0
    }

    /// Takes out of an object what is over.
    pub fn prune(&self, key: &Key) {
        self.write(key.clone(), String::new(), Outcome::Passed);
    }

    fn write(&self, key: Key, name: String, outcome: Outcome) -> bool {
        let (count, _) = &*self.waiting;
        let mut count = count.lock().unwrap_or_else(PoisonError::into_inner);
        if *count >= MOST_WAITING {
            self.counts.left_out.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        *count += 1;
        drop(count);
        let (room, waiting, counts) = (self.room.clone(), self.waiting.clone(), self.counts.clone());
        let (client, settings) = (self.connection.client.clone(), self.settings);
        self.connection.runtime.spawn(async move {
            let turn = room.acquire().await;
            let api = Api::namespaced_with(client, &key.namespace, &resource());
            match update(&api, &key, |resolver| apply(resolver, (&name, settings), &outcome)).await {
                Ok(conflicts) => {
                    counts.written.fetch_add(1, Ordering::Relaxed);
                    counts.conflicts.fetch_add(conflicts.into(), Ordering::Relaxed);
                }
                Err(_) => _ = counts.failed.fetch_add(1, Ordering::Relaxed),
            }
            drop(turn);
            let (count, changed) = &*waiting;
            *count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
            changed.notify_all();
        });
        true
    }

    /// Waits until all that was noted is written, but no longer than this.
    pub fn finish(&self, patience: Duration) -> bool {
        let (count, changed) = &*self.waiting;
        let waits =
            changed
                .wait_timeout_while(count.lock().unwrap_or_else(PoisonError::into_inner), patience, |count| *count > 0);
        let is_done = !waits.unwrap_or_else(PoisonError::into_inner).1.timed_out();
        self.counts.late.fetch_add(u64::from(!is_done), Ordering::Relaxed);
        is_done
    }

    pub fn counts(&self) -> Published {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { written, conflicts, failed, left_out, late } = &*self.counts;
        Published {
            written: read(written),
            conflicts: read(conflicts),
            failed: read(failed),
            left_out: read(left_out),
            late: read(late),
        }
    }
}

pub(crate) fn resource() -> ApiResource {
    crate::watch::resource_of(&DNS_NAME_RESOLVER)
}

fn apply(mut resolver: Resolver<'_>, (name, settings): (&str, Settings), outcome: &Outcome) -> bool {
    // As the API keeps times: in whole seconds.
    let now = jiff::Timestamp::now();
    let now = jiff::Timestamp::from_second(now.as_second()).unwrap_or(now);
    let lookup = Lookup { name, now, settings };
    match outcome {
        Outcome::Found(addresses) => resolver.found(lookup, addresses),
        Outcome::Failed(rcode) => resolver.failed(lookup, rcode),
        Outcome::Passed => resolver.prune(now, settings.grace),
    }
}

/// Changes the status of an object, as it is when it is written. Gives how often somebody else came first.
async fn update(
    api: &Api<DynamicObject>,
    key: &Key,
    change: impl Fn(Resolver<'_>) -> bool,
) -> Result<u32, kube::Error> {
    let mut tries = 0;
    loop {
        let done = try_update(api, key, &change).await;
        tries += 1;
        match done {
            Ok(()) => return Ok(tries - 1),
            // Nobody wants it any more.
            Err(kube::Error::Api(status)) if status.code == NOT_FOUND => return Ok(tries - 1),
            Err(kube::Error::Api(status)) if status.code == CONFLICT && tries < TRIES => {}
            Err(error) if tries >= TRIES => return Err(error),
            Err(_) => tokio::time::sleep(TRY_AGAIN * 2_u32.pow(tries)).await,
        }
    }
}

async fn try_update(
    api: &Api<DynamicObject>,
    key: &Key,
    change: impl Fn(Resolver<'_>) -> bool,
) -> Result<(), kube::Error> {
    let mut object = api.get(&key.name).await?;
    let pattern = object.data["spec"]["name"].as_str().unwrap_or_default().to_ascii_lowercase();
    let mut status: Status = serde_json::from_value(object.data["status"].take()).unwrap_or_default();
    if !change(Resolver { pattern: &pattern, status: &mut status }) {
        return Ok(());
    }
    object.data["status"] = serde_json::to_value(&status).unwrap_or_default();
    api.replace_status(&key.name, &PostParams::default(), &object).await.map(drop)
}
