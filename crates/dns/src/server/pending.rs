//! Queries under way: asked, or answered and held.

use super::crew::Origin;
use super::engine::ChainVersion;
use super::route::{Route, RouteSlot};
use crate::chain::{Continuation, Transport};
use crate::wire::{HEADER, Question};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

/// A place in the table; `generation` tells whether it is still the same query there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// Who is to get the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Client {
    Udp {
        listener: usize,
        from: SocketAddr,
    },
    Tcp {
        connection: Ticket,
        /// By which it came: the connection may be gone before the answer is there.
        listener: usize,
        from: SocketAddr,
    },
    /// Over TLS or HTTPS: other threads have the connection.
    Encrypted {
        origin: Origin,
        /// Where it came in.
        server: SocketAddr,
        from: SocketAddr,
    },
    /// Nobody: we ask whether an upstream is back.
    Probe,
    /// Nobody but the chain, which answered this client from what it had.
    Renewal {
        server: SocketAddr,
        from: SocketAddr,
        over_tcp: bool,
    },
}

impl Pending {
    /// The name of its question, as the client wrote it.
    pub(super) fn name(&self) -> &[u8] {
        self.query.get(HEADER..self.name_end).unwrap_or_default()
    }

    /// True if both ask the same in every byte but the id and the letter case of the name, and by the same way.
    pub(super) fn asks_the_same(&self, other: &Self) -> bool {
        self.client.is_by_tcp() == other.client.is_by_tcp()
            && self.name().eq_ignore_ascii_case(other.name())
            && self.query.get(2..HEADER) == other.query.get(2..HEADER)
            && self.query.get(self.name_end..) == other.query.get(other.name_end..)
    }
}

impl Client {
    pub(super) fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Udp { from, .. } | Self::Tcp { from, .. } | Self::Encrypted { from, .. } => {
                Some(super::settings::plain(*from))
            }
            Self::Probe | Self::Renewal { .. } => None,
        }
    }

    pub(super) fn listener(&self) -> Option<usize> {
        match *self {
            Self::Udp { listener, .. } | Self::Tcp { listener, .. } => Some(listener),
            Self::Encrypted { .. } | Self::Probe | Self::Renewal { .. } => None,
        }
    }

    /// Whether somebody waits for the answer.
    pub(super) fn waits(&self) -> bool {
        matches!(self, Self::Udp { .. } | Self::Tcp { .. } | Self::Encrypted { .. })
    }

    /// How the question came. A question that nobody waits for stands for one that came over UDP or TCP.
    pub(super) fn transport(&self) -> Transport {
        match self {
            Self::Encrypted { origin, .. } => origin.transport,
            other if other.is_by_tcp() => Transport::Tcp,
            _ => Transport::Udp,
        }
    }

    /// Whether the question came by TCP, encrypted or not, as far as it came from anybody.
    pub(super) fn is_by_tcp(&self) -> bool {
        matches!(self, Self::Tcp { .. } | Self::Encrypted { .. } | Self::Renewal { over_tcp: true, .. })
    }
}

/// The way a query went: over a socket of an upstream, under an id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Link {
    Udp {
        socket: u32,
        id: u16,
    },
    Tcp {
        connection: u32,
        id: u16,
    },
    /// A request over HTTPS, by the number of the connection.
    Https {
        connection: u32,
        id: u16,
    },
}

pub(super) struct Pending {
    pub(super) client: Client,
    /// The id the client gave it.
    pub(super) id: u16,
    pub(super) query: Vec<u8>,
    /// Where the name of its question ends.
    pub(super) name_end: usize,
    /// The name as it was sent, in random letter case; empty if it was sent as the client wrote it.
    pub(super) sent: Vec<u8>,
    /// The hash by which the same question finds this one, while upstreams are asked for it.
    pub(super) join_key: Option<u64>,
    /// Queries that wait for the answer to this one. Some may be over.
    pub(super) joined: Vec<Ticket>,
    /// What is held, once there is an answer.
    pub(super) answer: Vec<u8>,
    /// By what it is judged, whatever changes meanwhile.
    pub(super) chain_version: Option<Arc<ChainVersion>>,
    /// None for a probe.
    pub(super) route: Option<Arc<Route>>,
    /// Its place among the route's queries.
    pub(super) place: Option<RouteSlot>,
    /// Which of the route's upstreams was asked first.
    pub(super) first: usize,
    /// What the chain knows of it, while an upstream is asked.
    pub(super) continuation: Option<Box<dyn Continuation>>,
    /// An answer over UDP was too long.
    pub(super) wants_tcp: bool,
    /// No reply over UDP can be trusted.
    pub(super) distrusts_udp: bool,
    /// It was last asked over a connection, which has room for any answer.
    pub(super) is_by_stream: bool,
    pub(super) upstream: usize,
    pub(super) link: Option<Link>,
    pub(super) tries: u8,
    pub(super) begun: Instant,
    pub(super) last_asked: Instant,
    generation: u32,
    live: bool,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("client", &self.client).field("link", &self.link).finish_non_exhaustive()
    }
}

/// All of them. A query's buffers serve the next one in its place.
#[derive(Default, Debug)]
pub(super) struct Table {
    slots: Vec<Pending>,
    free: Vec<u32>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, client: Client, query: &[u8], now: Instant) -> Ticket {
        let id = query.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Pending {
                client,
                id,
                query: Vec::new(),
                name_end: 0,
                sent: Vec::new(),
                join_key: None,
                joined: Vec::new(),
                answer: Vec::new(),
                chain_version: None,
                route: None,
                place: None,
                first: 0,
                continuation: None,
                wants_tcp: false,
                distrusts_udp: false,
                is_by_stream: false,
                upstream: 0,
                link: None,
                tries: 0,
                begun: now,
                last_asked: now,
                generation: 0,
                live: false,
            });
            self.slots.len() as u32 - 1
        });
        let pending = &mut self.slots[slot as usize];
        pending.client = client;
        pending.id = id;
        pending.query.clear();
        pending.query.extend_from_slice(query);
        pending.name_end = Question::end(query).map_or(HEADER, |end| end - Question::AFTER_NAME);
        pending.answer.clear();
        pending.sent.clear();
        pending.joined.clear();
        (pending.join_key, pending.distrusts_udp) = (None, false);
        (pending.link, pending.tries, pending.live) = (None, 0, true);
        (pending.route, pending.first, pending.continuation, pending.wants_tcp) = (None, 0, None, false);
        (pending.chain_version, pending.place, pending.is_by_stream) = (None, None, false);
        (pending.begun, pending.last_asked) = (now, now);
        Ticket { slot, generation: pending.generation }
    }

    /// Two queries, if both are under way.
    pub(super) fn both(&self, one: Ticket, other: Ticket) -> Option<(&Pending, &Pending)> {
        let at = |ticket: Ticket| self.slots.get(ticket.slot as usize).filter(|_| self.has(ticket));
        Some((at(one)?, at(other)?))
    }

    /// The ticket of the query at a place.
    pub(super) fn ticket(&self, slot: u32) -> Ticket {
        Ticket { slot, generation: self.slots.get(slot as usize).map_or(0, |pending| pending.generation) }
    }

    /// Those under way.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Pending> {
        self.slots.iter().filter(|pending| pending.live)
    }

    pub(super) fn has(&self, ticket: Ticket) -> bool {
        let pending = self.slots.get(ticket.slot as usize);
        pending.is_some_and(|pending| pending.live && pending.generation == ticket.generation)
    }

    pub(super) fn get(&mut self, ticket: Ticket) -> Option<&mut Pending> {
        let pending = self.slots.get_mut(ticket.slot as usize)?;
        (pending.live && pending.generation == ticket.generation).then_some(pending)
    }

    pub(super) fn remove(&mut self, ticket: Ticket) {
        if let Some(pending) = self.get(ticket) {
            pending.live = false;
            pending.generation = pending.generation.wrapping_add(1);
            // A chain that is gone must not be kept by questions that are.
            (pending.chain_version, pending.continuation, pending.place) = (None, None, None);
            pending.route = None;
            if pending.joined.capacity() > 64 {
                pending.joined = Vec::new();
            }
            // One large message must not keep its memory for ever.
            for buffer in [&mut pending.query, &mut pending.answer] {
                if buffer.capacity() > 4096 {
                    *buffer = Vec::new();
                }
            }
            self.free.push(ticket.slot);
        }
    }
}
