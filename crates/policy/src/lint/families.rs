//! `one-family`: a policy denies every address of one IP family, and the pods
//! it is for may go out over the other.

use super::names::{Probe, V4_EXAMPLES, V6_EXAMPLES};
use super::report::{FindingTarget, Report};
use super::scene::{RuleView, Scene};
use crate::model::{Action, Clauses, Direction, Peer, Peers};
use crate::port::Traffic;
use std::net::IpAddr;

pub(super) fn lint(scene: &Scene<'_>, report: &mut Report<'_>) {
    for rule in scene.rules() {
        let (v4, v6) = (denies_family(rule, true), denies_family(rule, false));
        if v4 == v6 || !has_both(scene, rule) {
            continue;
        }
        let Some(gap) = gap(scene, rule, v4) else { continue };
        let (denied, open) = if v4 { ("0.0.0.0/0", "::/0") } else { ("::/0", "0.0.0.0/0") };
        let message = format!(
            "it denies {denied}, and pods it is for have addresses of both families: they may still open {gap} to any \
             address in {open}. Deny {open} too"
        );
        report.warn(FindingTarget::Rule(rule.id), "one-family", message);
    }
}

/// Whether the rule denies every address of the family on the way out.
fn denies_family(rule: RuleView<'_>, v4: bool) -> bool {
    let Clauses::Match { peers: Peers::Listed(peers), .. } = &rule.written.clauses else { return false };
    let whole = |peer: &Peer| matches!(peer, Peer::Network { cidr, .. } if cidr.is_whole_family() && cidr.address().is_ipv4() == v4);
    rule.written.action == Action::Deny && rule.compiled.direction == Direction::Egress && peers.iter().any(whole)
}

/// Whether some pod that the policy is for has, or will have, addresses of both families.
fn has_both(scene: &Scene<'_>, rule: RuleView<'_>) -> bool {
    let classes = &scene.classes[rule.compiled.policy.index()];
    let networks = &scene.program.pod_networks;
    let in_both_networks = !networks.v4.is_empty() && !networks.v6.is_empty();
    scene.program.workloads.iter().any(|member| {
        let has = |v4: bool| member.addresses.iter().any(|address: &IpAddr| address.is_ipv4() == v4);
        let both = if member.addresses.is_empty() { in_both_networks } else { has(true) && has(false) };
        both && !member.host_network && classes.contains(member.class.index())
    })
}

/// What may be opened to ordinary addresses of the family that the rule leaves out, and not to those it denies.
fn gap(scene: &Scene<'_>, rule: RuleView<'_>, denies_v4: bool) -> Option<Traffic> {
    let exits = scene.exits_of(rule.compiled.policy);
    let gaps = exits.filter_map(|(_, exit)| {
        let probe = Probe::new(scene, exit.plan);
        let (v4, v6) = (probe.open(&V4_EXAMPLES)?, probe.open(&V6_EXAMPLES)?);
        Some(if denies_v4 { v6.subtract(&v4) } else { v4.subtract(&v6) })
    });
    gaps.reduce(|all, more| all.union(&more)).filter(|gap| !gap.is_none())
}
