//! ClusterEgressFirewall `namewall.dev/v1alpha1` (S7).

use super::scope::{ReadRule, RuleForm, Scope};
use super::{admin, parts};
use crate::api::admin_network_policy::Subject as ApiSubject;
use crate::api::cluster_egress_firewall::{Destination, Port, Rule as ApiRule};
use crate::api::meta::LabelSelector;
use crate::yaml::Node;
use namewall_policy::model::{
    Action, Clauses, Peer, Peers, Placement, Policy, PolicyKind, PolicyRef, PortMatch, Ports, Subject,
};

const ACTIONS: &[(&str, Action)] = &[("Allow", Action::Allow), ("Deny", Action::Deny)];
const MOST: usize = 100;

pub(super) fn lower(scope: &mut Scope<'_>) -> Option<Policy> {
    let known = scope.is_well_formed(&["priority", "subject", "nodeSelector", "rules"]);
    let priority = admin::priority(scope);
    let subject = subject(scope);
    let form = RuleForm { key: "rules", most: MOST, action: "action", words: ACTIONS };
    let mut egress = scope.ordered_rules(&form, rule);
    if subject.is_none() {
        admin::only_denials(&mut egress);
    } else if !known || priority.is_none() {
        egress = scope.isolate("spec");
    }
    Some(Policy {
        id: PolicyRef {
            kind: PolicyKind::ClusterEgressFirewall,
            namespace: None,
            name: scope.meta.name.as_str().into(),
        },
        placement: Placement::ClusterGate { priority: priority.unwrap_or(0) },
        enforcement: super::enforcement(scope),
        subject: subject.unwrap_or_else(admin::everyone),
        egress,
        ingress: Vec::new(),
        source: scope.place(""),
    })
}

/// S7.1: all pods unless it says otherwise; on some nodes if it says so.
fn subject(scope: &mut Scope<'_>) -> Option<Subject> {
    if scope.is_in_doubt(&["spec", "subject"]) || scope.is_in_doubt(&["spec", "nodeSelector"]) {
        return None;
    }
    let mut subject = match scope.node(&["spec", "subject"]) {
        Some(node) => {
            let api: ApiSubject = scope.read(node, "spec.subject")?;
            admin::subject(scope, &api, "spec.subject")?
        }
        None => admin::everyone(),
    };
    if let Some(node) = scope.node(&["spec", "nodeSelector"]) {
        let api: LabelSelector = scope.read(node, "spec.nodeSelector")?;
        subject.nodes = Some(parts::selector(scope, &api, "spec.nodeSelector")?);
    }
    Some(subject)
}

fn rule<'d>(scope: &mut Scope<'d>, node: &'d Node, path: &str) -> Option<ReadRule> {
    let rule: ApiRule = scope.read(node, path)?;
    let action = parts::action(scope, &rule.action, ACTIONS, &format!("{path}.action"));
    let to_path = format!("{path}.to");
    parts::count(scope, rule.to.len(), MOST, &to_path)?;
    let peers = parts::all(&rule.to, |at, to| destinations(scope, to, &format!("{to_path}[{at}]")));
    let ports = ports(scope, rule.ports.as_deref(), &format!("{path}.ports"));
    let (action, peers, ports) = (action?, peers?.concat(), ports?);
    if action == Action::Deny && peers.iter().any(|peer| matches!(peer, Peer::Domain(_))) {
        let message = "domainNames are accepted only in Allow rules: nobody knows every address of a name, so it cannot be denied safely";
        scope.error("bad-domain-rule", &to_path, message);
        return None;
    }
    Some((rule.name, action, Clauses::Match { peers: Peers::Listed(peers), ports }))
}

fn destinations(scope: &mut Scope<'_>, to: &Destination, path: &str) -> Option<Vec<Peer>> {
    match (&to.networks, &to.nodes, &to.api_server, &to.domain_names) {
        (Some(networks), None, None, None) => admin::networks(scope, networks, MOST, &format!("{path}.networks")),
        (None, Some(nodes), None, None) => {
            parts::selector(scope, nodes, &format!("{path}.nodes")).map(|nodes| vec![Peer::Nodes(nodes)])
        }
        (None, None, Some(_), None) => Some(vec![Peer::ApiServer]),
        (None, None, None, Some(names)) => admin::domains(scope, names, MOST, &format!("{path}.domainNames")),
        _ => {
            scope.error("bad-peer", path, "exactly one of networks, nodes, apiServer and domainNames is accepted");
            None
        }
    }
}

fn ports(scope: &mut Scope<'_>, ports: Option<&[Port]>, path: &str) -> Option<Ports> {
    let Some(ports) = ports else { return Some(Ports::Any) };
    parts::count(scope, ports.len(), MOST, path)?;
    let ports = parts::all(ports, |at, port| {
        let path = format!("{path}[{at}]");
        let protocol = parts::protocol(scope, port.protocol.as_deref(), &format!("{path}.protocol"))?;
        match (port.port, port.end_port) {
            (None, None) => Some(PortMatch::every(protocol)),
            (Some(start), end) => {
                parts::port_range(scope, protocol, (start, end.unwrap_or(start)), &format!("{path}.port"))
            }
            (None, Some(_)) => {
                scope.error("bad-port", &format!("{path}.endPort"), "endPort needs a port to start from");
                None
            }
        }
    });
    ports.map(Ports::Listed)
}
