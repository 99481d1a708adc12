//! The server: one or more loops, each an [`engine`] that one of two threads runs, and what can be set. `crew` says
//! which loop a question belongs to, `looped` runs an engine.

mod counters;
mod crew;
mod datagrams;
mod encrypted;
mod engine;
mod limits;
mod looped;
mod outbox;
mod pending;
mod ports;
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
pub(crate) use encrypted::upstream::{Target as HttpsTarget, ask_once as ask_over_https};
pub use encrypted::{EncryptedCounters, EncryptedListen, NewEncryptedSockets};
pub use engine::Sockets;
pub use limits::allow_more_files;
pub(crate) use random::Random;
pub use settings::{Health, Listen, OnLearnTimeout, Route, Settings, Tls, Upstream, UpstreamOrder, UpstreamTransport};
pub use upstream::UpstreamState;
pub use workers::{WorkerSlot, Workers};

use crate::chain::Chain;
use crate::learn::Learn;
use crew::{Crew, Passed};
use encrypted::Encrypted;
use engine::{Engine, LoopSockets, gathered};
use looped::{Change, LoopState};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a change of settings is waited for.
const CHANGE: Duration = Duration::from_secs(1);

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

/// What a server that has ended leaves to the next one.
#[derive(Default, Debug)]
pub struct Left {
    pub sockets: Vec<(Sockets, Listen)>,
    /// Questions that came by UDP and are not answered. Connections end with the server, which tells their clients.
    pub questions: Vec<Unanswered>,
}

/// A question that came by UDP and is not answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unanswered {
    /// Where it came in.
    pub at: SocketAddr,
    pub from: SocketAddr,
    pub query: Vec<u8>,
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server<L: Learn> {
    loops: Vec<Arc<LoopState<L>>>,
    /// To see whether questions are on their way between loops.
    crew: Crew,
    encrypted: Encrypted,
    addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
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
        let loops = settings.loops.clamp(1, Settings::MOST_LOOPS);
        let shares = shares(sockets, loops).map_err(ServerError::Start)?;
        let crews = Crew::of(loops).map_err(ServerError::Start)?;
        let (own, loads) = (settings.share_of(loops), loads(&settings));
        let (crew, encrypted) = (crews[0].observer(), Encrypted::new(crews[0].observer(), &settings));
        let mut server = Self { loops: Vec::new(), crew, encrypted, addresses, threads: Vec::new() };
        for (crew, sockets) in crews.into_iter().zip(shares) {
            let wake = crew.waker();
            let mut engine = Engine::new(own.clone(), sockets, learner.clone(), crew).map_err(ServerError::Start)?;
            engine.set_chain(chain.clone());
            engine.set_with(own.clone(), &loads);
            server.loops.push(Arc::new(LoopState::new(engine, learner.clone(), wake)));
        }
        for (one, leads) in server.loops.iter().flat_map(|one| [(one, true), (one, false)]) {
            let one = one.clone();
            let thread = std::thread::Builder::new().name("dns".to_owned()).spawn(move || one.run(leads));
            server.threads.push(thread.map_err(ServerError::Start)?);
        }
        Ok(server)
    }

    /// Where it listens, in the order of the settings.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// How often each loop has gone round: about once a second at least, as long as it lives.
    pub fn turns(&self) -> Vec<u64> {
        self.loops.iter().map(|one| one.turns()).collect()
    }

    /// Stops taking questions, finishes what is under way, for so long at most, and gives back what it leaves to the
    /// next server: the sockets, in which new questions wait meanwhile, and the questions that are still under way.
    pub fn retire(mut self, patience: Duration) -> Left {
        self.encrypted.retire();
        self.loops.iter().for_each(|one| one.retire());
        let until = Instant::now() + patience;
        // In this order: a question that was passed to another loop is counted there before it is no longer on its way.
        let is_done =
            || self.loops.iter().all(|one| one.is_deaf()) && self.crew.is_at_rest() && self.counters().under_way == 0;
        // An answer of a loop may still have to be written by another thread.
        let is_done = || is_done() && self.encrypted.is_at_rest();
        while !is_done() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.stop();
        let (parts, questions): (Vec<_>, Vec<_>) = self.loops.iter().map(|one| one.leave()).unzip();
        Left { sockets: gathered(parts.into_iter().flatten().collect()), questions: questions.concat() }
    }

    /// Takes questions that an earlier server has left. Those of clients that may no longer ask are counted, and meet
    /// silence. Gives how many found no room.
    pub fn take_over(&self, questions: &[Unanswered]) -> usize {
        let found_room = |one: &&Unanswered| {
            self.crew.submit(&Passed { at: one.at, from: one.from, query: &one.query, origin: None })
        };
        questions.len() - questions.iter().filter(found_room).count()
    }

    /// Goes on with other settings and by another chain; where it listens stays. What is asked from now on
    /// meets them; what is under way goes on as it began.
    pub fn set_with(&self, settings: Settings, chain: Arc<dyn Chain>) -> Result<(), ServerError> {
        settings.check(&self.addresses)?;
        self.change(&settings, Some(&chain), None);
        Ok(())
    }

    /// Does what can fail with sockets for new addresses. Nothing changes before [`Server::move_to`].
    pub fn prepare(&self, sockets: Vec<(Sockets, Listen)>) -> Result<NewSockets, ServerError> {
        shares(sockets, self.loops.len()).map(NewSockets).map_err(ServerError::Start)
    }

    /// The same at the addresses of the settings: sockets are given for those that are new. At those that stay
    /// nobody notices, and at those that are left whoever asked before gets an answer.
    pub fn move_to(
        &mut self,
        settings: Settings,
        chain: Arc<dyn Chain>,
        NewSockets(sockets): NewSockets,
    ) -> Result<(), ServerError> {
        let addresses: Vec<SocketAddr> = settings.listen.iter().map(|listen| listen.address).collect();
        settings.check(&addresses)?;
        self.change(&settings, Some(&chain), Some(sockets));
        self.addresses = addresses;
        Ok(())
    }

    /// Goes on with other settings; where it listens stays.
    pub fn set(&self, settings: &Settings) {
        self.begin_change(settings, None, None);
    }

    fn begin_change(
        &self,
        settings: &Settings,
        chain: Option<&Arc<dyn Chain>>,
        sockets: Option<Vec<Vec<(LoopSockets, Listen)>>>,
    ) {
        self.encrypted.set_limits(settings);
        let (own, loads) = (settings.share_of(self.loops.len()), loads(settings));
        let mut sockets = sockets.map(Vec::into_iter);
        for one in &self.loops {
            let sockets = sockets.as_mut().map(|shares| shares.next().unwrap_or_default());
            one.change(Change { settings: own.clone(), loads: loads.clone(), chain: chain.cloned(), sockets });
        }
    }

    /// Has a change made, and waits for it: a moment, unless the server is stuck.
    fn change(
        &self,
        settings: &Settings,
        chain: Option<&Arc<dyn Chain>>,
        sockets: Option<Vec<Vec<(LoopSockets, Listen)>>>,
    ) {
        self.begin_change(settings, chain, sockets);
        let until = Instant::now() + CHANGE;
        while !self.loops.iter().all(|one| one.has_changed()) && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Does what can fail with sockets for new addresses. Nothing changes before [`Server::serve_encrypted`].
    pub fn prepare_encrypted(&self, sockets: Vec<TcpListener>) -> Result<NewEncryptedSockets, ServerError> {
        NewEncryptedSockets::new(sockets, self.crew.threads()).map_err(ServerError::Start)
    }

    /// Serves clients over TLS and HTTPS at these addresses and no others. Sockets are given for those that are new.
    pub fn serve_encrypted(&mut self, listen: Vec<EncryptedListen>, sockets: NewEncryptedSockets) {
        self.encrypted.serve(listen, sockets);
    }

    /// What is counted of connections over TLS and HTTPS.
    pub fn encrypted_counters(&self) -> Arc<EncryptedCounters> {
        self.encrypted.counters().clone()
    }

    /// Connections over TLS and HTTPS that are open.
    pub fn encrypted_connections(&self) -> usize {
        self.encrypted.connections()
    }

    /// How upstreams were doing a moment ago. One that no loop can reach is down.
    pub fn upstreams(&self) -> Vec<UpstreamState> {
        let mut all: Vec<UpstreamState> = Vec::new();
        for (at, states) in self.loops.iter().map(|one| one.upstreams()).enumerate() {
            if at == 0 {
                all = states;
                continue;
            }
            for state in states {
                match all.iter_mut().find(|known| known.address == state.address) {
                    Some(known) => known.add(&state),
                    None => all.push(state),
                }
            }
        }
        all
    }

    pub fn counters(&self) -> Counters {
        self.counters_by_loop().into_iter().fold(Counters::default(), |sum, more| sum + more)
    }

    pub fn counters_by_loop(&self) -> Vec<Counters> {
        self.loops.iter().map(|one| one.counters()).collect()
    }
}

impl<L: Learn> Server<L> {
    fn stop(&mut self) {
        self.loops.iter().for_each(|one| one.stop());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        self.crew.threads().stop();
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

/// Sockets at new addresses, shared out to the loops.
#[derive(Debug)]
pub struct NewSockets(Vec<Vec<(LoopSockets, Listen)>>);

/// What each of so many loops has of sockets.
fn shares(sockets: Vec<(Sockets, Listen)>, loops: usize) -> io::Result<Vec<Vec<(LoopSockets, Listen)>>> {
    let mut shares: Vec<Vec<(LoopSockets, Listen)>> = (0..loops).map(|_| Vec::new()).collect();
    for (sockets, listen) in sockets {
        for (share, own) in shares.iter_mut().zip(sockets.share(loops)?) {
            share.extend(own.into_iter().map(|sockets| (sockets, listen)));
        }
    }
    Ok(shares)
}

/// What the routes of all loops have in common.
fn loads(settings: &Settings) -> Vec<Arc<route::RouteLoad>> {
    settings.routes.iter().map(|_| Arc::default()).collect()
}
