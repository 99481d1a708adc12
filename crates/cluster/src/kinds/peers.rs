//! Subjects and peers as the network policy API writes them, for all kinds that do.

use super::formats::{MOST_PUBLISHED, PublishedDomainName, PublishedNetworks};
use super::meta::LabelSelector;
use crate::lower::published_names::{self, Schema};
use crate::lower::{Scope, parts};
use namewall_policy::domain::Wildcard;
use namewall_policy::labels::Selector;
use namewall_policy::model::{NamespaceScope, Peer, PodSet, Subject as LoweredSubject};
use schemars::JsonSchema;
use serde::Deserialize;

/// Whom a policy is for. Exactly one of the fields is set.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub struct Subject<P = NamespacedPod> {
    /// All pods of namespaces with these labels.
    pub namespaces: Option<LabelSelector>,
    /// Pods with these labels in namespaces with these labels.
    pub pods: Option<P>,
}

/// Pods by their labels and their namespaces'.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct NamespacedPod {
    /// The namespaces; without it, all.
    pub namespace_selector: Option<LabelSelector>,
    /// The pods; all of them if it is empty.
    #[schemars(required)]
    pub pod_selector: Option<LabelSelector>,
}

/// Pods by their labels and their namespaces', as `v1alpha1` wants it: both are written.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct NamespacedPodV1Alpha1 {
    /// The namespaces; all of them if it is empty.
    #[schemars(required)]
    pub namespace_selector: Option<LabelSelector>,
    /// The pods; all of them if it is empty.
    #[schemars(required)]
    pub pod_selector: Option<LabelSelector>,
}

/// Where connections come from. Exactly one of the fields is set.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub struct IngressPeer<P = NamespacedPod> {
    /// All pods of namespaces with these labels.
    pub namespaces: Option<LabelSelector>,
    /// Pods with these labels in namespaces with these labels.
    pub pods: Option<P>,
}

/// Where connections go. Exactly one of the fields is set.
#[derive(Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub struct EgressPeer<P = NamespacedPod> {
    /// All pods of namespaces with these labels.
    pub namespaces: Option<LabelSelector>,
    /// Pods with these labels in namespaces with these labels.
    pub pods: Option<P>,
    /// Nodes with these labels, at every address they have.
    pub nodes: Option<LabelSelector>,
    #[schemars(with = "Option<PublishedNetworks>")]
    pub networks: Option<Vec<String>>,
    /// Names, only in rules that allow.
    #[schemars(
        with = "Option<Vec<PublishedDomainName>>",
        length(min = 1, max = MOST_PUBLISHED),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub domain_names: Option<Vec<String>>,
}

/// Pods by two selectors, of which a kind may require one or both.
pub(super) trait PodSelectors {
    const NEEDS_NAMESPACES: bool;
    fn namespaces(&self) -> Option<&LabelSelector>;
    fn pods(&self) -> Option<&LabelSelector>;
}

impl PodSelectors for NamespacedPod {
    const NEEDS_NAMESPACES: bool = false;

    fn namespaces(&self) -> Option<&LabelSelector> {
        self.namespace_selector.as_ref()
    }

    fn pods(&self) -> Option<&LabelSelector> {
        self.pod_selector.as_ref()
    }
}

impl PodSelectors for NamespacedPodV1Alpha1 {
    const NEEDS_NAMESPACES: bool = true;

    fn namespaces(&self) -> Option<&LabelSelector> {
        self.namespace_selector.as_ref()
    }

    fn pods(&self) -> Option<&LabelSelector> {
        self.pod_selector.as_ref()
    }
}

pub(super) fn everyone() -> LoweredSubject {
    LoweredSubject { pods: PodSet::all(), nodes: None }
}

/// S4.1: exactly one of namespaces and pods.
pub(super) fn subject<P: PodSelectors>(
    scope: &mut Scope<'_>,
    subject: &Subject<P>,
    path: &str,
) -> Option<LoweredSubject> {
    let pods = match (&subject.namespaces, &subject.pods) {
        (Some(namespaces), None) => in_namespaces(scope, namespaces, &format!("{path}.namespaces")),
        (None, Some(pods)) => namespaced_pods(scope, pods, &format!("{path}.pods")),
        _ => {
            scope.error("bad-subject", path, "exactly one of namespaces and pods is accepted");
            None
        }
    };
    pods.map(|pods| LoweredSubject { pods, nodes: None })
}

fn in_namespaces(scope: &mut Scope<'_>, namespaces: &LabelSelector, path: &str) -> Option<PodSet> {
    let namespaces = parts::selector(scope, namespaces, path)?;
    Some(PodSet { namespaces: NamespaceScope::Matching(namespaces), pods: Selector::everything() })
}

fn namespaced_pods<P: PodSelectors>(scope: &mut Scope<'_>, pods: &P, path: &str) -> Option<PodSet> {
    let namespaces = match pods.namespaces() {
        Some(selector) => parts::selector(scope, selector, &format!("{path}.namespaceSelector"))?,
        None if P::NEEDS_NAMESPACES => {
            let message = "`namespaceSelector` is missing, and the API server refuses that; write namespaceSelector: {} if all namespaces are meant";
            scope.error("bad-peer", path, message);
            return None;
        }
        None => Selector::everything(),
    };
    let Some(selector) = pods.pods() else {
        scope.error("bad-peer", path, "`podSelector` is missing; write podSelector: {} if all pods are meant");
        return None;
    };
    let pods = parts::selector(scope, selector, &format!("{path}.podSelector"))?;
    Some(PodSet { namespaces: NamespaceScope::Matching(namespaces), pods })
}

pub(super) fn ingress_peer<P: PodSelectors>(scope: &mut Scope<'_>, peer: &IngressPeer<P>, path: &str) -> Option<Peer> {
    match (&peer.namespaces, &peer.pods) {
        (Some(namespaces), None) => in_namespaces(scope, namespaces, &format!("{path}.namespaces")).map(Peer::Pods),
        (None, Some(pods)) => namespaced_pods(scope, pods, &format!("{path}.pods")).map(Peer::Pods),
        _ => {
            scope.error("bad-peer", path, "exactly one of namespaces and pods is accepted");
            None
        }
    }
}

pub(super) fn egress_peers<P: PodSelectors>(
    scope: &mut Scope<'_>,
    peer: &EgressPeer<P>,
    path: &str,
) -> Option<Vec<Peer>> {
    let EgressPeer { namespaces, pods, nodes, networks, domain_names } = peer;
    let given = [namespaces.is_some(), pods.is_some(), nodes.is_some(), networks.is_some(), domain_names.is_some()];
    if given.iter().filter(|given| **given).count() != 1 {
        scope.error("bad-peer", path, "exactly one of namespaces, pods, nodes, networks and domainNames is accepted");
        return None;
    }
    if let Some(namespaces) = namespaces {
        return in_namespaces(scope, namespaces, &format!("{path}.namespaces")).map(|pods| vec![Peer::Pods(pods)]);
    }
    if let Some(pods) = pods {
        return namespaced_pods(scope, pods, &format!("{path}.pods")).map(|pods| vec![Peer::Pods(pods)]);
    }
    if let Some(nodes) = nodes {
        return parts::selector(scope, nodes, &format!("{path}.nodes")).map(|nodes| vec![Peer::Nodes(nodes)]);
    }
    if let Some(networks) = networks {
        return self::networks(scope, networks, MOST_PUBLISHED, &format!("{path}.networks"));
    }
    let list = NameList { names: domain_names.as_ref()?, most: MOST_PUBLISHED, schema: Some(Schema::PolicyApi) };
    domains(scope, &list, &format!("{path}.domainNames"))
}

pub(super) fn networks(scope: &mut Scope<'_>, networks: &[String], most: usize, path: &str) -> Option<Vec<Peer>> {
    parts::count(scope, networks.len(), most, path)?;
    parts::all(networks, |at, text| {
        parts::cidr(scope, text, &format!("{path}[{at}]")).map(|cidr| Peer::Network { cidr, except: Vec::new() })
    })
}

/// The names of a peer, and what its kind accepts.
pub(super) struct NameList<'n> {
    pub(super) names: &'n [String],
    pub(super) most: usize,
    /// None if the schema of the kind accepts every name that is read here.
    pub(super) schema: Option<Schema>,
}

pub(super) fn domains(scope: &mut Scope<'_>, list: &NameList<'_>, path: &str) -> Option<Vec<Peer>> {
    let NameList { names, most, schema } = *list;
    parts::count(scope, names.len(), most, path)?;
    parts::all(names, |at, text| {
        let path = format!("{path}[{at}]");
        let pattern = parts::domain_pattern(scope, text, Wildcard::Subdomains, &path)?;
        if let Some(schema) = schema {
            let refusal = published_names::refusal(text, schema);
            let refusal = refusal.or_else(|| names[..at].contains(text).then_some("it is in the list twice"));
            published_names::warn(scope, text, refusal, &path);
        }
        Some(Peer::Domain(pattern))
    })
}
