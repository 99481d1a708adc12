//! `shadowed-rule`: a rule of an ordered list that can never take effect, since
//! rules before it match all it matches.
//!
//! The rules before a rule are the earlier ones of its policy, and those of
//! the policies that come first for *every* Class that has this one.

use super::cover::Covered;
use super::report::{FindingTarget, Report, object, rule_path};
use super::scene::{RuleView, Scene};
use crate::bits::BitSet;
use crate::model::{Action, BackendTarget, Direction, Placement, PolicyId};
use crate::program::{Matcher, RuleId};
use rustc_hash::{FxHashMap, FxHashSet};

/// How many earlier rules are asked which of them shadows a rule, so that a
/// list of thousands of shadowed rules does not cost millions of questions.
const MOST_ASKED: usize = 2000;

pub(super) fn lint(scene: &Scene<'_>, report: &mut Report<'_>) {
    let lists = Lists { scene, before: predecessors(scene), narrow: narrow_gates(scene) };
    let order = lists.order();
    for direction in [Direction::Egress, Direction::Ingress] {
        let mut seen = AddedPolicies { policies: BitSet::default(), covered: Covered::new(scene) };
        for &id in order.iter().filter(|id| !scene.snapshot.policy(**id).rules(direction).is_empty()) {
            let before = &lists.before[id.index()];
            seen.go_on(&lists, before, direction);
            for parts in scene.parts_of(id, direction) {
                if parts.iter().all(|part| seen.covered.holds(*part)) {
                    report.warn(
                        FindingTarget::Rule(parts[0].id),
                        "shadowed-rule",
                        lists.message(parts[0], seen.covered.same_as(parts[0])),
                    );
                }
                for part in parts.into_iter().filter(|part| lists.counts(*part)) {
                    seen.covered.add(part);
                }
            }
            seen.policies.insert(id.index());
        }
    }
}

/// The ordered lists of rules there are.
struct Lists<'a> {
    scene: &'a Scene<'a>,
    /// For each policy those that come before it wherever it stands, in order.
    before: Vec<Vec<PolicyId>>,
    /// Gates whose Allow rules do not count for everybody.
    narrow: BitSet,
}

/// The policies whose rules have been added up.
struct AddedPolicies<'a> {
    policies: BitSet,
    covered: Covered<'a>,
}

impl<'a> AddedPolicies<'a> {
    /// Adds the policies before the next one; starts anew if others than these were added.
    fn go_on(&mut self, lists: &Lists<'a>, before: &[PolicyId], direction: Direction) {
        let wanted: BitSet = before.iter().map(|id| id.index()).collect();
        if self.policies.iter().any(|seen| !wanted.contains(seen)) {
            *self = Self { policies: BitSet::default(), covered: Covered::new(lists.scene) };
        }
        for &id in before.iter().filter(|id| !self.policies.contains(id.index())) {
            let rules = lists.scene.rules_of(id, direction).filter(|rule| lists.counts(*rule));
            rules.for_each(|rule| self.covered.add(rule));
        }
        self.policies = wanted;
    }
}

impl Lists<'_> {
    /// Policies of the same pods one after the other: each then only adds to
    /// what the one before it has seen.
    fn order(&self) -> Vec<PolicyId> {
        let place = |id: PolicyId| (self.before[id.index()].len(), id);
        let mut order: Vec<PolicyId> = self.scene.policies().map(|(id, _)| id).collect();
        order.retain(|&id| !matches!(self.scene.snapshot.policy(id).placement, Placement::Network { .. }));
        let mut groups: FxHashMap<&BitSet, (usize, PolicyId)> = FxHashMap::default();
        for &id in &order {
            let first = groups.entry(&self.scene.exits_of[id.index()]).or_insert(place(id));
            *first = place(id).min(*first);
        }
        order.sort_by_key(|&id| (groups.get(&self.scene.exits_of[id.index()]).copied(), place(id)));
        order
    }

    fn counts(&self, rule: RuleView<'_>) -> bool {
        rule.compiled.action != Action::Allow || !self.narrow.contains(rule.compiled.policy.index())
    }

    fn message(&self, rule: RuleView<'_>, same: Option<RuleId>) -> String {
        let scene = self.scene;
        if let Some(same) = same {
            let by = describe(scene, rule, same);
            return format!("it never takes effect: {by} matches the same before it. Remove one of them");
        }
        let direction = rule.compiled.direction;
        let own = scene.rules_of(rule.compiled.policy, direction).take_while(|earlier| earlier.id != rule.id);
        let others = self.before[rule.compiled.policy.index()].iter().flat_map(|&id| scene.rules_of(id, direction));
        let mut first = None;
        let earlier = others.chain(own).take(MOST_ASKED);
        for earlier in earlier.filter(|earlier| self.counts(*earlier) && may_shadow(scene, *earlier, rule)) {
            first.get_or_insert(earlier.id);
            let mut alone = Covered::new(scene);
            alone.add(earlier);
            if alone.holds(rule) {
                let by = describe(scene, rule, earlier.id);
                return format!(
                    "it never takes effect: all it matches is matched before by {by}. Move it up or remove it"
                );
            }
        }
        let by = first.map(|id| format!(", the first of them {}", describe(scene, rule, id))).unwrap_or_default();
        format!("it never takes effect: all it matches is matched before by other rules{by}. Move it up or remove it")
    }
}

/// For each policy those that come before it wherever it stands, in order.
fn predecessors(scene: &Scene<'_>) -> Vec<Vec<PolicyId>> {
    let mut before: Vec<Option<Vec<PolicyId>>> = vec![None; scene.snapshot.policies.len()];
    let mut known: FxHashSet<(bool, &[PolicyId])> = FxHashSet::default();
    for (at, exit) in scene.exits.iter().enumerate() {
        let plan = exit.plan;
        for list in [&plan.cluster_gate, &plan.namespace_gate, &plan.egress.admin, &plan.egress.baseline] {
            if !known.insert((exit.audited, list)) {
                continue;
            }
            let mut prefix = BitSet::default();
            for (place, &id) in list.iter().enumerate() {
                if scene.exits_of[id.index()].contains(at) {
                    match &mut before[id.index()] {
                        Some(known) => known.retain(|earlier| prefix.contains(earlier.index())),
                        none => *none = Some(list[..place].to_vec()),
                    }
                }
                prefix.insert(id.index());
            }
        }
    }
    before.into_iter().map(Option::unwrap_or_default).collect()
}

/// Gates whose Allow rules do not count for those who come through a Service
/// to somewhere outside (S7.4): what is shadowed for pods still works for them.
fn narrow_gates(scene: &Scene<'_>) -> BitSet {
    let mut namespaces = BitSet::default();
    for service in &scene.snapshot.services {
        let backends = service.ports.iter().flat_map(|port| &port.backends);
        let is_outside = |target| matches!(target, BackendTarget::Address(at) if scene.program.pod_at(at).is_none());
        if backends.into_iter().any(|backend| is_outside(backend.target)) {
            namespaces.insert(service.namespace.index());
        }
    }
    let gates = &scene.program.service_gates;
    let gates = gates.iter().filter(|(namespace, _)| namespaces.contains(namespace.index())).flat_map(|(_, g)| g);
    gates.filter(|gate| !gate.selects_all).map(|gate| gate.policy.index()).collect()
}

/// A quick look at whether the two rules have anything in common.
fn may_shadow(scene: &Scene<'_>, earlier: RuleView<'_>, rule: RuleView<'_>) -> bool {
    let (Matcher::Clauses { peers: a, .. }, Matcher::Clauses { peers: b, .. }) =
        (earlier.compiled.matcher, rule.compiled.matcher)
    else {
        return false;
    };
    let (a, b) = (scene.program.peer_set(a), scene.program.peer_set(b));
    a.anyone
        || scene.covers_pods(&a.addresses)
        || scene.covers_names(&a.addresses)
        || b.roles.iter().next().is_some_and(|role| a.roles.contains(role))
        || b.nodes.iter().next().is_some_and(|node| a.nodes.contains(node))
        || b.addresses.ranges().next().is_some_and(|range| a.addresses.contains(range.first))
        || b.domains.first().is_some_and(|&id| {
            let patterns = &scene.program.patterns;
            a.domains.iter().any(|&above| patterns.get(above).covers(patterns.get(id)))
        })
}

fn describe(scene: &Scene<'_>, rule: RuleView<'_>, by: RuleId) -> String {
    let earlier = scene.rule(by);
    let path = rule_path(scene.program, by);
    let action = earlier.compiled.action;
    if earlier.compiled.policy == rule.compiled.policy {
        format!("{path} ({action})")
    } else {
        format!("{path} of {} ({action})", object(earlier.policy))
    }
}
