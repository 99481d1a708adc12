//! The words the core speaks: what a cluster is made of, and what a policy
//! says. Plain values, no Kubernetes, no files.
//!
//! Every policy kind becomes one [`Policy`]: where it stands in the walk of S1
//! ([`Placement`]), whom it selects ([`Subject`]) and its rules. What differs
//! between kinds was settled when they were lowered into this form.

pub(crate) mod cluster;
mod policy;

pub(crate) use cluster::id;
pub use cluster::{
    Backend, BackendTarget, DnsConfig, DnsPolicy, NamedPort, Namespace, NamespaceId, Node, NodeId, Owner, Role, RoleId,
    ServedAddress, Service, ServiceForm, ServiceId, ServicePort, Workload, WorkloadId, WorkloadKind,
};
pub use policy::{
    Action, Clauses, Direction, Enforcement, NamespaceScope, Peer, Peers, Placement, PodSet, Policy, PolicyId,
    PolicyKind, PolicyRef, PortMatch, Ports, Rule, Subject,
};
