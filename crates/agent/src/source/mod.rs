//! Where policies and pods come from: files that are read again when they
//! change, or an API server that is watched.

mod cluster;
mod files;
pub mod look;
mod stand_in;
mod storage;

pub use cluster::{ClusterSettings, ClusterSource, WaitForCluster};
pub use files::{FileSettings, Files};
pub(crate) use storage::{StorageError, WriteHow, read_file, second_file, write_file};
pub use storage::{StorageSettings, StorageStatus};

use crate::signals::Signals;
use namewall_cluster::{Key, LoadError, PodAddresses, Read};
use namewall_kubernetes::{NameObject, NodeTopic, Publisher, Trouble};
use namewall_policy::addr::Cidr;
use namewall_policy::{Finding, Snapshot};
use namewall_telemetry::Export;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// How often files are compared, and how long the loop waits for an event of a cluster.
const TICK: Duration = Duration::from_millis(100);

/// What the loop does next.
#[derive(Debug)]
pub enum Event {
    /// A signal: end.
    Stop,
    /// A signal: read the settings again.
    Reload,
    /// Policies, pods or nodes have changed.
    Changed,
    /// Other nodes have learned something.
    Names(Vec<(Key, Option<NameObject>)>),
    Nothing,
}

pub trait Source {
    /// Waits for the next event, for one tick at most.
    fn next(&mut self, signals: &dyn Signals) -> Event;

    /// Reads all of it.
    fn read(&mut self) -> Result<Read, LoadError>;

    /// Takes the addresses that this node's runtime has given its pods. They are in what is read next (S1.9).
    fn attach(&mut self, _pods: &[PodAddresses]) {}

    /// The pods that have, in what was read last, the addresses that the runtime has given them.
    fn attached(&self) -> BTreeSet<Key> {
        BTreeSet::new()
    }

    /// Ends `next` early, from another thread. None if a tick is soon enough.
    fn waker(&self) -> Option<Box<dyn Fn() + Send + Sync>> {
        None
    }

    /// Why what was read last may lack objects that an earlier process has enforced: they cannot be read, and no good
    /// version of them is stored. While rules of that process are in the kernel, those stay as they are (S10.3).
    fn gap(&self) -> Option<String> {
        None
    }

    /// Stores what was read last, since it is about to be enforced. A process that starts later falls back to it.
    fn keep(&mut self) {}

    /// What became of the stored objects.
    fn storage(&self) -> StorageStatus {
        StorageStatus::default()
    }

    /// What was read last is in force now.
    fn enforced(&mut self) {}

    /// Whether pods come and go all the time, so that only changes of policies are worth a line in the log.
    fn is_busy(&self) -> bool {
        false
    }

    /// The blocks that only pods get addresses from, and of them only those of this node where that is known. Empty if
    /// unknown pods are not closed.
    fn pod_blocks(&self, _node: Option<&str>) -> Vec<Cidr> {
        Vec::new()
    }

    /// What is missing for unknown pods of this node to be closed.
    fn about_pod_network(&self, _node: Option<&str>, _snapshot: &Snapshot) -> Option<Finding> {
        None
    }

    /// The cluster's DNS Service.
    fn dns_service(&self) -> Option<Key> {
        None
    }

    /// Where the cluster's DNS Service answers.
    fn dns_servers(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    /// Publishes what this node learns.
    fn publisher(&self) -> Option<Publisher> {
        None
    }

    /// The metrics of the watches, if there are any.
    fn metrics(&self) -> Option<Arc<dyn Export>> {
        None
    }

    /// What keeps the API server from being watched.
    fn trouble(&self) -> Vec<Trouble> {
        Vec::new()
    }

    /// Publishes the addresses of this node and what it enforces, as far as they have changed. True if the other nodes
    /// can know the addresses.
    fn publish(&mut self, _node: &str, _addresses: &BTreeSet<IpAddr>) -> bool {
        true
    }

    /// Tells users what is wrong on this node with this topic. Without an error: nothing is.
    fn warn_users(&mut self, _node: &str, _topic: NodeTopic, _error: Option<&str>) {}
}
