//! Threads that may wait, for what is judged elsewhere.
//!
//! Clients take turns, so that one with many jobs delays no other by more than a
//! job for each thread. A client may have as many jobs as there are places left
//! for others: one client never has more than half of the queue, two never more
//! than two thirds, and there is always room for one more client.

use super::lock;
use nix::sys::eventfd::EventFd;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Threads of the server's own pool, started as they are needed.
const MOST_THREADS: usize = 128;
/// Jobs that may wait for a thread.
const MOST_WAITING: usize = 1_024;

type Job = Box<dyn FnOnce() + Send>;

/// Whom a job is for; none is for nobody in particular.
type Client = Option<IpAddr>;

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
    /// The jobs that wait, by client.
    jobs: FxHashMap<Client, VecDeque<Job>>,
    /// The clients whose jobs wait, as their turns come.
    turns: VecDeque<Client>,
    /// How many jobs wait.
    waiting: usize,
    /// Places in the queue that are promised to somebody.
    reserved: usize,
    /// What each client has reserved, and the jobs that wait or are being done for it.
    held: FxHashMap<Client, usize>,
    threads: usize,
    idle: usize,
    is_over: bool,
}

/// A place in the queue of a pool. It is given back when it is dropped without a job.
pub struct WorkerSlot {
    shared: Arc<JobQueue>,
    client: Client,
    /// Whether the job gives the client its place back.
    is_used: bool,
}

impl JobState {
    fn has_room_for(&self, client: Client, most: usize) -> bool {
        let left = most.saturating_sub(self.waiting + self.reserved);
        self.held.get(&client).copied().unwrap_or(0) < left
    }

    fn release(&mut self, client: Client) {
        if let Some(held) = self.held.get_mut(&client) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&client);
            }
        }
    }

    fn put(&mut self, client: Client, job: Job) {
        let jobs = self.jobs.entry(client).or_default();
        if jobs.is_empty() {
            self.turns.push_back(client);
        }
        jobs.push_back(job);
        self.waiting += 1;
    }

    /// The next job of the client whose turn it is.
    fn next(&mut self) -> Option<(Client, Job)> {
        let client = self.turns.pop_front()?;
        let jobs = self.jobs.get_mut(&client)?;
        let job = jobs.pop_front()?;
        match jobs.is_empty() {
            true => drop(self.jobs.remove(&client)),
            false => self.turns.push_back(client),
        }
        self.waiting -= 1;
        Some((client, job))
    }
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

    /// A place in the queue, unless the client has its share already. It never waits.
    pub fn reserve(&self, client: Option<IpAddr>) -> Option<WorkerSlot> {
        let mut state = lock(&self.shared.state);
        let is_free = state.has_room_for(client, self.shared.most_waiting);
        is_free.then(|| {
            state.reserved += 1;
            *state.held.entry(client).or_default() += 1;
            WorkerSlot { shared: self.shared.clone(), client, is_used: false }
        })
    }
}

impl WorkerSlot {
    /// Has the job done, and then the server woken. False if no thread can be started.
    pub(super) fn submit(mut self, wake: Arc<EventFd>, job: impl FnOnce() + Send + 'static) -> bool {
        let shared = self.shared.clone();
        let mut state = lock(&shared.state);
        let job = move || {
            job();
            let _ = wake.write(1);
        };
        state.put(self.client, Box::new(job));
        self.is_used = true;
        if state.idle < state.waiting && state.threads < self.shared.most_threads {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("judge".to_owned()).spawn(move || shared.work());
            state.threads += usize::from(thread.is_ok());
            if state.threads == 0 {
                while let Some((client, _)) = state.next() {
                    state.release(client);
                }
                drop(state);
                return false;
            }
        }
        // The slot is given back by its own lock.
        drop(state);
        shared.more.notify_one();
        true
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.reserved -= 1;
        if !self.is_used {
            state.release(self.client);
        }
    }
}

impl JobQueue {
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some((client, job)) = state.next() {
                drop(state);
                job();
                state = lock(&self.state);
                state.release(client);
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
        (state.turns, state.waiting) = (VecDeque::new(), 0);
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

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::eventfd::EfdFlags;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    fn client(number: u8) -> Client {
        Some([10, 0, 0, number].into())
    }

    /// Jobs that wait at a gate, and tell whose they are when it opens.
    struct Gate {
        workers: Workers,
        wake: Arc<EventFd>,
        gate: Arc<Mutex<()>>,
        done: Sender<Client>,
    }

    impl Gate {
        fn new(threads: usize) -> (Self, Receiver<Client>) {
            let (done, told) = channel();
            let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap());
            (Self { workers: Workers::with_threads(threads), wake, gate: Arc::default(), done }, told)
        }

        fn submit(&self, client: Client) -> bool {
            let (gate, done) = (self.gate.clone(), self.done.clone());
            let Some(slot) = self.workers.reserve(client) else { return false };
            slot.submit(self.wake.clone(), move || {
                drop(lock(&gate));
                let _ = done.send(client);
            })
        }
    }

    #[test]
    fn a_flood_of_judgements_leaves_places_and_turns_to_every_other_client() {
        let (jobs, told) = Gate::new(2);
        let gate = jobs.gate.clone();
        let closed = lock(&gate);
        let count = |number: u8| (0..2_000).filter(|_| jobs.submit(client(number))).count();
        let first = count(1);
        assert!((500..=516).contains(&first), "one client has half: {first}");
        let second = count(2);
        assert!((250..=260).contains(&second), "the next has half of what is left: {second}");
        assert!(jobs.submit(client(3)) && jobs.submit(None), "there is room for others");
        drop(closed);
        // The first threads may have taken a job of the first client each, and one client goes before another.
        let order: Vec<Client> = (0..first + second + 2)
            .map(|_| told.recv_timeout(Duration::from_secs(60)).expect("every job is done"))
            .collect();
        let turn = order.iter().position(|done| *done == client(3)).expect("it is done");
        assert!(turn < 20, "the client with one job waited for {turn} of others");
        let began = std::time::Instant::now();
        while !lock(&jobs.workers.shared.state).held.is_empty() {
            assert!(began.elapsed() < Duration::from_secs(60), "places are given back");
            std::thread::yield_now();
        }
        assert!(jobs.submit(client(1)));
    }

    #[test]
    fn a_place_that_is_not_used_is_given_back() {
        let workers = Workers::with_threads(1);
        let slots: Vec<_> = std::iter::from_fn(|| workers.reserve(client(1))).collect();
        assert_eq!(slots.len(), MOST_WAITING / 2);
        assert!(workers.reserve(client(2)).is_some());
        drop(slots);
        let state = lock(&workers.shared.state);
        assert!(state.held.is_empty() && state.reserved == 0);
    }
}
