//! AdminNetworkPolicy and BaselineAdminNetworkPolicy `v1alpha1`, and
//! ClusterNetworkPolicy `v1alpha2` (S4), with their published limits.

use super::scope::{ReadRule, RuleForm, Scope};
use super::{parts, published_names};
use crate::api::admin_network_policy::{self as anp, EgressPeer, IngressPeer, NamespacedPod, Subject as ApiSubject};
use crate::api::cluster_network_policy as cnp;
use crate::api::meta::LabelSelector;
use crate::yaml::{Node, Value};
use namewall_policy::domain::Wildcard;
use namewall_policy::labels::Selector;
use namewall_policy::model::{
    Action, Clauses, NamespaceScope, Peer, Peers, Placement, PodSet, Policy, PolicyKind, PolicyRef, PortMatch, Ports,
    Rule, Subject,
};
use namewall_policy::port::Protocol;

/// What differs between the kinds.
struct Dialect {
    kind: PolicyKind,
    actions: &'static [(&'static str, Action)],
    /// Rules a direction, peers, ports.
    most: usize,
    most_networks: usize,
    /// S4.4: only in the Admin tier.
    names: bool,
}

const ALLOW_DENY_PASS: &[(&str, Action)] = &[("Allow", Action::Allow), ("Deny", Action::Deny), ("Pass", Action::Pass)];
const ALLOW_DENY: &[(&str, Action)] = &[("Allow", Action::Allow), ("Deny", Action::Deny)];
const ACCEPT_DENY_PASS: &[(&str, Action)] =
    &[("Accept", Action::Allow), ("Deny", Action::Deny), ("Pass", Action::Pass)];

pub(super) fn lower_admin(scope: &mut Scope<'_>) -> Option<Policy> {
    let known = scope.is_well_formed(&["priority", "subject", "ingress", "egress"]);
    let priority = priority(scope);
    let dialect = Dialect {
        kind: PolicyKind::AdminNetworkPolicy,
        actions: ALLOW_DENY_PASS,
        most: 100,
        most_networks: 25,
        names: true,
    };
    let readable = known && priority.is_some();
    lower_policy(scope, &dialect, Placement::Admin { priority: priority.unwrap_or(0) }, readable)
}

pub(super) fn lower_baseline(scope: &mut Scope<'_>) -> Option<Policy> {
    let mut readable = scope.is_well_formed(&["subject", "ingress", "egress"]);
    if scope.meta.name != "default" {
        scope.error("bad-name", "metadata.name", "a BaselineAdminNetworkPolicy is named `default`; there is only one");
        readable = false;
    }
    let dialect = Dialect {
        kind: PolicyKind::BaselineAdminNetworkPolicy,
        actions: ALLOW_DENY,
        most: 100,
        most_networks: 25,
        names: false,
    };
    lower_policy(scope, &dialect, Placement::Baseline { priority: None }, readable)
}

pub(super) fn lower_cluster(scope: &mut Scope<'_>) -> Option<Policy> {
    let known = scope.is_well_formed(&["tier", "priority", "subject", "ingress", "egress"]);
    let priority = priority(scope);
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
    let readable = known && priority.is_some() && matches!(tier, "Admin" | "Baseline");
    let dialect = Dialect {
        kind: PolicyKind::ClusterNetworkPolicy,
        actions: ACCEPT_DENY_PASS,
        most: 25,
        most_networks: 25,
        names: matches!(placement, Placement::Admin { .. }),
    };
    lower_policy(scope, &dialect, placement, readable)
}

/// `None` if missing or out of range, with a Finding.
pub(super) fn priority(scope: &mut Scope<'_>) -> Option<i32> {
    match scope.node(&["spec", "priority"]).map(Node::plain) {
        Some(Value::Int(priority @ 0..=1000)) => Some(*priority as i32),
        Some(_) => {
            scope.error("bad-priority", "spec.priority", "a priority is a number from 0 to 1000; lower comes first");
            None
        }
        None => {
            scope.error(
                "bad-priority",
                "spec",
                "`priority` is missing; it is a number from 0 to 1000, lower comes first",
            );
            None
        }
    }
}

fn lower_policy(scope: &mut Scope<'_>, dialect: &Dialect, placement: Placement, readable: bool) -> Option<Policy> {
    let subject = match scope.node(&["spec", "subject"]) {
        _ if scope.is_in_doubt(&["spec", "subject"]) => None,
        Some(node) => {
            let api: Option<ApiSubject> = scope.read(node, "spec.subject");
            api.and_then(|api| subject(scope, &api, "spec.subject"))
        }
        None => {
            scope.error(
                "bad-subject",
                "spec",
                "`subject` is missing; without it nobody can tell whom the policy selects",
            );
            None
        }
    };
    let form = |key| RuleForm { key, most: dialect.most, action: "action", words: dialect.actions };
    let mut ingress =
        scope.ordered_rules(&form("ingress"), |scope, node, path| ingress_rule(scope, dialect, node, path));
    let mut egress = scope.ordered_rules(&form("egress"), |scope, node, path| egress_rule(scope, dialect, node, path));
    if subject.is_none() {
        only_denials(&mut ingress);
        only_denials(&mut egress);
    } else if !readable {
        ingress = scope.isolate("spec");
        egress = scope.isolate("spec");
    }
    Some(Policy {
        id: PolicyRef { kind: dialect.kind, namespace: None, name: scope.meta.name.as_str().into() },
        placement,
        enforcement: super::enforcement(scope),
        subject: subject.unwrap_or_else(everyone),
        egress,
        ingress,
        source: scope.place(""),
    })
}

/// A subject that cannot be read may be anyone; to isolate everyone would be
/// too much, so what the policy denies is denied to all, and it allows nothing.
pub(super) fn only_denials(rules: &mut [Rule]) {
    for rule in rules.iter_mut().filter(|rule| rule.action != Action::Deny) {
        (rule.action, rule.clauses) = (Action::Allow, Clauses::Unreadable);
    }
}

pub(super) fn everyone() -> Subject {
    Subject { pods: PodSet::all(), nodes: None }
}

/// S4.1: exactly one of namespaces and pods.
pub(super) fn subject(scope: &mut Scope<'_>, subject: &ApiSubject, path: &str) -> Option<Subject> {
    let pods = match (&subject.namespaces, &subject.pods) {
        (Some(namespaces), None) => in_namespaces(scope, namespaces, &format!("{path}.namespaces")),
        (None, Some(pods)) => namespaced_pods(scope, pods, &format!("{path}.pods")),
        _ => {
            scope.error("bad-subject", path, "exactly one of namespaces and pods is accepted");
            None
        }
    };
    pods.map(|pods| Subject { pods, nodes: None })
}

fn in_namespaces(scope: &mut Scope<'_>, namespaces: &LabelSelector, path: &str) -> Option<PodSet> {
    let namespaces = parts::selector(scope, namespaces, path)?;
    Some(PodSet { namespaces: NamespaceScope::Matching(namespaces), pods: Selector::everything() })
}

fn namespaced_pods(scope: &mut Scope<'_>, pods: &NamespacedPod, path: &str) -> Option<PodSet> {
    let namespaces = match &pods.namespace_selector {
        Some(selector) => parts::selector(scope, selector, &format!("{path}.namespaceSelector"))?,
        // The published schemas of AdminNetworkPolicy and BaselineAdminNetworkPolicy require the field, that of
        // ClusterNetworkPolicy does not. ClusterEgressFirewall follows the latter.
        None if matches!(scope.document.kind(), Some("AdminNetworkPolicy" | "BaselineAdminNetworkPolicy")) => {
            let message = "`namespaceSelector` is missing, and the API server refuses that; write namespaceSelector: {} if all namespaces are meant";
            scope.error("bad-peer", path, message);
            return None;
        }
        None => Selector::everything(),
    };
    let Some(selector) = &pods.pod_selector else {
        scope.error("bad-peer", path, "`podSelector` is missing; write podSelector: {} if all pods are meant");
        return None;
    };
    let pods = parts::selector(scope, selector, &format!("{path}.podSelector"))?;
    Some(PodSet { namespaces: NamespaceScope::Matching(namespaces), pods })
}

fn ingress_rule<'d>(scope: &mut Scope<'d>, dialect: &Dialect, node: &'d Node, path: &str) -> Option<ReadRule> {
    let (name, action, from, ports) = if dialect.kind == PolicyKind::ClusterNetworkPolicy {
        let rule: cnp::IngressRule = scope.read(node, path)?;
        let ports = protocols(scope, dialect, rule.protocols.as_deref(), &format!("{path}.protocols"));
        (rule.name, rule.action, rule.from, ports)
    } else {
        let rule: anp::IngressRule = scope.read(node, path)?;
        let ports = anp_ports(scope, dialect, rule.ports.as_deref(), &format!("{path}.ports"));
        (rule.name, rule.action, rule.from, ports)
    };
    let action = parts::action(scope, &action, dialect.actions, &format!("{path}.action"));
    let named = rule_name(scope, name.as_deref(), path);
    let path = format!("{path}.from");
    parts::count(scope, from.len(), dialect.most, &path)?;
    let peers = parts::all(&from, |at, IngressPeer { namespaces, pods }| {
        let path = format!("{path}[{at}]");
        match (namespaces, pods) {
            (Some(namespaces), None) => in_namespaces(scope, namespaces, &format!("{path}.namespaces")).map(Peer::Pods),
            (None, Some(pods)) => namespaced_pods(scope, pods, &format!("{path}.pods")).map(Peer::Pods),
            _ => {
                scope.error("bad-peer", &path, "exactly one of namespaces and pods is accepted");
                None
            }
        }
    });
    named?;
    Some((name, action?, Clauses::Match { peers: Peers::Listed(peers?), ports: ports? }))
}

fn egress_rule<'d>(scope: &mut Scope<'d>, dialect: &Dialect, node: &'d Node, path: &str) -> Option<ReadRule> {
    let (name, action, to, ports) = if dialect.kind == PolicyKind::ClusterNetworkPolicy {
        let rule: cnp::EgressRule = scope.read(node, path)?;
        let ports = protocols(scope, dialect, rule.protocols.as_deref(), &format!("{path}.protocols"));
        (rule.name, rule.action, rule.to, ports)
    } else {
        let rule: anp::EgressRule = scope.read(node, path)?;
        let ports = anp_ports(scope, dialect, rule.ports.as_deref(), &format!("{path}.ports"));
        (rule.name, rule.action, rule.to, ports)
    };
    let action = parts::action(scope, &action, dialect.actions, &format!("{path}.action"));
    let named = rule_name(scope, name.as_deref(), path);
    let to_path = format!("{path}.to");
    parts::count(scope, to.len(), dialect.most, &to_path)?;
    let peers = parts::all(&to, |at, peer| egress_peers(scope, dialect, peer, &format!("{to_path}[{at}]")));
    named?;
    let (action, peers, ports) = (action?, peers?.concat(), ports?);
    ports_are_legal(scope, &peers, &ports, &to_path)?;
    if let Some(at) = to.iter().position(|peer| peer.domain_names.is_some()) {
        names_are_legal(scope, dialect, (action, &ports), &format!("{to_path}[{at}].domainNames"))?;
    }
    Some((name, action, Clauses::Match { peers: Peers::Listed(peers), ports }))
}

/// As published: what is no pod has no named ports.
fn ports_are_legal(scope: &mut Scope<'_>, peers: &[Peer], ports: &Ports, path: &str) -> Option<()> {
    let named =
        matches!(ports, Ports::Listed(ports) if ports.iter().any(|port| matches!(port, PortMatch::Named { .. })));
    let no_pod = peers.iter().any(|peer| matches!(peer, Peer::Network { .. } | Peer::Nodes(_)));
    if !(named && no_pod) {
        return Some(());
    }
    scope.error("bad-port", path, "networks and nodes do not go with named ports: they have none. Give numbers");
    None
}

/// S4.4: names only with Accept/Allow, only in Admin-tier egress, never with named ports.
fn names_are_legal(
    scope: &mut Scope<'_>,
    dialect: &Dialect,
    (action, ports): (Action, &Ports),
    path: &str,
) -> Option<()> {
    let refusal = if !dialect.names {
        "domainNames are accepted only in the Admin tier: a NetworkPolicy, which overrides the Baseline tier, cannot say the same"
    } else if action != Action::Allow {
        "domainNames are accepted only in rules that allow: nobody knows every address of a name, so it cannot be denied safely"
    } else if matches!(ports, Ports::Listed(ports) if ports.iter().any(|port| matches!(port, PortMatch::Named { .. })))
    {
        "domainNames do not go with named ports: what is outside has no container ports. Give numbers"
    } else {
        return Some(());
    };
    scope.error("bad-domain-rule", path, refusal);
    None
}

fn egress_peers(scope: &mut Scope<'_>, dialect: &Dialect, peer: &EgressPeer, path: &str) -> Option<Vec<Peer>> {
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
        return self::networks(scope, networks, dialect.most_networks, &format!("{path}.networks"));
    }
    domain_names.as_ref().and_then(|names| domains(scope, names, dialect.most_networks, &format!("{path}.domainNames")))
}

pub(super) fn networks(scope: &mut Scope<'_>, networks: &[String], most: usize, path: &str) -> Option<Vec<Peer>> {
    parts::count(scope, networks.len(), most, path)?;
    parts::all(networks, |at, text| {
        parts::cidr(scope, text, &format!("{path}[{at}]")).map(|cidr| Peer::Network { cidr, except: Vec::new() })
    })
}

pub(super) fn domains(scope: &mut Scope<'_>, names: &[String], most: usize, path: &str) -> Option<Vec<Peer>> {
    parts::count(scope, names.len(), most, path)?;
    parts::all(names, |at, text| {
        let path = format!("{path}[{at}]");
        let pattern = parts::domain_pattern(scope, text, Wildcard::Subdomains, &path)?;
        // ClusterEgressFirewall is our own kind: its schema accepts all that is read here.
        if scope.document.kind() != Some("ClusterEgressFirewall") {
            let refusal = published_names::refusal(text, published_names::Schema::PolicyApi);
            let refusal = refusal.or_else(|| names[..at].contains(text).then_some("it is in the list twice"));
            published_names::warn(scope, text, refusal, &path);
        }
        Some(Peer::Domain(pattern))
    })
}

fn rule_name(scope: &mut Scope<'_>, name: Option<&str>, path: &str) -> Option<()> {
    if name.is_none_or(|name| name.chars().count() <= 100) {
        return Some(());
    }
    scope.error("bad-name", &format!("{path}.name"), "a rule's name has at most 100 characters");
    None
}

fn anp_ports(scope: &mut Scope<'_>, dialect: &Dialect, ports: Option<&[anp::Port]>, path: &str) -> Option<Ports> {
    let ports = ports.unwrap_or_default();
    if ports.is_empty() {
        return Some(Ports::Any);
    }
    parts::count(scope, ports.len(), dialect.most, path)?;
    let ports = parts::all(ports, |at, port| {
        let path = format!("{path}[{at}]");
        match (&port.port_number, &port.named_port, &port.port_range) {
            (Some(number), None, None) => {
                let protocol =
                    parts::protocol(scope, number.protocol.as_deref(), &format!("{path}.portNumber.protocol"))?;
                parts::port_range(scope, protocol, (number.port, number.port), &format!("{path}.portNumber.port"))
            }
            (None, Some(name), None) => {
                let name = parts::port_name(scope, name, &format!("{path}.namedPort"))?;
                Some(PortMatch::Named { protocol: None, name })
            }
            (None, None, Some(range)) => {
                let protocol =
                    parts::protocol(scope, range.protocol.as_deref(), &format!("{path}.portRange.protocol"))?;
                parts::port_range(scope, protocol, (range.start, range.end), &format!("{path}.portRange"))
            }
            _ => {
                scope.error("bad-port", &path, "exactly one of portNumber, namedPort and portRange is accepted");
                None
            }
        }
    });
    ports.map(Ports::Listed)
}

fn protocols(
    scope: &mut Scope<'_>,
    dialect: &Dialect,
    protocols: Option<&[cnp::Protocol]>,
    path: &str,
) -> Option<Ports> {
    let Some(protocols) = protocols else { return Some(Ports::Any) };
    parts::count(scope, protocols.len(), dialect.most, path)?;
    parts::all(protocols, |at, item| protocol(scope, item, &format!("{path}[{at}]"))).map(Ports::Listed)
}

fn protocol(scope: &mut Scope<'_>, item: &cnp::Protocol, path: &str) -> Option<PortMatch> {
    let transports = [(&item.tcp, Protocol::Tcp), (&item.udp, Protocol::Udp), (&item.sctp, Protocol::Sctp)];
    let mut given =
        transports.into_iter().filter_map(|(transport, protocol)| transport.as_ref().map(|t| (t, protocol)));
    match (given.next(), given.next(), &item.destination_named_port) {
        (Some((transport, protocol)), None, None) => {
            let path = format!("{path}.{}.destinationPort", protocol.to_string().to_lowercase());
            let port = transport.destination_port.as_ref();
            match port.map(|port| (port.number, &port.range)) {
                Some((Some(number), None)) => parts::port_range(scope, protocol, (number, number), &path),
                Some((None, Some(range))) if range.start == range.end => {
                    scope.error("bad-port", &path, "a range ends after it starts; write number for one port");
                    None
                }
                Some((None, Some(range))) => parts::port_range(scope, protocol, (range.start, range.end), &path),
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
