//! The seam to the rules that questions and answers must pass.
//!
//! ```text
//!   client ──► query ──► Forward ──► upstream ──► answer ──► Pass ──► learn ──► client
//!                  │         ▲                        ├─► Instead, Silence
//!                  │         └────────────────────────┴─► Forward
//!                  └─► Reply, Silence
//!                  └─► Later: on a thread that may wait, then one of the others
//! ```
//!
//! A [`Chain`] decides about a question when it comes in. What it knows of a question that is forwarded is in a
//! [`Continuation`], which the server carries until the answer comes: the chain need not read the question again.

use crate::server::WorkerSlot;
use crate::wire::{Rcode, reply};
use std::fmt;
use std::net::SocketAddr;
use std::time::Instant;

/// A question that came in.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The whole message. It has one question that can be read.
    pub query: &'a [u8],
    pub client: SocketAddr,
    /// The address it was sent to.
    pub server: SocketAddr,
    /// How it came.
    pub transport: Transport,
}

impl Asked<'_> {
    /// True if it came over a stream, which has room for any answer.
    pub fn over_tcp(&self) -> bool {
        self.transport.is_stream()
    }
}

/// How a question comes in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Transport {
    #[default]
    Udp,
    Tcp,
    /// DNS over TLS (RFC 7858).
    Tls,
    /// DNS over HTTPS (RFC 8484).
    Https,
}

impl Transport {
    pub fn is_stream(self) -> bool {
        self != Self::Udp
    }

    /// The scheme of a server block.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Udp | Self::Tcp => "dns",
            Self::Tls => "tls",
            Self::Https => "https",
        }
    }
}

/// Decides what becomes of questions. Several threads call it at once, one for each loop of a server. They must never
/// wait.
pub trait Chain: Send + Sync + fmt::Debug {
    /// Decides what becomes of a question.
    fn query(&self, asked: &Asked<'_>) -> Step;

    /// Decides what the client gets for a question whose continuation is lost: the chain has panicked, or no thread
    /// was free to wait for it. There is nothing to pass and no upstream to forward to: either is SERVFAIL.
    fn failed(&self, asked: &Asked<'_>, failure: Failure<'_>) -> Passing {
        Passing::Instead(reply::failure(asked.query, failure.rcode()))
    }
}

/// What a chain knows of a question that was forwarded. One thread at a time calls it, which must never wait.
pub trait Continuation: Send {
    /// Decides what becomes of the answer of an upstream.
    fn answer(self: Box<Self>, heard: &Heard<'_>) -> Passing;

    /// Decides what the client gets if no upstream answered or none could be asked. There is nothing to pass and no
    /// upstream to forward to: either is SERVFAIL.
    fn failed(self: Box<Self>, failure: Failure<'_>) -> Passing;

    /// Takes the answer to a question that was asked again by [`Step::Renew`]. Returns who is asked next if this
    /// answer is not final.
    fn renewed(self: Box<Self>, heard: &Heard<'_>) -> Option<(To, Box<dyn Continuation>)> {
        let _ = heard;
        None
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure<'a> {
    /// No upstream gave one; with the error of the last upstream, if it is known to be more than silence.
    NoAnswer(Option<&'a str>),
    /// So many queries are under way by the route that this one was not sent.
    TooMany,
    /// The chain itself failed, or it may not wait for what it would have to. Its decision must come at once.
    NotJudged,
}

impl Failure<'_> {
    /// The code that clients get.
    pub fn rcode(&self) -> Rcode {
        match self {
            Self::TooMany => Rcode::REFUSED,
            Self::NoAnswer(_) | Self::NotJudged => Rcode::SERV_FAIL,
        }
    }
}

/// What an upstream answered.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'a> {
    pub upstream: SocketAddr,
    /// When the query was sent to it.
    pub since: Instant,
    /// How the query was sent to it.
    pub transport: Transport,
    pub answer: &'a [u8],
}

/// What becomes of a question.
pub enum Step {
    /// Upstreams are asked.
    Forward(To, Box<dyn Continuation>),
    /// The client gets this reply of the chain's own.
    Reply(Vec<u8>),
    /// The client gets this answer, which came from an upstream once: it is learned from.
    Answer(Vec<u8>),
    /// The client gets this answer, as by [`Step::Answer`]. Upstreams are asked again, for the chain alone.
    Renew(Vec<u8>, To, Box<dyn Continuation>),
    Silence,
    /// It will be known later.
    Later(Box<dyn FnOnce() -> Step + Send>),
    /// The same, on a thread of a pool of the chain's own.
    LaterOn(WorkerSlot, Box<dyn FnOnce() -> Step + Send>),
}

/// Who is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// The route of this number in the settings.
    Route(usize),
    /// This server and no other.
    Server(SocketAddr),
}

/// What becomes of an answer.
pub enum Passing {
    /// It is learned from, and passed on as it is.
    Pass,
    /// The client gets this instead.
    Instead(Vec<u8>),
    /// The client gets this answer instead, which came from an upstream once: it is learned from.
    Answer(Vec<u8>),
    /// Other upstreams are asked, and their answer counts.
    Forward(To, Box<dyn Continuation>),
    Silence,
    /// It will be known later.
    Later(Box<dyn FnOnce() -> Passing + Send>),
    /// The same, on a thread of a pool of the chain's own.
    LaterOn(WorkerSlot, Box<dyn FnOnce() -> Passing + Send>),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forward(to, _) => f.debug_tuple("Forward").field(to).finish(),
            Self::Reply(bytes) => f.debug_tuple("Reply").field(bytes).finish(),
            Self::Answer(bytes) => f.debug_tuple("Answer").field(bytes).finish(),
            Self::Renew(bytes, to, _) => f.debug_tuple("Renew").field(bytes).field(to).finish(),
            Self::Silence => f.write_str("Silence"),
            Self::Later(_) | Self::LaterOn(..) => f.write_str("Later"),
        }
    }
}

impl fmt::Debug for Passing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("Pass"),
            Self::Instead(bytes) => f.debug_tuple("Instead").field(bytes).finish(),
            Self::Answer(bytes) => f.debug_tuple("Answer").field(bytes).finish(),
            Self::Forward(to, _) => f.debug_tuple("Forward").field(to).finish(),
            Self::Silence => f.write_str("Silence"),
            Self::Later(_) | Self::LaterOn(..) => f.write_str("Later"),
        }
    }
}
