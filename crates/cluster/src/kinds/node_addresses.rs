//! NodeAddresses `namewall.dev/v1alpha1` (S7.2). Agents write them, so they have no spec that a user could want
//! something by: the addresses stand at the top.

use super::kind::{Column, Definition};
use super::meta::Condition;
use super::schema;
use crate::document::Document;
use crate::lower::{Scope, parts};
use namewall_policy::Finding;
use schemars::JsonSchema;
use std::net::IpAddr;

/// How many addresses of a node can be published.
pub const MAX_NODE_ADDRESSES: usize = 1024;

pub(super) const DEFINITION: Definition = Definition {
    publisher: "ours; agents write it",
    columns: &[Column::new("Addresses", "string", ".addresses"), Column::AGE],
    approved: None,
    schema: schema::object::<NodeAddresses>,
};

/// Every address of the node of the same name, on its interfaces and by its local routes, also those that the Node does not tell of. Agents
/// write it, each for its own node; rules for nodes cover all of them.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "it is there for its schema alone")]
struct NodeAddresses {
    /// IPv4 and IPv6 addresses, without a zone.
    #[schemars(length(max = MAX_NODE_ADDRESSES), extend("x-kubernetes-list-type" = "set"))]
    addresses: Option<Vec<Address>>,
    /// What became of it.
    status: Option<NodeAddressesStatus>,
}

/// An address.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "it is there for its schema alone")]
struct Address(
    #[schemars(length(max = 45), extend("x-kubernetes-validations" = [
        {"rule": "isIP(self)", "message": "it is no IP address; a zone like %eth0 is not part of one"},
    ]))]
    String,
);

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[allow(dead_code, reason = "it is there for its schema alone")]
struct NodeAddressesStatus {
    /// The generation of which this is said.
    #[schemars(range(min = 0))]
    observed_generation: Option<i64>,
    /// Which ClusterEgressFirewalls the node enforces, each as it was last changed: a digest of all of them.
    #[schemars(length(max = 64))]
    enforces: Option<String>,
    /// The same for EgressFirewalls.
    #[schemars(length(max = 64))]
    enforces_egress_firewalls: Option<String>,
    /// What is true of it now.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    conditions: Option<Vec<Condition>>,
}

/// The name of the node, and its addresses.
pub(crate) fn read_addresses(document: &Document, findings: &mut Vec<Finding>) -> (String, Vec<IpAddr>) {
    let mut scope = Scope::new(document, findings);
    let published: Vec<String> = scope.read_items(document.node.get("addresses"), "addresses");
    let addresses = published.iter().filter_map(|text| parts::address(&mut scope, text, "addresses")).collect();
    (scope.meta.name.clone(), addresses)
}
