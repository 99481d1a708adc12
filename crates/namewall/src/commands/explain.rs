//! `namewall explain`.

use super::run::Running;
use crate::cli::{Expect, Explain, Format, Question};
use crate::input::Loaded;
use crate::output::{self, SOFT, STRONG, style_of};
use anyhow::Result;
use namewall_policy::ask::{Host, Route, Target, World};
use namewall_policy::explain::{self, Explanation, RuleStep, Step, StepAt, StepResult};
use namewall_policy::model::Direction;
use namewall_policy::port::{Protocol, Traffic};
use namewall_policy::reach::Reach;
use namewall_policy::{Cause, Flow, Reason, Verdict};
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;

pub(crate) fn run(args: &Explain) -> Result<ExitCode> {
    if !args.live {
        return answer(&args.question, Loaded::from_paths(&args.paths, &args.settings)?.with(args.lenient));
    }
    let verdict = explain_live(&args.question)?;
    Ok(exit_code(&args.question, verdict))
}

/// Answers by what was loaded.
pub(crate) fn answer(asked: &Question, mut loaded: Loaded) -> Result<ExitCode> {
    loaded.report_errors();
    loaded.learn(&asked.dns);
    let answer = Answer::new(loaded.world(), &Asked { from: &asked.from, to: &asked.to })?;
    let mut out = output::stdout();
    let printed = match asked.output {
        Format::Text => answer.print(&mut out).and_then(|()| Ok(out.flush()?)),
        Format::Json => {
            let mut value = answer.json();
            value["unread"] = loaded.unread.json();
            output::print_json(&mut out, &value)
        }
    };
    output::unless_closed(printed)?;
    Ok(loaded.unread.exit(exit_code(asked, answer.verdict)))
}

fn exit_code(asked: &Question, verdict: Verdict) -> ExitCode {
    let expected = match asked.expect {
        None => return ExitCode::SUCCESS,
        Some(Expect::Allow) => Verdict::Allow,
        Some(Expect::Deny) => Verdict::Deny,
    };
    if verdict == expected { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// The namewall that runs here explains itself: by its policies, and what it has learned.
fn explain_live(asked: &Question) -> Result<Verdict> {
    let is_json = asked.output == Format::Json;
    let told = json!({"from": asked.from.to_string(), "to": asked.to.to_string(), "json": is_json});
    let told = Running::find()?.ask(&json!({ "explain": told }))?;
    let mut out = output::stdout();
    let text = told["text"].as_str().unwrap_or_default();
    output::unless_closed(out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Into::into))?;
    Ok(if told["verdict"].as_str() == Some("allow") { Verdict::Allow } else { Verdict::Deny })
}

/// What is asked.
pub(crate) struct Asked<'a> {
    pub(crate) from: &'a Host,
    pub(crate) to: &'a Target,
}

pub(crate) struct Answer<'a> {
    world: World<'a>,
    question: String,
    pub(crate) verdict: Verdict,
    /// What is open, where no port was asked for.
    open: Option<Traffic>,
    routes: Vec<Told>,
}

/// A route and the story of the connection that decides it.
struct Told {
    label: Option<String>,
    flow: Flow,
    story: Explanation,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(world: World<'a>, asked: &Asked<'_>) -> Result<Self> {
        let mut routes = world.routes(asked.from, asked.to)?;
        let any_port = asked.to.port.is_none() && asked.to.protocol.has_ports();
        let open = any_port.then(|| settle_ports(&world, &mut routes));
        let verdict = world.verdict(&routes);
        let routes = routes.into_iter().filter_map(|route| tell(&world, route)).collect();
        Ok(Self { world, question: format!("{} -> {}", asked.from, asked.to), verdict, open, routes })
    }

    fn reason(&self) -> String {
        let decisive = self.routes.iter().find(|told| told.story.decision.verdict == self.verdict);
        match decisive.or(self.routes.first()) {
            Some(told) => self.reason_of(&told.story.decision.reason, &told.flow),
            None => "the Service has no endpoint to send it to".to_owned(),
        }
    }

    fn reason_of(&self, reason: &Reason, flow: &Flow) -> String {
        explain::describe_reason((self.world.snapshot, self.world.program), reason, flow)
    }

    fn would_deny(&self) -> Option<String> {
        let (told, reason) = self.routes.iter().find_map(|told| told.story.decision.would_deny.map(|r| (told, r)))?;
        Some(self.reason_of(&reason, &told.flow))
    }

    pub(crate) fn print(&self, out: &mut impl Write) -> Result<()> {
        let style = style_of(self.verdict);
        writeln!(
            out,
            "{style}{}{style:#}  {STRONG}{}{STRONG:#}",
            self.verdict.to_string().to_uppercase(),
            self.question
        )?;
        writeln!(out, "  {}", self.reason())?;
        if let Some(open) = &self.open {
            writeln!(out, "  open ports: {open}")?;
        }
        if let Some(would) = self.would_deny() {
            writeln!(out, "  {}would deny{:#} (audit): {would}", output::WARN, output::WARN)?;
        }
        for told in &self.routes {
            writeln!(out)?;
            if let Some(label) = &told.label {
                let verdict = told.story.decision.verdict;
                let style = style_of(verdict);
                writeln!(out, "{STRONG}{label}{STRONG:#}: {style}{verdict}{style:#}")?;
            }
            if self.open.is_some() {
                writeln!(out, "{SOFT}shown for {} {}{SOFT:#}", told.flow.protocol, told.flow.port)?;
            }
            self.print_steps(out, &told.story.steps)?;
            if !told.story.audit.is_empty() {
                writeln!(out, "{SOFT}with audited policies enforced:{SOFT:#}")?;
                self.print_steps(out, &told.story.audit)?;
            }
        }
        Ok(())
    }

    fn print_steps(&self, out: &mut impl Write, steps: &[Step]) -> Result<()> {
        for direction in [Direction::Egress, Direction::Ingress] {
            let steps: Vec<&Step> = steps.iter().filter(|step| step.direction == direction).collect();
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

    fn print_step(&self, out: &mut impl Write, step: &Step) -> Result<()> {
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

    fn step_result(&self, step: &Step) -> String {
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

    fn policy_place(&self, id: namewall_policy::model::PolicyId) -> String {
        let policy = self.world.snapshot.policy(id);
        policy.source.as_ref().map_or_else(|| policy.id.to_string(), |source| format!("{} ({source})", policy.id))
    }

    fn rule_source(&self, step: &RuleStep) -> Option<&namewall_policy::Source> {
        let rule = self.world.program.rule(step.rule);
        self.world.snapshot.policy(rule.policy).rules(rule.direction)[rule.index as usize].source.as_ref()
    }

    pub(crate) fn json(&self) -> Value {
        let mut value = json!({
            "question": self.question,
            "verdict": self.verdict.to_string(),
            "reason": self.reason(),
            "steps": self.routes.first().map(|told| self.steps_json(&told.story.steps)).unwrap_or_default(),
        });
        if let Some(open) = &self.open {
            value["allowed"] = allowed_json(open);
        }
        if let Some(would) = self.would_deny() {
            value["wouldDeny"] = would.into();
        }
        if self.routes.len() > 1 || self.routes.iter().any(|told| told.label.is_some()) {
            let routes = self.routes.iter().map(|told| {
                json!({
                    "route": told.label,
                    "verdict": told.story.decision.verdict.to_string(),
                    "reason": self.reason_of(&told.story.decision.reason, &told.flow),
                    "steps": self.steps_json(&told.story.steps),
                })
            });
            value["routes"] = routes.collect();
        }
        value
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

fn step_name(step: &Step) -> String {
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

/// Without a port: which are open, and one of them to tell the story of.
fn settle_ports(world: &World<'_>, routes: &mut [Route]) -> Traffic {
    let reach = Reach { program: world.program, leases: world.leases, now: world.now };
    let (mut everywhere, mut backends): (Option<Traffic>, Traffic) = (None, Traffic::none());
    for route in routes.iter() {
        let mut here = Traffic::none();
        for flow in &route.flows {
            here = here.union(&reach.between(&flow.from, &flow.to));
        }
        // A Service's backend has its port already; a name must be open at each of its addresses.
        match route.flows.first().filter(|flow| flow.port != 0) {
            Some(flow) => backends = backends.union(&only(&here, flow.protocol, flow.port)),
            None => everywhere = Some(everywhere.map_or(here.clone(), |open| open.intersect(&here))),
        }
    }
    let open = everywhere.unwrap_or_default().union(&backends);
    let example = |protocol: Protocol| Some((protocol, open.ports(protocol)?.ranges().first()?.0));
    let (protocol, port) = Protocol::WITH_PORTS.into_iter().find_map(example).unwrap_or((Protocol::Tcp, 80));
    for flow in routes.iter_mut().flat_map(|route| &mut route.flows).filter(|flow| flow.port == 0) {
        (flow.protocol, flow.port) = (protocol, port);
    }
    open
}

fn only(traffic: &Traffic, protocol: Protocol, port: u16) -> Traffic {
    let mut one = Traffic::none();
    one.insert(protocol, port, port);
    traffic.intersect(&one)
}

/// The story of the connection that opens the route, or of the first if none does.
fn tell(world: &World<'_>, route: Route) -> Option<Told> {
    let stories = route.flows.into_iter().map(|flow| {
        let story = explain::explain((world.snapshot, world.program), world.leases, &flow, world.now);
        (flow, story)
    });
    let mut stories: Vec<_> = stories.collect();
    let open = stories.iter().position(|(_, story)| story.decision.verdict == Verdict::Allow).unwrap_or(0);
    if stories.is_empty() {
        return None;
    }
    let (flow, story) = stories.swap_remove(open);
    Some(Told { label: route.label, flow, story })
}

pub(crate) fn allowed_json(traffic: &Traffic) -> Value {
    json!({
        "TCP": traffic.port_texts(Protocol::Tcp),
        "UDP": traffic.port_texts(Protocol::Udp),
        "SCTP": traffic.port_texts(Protocol::Sctp),
    })
}
