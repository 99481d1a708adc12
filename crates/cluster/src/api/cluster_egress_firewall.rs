//! ClusterEgressFirewall, `namewall.dev/v1alpha1` (S7).

use super::meta::LabelSelector;
use serde::Deserialize;

#[derive(Deserialize, Debug, Clone)]
pub struct Rule {
    pub name: Option<String>,
    pub action: String,
    #[serde(default)]
    pub to: Vec<Destination>,
    pub ports: Option<Vec<Port>>,
}

/// Exactly one of these.
#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Destination {
    pub networks: Option<Vec<String>>,
    pub nodes: Option<LabelSelector>,
    pub api_server: Option<ApiServer>,
    pub domain_names: Option<Vec<String>>,
}

/// `apiServer: {}`: every way to reach it (S7.3).
#[derive(Deserialize, Debug, Clone)]
pub struct ApiServer {}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    pub protocol: Option<String>,
    pub port: Option<i64>,
    pub end_port: Option<i64>,
}
