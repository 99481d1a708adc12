//! What an exchange does with its question: the query rules, then an answer of the block's own, or an upstream.

use crate::acl::{self, Denied};
use crate::answer::Checked;
use crate::exchange::Exchange;
use crate::explain::ListTold;
use crate::forward;
use crate::lane::MustWait;
use crate::loadbalance;
use crate::lookup::{Pending, Prepared};
use crate::loops::Sighting;
use crate::message::{Message, is_under};
use crate::reply;
use crate::report::{Report, Ruling, Source};
use crate::rpz::Applied;
use crate::rules::{Decision, Waiting, Walk};
use crate::shape::Client;
use namewall_corefile::{Point, Zone};
use namewall_dns::wire::{HEADER, Question, Rcode, RecordType, reply as plain};
use namewall_dns::{Step, To};
use namewall_expression::Outcome;
use std::net::SocketAddr;

/// What becomes of a question, as [`Step`] without the exchange itself.
enum Next {
    Forward(To),
    Reply(Vec<u8>),
    Answer(Vec<u8>),
    Renew(Vec<u8>, To),
    /// Others are asked before there is an answer of our own.
    LookUp(Pending),
    Silence,
}

/// What an answer of our own is, if others do not have to be asked first.
enum Own {
    Answer(Vec<u8>, Source),
    Pending(Pending),
    /// `acl` does not let the question pass, or rules the target of an alias.
    Denied(Denied),
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
            Next::LookUp(pending) => Step::Later(Box::new(move || {
                let mut exchange = self;
                exchange.prepared = Some(exchange.look_up(&pending));
                exchange.decide()
            })),
            Next::Silence => Step::Silence,
        }
    }

    /// Nothing is reported before it is known that nobody has to be waited for: the walk may have to begin again.
    fn next_step(&mut self) -> Result<Next, MustWait> {
        if let Some(why) = &self.unjudged {
            let failure = self.own(plain::failure(self.query(), Rcode::SERV_FAIL));
            let report = self.report();
            report.tell_error(why);
            report.tell_asked();
            Report { reply: Some(&failure), ..report }.tell_ended();
            return Ok(Next::Reply(failure));
        }
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
        let to = match decision.outcome {
            Ok(Outcome::Allow) => None,
            Ok(Outcome::Redirect(server)) => Some(server),
            _ => return Ok(self.deny(&decision)),
        };
        let is_redirected = to.is_some();
        let own = match (self.take_policy(), to) {
            (Some(own), _) => Some(own),
            (None, None) => self.local(),
            (None, Some(server)) => self.looked_up().or_else(|| self.before_others(Some(server))),
        };
        if let Some(own) = own {
            let (answer, source) = match own {
                Own::Answer(answer, source) => (answer, source),
                Own::Pending(pending) => return Ok(Next::LookUp(pending)),
                Own::Denied(denied) => {
                    if let Some(Prepared::Denied(_, Some(ruling))) = &self.prepared {
                        self.ruling = Some(ruling.clone());
                    }
                    return Ok(self.deny_as(denied, &decision));
                }
            };
            self.source = source;
            let checked = self.check(&answer)?;
            if let Checked::Alias(pending, ruling) = checked {
                self.ruled = Some(ruling);
                return Ok(Next::LookUp(pending));
            }
            self.report().tell_decision(&decision);
            return Ok(match checked {
                Checked::Passes | Checked::Alias(..) => self.given(answer),
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

    /// `acl` does not let the question pass, or rules the target of an alias.
    fn deny_as(&self, denied: Denied, decision: &Decision) -> Next {
        let report = self.report();
        report.tell_decision(decision);
        report.tell_asked();
        let reply = match denied {
            Denied::Reply(reply) => Some(self.own(reply)),
            Denied::Silence => None,
        };
        Report { reply: reply.as_deref(), ..report }.tell_ended();
        reply.map_or(Next::Silence, Next::Reply)
    }

    /// What policy zones say of a question that the query rules let pass. None if it goes on.
    fn take_policy(&mut self) -> Option<Own> {
        if self.prepared.is_some() {
            // They were asked before others were.
            self.ruling = self.ruled.clone().or_else(|| self.ruling.take());
            return None;
        }
        self.ruled = None;
        let verdict = self.policy_of_question()?;
        let ruling = self.ruling_of(&verdict, Point::Query);
        self.ruling.clone_from(&ruling);
        let applied = self.apply(&verdict);
        if !matches!(applied, Some(Applied::Deny(_))) {
            self.ruled = ruling;
        }
        Some(match applied? {
            Applied::Deny(denied) => Own::Denied(denied),
            Applied::Answer(answer) => Own::Answer(self.dressed(self.own(answer)), Source::Own),
            Applied::Alias(so_far, alias) => Own::Pending(Pending::Alias { so_far, alias }),
        })
    }

    /// What has come of a look-up, if there was one.
    fn looked_up(&self) -> Option<Own> {
        Some(match self.prepared.clone()? {
            Prepared::Answer(answer) => Own::Answer(self.dressed(self.own(answer)), Source::Own),
            Prepared::Denied(denied, _) => Own::Denied(denied),
        })
    }

    /// `rewrite` and `acl`. None if the question is answered as it is; a rule may redirect it to a server.
    fn before_others(&self, server: Option<SocketAddr>) -> Option<Own> {
        let own = |answer: Vec<u8>| Own::Answer(self.dressed(self.own(answer)), Source::Own);
        let altered = match self.altered() {
            Some(Err(())) => return Some(own(plain::failure(self.query(), Rcode::SERV_FAIL))),
            Some(Ok(altered)) => Some(altered),
            None => None,
        };
        let action = match &altered {
            Some(altered) => self.denied_as(altered),
            None => acl::denied(&self.block().acls, self.client.ip(), &self.question),
        };
        if let Some(action) = action {
            return Some(match acl::denial(action, self.query()) {
                // `dns64` stands before `acl`.
                Denied::Reply(reply) if self.wants_dns64(&reply) => Own::Pending(Pending::All(server)),
                denied => Own::Denied(denied),
            });
        }
        let known = self.known_as(&altered?).filter(|_| server.is_none());
        Some(known.map_or(Own::Pending(Pending::All(server)), own))
    }

    /// An answer for which no upstream is asked. In the order of CoreDNS: answers that are the same everywhere, `rewrite`,
    /// `acl`, and then the others.
    fn local(&self) -> Option<Own> {
        let (block, asked, question) = (self.block(), self.asked(), &self.question);
        if let Some(own) = self.looked_up() {
            return Some(own);
        }
        if let Some((answer, whose)) = block.local.fixed.answer(asked.query, question) {
            let answer = self.own(answer);
            let client = Client { query: self.query(), over_tcp: self.over_tcp() };
            let answer = block.shape.of_fixed(client, &answer).unwrap_or(answer);
            return Some(Own::Answer(answer, Source::Directive(whose)));
        }
        if let Some(own) = self.before_others(None) {
            return Some(own);
        }
        let answer = if let Some(answer) = block.local.answer(&asked, question) {
            match answer.alias {
                Some(alias) => return Some(Own::Pending(Pending::Alias { so_far: answer.message, alias })),
                None => (self.own(answer.message), Source::Directive(answer.whose)),
            }
        } else if let Some(answer) = block.cache.as_ref().and_then(|cache| cache.get(self.cache_query(), self.begun)) {
            (answer, Source::Cache)
        } else {
            // `whoami` answers only what is not forwarded.
            let is_forwarded = forward::first(&block.forwards, &question.name).is_some();
            let answer = if is_forwarded { None } else { block.local.who_asks(&asked, question) };
            (self.own(answer?), Source::Directive("whoami"))
        };
        if self.wants_dns64(&answer.0) {
            return Some(Own::Pending(Pending::Dns64(answer.0)));
        }
        Some(Own::Answer(self.dressed(answer.0), answer.1))
    }

    /// An answer as the client gets it: addresses change places, and directives have changed it.
    pub(crate) fn dressed(&self, mut answer: Vec<u8>) -> Vec<u8> {
        let block = self.block();
        if block.balances {
            loadbalance::shuffle(&mut answer);
        }
        let client = Client { query: self.query(), over_tcp: self.over_tcp() };
        block.shape.of(client, &answer).unwrap_or(answer)
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
