//! A cluster in network namespaces on one machine: every node, every pod and
//! the world outside are real ends of real connections, so what a firewall
//! lets through can be *measured*.
//!
//! ```text
//!   pod shop/web        node n1                       outside
//!   ┌──────────┐        ┌───────────────────┐         ┌───────────────────┐
//!   │ 10.0.1.2 │ eth0 ─ pod100   192.0.2.1 eth0 ───── node100             │
//!   └──────────┘        │                   │         │ lo 198.51.100.7   │
//!   ┌──────────┐        │ a route a pod     │         │ a route a node,   │
//!   │ 10.0.1.3 │ eth0 ─ pod101              │         │ a route a pod     │
//!   └──────────┘        └───────────────────┘         └───────────────────┘
//! ```
//!
//! Nothing here has a name in the system: namespaces are held by file
//! descriptors alone. When the process ends, however it ends, the kernel takes
//! all of it away. Nothing touches the network namespace the process is in.
//!
//! [`Topology`] says what there is to build, from a Snapshot, and is pure.
//! [`Sandbox`] builds it, changes it, listens in it and probes it. [`Cluster`]
//! puts namewall's table and kube-proxy's into every node's namespace, where
//! all traffic of its pods passes. [`Packets`] plays scenarios in it.
//! [`NameServers`] are the DNS outside, and [`Sandbox::ask`] a pod's client of it.

mod assign;
mod cluster;
mod connection;
mod dns;
mod error;
mod limits;
mod links;
mod listen;
mod netns;
mod packet;
mod probe;
mod question;
mod reality;
mod renewing;
mod rights;
mod sandbox;
mod services;
mod socket;
mod sysctl;
mod topology;

pub use assign::{Assigned, assign_addresses};
pub use cluster::{Cluster, Wanted};
pub use connection::Connection;
pub use dns::{Ask, Heard, NameServers, Opening, Questions};
pub use error::Error;
pub use listen::Listen;
pub use netns::Namespace;
pub use probe::{Measured, Probe, ProbeSource};
pub use question::{Answer, Question};
pub use reality::Packets;
pub use rights::{RightsError, ensure_rights, enter_user_namespace};
pub use sandbox::{Changes, Progress, Sandbox, Wiring, gateway_of};
pub use topology::{DEFAULT_NODE, LeftOut, NodePlan, PodPlan, Topology, Unusable};
