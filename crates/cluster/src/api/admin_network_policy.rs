//! AdminNetworkPolicy and BaselineAdminNetworkPolicy,
//! `policy.networking.k8s.io/v1alpha1`.

use super::meta::LabelSelector;
use serde::Deserialize;

#[derive(Deserialize, Debug, Clone)]
pub struct Subject {
    pub namespaces: Option<LabelSelector>,
    pub pods: Option<NamespacedPod>,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct NamespacedPod {
    pub namespace_selector: Option<LabelSelector>,
    pub pod_selector: Option<LabelSelector>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct IngressRule {
    pub name: Option<String>,
    pub action: String,
    #[serde(default)]
    pub from: Vec<IngressPeer>,
    pub ports: Option<Vec<Port>>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct EgressRule {
    pub name: Option<String>,
    pub action: String,
    #[serde(default)]
    pub to: Vec<EgressPeer>,
    pub ports: Option<Vec<Port>>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct IngressPeer {
    pub namespaces: Option<LabelSelector>,
    pub pods: Option<NamespacedPod>,
}

/// Shared with ClusterNetworkPolicy.
#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct EgressPeer {
    pub namespaces: Option<LabelSelector>,
    pub pods: Option<NamespacedPod>,
    pub nodes: Option<LabelSelector>,
    pub networks: Option<Vec<String>>,
    pub domain_names: Option<Vec<String>>,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    pub port_number: Option<PortNumber>,
    pub named_port: Option<String>,
    pub port_range: Option<PortRange>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct PortNumber {
    pub protocol: Option<String>,
    pub port: i64,
}

#[derive(Deserialize, Debug, Clone)]
pub struct PortRange {
    pub protocol: Option<String>,
    pub start: i64,
    pub end: i64,
}
