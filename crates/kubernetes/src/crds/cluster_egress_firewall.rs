//! ClusterEgressFirewall `namewall.dev/v1alpha1` (S7).

use super::parts::{Cidr, Condition, LabelSelector, Subject};
use super::{Form, Scope, schema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) fn form() -> Form {
    Form {
        kind: "ClusterEgressFirewall",
        scope: Scope::Cluster,
        short_names: &["cef"],
        columns: &[
            ("Priority", "integer", ".spec.priority"),
            ("Enforcing", "integer", ".status.enforcingNodes"),
            ("Accepted", "string", ".status.conditions[?(@.type==\"Accepted\")].status"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ],
        approved: None,
        schema: schema::object::<ClusterEgressFirewall>(),
    }
}

/// Which destinations pods may reach at all, whoever they are and whatever other policies allow. The firewalls that
/// select a pod are asked by priority, then by name; the first rule that matches counts. What a rule allows must be
/// allowed by all other policies too.
#[derive(JsonSchema)]
struct ClusterEgressFirewall {
    spec: ClusterEgressFirewallSpec,
    /// What became of it.
    status: Option<ClusterEgressFirewallStatus>,
}

/// What the firewall says.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct ClusterEgressFirewallSpec {
    /// The firewall with the lowest number is asked first.
    #[schemars(range(min = 0, max = 1000))]
    priority: i32,
    /// The pods it is for; by default all. Pods on the host's network are never blocked.
    #[schemars(extend("default" = {"namespaces": {}}))]
    subject: Option<Subject>,
    /// Only pods on nodes with these labels.
    node_selector: Option<LabelSelector>,
    /// Rules, in the order they are asked.
    #[schemars(length(max = 100))]
    rules: Option<Vec<Rule>>,
}

/// What to do with connections to some destinations.
#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.action == 'Allow' || !self.to.exists(to, has(to.domainNames))",
    "message": "domainNames are accepted only in Allow rules: nobody knows every address of a name, so it cannot be denied safely",
}]))]
struct Rule {
    /// What the rule is called where it is told of.
    #[schemars(length(max = 100))]
    name: Option<String>,
    /// Allow lets the connection on to the other policies, Deny ends it.
    action: Verb,
    /// The destinations.
    #[schemars(length(min = 1, max = 100))]
    to: Vec<Destination>,
    /// The ports; without them every port and protocol.
    #[schemars(length(min = 1, max = 100))]
    ports: Option<Vec<Port>>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    Allow,
    Deny,
}

/// Where connections go. Exactly one of the fields is set.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", extend("x-kubernetes-validations" = [{
    "rule": "[has(self.networks), has(self.nodes), has(self.apiServer), has(self.domainNames)].exists_one(given, given)",
    "message": "exactly one of networks, nodes, apiServer and domainNames is accepted",
}]))]
struct Destination {
    /// Blocks of addresses, like 169.254.169.254/32.
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "set"))]
    networks: Option<Vec<Cidr>>,
    /// Nodes with these labels, at every address on their interfaces.
    nodes: Option<LabelSelector>,
    /// The API server, by every way to reach it. Written as an empty object.
    api_server: Option<ApiServer>,
    /// Names, only in Allow rules. `*.example.com` is every name under example.com, at any depth, and not itself.
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "set"))]
    domain_names: Option<Vec<DomainName>>,
}

#[derive(JsonSchema)]
struct ApiServer {}

/// A name in any case and script, with or without a dot at its end; with a `*` as its first label, the names under it.
#[derive(JsonSchema)]
struct DomainName(
    #[schemars(
        length(max = 257),
        regex(
            pattern = r"^(\*\*?\.)?([0-9A-Z_a-z\x{80}-\x{10FFFF}]([-0-9A-Z_a-z\x{80}-\x{10FFFF}]{0,61}[0-9A-Z_a-z\x{80}-\x{10FFFF}])?\.)*[0-9A-Z_a-z\x{80}-\x{10FFFF}]([-0-9A-Z_a-z\x{80}-\x{10FFFF}]{0,61}[0-9A-Z_a-z\x{80}-\x{10FFFF}])?\.?$"
        ),
        // An address is no name.
        extend("not" = {"pattern": r"^(\*\*?\.)?([0-9]+\.){3}[0-9]+\.?$"})
    )]
    String,
);

/// A port, a range of ports, or every port of a protocol.
#[derive(Serialize, Deserialize, JsonSchema, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.endPort) || has(self.port)", "message": "endPort needs a port to start from"},
    {"rule": "!has(self.endPort) || !has(self.port) || self.port <= self.endPort", "message": "the range ends before it starts"},
]))]
pub struct Port {
    /// TCP, UDP or SCTP.
    #[serde(default)]
    pub protocol: Protocol,
    /// The port, or the first of a range; without it every port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// The last port of a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub end_port: Option<i32>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    #[default]
    Tcp,
    Udp,
    Sctp,
}

/// What became of a firewall (S7.5).
#[derive(Serialize, Deserialize, JsonSchema, Clone, PartialEq, Default, Debug)]
#[serde(rename_all = "camelCase")]
pub struct ClusterEgressFirewallStatus {
    /// The generation of which all this is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// What is true of it now: Accepted, whether it can be read in full; Enforced, whether every node it is for
    /// enforces it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// How many nodes enforce the observed generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub enforcing_nodes: Option<i32>,
    /// The rules as they are now: nodes, the API server and names with the addresses they have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub concrete_rules: Vec<ConcreteRule>,
    /// Services that lead to a denied destination; connections through them are denied too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["namespace", "name"],
    ))]
    pub offending_services: Vec<OffendingService>,
    /// How many such Services there are in all, also those that did not fit into the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub offending_services_count: Option<i32>,
}

/// A rule with addresses in place of selectors and names.
#[derive(Serialize, Deserialize, JsonSchema, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "camelCase")]
pub struct ConcreteRule {
    /// Which of spec.rules it is, counted from 0.
    #[schemars(range(min = 0, max = 99))]
    pub rule: i32,
    /// The rule's name, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub name: Option<String>,
    pub action: Verb,
    /// The addresses, as blocks; of many, the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(max = 43)), extend("x-kubernetes-list-type" = "atomic"))]
    pub networks: Vec<String>,
    /// How many blocks there are in all, also those that did not fit into the list.
    #[schemars(range(min = 0))]
    pub networks_count: i32,
    /// The ports; without them every port and protocol.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub ports: Vec<Port>,
}

/// A Service that leads to a denied destination.
#[derive(Serialize, Deserialize, JsonSchema, Clone, PartialEq, Eq, Debug)]
pub struct OffendingService {
    #[schemars(length(max = 63))]
    pub namespace: String,
    #[schemars(length(max = 253))]
    pub name: String,
    /// Which of spec.rules denies it, counted from 0.
    #[schemars(range(min = 0, max = 99))]
    pub rule: i32,
    /// The denied address that it leads to; of several, the first.
    #[schemars(length(max = 45))]
    pub address: String,
}
