//! The answer for programs to read: docs/output.md describes it.

use super::answer::Answer;
use super::text::step_name;
use crate::output;
use namewall_policy::addr::AddrSet;
use namewall_policy::explain::{Step, describe_end};
use namewall_policy::port::{Protocol, Traffic};
use namewall_policy::unknown::describe_condition;
use namewall_policy::{Condition, Dependence, Program, Snapshot};
use serde_json::{Value, json};

impl Answer<'_> {
    pub(crate) fn json(&self) -> Value {
        let mut value = json!({
            "question": self.question,
            "verdict": self.verdict.to_string(),
            "reason": self.reason(),
            "steps": self.first_steps(),
        });
        if let Some((asked, target)) = &self.alias {
            value["alias"] = json!({ "asked": asked.to_string(), "name": target.to_string() });
        }
        if !self.depends_on.is_empty() {
            value["dependsOn"] = self.conditions_json(&self.depends_on);
        }
        if let Some(open) = &self.open {
            value["allowed"] = allowed_json(&open.open);
            if !open.is_certain() {
                value["depends"] = allowed_json(&open.depends());
            }
        }
        if let Some(would) = self.would_deny() {
            value["wouldDeny"] = would.into();
        }
        if self.routes.len() > 1 || self.routes.iter().any(|route| route.label.is_some()) {
            let routes = self.routes.iter().map(|route| {
                let mut value = json!({
                    "route": route.label,
                    "verdict": route.prediction.to_string(),
                    "reason": self.route_reason(route),
                    "steps": route.stories.first().map(|story| self.steps_json(&story.explanation.steps)),
                });
                if let Some(family) = route.family {
                    value["family"] = family.into();
                }
                if !route.depends_on.is_empty() {
                    value["dependsOn"] = self.conditions_json(&route.depends_on);
                }
                value
            });
            value["routes"] = routes.collect();
        }
        value
    }

    fn first_steps(&self) -> Vec<Value> {
        let story = self.routes.iter().flat_map(|route| &route.stories).next();
        story.map(|story| self.steps_json(&story.explanation.steps)).unwrap_or_default()
    }

    fn conditions_json(&self, conditions: &[Condition]) -> Value {
        let world = (self.world.snapshot, self.world.program);
        conditions.iter().map(|one| condition_json(world, one)).collect()
    }

    fn steps_json(&self, steps: &[Step]) -> Vec<Value> {
        let step_json = |step: &Step| {
            let rules = step.rules.iter().map(|rule| {
                let compiled = self.world.program.rule(rule.rule);
                let policy = &self.world.snapshot.policy(compiled.policy).id;
                let mut value = json!({
                    "policy": policy.to_string(),
                    "kind": policy.kind.name(),
                    "rule": compiled.index,
                    "action": rule.action.to_string(),
                    "matched": rule.matched,
                    "why": rule.why,
                    "source": self.rule_source(rule).map(output::source_json),
                });
                if let Some(lease) = &rule.lease {
                    value["lease"] = json!({
                        "name": lease.name.to_string(),
                        "pattern": lease.pattern.to_string(),
                        "address": lease.address.to_string(),
                    });
                }
                value
            });
            json!({
                "direction": step.direction.to_string(),
                "stage": step_name(step),
                "result": self.step_result(step),
                "rules": rules.collect::<Vec<_>>(),
            })
        };
        steps.iter().map(step_json).collect()
    }
}

/// What an answer depends on.
pub(crate) fn condition_json((snapshot, program): (&Snapshot, &Program), condition: &Condition) -> Value {
    let mut value = json!({ "text": describe_condition((snapshot, program), condition) });
    if let Some(part) = &condition.part {
        value["ports"] = allowed_json(part);
    }
    let cidrs = |set: &AddrSet| -> Value {
        set.ranges().flat_map(|range| range.cidrs().map(|cidr| cidr.to_string())).collect()
    };
    let (on, end) = match &condition.on {
        Dependence::Address { end, open, closed } => {
            value["open"] = cidrs(open);
            value["closed"] = cidrs(closed);
            ("address", end)
        }
        Dependence::HostNode { end, .. } | Dependence::SourceNode { end, .. } => ("node", end),
        Dependence::SameNode { to, .. } => ("node", to),
    };
    value["on"] = on.into();
    value["of"] = describe_end(snapshot, end).into();
    value
}

pub(crate) fn allowed_json(traffic: &Traffic) -> Value {
    json!({
        "TCP": traffic.port_texts(Protocol::Tcp),
        "UDP": traffic.port_texts(Protocol::Udp),
        "SCTP": traffic.port_texts(Protocol::Sctp),
    })
}
