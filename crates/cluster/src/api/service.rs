//! Services and where they lead.

use super::meta::IntOrString;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize, Debug, Clone)]
pub struct Service {
    #[serde(default)]
    pub spec: ServiceSpec,
    #[serde(default)]
    pub status: ServiceStatus,
}

#[derive(Deserialize, Default, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSpec {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    #[serde(rename = "clusterIP")]
    pub cluster_ip: Option<String>,
    #[serde(default, rename = "clusterIPs")]
    pub cluster_ips: Vec<String>,
    #[serde(default, rename = "externalIPs")]
    pub external_ips: Vec<String>,
    #[serde(default)]
    pub selector: BTreeMap<String, String>,
    #[serde(default)]
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

#[derive(Deserialize, Default, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct ServiceStatus {
    #[serde(default)]
    pub load_balancer: LoadBalancer,
}

#[derive(Deserialize, Default, Debug, Clone)]
pub struct LoadBalancer {
    #[serde(default)]
    pub ingress: Vec<LoadBalancerIngress>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct LoadBalancerIngress {
    pub ip: Option<String>,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSlice {
    #[serde(default)]
    pub endpoints: Vec<SliceEndpoint>,
    #[serde(default)]
    pub ports: Vec<EndpointPort>,
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
pub struct Endpoints {
    #[serde(default)]
    pub subsets: Vec<EndpointSubset>,
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
