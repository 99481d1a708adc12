//! The API server's side: what a cluster is watched for, and what it is told.
//! What the objects say is read in `cluster`; what follows is decided in `policy`.
//!
//! The rest of namewall knows threads and no runtime; here one thread has one.

mod addresses;
mod answers;
mod client;
mod clocks;
pub mod crds;
mod events;
mod follow;
mod leadership;
mod metrics;
mod names;
mod objects;
mod publish;
mod report;
mod watch;

pub use client::{ConnectError, Connection, Target};
pub use leadership::{Candidate, Leadership};
pub use metrics::{SHARED_METRICS, WATCH_METRICS, WatchMetrics};
pub use names::{MANAGED_BY, NameObject, SharedAddress};
pub use publish::{Outcome, Published, Publisher};
pub use report::Verdict;
pub use watch::{Trouble, Watch};
