//! AdminNetworkPolicy `policy.networking.k8s.io/v1alpha1` (S4), as the network policy API publishes it, with its
//! experimental fields.

use super::formats::{PortName, Protocol, RuleName};
use super::kind::{Column, Definition};
use super::meta::PolicyStatus;
use super::peers::{EgressPeer, IngressPeer, NamespacedPodV1Alpha1, Subject};
use super::schema;
use super::tiers::{self, Dialect, WrittenRule};
use crate::lower::{Scope, parts};
use namewall_policy::model::{Action, Placement, Policy, PolicyKind, PortMatch, Ports};
use schemars::JsonSchema;
use serde::Deserialize;
use std::marker::PhantomData;

/// Where the API's first kinds were approved.
pub(super) const APPROVED: &str = "https://github.com/kubernetes-sigs/network-policy-api/pull/30";

/// The most rules in a direction, peers in a rule and ports in a rule.
pub(super) const MOST: usize = 100;

pub(super) const DEFINITION: Definition = Definition {
    publisher: "network policy API",
    columns: &[Column::new("Priority", "string", ".spec.priority"), Column::AGE],
    approved: Some(APPROVED),
    schema: schema::object::<AdminNetworkPolicy>,
};

/// What the pods it selects may do, before any NetworkPolicy is asked.
#[derive(JsonSchema, Debug)]
pub struct AdminNetworkPolicy {
    pub spec: AdminNetworkPolicySpec,
    /// What became of it.
    pub status: Option<PolicyStatus>,
}

/// What the policy says.
#[derive(Deserialize, JsonSchema, Debug)]
pub struct AdminNetworkPolicySpec {
    /// The policy with the lowest number is asked first.
    #[schemars(range(min = 0, max = 1000))]
    pub priority: i32,
    /// The pods it is for. Pods on the host's network are not among them.
    pub subject: Subject<NamespacedPodV1Alpha1>,
    /// Rules for connections to these pods, in the order they are asked.
    #[schemars(length(max = MOST))]
    pub ingress: Option<Vec<IngressRule<AdminAction>>>,
    /// Rules for connections of these pods, in the order they are asked.
    #[schemars(length(max = MOST))]
    pub egress: Option<Vec<EgressRule>>,
}

/// What to do with connections from some peers.
// `A` is the schema of its action.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
#[serde(bound = "")]
pub struct IngressRule<A> {
    pub name: Option<RuleName>,
    #[schemars(with = "A")]
    pub action: String,
    /// The peers.
    #[serde(default)]
    #[schemars(!default, length(min = 1, max = MOST))]
    pub from: Vec<IngressPeer<NamespacedPodV1Alpha1>>,
    /// The ports of the selected pods; without them every port and protocol.
    #[schemars(length(max = MOST))]
    pub ports: Option<Vec<Port>>,
    #[serde(skip)]
    accepted: PhantomData<A>,
}

/// What to do with connections to some peers.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!(self.to.exists(peer, has(peer.networks) || has(peer.nodes) || has(peer.domainNames)) && has(self.ports) && self.ports.exists(port, has(port.namedPort)))",
        "message": "networks, nodes and domainNames do not go with namedPort: they have no named ports",
    },
    {
        "rule": "self.action == 'Allow' || !self.to.exists(peer, has(peer.domainNames))",
        "message": "domainNames are accepted only in Allow rules",
    },
]))]
pub struct EgressRule {
    pub name: Option<RuleName>,
    #[schemars(with = "AdminAction")]
    pub action: String,
    /// The peers.
    #[serde(default)]
    #[schemars(!default, length(min = 1, max = MOST))]
    pub to: Vec<EgressPeer<NamespacedPodV1Alpha1>>,
    /// The ports of the peers; without them every port and protocol.
    #[schemars(length(max = MOST))]
    pub ports: Option<Vec<Port>>,
}

/// Allow and Deny end the matter, Pass leaves it to NetworkPolicies.
#[derive(JsonSchema, Debug, Clone)]
#[allow(dead_code, reason = "it is there for its schema alone")]
pub enum AdminAction {
    Allow,
    Deny,
    Pass,
}

/// A port. Exactly one of the fields is set.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub struct Port {
    /// By number.
    pub port_number: Option<PortNumber>,
    /// By the name that a container gives it.
    #[schemars(with = "Option<PortName>")]
    pub named_port: Option<String>,
    /// From one number to another.
    pub port_range: Option<PortRange>,
}

#[derive(Deserialize, JsonSchema, Debug, Clone)]
pub struct PortNumber {
    /// TCP, UDP or SCTP.
    #[schemars(with = "Protocol", extend("default" = "TCP"))]
    pub protocol: Option<String>,
    /// Its number.
    #[schemars(with = "i32", range(min = 1, max = 65535))]
    pub port: i64,
}

#[derive(Deserialize, JsonSchema, Debug, Clone)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.start <= self.end", "message": "the range ends before it starts"},
]))]
pub struct PortRange {
    /// TCP, UDP or SCTP.
    #[schemars(with = "Option<Protocol>", extend("default" = "TCP"))]
    pub protocol: Option<String>,
    /// The first port.
    #[schemars(with = "i32", range(min = 1, max = 65535))]
    pub start: i64,
    /// The last port.
    #[schemars(with = "i32", range(min = 1, max = 65535))]
    pub end: i64,
}

struct Admin;

impl Dialect for Admin {
    const KIND: PolicyKind = PolicyKind::AdminNetworkPolicy;
    const ACTIONS: &'static [(&'static str, Action)] =
        &[("Allow", Action::Allow), ("Deny", Action::Deny), ("Pass", Action::Pass)];
    const MOST: usize = MOST;
    const PORTS: &'static str = "ports";
    type Pods = NamespacedPodV1Alpha1;
    type Port = Port;
    type Ingress = IngressRule<AdminAction>;
    type Egress = EgressRule;

    fn ports(scope: &mut Scope<'_>, written: Option<&[Port]>, path: &str) -> Option<Ports> {
        ports(scope, written, path)
    }
}

impl<A> From<IngressRule<A>> for WrittenRule<IngressPeer<NamespacedPodV1Alpha1>, Port> {
    fn from(IngressRule { name, action, from, ports, .. }: IngressRule<A>) -> Self {
        Self { name, action, peers: from, ports }
    }
}

impl From<EgressRule> for WrittenRule<EgressPeer<NamespacedPodV1Alpha1>, Port> {
    fn from(EgressRule { name, action, to, ports }: EgressRule) -> Self {
        Self { name, action, peers: to, ports }
    }
}

pub(super) fn lower(scope: &mut Scope<'_>) -> Option<Policy> {
    let is_known = scope.is_well_formed::<AdminNetworkPolicySpec>();
    let priority = tiers::priority(scope);
    let placement = Placement::Admin { priority: priority.unwrap_or(0) };
    Some(tiers::lower::<Admin>(scope, placement, is_known && priority.is_some()))
}

pub(super) fn ports(scope: &mut Scope<'_>, ports: Option<&[Port]>, path: &str) -> Option<Ports> {
    let ports = ports.unwrap_or_default();
    if ports.is_empty() {
        return Some(Ports::Any);
    }
    parts::count(scope, ports.len(), MOST, path)?;
    let ports = parts::all(ports, |at, port| {
        let path = format!("{path}[{at}]");
        match (&port.port_number, &port.named_port, &port.port_range) {
            (Some(number), None, None) => {
                let protocol =
                    parts::protocol(scope, number.protocol.as_deref(), &format!("{path}.portNumber.protocol"))?;
                parts::port_range(scope, protocol, number.port..=number.port, &format!("{path}.portNumber.port"))
            }
            (None, Some(name), None) => {
                let name = parts::port_name(scope, name, &format!("{path}.namedPort"))?;
                Some(PortMatch::Named { protocol: None, name })
            }
            (None, None, Some(range)) => {
                let protocol =
                    parts::protocol(scope, range.protocol.as_deref(), &format!("{path}.portRange.protocol"))?;
                parts::port_range(scope, protocol, range.start..=range.end, &format!("{path}.portRange"))
            }
            _ => {
                scope.error("bad-port", &path, "exactly one of portNumber, namedPort and portRange is accepted");
                None
            }
        }
    });
    ports.map(Ports::Listed)
}
