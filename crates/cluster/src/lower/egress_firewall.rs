//! EgressFirewall `k8s.ovn.org/v1` (S8.1).

use super::parts;
use super::scope::Scope;
use crate::api::egress_firewall::{Destination, Rule as ApiRule};
use crate::yaml::Node;
use namewall_policy::domain::Wildcard;
use namewall_policy::model::{Action, Clauses, Peer, Peers, Placement, Policy, PolicyKind, Ports, Rule};

const ACTIONS: &[(&str, Action)] = &[("Allow", Action::Allow), ("Deny", Action::Deny)];
const MOST_RULES: usize = 8000;

pub(super) fn lower(scope: &mut Scope<'_>) -> Option<Policy> {
    if scope.meta.name != "default" {
        let message = format!("an EgressFirewall is named `default`; `{}` has no effect", scope.meta.name);
        scope.error("bad-name", "metadata.name", message);
        return None;
    }
    let well_formed = scope.is_well_formed(&["egress"]);
    let egress = rules(scope);
    Some(Policy {
        id: super::network_policy::id(scope, PolicyKind::EgressFirewall),
        placement: Placement::NamespaceGate,
        enforcement: super::enforcement(scope),
        subject: super::network_policy::whole_namespace(scope),
        egress: if well_formed { egress } else { scope.isolate("spec") },
        ingress: Vec::new(),
        source: scope.place(""),
    })
}

fn rules(scope: &mut Scope<'_>) -> Vec<Rule> {
    let Ok(list) = scope.rules("egress") else {
        return scope.isolate("spec.egress");
    };
    if list.items.len() > MOST_RULES {
        let message = format!("{} rules; {MOST_RULES} is the most. The rules beyond it fail closed", list.items.len());
        scope.error("bad-count", &list.path, message);
    }
    let mut rules = Vec::new();
    for (at, node) in list.items.iter().enumerate() {
        let path = format!("{}[{at}]", list.path);
        let read = rule(scope, node, &path).filter(|_| at < MOST_RULES);
        let allows = node.get("type").and_then(Node::as_str) == Some("Allow");
        rules.push(scope.rule(&path, read, if allows { Action::Allow } else { Action::Deny }));
    }
    rules
}

fn rule<'d>(scope: &mut Scope<'d>, node: &'d Node, path: &str) -> Option<(Option<String>, Action, Clauses)> {
    let rule: ApiRule = scope.read(node, path)?;
    let action = parts::action(scope, &rule.action, ACTIONS, &format!("{path}.type"));
    let peer = destination(scope, &rule.to, &format!("{path}.to"));
    let ports = parts::all(&rule.ports, |at, port| {
        let path = format!("{path}.ports[{at}]");
        let protocol = parts::protocol(scope, Some(&port.protocol), &format!("{path}.protocol"))?;
        parts::port_range(scope, protocol, (port.port, port.port), &format!("{path}.port"))
    })?;
    let ports = if ports.is_empty() { Ports::Any } else { Ports::Listed(ports) };
    Some((None, action?, Clauses::Match { peers: Peers::Listed(vec![peer?]), ports }))
}

fn destination(scope: &mut Scope<'_>, to: &Destination, path: &str) -> Option<Peer> {
    match (&to.cidr_selector, &to.dns_name, &to.node_selector) {
        (Some(cidr), None, None) => {
            let cidr = parts::cidr(scope, cidr, &format!("{path}.cidrSelector"))?;
            Some(Peer::Network { cidr, except: Vec::new() })
        }
        (None, Some(name), None) => {
            parts::domain_pattern(scope, name, Wildcard::OneLabel, &format!("{path}.dnsName")).map(Peer::Domain)
        }
        (None, None, Some(nodes)) => parts::selector(scope, nodes, &format!("{path}.nodeSelector")).map(Peer::Nodes),
        _ => {
            scope.error("bad-peer", path, "exactly one of cidrSelector, dnsName and nodeSelector is accepted");
            None
        }
    }
}
