//! NetworkPolicy `extensions/v1beta1`, as in its original proposal (S3): no
//! egress, isolation only by the Namespace, and empty lists that match nothing.

use super::meta::LabelSelector;
use super::network_policy::{EgressRule, IngressRule, Peer, fail_closed, id, pod_set, port, rules, subject};
use crate::lower::{Scope, enforcement, parts};
use crate::yaml::Node;
use namewall_policy::model::{Clauses, Peer as LoweredPeer, Peers, Placement, Policy, PolicyKind, Ports};
use serde::Deserialize;

pub(crate) const ISOLATION_ANNOTATION: &str = "net.beta.kubernetes.io/network-policy";

// The last two fields were added to the API later. A finding reports them where they are used.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "its fields are read one by one; it says which there are")]
struct Spec {
    pod_selector: Option<LabelSelector>,
    ingress: Option<Vec<IngressRule>>,
    egress: Option<Vec<EgressRule>>,
    policy_types: Option<Vec<String>>,
}

/// The JSON in the Namespace annotation of v1beta1.
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields)]
struct NamespaceNetworkPolicy {
    ingress: Option<NamespaceIngressPolicy>,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields)]
struct NamespaceIngressPolicy {
    isolation: Option<String>,
}

pub(super) fn lower(scope: &mut Scope<'_>) -> Option<Policy> {
    let well_formed = scope.is_well_formed_or_empty::<Spec>();
    for later in ["policyTypes", "egress"] {
        if scope.node(&["spec", later]).is_some() {
            let message = format!("`{later}` came after this version and has no effect here; use networking.k8s.io/v1");
            scope.error("unknown-field", &format!("spec.{later}"), message);
        }
    }
    let subject = subject(scope)?;
    let mut ingress = scope.rules("ingress").map(|list| rules(scope, &list, clauses)).unwrap_or_default();
    if !well_formed {
        fail_closed(&mut ingress);
    }
    Some(Policy {
        id: id(scope, PolicyKind::NetworkPolicyV1Beta1),
        placement: Placement::Network { isolates_ingress: false, isolates_egress: false },
        enforcement: enforcement(scope),
        subject,
        egress: Vec::new(),
        ingress,
        source: scope.place(""),
    })
}

/// S3.2: missing matches everything, empty matches nothing.
fn clauses<'d>(scope: &mut Scope<'d>, node: &'d Node, path: &str) -> Option<Clauses> {
    let rule: IngressRule = scope.read(node, path)?;
    let peers = match &rule.from {
        None => Some(Peers::Anyone),
        Some(from) => parts::all(from, |at, item| peer(scope, item, &format!("{path}.from[{at}]"))).map(Peers::Listed),
    };
    let ports = match &rule.ports {
        None => Some(Ports::Any),
        Some(ports) => {
            parts::all(ports, |at, item| port(scope, item, &format!("{path}.ports[{at}]"))).map(Ports::Listed)
        }
    };
    Some(Clauses::Match { peers: peers?, ports: ports? })
}

/// S3.3: exactly one of the two selectors.
fn peer(scope: &mut Scope<'_>, peer: &Peer, path: &str) -> Option<LoweredPeer> {
    match (&peer.pod_selector, &peer.namespace_selector, &peer.ip_block) {
        (pods @ Some(_), None, None) => pod_set(scope, None, pods.as_ref(), path).map(LoweredPeer::Pods),
        (None, namespaces @ Some(_), None) => pod_set(scope, namespaces.as_ref(), None, path).map(LoweredPeer::Pods),
        _ => {
            scope.error("bad-peer", path, "exactly one of podSelector and namespaceSelector is accepted in v1beta1");
            None
        }
    }
}

/// S3.1: true if the annotation or `spec.networkPolicy` isolates the namespace. One that cannot be read does.
pub(super) fn isolates(scope: &mut Scope<'_>) -> bool {
    let annotated = annotation_isolates(scope);
    spec_isolates(scope) || annotated
}

fn annotation_isolates(scope: &mut Scope<'_>) -> bool {
    let Some(text) = scope.meta.annotations.get(ISOLATION_ANNOTATION) else { return false };
    let isolation = match serde_json::from_str::<NamespaceNetworkPolicy>(text) {
        Ok(policy) => policy.ingress.and_then(|ingress| ingress.isolation),
        Err(error) => Some(error.to_string()),
    };
    is_default_deny(scope, isolation.as_deref(), ISOLATION_ANNOTATION, "metadata.annotations")
}

/// As the original proposal writes it, before it became an annotation.
fn spec_isolates(scope: &mut Scope<'_>) -> bool {
    const PATH: &str = "spec.networkPolicy";
    if scope.is_in_doubt(&["spec", "networkPolicy"]) || is_misspelt(scope) {
        return true;
    }
    let Some(node) = scope.node(&["spec", "networkPolicy"]) else { return false };
    match scope.read::<NamespaceNetworkPolicy>(node, PATH) {
        Some(policy) => {
            let isolation = policy.ingress.and_then(|ingress| ingress.isolation);
            is_default_deny(scope, isolation.as_deref(), PATH, PATH)
        }
        None => true,
    }
}

/// Other fields of a Namespace are none of our business, but not one that is meant to be this one.
fn is_misspelt(scope: &mut Scope<'_>) -> bool {
    let like = |key: &str| key.to_ascii_lowercase().replace(['-', '_'], "").starts_with("networkpolic");
    let keys = scope.node(&["spec"]).map(Node::entries).unwrap_or_default().iter().map(|entry| &*entry.key);
    let Some(key) = keys.into_iter().find(|key| like(key) && *key != "networkPolicy") else { return false };
    let message =
        format!("`{key}` is not known here; did you mean networkPolicy? The namespace is isolated until it is mended");
    scope.error("unknown-field", &format!("spec.{key}"), message);
    true
}

fn is_default_deny(scope: &mut Scope<'_>, isolation: Option<&str>, what: &str, path: &str) -> bool {
    match isolation {
        None => false,
        Some("DefaultDeny") => true,
        Some(other) => {
            let message = format!(
                "{what} is not {{\"ingress\": {{\"isolation\": \"DefaultDeny\"}}}} ({other}); the namespace is isolated until it is mended"
            );
            scope.error("bad-isolation", path, message);
            true
        }
    }
}
