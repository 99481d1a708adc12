//! The writers of objects. Each takes the next object that has something to be
//! written, writes all of it at once, and takes the next.

use super::Progress;
use super::noted::{Batch, Noted, Outcome};
use crate::api::{ApiError, CONFLICT, NOT_FOUND, Resource, Verb};
use crate::clocks::{Came, Seen};
use crate::environment::{Environment, Remote};
use crate::names::Held;
use crate::watch::Shared;
use namewall_cluster::Key;
use namewall_cluster::kinds::DNS_NAME_RESOLVER;
use namewall_cluster::kinds::dns_name_resolver::Status;
use namewall_cluster::resolver::{Lookup, Resolver, Settings};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Objects that are written at the same time.
const AT_ONCE: usize = 16;
/// How soon it is tried again, and how late at the latest.
const TRY_AGAIN: Duration = Duration::from_millis(5);
const TRY_SLOWLY: Duration = Duration::from_secs(1);

/// The objects that have something to be written.
#[derive(Debug, Default)]
pub(super) struct Queue(Mutex<Queued>);

#[derive(Debug, Default)]
pub(super) struct Queued {
    /// Those that wait for a writer, and those that have one.
    objects: HashMap<Key, Object>,
    /// Those that wait, in their order.
    order: VecDeque<Key>,
    writers: usize,
}

#[derive(Debug, Default)]
struct Object {
    batch: Batch,
    /// As it was last written, which may not have been heard of yet.
    held: Option<Held>,
}

/// What became of a write.
struct Written {
    /// How often somebody else came first.
    conflicts: u64,
    /// Why it had to be tried again, other than for a conflict.
    late: Option<ApiError>,
}

/// What a writer does next.
struct Turn {
    key: Key,
    object: Object,
}

impl Queue {
    pub(super) fn lock(&self) -> MutexGuard<'_, Queued> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queued {
    /// Puts it in place of one that waits and says no more. False if there is none.
    pub(super) fn replace(&mut self, key: &Key, name: &str, new: &Noted) -> bool {
        let batch = self.objects.get_mut(key).map(|object| &mut object.batch);
        let waits = batch.and_then(|batch| batch.get_mut(name)).and_then(|all| all.last_mut());
        let Some(last) = waits.filter(|last| new.replaces(last)) else { return false };
        *last = new.clone();
        true
    }

    /// Adds to what is to be written of an object. Returns whether a writer must be started for it.
    pub(super) fn push(&mut self, key: &Key, name: &str, new: &Noted) -> bool {
        let is_new = !self.objects.contains_key(key);
        let object = self.objects.entry(key.clone()).or_default();
        object.batch.entry(name.to_owned()).or_default().push(new.clone());
        if is_new {
            self.order.push_back(key.clone());
        }
        let needs_writer = is_new && self.writers < AT_ONCE;
        self.writers += usize::from(needs_writer);
        needs_writer
    }

    /// None: the writer ends.
    fn next(&mut self) -> Option<Turn> {
        while let Some(key) = self.order.pop_front() {
            match self.objects.get_mut(&key) {
                Some(object) if !object.batch.is_empty() => {
                    let object = std::mem::take(object);
                    return Some(Turn { key, object });
                }
                // All of it is written.
                _ => _ = self.objects.remove(&key),
            }
        }
        self.writers -= 1;
        None
    }

    /// An object was written. More may have been noted of it meanwhile, and it waits behind the others.
    fn end(&mut self, key: Key, held: Option<Held>) {
        if let Some(object) = self.objects.get_mut(&key) {
            object.held = held;
            self.order.push_back(key);
        }
    }
}

pub(super) struct Writer {
    pub(super) environment: Environment,
    pub(super) shared: Arc<Shared>,
    pub(super) settings: Settings,
    pub(super) progress: Arc<Progress>,
}

impl Writer {
    /// Writes one object after the other, until there is none.
    pub(super) async fn write_all(self) {
        loop {
            let next = self.progress.queue.lock().next();
            let Some(Turn { key, object: Object { batch, held } }) = next else { return };
            let mut held = held.or_else(|| self.shared.lock().names.held(&key));
            let count = noted_count(&batch);
            match self.update(&key, &batch, &mut held).await {
                // One name may be what is refused: each is written for itself, so that it does not block the others.
                Err(error) if error.is_permanent() && batch.len() > 1 => {
                    for (name, noted) in batch {
                        let single = Batch::from([(name, noted)]);
                        let written = self.update(&key, &single, &mut held).await;
                        self.count(&key, &single, written);
                    }
                }
                written => self.count(&key, &batch, written),
            }
            self.progress.queue.lock().end(key, held);
            self.progress.waiting.remove(count);
        }
    }

    fn count(&self, key: &Key, batch: &Batch, done: Result<Written, ApiError>) {
        let (count, counts) = (noted_count(batch), &self.progress.counts);
        let blocked = &self.progress.blocked;
        match &done {
            // What is over is not written any more, which says nothing about the object.
            Ok(Written { late: Some(_), .. }) if self.over(batch) > 0 => {}
            Ok(_) => blocked.remove(key),
            // It may be the name that is refused, and not the object.
            Err(error) if error.is_permanent() && batch.len() == 1 => {}
            Err(error) => blocked.put(key, error.to_string(), self.environment.clock.now()),
        }
        let (failed, error) = match done {
            Ok(Written { conflicts, late }) => {
                counts.conflicts.fetch_add(conflicts, Ordering::Relaxed);
                late.map_or((0, None), |error| (self.over(batch), Some(error)))
            }
            Err(error) => (count, Some(error)),
        };
        counts.written.fetch_add(count - failed, Ordering::Relaxed);
        counts.failed.fetch_add(failed, Ordering::Relaxed);
        if let Some(error) = error.filter(|_| failed > 0) {
            let name = batch.keys().next().map_or("", String::as_str);
            self.progress.trouble.put(format!("DNSNameResolver {}, {name}: {error}", key.name));
        }
    }

    /// How many of the addresses that were found are over: nobody has heard of them.
    fn over(&self, batch: &Batch) -> u64 {
        let now = self.environment.clock.now();
        let is_over = |noted: &&Noted| matches!(noted.outcome, Outcome::Found(_)) && noted.until(self.settings) <= now;
        batch.values().flatten().filter(is_over).count() as u64
    }

    /// Changes the status of the object, as it is when it is written.
    async fn update(&self, key: &Key, batch: &Batch, held: &mut Option<Held>) -> Result<Written, ApiError> {
        let Environment { clock, random, tasks, .. } = &self.environment;
        let until = batch.values().flatten().map(|noted| noted.until(self.settings)).max();
        let (mut conflicts, mut pause, mut late) = (0, TRY_AGAIN, None);
        loop {
            let error = match self.try_update(key, batch, held.take()).await {
                Ok(next) => {
                    *held = Some(next);
                    return Ok(Written { conflicts, late });
                }
                Err(error) => error,
            };
            match error.code() {
                // The object was deleted: no policy has the name any more.
                Some(NOT_FOUND) => return Ok(Written { conflicts, late: None }),
                Some(CONFLICT) => conflicts += 1,
                _ if error.is_permanent() => return Err(error),
                _ => {
                    self.progress.blocked.put(key, error.to_string(), clock.now());
                    late = Some(error.clone());
                }
            }
            if until.is_none_or(|until| clock.now() > until) {
                return Err(error);
            }
            tasks.sleep(pause + random.part_of(pause)).await;
            pause = (pause * 2).min(TRY_SLOWLY);
        }
    }

    /// Gives the object as it is then.
    async fn try_update(&self, key: &Key, batch: &Batch, held: Option<Held>) -> Result<Held, ApiError> {
        let remote = self.environment.at(DNS_NAME_RESOLVER.preferred(), key);
        let held = match held {
            Some(held) => held,
            None => self.hold(key, remote.get().await?),
        };
        let Some(mut status) = self.changed(key, batch, &held) else { return Ok(held) };
        held.clocks.restore(&mut status);
        let written = remote.ask(Verb::ReplaceStatus(replacement(&remote, &held, &status))).await?;
        Ok(self.hold(key, written))
    }

    /// The status with all that was noted. None if it says so already.
    fn changed(&self, key: &Key, batch: &Batch, held: &Held) -> Option<Status> {
        let mut status = held.status.clone();
        let (now, wall) = (self.environment.clock.now(), self.environment.wall());
        let parts = self.shared.lock().names.part_count(key);
        let settings = Settings { bounds: self.settings.bounds.of_part(parts, &status), ..self.settings };
        let mut has_changed = false;
        // What has expired goes last: a failure may give it more time.
        let (passed, looked_up): (Vec<_>, Vec<_>) = batch.iter().partition(|(name, _)| name.is_empty());
        let in_order = looked_up.into_iter().chain(passed);
        for (name, noted) in in_order.flat_map(|(name, all)| all.iter().map(move |noted| (name, noted))) {
            let lookup = Lookup { name, now: wall, settings };
            let mut resolver = Resolver::new(&held.pattern, &mut status);
            has_changed |= noted.apply(lookup, now, &mut resolver);
            self.progress.counts.evicted.fetch_add(resolver.evicted() as u64, Ordering::Relaxed);
        }
        has_changed.then_some(status)
    }

    fn hold(&self, key: &Key, mut object: Value) -> Held {
        let pattern = object["spec"]["name"].as_str().unwrap_or_default().to_ascii_lowercase();
        let version = object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let mut status: Status = serde_json::from_value(object["status"].take()).unwrap_or_default();
        let seen = Seen { came: Came::Now, at: self.environment.wall() };
        let clocks = self.shared.lock().names.translate(key, &mut status, seen);
        Held { version, pattern, status, clocks }
    }
}

fn noted_count(batch: &Batch) -> u64 {
    batch.values().map(Vec::len).sum::<usize>() as u64
}

/// Only this version is replaced, and of it only the status.
fn replacement(remote: &Remote<'_>, held: &Held, status: &Status) -> Value {
    let Remote { resource: Resource { kind, .. }, key, .. } = remote;
    json!({
        "apiVersion": remote.resource.api_version(),
        "kind": kind,
        "metadata": {"name": key.name, "namespace": key.namespace, "resourceVersion": held.version},
        "spec": {"name": held.pattern},
        "status": status,
    })
}
