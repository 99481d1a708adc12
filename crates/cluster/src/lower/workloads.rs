//! Pods, and the templates that stand for pods that do not exist yet.

use super::scope::Scope;
use super::{Lowering, Reader, Sorted, parts};
use crate::api::meta::ObjectMeta;
use crate::api::pod::{Container, CronJob, Pod, PodSpec, PodStatus, Template};
use crate::document::Document;
use namewall_policy::labels::Labels;
use namewall_policy::model::{NamedPort, Role, Workload, WorkloadId, WorkloadKind};
use namewall_policy::port::Protocol;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Deserialize;
use std::net::IpAddr;
use std::sync::Arc;

/// What services need to know of the workloads.
#[derive(Default)]
pub(super) struct Pods {
    pub(super) by_address: FxHashMap<IpAddr, WorkloadId>,
    pub(super) by_namespace: FxHashMap<String, Vec<WorkloadId>>,
    /// One copy of each list of ports and each set of labels.
    ports: FxHashSet<Arc<[NamedPort]>>,
    labels: FxHashSet<Labels>,
}

/// What a second interface says of itself: the network attachment annotation.
const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

#[derive(Deserialize)]
struct NetworkStatus {
    #[serde(default)]
    ips: Vec<String>,
}

type OwnerKey = (String, String, String);

impl Lowering<'_> {
    pub(super) fn workloads(&mut self, sorted: &Sorted<'_>) {
        let pods = self.read_pods(sorted);
        // A template whose pods are here is played by them.
        let mut owned: FxHashSet<OwnerKey> = FxHashSet::default();
        for (_, pod) in &pods {
            owned.extend(owner(&pod.metadata));
        }
        let templates = self.read_templates(sorted);
        let mut present: FxHashSet<OwnerKey> = FxHashSet::default();
        for template in &templates {
            present.insert(template.key());
        }
        // A ReplicaSet with pods makes its Deployment one with pods.
        let inherited: Vec<OwnerKey> =
            templates.iter().filter(|t| owned.contains(&t.key())).filter_map(|t| owner(&t.metadata)).collect();
        owned.extend(inherited);

        for (document, pod) in pods {
            self.add_pod(document, pod);
        }
        for template in templates {
            let replaced = owned.contains(&template.key());
            let stands_for_itself = owner(&template.metadata).is_none_or(|owner| !present.contains(&owner));
            if !replaced && stands_for_itself && template.replicas != Some(0) {
                self.add_template(template);
            }
        }
    }

    fn read_pods<'d>(&mut self, sorted: &Sorted<'d>) -> Vec<(&'d Document, Pod)> {
        let documents = sorted.of(Reader::Pod);
        let mut pods = Vec::with_capacity(documents.len());
        for &document in documents {
            let mut scope = Scope::new(document, &mut self.out.findings);
            if let Some(pod) = scope.read_whole::<Pod>() {
                // S2.7: a pod that has ended has no address any more; it is no workload.
                if !matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed")) {
                    pods.push((document, pod));
                }
            }
        }
        pods
    }

    fn read_templates<'d>(&mut self, sorted: &Sorted<'d>) -> Vec<NamedTemplate<'d>> {
        let mut templates = Vec::new();
        for &document in sorted.of(Reader::Template) {
            let mut scope = Scope::new(document, &mut self.out.findings);
            let Some(read) = scope.read_whole::<Template>() else { continue };
            let kind = match document.kind() {
                Some("Deployment") => WorkloadKind::Deployment,
                Some("ReplicaSet") => WorkloadKind::ReplicaSet,
                Some("StatefulSet") => WorkloadKind::StatefulSet,
                Some("DaemonSet") => WorkloadKind::DaemonSet,
                Some("Job") => WorkloadKind::Job,
                _ => WorkloadKind::ReplicationController,
            };
            let (metadata, replicas, template) = (read.metadata, read.spec.replicas, read.spec.template);
            templates.push(NamedTemplate {
                document,
                kind,
                metadata,
                replicas,
                pod: (template.metadata, template.spec),
            });
        }
        for &document in sorted.of(Reader::CronJob) {
            let mut scope = Scope::new(document, &mut self.out.findings);
            let Some(read) = scope.read_whole::<CronJob>() else { continue };
            let template = read.spec.job_template.spec.template;
            let pod = (template.metadata, template.spec);
            templates.push(NamedTemplate {
                document,
                kind: WorkloadKind::CronJob,
                metadata: read.metadata,
                replicas: None,
                pod,
            });
        }
        templates
    }

    fn add_pod(&mut self, document: &Document, pod: Pod) {
        let mut scope = Scope::new(document, &mut self.out.findings);
        let addresses = addresses(&mut scope, &pod.status);
        let ports = named_ports(&mut scope, &pod.spec);
        let workload = Described {
            kind: WorkloadKind::Pod,
            document,
            metadata: &pod.metadata,
            labels: &pod.metadata,
            spec: &pod.spec,
        };
        self.add(workload, addresses, ports);
    }

    fn add_template(&mut self, template: NamedTemplate<'_>) {
        let mut scope = Scope::new(template.document, &mut self.out.findings);
        let (labels, spec) = &template.pod;
        let ports = named_ports(&mut scope, spec);
        let workload =
            Described { kind: template.kind, document: template.document, metadata: &template.metadata, labels, spec };
        self.add(workload, Vec::new(), ports);
    }

    fn add(&mut self, described: Described<'_>, addresses: Vec<IpAddr>, ports: Vec<NamedPort>) {
        let Described { kind, document, metadata, labels, spec } = described;
        let snapshot = &mut self.out.snapshot;
        let namespace_name = metadata.namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or("default");
        let namespace = snapshot.ensure_namespace(namespace_name);
        let labels: Labels = labels.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let labels = shared(&mut self.pods.labels, labels);
        let role = snapshot.role_of(Role { namespace, labels, host_network: spec.host_network });
        let node = spec.node_name.as_deref().filter(|name| !name.is_empty()).map(|name| snapshot.ensure_node(name));
        let id = snapshot.add_workload(Workload {
            kind,
            namespace,
            name: metadata.name.as_str().into(),
            role,
            addresses: addresses.clone(),
            node,
            host_network: spec.host_network,
            ports: shared(&mut self.pods.ports, ports.into()),
            source: Some(document.place("")),
        });
        if !spec.host_network {
            for address in addresses {
                self.pods.by_address.entry(address).or_insert(id);
            }
        }
        match self.pods.by_namespace.get_mut(namespace_name) {
            Some(list) => list.push(id),
            None => {
                self.pods.by_namespace.insert(namespace_name.to_owned(), vec![id]);
            }
        }
    }
}

fn shared<T: Clone + Eq + std::hash::Hash>(pool: &mut FxHashSet<T>, value: T) -> T {
    match pool.get(&value) {
        Some(known) => known.clone(),
        None => {
            pool.insert(value.clone());
            value
        }
    }
}

struct NamedTemplate<'d> {
    document: &'d Document,
    kind: WorkloadKind,
    metadata: ObjectMeta,
    replicas: Option<i64>,
    pod: (ObjectMeta, PodSpec),
}

impl NamedTemplate<'_> {
    fn key(&self) -> OwnerKey {
        (namespace_of(&self.metadata), self.kind.name().to_owned(), self.metadata.name.clone())
    }
}

struct Described<'d> {
    kind: WorkloadKind,
    document: &'d Document,
    /// The object's own.
    metadata: &'d ObjectMeta,
    /// The pod's own, which a template gives apart.
    labels: &'d ObjectMeta,
    spec: &'d PodSpec,
}

fn namespace_of(metadata: &ObjectMeta) -> String {
    metadata.namespace.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| "default".to_owned())
}

fn owner(metadata: &ObjectMeta) -> Option<OwnerKey> {
    let owner = metadata.owner_references.iter().find(|owner| owner.controller == Some(true))?;
    Some((namespace_of(metadata), owner.kind.clone(), owner.name.clone()))
}

fn addresses(scope: &mut Scope<'_>, status: &PodStatus) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    let listed = status.pod_ips.iter().map(|ip| ip.ip.as_str());
    for text in status.pod_ip.as_deref().into_iter().chain(listed).filter(|text| !text.is_empty()) {
        if let Some(address) = parts::address(scope, text, "status.podIP")
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    let Some(json) = scope.meta.annotations.get(NETWORK_STATUS).cloned() else { return found };
    match serde_json::from_str::<Vec<NetworkStatus>>(&json) {
        Ok(networks) => {
            for text in networks.iter().flat_map(|network| &network.ips) {
                if let Some(address) = parts::address(scope, text, "metadata.annotations")
                    && !found.contains(&address)
                {
                    found.push(address);
                }
            }
        }
        Err(error) => scope.error(
            "bad-network-status",
            "metadata.annotations",
            format!("{NETWORK_STATUS} is not its JSON: {error}"),
        ),
    }
    found
}

fn named_ports(scope: &mut Scope<'_>, spec: &PodSpec) -> Vec<NamedPort> {
    let sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let containers = spec.containers.iter().chain(spec.init_containers.iter().filter(sidecar));
    let mut ports = Vec::new();
    for port in containers.flat_map(|container| &container.ports) {
        let Some(name) = &port.name else { continue };
        let Some(protocol) = parts::protocol(scope, port.protocol.as_deref(), "spec.containers") else { continue };
        ports.push(NamedPort { name: name.as_str().into(), protocol, port: port.container_port });
    }
    ports.sort();
    ports.dedup();
    ports
}

/// What a service's target port is on a pod.
pub(super) fn port_named(ports: &[NamedPort], name: &str, protocol: Protocol) -> Option<u16> {
    ports.iter().find(|port| &*port.name == name && port.protocol == protocol).map(|port| port.port)
}
