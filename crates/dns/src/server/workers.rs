//! Threads that may wait, for what is judged elsewhere.

use super::lock;
use nix::sys::eventfd::EventFd;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Threads of the server's own pool, started as they are needed.
const MOST_THREADS: usize = 128;
/// Jobs that may wait for a thread.
const MOST_WAITING: usize = 1_024;

type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads with a queue of its own. A chain has one for each engine it waits for, so that an engine that
/// hangs takes no thread from another. Its threads end when it is dropped and they have done what they do.
pub struct Workers {
    shared: Arc<JobQueue>,
}

struct JobQueue {
    most_threads: usize,
    most_waiting: usize,
    state: Mutex<JobState>,
    more: Condvar,
}

#[derive(Default)]
struct JobState {
    jobs: VecDeque<Job>,
    /// Places in the queue that are promised to somebody.
    reserved: usize,
    threads: usize,
    idle: usize,
    is_over: bool,
}

/// A place in the queue of a pool. It is given back when it is dropped without a job.
pub struct WorkerSlot {
    shared: Arc<JobQueue>,
}

impl Default for Workers {
    fn default() -> Self {
        Self::new()
    }
}

impl Workers {
    /// A pool as large as the server's own.
    pub fn new() -> Self {
        Self::with_threads(MOST_THREADS)
    }

    /// A pool of at most so many threads.
    pub fn with_threads(most_threads: usize) -> Self {
        let shared = JobQueue {
            most_threads: most_threads.max(1),
            most_waiting: MOST_WAITING,
            state: Mutex::default(),
            more: Condvar::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// A place in the queue, unless it is full. It never waits.
    pub fn reserve(&self) -> Option<WorkerSlot> {
        let mut state = lock(&self.shared.state);
        let is_free = state.jobs.len() + state.reserved < self.shared.most_waiting;
        is_free.then(|| {
            state.reserved += 1;
            WorkerSlot { shared: self.shared.clone() }
        })
    }

    /// Has the job done, and then the server woken. False if there is too much to do already.
    pub(super) fn submit(&self, wake: Arc<EventFd>, job: impl FnOnce() + Send + 'static) -> bool {
        self.reserve().is_some_and(|slot| slot.submit(wake, job))
    }
}

impl WorkerSlot {
    /// Has the job done, and then the server woken. False if no thread can be started.
    pub(super) fn submit(self, wake: Arc<EventFd>, job: impl FnOnce() + Send + 'static) -> bool {
        let mut state = lock(&self.shared.state);
        state.jobs.push_back(Box::new(move || {
            job();
            let _ = wake.write(1);
        }));
        if state.idle < state.jobs.len() && state.threads < self.shared.most_threads {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("judge".to_owned()).spawn(move || shared.work());
            state.threads += usize::from(thread.is_ok());
            if state.threads == 0 {
                state.jobs.clear();
                return false;
            }
        }
        self.shared.more.notify_one();
        true
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        lock(&self.shared.state).reserved -= 1;
    }
}

impl JobQueue {
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = lock(&self.state);
            } else if state.is_over {
                return;
            } else {
                state.idle += 1;
                state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.is_over = true;
        // Jobs may own what owns this pool: they are dropped outside of the lock.
        let jobs = std::mem::take(&mut state.jobs);
        self.shared.more.notify_all();
        drop(state);
        drop(jobs);
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Workers")
    }
}

impl fmt::Debug for WorkerSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerSlot")
    }
}
