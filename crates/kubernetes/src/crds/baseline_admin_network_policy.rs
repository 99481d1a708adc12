//! BaselineAdminNetworkPolicy `policy.networking.k8s.io/v1alpha1` (S4): AdminNetworkPolicy without what only that
//! has, which is priorities, Pass and names.

use super::admin_network_policy::{APPROVED, Port};
use super::cluster_egress_firewall::Verb;
use super::parts::{Cidr, IngressPeer, LabelSelector, NamespacedPodV1Alpha1, PolicyStatus, Subject};
use super::{Form, Scope, schema};
use schemars::JsonSchema;

pub(super) fn form() -> Form {
    Form {
        kind: "BaselineAdminNetworkPolicy",
        scope: Scope::Cluster,
        short_names: &["banp"],
        columns: &[("Age", "date", ".metadata.creationTimestamp")],
        approved: Some(APPROVED),
        schema: schema::only_named_default(
            schema::object::<BaselineAdminNetworkPolicy>(),
            "a BaselineAdminNetworkPolicy is named default; there is only one",
        ),
    }
}

/// What pods may do that no NetworkPolicy speaks of.
#[derive(JsonSchema)]
struct BaselineAdminNetworkPolicy {
    spec: BaselineAdminNetworkPolicySpec,
    /// What became of it.
    status: Option<PolicyStatus>,
}

/// What the policy says.
#[derive(JsonSchema)]
struct BaselineAdminNetworkPolicySpec {
    /// The pods it is for. Pods on the host's network are not among them.
    subject: Subject<NamespacedPodV1Alpha1>,
    /// Rules for connections to these pods, in the order they are asked.
    #[schemars(length(max = 100))]
    ingress: Option<Vec<IngressRule>>,
    /// Rules for connections of these pods, in the order they are asked.
    #[schemars(length(max = 100))]
    egress: Option<Vec<EgressRule>>,
}

/// What to do with connections from some peers.
#[derive(JsonSchema)]
struct IngressRule {
    /// What the rule is called where it is told of.
    #[schemars(length(max = 100))]
    name: Option<String>,
    /// Allow or Deny.
    action: Verb,
    /// The peers.
    #[schemars(length(min = 1, max = 100))]
    from: Vec<IngressPeer<NamespacedPodV1Alpha1>>,
    /// The ports of the selected pods; without them every port and protocol.
    #[schemars(length(max = 100))]
    ports: Option<Vec<Port>>,
}

/// What to do with connections to some peers.
#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(self.to.exists(peer, has(peer.networks) || has(peer.nodes)) && has(self.ports) && self.ports.exists(port, has(port.namedPort)))",
    "message": "networks and nodes do not go with namedPort: they have no named ports",
}]))]
struct EgressRule {
    /// What the rule is called where it is told of.
    #[schemars(length(max = 100))]
    name: Option<String>,
    /// Allow or Deny.
    action: Verb,
    /// The peers.
    #[schemars(length(min = 1, max = 100))]
    to: Vec<EgressPeer>,
    /// The ports of the peers; without them every port and protocol.
    #[schemars(length(max = 100))]
    ports: Option<Vec<Port>>,
}

/// Where connections go. Exactly one of the fields is set.
#[derive(JsonSchema)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
struct EgressPeer {
    /// All pods of namespaces with these labels.
    namespaces: Option<LabelSelector>,
    /// Pods with these labels in namespaces with these labels.
    pods: Option<NamespacedPodV1Alpha1>,
    /// Nodes with these labels, at every address they have.
    nodes: Option<LabelSelector>,
    /// Blocks of addresses, also of pods inside them.
    #[schemars(length(min = 1, max = 25), extend("x-kubernetes-list-type" = "set"))]
    networks: Option<Vec<Cidr>>,
}
