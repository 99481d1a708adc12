//! Namespaces, nodes, and the addresses that agents publish for their nodes.

use super::meta::ObjectMeta;
use serde::Deserialize;

#[derive(Deserialize, Debug, Clone)]
pub struct Namespace {
    #[serde(default)]
    pub metadata: ObjectMeta,
}

#[derive(Deserialize, Debug, Clone)]
pub struct Node {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: NodeSpec,
    #[serde(default)]
    pub status: NodeStatus,
}

#[derive(Deserialize, Default, Debug, Clone)]
pub struct NodeSpec {
    #[serde(rename = "podCIDR")]
    pub pod_cidr: Option<String>,
    #[serde(default, rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
}

#[derive(Deserialize, Default, Debug, Clone)]
pub struct NodeStatus {
    #[serde(default)]
    pub addresses: Vec<NodeAddress>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct NodeAddress {
    #[serde(rename = "type")]
    pub kind: String,
    pub address: String,
}

/// `namewall.dev/v1alpha1` NodeAddresses, named after its node: every address
/// on the node's interfaces (S7.2).
#[derive(Deserialize, Debug, Clone)]
pub struct NodeAddresses {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub addresses: Vec<String>,
}
