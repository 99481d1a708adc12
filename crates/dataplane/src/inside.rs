//! Second interfaces of pods (S1.9, S7.4): a table inside each pod's network
//! namespace judges what goes through the pod's interfaces other than its own
//! one in the cluster's network. The node's hooks do not see that traffic:
//! a macvlan goes past them, and a second veth leads where no policy looks.
//!
//! ```text
//! output, input of the pod's namespace: the policies of the pod (render::inside)
//! netdev egress of each second interface: sources that are the interface's own, nothing of packet sockets (guard)
//! ```
//! The namespace is reached through sockets that were opened in it
//! ([`PodSockets`]). `nft::inside` keeps the tables current.

use crate::conntrack::Connection;
use crate::guard::ExtraSource;
use crate::netlink::PodSockets;
use crate::nflog::Told;
use crate::render::Scope;
use namewall_policy::model::Direction;
use namewall_policy::{Instant, LeaseTable, Program};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// A pod whose network namespace can be reached.
#[derive(Clone, Debug)]
pub struct PodNamespace {
    /// The namespace's own name: a pod that is made anew has another one.
    pub id: String,
    /// The pod, as NAMESPACE/NAME.
    pub pod: String,
    /// The name of the pod's own interface, which the node's hooks see.
    pub own: String,
    /// The pod's own addresses, by which the Program knows it.
    pub addresses: Vec<IpAddr>,
    /// True if the pod runs already, and its table was made by an earlier process.
    pub has_table: bool,
    /// The number of the last change to any table of the namespace that an earlier process has seen, if that is known.
    pub last_seen: Option<u32>,
    /// Sources that the settings allow the pod besides, on its second interfaces too.
    pub extra: Vec<ExtraSource>,
    pub sockets: Arc<Mutex<PodSockets>>,
}

/// What is enforced inside a pod's network namespace.
#[derive(Clone, Copy, Debug)]
pub struct Inside<'a> {
    pub pod: &'a PodNamespace,
    pub program: &'a Program,
    pub scope: &'a Scope,
    pub leases: &'a LeaseTable,
    pub now: Instant,
}

/// What a pod's frames are held to on its second interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FrameChecks {
    /// Sources, and packet sockets.
    #[default]
    Full,
    /// Sources alone: the kernel does not tell packet sockets apart.
    Sources,
    /// None: the kernel has no hook there.
    None,
}

/// What became of one pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecondStatus {
    pub id: String,
    pub pod: String,
    /// Its second interfaces.
    pub interfaces: Vec<String>,
    /// True if the pod's policies judge them; false if they are closed since the pod is not known.
    pub is_judged: bool,
    pub frames: FrameChecks,
    /// How often the tables were found changed by somebody else, and made right.
    pub repaired: u64,
    /// Why the tables are not as they should be.
    pub failure: Option<String>,
    /// Why denials on second interfaces are not logged.
    pub unlogged: Option<String>,
}

/// A connection over a second interface of a pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecondConnection {
    pub connection: Connection,
    /// Egress if the pod has opened it or forwards it.
    pub direction: Direction,
}

/// The connections over the second interfaces of one pod.
#[derive(Clone, Debug)]
pub struct PodConnections<E> {
    /// The namespace's own name.
    pub id: String,
    /// The pod, as NAMESPACE/NAME.
    pub pod: String,
    /// The pod's own addresses, by which the Program knows it.
    pub addresses: Vec<IpAddr>,
    pub connections: Result<Vec<SecondConnection>, E>,
}

/// Denials on second interfaces of one pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodDenials {
    /// The pod, as NAMESPACE/NAME.
    pub pod: String,
    pub told: Told,
}
