//! Workloads: pods, and the templates that stand for pods that do not exist yet.

use super::pool::Pool;
use super::sort::{Sorted, Unread};
use super::{Lowering, owner};
use crate::attached::PodUid;
use crate::document::Document;
use crate::kinds::{self, Kind, Reader, read_pod, read_template};
use namewall_policy::labels::{Labels, UNREADABLE};
use namewall_policy::model::{DnsConfig, NamedPort, Owner, Role, Workload, WorkloadId, WorkloadKind};
use namewall_policy::port::Protocol;
use namewall_policy::{Finding, Snapshot, Source};
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::IpAddr;
use std::sync::Arc;

type OwnerKey = (Arc<str>, Arc<str>, Arc<str>);

/// A pod or a template, as read: all that anybody here looks at.
#[derive(Clone, PartialEq, Debug)]
pub struct Described {
    pub(crate) kind: WorkloadKind,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    /// None for a template, and in manifests.
    pub uid: Option<PodUid>,
    /// The labels pods get: a template gives them apart from its own.
    pub labels: Labels,
    pub node: Option<Arc<str>>,
    pub host_network: bool,
    pub addresses: Arc<[IpAddr]>,
    /// Addresses of second networks, which only an annotation lists.
    pub second_addresses: Arc<[IpAddr]>,
    pub(crate) ports: Arc<[NamedPort]>,
    /// How it looks names up, if not in the default way.
    pub(crate) dns: Option<Box<DnsConfig>>,
    /// The controller in its owner references.
    pub(crate) owner: Option<Arc<Owner>>,
    /// The workload that it is a replica of: the Deployment above the ReplicaSet.
    pub(crate) workload: Option<Arc<Owner>>,
    pub account: Option<Arc<str>>,
    pub is_running: bool,
    pub(crate) source: Option<Source>,
}

/// The pods among documents, without the findings.
pub fn pods<'d>(documents: impl Iterator<Item = &'d Document>) -> Vec<Described> {
    let mut pool = Pool::default();
    let pods = documents.filter(|document| document.kind() == Some(kinds::POD.name));
    pods.filter_map(|document| read_pod(document, &mut Vec::new(), &mut pool)).collect()
}

/// Reads a pod or a template. None if it stands for no pod, like a pod that has ended.
pub(super) fn read_workload(
    kind: &Kind,
    document: &Document,
    findings: &mut Vec<Finding>,
    pool: &mut Pool,
) -> Option<Described> {
    match &kind.reader {
        Reader::Template(template) => read_template(template, document, findings, pool),
        _ => read_pod(document, findings, pool),
    }
}

impl Lowering<'_> {
    pub(super) fn workloads(&mut self, sorted: &Sorted<'_>) {
        let (findings, mut pool) = (&mut self.out.findings, Pool::default());
        let mut describe = |one: &Unread<'_>| match one {
            Unread::Tree(kind, document) => read_workload(kind, document, findings, &mut pool),
            Unread::Workload(workload) => {
                findings.extend_from_slice(&workload.findings);
                workload.described.clone()
            }
        };
        let mut pods: Vec<Described> = sorted.pods().iter().filter_map(&mut describe).collect();
        let mut templates: Vec<Described> = sorted.templates().filter_map(&mut describe).collect();
        owner::follow(&mut pods, &templates);
        // A template whose pods are here is played by them; a ReplicaSet with
        // pods makes its Deployment one with pods.
        let mut played: FxHashSet<OwnerKey> = pods.iter().filter_map(Described::owner).collect();
        let inherited: Vec<OwnerKey> =
            templates.iter().filter(|t| played.contains(&t.key())).filter_map(Described::owner).collect();
        played.extend(inherited);
        let present: FxHashSet<OwnerKey> = templates.iter().map(Described::key).collect();
        let stands_for_itself = |one: &Described| one.owner().is_none_or(|owner| !present.contains(&owner));
        templates.retain(|one| !played.contains(&one.key()) && stands_for_itself(one));
        for described in pods.iter().chain(&templates) {
            let workload = workload_of(&mut self.out.snapshot, described, None);
            let id = self.out.snapshot.add_workload(workload);
            self.out.snapshot.set_dns(id, described.dns_config());
            self.by_namespace.entry(described.namespace.clone()).or_default().push(id);
        }
    }
}

/// Which labels are looked at by anybody; all if nobody says.
pub(crate) type Asked<'a> = Option<&'a FxHashSet<Arc<str>>>;

/// The workload that was described, in its namespace, its Role and on its node.
pub(crate) fn workload_of(snapshot: &mut Snapshot, described: &Described, asked: Asked<'_>) -> Workload {
    let Described { kind, name, host_network, addresses, second_addresses, ports, source, .. } = described;
    let namespace = snapshot.ensure_namespace(&described.namespace);
    let labels = match asked {
        Some(asked) => described.labels.only(|key| asked.contains(key) || key == UNREADABLE),
        None => described.labels.clone(),
    };
    Workload {
        kind: *kind,
        namespace,
        name: name.clone(),
        role: snapshot.role_of(Role { namespace, labels, host_network: *host_network }),
        addresses: addresses.clone(),
        second_addresses: second_addresses.clone(),
        node: described.node.as_ref().map(|name| snapshot.ensure_node(name)),
        host_network: *host_network,
        ports: ports.clone(),
        owner: described.workload.clone(),
        source: source.clone(),
    }
}

/// The workloads of each namespace.
pub(super) type ByNamespace = FxHashMap<Arc<str>, Vec<WorkloadId>>;

impl Described {
    pub(super) fn key(&self) -> OwnerKey {
        (self.namespace.clone(), self.kind.name().into(), self.name.clone())
    }

    /// How it looks names up.
    pub(crate) fn dns_config(&self) -> DnsConfig {
        self.dns.as_deref().cloned().unwrap_or_default()
    }

    pub(super) fn owner(&self) -> Option<OwnerKey> {
        let owner = self.owner.as_ref()?;
        Some((self.namespace.clone(), owner.kind.clone(), owner.name.clone()))
    }
}

/// What a service's target port is on a pod.
pub(super) fn port_named(ports: &[NamedPort], name: &str, protocol: Protocol) -> Option<u16> {
    ports.iter().find(|port| &*port.name == name && port.protocol == protocol).map(|port| port.port)
}
