//! The DNS firewall (S9): which questions and which answers pass, by rules in a
//! Corefile. It judges; the sockets are the DNS server's.

pub mod corefile;
mod engine;
mod expression;
mod fact;
mod http;
pub mod opa;
mod outcome;
pub mod rbac;
pub mod serve;
pub mod themis;
pub mod zone;

pub use engine::{Engine, EngineError, Judged, Judgement};
pub use expression::{Computed, EvaluationError, Expression, ExpressionError};
pub use fact::{Fact, Facts, Kind, Phase, Value};
pub use outcome::Outcome;
