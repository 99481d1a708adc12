//! Nodes, and the addresses that agents publish for them.

use serde::Deserialize;

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
    pub addresses: Vec<String>,
}
