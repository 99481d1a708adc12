//! Upstreams over UDP: many connected sockets each, under ports the kernel
//! chose at random, and whether they answer.

use super::datagrams;
use super::outbox::Outbox;
use super::random::Random;
use super::settings::{self, Health};
use rustc_hash::FxHashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Sockets of an upstream at most. The port of a query is one of these, chosen at random; a socket of its own for
/// each query would take twice as much time, and an entry of conntrack each.
pub(super) const MOST_SOCKETS: usize = 1_024;
/// A port is used for so many queries, or so long, and then no more.
const QUERIES_A_PORT: u32 = 256;
const TIME_A_PORT: Duration = Duration::from_secs(60);
/// So many replies that nobody had asked for may come to a port. Then no reply to it is trusted any more.
const MOST_WRONG_REPLIES: u32 = 16;
/// How long an upstream that does not keep the letter case of questions is asked without it.
const CASELESS_FOR: Duration = Duration::from_secs(600);
/// After so many queries in a row without an answer an upstream counts as down.
const MAX_FAILURES: u32 = 3;
/// How often one that is down is asked whether it is back.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// However often it is to be asked, there is so much time between.
const PROBE_LEAST: Duration = Duration::from_millis(10);

/// How an upstream is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpstreamState {
    pub address: SocketAddr,
    pub is_up: bool,
    pub answered: u64,
    pub failed: u64,
    /// Of these, such as were health checks.
    pub failed_checks: u64,
}

impl UpstreamState {
    /// What another loop knows of the same upstream.
    pub(super) fn add(&mut self, other: &Self) {
        self.is_up |= other.is_up;
        self.answered += other.answered;
        self.failed += other.failed;
        self.failed_checks += other.failed_checks;
    }
}

#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) address: SocketAddr,
    pub(super) settings: settings::Upstream,
    /// By their numbers.
    pub(super) sockets: FxHashMap<u32, Socket>,
    /// Those that queries may go out by.
    live: Vec<u32>,
    /// The socket that queries of this turn go out by.
    chosen: Option<u32>,
    pub(super) outbox: Outbox,
    failures: u32,
    next_probe: Option<Instant>,
    /// The connection queries go by, if there is one.
    pub(super) connection: Option<u32>,
    /// Why its last connection ended before its time.
    pub(super) trouble: Option<String>,
    pub(super) answered: u64,
    pub(super) failed: u64,
    failed_checks: u64,
    /// Until when it is asked without random letter case: it has shown, over TCP, that it does not repeat it.
    caseless_until: Option<Instant>,
    /// No route leads to it any more: it is dropped when its last query is over.
    pub(super) is_replaced: bool,
}

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) udp: UdpSocket,
    queries: u32,
    since: Instant,
    /// Queries whose answers are still to come.
    open: u32,
    /// The ids of queries that are over: an answer that comes late is no guess.
    settled: Vec<u16>,
    wrong_replies: u32,
    /// Its port is used up: it goes when its last answer is there.
    is_retired: bool,
}

impl Socket {
    fn is_over(&self) -> bool {
        self.is_retired && self.open == 0
    }
}

impl Upstream {
    pub(super) fn new(settings: settings::Upstream) -> Self {
        Self {
            address: settings.address,
            settings,
            sockets: FxHashMap::default(),
            live: Vec::new(),
            chosen: None,
            outbox: Outbox::new(),
            failures: 0,
            next_probe: None,
            connection: None,
            trouble: None,
            answered: 0,
            failed: 0,
            failed_checks: 0,
            caseless_until: None,
            is_replaced: false,
        }
    }

    pub(super) fn state(&self) -> UpstreamState {
        let Self { address, answered, failed, failed_checks, .. } = *self;
        UpstreamState { address, is_up: self.is_up(), answered, failed, failed_checks }
    }

    pub(super) fn is_up(&self) -> bool {
        match self.settings.health {
            Health::ByQueries => self.failures < MAX_FAILURES,
            Health::ByChecks { failures, .. } => self.failures < failures,
            Health::Assumed => true,
        }
    }

    pub(super) fn has_answered(&mut self) {
        self.failures = 0;
        self.next_probe = None;
        self.trouble = None;
        self.answered += 1;
    }

    /// A query was not answered.
    pub(super) fn has_failed(&mut self, now: Instant) {
        self.failed += 1;
        match self.settings.health {
            Health::ByQueries => {
                self.failures = self.failures.saturating_add(1);
                if !self.is_up() && self.next_probe.is_none() {
                    self.next_probe = Some(now + PROBE_EVERY);
                }
            }
            Health::ByChecks { .. } => _ = self.next_probe.get_or_insert(now),
            Health::Assumed => {}
        }
    }

    /// Nor was the question whether it is back. One that was asked before another was answered says nothing.
    pub(super) fn has_failed_probe(&mut self) {
        self.failures = self.failures.saturating_add(u32::from(self.next_probe.is_some()));
        self.failed += 1;
        self.failed_checks += 1;
    }

    /// When it is to be asked whether it is back.
    pub(super) fn next_probe(&self) -> Option<Instant> {
        self.next_probe
    }

    /// Whether it is time to ask whether it is back.
    pub(super) fn must_be_probed(&mut self, now: Instant) -> bool {
        let due = self.next_probe.is_some_and(|at| at <= now);
        if due {
            let every = match self.settings.health {
                Health::ByChecks { every, .. } => every.max(PROBE_LEAST),
                Health::ByQueries | Health::Assumed => PROBE_EVERY,
            };
            self.next_probe = Some(now + every);
        }
        due
    }

    /// True if a question may go out in random letter case, which the reply must repeat.
    pub(super) fn keeps_case(&self, now: Instant) -> bool {
        self.caseless_until.is_none_or(|until| until <= now)
    }

    /// It has shown that it does not repeat the letter case of a question.
    pub(super) fn has_lost_case(&mut self, now: Instant) {
        self.caseless_until = Some(now + CASELESS_FOR);
    }

    /// The socket for a query that goes out now: the same for all of one turn, so that they go together.
    /// Gives a new one to `register` where one is made, as long as there are fewer than `most`.
    pub(super) fn choose(
        &mut self,
        random: &mut Random,
        most: usize,
        register: impl FnOnce(&UdpSocket) -> io::Result<u32>,
    ) -> io::Result<u32> {
        if let Some(chosen) = self.chosen {
            return Ok(chosen);
        }
        let new = if self.live.len() < most { Some(self.open_socket(register)) } else { None };
        let chosen = match new {
            Some(Ok(number)) => number,
            // Without room for another one any that is there will do.
            Some(Err(error)) if self.live.is_empty() => return Err(error),
            _ => self.live.get(random.below(self.live.len())?).copied().unwrap_or_default(),
        };
        self.chosen = Some(chosen);
        Ok(chosen)
    }

    fn open_socket(&mut self, register: impl FnOnce(&UdpSocket) -> io::Result<u32>) -> io::Result<u32> {
        let udp = connect(self.address)?;
        let number = register(&udp)?;
        let (since, settled) = (Instant::now(), Vec::new());
        let socket = Socket { udp, queries: 0, since, open: 0, settled, wrong_replies: 0, is_retired: false };
        self.sockets.insert(number, socket);
        self.live.push(number);
        Ok(number)
    }

    /// A query goes out by the socket.
    pub(super) fn count(&mut self, number: u32, now: Instant) {
        let Some(socket) = self.sockets.get_mut(&number) else { return };
        socket.queries += 1;
        socket.open += 1;
        if socket.queries >= QUERIES_A_PORT || now >= socket.since + TIME_A_PORT {
            self.retire(number);
        }
    }

    /// No more queries go out by the socket after this turn.
    fn retire(&mut self, number: u32) {
        if let Some(socket) = self.sockets.get_mut(&number) {
            socket.is_retired = true;
            self.live.retain(|&live| live != number);
        }
    }

    /// An answer to the query under this id came by the socket, or none will. True if the socket is gone by that.
    pub(super) fn settle(&mut self, number: u32, id: u16) -> bool {
        let Some(socket) = self.sockets.get_mut(&number) else { return false };
        socket.open = socket.open.saturating_sub(1);
        socket.settled.push(id);
        // Queries of this turn may still have to go out by it.
        let is_gone = socket.is_over() && self.chosen != Some(number);
        if is_gone {
            self.sockets.remove(&number);
        }
        is_gone
    }

    /// A reply that nobody had asked for came by the socket. True if there were so many that it is no longer used.
    pub(super) fn count_wrong_reply(&mut self, number: u32, id: Option<u16>) -> bool {
        let Some(socket) = self.sockets.get_mut(&number) else { return false };
        if id.is_some_and(|id| socket.settled.contains(&id)) {
            return false;
        }
        socket.wrong_replies += 1;
        let is_too_much = socket.wrong_replies >= MOST_WRONG_REPLIES;
        if is_too_much {
            self.retire(number);
        }
        is_too_much
    }

    /// Sends what there is to send; gives how many would not go.
    pub(super) fn send(&mut self) -> usize {
        let socket = self.chosen.and_then(|chosen| self.sockets.get(&chosen)).filter(|_| !self.outbox.is_empty());
        socket.map_or(0, |socket| self.outbox.flush(&socket.udp))
    }

    /// Sends what this turn still has to send, and lets go of the socket that was chosen for it. Gives how many would
    /// not go, and the number of a socket whose port is used up.
    pub(super) fn flush(&mut self) -> (usize, Option<u32>) {
        let unsent = self.send();
        let Some(chosen) = self.chosen.take() else { return (0, None) };
        let Some(socket) = self.sockets.get(&chosen) else {
            self.outbox.clear();
            return (0, None);
        };
        let gone = socket.is_over().then_some(chosen);
        if gone.is_some() {
            self.sockets.remove(&chosen);
        }
        (unsent, gone)
    }

    /// Drops the sockets that are too old or too many. Gives the numbers of those that are gone.
    pub(super) fn drop_old(&mut self, now: Instant, most: usize) -> Vec<u32> {
        let old = |socket: &Socket| now >= socket.since + TIME_A_PORT;
        let surplus = self.live.iter().copied().skip(most);
        let old = self.live.iter().copied().filter(|number| self.sockets.get(number).is_some_and(old));
        let retired: Vec<u32> = surplus.chain(old).collect();
        retired.into_iter().for_each(|number| self.retire(number));
        let chosen = self.chosen;
        let gone: Vec<u32> = (self.sockets.iter())
            .filter(|(number, socket)| socket.is_over() && chosen != Some(**number))
            .map(|(number, _)| *number)
            .collect();
        gone.iter().for_each(|number| _ = self.sockets.remove(number));
        gone
    }

    /// Lets go of everything it holds. Gives the numbers of its sockets.
    pub(super) fn drop_all(&mut self) -> Vec<u32> {
        (self.chosen, self.next_probe) = (None, None);
        self.outbox.clear();
        self.live.clear();
        self.sockets.drain().map(|(number, _)| number).collect()
    }
}

fn connect(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    datagrams::enlarge(&socket, datagrams::UPSTREAM_BUFFER);
    socket.set_nonblocking(true)?;
    // Connected: the kernel drops what comes from anywhere else.
    socket.connect(address)?;
    Ok(socket)
}
