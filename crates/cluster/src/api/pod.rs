//! Pods, as they are and as templates describe them.

use serde::Deserialize;

#[derive(Deserialize, Default, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec {
    pub node_name: Option<String>,
    #[serde(default)]
    pub host_network: bool,
    #[serde(default)]
    pub containers: Vec<Container>,
    #[serde(default)]
    pub init_containers: Vec<Container>,
    pub dns_policy: Option<String>,
    #[serde(default)]
    pub dns_config: PodDnsConfig,
}

/// `spec.dnsConfig`: its name servers are not looked at.
#[derive(Deserialize, Default, Debug, Clone)]
pub struct PodDnsConfig {
    #[serde(default)]
    pub searches: Vec<String>,
    #[serde(default)]
    pub options: Vec<PodDnsOption>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct PodDnsOption {
    pub name: Option<String>,
    pub value: Option<String>,
}

#[derive(Deserialize, Default, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    #[serde(default)]
    pub ports: Vec<ContainerPort>,
    /// `Always` makes an init container a sidecar, whose ports count.
    pub restart_policy: Option<String>,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct ContainerPort {
    pub name: Option<String>,
    pub container_port: u16,
    pub protocol: Option<String>,
}

#[derive(Deserialize, Default, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    pub phase: Option<String>,
    #[serde(rename = "podIP")]
    pub pod_ip: Option<String>,
    #[serde(default, rename = "podIPs")]
    pub pod_ips: Vec<PodIp>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct PodIp {
    pub ip: String,
}
