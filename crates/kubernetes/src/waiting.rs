//! Threads that wait for a watch or a publisher. They wait by the system's clock,
//! so a simulation has no use for them: it asks `is_known`, `new_names` and
//! `is_finished` instead.

use crate::view::{ClusterView, Trouble};
use crate::watch::Watch;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a burst of changes is waited for, and how long at most.
const QUIET: Duration = Duration::from_millis(3);
const LONGEST_BURST: Duration = Duration::from_millis(25);

impl Watch {
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
        let is_old = |known: &mut ClusterView| {
            let has_none = known.changes == self.seen && known.new_names.is_empty();
            (has_none || !known.is_whole()) && !known.is_woken
        };
        let wait = self.shared.changed.wait_timeout_while(self.shared.lock(), patience, is_old);
        let (mut known, _) = wait.unwrap_or_else(PoisonError::into_inner);
        if is_old(&mut known) {
            return false;
        }
        let until = Instant::now() + LONGEST_BURST;
        while known.last_change.is_some_and(|last| self.environment.clock.now().since(last) < QUIET)
            && Instant::now() < until
            && !known.is_woken
        {
            drop(known);
            std::thread::sleep(QUIET);
            known = self.shared.lock();
        }
        known.is_woken = false;
        true
    }
}

/// How much is not written yet.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Waiting {
    /// Adds one, unless there are as many as may wait.
    pub(crate) fn add(&self, most: u64) -> bool {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = *count < most;
        *count += u64::from(has_room);
        has_room
    }

    pub(crate) fn remove(&self, done: u64) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) -= done;
        self.changed.notify_all();
    }

    pub(crate) fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Waits until nothing does. False if that takes longer than this.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(count, patience, |count| *count > 0);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}
