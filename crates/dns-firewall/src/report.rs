//! What became of a question, in one value: log, errors, dnstap and metrics are told the same.

use crate::dnstap::Tapping;
use crate::errors::Errors;
use crate::exchange::Exchange;
use crate::log::Log;
use crate::message::Message;
use crate::metrics::Meters;
use crate::rules::Decision;
use crate::tell::Teller;
use namewall_corefile::{FileSpan, Point};
use namewall_dns::Heard;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// What rules said, and which of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ruling {
    pub(crate) point: Point,
    /// One of [`Ruling::OUTCOMES`].
    pub(crate) outcome: &'static str,
    /// The rule, or the list at whose end it was.
    pub(crate) place: FileSpan,
    /// The name of the rule, if it has one.
    pub(crate) name: Option<Arc<str>>,
}

impl Ruling {
    pub(crate) const OUTCOMES: [&'static str; 6] = ["allow", "redirect", "refuse", "block", "drop", "error"];

    /// None where no list was asked.
    pub(crate) fn of(decision: &Decision, point: Point) -> Option<Self> {
        let outcome = decision.outcome.as_ref().map_or("error", |outcome| outcome.word());
        Some(Self { point, outcome, place: decision.place.clone()?, name: decision.name.clone() })
    }

    /// What metrics and logs call the rule: its name, or else its place.
    pub(crate) fn label(&self) -> String {
        self.name.as_ref().map_or_else(|| self.place.to_string(), ToString::to_string)
    }
}

/// Where an answer comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// We say so ourselves.
    Own,
    /// A directive of the block has it.
    Directive(&'static str),
    Cache,
    Upstream,
    /// Somebody else was asked than others are: what they say is for this client alone.
    Redirected,
}

/// An exchange, and what is known of its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report<'r> {
    pub(crate) exchange: &'r Exchange,
    /// What engines have added to the decisions.
    pub(crate) labels: &'r [(String, String)],
    /// What the response rules decided.
    pub(crate) of_response: Option<&'r Ruling>,
    /// Where the reply comes from.
    pub(crate) source: Source,
    /// What the client gets. None is nothing, or nothing yet.
    pub(crate) reply: Option<&'r [u8]>,
}

/// Who is told of a block's questions.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    pub(crate) logs: Vec<Log>,
    pub(crate) errors: Option<Errors>,
    pub(crate) taps: Vec<Tapping>,
    pub(crate) meters: Option<Meters>,
}

impl Observers {
    /// The clock's time of a moment that was, if anybody is told it.
    pub(crate) fn clock(&self, moment: Instant) -> Option<SystemTime> {
        (!self.taps.is_empty()).then(|| crate::dnstap::clock(moment))
    }
}

impl Exchange {
    /// Reports the answer of an upstream.
    pub(crate) fn tell_heard(&self, heard: &Heard<'_>) {
        let observers = &self.block().observers;
        if observers.meters.is_some() {
            self.inside.teller.metrics().heard(heard);
        }
        observers.taps.iter().for_each(|tap| tap.forwarded(&self.asked(), heard));
    }
}

impl Report<'_> {
    /// The ruling that counts in the end.
    pub(crate) fn ruling(&self) -> Option<&Ruling> {
        self.of_response.or(self.exchange.ruling.as_ref())
    }

    /// Reports a question that has been judged, and is answered now or later.
    pub(crate) fn tell_asked(&self) {
        let taps = &self.observers().taps;
        if !taps.is_empty() {
            let message = self.message();
            taps.iter().for_each(|tap| tap.asked(self, &message));
        }
    }

    /// Reports a question that has ended.
    pub(crate) fn tell_ended(&self) {
        let Observers { logs, taps, meters, .. } = self.observers();
        if let Some(meters) = meters {
            meters.ended(self);
        }
        // Silence is not reported: there is no reply. The rule that decides so has a log of its own.
        let Some(reply) = self.reply.filter(|_| !logs.is_empty() || !taps.is_empty()) else { return };
        let Ok(message) = self.message().with_answer(reply) else { return };
        for line in logs.iter().filter_map(|log| log.line(self, &message)) {
            self.teller().tell(line);
        }
        taps.iter().for_each(|tap| tap.answered(self, reply, &message));
    }

    /// Reports the lines that a decision logs, and the rule that failed, if one did.
    pub(crate) fn tell_decision(&self, decision: &Decision) {
        decision.log.iter().for_each(|line| self.teller().tell(line.clone()));
        match &decision.failure {
            Some(failure) if self.observers().errors.is_some() => self.tell_error(failure),
            // A rule that fails is always reported (S9.4).
            Some(failure) => self.teller().tell(format!("[ERROR] {failure}")),
            None => {}
        }
    }

    /// Reports what went wrong with a question.
    pub(crate) fn tell_error(&self, error: &str) {
        let Some(errors) = &self.observers().errors else { return };
        // As CoreDNS has it: the code, the question, and why.
        let line = || format!("2 {} {}: {error}", self.exchange.name(), self.exchange.question.record_type);
        errors.tell(self.teller(), error, line);
    }

    fn observers(&self) -> &Observers {
        &self.exchange.block().observers
    }

    fn teller(&self) -> &Teller {
        &self.exchange.inside.teller
    }

    fn message(&self) -> Message<'_> {
        let mut message = Message::new(self.exchange);
        message.labels = self.labels.to_vec();
        message
    }
}
