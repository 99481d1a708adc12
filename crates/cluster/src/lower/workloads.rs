//! Pods, and the templates that stand for pods that do not exist yet.

use super::scope::Scope;
use super::{Lowering, Reader, Sorted, parts};
use crate::api::meta::{IntOrString, ObjectMeta};
use crate::api::pod::{Container, PodSpec, PodStatus};
use crate::document::Document;
use crate::yaml::{Node, Value};
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
pub(super) const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

#[derive(Deserialize)]
struct NetworkStatus {
    #[serde(default)]
    ips: Vec<String>,
}

type OwnerKey = (String, String, String);

/// A pod or a template, as read.
struct Described<'d> {
    kind: WorkloadKind,
    document: &'d Document,
    meta: ObjectMeta,
    /// The labels pods get: a template gives them apart from its own.
    pod_labels: Labels,
    spec: PodSpec,
    addresses: Vec<IpAddr>,
    ports: Vec<NamedPort>,
}

impl Lowering<'_> {
    pub(super) fn workloads(&mut self, sorted: &Sorted<'_>) {
        let mut pods = Vec::new();
        for &document in sorted.of(Reader::Pod) {
            pods.extend(self.read_pod(document));
        }
        let mut templates = Vec::new();
        for &document in sorted.of(Reader::Template).iter().chain(sorted.of(Reader::CronJob)) {
            templates.extend(self.read_template(document));
        }
        // A template whose pods are here is played by them; a ReplicaSet with
        // pods makes its Deployment one with pods.
        let mut played: FxHashSet<OwnerKey> = pods.iter().filter_map(|pod| owner(&pod.meta)).collect();
        let inherited: Vec<OwnerKey> =
            templates.iter().filter(|t| played.contains(&t.key())).filter_map(|t| owner(&t.meta)).collect();
        played.extend(inherited);
        let present: FxHashSet<OwnerKey> = templates.iter().map(Described::key).collect();

        for pod in pods {
            self.add(pod);
        }
        for template in templates {
            let stands_for_itself = owner(&template.meta).is_none_or(|owner| !present.contains(&owner));
            if !played.contains(&template.key()) && stands_for_itself {
                self.add(template);
            }
        }
    }

    /// What of a pod can be read; with a part that cannot, it is still there.
    fn read_pod<'d>(&mut self, document: &'d Document) -> Option<Described<'d>> {
        let mut scope = Scope::new(document, &mut self.out.findings);
        let status: PodStatus = scope.read_part(document.node.get("status"), "status");
        // S2.7: a pod that has ended has no address any more; it is no workload.
        if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
            return None;
        }
        let spec = pod_spec(&mut scope, document.node.get("spec"), "spec");
        let addresses = addresses(&mut scope, &status);
        let ports = named_ports(&mut scope, &spec);
        let meta = std::mem::take(&mut scope.meta);
        let pod_labels = labels(&meta);
        Some(Described { kind: WorkloadKind::Pod, document, meta, pod_labels, spec, addresses, ports })
    }

    fn read_template<'d>(&mut self, document: &'d Document) -> Option<Described<'d>> {
        let mut scope = Scope::new(document, &mut self.out.findings);
        let (kind, path): (WorkloadKind, &[&str]) = match document.kind()? {
            "Deployment" => (WorkloadKind::Deployment, &["spec", "template"]),
            "ReplicaSet" => (WorkloadKind::ReplicaSet, &["spec", "template"]),
            "StatefulSet" => (WorkloadKind::StatefulSet, &["spec", "template"]),
            "DaemonSet" => (WorkloadKind::DaemonSet, &["spec", "template"]),
            "Job" => (WorkloadKind::Job, &["spec", "template"]),
            "CronJob" => (WorkloadKind::CronJob, &["spec", "jobTemplate", "spec", "template"]),
            _ => (WorkloadKind::ReplicationController, &["spec", "template"]),
        };
        // None are wanted: there is nobody to speak of.
        if matches!(scope.node(&["spec", "replicas"]), Some(Node { value: Value::Int(0), .. })) {
            return None;
        }
        let Some(template) = scope.node(path) else {
            scope.error("missing-template", "spec", format!("`{}` is missing; it describes the pods", path.join(".")));
            return None;
        };
        let path = path.join(".");
        let pod_labels = labels(&scope.metadata(template.get("metadata"), &format!("{path}.metadata")));
        let spec = pod_spec(&mut scope, template.get("spec"), &format!("{path}.spec"));
        let ports = named_ports(&mut scope, &spec);
        let meta = std::mem::take(&mut scope.meta);
        Some(Described { kind, document, meta, pod_labels, spec, addresses: Vec::new(), ports })
    }

    fn add(&mut self, described: Described<'_>) {
        let Described { kind, document, meta, pod_labels, spec, addresses, ports } = described;
        let snapshot = &mut self.out.snapshot;
        let namespace_name = namespace_of(&meta);
        let namespace = snapshot.ensure_namespace(&namespace_name);
        let labels = shared(&mut self.pods.labels, pod_labels);
        let role = snapshot.role_of(Role { namespace, labels, host_network: spec.host_network });
        let node = spec.node_name.as_deref().filter(|name| !name.is_empty()).map(|name| snapshot.ensure_node(name));
        let id = snapshot.add_workload(Workload {
            kind,
            namespace,
            name: meta.name.as_str().into(),
            role,
            addresses: addresses.clone().into(),
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
        self.pods.by_namespace.entry(namespace_name).or_default().push(id);
    }
}

/// Piece by piece: a bad port must not lose the node, nor a bad node the ports.
fn pod_spec<'d>(scope: &mut Scope<'d>, node: Option<&'d Node>, path: &str) -> PodSpec {
    let field = |key: &str| node.and_then(|node| node.get(key));
    let node_name: Option<IntOrString> = scope.read_part(field("nodeName"), &format!("{path}.nodeName"));
    PodSpec {
        node_name: node_name.map(|name| name.to_string()),
        host_network: scope.read_part(field("hostNetwork"), &format!("{path}.hostNetwork")),
        containers: scope.read_items(field("containers"), &format!("{path}.containers")),
        init_containers: scope.read_items(field("initContainers"), &format!("{path}.initContainers")),
    }
}

fn labels(meta: &ObjectMeta) -> Labels {
    meta.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect()
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

impl Described<'_> {
    fn key(&self) -> OwnerKey {
        (namespace_of(&self.meta), self.kind.name().to_owned(), self.meta.name.clone())
    }
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
