//! ClusterNetworkPolicy `policy.networking.k8s.io/v1alpha2` and `v1beta1` (S4), as the network policy API publishes
//! it, with its experimental fields. The two versions have one shape.

use super::formats::{PortName, RuleName};
use super::kind::{Column, Definition};
use super::meta::PolicyStatus;
use super::peers::{EgressPeer, IngressPeer, NamespacedPod, Subject};
use super::schema;
use super::tiers::{self, Dialect, WrittenRule};
use crate::lower::{Scope, parts};
use crate::yaml::Node;
use namewall_policy::model::{Action, Placement, Policy, PolicyKind, PortMatch, Ports};
use namewall_policy::port::Protocol as LoweredProtocol;
use schemars::JsonSchema;
use serde::Deserialize;

/// The most rules in a direction, peers in a rule and protocols in a rule.
const MOST: usize = 25;

pub(super) const DEFINITION: Definition = Definition {
    publisher: "network policy API",
    columns: &[
        Column::new("Tier", "string", ".spec.tier"),
        Column::new("Priority", "string", ".spec.priority"),
        Column::AGE,
    ],
    approved: Some("https://github.com/kubernetes-sigs/network-policy-api/pull/300"),
    schema: schema::object::<ClusterNetworkPolicy>,
};

/// What the pods it selects may do, before any NetworkPolicy is asked or after.
#[derive(JsonSchema, Debug)]
pub struct ClusterNetworkPolicy {
    pub spec: ClusterNetworkPolicySpec,
    /// What became of it.
    pub status: Option<PolicyStatus>,
}

/// What the policy says.
#[derive(Deserialize, JsonSchema, Debug)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.tier == 'Admin' || !has(self.egress) || !self.egress.exists(rule, rule.to.exists(peer, has(peer.domainNames)))",
    "message": "domainNames are accepted only in the Admin tier",
}]))]
pub struct ClusterNetworkPolicySpec {
    /// Admin is asked before NetworkPolicies, Baseline where none speaks of a pod.
    #[schemars(with = "Tier")]
    pub tier: String,
    /// Of a tier, the policy with the lowest number is asked first.
    #[schemars(range(min = 0, max = 1000))]
    pub priority: i32,
    /// The pods it is for. Pods on the host's network are not among them.
    pub subject: Subject,
    /// Rules for connections to these pods, in the order they are asked.
    #[schemars(length(max = MOST))]
    pub ingress: Option<Vec<IngressRule>>,
    /// Rules for connections of these pods, in the order they are asked.
    #[schemars(length(max = MOST))]
    pub egress: Option<Vec<EgressRule>>,
}

#[derive(JsonSchema)]
#[allow(dead_code, reason = "it is there for its schema alone")]
enum Tier {
    Admin,
    Baseline,
}

/// What to do with connections from some peers.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
pub struct IngressRule {
    pub name: Option<RuleName>,
    /// Accept and Deny end the matter, Pass leaves it to the next tier.
    #[schemars(with = "ClusterAction")]
    pub action: String,
    /// The peers.
    #[serde(default)]
    #[schemars(!default, length(min = 1, max = MOST))]
    pub from: Vec<IngressPeer>,
    /// Protocols and ports of the selected pods; without them every protocol.
    #[schemars(length(min = 1, max = MOST))]
    pub protocols: Option<Vec<Protocol>>,
}

/// What to do with connections to some peers.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!(self.to.exists(peer, has(peer.networks) || has(peer.nodes) || has(peer.domainNames)) && has(self.protocols) && self.protocols.exists(protocol, has(protocol.destinationNamedPort)))",
        "message": "networks, nodes and domainNames do not go with destinationNamedPort: they have no named ports",
    },
    {
        "rule": "self.action == 'Accept' || !self.to.exists(peer, has(peer.domainNames))",
        "message": "domainNames are accepted only in Accept rules",
    },
]))]
pub struct EgressRule {
    pub name: Option<RuleName>,
    /// Accept and Deny end the matter, Pass leaves it to the next tier.
    #[schemars(with = "ClusterAction")]
    pub action: String,
    /// The peers.
    #[serde(default)]
    #[schemars(!default, length(min = 1, max = MOST))]
    pub to: Vec<EgressPeer>,
    /// Protocols and ports of the peers; without them every protocol.
    #[schemars(length(min = 1, max = MOST))]
    pub protocols: Option<Vec<Protocol>>,
}

#[derive(JsonSchema)]
#[allow(dead_code, reason = "it is there for its schema alone")]
enum ClusterAction {
    Accept,
    Deny,
    Pass,
}

/// A protocol. Exactly one of the fields is set.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub struct Protocol {
    /// TCP.
    pub tcp: Option<Transport>,
    /// UDP.
    pub udp: Option<Transport>,
    /// SCTP.
    pub sctp: Option<Transport>,
    /// Whatever protocol and port a container gives this name.
    #[schemars(with = "Option<PortName>")]
    pub destination_named_port: Option<String>,
}

#[derive(Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct Transport {
    /// The port that is connected to.
    pub destination_port: Option<Port>,
}

/// A port. Exactly one of the fields is set.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub struct Port {
    /// By number.
    #[schemars(with = "Option<i32>", range(min = 1, max = 65535))]
    pub number: Option<i64>,
    /// From one number to another.
    pub range: Option<PortRange>,
}

#[derive(Deserialize, JsonSchema, Debug, Clone)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.start < self.end", "message": "a range ends after it starts; write number for one port"},
]))]
pub struct PortRange {
    /// The first port.
    #[schemars(with = "i32", range(min = 1, max = 65535))]
    pub start: i64,
    /// The last port.
    #[schemars(with = "i32", range(min = 1, max = 65535))]
    pub end: i64,
}

struct Cluster;

impl Dialect for Cluster {
    const KIND: PolicyKind = PolicyKind::ClusterNetworkPolicy;
    const ACTIONS: &'static [(&'static str, Action)] =
        &[("Accept", Action::Allow), ("Deny", Action::Deny), ("Pass", Action::Pass)];
    const MOST: usize = MOST;
    const PORTS: &'static str = "protocols";
    type Pods = NamespacedPod;
    type Port = Protocol;
    type Ingress = IngressRule;
    type Egress = EgressRule;

    fn ports(scope: &mut Scope<'_>, protocols: Option<&[Protocol]>, path: &str) -> Option<Ports> {
        let Some(protocols) = protocols else { return Some(Ports::Any) };
        parts::count(scope, protocols.len(), MOST, path)?;
        parts::all(protocols, |at, item| protocol(scope, item, &format!("{path}[{at}]"))).map(Ports::Listed)
    }
}

impl From<IngressRule> for WrittenRule<IngressPeer, Protocol> {
    fn from(IngressRule { name, action, from, protocols }: IngressRule) -> Self {
        Self { name, action, peers: from, ports: protocols }
    }
}

impl From<EgressRule> for WrittenRule<EgressPeer, Protocol> {
    fn from(EgressRule { name, action, to, protocols }: EgressRule) -> Self {
        Self { name, action, peers: to, ports: protocols }
    }
}

pub(super) fn lower(scope: &mut Scope<'_>) -> Option<Policy> {
    let is_known = scope.is_well_formed::<ClusterNetworkPolicySpec>();
    let priority = tiers::priority(scope);
    let at = priority.unwrap_or(0);
    let tier = scope.node(&["spec", "tier"]).and_then(Node::as_str).unwrap_or_default();
    let placement = match tier {
        "Admin" => Placement::Admin { priority: at },
        "Baseline" => Placement::Baseline { priority: Some(at) },
        _ => {
            scope.error("bad-tier", "spec.tier", format!("`{tier}` is not accepted; use Admin or Baseline"));
            Placement::Admin { priority: at }
        }
    };
    let is_readable = is_known && priority.is_some() && matches!(tier, "Admin" | "Baseline");
    Some(tiers::lower::<Cluster>(scope, placement, is_readable))
}

fn protocol(scope: &mut Scope<'_>, item: &Protocol, path: &str) -> Option<PortMatch> {
    let transports =
        [(&item.tcp, LoweredProtocol::Tcp), (&item.udp, LoweredProtocol::Udp), (&item.sctp, LoweredProtocol::Sctp)];
    let mut given =
        transports.into_iter().filter_map(|(transport, protocol)| transport.as_ref().map(|t| (t, protocol)));
    match (given.next(), given.next(), &item.destination_named_port) {
        (Some((transport, protocol)), None, None) => {
            let path = format!("{path}.{}.destinationPort", protocol.to_string().to_lowercase());
            let port = transport.destination_port.as_ref();
            match port.map(|port| (port.number, &port.range)) {
                Some((Some(number), None)) => parts::port_range(scope, protocol, number..=number, &path),
                Some((None, Some(range))) if range.start == range.end => {
                    scope.error("bad-port", &path, "a range ends after it starts; write number for one port");
                    None
                }
                Some((None, Some(range))) => parts::port_range(scope, protocol, range.start..=range.end, &path),
                _ => {
                    scope.error("bad-port", &path, "destinationPort with exactly one of number and range is needed");
                    None
                }
            }
        }
        (None, None, Some(name)) => {
            let name = parts::port_name(scope, name, &format!("{path}.destinationNamedPort"))?;
            Some(PortMatch::Named { protocol: None, name })
        }
        _ => {
            scope.error("bad-port", path, "exactly one of tcp, udp, sctp and destinationNamedPort is accepted");
            None
        }
    }
}
