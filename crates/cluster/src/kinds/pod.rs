//! Pods, and what a template says about the pods that it stands for.

use crate::attached::PodUid;
use crate::document::Document;
use crate::lower::{Described, Pool, Scope, owner, parts};
use crate::yaml::Node;
use namewall_policy::Finding;
use namewall_policy::labels::Labels;
use namewall_policy::model::{DnsConfig, DnsPolicy, NamedPort, Owner, WorkloadKind};
use serde::Deserialize;
use std::net::IpAddr;
use std::sync::Arc;

/// The fields that the store keeps of a pod.
pub(super) const KEPT: &[&str] = &[
    "spec.nodeName",
    "spec.hostNetwork",
    "spec.containers.ports",
    "spec.initContainers.ports",
    "spec.initContainers.restartPolicy",
    "spec.serviceAccountName",
    "spec.dnsPolicy",
    "spec.dnsConfig",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    // `MIRROR_ANNOTATION`.
    "metadata.annotations.kubernetes.io/config.mirror",
];

/// The fields of a spec that matter here.
const SPEC_FIELDS: [&str; 6] = ["nodeName", "hostNetwork", "containers", "initContainers", "dnsPolicy", "dnsConfig"];

/// On the mirror of a static pod: the uid by which its node knows it.
pub(crate) const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

#[derive(Deserialize, Default, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodSpec {
    node_name: Option<String>,
    #[serde(default)]
    host_network: bool,
    #[serde(default)]
    containers: Vec<Container>,
    #[serde(default)]
    init_containers: Vec<Container>,
    dns_policy: Option<String>,
    #[serde(default)]
    dns_config: PodDnsConfig,
}

/// `spec.dnsConfig`: its name servers are not looked at.
#[derive(Deserialize, Default, Debug, Clone)]
struct PodDnsConfig {
    #[serde(default)]
    searches: Vec<String>,
    #[serde(default)]
    options: Vec<PodDnsOption>,
}

#[derive(Deserialize, Debug, Clone)]
struct PodDnsOption {
    name: Option<String>,
    value: Option<String>,
}

#[derive(Deserialize, Default, Debug, Clone)]
#[serde(rename_all = "camelCase")]
struct Container {
    #[serde(default)]
    ports: Vec<ContainerPort>,
    /// `Always` makes an init container a sidecar, whose ports count.
    restart_policy: Option<String>,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
struct ContainerPort {
    name: Option<String>,
    container_port: u16,
    protocol: Option<String>,
}

#[derive(Deserialize, Default, Debug, Clone)]
#[serde(rename_all = "camelCase")]
struct PodStatus {
    phase: Option<String>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    #[serde(default, rename = "podIPs")]
    pod_ips: Vec<PodIp>,
}

#[derive(Deserialize, Debug, Clone)]
struct PodIp {
    ip: String,
}

/// The network attachment annotation: the addresses of second interfaces. Everyone with the right to patch the pod can write it.
pub(crate) const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

#[derive(Deserialize)]
struct NetworkStatus {
    #[serde(default)]
    ips: Vec<String>,
}

/// What of a pod can be read; with a part that cannot, it is still there.
pub(crate) fn read_pod(document: &Document, findings: &mut Vec<Finding>, pool: &mut Pool) -> Option<Described> {
    let mut scope = Scope::of_fact(document, findings);
    scope.find_misspelt(document.node.get("status"), "status", &["phase", "podIP", "podIPs"]);
    let status: PodStatus = scope.read_part(document.node.get("status"), "status");
    // S2.7: a pod that has ended has no address any more; it is no workload.
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let spec = pod_spec(&mut scope, document.node.get("spec"), "spec");
    let addresses = addresses(&mut scope, &status);
    let second_addresses = second_addresses(&mut scope, &addresses).into();
    let account = scope.node(&["spec", "serviceAccountName"]).and_then(Node::as_str).map(|name| pool.text(name));
    let labels = pool.labels(&scope.selected_labels(&scope.meta.clone(), "metadata.labels"));
    let described = describe(&mut scope, PodTemplate { kind: WorkloadKind::Pod, spec, labels }, pool);
    let is_running = status.phase.as_deref() == Some("Running");
    let uid = PodUid::read(document);
    Some(Described { uid, addresses: addresses.into(), second_addresses, account, is_running, ..described })
}

/// Piece by piece: a bad port must not lose the node, nor a bad node the ports.
pub(super) fn pod_spec<'d>(scope: &mut Scope<'d>, node: Option<&'d Node>, path: &str) -> PodSpec {
    scope.find_misspelt(node, path, &SPEC_FIELDS);
    let field = |key: &str| node.and_then(|node| node.get(key));
    PodSpec {
        node_name: scope.read_part(field("nodeName"), &format!("{path}.nodeName")),
        host_network: scope.read_part(field("hostNetwork"), &format!("{path}.hostNetwork")),
        containers: scope.read_items(field("containers"), &format!("{path}.containers")),
        init_containers: scope.read_items(field("initContainers"), &format!("{path}.initContainers")),
        dns_policy: scope.read_part(field("dnsPolicy"), &format!("{path}.dnsPolicy")),
        dns_config: scope.read_part(field("dnsConfig"), &format!("{path}.dnsConfig")),
    }
}

/// What a pod, or the template of a workload, says of its pods.
pub(super) struct PodTemplate {
    pub(super) kind: WorkloadKind,
    pub(super) spec: PodSpec,
    pub(super) labels: Labels,
}

pub(super) fn describe(scope: &mut Scope<'_>, template: PodTemplate, pool: &mut Pool) -> Described {
    let PodTemplate { kind, spec, labels } = template;
    let ports = named_ports(scope, &spec);
    let dns = dns_config(scope, &spec);
    let meta = &scope.meta;
    let owner = meta.owner_references.iter().find(|owner| owner.controller == Some(true));
    let owner = owner.map(|owner| Owner { kind: owner.kind.as_str().into(), name: owner.name.as_str().into() });
    let workload = owner.as_ref().and_then(|owner| owner::workload_of_owner(owner, &labels));
    Described {
        kind,
        uid: None,
        namespace: pool.text(scope.namespace()),
        name: meta.name.as_str().into(),
        labels,
        node: spec.node_name.filter(|name| !name.is_empty()).map(|name| pool.text(&name)),
        host_network: spec.host_network,
        addresses: Arc::default(),
        second_addresses: Arc::default(),
        ports: pool.ports(ports),
        dns: (dns != DnsConfig::default()).then(|| Box::new(dns)),
        owner: owner.map(|owner| pool.owner(owner)),
        workload: workload.map(|owner| pool.owner(owner)),
        account: None,
        is_running: false,
        source: scope.place(""),
    }
}

/// The addresses that the API server has for the pod.
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
    found
}

/// The addresses that the annotation lists besides the pod's own (S1.9).
fn second_addresses(scope: &mut Scope<'_>, own: &[IpAddr]) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    let Some(json) = scope.meta.annotations.get(NETWORK_STATUS).cloned() else { return found };
    match serde_json::from_str::<Vec<NetworkStatus>>(&json) {
        Ok(networks) => {
            for text in networks.iter().flat_map(|network| &network.ips) {
                if let Some(address) = parts::address(scope, text, "metadata.annotations")
                    && !own.contains(&address)
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
