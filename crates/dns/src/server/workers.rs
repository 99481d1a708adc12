//! Threads that may wait, for what is judged elsewhere.

use super::lock;
use nix::sys::eventfd::EventFd;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Started as they are needed.
const MOST_THREADS: usize = 128;
/// Jobs that may wait for a thread.
const MOST_WAITING: usize = 1_024;

type Job = Box<dyn FnOnce() + Send>;

/// The pool. Its threads end when it is dropped and they have done what they do.
pub(super) struct Workers {
    shared: Arc<JobQueue>,
}

#[derive(Default)]
struct JobQueue {
    state: Mutex<JobState>,
    more: Condvar,
}

#[derive(Default)]
struct JobState {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    is_over: bool,
}

impl Workers {
    pub(super) fn new() -> Self {
        Self { shared: Arc::default() }
    }

    /// Has the job done, and then the server woken. False if there is too much to do already.
    pub(super) fn submit(&self, wake: Arc<EventFd>, job: impl FnOnce() + Send + 'static) -> bool {
        let mut state = lock(&self.shared.state);
        if state.jobs.len() >= MOST_WAITING {
            return false;
        }
        state.jobs.push_back(Box::new(move || {
            job();
            let _ = wake.write(1);
        }));
        if state.idle < state.jobs.len() && state.threads < MOST_THREADS {
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
        state.jobs.clear();
        self.shared.more.notify_all();
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Workers")
    }
}
