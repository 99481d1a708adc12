//! EgressFirewall, `k8s.ovn.org/v1`.

use super::meta::LabelSelector;
use serde::Deserialize;

#[derive(Deserialize, Debug, Clone)]
pub struct Rule {
    #[serde(rename = "type")]
    pub action: String,
    #[serde(default)]
    pub ports: Vec<Port>,
    pub to: Destination,
}

#[derive(Deserialize, Debug, Clone)]
pub struct Port {
    pub protocol: String,
    pub port: i64,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Destination {
    pub cidr_selector: Option<String>,
    pub dns_name: Option<String>,
    pub node_selector: Option<LabelSelector>,
}
