//! What was looked up goes into the status of the DNSNameResolvers it concerns
//! (S8.3), so that a name looked up on one node is open on all.
//!
//! Writers meet: each takes the object as it was last seen, changes its status by
//! what it knows, and writes it back if nobody else has meanwhile; otherwise it
//! asks for the object and tries once more. What one
//! writer learns of an object while it writes it goes into the next write, all
//! of it at once.
//!
//! While the server is away it waits, and what was found grows old meanwhile: it
//! is written with the time it has left, or not at all.

use crate::answers::{CONFLICT, NOT_FOUND};
use crate::client::Connection;
use crate::clocks::{Came, now};
use crate::names::Held;
use crate::watch::Shared;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use namewall_cluster::Key;
use namewall_cluster::kinds::DNS_NAME_RESOLVER;
use namewall_cluster::kinds::dns_name_resolver::Status;
use namewall_cluster::resolver::{Lookup, Resolver, Settings};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::time::sleep;

/// Objects that are written at the same time.
const AT_ONCE: usize = 16;
/// More that wait than this, and the API server is not asked for more: names are learned as before.
const MOST_WAITING: u64 = 10_000;
/// How soon it is tried again, how late at the latest, and for how long: what was found for as long as it is good.
const TRY_AGAIN: Duration = Duration::from_millis(5);
const TRY_SLOWLY: Duration = Duration::from_secs(1);
const GIVE_UP: Duration = Duration::from_secs(30);

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
    noted: Mutex<HashMap<Key, Batch>>,
    waiting: (Mutex<u64>, Condvar),
    room: Semaphore,
    counts: Counts,
}

/// What became of the lookups of names, in their order.
type Batch = BTreeMap<String, Vec<Noted>>;

#[derive(Clone, Debug)]
struct Noted {
    outcome: Outcome,
    at: Instant,
}

impl Noted {
    fn new(outcome: Outcome) -> Self {
        Self { outcome, at: Instant::now() }
    }

    /// Whether it says all that another said, later.
    fn replaces(&self, other: &Self) -> bool {
        let same = |ours: &[(IpAddr, u32)], theirs: &[(IpAddr, u32)]| {
            ours.len() == theirs.len() && theirs.iter().all(|(ip, _)| ours.iter().any(|(one, _)| one == ip))
        };
        match (&self.outcome, &other.outcome) {
            (Outcome::Found(ours), Outcome::Found(theirs)) => same(ours, theirs),
            (Outcome::Passed, Outcome::Passed) => true,
            _ => false,
        }
    }

    /// How much longer it is worth to be told.
    fn until(&self, settings: Settings) -> Instant {
        let longest = match &self.outcome {
            Outcome::Found(addresses) => addresses.iter().map(|(_, ttl)| lasts(*ttl, settings)).max(),
            _ => None,
        };
        self.at + longest.unwrap_or(GIVE_UP)
    }

    fn apply(&self, name: &str, settings: Settings, mut resolver: Resolver<'_>) -> bool {
        let lookup = Lookup { name, now: now(), settings };
        match &self.outcome {
            Outcome::Found(addresses) => {
                let age = Duration::from_secs(self.at.elapsed().as_secs());
                let left = |ttl: u32| lasts(ttl, settings).checked_sub(age).filter(|left| !left.is_zero());
                let seconds = |left: Duration| u32::try_from(left.as_secs()).unwrap_or(u32::MAX);
                let good = addresses.iter().filter_map(|(ip, ttl)| Some((*ip, seconds(left(*ttl)?))));
                resolver.found(lookup, &good.collect::<Vec<_>>())
            }
            Outcome::Failed(rcode) => resolver.failed(lookup, rcode),
            Outcome::Passed => resolver.prune(lookup.now, settings.grace),
        }
    }
}

fn lasts(ttl: u32, settings: Settings) -> Duration {
    let minimum = u64::from(settings.minimum_ttl.unsigned_abs());
    Duration::from_secs(if ttl == 0 { minimum } else { ttl.into() })
}

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
        let noted = Noted::new(outcome.clone());
        let concerned: Vec<Key> = {
            let known = self.shared.lock();
            let would_change = |pattern: &str, status: &Status| {
                let mut status = status.clone();
                noted.apply(name, self.settings, Resolver { pattern, status: &mut status })
            };
            let is_ours = |key: &Key| {
                self.namespaces.is_empty() || self.namespaces.iter().any(|namespace| **namespace == *key.namespace)
            };
            let objects = known.names.matching(name).filter(|one| is_ours(&one.key));
            objects.filter(|one| would_change(&one.pattern, &one.status)).map(|one| one.key.clone()).collect()
        };
        concerned.into_iter().filter(|key| self.write(key, name, &noted)).count() > 0
    }

    /// Takes out of an object what is over.
    pub fn prune(&self, key: &Key) {
        self.write(key, "", &Noted::new(Outcome::Passed));
    }

    fn write(&self, key: &Key, name: &str, new: &Noted) -> bool {
        let queue = &self.queue;
        let mut noted = queue.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = noted.get_mut(key).and_then(|batch| batch.get_mut(name)).and_then(|all| all.last_mut());
        if let Some(last) = waits.filter(|last| new.replaces(last)) {
            *last = new.clone();
            return true;
        }
        let mut count = queue.waiting.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *count >= MOST_WAITING {
            queue.counts.left_out.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        *count += 1;
        drop(count);
        let is_written = noted.contains_key(key);
        noted.entry(key.clone()).or_default().entry(name.to_owned()).or_default().push(new.clone());
        drop(noted);
        if !is_written {
            let api = Api::namespaced_with(self.connection.client.clone(), &key.namespace, &resource());
            let writer = Writer { api, key: key.clone(), shared: self.shared.clone(), settings: self.settings };
            self.connection.runtime.spawn(writer.write_all(queue.clone()));
        }
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
    crate::follow::resource_of(DNS_NAME_RESOLVER.preferred())
}

/// Who writes one object.
struct Writer {
    api: Api<DynamicObject>,
    key: Key,
    shared: Arc<Shared>,
    settings: Settings,
}

impl Writer {
    /// Writes what was noted of the object, until nothing more is.
    async fn write_all(self, queue: Arc<Queue>) {
        // As it was last written, which may not have been heard of yet.
        let mut held = None;
        loop {
            let turn = queue.room.acquire().await;
            let batch = {
                let mut noted = queue.noted.lock().unwrap_or_else(PoisonError::into_inner);
                let batch = noted.get_mut(&self.key).map(std::mem::take).unwrap_or_default();
                if batch.is_empty() {
                    noted.remove(&self.key);
                    return;
                }
                batch
            };
            held = held.or_else(|| self.shared.lock().names.held(&self.key));
            let written = self.update(&batch, &mut held).await;
            drop(turn);
            let (count, counts) = (batch.values().map(Vec::len).sum::<usize>() as u64, &queue.counts);
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

    /// Changes the status of the object, as it is when it is written. Gives how often somebody else came first.
    async fn update(&self, batch: &Batch, held: &mut Option<Held>) -> Result<u64, kube::Error> {
        let until = batch.values().flatten().map(|noted| noted.until(self.settings)).max();
        let (mut conflicts, mut pause) = (0, TRY_AGAIN);
        loop {
            let error = match self.try_update(batch, held.take()).await {
                Ok(next) => {
                    *held = Some(next);
                    return Ok(conflicts);
                }
                Err(error) => error,
            };
            match &error {
                // Nobody wants it any more.
                kube::Error::Api(status) if status.code == NOT_FOUND => return Ok(conflicts),
                kube::Error::Api(status) if status.code == CONFLICT => conflicts += 1,
                _ => {}
            }
            if until.is_none_or(|until| Instant::now() > until) {
                return Err(error);
            }
            sleep(pause + some_of(pause)).await;
            pause = (pause * 2).min(TRY_SLOWLY);
        }
    }

    /// Gives the object as it is then.
    async fn try_update(&self, batch: &Batch, held: Option<Held>) -> Result<Held, kube::Error> {
        let held = match held {
            Some(held) => held,
            None => self.hold(self.api.get(&self.key.name).await?),
        };
        let mut status = held.status.clone();
        let mut has_changed = false;
        for (name, noted) in batch.iter().flat_map(|(name, all)| all.iter().map(move |noted| (name, noted))) {
            let resolver = Resolver { pattern: &held.pattern, status: &mut status };
            has_changed |= noted.apply(name, self.settings, resolver);
        }
        if !has_changed {
            return Ok(held);
        }
        held.clocks.restore(&mut status);
        let mut object = DynamicObject::new(&self.key.name, &resource()).within(&self.key.namespace);
        // Only this version is replaced, and of it only the status.
        object.metadata.resource_version = held.version;
        object.data = json!({"spec": {"name": held.pattern}, "status": status});
        let written = self.api.replace_status(&self.key.name, &PostParams::default(), &object).await?;
        Ok(self.hold(written))
    }

    fn hold(&self, mut object: DynamicObject) -> Held {
        let pattern = object.data["spec"]["name"].as_str().unwrap_or_default().to_ascii_lowercase();
        let mut status: Status = serde_json::from_value(object.data["status"].take()).unwrap_or_default();
        let clocks = self.shared.lock().names.translate(&self.key, &mut status, Came::Now);
        Held { version: object.metadata.resource_version, pattern, status, clocks }
    }
}

/// A part of a pause that is another each time, so that writers who have met do not meet again at once.
pub(crate) fn some_of(pause: Duration) -> Duration {
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    pause.mul_f64(f64::from(nanos % 1_000) / 1_000.0)
}
