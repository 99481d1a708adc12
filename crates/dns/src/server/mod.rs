//! The server: an [`engine`] that one of two threads runs, and what can be set.
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

mod counters;
mod datagrams;
mod engine;
mod outbox;
mod pending;
mod random;
mod route;
mod settings;
mod shares;
mod stream;
mod tcp;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod testing;
mod upstream;
mod workers;

pub use counters::Counters;
pub use engine::Sockets;
pub(crate) use random::Random;
pub use settings::{Health, Listen, OnLearnTimeout, Route, Settings, Tls, Upstream, UpstreamOrder, UpstreamTransport};
pub use upstream::UpstreamState;
pub use workers::{WorkerSlot, Workers};

use crate::chain::Chain;
use crate::learn::{Learn, LearnError};
use engine::Engine;
use nix::sys::eventfd::EventFd;
use pending::Ticket;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a commit may take before somebody else runs the engine.
const LONG_COMMIT: Duration = Duration::from_millis(2);
/// How often the follower looks, while there are commits.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long what is under way has when a server retires.
const RETIREMENT: Duration = Duration::from_secs(1);
/// After so long without a commit it sleeps until there is one.
const QUIET: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("cannot listen at {address}; is another DNS server running there?")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("there is no upstream to ask")]
    NoUpstream,
    #[error("the upstream {0} is this server itself")]
    AsksItself(SocketAddr),
    #[error("cannot start the DNS server")]
    Start(#[source] io::Error),
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server<L: Learn> {
    shared: Arc<ServerState<L>>,
    addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
}

/// Whose answers a commit was for, and how it ended.
type Done = (Vec<Ticket>, Result<(), LearnError>);

/// What changes, all of it at once: routes are known to a chain by their numbers in the settings.
struct Change {
    settings: Settings,
    /// None stays what it is.
    chain: Option<Arc<dyn Chain>>,
    /// Where else it listens from now on; if there is nothing it stays where it is.
    sockets: Option<Vec<(Sockets, Listen)>>,
}

struct ServerState<L: Learn> {
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

impl<L: Learn> std::fmt::Debug for ServerState<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl<L: Learn + 'static> Server<L>
where
    L::Batch: 'static,
{
    /// Binds the sockets of the settings and serves.
    pub fn start(settings: Settings, learner: Arc<L>) -> Result<Self, ServerError> {
        let bind = |listen: &Listen| match Sockets::bind(listen.address) {
            Ok(sockets) => Ok((sockets, *listen)),
            Err(source) => Err(ServerError::Listen { address: listen.address, source }),
        };
        let sockets = settings.listen.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
        Self::start_with(settings, sockets, learner)
    }

    /// Serves at sockets that are there already.
    pub fn start_with(
        settings: Settings,
        sockets: Vec<(Sockets, Listen)>,
        learner: Arc<L>,
    ) -> Result<Self, ServerError> {
        if settings.upstreams.is_empty() && sockets.iter().any(|(_, listen)| listen.meant.is_none()) {
            return Err(ServerError::NoUpstream);
        }
        Self::start_judged(settings, None, sockets, learner)
    }

    /// The same by a chain, which says who is asked.
    pub fn start_judged(
        settings: Settings,
        chain: Option<Arc<dyn Chain>>,
        sockets: Vec<(Sockets, Listen)>,
        learner: Arc<L>,
    ) -> Result<Self, ServerError> {
        let addresses: Vec<SocketAddr> =
            sockets.iter().filter_map(|(sockets, _)| sockets.udp.local_addr().ok()).collect();
        settings.check(&addresses)?;
        if let Some(own) = sockets.iter().filter_map(|(_, listen)| listen.meant).find(|to| addresses.contains(to)) {
            return Err(ServerError::AsksItself(own));
        }
        let mut engine = Engine::new(settings, sockets, learner.clone()).map_err(ServerError::Start)?;
        engine.set_chain(chain);
        let shared = Arc::new(ServerState {
            wake: engine.waker(),
            engine: Mutex::new(engine),
            learner,
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
        });
        let mut server = Self { shared, addresses, threads: Vec::new() };
        for leads in [true, false] {
            let shared = server.shared.clone();
            let thread = std::thread::Builder::new().name("dns".to_owned()).spawn(move || shared.run(leads));
            server.threads.push(thread.map_err(ServerError::Start)?);
        }
        Ok(server)
    }

    /// Where it listens, in the order of the settings.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// How often the engine has gone round: about once a second at least, as long as it lives.
    pub fn turns(&self) -> u64 {
        self.shared.turns.load(Ordering::SeqCst)
    }

    /// Stops taking questions, finishes what is under way, for a second at most, and gives the sockets
    /// back. What comes meanwhile waits in them for whoever serves next.
    pub fn retire(mut self) -> Vec<(Sockets, Listen)> {
        self.shared.retires.store(true, Ordering::SeqCst);
        let _ = self.shared.wake.write(1);
        let until = Instant::now() + RETIREMENT;
        let is_done = || self.shared.is_deaf.load(Ordering::SeqCst) && lock(&self.shared.counters).under_way == 0;
        while !is_done() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.stop();
        lock(&self.shared.engine).take_sockets()
    }

    /// Goes on with other settings and by another chain; where it listens stays. What is asked from now on
    /// meets them; what is under way goes on as it began.
    pub fn set_with(&self, settings: Settings, chain: Arc<dyn Chain>) -> Result<(), ServerError> {
        settings.check(&self.addresses)?;
        self.change(Change { settings, chain: Some(chain), sockets: None });
        Ok(())
    }

    /// The same at the addresses of the settings: sockets are given for those that are new. At those that stay
    /// nobody notices, and at those that are left whoever asked before gets an answer.
    pub fn move_to(
        &mut self,
        settings: Settings,
        chain: Arc<dyn Chain>,
        sockets: Vec<(Sockets, Listen)>,
    ) -> Result<(), ServerError> {
        let addresses: Vec<SocketAddr> = settings.listen.iter().map(|listen| listen.address).collect();
        settings.check(&addresses)?;
        self.change(Change { settings, chain: Some(chain), sockets: Some(sockets) });
        self.addresses = addresses;
        Ok(())
    }

    /// Goes on with other settings; where it listens stays.
    pub fn set(&self, settings: Settings) {
        *lock(&self.shared.changed) = Some(Change { settings, chain: None, sockets: None });
        let _ = self.shared.wake.write(1);
    }

    /// Has a change made, and waits for it: a moment, unless the server is stuck.
    fn change(&self, change: Change) {
        *lock(&self.shared.changed) = Some(change);
        let _ = self.shared.wake.write(1);
        let until = Instant::now() + RETIREMENT;
        while lock(&self.shared.changed).is_some() && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// How upstreams were doing a moment ago.
    pub fn upstreams(&self) -> Vec<UpstreamState> {
        lock(&self.shared.upstreams).clone()
    }

    pub fn counters(&self) -> Counters {
        *lock(&self.shared.counters)
    }
}

impl<L: Learn> Server<L> {
    fn stop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        let _ = self.shared.wake.write(1);
        *lock(&self.shared.sleeps) = false;
        self.shared.awake.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl<L: Learn> Drop for Server<L> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A thread that panicked has left nothing half done that matters here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<L: Learn> ServerState<L> {
    fn run(&self, leads: bool) {
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
            if engine.turn().is_err() {
                // Nothing the engine waits for can fail for good; not to spin is all there is to do.
                std::thread::sleep(Duration::from_millis(10));
            }
            self.turns.fetch_add(1, Ordering::SeqCst);
            if self.retires.load(Ordering::SeqCst) {
                engine.retire();
            }
            self.take_change(&mut engine);
            for (tickets, result) in lock(&self.done).drain(..) {
                engine.release(&tickets, &result);
            }
            *lock(&self.counters) = engine.counters();
            if self.retires.load(Ordering::SeqCst) && engine.is_deaf() {
                self.is_deaf.store(true, Ordering::SeqCst);
            }
            if engine.take_swept() {
                *lock(&self.upstreams) = engine.upstream_states();
            }
            // One thread at most commits, so that the other can always go on.
            let is_busy = || self.committing.load(Ordering::SeqCst) != 0 || self.learner.is_busy();
            if !engine.must_commit() || is_busy() {
                let _ = engine.finish();
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

    fn take_change(&self, engine: &mut Engine<L>) {
        let mut changed = lock(&self.changed);
        let Some(Change { settings, chain, sockets }) = changed.take() else { return };
        if let Some(sockets) = sockets {
            engine.move_to(&settings, sockets);
        }
        engine.set(settings);
        if chain.is_some() {
            engine.set_chain(chain);
        }
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
