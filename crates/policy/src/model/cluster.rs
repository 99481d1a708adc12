//! Namespaces, workloads, nodes and services, as far as policies can see them.

use crate::domain::DomainName;
use crate::finding::Source;
use crate::labels::Labels;
use crate::port::{Protocol, TransportPort};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub struct $name(pub u32);

        impl $name {
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}
pub(crate) use id;

id! {
    NamespaceId, NodeId, ServiceId, WorkloadId,
    /// Workloads that no selector can tell apart.
    RoleId,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    pub name: Arc<str>,
    pub labels: Labels,
    /// The annotation of S3.1: every pod here is isolated for ingress.
    pub default_deny_ingress: bool,
    pub source: Option<Source>,
}

/// A namespace and labels: all that selectors can see of a workload. Selectors
/// are matched once a Role, however many pods play it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Role {
    pub namespace: NamespaceId,
    pub labels: Labels,
    /// Roles of `hostNetwork` pods are apart: no pod or namespace peer sees them (S1).
    pub host_network: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum WorkloadKind {
    Pod,
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
    CronJob,
    ReplicationController,
}

impl WorkloadKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::Job => "Job",
            Self::CronJob => "CronJob",
            Self::ReplicationController => "ReplicationController",
        }
    }
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NamedPort {
    pub name: Arc<str>,
    pub protocol: Protocol,
    pub port: u16,
}

/// A pod, or a pod template that stands for pods that have no address yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workload {
    pub kind: WorkloadKind,
    pub namespace: NamespaceId,
    pub name: Arc<str>,
    pub role: RoleId,
    /// The pod's addresses as the API server has them (`status.podIPs`); empty for a template.
    pub addresses: Arc<[IpAddr]>,
    /// Addresses of second networks, as an annotation of the pod lists them. Whoever may patch the pod can write any
    /// address there, so they count only as sources on the pod's own interface (S1.9). The Program has none of them.
    pub second_addresses: Arc<[IpAddr]>,
    pub node: Option<NodeId>,
    pub host_network: bool,
    /// The named container ports.
    pub ports: Arc<[NamedPort]>,
    /// None for a template, and for a pod that no controller made.
    pub owner: Option<Arc<Owner>>,
    pub source: Option<Source>,
}

/// The workload that a pod is a replica of: the Deployment rather than its
/// ReplicaSet. Policies do not see it; the views show a pod under it. The kind
/// is text because controllers of any kind make pods.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Owner {
    pub kind: Arc<str>,
    pub name: Arc<str>,
}

impl Workload {
    /// Whether it stands for pods that do not exist yet.
    pub fn is_template(&self) -> bool {
        self.kind != WorkloadKind::Pod
    }

    /// A place that nobody has any more: numbers of others stay as they are when one goes.
    #[must_use]
    pub fn vacated(&self) -> Self {
        Self {
            name: "".into(),
            addresses: Arc::default(),
            second_addresses: Arc::default(),
            ports: Arc::default(),
            owner: None,
            source: None,
            ..self.clone()
        }
    }

    pub fn is_vacant(&self) -> bool {
        self.name.is_empty()
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub name: Arc<str>,
    pub labels: Labels,
    /// Every address on the node's interfaces that is known (S7.2).
    pub addresses: Vec<IpAddr>,
    pub source: Option<Source>,
}

/// An address at which the API server is asked, and the port it serves there (S7.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServedAddress {
    pub address: IpAddr,
    pub port: TransportPort,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    pub namespace: NamespaceId,
    pub name: Arc<str>,
    pub form: ServiceForm,
    /// Cluster, external and load-balancer addresses, as far as they are known: a manifest that is not applied yet has
    /// no cluster address.
    pub addresses: Vec<IpAddr>,
    /// Those of them by which clients outside come in: external and load-balancer addresses.
    pub external: Vec<IpAddr>,
    /// Those of these that no node translates: load-balancer addresses with `ipMode: Proxy` (S1.11).
    pub proxied: Vec<IpAddr>,
    pub ports: Vec<ServicePort>,
    pub source: Option<Source>,
}

impl Service {
    /// The addresses that nodes translate.
    pub fn translated(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().copied().filter(|address| !self.proxied.contains(address))
    }

    /// True if nodes translate connections to this address.
    pub fn is_translated_at(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address) && !self.proxied.contains(&address)
    }

    /// True if its node ports are there at addresses of this version of IP: it serves those of its own addresses, and
    /// possibly both while it has none.
    pub fn is_served_over(&self, is_ipv4: bool) -> bool {
        self.addresses.is_empty() || self.addresses.iter().any(|address| address.is_ipv4() == is_ipv4)
    }
}

/// How clients come to a Service's backends.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum ServiceForm {
    /// Through addresses of its own, which translate ports.
    #[default]
    Balanced,
    /// `clusterIP: None`: its name stands for its backends, and no port is translated (S10.4).
    Headless,
    /// Its name is an alias of this one.
    ExternalName(DomainName),
}

/// How a pod looks names up.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DnsConfig {
    pub policy: DnsPolicy,
    /// Searched after those that the policy gives.
    pub searches: Vec<DomainName>,
    pub ndots: Option<u8>,
}

/// `spec.dnsPolicy`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum DnsPolicy {
    /// The cluster's DNS server; a `hostNetwork` pod asks its node's instead.
    #[default]
    ClusterFirst,
    ClusterFirstWithHostNet,
    /// The node's.
    Default,
    /// Only what `spec.dnsConfig` says.
    None,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServicePort {
    pub name: Option<Arc<str>>,
    pub protocol: Protocol,
    pub port: u16,
    pub node_port: Option<u16>,
    pub backends: Vec<Backend>,
}

/// Where a connection to a service goes: policies are judged there, after DNAT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backend {
    pub target: BackendTarget,
    pub port: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackendTarget {
    /// A pod, by whichever of its addresses suits.
    Workload(WorkloadId),
    /// Whoever has the address.
    Address(IpAddr),
}
