//! ClusterNetworkPolicy, `policy.networking.k8s.io/v1alpha2`.

use super::admin_network_policy::{EgressPeer, IngressPeer};
use serde::Deserialize;

#[derive(Deserialize, Debug, Clone)]
pub struct IngressRule {
    pub name: Option<String>,
    pub action: String,
    #[serde(default)]
    pub from: Vec<IngressPeer>,
    pub protocols: Option<Vec<Protocol>>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct EgressRule {
    pub name: Option<String>,
    pub action: String,
    #[serde(default)]
    pub to: Vec<EgressPeer>,
    pub protocols: Option<Vec<Protocol>>,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Protocol {
    pub tcp: Option<Transport>,
    pub udp: Option<Transport>,
    pub sctp: Option<Transport>,
    pub destination_named_port: Option<String>,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Transport {
    pub destination_port: Option<Port>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct Port {
    pub number: Option<i64>,
    pub range: Option<PortRange>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct PortRange {
    pub start: i64,
    pub end: i64,
}
