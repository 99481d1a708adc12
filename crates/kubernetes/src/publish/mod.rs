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

mod noted;
#[cfg(test)]
mod tests;
mod writer;

pub use noted::Outcome;

use crate::environment::Environment;
use crate::waiting::Waiting;
use crate::watch::Shared;
use namewall_cluster::Key;
use namewall_cluster::kinds::dns_name_resolver::Status;
use namewall_cluster::resolver::{Lookup, Resolver, Settings};
use noted::Noted;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use writer::{Queue, Writer};

/// More that wait than this, and the API server is not asked for more: names are learned as before.
const MOST_WAITING: u64 = 10_000;

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
    environment: Environment,
    shared: Arc<Shared>,
    settings: Settings,
    /// Whose objects are written; all, if there are none.
    namespaces: Vec<String>,
    progress: Arc<Progress>,
}

/// What is to be written, and what came of it.
#[derive(Debug, Default)]
struct Progress {
    queue: Queue,
    waiting: Waiting,
    counts: Counts,
}

impl Publisher {
    pub(crate) fn new(environment: Environment, shared: Arc<Shared>, settings: Settings) -> Self {
        Self { environment, shared, settings, namespaces: Vec::new(), progress: Arc::default() }
    }

    /// Only objects of these namespaces.
    pub fn within(mut self, namespaces: Vec<String>) -> Self {
        self.namespaces = namespaces;
        self
    }

    /// Notes what became of a lookup of a name, which is lower case and has its last dot; whether any object
    /// says something else, and is being written.
    pub fn note(&self, name: &str, outcome: &Outcome) -> bool {
        let noted = self.noted(outcome.clone());
        let lookup = Lookup { name, now: self.environment.wall(), settings: self.settings };
        let concerned: Vec<Key> = {
            let known = self.shared.lock();
            let would_change = |pattern: &str, status: &Status| {
                let mut status = status.clone();
                noted.apply(lookup, noted.at, Resolver { pattern, status: &mut status })
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
        self.write(key, "", &self.noted(Outcome::Passed));
    }

    fn noted(&self, outcome: Outcome) -> Noted {
        Noted { outcome, at: self.environment.clock.now() }
    }

    fn write(&self, key: &Key, name: &str, new: &Noted) -> bool {
        let Progress { queue, waiting, counts } = &*self.progress;
        let mut queued = queue.lock();
        if queued.replace(key, name, new) {
            return true;
        }
        if !waiting.add(MOST_WAITING) {
            counts.left_out.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let needs_writer = queued.push(key, name, new);
        drop(queued);
        if needs_writer {
            let writer = Writer {
                environment: self.environment.for_task(),
                shared: self.shared.clone(),
                settings: self.settings,
                progress: self.progress.clone(),
            };
            self.environment.tasks.spawn(Box::pin(writer.write_all()));
        }
        true
    }

    /// Whether all that was noted is written.
    pub fn is_finished(&self) -> bool {
        self.progress.waiting.is_empty()
    }

    /// Waits until all that was noted is written, but no longer than this.
    pub fn finish(&self, patience: Duration) -> bool {
        let is_done = self.progress.waiting.wait(patience);
        self.progress.counts.late.fetch_add(u64::from(!is_done), Ordering::Relaxed);
        is_done
    }

    pub fn counts(&self) -> Published {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { written, conflicts, failed, left_out, late } = &self.progress.counts;
        Published {
            written: read(written),
            conflicts: read(conflicts),
            failed: read(failed),
            left_out: read(left_out),
            late: read(late),
        }
    }
}
