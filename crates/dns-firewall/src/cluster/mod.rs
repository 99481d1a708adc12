//! `kubernetes`: names of a cluster, as the Kubernetes DNS specification has them and as CoreDNS answers them.
//!
//! [`ClusterIndex`] has the objects that names are made of. The caller feeds it from an API server, through
//! [`Clusters`]: this crate knows none. `name` reads a name of the cluster, `find` finds what it stands for, and
//! `answer` writes the answer.

mod answer;
mod find;
mod index;
mod name;
mod objects;

pub(crate) use answer::{ClusterAnswer, ClusterZones};
pub use index::{Before, ClusterIndex};
pub(crate) use name::ClusterNames;
pub use objects::{
    ClusterKey, ClusterKind, ClusterObject, EndpointRecord, PortRecord, ServiceForm, ServiceRecord, SliceRecord,
};

use namewall_corefile::Kubernetes;
use std::fmt::Debug;
use std::sync::Arc;

/// Where the objects of clusters come from.
pub trait Clusters: Debug + Send + Sync {
    /// The objects of the cluster that a directive names, as far as it selects them. Does not wait for the API server.
    /// Two calls with the same directive return the same index.
    fn open(&self, directive: &Kubernetes) -> Result<Arc<ClusterIndex>, String>;
}
