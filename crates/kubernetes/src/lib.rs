//! The API server's side: what a cluster is watched for, and what it is told.
//! What the objects say is read in `cluster`; what follows is decided in `policy`.
//!
//! The logic takes its [`Environment`] as an argument: an [`api::ApiServer`], a
//! clock, randomness and tasks. `client` and `server` are the edge to tokio and
//! kube, and `waiting` to threads that wait; the rest knows none of them, and
//! runs in a simulation too (`testing`).

mod addresses;
pub mod api;
mod client;
mod clocks;
pub mod crds;
mod environment;
mod events;
mod firewall_report;
mod follow;
mod leadership;
mod metrics;
mod names;
mod object_watch;
mod objects;
mod publish;
mod report;
mod server;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod view;
mod waiting;
mod watch;

pub use addresses::Enforces;
pub use client::{ConnectError, Connection, Endpoint, Target};
pub use environment::{Environment, Patience};
pub use events::NodeTopic;
pub use firewall_report::{FirewallNotice, FirewallReport, Truth};
pub use leadership::{Candidate, Leadership};
pub use metrics::{SHARED_METRICS, WATCH_METRICS, WatchMetrics};
pub use names::{MANAGED_BY, NameObject, SharedAddress};
pub use object_watch::{ObjectSink, ObjectWatch};
pub use publish::{Outcome, Published, Publisher};
pub use report::{NodesReport, Verdict};
pub use view::Trouble;
pub use watch::{Waker, Watch};
