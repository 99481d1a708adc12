//! DNSNameResolver, `network.openshift.io/v1alpha1`: names with the addresses
//! they were last seen at.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize, Debug, Clone, PartialEq, Eq)]
pub struct DnsNameResolver {
    pub spec: Spec,
    #[serde(default)]
    pub status: Status,
}

#[derive(Deserialize, Serialize, Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// A name, or a wildcard whose `*` stands for one label; lower case, with its last dot.
    pub name: String,
}

#[derive(Deserialize, Serialize, Default, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    #[serde(default)]
    pub resolved_names: Vec<ResolvedName>,
}

#[derive(Deserialize, Serialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedName {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    pub dns_name: String,
    #[serde(default)]
    pub resolved_addresses: Vec<ResolvedAddress>,
    /// How often in a row it could not be resolved.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resolution_failures: i32,
}

#[derive(Deserialize, Serialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedAddress {
    pub ip: String,
    #[serde(default)]
    pub ttl_seconds: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_lookup_time: Option<Timestamp>,
}

/// A standard condition.
#[derive(Deserialize, Serialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub last_transition_time: Timestamp,
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}
