//! EgressFirewall `k8s.ovn.org/v1` (S8.1), as OVN-Kubernetes publishes it.

use super::formats::{Cidr, Protocol, Verb};
use super::kind::{Column, Definition};
use super::meta::LabelSelector;
use super::{network_policy, schema};
use crate::lower::published_names::{self, Schema};
use crate::lower::{ReadRule, RuleForm, Scope, enforcement, parts};
use crate::yaml::Node;
use namewall_policy::domain::Wildcard;
use namewall_policy::model::{Action, Clauses, Peer, Peers, Placement, Policy, PolicyKind, Ports};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The most rules.
const MOST: usize = 8000;

pub(super) const DEFINITION: Definition = Definition {
    publisher: "OVN-Kubernetes",
    columns: &[Column::new("EgressFirewall Status", "string", ".status.status")],
    approved: None,
    schema: object_schema,
};

fn object_schema() -> Json {
    schema::only_named_default(
        schema::object::<EgressFirewall>(),
        "an EgressFirewall is named default; there is only one a namespace",
    )
}

/// Which destinations outside the cluster the pods of a namespace may reach. The first rule that matches counts; what
/// no rule matches is allowed.
#[derive(JsonSchema, Debug)]
pub struct EgressFirewall {
    pub spec: EgressFirewallSpec,
    /// What became of it.
    pub status: Option<EgressFirewallStatus>,
}

/// What the firewall says.
#[derive(Deserialize, JsonSchema, Debug)]
pub struct EgressFirewallSpec {
    /// Rules, in the order they are asked.
    #[schemars(length(max = MOST))]
    pub egress: Vec<Rule>,
}

/// What to do with connections to a destination.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
pub struct Rule {
    /// Allow or Deny.
    #[serde(rename = "type")]
    #[schemars(with = "Verb")]
    pub action: String,
    /// The ports; without them every port and protocol.
    #[serde(default)]
    #[schemars(with = "Option<Vec<Port>>", !default)]
    pub ports: Vec<Port>,
    /// The destination.
    pub to: Destination,
}

/// A port of a protocol.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
pub struct Port {
    /// TCP, UDP or SCTP.
    #[schemars(with = "Protocol")]
    pub protocol: String,
    /// Its number.
    #[schemars(with = "i32", range(min = 1, max = 65535))]
    pub port: i64,
}

/// Where connections go. Exactly one of the fields is set.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub struct Destination {
    /// A block of addresses. Addresses of pods inside it are not meant.
    #[schemars(with = "Option<Cidr>")]
    pub cidr_selector: Option<String>,
    /// A name. `*.example.com` is every name with exactly one label before example.com.
    #[schemars(with = "Option<DnsName>")]
    pub dns_name: Option<String>,
    /// Nodes with these labels.
    pub node_selector: Option<LabelSelector>,
}

/// A name, with or without a dot at its end; with a `*` as its first label, the names with another label there.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "it is there for its schema alone")]
struct DnsName(
    #[schemars(
        length(max = 255),
        regex(
            pattern = r"^(\*\.)?([A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?\.)+[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?\.?$"
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

const ACTIONS: &[(&str, Action)] = &[("Allow", Action::Allow), ("Deny", Action::Deny)];

pub(super) fn lower(scope: &mut Scope<'_>) -> Option<Policy> {
    let mut is_readable = scope.is_well_formed::<EgressFirewallSpec>();
    if scope.meta.name != "default" {
        // The definition refuses such a name, so no API server has it: it is a slip in a file (S8.1, S10.1).
        let message = format!(
            "an EgressFirewall is named `default`; of `{}` no rule counts, and the pods of its namespace reach nothing \
             outside the pod network that an EgressFirewall named `default` does not allow",
            scope.meta.name
        );
        scope.error("bad-name", "metadata.name", message);
        is_readable = false;
    }
    let form = RuleForm { key: "egress", most: MOST, action: "type", words: ACTIONS };
    let egress = scope.ordered_rules(&form, rule);
    Some(Policy {
        id: network_policy::id(scope, PolicyKind::EgressFirewall),
        placement: Placement::NamespaceGate,
        enforcement: enforcement(scope),
        subject: network_policy::whole_namespace(scope),
        egress: if is_readable { egress } else { scope.isolate("spec") },
        ingress: Vec::new(),
        source: scope.place(""),
    })
}

fn rule<'d>(scope: &mut Scope<'d>, node: &'d Node, path: &str) -> Option<ReadRule> {
    let rule: Rule = scope.read(node, path)?;
    let action = parts::action(scope, &rule.action, ACTIONS, &format!("{path}.type"));
    let peer = destination(scope, &rule.to, &format!("{path}.to"));
    let ports = parts::all(&rule.ports, |at, port| {
        let path = format!("{path}.ports[{at}]");
        let protocol = parts::protocol(scope, Some(&port.protocol), &format!("{path}.protocol"))?;
        parts::port_range(scope, protocol, port.port..=port.port, &format!("{path}.port"))
    })?;
    let ports = if ports.is_empty() { Ports::Any } else { Ports::Listed(ports) };
    Some((None, action?, Clauses::Match { peers: Peers::Listed(vec![peer?]), ports }))
}

fn destination(scope: &mut Scope<'_>, to: &Destination, path: &str) -> Option<Peer> {
    match (&to.cidr_selector, &to.dns_name, &to.node_selector) {
        (Some(cidr), None, None) => {
            let cidr = parts::cidr(scope, cidr, &format!("{path}.cidrSelector"))?;
            Some(Peer::Network { cidr, except: Vec::new() })
        }
        (None, Some(name), None) => {
            let path = format!("{path}.dnsName");
            let pattern = parts::domain_pattern(scope, name, Wildcard::OneLabel, &path)?;
            let refusal = published_names::refusal(name, Schema::EgressFirewall);
            published_names::warn(scope, name, refusal, &path);
            if !pattern.domain().as_str().contains('.') {
                // OVN-Kubernetes refuses it too. No DNSNameResolver can hold it, so nodes could not share its addresses.
                let message = format!(
                    "`{name}` is not accepted; a name has two labels at least, as in `example.com` and `*.example.com`"
                );
                scope.error("single-label", &path, message);
                return None;
            }
            Some(Peer::Domain(pattern))
        }
        (None, None, Some(nodes)) => parts::selector(scope, nodes, &format!("{path}.nodeSelector")).map(Peer::Nodes),
        _ => {
            scope.error("bad-peer", path, "exactly one of cidrSelector, dnsName and nodeSelector is accepted");
            None
        }
    }
}
