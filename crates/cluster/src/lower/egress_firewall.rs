//! EgressFirewall `k8s.ovn.org/v1` (S8.1).

use super::scope::{ReadRule, RuleForm, Scope};
use super::{parts, published_names};
use crate::api::egress_firewall::{Destination, Rule as ApiRule};
use crate::yaml::Node;
use namewall_policy::domain::Wildcard;
use namewall_policy::model::{Action, Clauses, Peer, Peers, Placement, Policy, PolicyKind, Ports};

const ACTIONS: &[(&str, Action)] = &[("Allow", Action::Allow), ("Deny", Action::Deny)];

pub(super) fn lower(scope: &mut Scope<'_>) -> Option<Policy> {
    if scope.meta.name != "default" {
        let message = format!("an EgressFirewall is named `default`; `{}` has no effect", scope.meta.name);
        scope.error("bad-name", "metadata.name", message);
        return None;
    }
    let well_formed = scope.is_well_formed(&["egress"]);
    let form = RuleForm { key: "egress", most: 8000, action: "type", words: ACTIONS };
    let egress = scope.ordered_rules(&form, rule);
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

fn rule<'d>(scope: &mut Scope<'d>, node: &'d Node, path: &str) -> Option<ReadRule> {
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
            let path = format!("{path}.dnsName");
            let pattern = parts::domain_pattern(scope, name, Wildcard::OneLabel, &path)?;
            let refusal = published_names::refusal(name, published_names::Schema::EgressFirewall);
            published_names::warn(scope, name, refusal, &path);
            Some(Peer::Domain(pattern))
        }
        (None, None, Some(nodes)) => parts::selector(scope, nodes, &format!("{path}.nodeSelector")).map(Peer::Nodes),
        _ => {
            scope.error("bad-peer", path, "exactly one of cidrSelector, dnsName and nodeSelector is accepted");
            None
        }
    }
}
