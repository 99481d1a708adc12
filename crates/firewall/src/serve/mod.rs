//! A Corefile at work: what its server blocks make of questions and answers.
//!
//! ```text
//! question ─► block by zone and port ─► query rules ─► hosts ─► cache ─► forward ─► upstream
//!                                            │           └────────┴──────────────┬──────┘
//!                                            └─► reply                  response rules ─► client
//! ```

mod build;
mod cache;
mod engines;
mod hosts;
mod log;
mod message;
mod reply;
mod rules;
mod tell;
mod unserved;

pub use build::{BuildError, Built, Surroundings, build, build_with};
pub use message::{Identities, Strangers};
pub use tell::Teller;

use crate::Outcome;
use crate::corefile::{Edns0, Point, Zone};
use cache::Cache;
use hosts::Hosts;
use log::Log;
use message::{Kept, Message, is_under, text_of};
use namewall_dns::wire::{HEADER, Question, Rcode, RecordType, reply as plain};
use namewall_dns::{Asked, Chain, Notes, Passing, Step, To};
use namewall_policy::domain::DomainName;
use rules::{Decision, List, MustWait, Waiting, Walk};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// What serves a Corefile. It is a [`Chain`] for the DNS server.
#[derive(Clone, Debug)]
pub struct Service(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    blocks: Vec<Block>,
    teller: Arc<Teller>,
    identities: Arc<dyn Identities>,
}

/// A server block.
#[derive(Debug)]
struct Block {
    keys: Vec<(Zone, u16)>,
    /// The addresses it is served at; all, if there are none.
    addresses: Vec<IpAddr>,
    fields: Vec<Edns0>,
    lists: Vec<List>,
    debug_suffixes: Vec<DomainName>,
    hosts: Option<Hosts>,
    cache: Option<Cache>,
    forwards: Vec<Forwarding>,
    logs: Vec<Log>,
}

/// Names that are asked of a route.
#[derive(Debug)]
struct Forwarding {
    from: Vec<Zone>,
    except: Vec<Zone>,
    route: usize,
}

/// What is remembered of a question until its answer comes.
struct Carried {
    labels: Vec<(String, String)>,
    begun: Instant,
    /// Somebody else is asked than others are: what they say is for this client alone.
    is_redirected: bool,
}

impl Chain for Service {
    fn query(&self, asked: &Asked<'_>) -> Step {
        let begun = Instant::now();
        match self.0.step(asked, (Waiting::Forbidden, begun)) {
            Ok(step) => step,
            Err(MustWait) => {
                let (inside, kept) = (self.0.clone(), Kept::new(asked, None));
                Step::Later(Box::new(move || {
                    inside.step(&kept.asked(), (Waiting::Allowed, begun)).unwrap_or(Step::Silence)
                }))
            }
        }
    }

    fn answer(&self, asked: &Asked<'_>, answer: &[u8], notes: Option<Notes>) -> Passing {
        let carried = notes.and_then(|notes| notes.downcast::<Carried>().ok());
        if !carried.as_ref().is_some_and(|one| one.is_redirected) {
            self.0.keep(asked, answer);
        }
        let (labels, begun) = carried.map_or_else(|| (Vec::new(), None), |one| (one.labels, Some(one.begun)));
        match self.0.passing((asked, answer), (&labels, begun), Waiting::Forbidden) {
            Ok(passing) => passing,
            Err(MustWait) => {
                let (inside, kept) = (self.0.clone(), Kept::new(asked, Some(answer)));
                Passing::Later(Box::new(move || {
                    let answer = kept.answer().unwrap_or_default();
                    let passing = inside.passing((&kept.asked(), answer), (&labels, begun), Waiting::Allowed);
                    passing.unwrap_or(Passing::Silence)
                }))
            }
        }
    }
}

impl Service {
    /// The walk of a question, without asking anybody but engines: a line each step; and whether it passes.
    pub fn explain(&self, asked: &Asked<'_>) -> (Vec<String>, bool) {
        let mut trace = Vec::new();
        let passes = self.0.explain(asked, &mut trace).is_some();
        (trace, passes)
    }
}

impl Inside {
    /// The block that is for a question: of those whose zones have its name, the one with the longest.
    fn block(&self, asked: &Asked<'_>, question: &Question) -> Option<(&Block, &Zone)> {
        let (port, address) = (asked.server.port(), asked.server.ip());
        let here = self.blocks.iter().filter(|one| one.addresses.is_empty() || one.addresses.contains(&address));
        let keys = here.flat_map(|block| block.keys.iter().map(move |(zone, at)| (block, zone, *at)));
        let fitting = keys.filter(|(_, zone, at)| *at == port && is_under(&question.name, zone));
        fitting.max_by_key(|(_, zone, _)| zone.depth()).map(|(block, zone, _)| (block, zone))
    }

    fn step(&self, asked: &Asked<'_>, (waiting, begun): (Waiting, Instant)) -> Result<Step, MustWait> {
        let failure = |rcode| Step::Reply(plain::failure(asked.query, rcode));
        let Ok(question) = Question::of_query(asked.query) else { return Ok(failure(Rcode::FORM_ERR)) };
        let Some((block, zone)) = self.block(asked, &question) else { return Ok(failure(Rcode::REFUSED)) };
        let Ok(mut message) = Message::new(*asked, &block.fields, &*self.identities) else {
            return Ok(failure(Rcode::FORM_ERR));
        };
        if let Some(lines) = self.debugged(block, asked, waiting)? {
            return Ok(Step::Reply(reply::texts(asked.query, &lines)));
        }
        let decision = Walk { waiting, trace: None }.decide(&block.lists, Point::Query, &mut message)?;
        let Ok(Outcome::Allow | Outcome::Redirect(_)) = decision.outcome else {
            self.tell(&decision);
            return Ok(match reply::denied(&message, &decision, zone) {
                Some(denial) => {
                    self.log(block, (message, begun), &denial);
                    Step::Reply(denial)
                }
                None => Step::Silence,
            });
        };
        let is_redirected = matches!(decision.outcome, Ok(Outcome::Redirect(_)));
        let local = block.hosts.as_ref().and_then(|hosts| hosts.answer(asked.query, &question));
        let local = local.or_else(|| block.cache.as_ref()?.get(asked.query, &question, begun));
        if let Some(answer) = local.filter(|_| !is_redirected) {
            let passing = self.passing((asked, &answer), (&message.labels, Some(begun)), waiting)?;
            self.tell(&decision);
            return Ok(match passing {
                Passing::Pass => Step::Answer(answer),
                Passing::Instead(denial) => Step::Reply(denial),
                Passing::Silence | Passing::Later(_) => Step::Silence,
            });
        }
        self.tell(&decision);
        let Some(to) = self.to(block, &question, &decision) else {
            let refusal = plain::failure(asked.query, Rcode::REFUSED);
            self.log(block, (message, begun), &refusal);
            return Ok(Step::Reply(refusal));
        };
        let carries = is_redirected || !message.labels.is_empty() || !block.logs.is_empty();
        let labels = std::mem::take(&mut message.labels);
        let notes = carries.then(|| Box::new(Carried { labels, begun, is_redirected }) as Notes);
        Ok(Step::Forward(to, notes))
    }

    fn to(&self, block: &Block, question: &Question, decision: &Decision) -> Option<To> {
        if let Ok(Outcome::Redirect(server)) = decision.outcome {
            return Some(To::Server(server));
        }
        let has = |zones: &[Zone]| zones.iter().filter(|zone| is_under(&question.name, zone)).map(Zone::depth).max();
        let fitting = block.forwards.iter().filter(|one| has(&one.except).is_none());
        let fitting = fitting.filter_map(|one| Some((has(&one.from)?, one)));
        // Of two as long the first.
        let longest = fitting.rev().max_by_key(|(depth, _)| *depth)?;
        Some(To::Route(longest.1.route))
    }

    fn explain(&self, asked: &Asked<'_>, trace: &mut Vec<String>) -> Option<()> {
        let question = Question::of_query(asked.query).ok()?;
        let Some((block, zone)) = self.block(asked, &question) else {
            trace.push(format!("no server block is for {} at {}: REFUSED", text_of(&question.name), asked.server));
            return None;
        };
        trace.push(format!("server block for {zone}"));
        let mut message = Message::new(*asked, &block.fields, &*self.identities).ok()?;
        let mut walk = Walk { waiting: Waiting::Allowed, trace: Some(trace) };
        let decision = walk.decide(&block.lists, Point::Query, &mut message).ok()?;
        trace.push(match &decision.outcome {
            Ok(outcome) => format!("result: {outcome}"),
            Err(error) => format!("result: SERVFAIL, {error}"),
        });
        let Ok(Outcome::Allow | Outcome::Redirect(_)) = decision.outcome else { return None };
        let is_redirected = matches!(decision.outcome, Ok(Outcome::Redirect(_)));
        let is_local = block.hosts.as_ref().is_some_and(|hosts| hosts.answer(asked.query, &question).is_some());
        let is_local = is_local && !is_redirected;
        let to = self.to(block, &question, &decision);
        trace.push(match (is_local, to) {
            (true, _) => "hosts answers it".to_owned(),
            (_, Some(To::Server(server))) => format!("it is asked of {server}"),
            (_, Some(To::Route(_))) => "it is forwarded".to_owned(),
            (_, None) => "nobody is there to answer it: REFUSED".to_owned(),
        });
        let is_answered = is_local || to.is_some();
        let mut lists = block.lists.iter().filter(|list| list.point == Point::Response);
        if is_answered && lists.any(|list| list.is_for(&question.name)) {
            trace.push("response rules are asked when the answer is there".to_owned());
        }
        is_answered.then_some(())
    }

    /// Remembers an upstream's answer.
    fn keep(&self, asked: &Asked<'_>, answer: &[u8]) {
        let Ok(question) = Question::of_query(asked.query) else { return };
        let cache = self.block(asked, &question).and_then(|(block, _)| block.cache.as_ref());
        if let Some(cache) = cache {
            cache.put((asked.query, &question), answer, Instant::now());
        }
    }

    fn passing(
        &self,
        (asked, answer): (&Asked<'_>, &[u8]),
        (labels, begun): (&[(String, String)], Option<Instant>),
        waiting: Waiting,
    ) -> Result<Passing, MustWait> {
        let broken = || Passing::Instead(plain::failure(asked.query, Rcode::SERV_FAIL));
        let Ok(question) = Question::of_query(asked.query) else { return Ok(broken()) };
        let Some((block, zone)) = self.block(asked, &question) else { return Ok(broken()) };
        let has_rules = block.lists.iter().any(|list| list.point == Point::Response);
        if !has_rules && block.logs.is_empty() {
            return Ok(Passing::Pass);
        }
        let Ok(message) = Message::new(*asked, &block.fields, &*self.identities) else { return Ok(broken()) };
        let Ok(mut message) = message.with_answer(answer) else {
            // What cannot be read cannot be judged.
            return Ok(if has_rules { broken() } else { Passing::Pass });
        };
        message.labels = labels.to_vec();
        let mut decision = Walk { waiting, trace: None }.decide(&block.lists, Point::Response, &mut message)?;
        if let Ok(Outcome::Redirect(to)) = decision.outcome {
            let error = format!("an answer cannot be redirected to {to}");
            decision.log.extend(decision.place.iter().map(|place| format!("{place}: {error}")));
            decision.outcome = Err(error);
        }
        self.tell(&decision);
        let begun = begun.unwrap_or_else(Instant::now);
        if decision.outcome == Ok(Outcome::Allow) {
            self.log(block, (message, begun), answer);
            return Ok(Passing::Pass);
        }
        Ok(match reply::denied(&message, &decision, zone) {
            Some(denial) => {
                self.log(block, (message, begun), &denial);
                Passing::Instead(denial)
            }
            None => Passing::Silence,
        })
    }

    /// What a question under a debug suffix is told: how the rest of its name is judged.
    fn debugged(&self, block: &Block, asked: &Asked<'_>, waiting: Waiting) -> Result<Option<Vec<String>>, MustWait> {
        const CHAOS: u16 = 3;
        const TXT: RecordType = RecordType(16);
        let Ok(question) = Question::of_query(asked.query) else { return Ok(None) };
        let suffix = block.debug_suffixes.iter().find(|one| is_under(&question.name, &Zone::Name((*one).clone())));
        let Some(suffix) = suffix.filter(|_| question.class == CHAOS && question.record_type == TXT) else {
            return Ok(None);
        };
        let labels: Vec<&[u8]> = question.name.labels().collect();
        let rest = &labels[..labels.len() - suffix.labels().count()];
        let inner = a_question_for(rest, asked.query);
        let inner = Asked { query: &inner, ..*asked };
        let Ok(mut message) = Message::new(inner, &block.fields, &*self.identities) else { return Ok(None) };
        let mut trace = Vec::new();
        let mut walk = Walk { waiting, trace: Some(&mut trace) };
        let decision = walk.decide(&block.lists, Point::Query, &mut message)?;
        let result = match &decision.outcome {
            Ok(outcome) => outcome.to_string(),
            Err(error) => format!("error: {error}"),
        };
        let place = decision.place.map_or_else(String::new, |place| format!(" by {place}"));
        trace.insert(0, format!("{}: {result}{place}", message.name));
        Ok(Some(trace))
    }

    /// Errors are among it, whether `errors` is there or not (S9.4).
    fn tell(&self, decision: &Decision) {
        decision.log.iter().for_each(|line| self.teller.tell(line.clone()));
    }

    fn log(&self, block: &Block, (message, begun): (Message<'_>, Instant), answer: &[u8]) {
        if block.logs.is_empty() {
            return;
        }
        let Ok(message) = message.with_own(answer) else { return };
        let lines = block.logs.iter().filter_map(|log| log.line(&message, begun.elapsed()));
        lines.for_each(|line| self.teller.tell(line));
    }
}

/// A question for the addresses of a name, with what follows the question of another: its EDNS0.
fn a_question_for(labels: &[&[u8]], like: &[u8]) -> Vec<u8> {
    let mut query = vec![0, 0, 1, 0, 0, 1];
    query.extend(like.get(6..HEADER).unwrap_or(&[0; 6]));
    for label in labels {
        query.push(label.len() as u8);
        query.extend(*label);
    }
    query.extend([0, 0, 1, 0, 1]);
    query.extend(Question::end(like).ok().and_then(|end| like.get(end..)).unwrap_or_default());
    query
}
