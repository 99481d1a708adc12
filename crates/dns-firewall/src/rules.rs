//! Lists of rules, and the walk through them.

use crate::explain::{End, ListTold, RuleTold};
use crate::lane::{Ask, Heard, Key, Lane, MustWait, Said};
use crate::message::{Message, is_under};
use crate::metrics::EngineMeter;
use namewall_corefile::{FileSpan, Point, Text, Zone};
use namewall_dns::wire::Name;
use namewall_engines::Judgement;
use namewall_expression::{Expression, Fact, Outcome};
use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// A list of rules with all it needs.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) point: Point,
    /// The zones it is for.
    pub(crate) zones: Vec<Zone>,
    pub(crate) passthrough: Vec<Zone>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) at_end: Outcome,
    pub(crate) drops_silently: bool,
    pub(crate) log: bool,
    /// Whether a rule looks at the answer's addresses, so that each is judged (S9.3).
    pub(crate) looks_at_addresses: bool,
    /// Its first line, as written.
    pub(crate) text: Arc<str>,
    /// The line that says what counts at its end, if one does.
    pub(crate) default_text: Option<Text>,
    pub(crate) place: FileSpan,
}

#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) judge: Judge,
    /// What metrics and logs call it, if not by its place.
    pub(crate) name: Option<Arc<str>>,
    /// What the file calls its outcome, where it does.
    pub(crate) action: Option<Arc<str>>,
    /// As it is written.
    pub(crate) text: Arc<str>,
    pub(crate) place: FileSpan,
    /// Where it is counted how its engine does.
    pub(crate) meter: Option<Arc<EngineMeter>>,
}

#[derive(Debug)]
pub(crate) enum Judge {
    Expression(Arc<Expression>, Outcome),
    /// With the names that it is not asked about, and allows.
    Engine(Arc<Lane>, Vec<Zone>),
}

/// What all lists for a message said.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Decision {
    /// Allow, Redirect, Refuse, Block or Drop; or why there is none.
    pub(crate) outcome: Result<Outcome, String>,
    pub(crate) drops_silently: bool,
    /// The rule that said so, or the list at whose end it was.
    pub(crate) place: Option<FileSpan>,
    /// The name of the rule, if it has one.
    pub(crate) name: Option<Arc<str>>,
    /// Lines to be logged.
    pub(crate) log: Vec<String>,
    /// Which rule failed, and why, where one did.
    pub(crate) failure: Option<String>,
}

impl Decision {
    fn allow() -> Self {
        Self {
            outcome: Ok(Outcome::Allow),
            drops_silently: false,
            place: None,
            name: None,
            log: Vec::new(),
            failure: None,
        }
    }

    fn lets_pass(&self) -> bool {
        matches!(self.outcome, Ok(Outcome::Allow | Outcome::Redirect(_)))
    }
}

/// Whether engines may be waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waiting {
    Allowed,
    /// The walk ends with nothing as soon as somebody has to be waited for.
    Forbidden,
}

/// A walk that can be followed.
pub(crate) struct Walk<'w> {
    pub(crate) waiting: Waiting,
    /// What engines that had to be waited for have said.
    pub(crate) heard: &'w RefCell<Vec<Heard>>,
    /// Is told every step.
    pub(crate) trace: Option<&'w mut Vec<ListTold>>,
}

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
    pub(crate) fn decide(
        &mut self,
        lists: &[List],
        point: Point,
        message: &mut Message<'_>,
    ) -> Result<Decision, MustWait> {
        let mut decision = Decision::allow();
        for list in lists.iter().filter(|list| list.point == point) {
            if !list.is_for(&message.exchange.question.name) {
                continue;
            }
            if let Some(zone) = list.passthrough.iter().find(|zone| is_under(&message.exchange.question.name, zone)) {
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
        let end = |outcome, place: &FileSpan, log| Decision {
            outcome,
            drops_silently: list.drops_silently,
            place: Some(place.clone()),
            name: None,
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
                    let failure = Some(format!("{}: {error}: {}", rule.label(), rule.text));
                    self.end(|| End::Failed(error.clone()));
                    return Ok(Decision { failure, name: rule.name.clone(), ..end(Err(error), &rule.place, log) });
                }
            };
            if outcome == Outcome::Log {
                log.push(line(message, &rule.label(), outcome));
            }
            if outcome.is_defined() {
                self.end(|| End::Rule(outcome));
                if list.log {
                    log.push(line(message, &rule.label(), outcome));
                }
                return Ok(Decision { name: rule.name.clone(), ..end(Ok(outcome), &rule.place, log) });
            }
        }
        self.end(|| End::Default(list.at_end));
        if list.log {
            log.push(line(message, &list.place.to_string(), list.at_end));
        }
        Ok(end(Ok(list.at_end), &list.place, log))
    }

    /// What an engine has said already.
    fn known(&self, key: Key) -> Option<Said> {
        self.heard.borrow().iter().find(|heard| heard.key == key).map(|heard| heard.said.clone())
    }

    /// Until when an engine is waited for. What the other addresses of the message have taken of its time counts: an
    /// answer with many addresses waits no longer than one with a single address.
    fn until(&self, key: Key, lane: &Lane) -> Instant {
        let heard = self.heard.borrow();
        let of_rule = heard.iter().filter(|heard| heard.key.is_of_same_rule(key));
        let taken = of_rule.map(|heard| heard.took).sum();
        Instant::now() + lane.patience().saturating_sub(taken)
    }

    fn rule(&mut self, rule: &Rule, message: &Message<'_>) -> Result<Result<Judgement, String>, MustWait> {
        let judgement = match &rule.judge {
            Judge::Expression(expression, outcome) => match expression.is_true(message) {
                Ok(true) => Ok(Judgement::from(*outcome)),
                Ok(false) => Ok(Judgement::from(Outcome::Undefined)),
                Err(error) => Err(error.to_string()),
            },
            Judge::Engine(_, passing) if passing.iter().any(|zone| is_under(&message.exchange.question.name, zone)) => {
                Ok(Judgement::from(Outcome::Allow))
            }
            Judge::Engine(lane, _) => {
                let key = Key::new(rule, message.address);
                if let Some(said) = self.known(key) {
                    said
                } else {
                    let ask = Ask { key, until: self.until(key, lane), meter: rule.meter.as_ref() };
                    match self.waiting {
                        Waiting::Forbidden => lane.begin(message, ask)?,
                        Waiting::Allowed => {
                            let heard = lane.ask(message, ask);
                            let said = heard.said.clone();
                            self.heard.borrow_mut().push(heard);
                            said
                        }
                    }
                }
            }
        };
        if let Some(told) = self.trace.as_mut().and_then(|trace| trace.last_mut()) {
            told.rules.push(RuleTold::new(rule, message, &judgement));
        }
        Ok(judgement)
    }
}

impl List {
    pub(crate) fn is_for(&self, name: &Name) -> bool {
        self.zones.is_empty() || self.zones.iter().any(|zone| is_under(name, zone))
    }
}

impl Rule {
    /// What metrics and logs call it: its name, or else its place.
    pub(crate) fn label(&self) -> String {
        self.name.as_ref().map_or_else(|| self.place.to_string(), ToString::to_string)
    }

    /// Whether it looks at the answer's addresses, one after the other. Engines do, each by itself.
    pub(crate) fn looks_at_addresses(&self) -> bool {
        match &self.judge {
            Judge::Expression(expression, _) => expression.facts().contains(&Fact::ResponseIp),
            Judge::Engine(..) => true,
        }
    }
}

/// A line for the log: who asked what, and which rule says what of it.
fn line(message: &Message<'_>, rule: &str, outcome: Outcome) -> String {
    let address = message.address.map_or_else(String::new, |address| format!(" ({address})"));
    let exchange = message.exchange;
    let (kind, name, client) = (exchange.question.record_type, exchange.name(), exchange.client);
    format!("{rule}: {outcome}: {kind} {name}{address} from {client}")
}
