//! The ports that an upstream is asked from over UDP: many connected sockets, with port numbers that the kernel chose
//! at random.
//!
//! Opening a socket takes as long as everything else that is done for a question, and closing a thousand of them takes
//! milliseconds. So sockets are opened and closed one by one, by `tend`, after a turn has sent its questions. Each
//! socket has a lifetime of its own, so that sockets of one moment do not end in one moment.
//!
//! ```text
//!   tend ──► spare ──► live ──► retired (used up, too old, distrusted) ── last answer ──► closing ──► tend
//! ```

use super::datagrams;
use super::outbox::Outbox;
use super::random::Random;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Sockets of an upstream at most. The port of a query is one of these, chosen at random; a socket of its own for
/// each query would take twice as much time, and an entry of conntrack each.
pub(super) const MOST_SOCKETS: usize = 1_024;
/// A port is used for so many queries, or so long, and then no more. Up to half of the time is taken off at random.
const QUERIES_A_PORT: u32 = 256;
const TIME_A_PORT: Duration = Duration::from_secs(60);
const TIME_TAKEN_OFF: Duration = Duration::from_secs(30);
/// So many replies that nobody had asked for may come to a port. Then no reply to it is trusted any more.
const MOST_WRONG_REPLIES: u32 = 16;
/// Sockets that are opened ahead of the queries that will use them.
const MOST_SPARE: usize = 8;
/// While more sockets than these wait to be closed, none is opened ahead.
const MOST_CLOSING: usize = 64;

#[derive(Debug)]
pub(super) struct Ports {
    address: SocketAddr,
    /// By their numbers.
    sockets: FxHashMap<u32, Socket>,
    /// Those that queries may go out by.
    live: Vec<u32>,
    /// Those that no query has gone out by yet.
    spare: Vec<u32>,
    /// Those that are to be closed.
    closing: VecDeque<u32>,
    /// The socket that queries of this turn go out by.
    chosen: Option<u32>,
    /// How many turns have asked for a new port since the last one was opened ahead.
    wanted: usize,
}

#[derive(Debug)]
struct Socket {
    udp: UdpSocket,
    queries: u32,
    until: Instant,
    /// Queries whose answers are still to come.
    open: u32,
    /// The ids of queries that are over: an answer that comes late is no guess.
    settled: Vec<u16>,
    wrong_replies: u32,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Spare or live.
    Usable,
    /// Its port is used up: it goes when its last answer is there.
    Retired,
    Closing,
}

/// How a new socket is made known to the loop that waits for its replies, and which number it gets.
pub(super) trait Register: FnMut(&UdpSocket) -> io::Result<u32> {}

impl<F: FnMut(&UdpSocket) -> io::Result<u32>> Register for F {}

impl Ports {
    pub(super) fn to(address: SocketAddr) -> Self {
        Self {
            address,
            sockets: FxHashMap::default(),
            live: Vec::new(),
            spare: Vec::new(),
            closing: VecDeque::new(),
            chosen: None,
            wanted: 0,
        }
    }

    /// All sockets that are open.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn len(&self) -> usize {
        self.sockets.len()
    }

    /// How many wait to be closed.
    #[cfg(test)]
    pub(super) fn closing(&self) -> usize {
        self.closing.len()
    }

    pub(super) fn get(&self, number: u32) -> Option<&UdpSocket> {
        self.sockets.get(&number).map(|socket| &socket.udp)
    }

    /// The socket for a query that goes out now: the same for all of one turn, so that they go together. As long as
    /// there are fewer than `most` it is a new one, if one is spare. Opens one only if there is none at all.
    pub(super) fn choose(&mut self, random: &mut Random, most: usize, register: impl Register) -> io::Result<u32> {
        if let Some(chosen) = self.chosen {
            return Ok(chosen);
        }
        let is_room = self.live.len() < most;
        self.wanted = (self.wanted + usize::from(is_room)).min(MOST_SPARE);
        if self.live.is_empty() && self.spare.is_empty() {
            let number = self.open(random, register)?;
            self.spare.push(number);
        }
        let new = if is_room { self.spare.pop() } else { None };
        self.live.extend(new);
        let chosen = match new {
            Some(new) => new,
            None => self.live.get(random.below(self.live.len())?).copied().unwrap_or_default(),
        };
        self.chosen = Some(chosen);
        Ok(chosen)
    }

    fn open(&mut self, random: &mut Random, mut register: impl Register) -> io::Result<u32> {
        let udp = connect(self.address)?;
        let number = register(&udp)?;
        let taken_off = TIME_TAKEN_OFF.mul_f64(f64::from(random.number()?) / f64::from(u16::MAX));
        let until = Instant::now() + TIME_A_PORT.saturating_sub(taken_off);
        let settled = Vec::new();
        let socket = Socket { udp, queries: 0, until, open: 0, settled, wrong_replies: 0, stage: Stage::Usable };
        self.sockets.insert(number, socket);
        Ok(number)
    }

    /// True if there is a socket to open or to close.
    pub(super) fn want_tending(&self) -> bool {
        self.wanted > 0 || !self.closing.is_empty()
    }

    /// True if queries have asked for new sockets and one is to be opened now. `is_calm` says that no client waits for
    /// it; otherwise it is opened only if there is no spare one left.
    pub(super) fn want_another(&self, is_calm: bool) -> bool {
        self.wanted > 0 && (is_calm || self.spare.is_empty())
    }

    /// Opens one socket ahead of its queries, as long as there are fewer than `most`.
    pub(super) fn open_ahead(&mut self, random: &mut Random, most: usize, register: impl Register) {
        let is_room = self.live.len() + self.spare.len() < most && self.spare.len() < MOST_SPARE;
        self.wanted = if is_room { self.wanted.saturating_sub(1) } else { 0 };
        if is_room && self.closing.len() <= MOST_CLOSING {
            // Without room for another one those that are there will do.
            let new = self.open(random, register).ok();
            self.spare.extend(new);
        }
    }

    /// Closes the spare sockets, of which there are few. Gives their numbers.
    pub(super) fn close_spare(&mut self) -> Vec<u32> {
        self.wanted = 0;
        let spare = std::mem::take(&mut self.spare);
        spare.iter().for_each(|number| _ = self.sockets.remove(number));
        spare
    }

    /// Closes one of the sockets that are to be closed. Gives its number.
    pub(super) fn close_one(&mut self) -> Option<u32> {
        let number = self.closing.pop_front()?;
        self.sockets.remove(&number);
        Some(number)
    }

    /// A query goes out by the socket.
    pub(super) fn count(&mut self, number: u32, now: Instant) {
        let Some(socket) = self.sockets.get_mut(&number) else { return };
        socket.queries += 1;
        socket.open += 1;
        if socket.queries >= QUERIES_A_PORT || now >= socket.until {
            self.retire(number);
        }
    }

    /// No more queries go out by the socket after this turn.
    fn retire(&mut self, number: u32) {
        let Some(socket) = self.sockets.get_mut(&number).filter(|socket| socket.stage == Stage::Usable) else { return };
        socket.stage = Stage::Retired;
        for list in [&mut self.live, &mut self.spare] {
            if let Some(at) = list.iter().position(|&one| one == number) {
                list.swap_remove(at);
            }
        }
        self.close_if_over(number);
    }

    /// Has a retired socket closed if no answer is still to come. Queries of this turn may still have to go out by it.
    fn close_if_over(&mut self, number: u32) {
        let Some(socket) = self.sockets.get_mut(&number).filter(|_| self.chosen != Some(number)) else { return };
        if socket.stage == Stage::Retired && socket.open == 0 {
            socket.stage = Stage::Closing;
            self.closing.push_back(number);
        }
    }

    /// An answer to the query under this id came by the socket, or none will.
    pub(super) fn settle(&mut self, number: u32, id: u16) {
        let Some(socket) = self.sockets.get_mut(&number) else { return };
        socket.open = socket.open.saturating_sub(1);
        socket.settled.push(id);
        self.close_if_over(number);
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

    /// Sends what there is to send by the socket of this turn; gives how many would not go.
    pub(super) fn send(&self, outbox: &mut Outbox) -> usize {
        let socket = self.chosen.and_then(|chosen| self.get(chosen)).filter(|_| !outbox.is_empty());
        socket.map_or(0, |udp| outbox.flush(udp))
    }

    /// Lets go of the socket that was chosen for this turn.
    pub(super) fn end_turn(&mut self) {
        if let Some(chosen) = self.chosen.take() {
            self.close_if_over(chosen);
        }
    }

    /// Retires the sockets that are too old or too many.
    pub(super) fn retire_old(&mut self, now: Instant, most: usize) {
        let is_old = |number: &u32| self.sockets.get(number).is_some_and(|socket| now >= socket.until);
        let surplus = self.live.iter().copied().skip(most);
        let old = self.live.iter().chain(&self.spare).copied().filter(is_old);
        let retired: Vec<u32> = surplus.chain(old).collect();
        retired.into_iter().for_each(|number| self.retire(number));
    }

    /// Closes all of them. Gives their numbers.
    pub(super) fn close_all(&mut self) -> Vec<u32> {
        let Self { sockets, .. } = std::mem::replace(self, Self::to(self.address));
        sockets.into_keys().collect()
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
