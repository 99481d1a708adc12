//! What AdminNetworkPolicy, BaselineAdminNetworkPolicy and ClusterNetworkPolicy have in common (S4): a subject, and
//! ordered rules of peers and ports, with the limits that the network policy API publishes.

use super::formats::RuleName;
use super::peers::{self, EgressPeer, IngressPeer, PodSelectors, Subject};
use crate::lower::{ReadRule, RuleForm, Scope, enforcement, parts};
use crate::yaml::{Node, Value};
use namewall_policy::model::{
    Action, Clauses, Peer, Peers, Placement, Policy, PolicyKind, PolicyRef, PortMatch, Ports, Rule,
};
use serde::de::DeserializeOwned;

/// How one of the kinds writes its policies.
pub(super) trait Dialect {
    const KIND: PolicyKind;
    const ACTIONS: &'static [(&'static str, Action)];
    /// The most rules in a direction, peers in a rule, and ports in a rule.
    const MOST: usize;
    /// The field of a rule that has its ports.
    const PORTS: &'static str;
    type Pods: PodSelectors + DeserializeOwned;
    type Port;
    type Ingress: DeserializeOwned + Into<WrittenRule<IngressPeer<Self::Pods>, Self::Port>>;
    type Egress: DeserializeOwned + Into<WrittenRule<EgressPeer<Self::Pods>, Self::Port>>;

    fn ports(scope: &mut Scope<'_>, ports: Option<&[Self::Port]>, path: &str) -> Option<Ports>;
}

/// A rule of any of the kinds, as it is written.
pub(super) struct WrittenRule<Peer, Port> {
    pub(super) name: Option<RuleName>,
    pub(super) action: String,
    pub(super) peers: Vec<Peer>,
    pub(super) ports: Option<Vec<Port>>,
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

/// Lowers a policy. If something outside of its subject and rules could not be read, it isolates its subject.
pub(super) fn lower<D: Dialect>(scope: &mut Scope<'_>, placement: Placement, is_readable: bool) -> Policy {
    let subject = match scope.node(&["spec", "subject"]) {
        _ if scope.is_in_doubt(&["spec", "subject"]) => None,
        Some(node) => {
            let written: Option<Subject<D::Pods>> = scope.read(node, "spec.subject");
            written.and_then(|written| peers::subject(scope, &written, "spec.subject"))
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
    let form = |key| RuleForm { key, most: D::MOST, action: "action", words: D::ACTIONS };
    let mut ingress = scope.ordered_rules(&form("ingress"), ingress_rule::<D>);
    let is_admin = matches!(placement, Placement::Admin { .. });
    let mut egress =
        scope.ordered_rules(&form("egress"), |scope, node, path| egress_rule::<D>(scope, is_admin, node, path));
    if subject.is_none() {
        only_denials(&mut ingress);
        only_denials(&mut egress);
    } else if !is_readable {
        ingress = scope.isolate("spec");
        egress = scope.isolate("spec");
    }
    Policy {
        id: PolicyRef { kind: D::KIND, namespace: None, name: scope.meta.name.as_str().into() },
        placement,
        enforcement: enforcement(scope),
        subject: subject.unwrap_or_else(peers::everyone),
        egress,
        ingress,
        source: scope.place(""),
    }
}

/// A subject that cannot be read may be anyone. To isolate everyone would be too much, so the denials of the policy
/// hold for all pods, and it allows nothing.
pub(super) fn only_denials(rules: &mut [Rule]) {
    for rule in rules.iter_mut().filter(|rule| rule.action != Action::Deny) {
        (rule.action, rule.clauses) = (Action::Allow, Clauses::Unreadable);
    }
}

fn ingress_rule<'d, D: Dialect>(scope: &mut Scope<'d>, node: &'d Node, path: &str) -> Option<ReadRule> {
    let rule: WrittenRule<_, _> = scope.read::<D::Ingress>(node, path)?.into();
    let ports = D::ports(scope, rule.ports.as_deref(), &format!("{path}.{}", D::PORTS));
    let action = parts::action(scope, &rule.action, D::ACTIONS, &format!("{path}.action"));
    let named = rule_name(scope, rule.name.as_ref(), path);
    let path = format!("{path}.from");
    parts::count(scope, rule.peers.len(), D::MOST, &path)?;
    let peers = parts::all(&rule.peers, |at, peer| peers::ingress_peer(scope, peer, &format!("{path}[{at}]")));
    named?;
    Some((rule.name.map(String::from), action?, Clauses::Match { peers: Peers::Listed(peers?), ports: ports? }))
}

fn egress_rule<'d, D: Dialect>(scope: &mut Scope<'d>, is_admin: bool, node: &'d Node, path: &str) -> Option<ReadRule> {
    let rule: WrittenRule<_, _> = scope.read::<D::Egress>(node, path)?.into();
    let ports = D::ports(scope, rule.ports.as_deref(), &format!("{path}.{}", D::PORTS));
    let action = parts::action(scope, &rule.action, D::ACTIONS, &format!("{path}.action"));
    let named = rule_name(scope, rule.name.as_ref(), path);
    let path = format!("{path}.to");
    parts::count(scope, rule.peers.len(), D::MOST, &path)?;
    let peers = parts::all(&rule.peers, |at, peer| peers::egress_peers(scope, peer, &format!("{path}[{at}]")));
    named?;
    let (action, peers, ports) = (action?, peers?.concat(), ports?);
    // As published: only pods have named ports.
    if has_named_ports(&ports) && peers.iter().any(|peer| matches!(peer, Peer::Network { .. } | Peer::Nodes(_))) {
        scope.error("bad-port", &path, "networks and nodes do not go with named ports: they have none. Give numbers");
        return None;
    }
    if let Some(at) = rule.peers.iter().position(|peer| peer.domain_names.is_some())
        && let Some(refusal) = names_refusal(is_admin, action, &ports)
    {
        scope.error("bad-domain-rule", &format!("{path}[{at}].domainNames"), refusal);
        return None;
    }
    Some((rule.name.map(String::from), action, Clauses::Match { peers: Peers::Listed(peers), ports }))
}

/// S4.4: names only with Accept/Allow, only in Admin-tier egress, never with named ports.
fn names_refusal(is_admin: bool, action: Action, ports: &Ports) -> Option<&'static str> {
    if !is_admin {
        Some(
            "domainNames are accepted only in the Admin tier: a NetworkPolicy, which overrides the Baseline tier, cannot say the same",
        )
    } else if action != Action::Allow {
        Some(
            "domainNames are accepted only in rules that allow: nobody knows every address of a name, so it cannot be denied safely",
        )
    } else if has_named_ports(ports) {
        Some("domainNames do not go with named ports: what is outside has no container ports. Give numbers")
    } else {
        None
    }
}

fn has_named_ports(ports: &Ports) -> bool {
    matches!(ports, Ports::Listed(ports) if ports.iter().any(|port| matches!(port, PortMatch::Named { .. })))
}

fn rule_name(scope: &mut Scope<'_>, name: Option<&RuleName>, path: &str) -> Option<()> {
    if name.is_none_or(|RuleName(name)| name.chars().count() <= 100) {
        return Some(());
    }
    scope.error("bad-name", &format!("{path}.name"), "a rule's name has at most 100 characters");
    None
}
