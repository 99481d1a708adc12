//! The pure core of namewall: no I/O, no clock, no Kubernetes.
//!
//! A [`Snapshot`] of a cluster is compiled into a [`Program`]; [`evaluate()`]
//! answers, for one connection, whether it may be opened and why; `explain`
//! tells the whole walk; `reach` computes what may be opened at all, exactly.
//! All of them read the same Program, and so do the kernel's tables.

pub mod addr;
pub mod ask;
pub mod bits;
mod compile;
pub mod diff;
pub mod dns_codes;
pub mod domain;
mod evaluate;
pub mod explain;
pub mod finding;
pub mod flow;
pub mod interval;
pub mod labels;
pub mod lease;
pub mod lint;
pub mod model;
pub mod node_ports;
pub mod pieces;
pub mod port;
pub mod program;
pub mod reach;
pub mod shards;
pub mod snapshot;
pub mod unknown;

pub use compile::{asked_labels, compile, compile_next};
pub use evaluate::evaluate;
pub use explain::{Explanation, explain};
pub use finding::{Finding, Severity, Source};
pub use flow::{Cause, Decision, Endpoint, Flow, Hop, Masker, Reason, Stage, Verdict};
pub use lease::{Instant, Lease, LeaseRef, LeaseStore, LeaseTable};
pub use program::Program;
pub use snapshot::Snapshot;
pub use unknown::{Condition, Dependence, Outlook, Prediction};
