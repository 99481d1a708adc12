//! What an exchange does with an answer: another upstream may be asked, the cache keeps it, and the response rules
//! decide whether the client gets it.

use crate::acl::Denied;
use crate::exchange::Exchange;
use crate::forward;
use crate::lane::MustWait;
use crate::lookup::{Pending, Prepared};
use crate::message::Message;
use crate::names::{LookedUp, Names};
use crate::reply;
use crate::report::{Report, Ruling, Source};
use crate::rpz::Applied;
use crate::rules::{Decision, Waiting, Walk};
use namewall_corefile::Point;
use namewall_dns::wire::{Header, Rcode, reply as plain};
use namewall_dns::{Continuation, Failure, Heard, Passing, To};
use namewall_expression::Outcome;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// What the response rules say of an answer.
pub(crate) enum Checked {
    Passes,
    /// The client gets this instead; none is silence.
    Denied(Option<Vec<u8>>),
    /// A policy zone gives an alias instead, whose target is to be looked up. Nothing is reported yet.
    Alias(Pending, Ruling),
}

impl Checked {
    /// For an answer that is passed on as it is.
    fn passing(self) -> Passing {
        match self {
            Self::Passes | Self::Alias(..) => Passing::Pass,
            Self::Denied(denial) => denial.map_or(Passing::Silence, Passing::Instead),
        }
    }

    /// For an answer from the cache in place of the upstream's.
    fn passing_with(self, answer: Vec<u8>) -> Passing {
        match self {
            Self::Passes | Self::Alias(..) => Passing::Answer(answer),
            Self::Denied(denial) => denial.map_or(Passing::Silence, Passing::Instead),
        }
    }
}

/// What becomes of an answer that has been judged later.
type ThenPass = fn(&Exchange, Checked, Vec<u8>) -> Passing;

impl Continuation for Exchange {
    fn answer(mut self: Box<Self>, heard: &Heard<'_>) -> Passing {
        self.tell_heard(heard);
        let answer = heard.answer;
        let mut changed = None;
        if self.source != Source::Redirected {
            if let Some(to) = self.next_forward(answer) {
                return Passing::Forward(to, self);
            }
            if let Some(stale) = self.better(answer) {
                return self.give_stale(stale);
            }
            changed = self.keep(answer);
        }
        if self.wants_dns64(answer) {
            let kept = changed.unwrap_or_else(|| answer.to_vec());
            return Passing::Later(Box::new(move || {
                let made = self.dressed(self.with_dns64(kept));
                self.judge(&made, Some(made.clone()))
            }));
        }
        if self.block().balances || !self.block().shape.is_plain() {
            let given = self.dressed(changed.clone().unwrap_or_else(|| answer.to_vec()));
            changed = Some(given).filter(|given| given != answer);
        }
        self.judge(answer, changed)
    }

    fn failed(self: Box<Self>, failure: Failure<'_>) -> Passing {
        if self.source != Source::Redirected
            && failure != Failure::NotJudged
            && let Some(stale) = self.stale()
        {
            return self.give_stale(stale);
        }
        Passing::Instead(self.fail(failure))
    }

    fn renewed(mut self: Box<Self>, heard: &Heard<'_>) -> Option<(To, Box<dyn Continuation>)> {
        self.tell_heard(heard);
        match self.next_forward(heard.answer) {
            Some(to) => Some((to, self)),
            None => {
                self.keep(heard.answer);
                None
            }
        }
    }
}

impl Exchange {
    /// Asks the response rules about an upstream's answer, or about what has been made of it.
    fn judge(self: Box<Self>, answer: &[u8], changed: Option<Vec<u8>>) -> Passing {
        let given = changed.as_deref().unwrap_or(answer);
        match self.check(given) {
            Ok(Checked::Passes) => {
                let names = self.note(given);
                let passing = changed.map_or(Passing::Pass, Passing::Answer);
                match names {
                    Some(names) => Passing::Later(Box::new(move || {
                        names.finish();
                        passing
                    })),
                    None => passing,
                }
            }
            Ok(Checked::Alias(pending, ruling)) => self.follow_policy(pending, ruling),
            Ok(denied) => denied.passing(),
            Err(wait) => {
                let then: ThenPass = match changed {
                    Some(_) => |exchange, checked, answer| {
                        exchange.finish_notes(&checked, &answer);
                        checked.passing_with(answer)
                    },
                    None => |exchange, checked, answer| {
                        exchange.finish_notes(&checked, &answer);
                        checked.passing()
                    },
                };
                let answer = changed.unwrap_or_else(|| answer.to_vec());
                self.check_later(wait, answer, then)
            }
        }
    }

    /// Passes on what an answer says of a name, if it passes itself, and waits until that is done.
    fn finish_notes(&self, checked: &Checked, answer: &[u8]) {
        if let Checked::Passes = checked
            && let Some(names) = self.note(answer)
        {
            names.finish();
        }
    }

    /// Who is asked next, if an upstream's answer is not final.
    fn next_forward(&mut self, answer: &[u8]) -> Option<To> {
        let forwards = &self.block().forwards;
        let at = self.forward.or_else(|| forward::first(forwards, &self.question.name))?;
        let next = forward::next(forwards, at, Header::read(answer).ok()?.rcode, &self.question.name)?;
        let to = To::Route(forwards[next].route);
        self.forward = Some(next);
        Some(to)
    }

    /// An expired answer from the cache, where an upstream's answer says only that it has none.
    fn better(&self, answer: &[u8]) -> Option<Vec<u8>> {
        let is_none = !matches!(Header::read(answer).ok()?.rcode, Rcode::NO_ERROR | Rcode::NX_DOMAIN);
        if is_none { self.stale() } else { None }
    }

    /// An answer from the cache that has expired, and may still be given.
    fn stale(&self) -> Option<Vec<u8>> {
        self.block().cache.as_ref()?.stale(self.cache_query(), Instant::now())
    }

    /// Gives an expired answer, if the response rules let it pass.
    fn give_stale(self: Box<Self>, stale: Vec<u8>) -> Passing {
        let stale = self.dressed(stale);
        match self.check(&stale) {
            Ok(Checked::Alias(pending, ruling)) => self.follow_policy(pending, ruling),
            Ok(checked) => checked.passing_with(stale),
            Err(wait) => self.check_later(wait, stale, |_, checked, stale| checked.passing_with(stale)),
        }
    }

    /// Asks the response rules again once an engine has said what it says, on a thread of the engine.
    fn check_later(self: Box<Self>, wait: MustWait, answer: Vec<u8>, then: ThenPass) -> Passing {
        let MustWait { slot, ask } = wait;
        Passing::LaterOn(
            slot,
            Box::new(move || {
                self.heard.borrow_mut().push(ask());
                match self.check(&answer) {
                    Ok(Checked::Alias(pending, ruling)) => self.follow_policy(pending, ruling),
                    Ok(checked) => then(&self, checked, answer),
                    Err(wait) => self.check_later(wait, answer, then),
                }
            }),
        )
    }

    /// Looks the target of an alias up that a policy zone gives instead of an answer, on a thread that may wait.
    fn follow_policy(mut self: Box<Self>, pending: Pending, ruling: Ruling) -> Passing {
        self.ruled = Some(ruling);
        Passing::Later(Box::new(move || match self.look_up(&pending) {
            Prepared::Answer(answer) => {
                let made = self.dressed(self.own(answer));
                self.judge(&made, Some(made.clone()))
            }
            Prepared::Denied(denied, ruling) => {
                let reply = match denied {
                    Denied::Reply(reply) => Some(self.own(reply)),
                    Denied::Silence => None,
                };
                let report = Report { of_response: ruling.as_ref(), reply: reply.as_deref(), ..self.report() };
                report.tell_ended();
                reply.map_or(Passing::Silence, Passing::Instead)
            }
        }))
    }

    /// Passes on what an upstream's answer says of a name. Returns whom the answer has to wait for, if anybody.
    fn note(&self, answer: &[u8]) -> Option<Arc<dyn Names>> {
        let (directive, names) = self.block().names.as_ref()?;
        let looked_up = LookedUp::read(directive, &self.question, answer)?;
        names.note(&looked_up).then(|| names.clone())
    }

    /// Keeps an upstream's answer in the cache. Returns the answer with the TTLs that it has there, if they differ.
    fn keep(&self, answer: &[u8]) -> Option<Vec<u8>> {
        self.block().cache.as_ref()?.put(self.cache_query(), answer, Instant::now())
    }

    /// Asks the response rules whether the client gets an answer, and reports the end of the question.
    pub(crate) fn check(&self, answer: &[u8]) -> Result<Checked, MustWait> {
        let block = self.block();
        let of_policy = self.ruled.as_ref().filter(|ruling| ruling.point == Point::Response);
        let report = Report { of_response: of_policy, ..self.report() };
        let ended = |reply: Option<&[u8]>, end: &Report<'_>| {
            // Of an answer of our own nothing is reported yet: the walk may have had to begin again.
            if !matches!(self.source, Source::Upstream | Source::Redirected) {
                report.tell_asked();
            }
            Report { reply, ..*end }.tell_ended();
        };
        let has_rules = block.lists.iter().any(|list| list.point == Point::Response);
        let asks_policies = !block.policies.is_empty() && self.ruled.is_none();
        if !has_rules && !asks_policies {
            ended(Some(answer), &report);
            return Ok(Checked::Passes);
        }
        let Ok(mut message) = Message::new(self).with_answer(answer) else {
            // What cannot be read cannot be judged.
            let failure = plain::failure(self.query(), Rcode::SERV_FAIL);
            report.tell_error("the answer cannot be read");
            ended(Some(&failure), &report);
            return Ok(Checked::Denied(Some(failure)));
        };
        if let Some(verdict) = self.policy_of_answer(answer, message.addresses())
            && let Some(ruling) = self.ruling_of(&verdict, Point::Response)
            && let Some(applied) = self.apply(&verdict)
        {
            let end = Report { of_response: Some(&ruling), ..report };
            let reply = match applied {
                Applied::Alias(so_far, alias) => return Ok(Checked::Alias(Pending::Alias { so_far, alias }, ruling)),
                Applied::Answer(answer) => Some(answer),
                Applied::Deny(Denied::Reply(reply)) => Some(reply),
                Applied::Deny(Denied::Silence) => None,
            };
            let reply = reply.map(|reply| self.own(reply));
            ended(reply.as_deref(), &end);
            return Ok(Checked::Denied(reply));
        }
        message.labels = self.labels.clone();
        let mut walk = Walk { waiting: Waiting::Forbidden, heard: &self.heard, trace: None };
        let mut decision = walk.decide(&block.lists, Point::Response, &mut message)?;
        refuse_redirect(&mut decision);
        let ruling = Ruling::of(&decision, Point::Response);
        let end = Report { of_response: ruling.as_ref().or(of_policy), labels: &message.labels, ..report };
        end.tell_decision(&decision);
        if decision.outcome == Ok(Outcome::Allow) {
            ended(Some(answer), &end);
            return Ok(Checked::Passes);
        }
        let denial = reply::denied(self, &decision).map(|denial| self.own(denial));
        ended(denial.as_deref(), &end);
        Ok(Checked::Denied(denial))
    }

    /// The reply of a question that has no answer.
    pub(crate) fn fail(&self, failure: Failure<'_>) -> Vec<u8> {
        let reply = self.own(plain::failure(self.query(), failure.rcode()));
        let report = Report { source: Source::Own, ..self.report() };
        // They end as CoreDNS writes them: people have regular expressions for that.
        let why = match failure {
            Failure::NoAnswer(Some(trouble)) => format!("no upstream answered: {trouble}"),
            Failure::NoAnswer(None) => "no upstream answered: i/o timeout".to_owned(),
            Failure::TooMany => "concurrent queries exceeded maximum".to_owned(),
            Failure::NotJudged => "the rules could not be asked".to_owned(),
        };
        if failure == Failure::TooMany {
            self.inside.teller.metrics().rejected.fetch_add(1, Ordering::Relaxed);
        }
        report.tell_error(&why);
        Report { reply: Some(&reply), ..report }.tell_ended();
        reply
    }
}

/// There is an answer already, and no other server is asked for it.
pub(crate) fn refuse_redirect(decision: &mut Decision) {
    if let Ok(Outcome::Redirect(to)) = decision.outcome {
        let error = format!("an answer cannot be redirected to {to}");
        decision.failure = decision.place.as_ref().map(|place| format!("{place}: {error}"));
        decision.outcome = Err(error);
    }
}
