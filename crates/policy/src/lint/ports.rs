//! `unknown-port-name`: a port by a name that no possible destination carries (S2.5).

use super::report::{FindingTarget, Report};
use super::scene::{RuleView, Scene};
use crate::bits::BitSet;
use crate::model::{Clauses, Direction, NamedPort, PortMatch, Ports};
use crate::port::Protocol;
use crate::program::{ClassId, Matcher};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Which Classes and Roles have pods that carry a name.
#[derive(Default)]
struct Carriers {
    classes: BitSet,
    roles: BitSet,
}

type Index<'a> = FxHashMap<(&'a str, Protocol), Carriers>;

pub(super) fn lint(scene: &Scene<'_>, report: &mut Report<'_>) {
    if !scene.has_workloads() {
        return;
    }
    let index = index(scene);
    for rule in scene.rules() {
        let Clauses::Match { ports: Ports::Listed(ports), .. } = &rule.written.clauses else { continue };
        for port in ports {
            if let PortMatch::Named { protocol, name } = port
                && !is_carried(scene, rule, carriers(&index, *protocol, name))
            {
                let whose = match rule.compiled.direction {
                    Direction::Egress => "no pod among its peers",
                    Direction::Ingress => "no pod the policy selects",
                };
                let message = format!(
                    "{whose} has a {port}, so it matches nothing. Name a container port so, or give the number"
                );
                report.warn(FindingTarget::Rule(rule.id), "unknown-port-name", message);
            }
        }
    }
}

fn index<'a>(scene: &Scene<'a>) -> Index<'a> {
    let mut index: Index<'a> = FxHashMap::default();
    let mut seen: FxHashSet<(ClassId, u32, *const NamedPort)> = FxHashSet::default();
    for member in scene.program.workloads.iter().filter(|member| !member.host_network) {
        // Pods of one Role share their list of ports, or do not have many.
        if !seen.insert((member.class, member.role.0, Arc::as_ptr(&member.ports).cast())) {
            continue;
        }
        for port in member.ports.iter() {
            let carriers = index.entry((&port.name, port.protocol)).or_default();
            carriers.classes.insert(member.class.index());
            carriers.roles.insert(member.role.index());
        }
    }
    index
}

/// Who carries the name, for each protocol that the port may have.
fn carriers<'i>(index: &'i Index<'i>, protocol: Option<Protocol>, name: &'i str) -> impl Iterator<Item = &'i Carriers> {
    let protocols = Protocol::WITH_PORTS.into_iter().filter(move |one| protocol.is_none_or(|wanted| wanted == *one));
    protocols.filter_map(move |protocol| index.get(&(name, protocol)))
}

/// Whether a destination of the rule is among the carriers of a name; also where the rule has no destination, which is
/// told elsewhere.
fn is_carried<'i>(scene: &Scene<'_>, rule: RuleView<'_>, mut carriers: impl Iterator<Item = &'i Carriers>) -> bool {
    let Matcher::Clauses { peers, .. } = rule.compiled.matcher else { return true };
    if rule.compiled.direction == Direction::Ingress {
        let subject = &scene.classes[rule.compiled.policy.index()];
        return subject.is_empty() || carriers.any(|carriers| meet(&carriers.classes, subject));
    }
    let peers = scene.program.peer_set(peers);
    if peers.anyone || !peers.addresses.is_empty() {
        // Any pod may be behind an address.
        return carriers.next().is_some();
    }
    peers.roles.is_empty() || carriers.any(|carriers| meet(&carriers.roles, &peers.roles))
}

fn meet(a: &BitSet, b: &BitSet) -> bool {
    let mut both = a.clone();
    both.intersect_with(b);
    !both.is_empty()
}
