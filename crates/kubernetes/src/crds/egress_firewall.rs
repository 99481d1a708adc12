//! EgressFirewall `k8s.ovn.org/v1` (S8.1), as OVN-Kubernetes publishes it.

use super::cluster_egress_firewall::{Protocol, Verb};
use super::parts::{Cidr, LabelSelector};
use super::{Form, Scope, schema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) fn form() -> Form {
    Form {
        kind: "EgressFirewall",
        scope: Scope::Namespaced,
        short_names: &[],
        columns: &[("EgressFirewall Status", "string", ".status.status")],
        approved: None,
        schema: schema::only_named_default(
            schema::object::<EgressFirewall>(),
            "an EgressFirewall is named default; there is only one a namespace",
        ),
    }
}

/// Which destinations outside the cluster the pods of a namespace may reach. The first rule that matches counts; what
/// no rule matches is allowed.
#[derive(JsonSchema)]
struct EgressFirewall {
    spec: EgressFirewallSpec,
    /// What became of it.
    status: Option<EgressFirewallStatus>,
}

/// What the firewall says.
#[derive(JsonSchema)]
struct EgressFirewallSpec {
    /// Rules, in the order they are asked.
    #[schemars(length(max = 8000))]
    egress: Vec<Rule>,
}

/// What to do with connections to a destination.
#[derive(JsonSchema)]
struct Rule {
    /// Allow or Deny.
    #[schemars(rename = "type")]
    action: Verb,
    /// The ports; without them every port and protocol.
    ports: Option<Vec<Port>>,
    /// The destination.
    to: Destination,
}

/// A port of a protocol.
#[derive(JsonSchema)]
struct Port {
    /// TCP, UDP or SCTP.
    protocol: Protocol,
    /// Its number.
    #[schemars(range(min = 1, max = 65535))]
    port: i32,
}

/// Where connections go. Exactly one of the fields is set.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", extend("minProperties" = 1, "maxProperties" = 1))]
struct Destination {
    /// A block of addresses. Addresses of pods inside it are not meant.
    cidr_selector: Option<Cidr>,
    /// A name. `*.example.com` is every name with exactly one label before example.com.
    dns_name: Option<DnsName>,
    /// Nodes with these labels.
    node_selector: Option<LabelSelector>,
}

/// A name, with or without a dot at its end; with a `*` as its first label, the names with another label there.
#[derive(JsonSchema)]
struct DnsName(
    #[schemars(
        length(max = 255),
        regex(
            pattern = r"^(\*\.)?([A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?\.?$"
        ),
        // An address is no name.
        extend("not" = {"pattern": r"^(\*\*?\.)?([0-9]+\.){3}[0-9]+\.?$"})
    )]
    String,
);

/// What became of an EgressFirewall.
#[derive(Serialize, Deserialize, JsonSchema, Clone, PartialEq, Eq, Default, Debug)]
pub struct EgressFirewallStatus {
    /// In a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// What each zone says of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub messages: Vec<String>,
}
