//! DNSNameResolver, `network.openshift.io/v1alpha1`: names with the addresses
//! they were last seen at.

use serde::Deserialize;

#[derive(Deserialize, Debug, Clone)]
pub struct DnsNameResolver {
    pub spec: Spec,
    #[serde(default)]
    pub status: Status,
}

#[derive(Deserialize, Debug, Clone)]
pub struct Spec {
    pub name: String,
}

#[derive(Deserialize, Default, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    #[serde(default)]
    pub resolved_names: Vec<ResolvedName>,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedName {
    pub dns_name: String,
    #[serde(default)]
    pub resolved_addresses: Vec<ResolvedAddress>,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedAddress {
    pub ip: String,
}
