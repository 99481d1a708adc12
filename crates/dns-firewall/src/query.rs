//! What an exchange does with its question: the query rules, then an answer of the block's own, or an upstream.

use crate::answer::Checked;
use crate::exchange::Exchange;
use crate::explain::ListTold;
use crate::forward;
use crate::lane::MustWait;
use crate::loadbalance;
use crate::loops::Sighting;
use crate::message::{Message, is_under};
use crate::reply;
use crate::report::{Report, Ruling, Source};
use crate::rules::{Decision, Waiting, Walk};
use namewall_corefile::{Point, Zone};
use namewall_dns::wire::{HEADER, Question, Rcode, RecordType, reply as plain};
use namewall_dns::{Step, To};
use namewall_expression::Outcome;

/// What becomes of a question, as [`Step`] without the exchange itself.
enum Next {
    Forward(To),
    Reply(Vec<u8>),
    Answer(Vec<u8>),
    Renew(Vec<u8>, To),
    Silence,
}

impl Exchange {
    /// Decides what becomes of the question, on a thread of an engine if it must be waited for.
    pub(crate) fn decide(mut self: Box<Self>) -> Step {
        match self.next_step() {
            Ok(next) => self.step(next),
            Err(MustWait { slot, ask }) => Step::LaterOn(
                slot,
                Box::new(move || {
                    self.heard.borrow_mut().push(ask());
                    self.decide()
                }),
            ),
        }
    }

    fn step(self: Box<Self>, next: Next) -> Step {
        match next {
            Next::Forward(to) => Step::Forward(to, self),
            Next::Reply(reply) => Step::Reply(reply),
            Next::Answer(answer) => Step::Answer(answer),
            Next::Renew(answer, to) => Step::Renew(answer, to, self),
            Next::Silence => Step::Silence,
        }
    }

    /// Nothing is reported before it is known that nobody has to be waited for: the walk may have to begin again.
    fn next_step(&mut self) -> Result<Next, MustWait> {
        if let Some(lines) = self.debugged()? {
            return Ok(Next::Reply(self.own(reply::texts(self.query(), &lines))));
        }
        let sighting = self.loop_guard().map_or(Sighting::Ordinary, |guard| guard.look(&self.question, self.server));
        if sighting == Sighting::Probe {
            return Ok(self.forward_probe());
        }
        let mut message = Message::new(self);
        let mut walk = Walk { waiting: Waiting::Forbidden, heard: &self.heard, trace: None };
        let decision = walk.decide(&self.block().lists, Point::Query, &mut message)?;
        let labels = message.labels;
        (self.labels, self.ruling, self.source) = (labels, Ruling::of(&decision, Point::Query), Source::Own);
        let is_redirected = match decision.outcome {
            Ok(Outcome::Allow) => false,
            Ok(Outcome::Redirect(_)) => true,
            _ => return Ok(self.deny(&decision)),
        };
        if !is_redirected && let Some((answer, source)) = self.local() {
            self.source = source;
            let checked = self.check(&answer)?;
            self.report().tell_decision(&decision);
            return Ok(match checked {
                Checked::Passes => self.given(answer),
                Checked::Denied(denial) => denial.map_or(Next::Silence, Next::Reply),
            });
        }
        let report = self.report();
        report.tell_decision(&decision);
        report.tell_asked();
        let Some(to) = self.to(&decision) else {
            let refusal = self.own(plain::failure(self.query(), Rcode::REFUSED));
            Report { reply: Some(&refusal), ..report }.tell_ended();
            return Ok(Next::Reply(refusal));
        };
        if sighting == Sighting::Loop && !is_redirected {
            let failure = plain::failure(self.query(), Rcode::SERV_FAIL);
            report.tell_error("what is forwarded comes back");
            Report { reply: Some(&failure), ..report }.tell_ended();
            return Ok(Next::Reply(failure));
        }
        if let (Some(meters), Some(cache)) = (&self.block().observers.meters, &self.block().cache)
            && cache.is_for(&self.question.name)
        {
            meters.missed(&report);
        }
        self.source = if is_redirected { Source::Redirected } else { Source::Upstream };
        Ok(Next::Forward(to))
    }

    /// The probe of our own for loops: it is forwarded, past rules and cache.
    fn forward_probe(&self) -> Next {
        match forward::first(&self.block().forwards, &self.question.name) {
            Some(at) => Next::Forward(To::Route(self.block().forwards[at].route)),
            None => Next::Reply(self.own(plain::failure(self.query(), Rcode::REFUSED))),
        }
    }

    /// The query rules do not let the question pass.
    fn deny(&self, decision: &Decision) -> Next {
        let report = self.report();
        report.tell_decision(decision);
        report.tell_asked();
        let denial = reply::denied(self, decision).map(|denial| self.own(denial));
        Report { reply: denial.as_deref(), ..report }.tell_ended();
        denial.map_or(Next::Silence, Next::Reply)
    }

    /// An answer for which no upstream is asked.
    fn local(&self) -> Option<(Vec<u8>, Source)> {
        let (block, asked, question) = (self.block(), self.asked(), &self.question);
        let balanced = |mut answer: Vec<u8>| {
            if block.balances {
                loadbalance::shuffle(&mut answer);
            }
            answer
        };
        if let Some((answer, _)) = block.local.answer(&asked, question) {
            return Some((self.own(balanced(answer)), Source::Own));
        }
        if let Some(answer) = block.cache.as_ref().and_then(|cache| cache.get(self.cache_query(), self.begun)) {
            return Some((balanced(answer), Source::Cache));
        }
        // `whoami` answers only what is not forwarded.
        let is_forwarded = forward::first(&block.forwards, &question.name).is_some();
        let answer = if is_forwarded { None } else { block.local.who_asks(&asked, question) };
        answer.map(|answer| (self.own(answer), Source::Own))
    }

    /// Gives an answer of our own that passes. If it is from the cache and about to expire, it is asked for again.
    fn given(&self, answer: Vec<u8>) -> Next {
        let block = self.block();
        let cache = block.cache.as_ref().filter(|_| self.source == Source::Cache);
        let is_due = cache.is_some_and(|cache| cache.use_once(self.cache_query(), self.begun));
        match forward::first(&block.forwards, &self.question.name) {
            Some(at) if is_due => Next::Renew(answer, To::Route(block.forwards[at].route)),
            _ => Next::Answer(answer),
        }
    }

    /// Who is asked for the answer, if anybody is.
    pub(crate) fn to(&self, decision: &Decision) -> Option<To> {
        if let Ok(Outcome::Redirect(server)) = decision.outcome {
            return Some(To::Server(server));
        }
        let forwards = &self.block().forwards;
        let at = forward::first(forwards, &self.question.name)?;
        Some(To::Route(forwards[at].route))
    }

    /// The reply to a question under a debug suffix: how the query rules judge the rest of its name.
    fn debugged(&self) -> Result<Option<Vec<String>>, MustWait> {
        const CHAOS: u16 = 3;
        const TXT: RecordType = RecordType(16);
        let question = &self.question;
        if question.class != CHAOS || question.record_type != TXT {
            return Ok(None);
        }
        let mut suffixes = self.block().debug_suffixes.iter();
        let Some(suffix) = suffixes.find(|one| is_under(&question.name, &Zone::Name((*one).clone()))) else {
            return Ok(None);
        };
        let labels: Vec<&[u8]> = question.name.labels().collect();
        let rest = &labels[..labels.len() - suffix.labels().count()];
        let Ok(inner) = self.about(a_question_for(rest, self.query())) else { return Ok(None) };
        let mut told = Vec::new();
        let mut walk = Walk { waiting: Waiting::Forbidden, heard: &self.heard, trace: Some(&mut told) };
        let decision = walk.decide(&self.block().lists, Point::Query, &mut Message::new(&inner))?;
        let result = match &decision.outcome {
            Ok(outcome) => outcome.to_string(),
            Err(error) => format!("error: {error}"),
        };
        let place = decision.place.map_or_else(String::new, |place| format!(" by {place}"));
        let mut lines = vec![format!("{}: {result}{place}", inner.name())];
        lines.extend(told.iter().flat_map(ListTold::lines));
        Ok(Some(lines))
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
