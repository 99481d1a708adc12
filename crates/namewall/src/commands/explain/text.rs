//! The answer for people to read.

use super::answer::{Answer, RouteStory, Story, verdict_of};
use crate::output::{self, SOFT, STRONG, style_of};
use anyhow::Result;
use namewall_policy::explain::{self, StepAt, StepResult, WalkStep};
use namewall_policy::model::Direction;
use namewall_policy::{Cause, Prediction, Verdict};
use std::io::Write;

impl Answer<'_> {
    pub(crate) fn print(&self, out: &mut impl Write) -> Result<()> {
        let style = style_of(self.verdict);
        let word = self.verdict.to_string().to_uppercase();
        writeln!(out, "{style}{word}{style:#}  {STRONG}{}{STRONG:#}", self.question)?;
        writeln!(out, "  {}", self.reason())?;
        let is_told = self.verdict == Prediction::Depends;
        if let Some((asked, target)) = &self.alias {
            writeln!(out, "  asks for {asked}, an ExternalName for {target}; rules by name see the name asked for")?;
        }
        if let Some(hint) = self.hint() {
            writeln!(out, "  {SOFT}hint: {hint}{SOFT:#}")?;
        }
        if let Some(open) = &self.open {
            writeln!(out, "  open ports: {}", open.open)?;
            if !open.is_certain() {
                writeln!(out, "  ports that depend: {}", open.depends())?;
                // Of a verdict that depends, the reason says it already.
                for condition in self.describe(&self.depends_on).iter().filter(|_| !is_told) {
                    writeln!(out, "    {}", condition.text)?;
                }
            }
        }
        if let Some(would) = self.would_deny() {
            writeln!(out, "  {}would deny{:#} (audit): {would}", output::WARN, output::WARN)?;
        }
        for route in &self.routes {
            self.print_route(out, route)?;
        }
        Ok(())
    }

    fn print_route(&self, out: &mut impl Write, route: &RouteStory) -> Result<()> {
        writeln!(out)?;
        let label = [route.label.as_deref(), route.family].into_iter().flatten().collect::<Vec<_>>().join(", ");
        if !label.is_empty() {
            let style = style_of(route.prediction);
            writeln!(out, "{STRONG}{label}{STRONG:#}: {style}{}{style:#}", route.prediction)?;
        }
        for story in &route.stories {
            if route.prediction == Prediction::Depends {
                let (word, style) = match verdict_of(story) {
                    Verdict::Allow => ("allowed", output::GOOD),
                    Verdict::Deny => ("denied", output::BAD),
                };
                writeln!(out, "{STRONG}a case in which it is {style}{word}{style:#}{STRONG}:{STRONG:#}")?;
            }
            self.print_story(out, story)?;
        }
        Ok(())
    }

    fn print_story(&self, out: &mut impl Write, story: &Story) -> Result<()> {
        if self.open.is_some() {
            writeln!(out, "{SOFT}shown for {} {}{SOFT:#}", story.flow.protocol, story.flow.port)?;
        }
        self.print_steps(out, &story.explanation.steps)?;
        if !story.explanation.audit.is_empty() {
            writeln!(out, "{SOFT}with audited policies enforced:{SOFT:#}")?;
            self.print_steps(out, &story.explanation.audit)?;
        }
        Ok(())
    }

    fn print_steps(&self, out: &mut impl Write, steps: &[WalkStep]) -> Result<()> {
        for direction in [Direction::Egress, Direction::Ingress] {
            let steps: Vec<&WalkStep> = steps.iter().filter(|step| step.direction == direction).collect();
            if steps.is_empty() {
                continue;
            }
            writeln!(out, "{STRONG}{direction}{STRONG:#}")?;
            for step in steps {
                self.print_step(out, step)?;
            }
        }
        Ok(())
    }

    fn print_step(&self, out: &mut impl Write, step: &WalkStep) -> Result<()> {
        writeln!(out, "  {}: {}", step_name(step), self.step_result(step))?;
        // A long list of misses tells little; the match and its neighbours tell most.
        const SHOWN: usize = 12;
        let matched = step.rules.iter().position(|rule| rule.matched);
        let from = matched.map_or(0, |at| at.saturating_sub(SHOWN - 1));
        if from > 0 {
            writeln!(out, "    {SOFT}… {from} rules before did not match{SOFT:#}")?;
        }
        for rule in step.rules.iter().skip(from).take(SHOWN) {
            let (mark, style) = match (rule.matched, rule.action) {
                (false, _) => ("·", SOFT),
                (true, namewall_policy::model::Action::Deny) => ("✗", output::BAD),
                (true, _) => ("✓", output::GOOD),
            };
            let place = self.rule_source(rule).map(|source| format!("  {source}")).unwrap_or_default();
            let name = explain::describe_rule(self.world.snapshot, self.world.program, rule.rule);
            writeln!(out, "    {style}{mark} {}{style:#} {name}{SOFT}{place}{SOFT:#}", rule.action)?;
            writeln!(out, "        {}", rule.why)?;
        }
        if step.rules.len() > from + SHOWN {
            writeln!(out, "    {SOFT}… {} rules more did not match{SOFT:#}", step.rules.len() - from - SHOWN)?;
        }
        Ok(())
    }

    pub(super) fn step_result(&self, step: &WalkStep) -> String {
        match &step.result {
            StepResult::Allowed if step.at == StepAt::Stage(namewall_policy::Stage::ClusterGate) => {
                "passes the gate".into()
            }
            StepResult::Allowed if step.at == StepAt::Stage(namewall_policy::Stage::NamespaceGate) => {
                "passes the gate".into()
            }
            StepResult::Allowed if step.at == StepAt::Exempt(Cause::Default) => "allowed, no policy has a say".into(),
            StepResult::Allowed => "allowed".into(),
            StepResult::Denied => "denied".into(),
            StepResult::Passed => "passed on to the next tier".into(),
            StepResult::NoMatch => "no rule matches".into(),
            StepResult::OutOfScope => "not asked: the destination is inside the pod network".into(),
            StepResult::Isolated(policies) if policies.is_empty() => {
                "denied: the namespace isolates its pods and no rule allows this".into()
            }
            StepResult::Isolated(policies) => {
                let names: Vec<String> = policies.iter().take(4).map(|&id| self.policy_place(id)).collect();
                let more = policies.len().saturating_sub(4);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("denied: isolated by {}{more}, and no rule allows this", names.join(", "))
            }
        }
    }
}

pub(super) fn step_name(step: &WalkStep) -> String {
    match step.at {
        StepAt::Stage(stage) => {
            let name = stage.to_string();
            name.strip_prefix("egress ").or(name.strip_prefix("ingress ")).unwrap_or(&name).to_owned()
        }
        StepAt::Exempt(Cause::OwnAddress) => "a pod to its own address is exempt".into(),
        StepAt::Exempt(Cause::OwnNode) => "from the pod's own node (health probes) is exempt".into(),
        StepAt::Exempt(Cause::Default) => "default".into(),
        StepAt::Exempt(_) => "this end is no pod with policies of its own".into(),
    }
}
