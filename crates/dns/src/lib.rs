//! The DNS server: sockets, forwarding, and reading what answers say. It knows
//! nothing of Kubernetes or nftables: what an answer opens is told to a
//! [`Learn`], and the answer held until that has been done.

mod learn;
mod server;
pub mod wire;

pub use learn::{Answer, Learn, LearnError, LearnNothing};
pub use server::{Counters, Listen, OnLearnTimeout, Server, ServerError, Settings, Sockets, UpstreamState};
