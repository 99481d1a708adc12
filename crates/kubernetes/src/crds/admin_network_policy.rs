//! AdminNetworkPolicy `policy.networking.k8s.io/v1alpha1` (S4), as the network policy API publishes it, with its
//! experimental fields.

use super::cluster_egress_firewall::Protocol;
use super::parts::{EgressPeer, IngressPeer, NamespacedPodV1Alpha1, PolicyStatus, PortName, Subject};
use super::{Form, Scope, schema};
use schemars::JsonSchema;

/// Where the API's first kinds were approved.
pub(super) const APPROVED: &str = "https://github.com/kubernetes-sigs/network-policy-api/pull/30";

pub(super) fn form() -> Form {
    Form {
        kind: "AdminNetworkPolicy",
        scope: Scope::Cluster,
        short_names: &["anp"],
        columns: &[("Priority", "string", ".spec.priority"), ("Age", "date", ".metadata.creationTimestamp")],
        approved: Some(APPROVED),
        schema: schema::object::<AdminNetworkPolicy>(),
    }
}

/// What the pods it selects may do, before any NetworkPolicy is asked.
#[derive(JsonSchema)]
struct AdminNetworkPolicy {
    spec: AdminNetworkPolicySpec,
    /// What became of it.
    status: Option<PolicyStatus>,
}

/// What the policy says.
#[derive(JsonSchema)]
struct AdminNetworkPolicySpec {
    /// The policy with the lowest number is asked first.
    #[schemars(range(min = 0, max = 1000))]
    priority: i32,
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
    /// Allow and Deny end the matter, Pass leaves it to NetworkPolicies.
    action: Action,
    /// The peers.
    #[schemars(length(min = 1, max = 100))]
    from: Vec<IngressPeer<NamespacedPodV1Alpha1>>,
    /// The ports of the selected pods; without them every port and protocol.
    #[schemars(length(max = 100))]
    ports: Option<Vec<Port>>,
}

/// What to do with connections to some peers.
#[derive(JsonSchema)]
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
struct EgressRule {
    /// What the rule is called where it is told of.
    #[schemars(length(max = 100))]
    name: Option<String>,
    /// Allow and Deny end the matter, Pass leaves it to NetworkPolicies.
    action: Action,
    /// The peers.
    #[schemars(length(min = 1, max = 100))]
    to: Vec<EgressPeer<NamespacedPodV1Alpha1>>,
    /// The ports of the peers; without them every port and protocol.
    #[schemars(length(max = 100))]
    ports: Option<Vec<Port>>,
}

#[derive(JsonSchema)]
enum Action {
    Allow,
    Deny,
    Pass,
}

/// A port. Exactly one of the fields is set.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", extend("minProperties" = 1, "maxProperties" = 1))]
pub(super) struct Port {
    /// By number.
    port_number: Option<PortNumber>,
    /// By the name that a container gives it.
    named_port: Option<PortName>,
    /// From one number to another.
    port_range: Option<PortRange>,
}

#[derive(JsonSchema)]
struct PortNumber {
    /// TCP, UDP or SCTP.
    #[schemars(extend("default" = "TCP"))]
    protocol: Protocol,
    /// Its number.
    #[schemars(range(min = 1, max = 65535))]
    port: i32,
}

#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.start <= self.end", "message": "the range ends before it starts"},
]))]
struct PortRange {
    /// TCP, UDP or SCTP.
    #[schemars(extend("default" = "TCP"))]
    protocol: Option<Protocol>,
    /// The first port.
    #[schemars(range(min = 1, max = 65535))]
    start: i32,
    /// The last port.
    #[schemars(range(min = 1, max = 65535))]
    end: i32,
}
