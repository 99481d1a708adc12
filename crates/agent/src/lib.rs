//! One node. An [`Agent`] is its loop: it reads policies from a [`Source`], puts
//! them into the kernel, serves pods' DNS, and learns which addresses names open.
//! [`Node`] is the part without the loop: the kernel, the DNS server and the
//! leases. The sandbox uses it with a loop of its own. What is allowed is decided
//! in `policy`.

mod addresses;
mod agent;
mod config;
mod control;
mod counters;
mod cuts;
mod denials;
mod denied_names;
mod enforcer;
mod error;
mod history;
mod hold;
mod identity;
mod learner;
mod memo;
mod metrics;
mod name_rules;
mod node;
mod recent;
mod renewal;
mod retry;
mod settle;
mod share;
mod sharing;
mod signals;
mod source;
mod state;
mod takeover;
#[cfg(test)]
mod testing;
mod tunnels;
mod unpublished;
mod upstreams;
mod warning;

pub use addresses::{Machine, ThisMachine};
pub use agent::{Agent, Ended, OpenDataplane, ReadConfig, Start};
pub use config::{Config, ConfigError, DNS_PORT, DnsConfig, FixedSettings};
pub use control::{AskError, Explain, LiveQuestion, Running, rules_of};
pub use counters::Counters;
pub use cuts::{CutConnection, CutReport};
pub use error::AgentError;
pub use identity::{AllowedSource, AttachError, NotASource};
pub use learner::{Learner, Learning, Refused};
pub use metrics::METRICS;
pub use namewall_runtime::{Clock, ManualClock, SystemClock};
pub use node::{DnsSettings, Node, NodeError, NodeSettings};
pub use renewal::{Renewal, RenewalRules, Renewals, Renewing};
pub use settle::Settle;
pub use share::{Heard, Share};
pub use sharing::{LearnedElsewhere, Publishing};
pub use signals::{Signal, Signals};
pub use source::{
    ClusterSettings, ClusterSource, Event, FileSettings, Files, Source, StorageSettings, StorageStatus, WaitForCluster,
    look,
};
pub use takeover::TakeoverError;
