//! Services and where they lead.

use super::meta::IntOrString;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Read piece by piece: see `lower`.
#[derive(Default, Debug, Clone)]
pub struct ServiceSpec {
    pub kind: Option<String>,
    pub external_name: Option<String>,
    pub cluster_ip: Option<String>,
    pub cluster_ips: Vec<String>,
    pub external_ips: Vec<String>,
    pub selector: BTreeMap<String, String>,
    pub ports: Vec<ServicePort>,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    pub name: Option<String>,
    pub protocol: Option<String>,
    pub port: u16,
    pub target_port: Option<IntOrString>,
    pub node_port: Option<u16>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct LoadBalancerIngress {
    pub ip: Option<String>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct SliceEndpoint {
    #[serde(default)]
    pub addresses: Vec<String>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct EndpointPort {
    pub name: Option<String>,
    pub protocol: Option<String>,
    pub port: Option<u16>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct EndpointSubset {
    #[serde(default)]
    pub addresses: Vec<EndpointAddress>,
    #[serde(default)]
    pub ports: Vec<EndpointPort>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct EndpointAddress {
    pub ip: String,
}
