//! Writes the results of lookups into the status of the DNSNameResolvers that
//! they concern (S8.3), so that a name that is looked up on one node is open on
//! all.
//!
//! Several nodes write the same objects. Each takes the object as it last saw it,
//! changes its status, and writes it back unless another node has written it
//! meanwhile; then it reads the object and tries again. Results that come during
//! a write go into the next one together.
//!
//! While the API server is away results wait, and are written with the TTL that is
//! left, or not at all. A name that the API server refuses does not block others.

mod blocked;
mod noted;
mod parts;
mod shares;
mod slow;
#[cfg(test)]
mod tests;
mod writer;

pub use noted::Outcome;

use crate::environment::Environment;
use crate::waiting::Waiting;
use crate::watch::Shared;
use blocked::BlockedObjects;
use namewall_cluster::Key;
use namewall_cluster::kinds::dns_name_resolver::Status;
use namewall_cluster::resolver::{DeniedNames, Lookup, Resolver, Settings, is_storable};
use noted::Noted;
use shares::{NewName, Shares};
use slow::Slow;
use std::cell::OnceCell;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
    /// Not even tried: too many waited, or the client has its share of names in objects.
    pub left_out: u64,
    /// Answers that went out before it was written.
    pub late: u64,
    /// Names that no object can hold.
    pub refused: u64,
    /// Addresses that a full object gave up (S8.6).
    pub evicted: u64,
    /// Results that are not written yet.
    pub waiting: u64,
}

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    conflicts: AtomicU64,
    failed: AtomicU64,
    left_out: AtomicU64,
    late: AtomicU64,
    refused: AtomicU64,
    evicted: AtomicU64,
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
    trouble: LastTrouble,
    blocked: BlockedObjects,
    slow: Slow,
    shares: Mutex<Shares>,
}

/// The last name that could not be written, and why.
#[derive(Debug, Default)]
struct LastTrouble(Mutex<Option<String>>);

impl LastTrouble {
    fn put(&self, what: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
    }
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

    /// Notes the result of a lookup of a name, which is lower case and has its last dot. Returns whether an object
    /// is being written because of it.
    pub fn note(&self, name: &str, outcome: &Outcome) -> bool {
        self.note_for(None, name, outcome)
    }

    /// The same of a name that a client has asked for. It has a share of the names of wildcards (S6.5).
    pub fn note_for(&self, client: Option<IpAddr>, name: &str, outcome: &Outcome) -> bool {
        if self.is_finished() {
            // All that came before is written: the API server has caught up.
            self.progress.slow.end();
        }
        let noted = self.noted(outcome.clone());
        let lookup = Lookup { name, now: self.environment.wall(), settings: self.settings };
        let concerned: Vec<Key> = {
            let known = self.shared.lock();
            let would_change = |pattern: &str, status: &Status| {
                let mut status = concerned_part(pattern, status, name);
                noted.apply(lookup, noted.at, &mut Resolver::new(pattern, &mut status))
            };
            let is_ours = |key: &Key| {
                self.namespaces.is_empty() || self.namespaces.iter().any(|namespace| **namespace == *key.namespace)
            };
            let objects = known.names.matching(name).filter(|one| is_ours(&one.key));
            let changed = parts::concerned(objects, name, |one| would_change(&one.pattern, &one.status));
            let is_known = || known.names.matching(name).any(|one| one.status.has(name));
            let is_collected = changed.iter().all(|one| one.pattern != name);
            if let Some(client) = client.filter(|_| !changed.is_empty() && is_collected && !is_known()) {
                // Made only if a client has its share: then many names are looked for.
                let listed = OnceCell::new();
                let is_listed = |name: &str| listed.get_or_init(|| known.names.listed()).contains(name);
                let mut shares = self.progress.shares.lock().unwrap_or_else(PoisonError::into_inner);
                let new = NewName { client, name, now: self.environment.clock.now() };
                if !shares.admit(new, is_listed) {
                    self.progress.counts.left_out.fetch_add(1, Ordering::Relaxed);
                    return false;
                }
            }
            changed.into_iter().map(|one| one.key.clone()).collect()
        };
        if !concerned.is_empty() && !is_storable(name) {
            self.progress.counts.refused.fetch_add(1, Ordering::Relaxed);
            self.progress.trouble.put(format!("{name} cannot be shared: the schema of DNSNameResolvers refuses it"));
            return false;
        }
        concerned.into_iter().filter(|key| self.write(key, name, &noted)).count() > 0
    }

    /// Takes out of an object what is over, but for names that a rule denies.
    pub fn prune(&self, key: &Key, denied: DeniedNames) {
        self.write(key, "", &self.noted(Outcome::Passed(denied)));
    }

    fn noted(&self, outcome: Outcome) -> Noted {
        Noted { outcome, at: self.environment.clock.now() }
    }

    fn write(&self, key: &Key, name: &str, new: &Noted) -> bool {
        let Progress { queue, waiting, counts, .. } = &*self.progress;
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

    /// The same for an answer that a client waits for (S8.5). After a timeout answers do not wait until the API
    /// server has caught up.
    pub fn hold(&self, hold: Duration) -> bool {
        let clock = &self.environment.clock;
        let patience = self.progress.slow.patience(hold, clock.now());
        let is_done = self.finish(patience);
        match is_done {
            true => self.progress.slow.end(),
            false => self.progress.slow.begin(clock.now()),
        }
        is_done
    }

    /// The last name that could not be written, and why.
    pub fn trouble(&self) -> Option<String> {
        self.progress.trouble.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What has been in the way of writes for some seconds, and still is: they are tried again.
    pub fn blocked(&self) -> Option<String> {
        self.progress.blocked.lasting(self.environment.clock.now())
    }

    pub fn counts(&self) -> Published {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { written, conflicts, failed, left_out, late, refused, evicted } = &self.progress.counts;
        Published {
            written: read(written),
            conflicts: read(conflicts),
            failed: read(failed),
            left_out: read(left_out),
            late: read(late),
            refused: read(refused),
            evicted: read(evicted),
            waiting: self.progress.waiting.count(),
        }
    }
}

/// The entries that a lookup of a name can change: its own, and the wildcard's, which may say the same. A lookup of the
/// wildcard itself can change all. A client waits for this, so an object of a thousand names is not copied for each.
fn concerned_part(pattern: &str, status: &Status, name: &str) -> Status {
    if name == pattern {
        return status.clone();
    }
    let concerned = status.resolved_names.iter().filter(|item| item.dns_name == name || item.dns_name == pattern);
    Status { resolved_names: concerned.cloned().collect() }
}
