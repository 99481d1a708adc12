//! Whether a decision is the one that was expected, and by whom.

use crate::expectation::{By, Expectation};
use namewall_policy::model::{Direction, PolicyId};
use namewall_policy::program::Plan;
use namewall_policy::{Cause, Decision, Flow, Prediction, Program, Reason};

pub(super) struct Judge<'a> {
    pub(super) program: &'a Program,
    pub(super) flow: &'a Flow,
}

impl Judge<'_> {
    pub(super) fn agrees(&self, expect: &Expectation, verdict: Prediction, decision: &Decision) -> bool {
        let would_deny = match (&expect.would_deny, &decision.would_deny) {
            (None, None) => true,
            (Some(by), Some(reason)) => by.as_ref().is_none_or(|by| self.is_by(by, reason)),
            _ => false,
        };
        expect.verdict == verdict && would_deny && expect.by.as_ref().is_none_or(|by| self.is_by(by, &decision.reason))
    }

    /// An allow is by either direction's rule; a denial by isolation by any policy that isolates.
    fn is_by(&self, by: &By, reason: &Reason) -> bool {
        match reason {
            Reason::Allowed { egress, ingress } if by.policy == "default" => {
                let silent = |cause: &Cause| matches!(cause, Cause::Default | Cause::NoSubject);
                silent(egress) && silent(ingress)
            }
            Reason::Allowed { egress, ingress } => [egress, ingress].into_iter().any(|cause| self.is_rule(by, cause)),
            Reason::Denied { stage, cause: Cause::Isolated } => {
                let subject = match stage.direction() {
                    Direction::Egress => &self.flow.from,
                    Direction::Ingress => &self.flow.to,
                };
                let class = subject.workload.map(|id| self.program.class(self.program.member(id).class));
                let plans = class.into_iter().flat_map(|class| class.audited.iter().chain([&class.enforced]));
                by.rule.is_none()
                    && plans
                        .flat_map(Plan::each)
                        .flat_map(|plan| &plan.tiers(stage.direction()).network)
                        .any(|&id| self.is_policy(by, id))
            }
            Reason::Denied { cause, .. } => self.is_rule(by, cause),
        }
    }

    fn is_rule(&self, by: &By, cause: &Cause) -> bool {
        let Cause::Rule(id) = cause else { return false };
        let rule = self.program.rule(*id);
        self.is_policy(by, rule.policy) && by.rule.is_none_or(|index| index == rule.index)
    }

    fn is_policy(&self, by: &By, id: PolicyId) -> bool {
        self.program.policy(id).id.to_string() == by.policy
    }
}
