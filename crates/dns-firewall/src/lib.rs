//! The DNS firewall (S9): a Corefile at work. It decides which questions and answers pass by the rules of the
//! Corefile, and is a `Chain` of the DNS server, which owns the sockets of clients.
//!
//! ```text
//! question ─► block by zone and port ─► query rules ─► local ─► cache ─► forward ─► upstream
//!                                            │           └────────┴──────────────┬──────┘
//!                                            └─► reply                  response rules ─► client
//! ```
//!
//! What became of a question is a [`Report`]: `log`, `dnstap`, `metrics` and `errors` tell it.

mod acl;
mod answer;
mod build;
mod cache;
mod certificates;
mod clients;
mod cluster;
mod disk;
mod dns64;
mod dnstap;
mod endpoints;
mod engines;
mod errors;
mod exchange;
mod explain;
mod fixed;
mod forward;
mod geoip;
mod host_table;
mod hosts;
mod lane;
mod list_files;
mod loadbalance;
mod local;
mod log;
mod lookup;
mod loops;
mod message;
mod metrics;
mod names;
mod query;
mod random;
mod records;
mod reply;
mod report;
mod rewrite;
mod rpz;
mod rules;
mod service;
mod service_hints;
mod shape;
mod tell;
mod template;
mod views;
mod watch;

pub use build::{BuildError, Built, Surroundings, build, build_with};
pub use cluster::{
    Before, ClusterIndex, ClusterKey, ClusterKind, ClusterObject, Clusters, EndpointRecord, PortRecord, ServiceForm,
    ServiceRecord, SliceRecord,
};
pub use disk::Disk;
pub use endpoints::{Endpoint, Endpoints, What, lameduck};
pub use explain::{End, Explanation, ListTold, RuleTold, Walked, Way};
pub use message::{Identities, Strangers};
pub use metrics::{METRICS, count_panics};
pub use names::{LookedUp, Names};
pub use service::Service;
pub use tell::Teller;
