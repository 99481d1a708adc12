//! Lists of rules, and the walk through them.

use super::explain::{End, ListTold, RuleTold};
use super::message::{Message, is_under};
use super::metrics::EngineMeter;
use crate::corefile::{Place, Point, Text, Zone};
use crate::{Engine, EngineError, Expression, Fact, Judged, Judgement, Outcome};
use namewall_dns::wire::Name;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// A list of rules with all it needs.
#[derive(Debug)]
pub(super) struct List {
    pub(super) point: Point,
    /// The zones it is for.
    pub(super) zones: Vec<Zone>,
    pub(super) passthrough: Vec<Zone>,
    pub(super) rules: Vec<Rule>,
    pub(super) at_end: Outcome,
    pub(super) drops_silently: bool,
    pub(super) log: bool,
    /// Whether a rule looks at the answer's addresses, so that each is judged (S9.3).
    pub(super) looks_at_addresses: bool,
    /// Its first line, as written.
    pub(super) text: Arc<str>,
    /// The line that says what counts at its end, if one does.
    pub(super) default_text: Option<Text>,
    pub(super) place: Place,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) judge: Judge,
    /// What the file calls its outcome, where it does.
    pub(super) action: Option<Arc<str>>,
    /// As it is written.
    pub(super) text: Arc<str>,
    pub(super) place: Place,
    /// Where it is counted how its engine does.
    pub(super) meter: Option<Arc<EngineMeter>>,
}

#[derive(Debug)]
pub(super) enum Judge {
    Expression(Arc<Expression>, Outcome),
    /// With the names that it is not asked about, and allows.
    Engine(Arc<dyn Engine>, Vec<Zone>),
}

/// What all lists for a message said.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Decision {
    /// Allow, Redirect, Refuse, Block or Drop; or why there is none.
    pub(super) outcome: Result<Outcome, String>,
    pub(super) drops_silently: bool,
    /// The rule that said so, or the list at whose end it was.
    pub(super) place: Option<Place>,
    /// Lines to be logged.
    pub(super) log: Vec<String>,
    /// Which rule failed, and why, where one did.
    pub(super) failure: Option<String>,
}

impl Decision {
    fn allow() -> Self {
        Self { outcome: Ok(Outcome::Allow), drops_silently: false, place: None, log: Vec::new(), failure: None }
    }

    fn lets_pass(&self) -> bool {
        matches!(self.outcome, Ok(Outcome::Allow | Outcome::Redirect(_)))
    }
}

/// Whether engines may be waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waiting {
    Allowed,
    /// The walk ends with nothing as soon as somebody has to be waited for.
    Forbidden,
}

/// A walk that can be followed.
pub(super) struct Walk<'w> {
    pub(super) waiting: Waiting,
    /// Is told every step.
    pub(super) trace: Option<&'w mut Vec<ListTold>>,
}

/// Somebody has to be waited for.
pub(super) struct MustWait;

impl Walk<'_> {
    fn begin(&mut self, list: &List, address: Option<IpAddr>) {
        if let Some(trace) = &mut self.trace {
            trace.push(ListTold::new(list, address));
        }
    }

    /// Tells how the list that was begun last ends.
    fn end(&mut self, end: impl FnOnce() -> End) {
        if let Some(told) = self.trace.as_mut().and_then(|trace| trace.last_mut()) {
            told.end = end();
        }
    }

    /// What the lists of a point say: each must let it pass.
    pub(super) fn decide(
        &mut self,
        lists: &[List],
        point: Point,
        message: &mut Message<'_>,
    ) -> Result<Decision, MustWait> {
        let mut decision = Decision::allow();
        for list in lists.iter().filter(|list| list.point == point) {
            if !list.is_for(&message.question.name) {
                continue;
            }
            if let Some(zone) = list.passthrough.iter().find(|zone| is_under(&message.question.name, zone)) {
                self.begin(list, None);
                self.end(|| End::PassesThrough(zone.clone()));
                continue;
            }
            let next = self.each_address(list, message)?;
            let log = std::mem::take(&mut decision.log);
            // A redirect stands, unless a later list redirects or stops it.
            if !(next.outcome == Ok(Outcome::Allow) && decision.place.is_some()) {
                decision = Decision { log, ..next.clone() };
            } else {
                decision.log = log;
            }
            decision.log.extend(next.log.iter().cloned());
            if !next.lets_pass() {
                break;
            }
        }
        Ok(decision)
    }

    /// One denied address denies the answer (S9.3).
    fn each_address(&mut self, list: &List, message: &mut Message<'_>) -> Result<Decision, MustWait> {
        let addresses = message.addresses().to_vec();
        if !list.looks_at_addresses || addresses.len() < 2 {
            message.address = addresses.first().copied();
            self.begin(list, message.address.filter(|_| list.looks_at_addresses));
            return self.list(list, message);
        }
        let mut log = Vec::new();
        let mut last = None;
        for address in addresses {
            message.address = Some(address);
            self.begin(list, message.address);
            let mut decision = self.list(list, message)?;
            log.append(&mut decision.log);
            let stops = !decision.lets_pass();
            last = Some(decision);
            if stops {
                break;
            }
        }
        let last = last.unwrap_or_else(Decision::allow);
        Ok(Decision { log, ..last })
    }

    /// The first defined result ends the list (S9.1).
    fn list(&mut self, list: &List, message: &mut Message<'_>) -> Result<Decision, MustWait> {
        let mut log = Vec::new();
        let end = |outcome, place: &Place, log| Decision {
            outcome,
            drops_silently: list.drops_silently,
            place: Some(place.clone()),
            log,
            failure: None,
        };
        for rule in &list.rules {
            let judgement = self.rule(rule, message)?;
            let outcome = match judgement {
                Ok(Judgement { outcome, labels, .. }) => {
                    message.labels.extend(labels);
                    outcome
                }
                Err(error) => {
                    let failure = Some(format!("{}: {error}: {}", rule.place, rule.text));
                    self.end(|| End::Failed(error.clone()));
                    return Ok(Decision { failure, ..end(Err(error), &rule.place, log) });
                }
            };
            if outcome == Outcome::Log {
                log.push(line(message, &rule.place, outcome));
            }
            if outcome.is_defined() {
                self.end(|| End::Rule(outcome));
                if list.log {
                    log.push(line(message, &rule.place, outcome));
                }
                return Ok(end(Ok(outcome), &rule.place, log));
            }
        }
        self.end(|| End::Default(list.at_end));
        if list.log {
            log.push(line(message, &list.place, list.at_end));
        }
        Ok(end(Ok(list.at_end), &list.place, log))
    }

    fn rule(&mut self, rule: &Rule, message: &Message<'_>) -> Result<Result<Judgement, String>, MustWait> {
        let judgement = match &rule.judge {
            Judge::Expression(expression, outcome) => match expression.is_true(message) {
                Ok(true) => Ok(Judgement::from(*outcome)),
                Ok(false) => Ok(Judgement::from(Outcome::Undefined)),
                Err(error) => Err(error.to_string()),
            },
            Judge::Engine(_, passing) if passing.iter().any(|zone| is_under(&message.question.name, zone)) => {
                Ok(Judgement::from(Outcome::Allow))
            }
            Judge::Engine(engine, _) => {
                let begun = rule.meter.as_ref().map(|_| Instant::now());
                let judgement = match (caught(|| engine.judge(message)), self.waiting) {
                    (Ok(Judged::Later(_)), Waiting::Forbidden) => return Err(MustWait),
                    (Ok(judged), _) => caught(|| judged.wait()).flatten().map_err(|error| error.to_string()),
                    (Err(error), _) => Err(error.to_string()),
                };
                if let (Some(meter), Some(begun)) = (&rule.meter, begun) {
                    meter.add(begun.elapsed(), judgement.is_err());
                }
                judgement
            }
        };
        if let Some(told) = self.trace.as_mut().and_then(|trace| trace.last_mut()) {
            told.rules.push(RuleTold::new(rule, message, &judgement));
        }
        Ok(judgement)
    }
}

impl List {
    pub(super) fn is_for(&self, name: &Name) -> bool {
        self.zones.is_empty() || self.zones.iter().any(|zone| is_under(name, zone))
    }
}

impl Rule {
    /// Whether it looks at the answer's addresses, one after the other. Engines do, each by itself.
    pub(super) fn looks_at_addresses(&self) -> bool {
        match &self.judge {
            Judge::Expression(expression, _) => expression.facts().contains(&Fact::ResponseIp),
            Judge::Engine(..) => true,
        }
    }
}

/// A bug in an engine is an error of that engine, and no more.
fn caught<T>(judge: impl FnOnce() -> T) -> Result<T, EngineError> {
    namewall_dns::caught(judge).ok_or_else(|| EngineError("it panicked, which is a bug".to_owned()))
}

/// A line for the log: who asked what, and which rule says what of it.
fn line(message: &Message<'_>, place: &Place, outcome: Outcome) -> String {
    let address = message.address.map_or_else(String::new, |address| format!(" ({address})"));
    format!("{place}: {outcome}: {} {}{address} from {}", message.question.record_type, message.name, message.client())
}
