//! `closed-anyway`: a rule of an EgressFirewall allows what the tiers after it
//! deny to every pod of the namespace. A gate's Allow only lets a connection go
//! on to the tiers (S1).

use super::report::{FindingTarget, Report};
use super::scene::{RuleView, Scene};
use crate::addr::AddrSet;
use crate::flow::Endpoint;
use crate::lease::{Instant, LeaseTable};
use crate::model::{Action, Clauses, Direction, Peer, Peers, PolicyKind};
use crate::program::{Matcher, Plan};
use crate::reach::{Cuts, Reach};
use crate::unknown::{Side, SourceNode, judging};

pub(super) fn lint(scene: &Scene<'_>, report: &mut Report<'_>) {
    for rule in scene.rules() {
        let of_gate = rule.policy.id.kind == PolicyKind::EgressFirewall;
        if !of_gate || rule.written.action != Action::Allow || !is_closed_for_all(scene, rule) {
            continue;
        }
        let message = "no pod of the namespace can use it: after this gate a NetworkPolicy or an admin or baseline \
                       policy denies all of it. Allow it there too, or remove the rule";
        report.warn(FindingTarget::Rule(rule.id), "closed-anyway", message);
    }
}

fn is_closed_for_all(scene: &Scene<'_>, rule: RuleView<'_>) -> bool {
    let mut exits = scene.exits_of(rule.compiled.policy).peekable();
    exits.peek().is_some() && exits.all(|(_, exit)| is_closed(scene, rule, exit.plan))
}

/// Whether the tiers of the plan let nothing of the rule pass.
fn is_closed(scene: &Scene<'_>, rule: RuleView<'_>, plan: &Plan) -> bool {
    let Matcher::Clauses { ports, .. } = rule.compiled.matcher else { return false };
    let ports = &scene.program.port_spec(ports).numbered;
    let Clauses::Match { peers: Peers::Listed(peers), .. } = &rule.written.clauses else { return false };
    let leases = LeaseTable::default();
    let reach = Reach { program: scene.program, leases: &leases, now: Instant::default() };
    let tiers = Plan { egress: plan.egress.clone(), ..Plan::default() };
    let side = Side { direction: Direction::Egress, family: None };
    let opens = |end: &Endpoint| {
        let settled = reach.settle(end, &tiers, side).into_iter();
        settled.map(|one| reach.plan_egress(&tiers, &one.end, SourceNode::default())).any(|open| {
            let of_rule = open.intersect(ports);
            !of_rule.is_none()
        })
    };
    !peers.is_empty()
        && peers.iter().all(|peer| match peer {
            Peer::Domain(pattern) => !opens(&Endpoint::name(pattern.example())),
            Peer::Network { cidr, except } => {
                let holes: AddrSet = except.iter().copied().collect();
                let block: AddrSet = [*cidr].into_iter().collect::<AddrSet>().subtract(&holes);
                !addresses(scene, &tiers, &block).iter().any(opens)
            }
            // Nodes have addresses that may not be known.
            Peer::Nodes(_) | Peer::ApiServer | Peer::Pods(_) => false,
        })
}

/// One address of each piece of the block that the tiers can tell apart.
fn addresses(scene: &Scene<'_>, tiers: &Plan, block: &AddrSet) -> Vec<Endpoint> {
    let mut cuts = Cuts::default();
    for &policy in judging(tiers, Direction::Egress) {
        for rule in scene.program.policy(policy).rules(Direction::Egress) {
            if let Matcher::Clauses { peers, .. } = scene.program.rule(rule).matcher {
                cuts.set(&scene.program.peer_set(peers).addresses);
            }
        }
    }
    let firsts = cuts.pieces().into_iter().filter_map(|piece| block.first_within(piece));
    firsts.map(|address| Endpoint { address: Some(address), ..Endpoint::default() }).collect()
}
