//! ClusterNetworkPolicy `policy.networking.k8s.io/v1alpha2` and `v1beta1` (S4), as the network policy API publishes
//! it, with its experimental fields. The two versions have one shape.

use super::parts::{EgressPeer, IngressPeer, PolicyStatus, PortName, Subject};
use super::{Form, Scope, schema};
use schemars::JsonSchema;

pub(super) fn form() -> Form {
    Form {
        kind: "ClusterNetworkPolicy",
        scope: Scope::Cluster,
        short_names: &["cnp"],
        columns: &[
            ("Tier", "string", ".spec.tier"),
            ("Priority", "string", ".spec.priority"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ],
        approved: Some("https://github.com/kubernetes-sigs/network-policy-api/pull/300"),
        schema: schema::object::<ClusterNetworkPolicy>(),
    }
}

/// What the pods it selects may do, before any NetworkPolicy is asked or after.
#[derive(JsonSchema)]
struct ClusterNetworkPolicy {
    spec: ClusterNetworkPolicySpec,
    /// What became of it.
    status: Option<PolicyStatus>,
}

/// What the policy says.
#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.tier == 'Admin' || !has(self.egress) || !self.egress.exists(rule, rule.to.exists(peer, has(peer.domainNames)))",
    "message": "domainNames are accepted only in the Admin tier",
}]))]
struct ClusterNetworkPolicySpec {
    /// Admin is asked before NetworkPolicies, Baseline where none speaks of a pod.
    tier: Tier,
    /// Of a tier, the policy with the lowest number is asked first.
    #[schemars(range(min = 0, max = 1000))]
    priority: i32,
    /// The pods it is for. Pods on the host's network are not among them.
    subject: Subject,
    /// Rules for connections to these pods, in the order they are asked.
    #[schemars(length(max = 25))]
    ingress: Option<Vec<IngressRule>>,
    /// Rules for connections of these pods, in the order they are asked.
    #[schemars(length(max = 25))]
    egress: Option<Vec<EgressRule>>,
}

#[derive(JsonSchema)]
enum Tier {
    Admin,
    Baseline,
}

/// What to do with connections from some peers.
#[derive(JsonSchema)]
struct IngressRule {
    /// What the rule is called where it is told of.
    #[schemars(length(max = 100))]
    name: Option<String>,
    /// Accept and Deny end the matter, Pass leaves it to the next tier.
    action: Action,
    /// The peers.
    #[schemars(length(min = 1, max = 25))]
    from: Vec<IngressPeer>,
    /// Protocols and ports of the selected pods; without them every protocol.
    #[schemars(length(min = 1, max = 25))]
    protocols: Option<Vec<Protocol>>,
}

/// What to do with connections to some peers.
#[derive(JsonSchema)]
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
struct EgressRule {
    /// What the rule is called where it is told of.
    #[schemars(length(max = 100))]
    name: Option<String>,
    /// Accept and Deny end the matter, Pass leaves it to the next tier.
    action: Action,
    /// The peers.
    #[schemars(length(min = 1, max = 25))]
    to: Vec<EgressPeer>,
    /// Protocols and ports of the peers; without them every protocol.
    #[schemars(length(min = 1, max = 25))]
    protocols: Option<Vec<Protocol>>,
}

#[derive(JsonSchema)]
enum Action {
    Accept,
    Deny,
    Pass,
}

/// A protocol. Exactly one of the fields is set.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", extend("minProperties" = 1, "maxProperties" = 1))]
struct Protocol {
    /// TCP.
    tcp: Option<Transport>,
    /// UDP.
    udp: Option<Transport>,
    /// SCTP.
    sctp: Option<Transport>,
    /// Whatever protocol and port a container gives this name.
    destination_named_port: Option<PortName>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", extend("minProperties" = 1))]
struct Transport {
    /// The port that is connected to.
    destination_port: Option<Port>,
}

/// A port. Exactly one of the fields is set.
#[derive(JsonSchema)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
struct Port {
    /// By number.
    #[schemars(range(min = 1, max = 65535))]
    number: Option<i32>,
    /// From one number to another.
    range: Option<PortRange>,
}

#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.start < self.end", "message": "a range ends after it starts; write number for one port"},
]))]
struct PortRange {
    /// The first port.
    #[schemars(range(min = 1, max = 65535))]
    start: i32,
    /// The last port.
    #[schemars(range(min = 1, max = 65535))]
    end: i32,
}
