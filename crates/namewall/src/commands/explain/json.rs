//! The answer for programs to read: docs/output.md describes it.

use super::answer::Answer;
use super::text::step_name;
use crate::conditions::conditions_json;
use crate::output;
use namewall_policy::explain::WalkStep;
use namewall_policy::port::{Protocol, Traffic};
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
            value["dependsOn"] = conditions_json(&self.describe(&self.depends_on));
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
                    value["dependsOn"] = conditions_json(&self.describe(&route.depends_on));
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

    fn steps_json(&self, steps: &[WalkStep]) -> Vec<Value> {
        let step_json = |step: &WalkStep| {
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

pub(crate) fn allowed_json(traffic: &Traffic) -> Value {
    json!({
        "TCP": traffic.port_texts(Protocol::Tcp),
        "UDP": traffic.port_texts(Protocol::Udp),
        "SCTP": traffic.port_texts(Protocol::Sctp),
    })
}
