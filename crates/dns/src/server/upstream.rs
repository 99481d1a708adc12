//! Upstreams over UDP: a few connected sockets each, under ports the kernel
//! chose at random, and whether they answer.

use super::datagrams;
use super::outbox::Outbox;
use super::random::Random;
use super::settings::{self, Health};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Sockets of an upstream. A query's port is one of these, as good as any to who must guess it;
/// a socket for each query would cost twice as much time.
pub(super) const SOCKETS: usize = 16;
/// A port is used for so many queries, or so long, and then no more.
const QUERIES_A_PORT: u32 = 20_000;
const TIME_A_PORT: Duration = Duration::from_secs(60);
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
}

#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) address: SocketAddr,
    pub(super) settings: settings::Upstream,
    pub(super) sockets: Vec<Socket>,
    /// The socket that queries of this turn go out by.
    pub(super) chosen: Option<usize>,
    pub(super) outbox: Outbox,
    failures: u32,
    next_probe: Option<Instant>,
    /// The connection queries go by, if there is one.
    pub(super) connection: Option<u32>,
    /// Why its last connection ended before its time.
    pub(super) trouble: Option<String>,
    pub(super) answered: u64,
    pub(super) failed: u64,
}

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) udp: UdpSocket,
    /// Its number among all sockets of the server; never used again.
    pub(super) number: u32,
    queries: u32,
    since: Instant,
    /// Queries whose answers are still to come.
    pub(super) open: u32,
    /// Its port is used up: it goes when its last answer is there.
    pub(super) is_retired: bool,
}

impl Upstream {
    pub(super) fn new(settings: settings::Upstream) -> Self {
        Self {
            address: settings.address,
            settings,
            sockets: Vec::new(),
            chosen: None,
            outbox: Outbox::new(),
            failures: 0,
            next_probe: None,
            connection: None,
            trouble: None,
            answered: 0,
            failed: 0,
        }
    }

    pub(super) fn state(&self) -> UpstreamState {
        let Self { address, answered, failed, .. } = *self;
        UpstreamState { address, is_up: self.is_up(), answered, failed }
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

    /// The socket for a query that goes out now: the same for all of one turn, so that they go together.
    /// Gives a new one to `register` where one is made.
    pub(super) fn choose(
        &mut self,
        random: &mut Random,
        now: Instant,
        register: impl FnOnce(&UdpSocket) -> io::Result<u32>,
    ) -> io::Result<usize> {
        if let Some(chosen) = self.chosen {
            return Ok(chosen);
        }
        let live = self.sockets.iter().filter(|socket| !socket.is_retired).count();
        let at = if live < SOCKETS {
            let udp = connect(self.address)?;
            let number = register(&udp)?;
            self.sockets.push(Socket { udp, number, queries: 0, since: now, open: 0, is_retired: false });
            self.sockets.len() - 1
        } else {
            let nth = random.below(live)?;
            let mut live = self.sockets.iter().enumerate().filter(|(_, socket)| !socket.is_retired);
            live.nth(nth).map_or(0, |(at, _)| at)
        };
        self.chosen = Some(at);
        Ok(at)
    }

    /// A query goes out by the socket.
    pub(super) fn count(&mut self, at: usize, now: Instant) {
        let socket = &mut self.sockets[at];
        socket.queries += 1;
        socket.open += 1;
        socket.is_retired = socket.queries >= QUERIES_A_PORT || now >= socket.since + TIME_A_PORT;
    }

    /// An answer came by the socket, or none will.
    pub(super) fn settle(&mut self, number: u32) {
        if let Some(socket) = self.sockets.iter_mut().find(|socket| socket.number == number) {
            socket.open = socket.open.saturating_sub(1);
        }
    }

    /// Sends what this turn has to send; gives how many would not go, and the numbers of sockets
    /// whose ports are used up.
    pub(super) fn flush(&mut self) -> (usize, Vec<u32>) {
        let Some(chosen) = self.chosen.take() else { return (0, Vec::new()) };
        let unsent = self.outbox.flush(&self.sockets[chosen].udp);
        let mut gone = Vec::new();
        self.sockets.retain(|socket| {
            let is_over = socket.is_retired && socket.open == 0;
            gone.extend(is_over.then_some(socket.number));
            !is_over
        });
        (unsent, gone)
    }
}

fn connect(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    datagrams::enlarge(&socket);
    socket.set_nonblocking(true)?;
    // Connected: the kernel drops what comes from anywhere else.
    socket.connect(address)?;
    Ok(socket)
}
