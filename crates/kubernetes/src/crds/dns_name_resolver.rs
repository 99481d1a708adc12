//! DNSNameResolver `network.openshift.io/v1alpha1` (S8.2), as OpenShift publishes it.

use super::parts::Condition;
use super::{Form, Scope, schema};
use schemars::JsonSchema;

pub(super) fn form() -> Form {
    Form {
        kind: "DNSNameResolver",
        scope: Scope::Namespaced,
        short_names: &[],
        columns: &[],
        approved: None,
        schema: schema::object::<DnsNameResolver>(),
    }
}

/// A name, and the addresses it was last seen at. Controllers write it; it is nothing for users to change.
#[derive(JsonSchema)]
struct DnsNameResolver {
    spec: DnsNameResolverSpec,
    /// What was seen.
    status: Option<DnsNameResolverStatus>,
}

/// What is looked up.
#[derive(JsonSchema)]
struct DnsNameResolverSpec {
    /// The name, in lower case, with a dot at its end. `*.example.com.` is every name with exactly one label before
    /// example.com.
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "spec.name is immutable"}]))]
    name: Fqdn,
}

/// A name in lower case, with a dot at its end; with a `*` as its first label, the names with another label there.
#[derive(JsonSchema)]
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
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct DnsNameResolverStatus {
    /// The name, or the names that match it, with their addresses.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["dnsName"]))]
    resolved_names: Option<Vec<ResolvedName>>,
}

/// A name that was looked up.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct ResolvedName {
    /// Degraded: whether the last look-up failed.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    conditions: Option<Vec<Condition>>,
    /// The name, or the wildcard itself if that could be looked up.
    dns_name: Fqdn,
    /// Its addresses.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["ip"]))]
    resolved_addresses: Vec<ResolvedAddress>,
    /// How many look-ups have failed since the last that did not.
    resolution_failures: Option<i32>,
}

/// An address, which counts until its last look-up and its time to live are over.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct ResolvedAddress {
    #[schemars(extend("anyOf" = [{"format": "ipv4"}, {"format": "ipv6"}]))]
    ip: String,
    /// How long the answer was said to hold.
    ttl_seconds: i32,
    /// When it was last seen, in RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    last_lookup_time: String,
}
