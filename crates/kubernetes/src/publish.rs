//! What was looked up goes into the status of the DNSNameResolvers it concerns
//! (S8.3), so that a name looked up on one node is open on all.
//!
//! Writers meet: each reads the object, changes its status by what it knows, and
//! writes it back if nobody else has meanwhile; otherwise once more. What one
//! writer learns of an object while it writes it goes into the next write, all
//! of it at once.

use crate::client::Connection;
use crate::watch::Shared;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use namewall_cluster::Key;
use namewall_cluster::api::dns_name_resolver::Status;
use namewall_cluster::kinds::DNS_NAME_RESOLVER;
use namewall_cluster::resolver::{Lookup, Resolver, Settings};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Objects that are written at the same time.
const AT_ONCE: usize = 16;
/// More that wait than this, and the API server is not asked for more: names are learned as before.
const MOST_WAITING: u64 = 10_000;
/// How soon it is tried again, how late at the latest, and for how long.
const TRY_AGAIN: Duration = Duration::from_millis(5);
const TRY_SLOWLY: Duration = Duration::from_secs(1);
const GIVE_UP: Duration = Duration::from_secs(30);
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
    queue: Arc<Queue>,
}

/// What is to be written.
#[derive(Debug)]
struct Queue {
    /// What was noted of each object that somebody writes now.
    noted: Mutex<HashMap<Key, Vec<Noted>>>,
    waiting: (Mutex<u64>, Condvar),
    room: Semaphore,
    counts: Counts,
}

/// A name, and what became of its lookup.
type Noted = (String, Outcome);

impl Publisher {
    pub(crate) fn new(connection: Connection, shared: Arc<Shared>, settings: Settings) -> Self {
        let queue = Arc::new(Queue {
            noted: Mutex::default(),
            waiting: Default::default(),
            room: Semaphore::new(AT_ONCE),
            counts: Counts::default(),
        });
        Self { connection, shared, settings, namespaces: Vec::new(), queue }
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
        let queue = &self.queue;
        let mut count = queue.waiting.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *count >= MOST_WAITING {
            queue.counts.left_out.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        *count += 1;
        drop(count);
        let mut noted = queue.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(more) = noted.get_mut(&key) {
            more.push((name, outcome));
            return true;
        }
        noted.insert(key.clone(), vec![(name, outcome)]);
        drop(noted);
        let api = Api::namespaced_with(self.connection.client.clone(), &key.namespace, &resource());
        self.connection.runtime.spawn(write_all(api, key, (queue.clone(), self.settings)));
        true
    }

    /// Waits until all that was noted is written, but no longer than this.
    pub fn finish(&self, patience: Duration) -> bool {
        let (count, changed) = &self.queue.waiting;
        let waits =
            changed
                .wait_timeout_while(count.lock().unwrap_or_else(PoisonError::into_inner), patience, |count| *count > 0);
        let is_done = !waits.unwrap_or_else(PoisonError::into_inner).1.timed_out();
        self.queue.counts.late.fetch_add(u64::from(!is_done), Ordering::Relaxed);
        is_done
    }

    pub fn counts(&self) -> Published {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { written, conflicts, failed, left_out, late } = &self.queue.counts;
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

/// Writes what was noted of an object, until nothing more is.
async fn write_all(api: Api<DynamicObject>, key: Key, (queue, settings): (Arc<Queue>, Settings)) {
    loop {
        let turn = queue.room.acquire().await;
        let batch = {
            let mut noted = queue.noted.lock().unwrap_or_else(PoisonError::into_inner);
            let batch = noted.get_mut(&key).map(std::mem::take).unwrap_or_default();
            if batch.is_empty() {
                noted.remove(&key);
                return;
            }
            batch
        };
        let change = |status: &mut Status, pattern: &str| {
            let apply =
                |(name, outcome): &Noted| apply(Resolver { pattern, status: &mut *status }, (name, settings), outcome);
            batch.iter().map(apply).filter(|changed| *changed).count() > 0
        };
        let written = update(&api, &key, change).await;
        drop(turn);
        let (count, counts) = (batch.len() as u64, &queue.counts);
        match written {
            Ok(conflicts) => {
                counts.written.fetch_add(count, Ordering::Relaxed);
                counts.conflicts.fetch_add(conflicts, Ordering::Relaxed);
            }
            Err(_) => _ = counts.failed.fetch_add(count, Ordering::Relaxed),
        }
        let (waiting, changed) = &queue.waiting;
        *waiting.lock().unwrap_or_else(PoisonError::into_inner) -= count;
        changed.notify_all();
    }
}

/// Changes the status of an object, as it is when it is written. Gives how often somebody else came first.
async fn update(
    api: &Api<DynamicObject>,
    key: &Key,
    mut change: impl FnMut(&mut Status, &str) -> bool,
) -> Result<u64, kube::Error> {
    let until = Instant::now() + GIVE_UP;
    let (mut conflicts, mut pause) = (0, TRY_AGAIN);
    loop {
        let error = match try_update(api, key, &mut change).await {
            Ok(()) => return Ok(conflicts),
            Err(error) => error,
        };
        match &error {
            // Nobody wants it any more.
            kube::Error::Api(status) if status.code == NOT_FOUND => return Ok(conflicts),
            kube::Error::Api(status) if status.code == CONFLICT => conflicts += 1,
            _ => {}
        }
        if Instant::now() > until {
            return Err(error);
        }
        tokio::time::sleep(pause + some_of(pause)).await;
        pause = (pause * 2).min(TRY_SLOWLY);
    }
}

async fn try_update(
    api: &Api<DynamicObject>,
    key: &Key,
    change: &mut impl FnMut(&mut Status, &str) -> bool,
) -> Result<(), kube::Error> {
    let mut object = api.get(&key.name).await?;
    let pattern = object.data["spec"]["name"].as_str().unwrap_or_default().to_ascii_lowercase();
    let mut status: Status = serde_json::from_value(object.data["status"].take()).unwrap_or_default();
    if !change(&mut status, &pattern) {
        return Ok(());
    }
    object.data["status"] = serde_json::to_value(&status).unwrap_or_default();
    api.replace_status(&key.name, &PostParams::default(), &object).await.map(drop)
}

/// A part of a pause that is another each time, so that writers who have met do not meet again at once.
fn some_of(pause: Duration) -> Duration {
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    pause.mul_f64(f64::from(nanos % 1_000) / 1_000.0)
}
