//! One loop: an engine that one of two threads runs.
//!
//! Opening an address in the kernel takes microseconds, and then it is best
//! done by the thread that has the answer. But the kernel has one lock for all
//! who change its tables, and somebody may hold it for a second. So the engine
//! can change hands:
//!
//! ```text
//!  leader    ── turn ── turn ── commit ······ (the kernel is slow) ······ done ─► follows
//!  follower      sleeps            2 ms later: takes the engine ── turn ── turn ── releases what the other opened
//! ```
//! Meanwhile answers that open nothing go on, and those that open something
//! wait in the engine, up to the hold limit (S6.6).

use super::Unanswered;
use super::counters::Counters;
use super::engine::{Engine, LoopSockets};
use super::lock;
use super::pending::Ticket;
use super::route::RouteLoad;
use super::settings::{Listen, Settings};
use super::upstream::UpstreamState;
use crate::chain::Chain;
use crate::learn::{Learn, LearnError};
use nix::sys::eventfd::EventFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a commit may take before somebody else runs the engine.
const LONG_COMMIT: Duration = Duration::from_millis(2);
/// How often the follower looks, while there are commits.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// After so long without a commit it sleeps until there is one.
const QUIET: Duration = Duration::from_secs(1);

/// Whose answers a commit was for, and how it ended.
type Done = (Vec<Ticket>, Result<(), LearnError>);

/// What changes in one loop, all of it at once: routes are known to a chain by their numbers in the settings.
pub(super) struct Change {
    pub(super) settings: Settings,
    /// What the routes of the settings share with those of other loops.
    pub(super) loads: Vec<Arc<RouteLoad>>,
    /// None stays what it is.
    pub(super) chain: Option<Arc<dyn Chain>>,
    /// Where else it listens from now on; if there is nothing it stays where it is.
    pub(super) sockets: Option<Vec<(LoopSockets, Listen)>>,
}

pub(super) struct LoopState<L: Learn> {
    engine: Mutex<Engine<L>>,
    learner: Arc<L>,
    wake: Arc<EventFd>,
    started: Instant,
    /// Since when a commit has been going on, in microseconds since the start; 0 if none is.
    committing: AtomicU64,
    /// When the last one began.
    last_commit: AtomicU64,
    /// Commits that ended when their thread no longer had the engine.
    done: Mutex<Vec<Done>>,
    /// What is to be taken over.
    changed: Mutex<Option<Change>>,
    is_stopped: AtomicBool,
    /// No more questions are taken; what is under way is finished.
    retires: AtomicBool,
    /// None is taken any more, and what is counted as under way is all there will be.
    is_deaf: AtomicBool,
    /// Whether the follower sleeps until it is woken.
    sleeps: Mutex<bool>,
    awake: Condvar,
    counters: Mutex<Counters>,
    upstreams: Mutex<Vec<UpstreamState>>,
    turns: AtomicU64,
}

impl<L: Learn> std::fmt::Debug for LoopState<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoopState").finish_non_exhaustive()
    }
}

impl<L: Learn> LoopState<L> {
    pub(super) fn new(engine: Engine<L>, learner: Arc<L>, wake: Arc<EventFd>) -> Self {
        Self {
            engine: Mutex::new(engine),
            learner,
            wake,
            started: Instant::now(),
            committing: AtomicU64::new(0),
            last_commit: AtomicU64::new(0),
            done: Mutex::default(),
            changed: Mutex::default(),
            is_stopped: AtomicBool::new(false),
            retires: AtomicBool::new(false),
            is_deaf: AtomicBool::new(false),
            sleeps: Mutex::new(false),
            awake: Condvar::new(),
            counters: Mutex::default(),
            upstreams: Mutex::default(),
            turns: AtomicU64::new(0),
        }
    }

    pub(super) fn turns(&self) -> u64 {
        self.turns.load(Ordering::SeqCst)
    }

    pub(super) fn counters(&self) -> Counters {
        *lock(&self.counters)
    }

    pub(super) fn upstreams(&self) -> Vec<UpstreamState> {
        lock(&self.upstreams).clone()
    }

    /// Takes no more questions.
    pub(super) fn retire(&self) {
        self.retires.store(true, Ordering::SeqCst);
        let _ = self.wake.write(1);
    }

    pub(super) fn is_deaf(&self) -> bool {
        self.is_deaf.load(Ordering::SeqCst)
    }

    /// Has a change made.
    pub(super) fn change(&self, change: Change) {
        *lock(&self.changed) = Some(change);
        let _ = self.wake.write(1);
    }

    pub(super) fn has_changed(&self) -> bool {
        lock(&self.changed).is_none()
    }

    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        let _ = self.wake.write(1);
        *lock(&self.sleeps) = false;
        self.awake.notify_all();
    }

    /// The sockets and what is still under way, when it has stopped.
    pub(super) fn leave(&self) -> (Vec<(LoopSockets, Listen)>, Vec<Unanswered>) {
        let mut engine = lock(&self.engine);
        for (tickets, result) in lock(&self.done).drain(..) {
            engine.release(&tickets, &result);
        }
        let _ = engine.finish();
        let questions = engine.unanswered();
        (engine.take_sockets(), questions)
    }

    pub(super) fn run(&self, leads: bool) {
        if leads {
            self.lead(lock(&self.engine));
        }
        while !self.is_stopped.load(Ordering::SeqCst) {
            self.sleep();
            if self.is_stuck()
                && let Ok(engine) = self.engine.try_lock()
            {
                self.lead(engine);
            }
        }
    }

    fn micros(&self) -> u64 {
        // Never 0, which means none.
        self.started.elapsed().as_micros() as u64 + 1
    }

    fn is_stuck(&self) -> bool {
        let since = self.committing.load(Ordering::SeqCst);
        since != 0 && self.micros().saturating_sub(since) > LONG_COMMIT.as_micros() as u64
    }

    /// The follower's rest: short while there are commits, else until there is one.
    fn sleep(&self) {
        let mut sleeps = lock(&self.sleeps);
        if self.micros().saturating_sub(self.last_commit.load(Ordering::SeqCst)) < QUIET.as_micros() as u64 {
            let _ = self.awake.wait_timeout(sleeps, LOOK_EVERY);
            return;
        }
        *sleeps = true;
        while *sleeps && !self.is_stopped.load(Ordering::SeqCst) {
            sleeps = self.awake.wait(sleeps).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Runs the engine until the server stops, or somebody else runs it.
    fn lead<'a>(&'a self, mut engine: MutexGuard<'a, Engine<L>>) {
        while !self.is_stopped.load(Ordering::SeqCst) {
            let has_failed = engine.turn().is_err();
            if has_failed {
                // Nothing the engine waits for can fail for good; not to spin is all there is to do.
                std::thread::sleep(Duration::from_millis(10));
            }
            self.turns.fetch_add(1, Ordering::SeqCst);
            let retires = self.retires.load(Ordering::SeqCst);
            if retires {
                engine.retire();
            }
            let has_changed = self.take_change(&mut engine);
            let done = std::mem::take(&mut *lock(&self.done));
            done.iter().for_each(|(tickets, result)| engine.release(tickets, result));
            // A turn ends with it, so that it is only needed after what came since. Before answers are no longer
            // counted as under way, and before the next commit.
            if has_failed || retires || has_changed || !done.is_empty() {
                let _ = engine.finish();
            }
            *lock(&self.counters) = engine.counters();
            engine.tell_mailed();
            if self.retires.load(Ordering::SeqCst) && engine.is_deaf() {
                self.is_deaf.store(true, Ordering::SeqCst);
            }
            if engine.take_news() {
                *lock(&self.upstreams) = engine.upstream_states();
            }
            // One thread at most commits, so that the other can always go on.
            let is_busy = || self.committing.load(Ordering::SeqCst) != 0 || self.learner.is_busy();
            let must_commit = engine.must_commit();
            if !must_commit || is_busy() {
                // Answers wait for another thread: for its commit, or for the lock that it has or wants. On a core that
                // both share, it may not run until this one has used up its time slice, which in the real-time class is
                // as long as answers may wait.
                if must_commit || self.committing.load(Ordering::SeqCst) != 0 {
                    std::thread::yield_now();
                }
                continue;
            }
            let (mut batch, tickets) = engine.take_batch();
            drop(engine);
            let done = self.commit(&mut batch);
            match self.engine.try_lock() {
                Ok(again) => engine = again,
                Err(_) => {
                    lock(&self.done).push((tickets, done));
                    let _ = self.wake.write(1);
                    return;
                }
            }
            engine.release(&tickets, &done);
            let _ = engine.finish();
            *lock(&self.counters) = engine.counters();
        }
    }

    /// True if there was one.
    fn take_change(&self, engine: &mut Engine<L>) -> bool {
        let mut changed = lock(&self.changed);
        let Some(Change { settings, loads, chain, sockets }) = changed.take() else { return false };
        if let Some(sockets) = sockets {
            engine.move_to(&settings, sockets);
        }
        engine.set_with(settings, &loads);
        if chain.is_some() {
            engine.set_chain(chain);
        }
        true
    }

    fn commit(&self, batch: &mut L::Batch) -> Result<(), LearnError> {
        let now = self.micros();
        let before = self.last_commit.swap(now, Ordering::SeqCst);
        self.committing.store(now, Ordering::SeqCst);
        // Whoever has slept since the last one must look again.
        if now.saturating_sub(before) > QUIET.as_micros() as u64 / 2 {
            let mut sleeps = lock(&self.sleeps);
            if std::mem::take(&mut *sleeps) {
                self.awake.notify_one();
            }
        }
        let done = self.learner.commit(batch);
        self.committing.store(0, Ordering::SeqCst);
        done
    }
}
