//! Pods, and the templates that stand for pods that do not exist yet.

use super::scope::Scope;
use super::{Lowering, Reader, Sort, Sorted, owner, parts};
use crate::api::meta::IntOrString;
use crate::api::pod::{Container, PodSpec, PodStatus};
use crate::document::Document;
use crate::yaml::{Node, Value};
use namewall_policy::labels::Labels;
use namewall_policy::model::{DnsConfig, DnsPolicy, NamedPort, Owner, Role, Workload, WorkloadId, WorkloadKind};
use namewall_policy::port::Protocol;
use namewall_policy::{Finding, Snapshot, Source};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// One copy of each text, set of labels and list of ports: a Deployment has many pods.
#[derive(Default, Debug)]
pub(crate) struct Pool {
    texts: FxHashSet<Arc<str>>,
    labels: FxHashSet<Labels>,
    ports: FxHashSet<Arc<[NamedPort]>>,
    owners: FxHashSet<Arc<Owner>>,
    /// How much there was when all of it was somebody's.
    used: usize,
}

/// What nobody has any more is put up with to this number: every Job's pods have labels of their own.
const SPARE: usize = 20_000;

impl Pool {
    /// Of these, and of nothing else.
    pub(crate) fn of<'d>(all: impl Iterator<Item = &'d Described>) -> Self {
        let mut pool = Self::default();
        all.for_each(|described| pool.keep(described));
        pool.used = pool.len();
        pool
    }

    fn len(&self) -> usize {
        self.texts.len() + self.labels.len() + self.ports.len() + self.owners.len()
    }

    /// Whether most of it may be nobody's.
    pub(crate) fn is_overgrown(&self) -> bool {
        self.len() > 2 * self.used + SPARE
    }

    pub(super) fn text(&mut self, text: &str) -> Arc<str> {
        match self.texts.get(text) {
            Some(known) => known.clone(),
            None => shared(&mut self.texts, text.into()),
        }
    }

    fn labels(&mut self, labels: &BTreeMap<String, String>) -> Labels {
        let labels: Labels = labels.iter().map(|(key, value)| (self.text(key), self.text(value))).collect();
        shared(&mut self.labels, labels)
    }

    fn keep(&mut self, described: &Described) {
        let Described { namespace, labels, node, ports, owner, workload, account, .. } = described;
        let pairs = labels.texts().flat_map(|(key, value)| [key, value]);
        let texts = [namespace].into_iter().chain(node).chain(account).chain(pairs);
        self.texts.extend(texts.cloned());
        self.owners.extend(owner.iter().chain(workload).cloned());
        self.labels.insert(labels.clone());
        self.ports.insert(ports.clone());
    }
}

/// What a second interface says of itself: the network attachment annotation.
pub(super) const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

#[derive(Deserialize)]
struct NetworkStatus {
    #[serde(default)]
    ips: Vec<String>,
}

type OwnerKey = (Arc<str>, Arc<str>, Arc<str>);

/// A pod or a template, as read: all that anybody here looks at.
#[derive(Clone, PartialEq, Debug)]
pub struct Described {
    pub(crate) kind: WorkloadKind,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    /// The labels pods get: a template gives them apart from its own.
    pub labels: Labels,
    pub node: Option<Arc<str>>,
    pub host_network: bool,
    pub addresses: Arc<[IpAddr]>,
    ports: Arc<[NamedPort]>,
    /// How it looks names up, if not in the default way.
    pub(crate) dns: Option<Box<DnsConfig>>,
    /// The controller in its owner references.
    pub(super) owner: Option<Arc<Owner>>,
    /// The workload that it is a replica of: the Deployment above the ReplicaSet.
    pub(super) workload: Option<Arc<Owner>>,
    pub account: Option<Arc<str>>,
    pub is_running: bool,
    pub(crate) source: Option<Source>,
}

/// The pods among documents. What is wrong with them is told elsewhere.
pub fn pods<'d>(documents: impl Iterator<Item = &'d Document>) -> Vec<Described> {
    let mut pool = Pool::default();
    let pods = documents.filter(|document| document.kind() == Some("Pod"));
    pods.filter_map(|document| read_pod(document, &mut Vec::new(), &mut pool)).collect()
}

/// What of a pod can be read; with a part that cannot, it is still there.
pub(crate) fn read_pod(document: &Document, findings: &mut Vec<Finding>, pool: &mut Pool) -> Option<Described> {
    let mut scope = Scope::new(document, findings);
    let status: PodStatus = scope.read_part(document.node.get("status"), "status");
    // S2.7: a pod that has ended has no address any more; it is no workload.
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let spec = pod_spec(&mut scope, document.node.get("spec"), "spec");
    let addresses = addresses(&mut scope, &status);
    let account = scope.node(&["spec", "serviceAccountName"]).and_then(Node::as_str).map(|name| pool.text(name));
    let labels = pool.labels(&scope.meta.labels);
    let described = describe(&mut scope, (WorkloadKind::Pod, spec, labels), pool);
    let is_running = status.phase.as_deref() == Some("Running");
    Some(Described { addresses: addresses.into(), account, is_running, ..described })
}

pub(super) fn read_template(document: &Document, findings: &mut Vec<Finding>, pool: &mut Pool) -> Option<Described> {
    let mut scope = Scope::new(document, findings);
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
    if scope.node(&["spec", "replicas"]).map(Node::plain) == Some(&Value::Int(0)) {
        return None;
    }
    let Some(template) = scope.node(path) else {
        scope.error("missing-template", "spec", format!("`{}` is missing; it describes the pods", path.join(".")));
        return None;
    };
    let path = path.join(".");
    let labels = scope.metadata(template.get("metadata"), &format!("{path}.metadata")).labels;
    let spec = pod_spec(&mut scope, template.get("spec"), &format!("{path}.spec"));
    let labels = pool.labels(&labels);
    Some(describe(&mut scope, (kind, spec, labels), pool))
}

fn describe(
    scope: &mut Scope<'_>,
    (kind, spec, labels): (WorkloadKind, PodSpec, Labels),
    pool: &mut Pool,
) -> Described {
    let ports = named_ports(scope, &spec);
    let dns = dns_config(scope, &spec);
    let meta = &scope.meta;
    let owner = meta.owner_references.iter().find(|owner| owner.controller == Some(true));
    let owner = owner.map(|owner| Owner { kind: owner.kind.as_str().into(), name: owner.name.as_str().into() });
    let workload = owner.as_ref().and_then(|owner| owner::workload_of_owner(owner, &labels));
    Described {
        kind,
        namespace: pool.text(scope.namespace()),
        name: meta.name.as_str().into(),
        labels,
        node: spec.node_name.filter(|name| !name.is_empty()).map(|name| pool.text(&name)),
        host_network: spec.host_network,
        addresses: Arc::default(),
        ports: shared(&mut pool.ports, ports.into()),
        dns: (dns != DnsConfig::default()).then(|| Box::new(dns)),
        owner: owner.map(|owner| shared(&mut pool.owners, Arc::new(owner))),
        workload: workload.map(|owner| shared(&mut pool.owners, Arc::new(owner))),
        account: None,
        is_running: false,
        source: scope.place(""),
    }
}

type ReadOne = fn(&Document, &mut Vec<Finding>, &mut Pool) -> Option<Described>;

impl Lowering<'_> {
    pub(super) fn workloads(&mut self, sorted: &Sorted<'_>) {
        let (findings, mut pool) = (&mut self.out.findings, Pool::default());
        let mut described = |one: &Sort<'_>, read: ReadOne| match one {
            Sort::Tree(document) => read(document, findings, &mut pool),
            Sort::Read(workload) => {
                findings.extend_from_slice(&workload.findings);
                workload.described.clone()
            }
        };
        let pods = sorted.workloads(Reader::Pod).iter();
        let mut pods: Vec<Described> = pods.filter_map(|one| described(one, read_pod)).collect();
        let templates = sorted.workloads(Reader::Template).iter().chain(sorted.workloads(Reader::CronJob));
        let mut templates: Vec<Described> = templates.filter_map(|one| described(one, read_template)).collect();
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
    let Described { kind, name, host_network, addresses, ports, source, .. } = described;
    let namespace = snapshot.ensure_namespace(&described.namespace);
    let labels = match asked {
        Some(asked) => described.labels.only(|key| asked.contains(key)),
        None => described.labels.clone(),
    };
    Workload {
        kind: *kind,
        namespace,
        name: name.clone(),
        role: snapshot.role_of(Role { namespace, labels, host_network: *host_network }),
        addresses: addresses.clone(),
        node: described.node.as_ref().map(|name| snapshot.ensure_node(name)),
        host_network: *host_network,
        ports: ports.clone(),
        owner: described.workload.clone(),
        source: source.clone(),
    }
}

/// The workloads of each namespace.
pub(super) type ByNamespace = FxHashMap<Arc<str>, Vec<WorkloadId>>;

/// Piece by piece: a bad port must not lose the node, nor a bad node the ports.
fn pod_spec<'d>(scope: &mut Scope<'d>, node: Option<&'d Node>, path: &str) -> PodSpec {
    let field = |key: &str| node.and_then(|node| node.get(key));
    let node_name: Option<IntOrString> = scope.read_part(field("nodeName"), &format!("{path}.nodeName"));
    PodSpec {
        node_name: node_name.map(|name| name.to_string()),
        host_network: scope.read_part(field("hostNetwork"), &format!("{path}.hostNetwork")),
        containers: scope.read_items(field("containers"), &format!("{path}.containers")),
        init_containers: scope.read_items(field("initContainers"), &format!("{path}.initContainers")),
        dns_policy: scope.read_part(field("dnsPolicy"), &format!("{path}.dnsPolicy")),
        dns_config: scope.read_part(field("dnsConfig"), &format!("{path}.dnsConfig")),
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

/// How the pod looks names up. What cannot be read is a finding, and the default counts in its place: it decides about
/// which names a question means, not about access.
fn dns_config(scope: &mut Scope<'_>, spec: &PodSpec) -> DnsConfig {
    let policy = match spec.dns_policy.as_deref() {
        None | Some("" | "ClusterFirst") => DnsPolicy::ClusterFirst,
        Some("ClusterFirstWithHostNet") => DnsPolicy::ClusterFirstWithHostNet,
        Some("Default") => DnsPolicy::Default,
        Some("None") => DnsPolicy::None,
        Some(other) => {
            let message =
                format!("`{other}` is not a DNS policy; use ClusterFirst, ClusterFirstWithHostNet, Default or None");
            scope.error("bad-dns-policy", "spec.dnsPolicy", message);
            DnsPolicy::ClusterFirst
        }
    };
    let mut searches = Vec::new();
    for text in &spec.dns_config.searches {
        match text.parse() {
            Ok(name) => searches.push(name),
            Err(error) => scope.error("bad-name", "spec.dnsConfig.searches", format!("`{text}`: {error}")),
        }
    }
    let ndots = spec.dns_config.options.iter().find(|option| option.name.as_deref() == Some("ndots"));
    let ndots = ndots.and_then(|option| option.value.as_deref()).and_then(|value| value.parse().ok());
    DnsConfig { policy, searches, ndots }
}

/// What a service's target port is on a pod.
pub(super) fn port_named(ports: &[NamedPort], name: &str, protocol: Protocol) -> Option<u16> {
    ports.iter().find(|port| &*port.name == name && port.protocol == protocol).map(|port| port.port)
}
