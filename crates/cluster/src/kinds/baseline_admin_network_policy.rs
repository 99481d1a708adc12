//! BaselineAdminNetworkPolicy `policy.networking.k8s.io/v1alpha1` (S4): AdminNetworkPolicy without what only that
//! has, which is priorities, Pass and names.

use super::admin_network_policy::{APPROVED, IngressRule, MOST, Port, ports};
use super::formats::{PublishedNetworks, RuleName};
use super::kind::{Column, Definition};
use super::meta::{LabelSelector, PolicyStatus};
use super::peers::{self, NamespacedPodV1Alpha1, Subject};
use super::schema;
use super::tiers::{self, Dialect, WrittenRule};
use crate::lower::Scope;
use namewall_policy::model::{Action, Placement, Policy, PolicyKind, Ports};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;

pub(super) const DEFINITION: Definition = Definition {
    publisher: "network policy API",
    columns: &[Column::AGE],
    approved: Some(APPROVED),
    schema: object_schema,
};

fn object_schema() -> Json {
    schema::only_named_default(
        schema::object::<BaselineAdminNetworkPolicy>(),
        "a BaselineAdminNetworkPolicy is named default; there is only one",
    )
}

/// What pods may do that no NetworkPolicy speaks of.
#[derive(JsonSchema, Debug)]
pub struct BaselineAdminNetworkPolicy {
    pub spec: BaselineAdminNetworkPolicySpec,
    /// What became of it.
    pub status: Option<PolicyStatus>,
}

/// What the policy says.
#[derive(Deserialize, JsonSchema, Debug)]
pub struct BaselineAdminNetworkPolicySpec {
    /// The pods it is for. Pods on the host's network are not among them.
    pub subject: Subject<NamespacedPodV1Alpha1>,
    /// Rules for connections to these pods, in the order they are asked.
    #[schemars(length(max = MOST))]
    pub ingress: Option<Vec<IngressRule<BaselineAction>>>,
    /// Rules for connections of these pods, in the order they are asked.
    #[schemars(length(max = MOST))]
    pub egress: Option<Vec<EgressRule>>,
}

/// What to do with connections to some peers.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(self.to.exists(peer, has(peer.networks) || has(peer.nodes)) && has(self.ports) && self.ports.exists(port, has(port.namedPort)))",
    "message": "networks and nodes do not go with namedPort: they have no named ports",
}]))]
pub struct EgressRule {
    pub name: Option<RuleName>,
    #[schemars(with = "BaselineAction")]
    pub action: String,
    /// The peers.
    #[serde(default)]
    #[schemars(!default, length(min = 1, max = MOST))]
    pub to: Vec<EgressPeer>,
    /// The ports of the peers; without them every port and protocol.
    #[schemars(length(max = MOST))]
    pub ports: Option<Vec<Port>>,
}

/// Allow or Deny.
#[derive(JsonSchema, Debug)]
#[allow(dead_code, reason = "it is there for its schema alone")]
pub enum BaselineAction {
    Allow,
    Deny,
}

/// Where connections go. Exactly one of the fields is set.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub struct EgressPeer {
    /// All pods of namespaces with these labels.
    pub namespaces: Option<LabelSelector>,
    /// Pods with these labels in namespaces with these labels.
    pub pods: Option<NamespacedPodV1Alpha1>,
    /// Nodes with these labels, at every address they have.
    pub nodes: Option<LabelSelector>,
    #[schemars(with = "Option<PublishedNetworks>")]
    pub networks: Option<Vec<String>>,
    // No field of the schema. It is read to say why names are refused (S4.4).
    #[schemars(skip)]
    pub domain_names: Option<Vec<String>>,
}

struct Baseline;

impl Dialect for Baseline {
    const KIND: PolicyKind = PolicyKind::BaselineAdminNetworkPolicy;
    const ACTIONS: &'static [(&'static str, Action)] = &[("Allow", Action::Allow), ("Deny", Action::Deny)];
    const MOST: usize = MOST;
    const PORTS: &'static str = "ports";
    type Pods = NamespacedPodV1Alpha1;
    type Port = Port;
    type Ingress = IngressRule<BaselineAction>;
    type Egress = EgressRule;

    fn ports(scope: &mut Scope<'_>, written: Option<&[Port]>, path: &str) -> Option<Ports> {
        ports(scope, written, path)
    }
}

impl From<EgressRule> for WrittenRule<peers::EgressPeer<NamespacedPodV1Alpha1>, Port> {
    fn from(EgressRule { name, action, to, ports }: EgressRule) -> Self {
        Self { name, action, peers: to.into_iter().map(Into::into).collect(), ports }
    }
}

impl From<EgressPeer> for peers::EgressPeer<NamespacedPodV1Alpha1> {
    fn from(EgressPeer { namespaces, pods, nodes, networks, domain_names }: EgressPeer) -> Self {
        Self { namespaces, pods, nodes, networks, domain_names }
    }
}

pub(super) fn lower(scope: &mut Scope<'_>) -> Option<Policy> {
    let mut is_readable = scope.is_well_formed::<BaselineAdminNetworkPolicySpec>();
    if scope.meta.name != "default" {
        scope.error("bad-name", "metadata.name", "a BaselineAdminNetworkPolicy is named `default`; there is only one");
        is_readable = false;
    }
    Some(tiers::lower::<Baseline>(scope, Placement::Baseline { priority: None }, is_readable))
}
