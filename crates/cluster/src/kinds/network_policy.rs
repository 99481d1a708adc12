//! NetworkPolicy `networking.k8s.io/v1` (S2). Rules are read one by one, so that a broken one cannot hide the others.

use super::meta::{IntOrString, LabelSelector};
use crate::lower::{RuleList, Scope, enforcement, parts};
use crate::yaml::{Node, Value};
use namewall_policy::labels::Selector;
use namewall_policy::model::{
    Action, Clauses, NamespaceScope, Peer as LoweredPeer, Peers, Placement, PodSet, Policy, PolicyKind, PolicyRef,
    PortMatch, Ports, Rule, Subject,
};
use serde::Deserialize;

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "its fields are read one by one; it says which there are")]
struct Spec {
    pod_selector: Option<LabelSelector>,
    policy_types: Option<Vec<String>>,
    ingress: Option<Vec<IngressRule>>,
    egress: Option<Vec<EgressRule>>,
}

#[derive(Deserialize, Debug, Clone)]
pub(super) struct IngressRule {
    pub(super) from: Option<Vec<Peer>>,
    pub(super) ports: Option<Vec<Port>>,
}

#[derive(Deserialize, Debug, Clone)]
pub(super) struct EgressRule {
    pub(super) to: Option<Vec<Peer>>,
    pub(super) ports: Option<Vec<Port>>,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub(super) struct Peer {
    pub(super) pod_selector: Option<LabelSelector>,
    pub(super) namespace_selector: Option<LabelSelector>,
    pub(super) ip_block: Option<IpBlock>,
}

#[derive(Deserialize, Debug, Clone)]
pub(super) struct IpBlock {
    pub(super) cidr: String,
    #[serde(default)]
    pub(super) except: Vec<String>,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub(super) struct Port {
    pub(super) protocol: Option<String>,
    pub(super) port: Option<IntOrString>,
    pub(super) end_port: Option<i64>,
}

pub(super) fn lower(scope: &mut Scope<'_>) -> Option<Policy> {
    let well_formed = scope.is_well_formed_or_empty::<Spec>();
    let subject = subject(scope);
    let (ingress, egress) = (scope.rules("ingress"), scope.rules("egress"));
    // An unreadable list allows nothing, and isolates.
    let types = policy_types(scope, egress.as_ref().map_or(true, |list| !list.items.is_empty()));
    let readable = well_formed && subject.is_some() && ingress.is_ok() && egress.is_ok();
    let (isolates_ingress, isolates_egress) = types.filter(|_| readable).unwrap_or((true, true));
    let mut ingress = ingress.map(|list| rules(scope, &list, ingress_clauses)).unwrap_or_default();
    let mut egress = egress.map(|list| rules(scope, &list, egress_clauses)).unwrap_or_default();
    if !well_formed || subject.is_none() {
        // Nobody can tell whom or what it allows; its namespace is known.
        fail_closed(&mut ingress);
        fail_closed(&mut egress);
    }
    Some(Policy {
        id: id(scope, PolicyKind::NetworkPolicy),
        placement: Placement::Network { isolates_ingress, isolates_egress },
        enforcement: enforcement(scope),
        subject: subject.unwrap_or_else(|| whole_namespace(scope)),
        egress,
        ingress,
        source: scope.place(""),
    })
}

pub(super) fn fail_closed(rules: &mut [Rule]) {
    for rule in rules {
        rule.clauses = Clauses::Unreadable;
    }
}

pub(super) fn whole_namespace(scope: &Scope<'_>) -> Subject {
    let namespaces = NamespaceScope::Named(scope.namespace().into());
    Subject { pods: PodSet { namespaces, pods: Selector::everything() }, nodes: None }
}

pub(super) fn id(scope: &Scope<'_>, kind: PolicyKind) -> PolicyRef {
    PolicyRef { kind, namespace: Some(scope.namespace().into()), name: scope.meta.name.as_str().into() }
}

/// The pods the policy selects. A missing selector is the empty one.
pub(super) fn subject(scope: &mut Scope<'_>) -> Option<Subject> {
    if scope.is_in_doubt(&["spec", "podSelector"]) {
        return None;
    }
    let pods = match scope.node(&["spec", "podSelector"]) {
        Some(node) => {
            let read = scope.read::<LabelSelector>(node, "spec.podSelector")?;
            parts::selector(scope, &read, "spec.podSelector")?
        }
        None => Selector::everything(),
    };
    let namespaces = NamespaceScope::Named(scope.namespace().into());
    Some(Subject { pods: PodSet { namespaces, pods }, nodes: None })
}

/// S2.1; `None` if it cannot be read.
fn policy_types(scope: &mut Scope<'_>, has_egress: bool) -> Option<(bool, bool)> {
    let items = match scope.node(&["spec", "policyTypes"]).map(|node| &node.value) {
        None => return Some((true, has_egress)),
        Some(Value::Seq(items)) if items.is_empty() => return Some((true, has_egress)),
        Some(Value::Seq(items)) => items,
        Some(_) => {
            scope.error("bad-policy-type", "spec.policyTypes", "expected a list of Ingress and Egress");
            return None;
        }
    };
    let (mut ingress, mut egress, mut readable) = (false, false, true);
    for (at, item) in items.iter().enumerate() {
        match item.as_str() {
            Some("Ingress") => ingress = true,
            Some("Egress") => egress = true,
            _ => {
                readable = false;
                let message =
                    "only Ingress and Egress are accepted; until this is mended the policy isolates in both directions";
                scope.error("bad-policy-type", &format!("spec.policyTypes[{at}]"), message);
            }
        }
    }
    readable.then_some((ingress, egress))
}

pub(super) fn rules<'d>(
    scope: &mut Scope<'d>,
    list: &RuleList<'d>,
    clauses: fn(&mut Scope<'d>, &'d Node, &str) -> Option<Clauses>,
) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (at, node) in list.items.iter().enumerate() {
        let path = format!("{}[{at}]", list.path);
        let read = clauses(scope, node, &path).map(|clauses| (None, Action::Allow, clauses));
        rules.push(scope.rule(&path, read, Action::Allow));
    }
    rules
}

fn ingress_clauses<'d>(scope: &mut Scope<'d>, node: &'d Node, path: &str) -> Option<Clauses> {
    let rule: IngressRule = scope.read(node, path)?;
    let peers = peers(scope, rule.from.as_deref().unwrap_or_default(), &format!("{path}.from"));
    let ports = ports(scope, rule.ports.as_deref().unwrap_or_default(), &format!("{path}.ports"));
    Some(Clauses::Match { peers: peers?, ports: ports? })
}

fn egress_clauses<'d>(scope: &mut Scope<'d>, node: &'d Node, path: &str) -> Option<Clauses> {
    let rule: EgressRule = scope.read(node, path)?;
    let peers = peers(scope, rule.to.as_deref().unwrap_or_default(), &format!("{path}.to"));
    let ports = ports(scope, rule.ports.as_deref().unwrap_or_default(), &format!("{path}.ports"));
    Some(Clauses::Match { peers: peers?, ports: ports? })
}

/// S2.2: missing or empty matches everything.
fn peers(scope: &mut Scope<'_>, peers: &[Peer], path: &str) -> Option<Peers> {
    if peers.is_empty() {
        return Some(Peers::Anyone);
    }
    parts::all(peers, |at, item| peer(scope, item, &format!("{path}[{at}]"))).map(Peers::Listed)
}

fn peer(scope: &mut Scope<'_>, peer: &Peer, path: &str) -> Option<LoweredPeer> {
    match (&peer.ip_block, &peer.namespace_selector, &peer.pod_selector) {
        (Some(block), None, None) => ip_block(scope, block, &format!("{path}.ipBlock")),
        (Some(_), _, _) => {
            scope.error("bad-peer", path, "ipBlock stands alone; put the selectors into a peer of their own");
            None
        }
        (None, None, None) => {
            scope.error("bad-peer", path, "an empty peer; give podSelector, namespaceSelector or ipBlock");
            None
        }
        (None, namespaces, pods) => pod_set(scope, namespaces.as_ref(), pods.as_ref(), path).map(LoweredPeer::Pods),
    }
}

/// S2.3: both are ANDed; podSelector alone means the policy's own namespace.
pub(super) fn pod_set(
    scope: &mut Scope<'_>,
    namespaces: Option<&LabelSelector>,
    pods: Option<&LabelSelector>,
    path: &str,
) -> Option<PodSet> {
    let namespaces = match namespaces {
        Some(selector) => {
            NamespaceScope::Matching(parts::selector(scope, selector, &format!("{path}.namespaceSelector"))?)
        }
        None => NamespaceScope::Named(scope.namespace().into()),
    };
    let pods = match pods {
        Some(selector) => parts::selector(scope, selector, &format!("{path}.podSelector"))?,
        None => Selector::everything(),
    };
    Some(PodSet { namespaces, pods })
}

/// S2.4.
fn ip_block(scope: &mut Scope<'_>, block: &IpBlock, path: &str) -> Option<LoweredPeer> {
    let cidr = parts::cidr(scope, &block.cidr, &format!("{path}.cidr"));
    let except = parts::all(&block.except, |at, text| parts::cidr(scope, text, &format!("{path}.except[{at}]")));
    let (cidr, except) = (cidr?, except?);
    for (at, hole) in except.iter().enumerate() {
        if !cidr.covers(hole) || hole.prefix() == cidr.prefix() {
            scope.error("bad-except", &format!("{path}.except[{at}]"), format!("{hole} is not a part of {cidr}"));
            return None;
        }
    }
    Some(LoweredPeer::Network { cidr, except })
}

/// S2.2: missing or empty matches everything.
fn ports(scope: &mut Scope<'_>, ports: &[Port], path: &str) -> Option<Ports> {
    if ports.is_empty() {
        return Some(Ports::Any);
    }
    parts::all(ports, |at, item| port(scope, item, &format!("{path}[{at}]"))).map(Ports::Listed)
}

/// S2.5.
pub(super) fn port(scope: &mut Scope<'_>, port: &Port, path: &str) -> Option<PortMatch> {
    let protocol = parts::protocol(scope, port.protocol.as_deref(), &format!("{path}.protocol"))?;
    match (&port.port, port.end_port) {
        (None, None) => Some(PortMatch::every(protocol)),
        (Some(IntOrString::Int(number)), None) => {
            parts::port_range(scope, protocol, *number..=*number, &format!("{path}.port"))
        }
        (Some(IntOrString::Int(number)), Some(end)) => {
            parts::port_range(scope, protocol, *number..=end, &format!("{path}.endPort"))
        }
        (Some(IntOrString::String(name)), None) => {
            let name = parts::port_name(scope, name, &format!("{path}.port"))?;
            Some(PortMatch::Named { protocol: Some(protocol), name })
        }
        (_, Some(_)) => {
            scope.error("bad-port", &format!("{path}.endPort"), "endPort needs a numeric port to start from");
            None
        }
    }
}
