//! The seam to whoever judges questions and answers.
//!
//! ```text
//!   client ──► query ──► Forward ──► upstream ──► answer ──► Pass ──► learn ──► client
//!                  │         ▲                        ├─► Instead, Silence
//!                  │         └────────────────────────┴─► Forward
//!                  └─► Reply, Silence
//!                  └─► Later: on a thread that may wait, then one of the others
//! ```

use crate::wire::{Rcode, reply};
use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::time::Instant;

/// A question that came in.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The whole message. It has one question that can be read.
    pub query: &'a [u8],
    pub client: SocketAddr,
    /// Where it came in.
    pub server: SocketAddr,
    pub over_tcp: bool,
}

/// What a chain wants to know again when the answer comes.
pub type Notes = Box<dyn Any + Send>;

/// Judges questions and answers. It is asked by one thread at a time, which never waits.
pub trait Chain: Send + Sync + fmt::Debug {
    fn query(&self, asked: &Asked<'_>) -> Step;

    /// Of an answer that came from an upstream, with what the query left.
    fn answer(&self, asked: &Asked<'_>, answer: &[u8], notes: Option<Notes>) -> Passing;

    /// An upstream's answer is there; what becomes of it is asked next. For who keeps account.
    fn heard(&self, asked: &Asked<'_>, heard: &Heard<'_>) {
        let _ = (asked, heard);
    }

    /// Nobody answered, or nobody could be asked: what the client gets then. With what the query left, if it
    /// came as far as that. There is nothing to pass and nobody to forward to: either is SERVFAIL.
    fn failed(&self, asked: &Asked<'_>, failure: Failure<'_>, notes: Option<Notes>) -> Passing {
        let _ = notes;
        Passing::Instead(reply::failure(asked.query, failure.rcode()))
    }

    /// The answer to what was asked behind a client's back, by [`Step::Renew`]; and who else is to be asked, if it
    /// is not the last word.
    fn renewed(&self, asked: &Asked<'_>, answer: &[u8], notes: Option<Notes>) -> Option<(To, Option<Notes>)> {
        let _ = (asked, answer, notes);
        None
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure<'a> {
    /// No upstream gave one; and what was wrong with the last, if it is known to be more than silence.
    NoAnswer(Option<&'a str>),
    /// So many queries are under way by the route that this one was not asked.
    TooMany,
    /// The chain itself failed, or it may not wait for what it would have to: what it says must be said at once.
    NotJudged,
}

impl Failure<'_> {
    /// What clients are told.
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
    /// When it was asked.
    pub since: Instant,
    /// How it was asked.
    pub over_tcp: bool,
    pub answer: &'a [u8],
}

/// What becomes of a question.
pub enum Step {
    /// Upstreams are asked.
    Forward(To, Option<Notes>),
    /// The client gets this, which is no answer of anybody else's.
    Reply(Vec<u8>),
    /// The client gets this, which somebody answered once: it is learned from.
    Answer(Vec<u8>),
    /// The same; and upstreams are asked behind its back, for the chain alone.
    Renew(Vec<u8>, To),
    Silence,
    /// It will be known later.
    Later(Box<dyn FnOnce() -> Step + Send>),
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
    /// The client gets this instead, which somebody answered once: it is learned from.
    Answer(Vec<u8>),
    /// Others are asked, and it is theirs that counts.
    Forward(To, Option<Notes>),
    Silence,
    /// It will be known later.
    Later(Box<dyn FnOnce() -> Passing + Send>),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forward(to, _) => f.debug_tuple("Forward").field(to).finish(),
            Self::Reply(bytes) => f.debug_tuple("Reply").field(bytes).finish(),
            Self::Answer(bytes) => f.debug_tuple("Answer").field(bytes).finish(),
            Self::Renew(bytes, to) => f.debug_tuple("Renew").field(bytes).field(to).finish(),
            Self::Silence => f.write_str("Silence"),
            Self::Later(_) => f.write_str("Later"),
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
            Self::Later(_) => f.write_str("Later"),
        }
    }
}
