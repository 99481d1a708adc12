//! The DNS server: sockets, forwarding, and reading what answers say. It knows
//! nothing of Kubernetes or nftables: what an answer opens is told to a
//! [`Learn`], and the answer held until that has been done; what passes at all is
//! decided by a [`Chain`], where there is one.

mod ask;
mod caught;
mod chain;
pub mod doh;
mod learn;
pub mod lookup;
mod server;
pub mod wire;

/// Sequences of events through the server's engine, for fuzzing.
#[cfg(feature = "testing")]
pub mod testing {
    pub use crate::server::testing::play;
}

pub use ask::{AskError, LookupAnswer, ask, pass_on};
pub use caught::{caught, is_caught};
pub use chain::{Asked, Chain, Continuation, Failure, Heard, Passing, Step, To, Transport};
pub use learn::{Answer, Learn, LearnError, LearnNothing, Opens};
pub use server::{
    Counters, EncryptedCounters, EncryptedListen, Health, Left, Listen, NewEncryptedSockets, NewSockets,
    OnLearnTimeout, Route, Server, ServerError, Settings, Sockets, Tls, Unanswered, Upstream, UpstreamOrder,
    UpstreamState, UpstreamTransport, WorkerSlot, Workers, allow_more_files,
};
