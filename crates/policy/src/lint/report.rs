//! Where findings are collected, and how objects and fields are called in them.

use crate::finding::Finding;
use crate::model::{Direction, Policy, PolicyId, PolicyKind};
use crate::program::{Program, RuleId};
use crate::snapshot::Snapshot;

/// What a finding is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum FindingTarget {
    Policy(PolicyId),
    /// A field of it, by its path.
    Field(PolicyId, &'static str),
    Rule(RuleId),
}

pub(super) struct Report<'a> {
    snapshot: &'a Snapshot,
    program: &'a Program,
    found: Vec<(SortKey, Finding)>,
}

/// Policies in the order they were read; in each the policy itself, then its rules.
type SortKey = (PolicyId, Option<(Direction, u32)>);

impl<'a> Report<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, program: &'a Program) -> Self {
        Self { snapshot, program, found: Vec::new() }
    }

    pub(super) fn warn(&mut self, place: FindingTarget, code: &'static str, message: impl Into<String>) {
        self.add(place, Finding::warning(code, "", message));
    }

    pub(super) fn hint(&mut self, place: FindingTarget, code: &'static str, message: impl Into<String>) {
        self.add(place, Finding::hint(code, "", message));
    }

    fn add(&mut self, place: FindingTarget, mut finding: Finding) {
        let (key, path, source) = match place {
            FindingTarget::Policy(id) => ((id, None), String::new(), None),
            FindingTarget::Field(id, path) => ((id, None), path.to_owned(), None),
            FindingTarget::Rule(id) => {
                let rule = self.program.rule(id);
                let policy = self.snapshot.policy(rule.policy);
                let written = policy.rules(rule.direction).get(rule.index as usize);
                let source = written.and_then(|rule| rule.source.clone());
                ((rule.policy, Some((rule.direction, rule.index))), rule_path(self.program, id), source)
            }
        };
        let policy = self.snapshot.policy(key.0);
        finding.object = object(policy);
        self.found.push((key, finding.at(path).from_source(source.or_else(|| policy.source.clone()))));
    }

    pub(super) fn finish(mut self) -> Vec<Finding> {
        self.found.sort_by_key(|(key, _)| *key);
        let mut findings: Vec<Finding> = self.found.into_iter().map(|(_, finding)| finding).collect();
        // A rule that lists a peer twice is told once.
        findings.dedup();
        findings
    }
}

/// `NetworkPolicy shop/web`, as findings of the readers call it.
pub(super) fn object(policy: &Policy) -> String {
    let id = &policy.id;
    match &id.namespace {
        Some(namespace) => format!("{} {namespace}/{}", id.kind.name(), id.name),
        None => format!("{} {}", id.kind.name(), id.name),
    }
}

/// `spec.egress[2]`.
pub(super) fn rule_path(program: &Program, id: RuleId) -> String {
    let rule = program.rule(id);
    match program.policy(rule.policy).id.kind {
        PolicyKind::ClusterEgressFirewall => format!("spec.rules[{}]", rule.index),
        _ => format!("spec.{}[{}]", rule.direction, rule.index),
    }
}
