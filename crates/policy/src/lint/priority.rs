//! `equal-priority`: two policies of one tier that stand at the same place.

use super::report::{FindingTarget, Report, object};
use super::scene::{Exit, Scene};
use crate::bits::BitSet;
use crate::model::{Direction, Placement, PolicyId};

pub(super) fn lint(scene: &Scene<'_>, report: &mut Report<'_>) {
    // Told once a policy, whomever else it meets: a hundred equals are no five thousand findings.
    let mut told = BitSet::default();
    for exit in &scene.exits {
        for list in [&exit.plan.cluster_gate, &exit.plan.egress.admin, &exit.plan.egress.baseline] {
            for equals in equals(scene, list, &told) {
                told.insert(equals.later.index());
                tell(scene, report, exit, &equals);
            }
        }
    }
}

/// Two policies of one list with the same priority, whose order matters.
struct Equals {
    earlier: PolicyId,
    later: PolicyId,
    priority: i32,
}

/// The policies that have an equal before them in the list, but for those that were told.
fn equals(scene: &Scene<'_>, list: &[PolicyId], told: &BitSet) -> Vec<Equals> {
    let equal = |(at, &later): (usize, &PolicyId)| {
        let priority = priority(scene, later).filter(|_| !told.contains(later.index()))?;
        // The list is in order, so equals stand together.
        let mut equals = list[..at].iter().rev().take_while(|&&id| self::priority(scene, id) == Some(priority));
        let &earlier = equals.find(|&&earlier| order_matters(scene, earlier, later))?;
        Some(Equals { earlier, later, priority })
    };
    list.iter().enumerate().filter_map(equal).collect()
}

fn tell(scene: &Scene<'_>, report: &mut Report<'_>, exit: &Exit<'_>, equals: &Equals) {
    let Equals { earlier, later, priority } = *equals;
    let (first, second) = (object(scene.snapshot.policy(earlier)), object(scene.snapshot.policy(later)));
    let message = format!(
        "{first} has the priority {priority} too, and both select {}; {first} goes before {second}, by kind, then name. Give them different priorities",
        scene.snapshot.workload_name(exit.example)
    );
    report.warn(FindingTarget::Field(later, "spec.priority"), "equal-priority", message);
}

fn priority(scene: &Scene<'_>, id: PolicyId) -> Option<i32> {
    match scene.snapshot.policy(id).placement {
        Placement::ClusterGate { priority } | Placement::Admin { priority } => Some(priority),
        Placement::Baseline { priority } => priority,
        Placement::NamespaceGate | Placement::Network { .. } => None,
    }
}

/// Only where both have something to say does it matter who speaks first.
fn order_matters(scene: &Scene<'_>, a: PolicyId, b: PolicyId) -> bool {
    let speaks = |id, direction| !scene.snapshot.policy(id).rules(direction).is_empty();
    [Direction::Egress, Direction::Ingress].into_iter().any(|direction| speaks(a, direction) && speaks(b, direction))
}
