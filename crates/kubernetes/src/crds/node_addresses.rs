//! NodeAddresses `namewall.dev/v1alpha1` (S7.2). Agents write them, so they have no spec that a user could want
//! something by: the addresses stand at the top.

use super::parts::Condition;
use super::{Form, Scope, schema};
use schemars::JsonSchema;

pub(super) fn form() -> Form {
    Form {
        kind: "NodeAddresses",
        scope: Scope::Cluster,
        short_names: &["nodeaddr"],
        columns: &[("Addresses", "string", ".addresses"), ("Age", "date", ".metadata.creationTimestamp")],
        approved: None,
        schema: schema::object::<NodeAddresses>(),
    }
}

/// Every address on the interfaces of the node of the same name, also those that the Node does not tell of. Agents
/// write it, each for its own node; rules for nodes cover all of them.
#[derive(JsonSchema)]
struct NodeAddresses {
    /// IPv4 and IPv6 addresses, without a zone.
    #[schemars(length(max = 1024), extend("x-kubernetes-list-type" = "set"))]
    addresses: Option<Vec<Address>>,
    /// What became of it.
    status: Option<NodeAddressesStatus>,
}

/// An address.
#[derive(JsonSchema)]
struct Address(
    #[schemars(length(max = 45), extend("x-kubernetes-validations" = [
        {"rule": "isIP(self)", "message": "it is no IP address; a zone like %eth0 is not part of one"},
    ]))]
    String,
);

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct NodeAddressesStatus {
    /// The generation of which this is said.
    #[schemars(range(min = 0))]
    observed_generation: Option<i64>,
    /// Which ClusterEgressFirewalls the node enforces, each as it was last changed: a digest of all of them.
    #[schemars(length(max = 64))]
    enforces: Option<String>,
    /// What is true of it now.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    conditions: Option<Vec<Condition>>,
}
