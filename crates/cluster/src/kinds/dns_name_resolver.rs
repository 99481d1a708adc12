//! DNSNameResolver `network.openshift.io/v1alpha1` (S8.2), as OpenShift publishes it.

use super::kind::Definition;
use super::meta::Condition;
use super::schema;
use crate::document::Document;
use crate::lower::{Resolved, Scope, parts};
use jiff::Timestamp;
use namewall_policy::Finding;
use namewall_policy::domain::{DomainName, Wildcard};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) const DEFINITION: Definition = Definition {
    publisher: "OpenShift; controllers write it",
    columns: &[],
    approved: None,
    schema: schema::object::<DnsNameResolver>,
};

/// A name, and the addresses it was last seen at. Controllers write it; it is nothing for users to change.
#[derive(Deserialize, Serialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
pub struct DnsNameResolver {
    pub spec: Spec,
    /// What was seen.
    #[serde(default)]
    #[schemars(with = "Option<Status>", !default)]
    pub status: Status,
}

/// What is looked up.
#[derive(Deserialize, Serialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The name, in lower case, with a dot at its end. `*.example.com.` is every name with exactly one label before
    /// example.com.
    #[schemars(
        with = "Fqdn",
        extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "spec.name is immutable"}])
    )]
    pub name: String,
}

/// A name in lower case, with a dot at its end; with a `*` as its first label, the names with another label there.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "it is there for its schema alone")]
struct Fqdn(
    #[schemars(
        length(max = 254),
        regex(pattern = r"^(\*\.)?([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.){2,}$"),
        // An address is no name.
        extend("not" = {"pattern": r"^(\*\.)?([0-9]+\.){4}$"})
    )]
    String,
);

/// What a name was seen at.
#[derive(Deserialize, Serialize, JsonSchema, Default, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The name, or the names that match it, with their addresses.
    #[serde(default)]
    #[schemars(
        with = "Option<Vec<ResolvedName>>",
        !default,
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["dnsName"])
    )]
    pub resolved_names: Vec<ResolvedName>,
}

/// A name that was looked up.
#[derive(Deserialize, Serialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedName {
    /// Degraded: whether the last look-up failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        with = "Option<Vec<Condition>>",
        !default,
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
    /// The name, or the wildcard itself if that could be looked up.
    #[schemars(with = "Fqdn")]
    pub dns_name: String,
    /// Its addresses.
    #[serde(default)]
    #[schemars(!default, extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["ip"]))]
    pub resolved_addresses: Vec<ResolvedAddress>,
    /// How many look-ups have failed since the last that did not.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(with = "Option<i32>", !default)]
    pub resolution_failures: i32,
}

/// An address, which counts until its last look-up and its time to live are over.
#[derive(Deserialize, Serialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedAddress {
    #[schemars(extend("anyOf" = [{"format": "ipv4"}, {"format": "ipv6"}]))]
    pub ip: String,
    /// How long the answer was said to hold.
    #[serde(default)]
    #[schemars(!default)]
    pub ttl_seconds: i32,
    /// When it was last seen, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", !default, extend("format" = "date-time"))]
    pub last_lookup_time: Option<Timestamp>,
}

impl ResolvedName {
    pub(crate) const DEGRADED: &str = "Degraded";

    /// The condition that says that the last lookup failed, and why.
    pub fn degraded(&self) -> Option<&Condition> {
        self.conditions.iter().find(|one| one.kind == Self::DEGRADED && one.status == "True")
    }
}

impl Status {
    /// Whether it has an entry for the name.
    pub fn has(&self, name: &str) -> bool {
        self.resolved_names.iter().any(|item| item.dns_name == name)
    }

    /// The names without any address, each with the reason.
    pub fn unresolved(&self) -> impl Iterator<Item = (&str, &str)> {
        let without = self.resolved_names.iter().filter(|item| item.resolved_addresses.is_empty());
        without.filter_map(|item| Some((item.dns_name.as_str(), item.degraded()?.reason.as_str())))
    }
}

/// What a name without addresses means, for people.
pub fn unresolved_message(name: &str, reason: &str) -> String {
    format!("{name} could not be resolved ({reason}): rules by this name open nothing and deny nothing")
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// The names of an object with their addresses. One that does not match what the object is for opens nothing.
pub(crate) fn read_resolver(document: &Document, findings: &mut Vec<Finding>) -> Vec<Resolved> {
    let mut resolved = Vec::new();
    let mut scope = Scope::new(document, findings);
    let Some(object) = scope.read_whole::<DnsNameResolver>() else { return resolved };
    let Some(pattern) = parts::domain_pattern(&mut scope, &object.spec.name, Wildcard::OneLabel, "spec.name") else {
        return resolved;
    };
    for (at, item) in object.status.resolved_names.iter().enumerate() {
        let path = format!("status.resolvedNames[{at}]");
        if let (true, Some(degraded)) = (item.resolved_addresses.is_empty(), item.degraded()) {
            scope.warning("unresolved-name", &path, unresolved_message(&item.dns_name, &degraded.reason));
        }
        // The wildcard itself may have been looked up. Its addresses are those of all its names (S8.6).
        let name = match DomainName::parse_recorded(&item.dns_name) {
            Ok(name) if pattern.matches(&name) => name,
            Ok(name) => {
                let message = format!("{name} does not match {pattern}; it opens nothing");
                scope.warning("foreign-name", &format!("{path}.dnsName"), message);
                continue;
            }
            Err(error) => {
                scope.error("bad-name", &format!("{path}.dnsName"), error.to_string());
                continue;
            }
        };
        for address in &item.resolved_addresses {
            if let Some(address) = parts::address(&mut scope, &address.ip, &format!("{path}.resolvedAddresses")) {
                resolved.push(Resolved { name: name.clone(), address });
            }
        }
    }
    resolved
}
