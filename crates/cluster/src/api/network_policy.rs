//! NetworkPolicy, `networking.k8s.io/v1` and `extensions/v1beta1`.
//! Rules are read one by one, so that a broken one cannot hide the others.

use super::meta::{IntOrString, LabelSelector};
use serde::Deserialize;

#[derive(Deserialize, Debug, Clone)]
pub struct IngressRule {
    pub from: Option<Vec<Peer>>,
    pub ports: Option<Vec<Port>>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct EgressRule {
    pub to: Option<Vec<Peer>>,
    pub ports: Option<Vec<Port>>,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    pub pod_selector: Option<LabelSelector>,
    pub namespace_selector: Option<LabelSelector>,
    pub ip_block: Option<IpBlock>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct IpBlock {
    pub cidr: String,
    #[serde(default)]
    pub except: Vec<String>,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    pub protocol: Option<String>,
    pub port: Option<IntOrString>,
    pub end_port: Option<i64>,
}

/// The JSON in the Namespace annotation of v1beta1.
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields)]
pub struct NamespaceNetworkPolicy {
    pub ingress: Option<NamespaceIngressPolicy>,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields)]
pub struct NamespaceIngressPolicy {
    pub isolation: Option<String>,
}
