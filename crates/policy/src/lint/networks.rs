//! `catches-pods`: "every address" in a rule that allows is every pod, too (S4.3).

use super::cover::Covered;
use super::report::{FindingTarget, Report};
use super::scene::{RuleView, Scene};
use crate::addr::{AddrSet, Cidr};
use crate::interval::IntervalSet;
use crate::model::{Action, Clauses, Direction, Peer, Peers, Placement, PodSet};
use crate::program::{Holder, Matcher};

pub(super) fn lint(scene: &Scene<'_>, report: &mut Report<'_>) {
    for rule in scene.rules() {
        // What passes a gate is not open yet: the tiers decide about pods.
        let gate = matches!(rule.policy.placement, Placement::ClusterGate { .. } | Placement::NamespaceGate);
        if rule.written.action != Action::Allow || gate {
            continue;
        }
        let Clauses::Match { peers: Peers::Listed(peers), .. } = &rule.written.clauses else { continue };
        // Who allows all pods by name means it.
        if peers.contains(&Peer::Pods(PodSet::all())) {
            continue;
        }
        let caught = peers.iter().find_map(|peer| match peer {
            Peer::Network { cidr, except } if cidr.is_whole_family() => {
                caught(scene, cidr, except).map(|pods| (cidr, pods))
            }
            _ => None,
        });
        if let Some((cidr, pods)) = caught.filter(|_| !settled_before(scene, rule)) {
            report.warn(FindingTarget::Rule(rule.id), "catches-pods", message(rule, cidr, &pods));
        }
    }
}

/// Whether earlier rules of an ordered policy have settled every pod.
fn settled_before(scene: &Scene<'_>, rule: RuleView<'_>) -> bool {
    let Matcher::Clauses { ports, .. } = rule.compiled.matcher else { return false };
    if matches!(rule.policy.placement, Placement::Network { .. }) || !scene.has_workloads() {
        return false;
    }
    let mut before = Covered::new(scene);
    let rules = scene.rules_of(rule.compiled.policy, rule.compiled.direction);
    rules.take_while(|earlier| earlier.id != rule.id).for_each(|earlier| before.add(earlier));
    before.holds_every_pod(ports)
}

fn message(rule: RuleView<'_>, cidr: &Cidr, pods: &str) -> String {
    let opens = match rule.compiled.direction {
        Direction::Egress => "opens the way to",
        Direction::Ingress => "lets in",
    };
    let advice = match rule.policy.placement {
        Placement::Network { .. } => "List the pods' networks under `except`",
        _ => "Deny or pass the pods in a rule before it, or list only the networks outside",
    };
    format!("{cidr} is every address, the pods' too: it {opens} {pods}. {advice}, unless that is meant")
}

/// The pods that such a network catches, in words.
fn caught(scene: &Scene<'_>, cidr: &Cidr, except: &[Cidr]) -> Option<String> {
    let v4 = cidr.address().is_ipv4();
    if scene.pod_space.is_empty() {
        // Where pods' addresses are not known any hole may be meant for them.
        return (v4 && except.is_empty()).then(|| "every pod".to_owned());
    }
    let family = |set: &AddrSet| match v4 {
        true => AddrSet { v4: set.v4.clone(), v6: IntervalSet::empty() },
        false => AddrSet { v4: IntervalSet::empty(), v6: set.v6.clone() },
    };
    let holes: AddrSet = except.iter().copied().collect();
    let caught = family(&scene.pod_space).subtract(&holes);
    let which = if caught == family(&scene.pod_space) { "every pod" } else { "pods" };
    let first = caught.ranges().next()?.first;
    let known = family(&scene.pod_addresses).subtract(&holes);
    let example = known.ranges().next().and_then(|range| match scene.program.by_address.get(&range.first)? {
        Holder::Pod(id) => Some(format!("{} ({})", scene.snapshot.workload_name(*id), range.first)),
        Holder::Node(_) | Holder::SomeNode(_) => None,
    });
    Some(match example {
        Some(example) => format!("{which}, {example} among them"),
        None => format!("{which}, at addresses like {first}"),
    })
}
