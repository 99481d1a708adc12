//! A walk, told to who wants to know why: which rules were asked, what they saw and said, and what ended each
//! list. It is the walk of questions with a listener, and all of its words are the Corefile's own.

use crate::acl::{self, Denied};
use crate::answer::refuse_redirect;
use crate::dns64;
use crate::exchange::{Exchange, Unserved};
use crate::message::{Message, text_of};
use crate::reply::denial_words;
use crate::rpz::Applied;
use crate::rules::{Decision, Judge, List, Rule, Waiting, Walk};
use crate::service::Service;
use namewall_corefile::{FileSpan, Point, Text, Zone};
use namewall_dns::wire::Question;
use namewall_dns::{Asked, To};
use namewall_engines::Judgement;
use namewall_expression::Outcome;
use std::cell::RefCell;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

const MADE_UP: &str =
    "`dns64`: without an address in the answer, the A records are looked up, as another question of the client";
const ALIAS: &str = "the name it leads to is looked up, as another question of the client";

/// What becomes of a question, and why.
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    /// Who asked what, and where.
    pub question: String,
    /// The zone of the server block it is for; none is that there is none.
    pub block: Option<Zone>,
    pub query: Option<Walked>,
    /// What directives do with a question that query rules let pass: `rewrite`, `acl`.
    pub changes: Vec<String>,
    /// Who is asked for the answer, if query rules let it pass.
    pub way: Option<Way>,
    /// What else has to be known for the answer.
    pub notes: Vec<&'static str>,
    /// False if the answer depends on what only a running server knows.
    pub is_known: bool,
    /// What response rules say of an answer, if there is one.
    pub response: Option<Walked>,
    /// What a policy zone says of the answer, if one does.
    pub policy_of_answer: Option<String>,
    /// Whether response rules are for this question.
    pub has_response_rules: bool,
    /// What the client gets if it is not the answer.
    pub denial: Option<&'static str>,
}

/// What the lists of a point said.
#[derive(Clone, PartialEq, Debug)]
pub struct Walked {
    pub lists: Vec<ListTold>,
    /// What counts, or why nothing does.
    pub outcome: Result<Outcome, String>,
}

/// A list that was asked; a list that looks at addresses once for each.
#[derive(Clone, PartialEq, Debug)]
pub struct ListTold {
    /// Its first line.
    pub text: Arc<str>,
    pub place: FileSpan,
    /// The address of the answer it was asked of.
    pub address: Option<IpAddr>,
    /// Those that were asked.
    pub rules: Vec<RuleTold>,
    /// How many there are.
    pub count: usize,
    pub end: End,
    /// The line that says what counts at the end, if there is one.
    pub default_text: Option<Text>,
}

/// What ended a list.
#[derive(Clone, PartialEq, Debug)]
pub enum End {
    /// Its last rule that was asked.
    Rule(Outcome),
    /// No rule said anything.
    Default(Outcome),
    /// No rule was asked of names of this zone.
    PassesThrough(Zone),
    /// Its last rule that was asked failed.
    Failed(String),
}

#[derive(Clone, PartialEq, Debug)]
pub struct RuleTold {
    /// As written.
    pub text: Arc<str>,
    pub place: FileSpan,
    /// What it said in the words of the file; none is nothing.
    pub said: Result<Option<String>, String>,
    /// What it looked at.
    pub facts: Vec<(String, String)>,
    /// How an engine came to that.
    pub trace: Vec<String>,
    /// What it said besides.
    pub labels: Vec<(String, String)>,
}

/// Who answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// A directive of the block itself: hosts, template, file or whoami.
    Local(&'static str),
    Forward,
    /// As a rule says.
    Server(SocketAddr),
    Nobody,
}

impl Service {
    /// The walk of a question and, if one is given, of its answer. Nobody is asked but engines.
    pub fn explain(&self, asked: &Asked<'_>, answer: Option<&[u8]>) -> Explanation {
        let mut told = Explanation {
            question: String::new(),
            block: None,
            query: None,
            changes: Vec::new(),
            way: None,
            notes: Vec::new(),
            is_known: true,
            response: None,
            policy_of_answer: None,
            has_response_rules: false,
            denial: None,
        };
        let shown = |question: &Question| {
            let (kind, name) = (question.record_type, text_of(&question.name));
            format!("{kind} {name} from {} at {}", asked.client.ip(), asked.server)
        };
        let exchange = match Exchange::begin(&self.0, asked) {
            Ok(mut exchange) => {
                exchange.count_client();
                exchange
            }
            Err(Unserved::Unreadable) => {
                told.denial = Some("FORMERR");
                return told;
            }
            Err(Unserved::NoBlock(question)) => {
                (told.question, told.denial) = (shown(&question), Some("REFUSED"));
                return told;
            }
        };
        let (block, question) = (exchange.block(), &exchange.question);
        (told.question, told.denial) = (shown(question), Some("REFUSED"));
        told.block = Some(exchange.zone().clone());
        if let Some(why) = &exchange.unjudged {
            told.changes.push(why.clone());
            told.denial = Some("SERVFAIL");
            return told;
        }
        let mut message = Message::new(&exchange);
        let Some((walked, decision)) = walk(&block.lists, Point::Query, &mut message) else { return told };
        told.query = Some(walked);
        told.denial = denial_words(&decision);
        if told.denial.is_some() {
            return told;
        }
        let is_redirected = matches!(decision.outcome, Ok(Outcome::Redirect(_)));
        let verdict = exchange.policy_of_question();
        if let Some(verdict) = &verdict {
            told.changes.push(exchange.policy_words(verdict));
            match exchange.apply(verdict) {
                None => {}
                Some(Applied::Deny(denied)) => {
                    told.denial = Some(denied.words());
                    return told;
                }
                Some(Applied::Answer(answer)) => {
                    told.way = Some(Way::Local("rpz"));
                    told.judge(&exchange, message, &answer);
                    return told;
                }
                Some(Applied::Alias(..)) => {
                    (told.way, told.notes, told.is_known) = (Some(Way::Local("rpz")), vec![ALIAS], false);
                    return told;
                }
            }
        }
        let of_fixed = || block.local.fixed.answer(asked.query, question).filter(|_| !is_redirected);
        let altered = match of_fixed() {
            Some(_) => None,
            None => exchange.altered(),
        };
        let Ok(altered) = altered.transpose() else {
            told.changes.push("`rewrite` makes a name of it that is none".to_owned());
            told.denial = Some("SERVFAIL");
            return told;
        };
        let as_answered = altered.as_ref().map_or(&*exchange, |altered| &altered.inner);
        if altered.as_ref().is_some_and(|altered| altered.rewritten.is_some()) {
            let (new, old) = (&as_answered.question, &exchange.question);
            told.changes.push(if (&new.name, new.record_type, new.class) == (&old.name, old.record_type, old.class) {
                "`rewrite` changes options of the query, or the answer".to_owned()
            } else {
                format!("it is rewritten: {} {}", new.record_type, as_answered.name())
            });
        }
        let action = match of_fixed() {
            Some(_) => None,
            None => acl::denied(&block.acls, asked.client.ip(), &as_answered.question),
        };
        if let Some(action) = action {
            told.changes.push("`acl` does not let it pass".to_owned());
            match acl::denial(action, asked.query) {
                Denied::Reply(reply) if exchange.wants_dns64(&reply) => {
                    (told.notes, told.is_known) = (vec![MADE_UP], false);
                }
                denied => told.denial = Some(denied.words()),
            }
            return told;
        }
        let to = as_answered.to(&decision);
        let (query, inner) = (as_answered.asked(), &as_answered.question);
        let who_asks = || block.local.who_asks(&query, inner).filter(|_| to.is_none()).map(|bytes| (bytes, "whoami"));
        let of_local = block.local.answer(&query, inner).map(|answer| {
            if is_redirected {
                // Nobody here is asked.
            } else if answer.whose == "kubernetes" && !block.local.knows_cluster() {
                (told.notes, told.is_known) = (vec!["the objects of the cluster are not known here"], false);
            } else if answer.alias.is_some() {
                (told.notes, told.is_known) = (vec![ALIAS], false);
            }
            (answer.message, answer.whose)
        });
        let of_local = of_local.or_else(who_asks).filter(|_| !is_redirected);
        let put_back = |(bytes, whose)| match &altered {
            Some(altered) => exchange.put_back(altered, bytes).map(|bytes| (bytes, whose)),
            None => Some((bytes, whose)),
        };
        let of_local = of_local.and_then(put_back);
        let way = match (&of_local, to) {
            (Some((_, whose)), _) => Way::Local(whose),
            (None, Some(To::Server(server))) => Way::Server(server),
            (None, Some(To::Route(_))) => Way::Forward,
            (None, None) => Way::Nobody,
        };
        told.way = Some(way);
        if way == Way::Nobody {
            told.denial = Some("REFUSED");
            return told;
        }
        let mut lists = block.lists.iter().filter(|list| list.point == Point::Response);
        told.has_response_rules = lists.any(|list| list.is_for(&question.name));
        // What the block itself says is known; what others will say is not.
        let of_block = of_local.as_ref().map(|(bytes, _)| &bytes[..]).filter(|_| told.is_known);
        let dns64 = block.dns64.as_ref().filter(|dns64| dns64::is_for(dns64, asked.client.ip(), question));
        let answer = answer.or(of_block);
        if dns64.is_some() && answer.is_none_or(|answer| exchange.wants_dns64(answer)) {
            told.notes.push(MADE_UP);
            told.is_known &= answer.is_none();
            return told;
        }
        let Some(answer) = answer else { return told };
        told.is_known = true;
        if verdict.is_none() && told.take_policy(&exchange, answer) {
            return told;
        }
        told.judge(&exchange, message, answer);
        told
    }
}

fn walk(lists: &[List], point: Point, message: &mut Message<'_>) -> Option<(Walked, Decision)> {
    let mut told = Vec::new();
    let heard = RefCell::default();
    let mut walk = Walk { waiting: Waiting::Allowed, heard: &heard, trace: Some(&mut told) };
    let mut decision = walk.decide(lists, point, message).ok()?;
    if point == Point::Response {
        refuse_redirect(&mut decision);
    }
    Some((Walked { lists: told, outcome: decision.outcome.clone() }, decision))
}

impl Explanation {
    /// Tells what a policy zone says of an answer. True if the client gets something else by it.
    fn take_policy(&mut self, exchange: &Exchange, answer: &[u8]) -> bool {
        let Ok(message) = Message::new(exchange).with_answer(answer) else { return false };
        let Some(verdict) = exchange.policy_of_answer(answer, message.addresses()) else { return false };
        self.policy_of_answer = Some(exchange.policy_words(&verdict));
        match exchange.apply(&verdict) {
            None => return false,
            Some(Applied::Deny(denied)) => self.denial = Some(denied.words()),
            Some(Applied::Answer(_)) => {}
            Some(Applied::Alias(..)) => (self.notes, self.is_known) = (vec![ALIAS], false),
        }
        true
    }

    /// Asks the response rules about an answer.
    fn judge<'a>(&mut self, exchange: &'a Exchange, message: Message<'a>, answer: &'a [u8]) {
        let Ok(mut message) = message.with_answer(answer) else {
            self.denial = Some("SERVFAIL");
            return;
        };
        if let Some((walked, decision)) = walk(&exchange.block().lists, Point::Response, &mut message) {
            self.response = Some(walked);
            self.denial = denial_words(&decision);
        }
    }

    /// Whether the client gets an answer, as far as that can be told.
    pub fn passes(&self) -> bool {
        self.denial.is_none()
    }

    /// What the client gets.
    pub fn client_gets(&self) -> &'static str {
        match (self.denial, &self.response) {
            (Some(denial), _) => denial,
            (None, _) if !self.is_known => "an answer that is not known here",
            (None, None) if self.has_response_rules => "the answer, if response rules let it pass",
            (None, _) => "the answer",
        }
    }

    /// A line a step.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![match &self.block {
            Some(zone) => format!("{}: server block for {zone}", self.question),
            None => format!("{}: no server block is for it", self.question),
        }];
        lines.extend(self.query.iter().flat_map(|walked| &walked.lists).flat_map(ListTold::lines));
        lines.extend(self.changes.iter().cloned());
        lines.extend(self.way.map(|way| way.to_string()));
        lines.extend(self.notes.iter().map(ToString::to_string));
        lines.extend(self.policy_of_answer.iter().cloned());
        lines.extend(self.response.iter().flat_map(|walked| &walked.lists).flat_map(ListTold::lines));
        lines.push(format!("the client gets {}", self.client_gets()));
        lines
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(whose) => write!(f, "{whose} answers it"),
            Self::Forward => f.write_str("it is forwarded"),
            Self::Server(server) => write!(f, "it is asked of {server}"),
            Self::Nobody => f.write_str("nobody is there to answer it"),
        }
    }
}

impl ListTold {
    pub(crate) fn new(list: &List, address: Option<IpAddr>) -> Self {
        Self {
            text: list.text.clone(),
            place: list.place.clone(),
            address,
            rules: Vec::new(),
            count: list.rules.len(),
            end: End::Default(list.at_end),
            default_text: list.default_text.clone(),
        }
    }

    /// What ended it, in words.
    pub fn ending(&self) -> String {
        let left = match self.count.saturating_sub(self.rules.len()) {
            0 => String::new(),
            1 => "; 1 rule was not asked".to_owned(),
            left => format!("; {left} rules were not asked"),
        };
        match (&self.end, &self.default_text) {
            (End::Rule(outcome), _) => format!("it ends there: {outcome}{left}"),
            (End::Default(outcome), Some(Text { text, place })) => format!("{place}: {text} → {outcome}"),
            (End::Default(outcome), None) => format!("no rule says anything, and no default: {outcome}"),
            (End::PassesThrough(zone), _) => format!("names of {zone} pass through{left}"),
            (End::Failed(_), _) => format!("it ends there: SERVFAIL{left}"),
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let address = self.address.map_or_else(String::new, |address| format!(", for {address}"));
        let mut lines = vec![format!("{}: {}{address}", self.place, self.text)];
        for rule in &self.rules {
            lines.extend(rule.lines().into_iter().map(|line| format!("  {line}")));
        }
        lines.push(format!("  {}", self.ending()));
        lines
    }
}

impl RuleTold {
    pub(crate) fn new(rule: &Rule, message: &Message<'_>, judgement: &Result<Judgement, String>) -> Self {
        let facts = match &rule.judge {
            Judge::Expression(expression, _) => expression.shown(message),
            Judge::Engine(..) => Vec::new(),
        };
        let (said, trace, labels) = match judgement {
            Ok(Judgement { outcome, trace, labels }) => (Ok(said(rule, *outcome)), trace.clone(), labels.clone()),
            Err(error) => (Err(error.clone()), Vec::new(), Vec::new()),
        };
        Self { text: rule.text.clone(), place: rule.place.clone(), said, facts, trace, labels }
    }

    fn lines(&self) -> Vec<String> {
        let facts: Vec<String> = self.facts.iter().map(|(fact, value)| format!("{fact} = {value:?}")).collect();
        let facts = if facts.is_empty() { String::new() } else { format!("  ({})", facts.join(", ")) };
        let said = match &self.said {
            Ok(said) => said.as_deref().unwrap_or("no").to_owned(),
            Err(error) => format!("failed: {error}"),
        };
        let mut lines = vec![format!("{}: {} → {said}{facts}", self.place, self.text)];
        lines.extend(self.trace.iter().map(|line| format!("    {line}")));
        lines.extend(self.labels.iter().map(|(name, value)| format!("    {name} = {value}")));
        lines
    }
}

/// What a rule said, as the file has it.
fn said(rule: &Rule, outcome: Outcome) -> Option<String> {
    match (outcome, &rule.action) {
        (Outcome::Undefined, _) => None,
        (Outcome::Redirect(_), _) | (_, None) => Some(outcome.to_string()),
        (_, Some(action)) => Some(action.to_string()),
    }
}
