//! One loop: queries in, to an upstream, answers out. One thread at a time
//! runs it, and nothing in it waits but for the next event. `queries` takes them,
//! `joining` asks identical ones once, `answers` passes on what comes back, `judged`
//! asks a chain, `connections` is TCP, `listeners` is where they come in, `replaced`
//! drops upstreams that no route leads to.

mod answers;
mod connections;
mod https;
mod joining;
mod judged;
mod listeners;
mod queries;
mod replaced;
#[cfg(any(test, feature = "testing"))]
mod testing;

pub use listeners::Sockets;

pub(in crate::server) use https::HttpsLink;
pub(in crate::server) use judged::ChainVersion;
pub(in crate::server) use listeners::{LoopSockets, gathered};

use crate::learn::Learn;
use crate::server::counters::Counters;
use crate::server::crew::{Crew, Mail};
use crate::server::datagrams::Inbox;
use crate::server::encrypted::upstream::HttpsHeard;
use crate::server::limits;
use crate::server::pending::{Link, Table, Ticket};
use crate::server::random::Random;
use crate::server::route::{Route, RouteLoad};
use crate::server::settings::{self, Listen, Settings};
use crate::server::shares::Shares;
use crate::server::tcp::Connections;
use crate::server::upstream::{Upstream, UpstreamState};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::hash::RandomState;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How soon to look again whether the learner is free.
const AGAIN: Duration = Duration::from_millis(1);
/// How often connections are looked through, and the learner is told that we live.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// So many queries in so much time are many: 7,500 a second, a third of a core's time.
const WINDOW: Duration = Duration::from_millis(50);
const BUSY: u64 = 375;
/// From the beginning of one turn to that of the next where many come; the kernel adds some fifty microseconds.
const PACE: Duration = Duration::from_micros(250);
/// Leases that are only extended are told to the kernel together: nobody waits for them. So long they wait at most,
/// and no more of them than that.
const EXTEND_WITHIN: Duration = Duration::from_millis(20);
const MOST_EXTENDED: u32 = 32;
/// How long an address that is left stays open for questions that are on their way from another loop.
const PASSING: Duration = Duration::from_millis(100);

/// What an event is about, as epoll carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    Wake,
    Listener(u32),
    Accept(u32),
    /// An upstream's socket by its number.
    Upstream(u32),
    Connection(u32),
}

impl Token {
    fn pack(self) -> u64 {
        let (kind, number) = match self {
            Self::Wake => (0, 0),
            Self::Listener(at) => (1, at),
            Self::Accept(at) => (2, at),
            Self::Upstream(number) => (3, number),
            Self::Connection(slot) => (4, slot),
        };
        (kind << 32) | u64::from(number)
    }

    fn unpack(packed: u64) -> Self {
        let number = packed as u32;
        match packed >> 32 {
            1 => Self::Listener(number),
            2 => Self::Accept(number),
            3 => Self::Upstream(number),
            4 => Self::Connection(number),
            _ => Self::Wake,
        }
    }
}

pub(in crate::server) struct Engine<L: Learn> {
    settings: Settings,
    learner: Arc<L>,
    epoll: Epoll,
    wake: Arc<EventFd>,
    crew: Crew,
    /// Room for questions of the mailbox.
    mail: Mail,
    /// Questions of the mailbox that nobody has been told of yet.
    mailed: u64,
    listeners: Vec<listeners::Listener>,
    upstreams: Vec<Upstream>,
    /// Numbers of upstreams that were dropped.
    vacant: Vec<usize>,
    /// By what questions are judged that come from now on.
    chain_version: Option<Arc<ChainVersion>>,
    /// What was judged elsewhere, to go on with.
    judged: Arc<Mutex<Vec<(Ticket, judged::Judged)>>>,
    /// What upstreams over HTTPS have answered, to go on with.
    heard_https: Arc<Mutex<Vec<HttpsHeard>>>,
    /// Where each listener's queries go if no chain says otherwise.
    routes: Vec<Arc<Route>>,
    /// Those of the settings, by number.
    named_routes: Vec<Arc<Route>>,
    /// To servers that rules name.
    servers: FxHashMap<SocketAddr, Arc<Route>>,
    /// Which upstream a socket is of.
    sockets: FxHashMap<u32, usize>,
    next_socket: u32,
    connections: Connections,
    connection_shares: Shares,
    pending: Table,
    shares: Shares,
    /// Queries that others may join, by the hash of their questions.
    leaders: FxHashMap<u64, Ticket>,
    join_secret: RandomState,
    /// The reply that is delivered, as its client spelled the question.
    reply: Vec<u8>,
    /// Sockets to all upstreams together at most.
    most_sockets: usize,
    by_link: FxHashMap<Link, Ticket>,
    /// When each query's upstream is out of time; in order, since all have as much.
    tries: VecDeque<(Instant, Ticket)>,
    /// When each held answer is out of time; in order too.
    holds: VecDeque<(Instant, Ticket)>,
    next_sweep: Instant,
    /// Whether the states of upstreams are to be told.
    has_news: bool,
    /// When it was last looked at how many queries come, and how many there had been.
    window: (Instant, u64),
    is_busy: bool,
    inbox: Option<Inbox>,
    scratch: Vec<u8>,
    /// Clients' connections that may be read again.
    resumed: Vec<Ticket>,
    /// Connections to upstreams that have ended.
    broken: Vec<connections::Broken>,
    random: Random,
    events: Vec<EpollEvent>,
    batch: L::Batch,
    /// Answers whose leases are only extended by the batch, and when that is to be done.
    extended: u32,
    extend_by: Option<Instant>,
    /// Whose answers the batch lets go.
    noted: Vec<Ticket>,
    counters: Counters,
    now: Instant,
}

impl<L: Learn> std::fmt::Debug for Engine<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl<L: Learn> Engine<L> {
    pub(in crate::server) fn new(
        settings: Settings,
        sockets: Vec<(LoopSockets, Listen)>,
        learner: Arc<L>,
        crew: Crew,
    ) -> io::Result<Self> {
        let now = Instant::now();
        let mut engine = Self {
            learner,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            wake: crew.waker(),
            mail: Mail::default(),
            mailed: 0,
            listeners: Vec::new(),
            upstreams: Vec::new(),
            vacant: Vec::new(),
            chain_version: None,
            judged: Arc::default(),
            heard_https: Arc::default(),
            routes: Vec::new(),
            named_routes: Vec::new(),
            servers: FxHashMap::default(),
            sockets: FxHashMap::default(),
            next_socket: 0,
            connections: Connections::default(),
            connection_shares: Shares::default(),
            pending: Table::default(),
            shares: Shares::default(),
            leaders: FxHashMap::default(),
            join_secret: RandomState::new(),
            reply: Vec::new(),
            most_sockets: (limits::most_sockets() / crew.len()).max(1),
            crew,
            by_link: FxHashMap::default(),
            tries: VecDeque::new(),
            holds: VecDeque::new(),
            next_sweep: now,
            has_news: true,
            window: (now, 0),
            is_busy: false,
            inbox: Some(Inbox::new()),
            scratch: Vec::new(),
            resumed: Vec::new(),
            broken: Vec::new(),
            random: Random::open()?,
            events: vec![EpollEvent::empty(); 256],
            batch: L::Batch::default(),
            extended: 0,
            extend_by: None,
            noted: Vec::new(),
            counters: Counters::default(),
            now,
            settings,
        };
        engine.epoll.add(&*engine.wake, event(EpollFlags::EPOLLIN, Token::Wake))?;
        for (sockets, listen) in sockets {
            engine.add_listener(sockets, listen)?;
        }
        engine.set(engine.settings.clone());
        Ok(engine)
    }

    pub(in crate::server) fn counters(&self) -> Counters {
        Counters { under_way: self.pending.len() as u64, ..self.counters }
    }

    /// Questions of the mailbox are counted by now.
    pub(in crate::server) fn tell_mailed(&mut self) {
        if self.mailed > 0 {
            self.crew.dealt_with(std::mem::take(&mut self.mailed));
        }
    }

    pub(in crate::server) fn set(&mut self, settings: Settings) {
        let loads = settings.routes.iter().map(|_| Arc::default()).collect::<Vec<_>>();
        self.set_with(settings, &loads);
    }

    /// The same, with what the routes of the settings share with those of other loops.
    pub(in crate::server) fn set_with(&mut self, settings: Settings, loads: &[Arc<RouteLoad>]) {
        let meant: Vec<Option<SocketAddr>> = self.listeners.iter().map(|listener| listener.meant).collect();
        let mut routes: Vec<Arc<Route>> = Vec::with_capacity(meant.len());
        for meant in meant {
            let servers: Vec<settings::Upstream> = route(meant, &settings).into_iter().map(Into::into).collect();
            let upstreams = self.upstreams_at(&servers);
            // One route for all listeners that ask the same: identical questions are known by it.
            let known = routes.iter().find(|route| route.upstreams == upstreams).cloned();
            routes.push(known.unwrap_or_else(|| Arc::new(Route::to(upstreams))));
        }
        self.routes = routes;
        let named = settings.routes.iter().zip(loads);
        let named = named.map(|(one, load)| Arc::new(Route::new(one, self.upstreams_at(&one.upstreams), load.clone())));
        self.named_routes = named.collect();
        self.settings = settings;
        // Rules may name other servers now.
        self.servers.clear();
        // Routes are known by their numbers: a chain has those it came with, or these from now on.
        let chain = self.chain_version.as_ref().map(|chain_version| chain_version.chain.clone());
        self.set_chain(chain);
        self.drop_replaced();
    }

    /// Goes on at other addresses: at these sockets, and of those there are at those of the settings.
    pub(in crate::server) fn move_to(&mut self, settings: &Settings, sockets: Vec<(LoopSockets, Listen)>) {
        self.leave_all_but(&settings.listen);
        for (sockets, listen) in sockets {
            // What can go wrong with a socket has gone wrong where it was bound.
            let _ = self.add_listener(sockets, listen);
        }
    }

    /// Waits for something to happen and deals with it. What answers open is in the batch then.
    pub(in crate::server) fn turn(&mut self) -> io::Result<()> {
        self.tend_ports();
        self.gather();
        self.drop_settled();
        let count = self.wait(self.timeout())?;
        self.deal_with_events(count, Instant::now())
    }

    fn wait(&mut self, timeout: EpollTimeout) -> io::Result<usize> {
        match self.epoll.wait(&mut self.events, timeout) {
            Ok(count) => Ok(count),
            Err(nix::errno::Errno::EINTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    fn deal_with_events(&mut self, count: usize, now: Instant) -> io::Result<()> {
        self.now = now;
        // Put back whatever happens: without room for events epoll would give none ever after.
        let events = std::mem::take(&mut self.events);
        let dealt = events[..count].iter().try_for_each(|event| self.deal_with(event));
        self.events = events;
        dealt?;
        self.out_of_time()?;
        self.finish()
    }

    fn deal_with(&mut self, event: &EpollEvent) -> io::Result<()> {
        match Token::unpack(event.data()) {
            Token::Wake => {
                let _ = self.wake.read();
                self.take_judged()?;
                self.take_heard_https()?;
                self.take_mail()?;
            }
            Token::Listener(at) => self.take_queries(at as usize)?,
            Token::Accept(at) => self.accept(at as usize),
            Token::Upstream(number) => self.take_answers(number)?,
            Token::Connection(slot) => self.serve(slot, event.events())?,
        }
        Ok(())
    }

    /// What a turn leaves to be done at its end, once for all of it.
    pub(in crate::server) fn finish(&mut self) -> io::Result<()> {
        self.mend()?;
        self.resume()?;
        self.counters.over_limit += self.crew.post() as u64;
        self.flush();
        Ok(())
    }

    /// To sleep and be woken costs more than all else that is done for a question. Where many come, turns are made
    /// at a pace, so that one serves the next questions and the answers to those before: a question and its answer wait
    /// for up to 0.3 ms each. Where few come, nobody waits.
    fn gather(&mut self) {
        if self.now >= self.window.0 + WINDOW {
            self.is_busy = self.counters.queries - self.window.1 >= BUSY;
            self.window = (self.now, self.counters.queries);
        }
        if self.is_busy && self.pending.len() > 0 && !self.must_commit() {
            std::thread::sleep(PACE.saturating_sub(self.now.elapsed()));
        }
    }

    /// Whether the batch is to be committed.
    pub(in crate::server) fn must_commit(&self) -> bool {
        let is_due = self.extend_by.is_some_and(|at| at <= self.now);
        is_due || self.extended >= MOST_EXTENDED || !self.noted.is_empty()
    }

    /// The batch, and whose answers it lets go.
    pub(in crate::server) fn take_batch(&mut self) -> (L::Batch, Vec<Ticket>) {
        (self.extended, self.extend_by) = (0, None);
        (std::mem::take(&mut self.batch), std::mem::take(&mut self.noted))
    }

    /// Whether a second has gone by since this was last asked, or an upstream has answered for the first time.
    pub(in crate::server) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    pub(in crate::server) fn upstream_states(&self) -> Vec<UpstreamState> {
        self.upstreams.iter().filter(|upstream| !upstream.is_replaced).map(Upstream::state).collect()
    }

    /// Forgets when queries are out of time that are over: to be woken for them would be in vain.
    fn drop_settled(&mut self) {
        for queue in [&mut self.tries, &mut self.holds] {
            while queue.front().is_some_and(|(_, ticket)| !self.pending.has(*ticket)) {
                queue.pop_front();
            }
        }
    }

    fn timeout(&self) -> EpollTimeout {
        let first = |queue: &VecDeque<(Instant, Ticket)>| queue.front().map(|(at, _)| *at);
        let mut until = self.next_sweep;
        let probed = self.upstreams.iter().filter(|upstream| !upstream.is_replaced);
        let probe = probed.filter_map(Upstream::next_probe).min();
        for at in [first(&self.tries), first(&self.holds), probe, self.extend_by].into_iter().flatten() {
            until = until.min(at);
        }
        if self.must_commit() {
            until = until.min(self.now + AGAIN);
        }
        // Rounded up: waking a moment too early would only be to wait again.
        let wait = until.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
        EpollTimeout::try_from(wait.min(SWEEP_EVERY)).unwrap_or(EpollTimeout::ZERO)
    }

    /// Sends what there is to send before the turn goes on with the next message. The upstream or the client works on it
    /// meanwhile. Where many questions come, all of a turn go together instead: that takes less time in all.
    fn send_unless_busy(&mut self) {
        if self.is_busy {
            return;
        }
        let to_upstreams: usize = self.upstreams.iter_mut().map(Upstream::send).sum();
        let to_clients: usize = self.listeners.iter_mut().map(listeners::Listener::send).sum();
        self.counters.unsent += (to_upstreams + to_clients) as u64;
    }

    /// Sends what the turn still has to send, and ends it for the sockets.
    fn flush(&mut self) {
        for upstream in &mut self.upstreams {
            self.counters.unsent += upstream.flush() as u64;
        }
        let passing = if self.crew.len() > 1 { PASSING } else { Duration::ZERO };
        let left = self.now.checked_sub(passing).unwrap_or(self.now);
        for listener in &mut self.listeners {
            self.counters.unsent += listener.flush(left) as u64;
        }
    }
}

/// Who is asked what is meant for a server: that one, while it is trusted; and if it is one of the upstreams, the
/// others after it.
fn route(meant: Option<SocketAddr>, settings: &Settings) -> Vec<SocketAddr> {
    let upstreams = &settings.upstreams;
    let trusted = meant.filter(|server| !settings.distrusted.contains(server));
    let Some(server) = trusted else { return upstreams.clone() };
    let others = upstreams.iter().copied().filter(|&other| other != server && upstreams.contains(&server));
    std::iter::once(server).chain(others).collect()
}

fn event(flags: EpollFlags, token: Token) -> EpollEvent {
    EpollEvent::new(flags, token.pack())
}
