//! ClusterEgressFirewall `namewall.dev/v1alpha1` (S7).

use super::formats::{Cidr, Protocol, RuleName, Verb};
use super::kind::{Column, Definition};
use super::meta::{Condition, LabelSelector};
use super::peers::{self, NameList, Subject};
use super::{schema, tiers};
use crate::lower::{ReadRule, RuleForm, Scope, enforcement, parts};
use crate::yaml::Node;
use namewall_policy::model::{
    Action, Clauses, Peer, Peers, Placement, Policy, PolicyKind, PolicyRef, PortMatch, Ports, Subject as LoweredSubject,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most rules, and the most entries in each list of a rule.
const MOST: usize = 100;

pub(super) const DEFINITION: Definition = Definition {
    publisher: "ours",
    columns: &[
        Column::new("Priority", "integer", ".spec.priority"),
        Column::new("Enforcing", "integer", ".status.enforcingNodes"),
        Column::new("Accepted", "string", ".status.conditions[?(@.type==\"Accepted\")].status"),
        Column::AGE,
    ],
    approved: None,
    schema: schema::object::<ClusterEgressFirewall>,
};

/// Which destinations pods may reach at all, whoever they are and whatever other policies allow. The firewalls that
/// select a pod are asked by priority, then by name; the first rule that matches counts. What a rule allows must be
/// allowed by all other policies too.
#[derive(JsonSchema, Debug)]
pub struct ClusterEgressFirewall {
    pub spec: ClusterEgressFirewallSpec,
    /// What became of it.
    pub status: Option<ClusterEgressFirewallStatus>,
}

/// What the firewall says.
#[derive(Deserialize, JsonSchema, Debug)]
#[serde(rename_all = "camelCase")]
pub struct ClusterEgressFirewallSpec {
    /// The firewall with the lowest number is asked first.
    #[schemars(range(min = 0, max = 1000))]
    pub priority: i32,
    /// The pods it is for; by default all. Pods on the host's network are never blocked.
    #[schemars(extend("default" = {"namespaces": {}}))]
    pub subject: Option<Subject>,
    /// Only pods on nodes with these labels.
    pub node_selector: Option<LabelSelector>,
    /// Rules, in the order they are asked.
    #[schemars(length(max = MOST))]
    pub rules: Option<Vec<Rule>>,
}

/// What to do with connections to some destinations.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.action == 'Allow' || !self.to.exists(to, has(to.domainNames))",
    "message": "domainNames are accepted only in Allow rules: nobody knows every address of a name, so it cannot be denied safely",
}]))]
pub struct Rule {
    pub name: Option<RuleName>,
    /// Allow lets the connection on to the other policies, Deny ends it.
    #[schemars(with = "Verb")]
    pub action: String,
    /// The destinations.
    #[serde(default)]
    #[schemars(!default, length(min = 1, max = MOST))]
    pub to: Vec<Destination>,
    /// The ports; without them every port and protocol.
    #[schemars(length(min = 1, max = MOST))]
    pub ports: Option<Vec<Port>>,
}

/// Where connections go. Exactly one of the fields is set.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.networks), has(self.nodes), has(self.apiServer), has(self.domainNames)].exists_one(given, given)",
    "message": "exactly one of networks, nodes, apiServer and domainNames is accepted",
}]))]
pub struct Destination {
    /// Blocks of addresses, like 169.254.169.254/32.
    #[schemars(with = "Option<Vec<Cidr>>", length(min = 1, max = MOST), extend("x-kubernetes-list-type" = "set"))]
    pub networks: Option<Vec<String>>,
    /// Nodes with these labels, at every address that they have.
    pub nodes: Option<LabelSelector>,
    /// The API server, on the ports that it serves. Written as an empty object.
    pub api_server: Option<ApiServer>,
    /// Names, only in Allow rules. `*.example.com` is every name under example.com, at any depth, and not itself.
    #[schemars(
        with = "Option<Vec<DomainName>>",
        length(min = 1, max = MOST),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub domain_names: Option<Vec<String>>,
}

// Every way to reach it (S7.3).
#[derive(Deserialize, JsonSchema, Debug, Clone)]
pub struct ApiServer {}

/// A name in any case and script, with or without a dot at its end; with a `*` as its first label, the names under it.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "it is there for its schema alone")]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Protocol>", extend("default" = "TCP"))]
    pub protocol: Option<String>,
    /// The port, or the first of a range; without it every port.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 1, max = 65535))]
    pub port: Option<i64>,
    /// The last port of a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 1, max = 65535))]
    pub end_port: Option<i64>,
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
    /// enforces it; Exposed, whether Services point at a destination that it denies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// How many nodes enforce the observed generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub enforcing_nodes: Option<i32>,
    /// The rules as they are now: nodes, the API server and names with the addresses they have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST), extend("x-kubernetes-list-type" = "atomic"))]
    pub concrete_rules: Vec<ConcreteRule>,
    /// Services that lead to a denied destination; connections through them are denied too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST), extend(
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
    #[schemars(length(max = MOST), inner(length(max = 43)), extend("x-kubernetes-list-type" = "atomic"))]
    pub networks: Vec<String>,
    /// How many blocks there are in all, also those that did not fit into the list.
    #[schemars(range(min = 0))]
    pub networks_count: i32,
    /// The ports; without them every port and protocol.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST), extend("x-kubernetes-list-type" = "atomic"))]
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

const ACTIONS: &[(&str, Action)] = &[("Allow", Action::Allow), ("Deny", Action::Deny)];

pub(super) fn lower(scope: &mut Scope<'_>) -> Option<Policy> {
    let known = scope.is_well_formed::<ClusterEgressFirewallSpec>();
    let priority = tiers::priority(scope);
    let subject = subject(scope);
    let form = RuleForm { key: "rules", most: MOST, action: "action", words: ACTIONS };
    let mut egress = scope.ordered_rules(&form, rule);
    if subject.is_none() {
        tiers::only_denials(&mut egress);
    } else if !known || priority.is_none() {
        egress = scope.isolate("spec");
    }
    Some(Policy {
        id: PolicyRef {
            kind: PolicyKind::ClusterEgressFirewall,
            namespace: None,
            name: scope.meta.name.as_str().into(),
        },
        placement: Placement::ClusterGate { priority: priority.unwrap_or(0) },
        enforcement: enforcement(scope),
        subject: subject.unwrap_or_else(peers::everyone),
        egress,
        ingress: Vec::new(),
        source: scope.place(""),
    })
}

/// S7.1: all pods unless it says otherwise; on some nodes if it says so.
fn subject(scope: &mut Scope<'_>) -> Option<LoweredSubject> {
    if scope.is_in_doubt(&["spec", "subject"]) || scope.is_in_doubt(&["spec", "nodeSelector"]) {
        return None;
    }
    let mut subject = match scope.node(&["spec", "subject"]) {
        Some(node) => {
            let written: Subject = scope.read(node, "spec.subject")?;
            peers::subject(scope, &written, "spec.subject")?
        }
        None => peers::everyone(),
    };
    if let Some(node) = scope.node(&["spec", "nodeSelector"]) {
        let written: LabelSelector = scope.read(node, "spec.nodeSelector")?;
        subject.nodes = Some(parts::selector(scope, &written, "spec.nodeSelector")?);
    }
    Some(subject)
}

fn rule<'d>(scope: &mut Scope<'d>, node: &'d Node, path: &str) -> Option<ReadRule> {
    let rule: Rule = scope.read(node, path)?;
    let action = parts::action(scope, &rule.action, ACTIONS, &format!("{path}.action"));
    let to_path = format!("{path}.to");
    parts::count(scope, rule.to.len(), MOST, &to_path)?;
    let peers = parts::all(&rule.to, |at, to| destinations(scope, to, &format!("{to_path}[{at}]")));
    let ports = ports(scope, rule.ports.as_deref(), &format!("{path}.ports"));
    let (action, peers, ports) = (action?, peers?.concat(), ports?);
    if action == Action::Deny && peers.iter().any(|peer| matches!(peer, Peer::Domain(_))) {
        let message = "domainNames are accepted only in Allow rules: nobody knows every address of a name, so it cannot be denied safely";
        scope.error("bad-domain-rule", &to_path, message);
        return None;
    }
    Some((rule.name.map(String::from), action, Clauses::Match { peers: Peers::Listed(peers), ports }))
}

fn destinations(scope: &mut Scope<'_>, to: &Destination, path: &str) -> Option<Vec<Peer>> {
    match (&to.networks, &to.nodes, &to.api_server, &to.domain_names) {
        (Some(networks), None, None, None) => peers::networks(scope, networks, MOST, &format!("{path}.networks")),
        (None, Some(nodes), None, None) => {
            parts::selector(scope, nodes, &format!("{path}.nodes")).map(|nodes| vec![Peer::Nodes(nodes)])
        }
        (None, None, Some(_), None) => Some(vec![Peer::ApiServer]),
        (None, None, None, Some(names)) => {
            // The schema of our own kind accepts every name that can be read.
            peers::domains(scope, &NameList { names, most: MOST, schema: None }, &format!("{path}.domainNames"))
        }
        _ => {
            scope.error("bad-peer", path, "exactly one of networks, nodes, apiServer and domainNames is accepted");
            None
        }
    }
}

fn ports(scope: &mut Scope<'_>, ports: Option<&[Port]>, path: &str) -> Option<Ports> {
    let Some(ports) = ports else { return Some(Ports::Any) };
    parts::count(scope, ports.len(), MOST, path)?;
    let ports = parts::all(ports, |at, port| {
        let path = format!("{path}[{at}]");
        let protocol = parts::protocol(scope, port.protocol.as_deref(), &format!("{path}.protocol"))?;
        match (port.port, port.end_port) {
            (None, None) => Some(PortMatch::every(protocol)),
            (Some(start), end) => {
                parts::port_range(scope, protocol, start..=end.unwrap_or(start), &format!("{path}.port"))
            }
            (None, Some(_)) => {
                scope.error("bad-port", &format!("{path}.endPort"), "endPort needs a port to start from");
                None
            }
        }
    });
    ports.map(Ports::Listed)
}
