//! `selects-nothing`: selectors that select nobody now. `never-matches`: rules
//! that match nothing at all, for another reason.

use super::kinds::unannotated;
use super::report::{FindingTarget, Report};
use super::scene::{RuleView, Scene};
use crate::addr::AddrSet;
use crate::labels::Selector;
use crate::model::{Clauses, NamespaceScope, Peer, Peers, PodSet, Policy, PolicyId, PolicyKind, Ports, RoleId};
use crate::program::Matcher;

pub(super) fn lint(scene: &Scene<'_>, report: &mut Report<'_>) {
    if scene.has_workloads() {
        for (id, policy) in scene.policies() {
            subject(scene, report, id, policy);
        }
    }
    for rule in scene.rules() {
        peers(scene, report, rule);
        no_ports(report, rule);
    }
}

fn subject(scene: &Scene<'_>, report: &mut Report<'_>, id: PolicyId, policy: &Policy) {
    // A v1beta1 policy without the annotation has no Class, and was told so.
    if !scene.classes[id.index()].is_empty() || unannotated(scene, policy).is_some() {
        return;
    }
    let pods = &policy.subject.pods;
    if !scene.roles.iter().any(|role| scene.in_set(pods, RoleId(role as u32))) {
        let path = match policy.id.kind {
            PolicyKind::NetworkPolicy | PolicyKind::NetworkPolicyV1Beta1 => "spec.podSelector",
            PolicyKind::EgressFirewall => "metadata.namespace",
            _ => "spec.subject",
        };
        let message = format!("it selects no pod now: {}. {CHECK_LABELS}", empty_pods(scene, pods));
        report.warn(FindingTarget::Field(id, path), "selects-nothing", message);
        return;
    }
    let Some(nodes) = policy.subject.nodes.as_ref().filter(|_| scene.nodes_known) else { return };
    let place = FindingTarget::Field(id, "spec.nodeSelector");
    if !any_node(scene, nodes) {
        let message = format!("it selects no pod now: no node matches {nodes}. {CHECK_LABELS}");
        report.warn(place, "selects-nothing", message);
    } else if scene.snapshot.workloads.iter().any(|workload| workload.node.is_some()) {
        // Where no pod was placed yet, nobody knows which nodes they will be on.
        let message = format!("it selects no pod now: none of {pods} is on nodes {nodes}. {CHECK_LABELS}");
        report.warn(place, "selects-nothing", message);
    }
}

const CHECK_LABELS: &str = "Check the selector against the labels that are there";

/// Why a set of pods is empty.
fn empty_pods(scene: &Scene<'_>, set: &PodSet) -> String {
    let scope = match &set.namespaces {
        NamespaceScope::Named(name) => format!("in {name}"),
        NamespaceScope::Matching(selector) if selector.is_everything() => "in any namespace".to_owned(),
        NamespaceScope::Matching(selector) => {
            if !scene.snapshot.namespaces.iter().any(|namespace| selector.matches(&namespace.labels)) {
                return format!("no namespace matches {selector}");
            }
            format!("in the namespaces {selector}")
        }
    };
    if set.pods.is_everything() {
        format!("there is no pod {scope}")
    } else {
        format!("no pod {scope} matches {}", set.pods)
    }
}

fn any_node(scene: &Scene<'_>, selector: &Selector) -> bool {
    scene.snapshot.nodes.iter().any(|node| selector.matches(&node.labels))
}

/// A peer that matches nobody.
struct Empty {
    /// By its selector, which labels may fill any time.
    selector: bool,
    why: String,
}

fn peers(scene: &Scene<'_>, report: &mut Report<'_>, rule: RuleView<'_>) {
    let Clauses::Match { peers: Peers::Listed(peers), .. } = &rule.written.clauses else { return };
    if peers.is_empty() {
        report.warn(FindingTarget::Rule(rule.id), "never-matches", empty_list(rule, "peers"));
        return;
    }
    let empty: Vec<Option<Empty>> = peers.iter().map(|peer| empty_peer(scene, rule, peer)).collect();
    let nobody = empty.iter().all(Option::is_some);
    for Empty { selector, why } in empty.into_iter().flatten() {
        let what = if nobody { "the rule matches nobody now" } else { "one of its peers matches nobody now" };
        if selector {
            report.warn(FindingTarget::Rule(rule.id), "selects-nothing", format!("{what}: {why}. {CHECK_LABELS}"));
        } else if nobody {
            report.warn(FindingTarget::Rule(rule.id), "never-matches", format!("{what}: {why}"));
        }
    }
}

fn empty_peer(scene: &Scene<'_>, rule: RuleView<'_>, peer: &Peer) -> Option<Empty> {
    match peer {
        Peer::Pods(pods) if scene.has_workloads() => {
            // What one peer selects is among what the rule's peers select together.
            let Matcher::Clauses { peers, .. } = rule.compiled.matcher else { return None };
            // Roles beyond the Snapshot's are of pods that share an address.
            let known = scene.snapshot.roles.len();
            let mut together = scene.program.peer_set(peers).roles.iter().filter(|role| *role < known);
            let found = together.any(|role| scene.in_set(pods, RoleId(role as u32)));
            (!found).then(|| Empty { selector: true, why: empty_pods(scene, pods) })
        }
        Peer::Nodes(nodes) if scene.nodes_known && !any_node(scene, nodes) => {
            Some(Empty { selector: true, why: format!("no node matches {nodes}") })
        }
        Peer::Network { cidr, except } if !except.is_empty() => {
            let block: AddrSet = [*cidr].into_iter().collect();
            let holes: AddrSet = except.iter().copied().collect();
            let why = || format!("the holes of {cidr} leave nothing of it. Make them smaller, or remove the rule");
            block.is_subset(&holes).then(|| Empty { selector: false, why: why() })
        }
        Peer::ApiServer if scene.has_workloads() && scene.snapshot.api_server.is_empty() => {
            let why = "no address of the API server is known. Give the Service `kubernetes` and its EndpointSlice, or the setting for its addresses";
            Some(Empty { selector: false, why: why.to_owned() })
        }
        _ => None,
    }
}

fn no_ports(report: &mut Report<'_>, rule: RuleView<'_>) {
    if let Clauses::Match { ports: Ports::Listed(ports), .. } = &rule.written.clauses
        && ports.is_empty()
    {
        report.warn(FindingTarget::Rule(rule.id), "never-matches", empty_list(rule, "ports"));
    }
}

fn empty_list(rule: RuleView<'_>, what: &str) -> String {
    if rule.policy.id.kind == PolicyKind::NetworkPolicyV1Beta1 {
        let field = if what == "peers" { "from" } else { "ports" };
        return format!(
            "an empty `{field}` matches nothing in extensions/v1beta1; leave it out to match everything, or remove the rule"
        );
    }
    format!("the list of {what} is empty: the rule matches nothing. List some, or remove the rule")
}
