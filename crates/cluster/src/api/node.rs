//! Nodes. The addresses that agents publish for them, `namewall.dev/v1alpha1`
//! NodeAddresses named after its node, are a plain list (S7.2).

use serde::Deserialize;

#[derive(Deserialize, Debug, Clone)]
pub struct NodeAddress {
    /// InternalIP, ExternalIP, Hostname; without one it counts as an address.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub address: String,
}
