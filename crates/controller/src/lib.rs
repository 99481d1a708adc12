//! The controller, one per cluster. It keeps a DNSNameResolver for every name in
//! policies, looks its addresses up again when they expire, and deletes what is
//! no longer needed (S8). Of several replicas one leads, the others are ready.
//!
//! `wanted` says which names there are to be, `schedule` which are due: both are
//! pure, and so are `report`, which says of policies whether they can be read,
//! and `firewalls`, which says what became of ClusterEgressFirewalls.
//! `controller` does it all in turn, in whatever environment it is given, and
//! looks names up by `namewall_dns::lookup`; `metrics` is what a scraper is told.

mod applied;
mod controller;
mod exposure;
mod firewalls;
mod metrics;
mod parts;
mod report;
mod schedule;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod wanted;

pub use controller::{Controller, Counts, Settings};
pub use firewalls::{Firewall, World};
pub use metrics::{ControllerMetrics, METRICS};
pub use report::verdicts;
pub use schedule::{Schedule, Tried};
pub use wanted::{Whose, denied, resolvers, wanted};
