//! What became of a question, in one value: log, errors, dnstap and metrics are told the same.

use super::dnstap::Tapping;
use super::errors::Errors;
use super::log::Log;
use super::message::Message;
use super::metrics::Meters;
use super::rules::Decision;
use super::{Block, Inside};
use crate::corefile::{Place, Point, Zone};
use namewall_dns::wire::{Question, WireError};
use namewall_dns::{Asked, Heard};
use std::time::{Instant, SystemTime};

/// What rules said, and which of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ruling {
    pub(super) point: Point,
    /// One of [`Ruling::OUTCOMES`].
    pub(super) outcome: &'static str,
    /// The rule, or the list at whose end it was.
    pub(super) place: Place,
}

impl Ruling {
    pub(super) const OUTCOMES: [&'static str; 6] = ["allow", "redirect", "refuse", "block", "drop", "error"];

    /// None where no list was asked.
    pub(super) fn of(decision: &Decision, point: Point) -> Option<Self> {
        let outcome = decision.outcome.as_ref().map_or("error", |outcome| outcome.word());
        Some(Self { point, outcome, place: decision.place.clone()? })
    }
}

/// Where an answer comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// We say so ourselves.
    Own,
    Cache,
    Upstream,
    /// Somebody else was asked than others are: what they say is for this client alone.
    Redirected,
}

/// A question and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report<'r> {
    pub(super) asked: &'r Asked<'r>,
    pub(super) question: &'r Question,
    /// The one it was asked of.
    pub(super) zone: &'r Zone,
    pub(super) begun: Instant,
    /// The same by the clock, where anybody wants to know: one question has one time.
    pub(super) asked_at: Option<SystemTime>,
    /// What engines said besides.
    pub(super) labels: &'r [(String, String)],
    pub(super) of_query: Option<&'r Ruling>,
    pub(super) of_response: Option<&'r Ruling>,
    pub(super) source: Source,
    /// What the client gets. None is nothing, or nothing yet.
    pub(super) reply: Option<&'r [u8]>,
}

impl Report<'_> {
    /// The one that counts in the end.
    pub(super) fn ruling(&self) -> Option<&Ruling> {
        self.of_response.or(self.of_query)
    }
}

/// Who is told of a block's questions.
#[derive(Debug, Default)]
pub(super) struct Observers {
    pub(super) logs: Vec<Log>,
    pub(super) errors: Option<Errors>,
    pub(super) taps: Vec<Tapping>,
    pub(super) meters: Option<Meters>,
}

impl Observers {
    /// The clock's time of a moment that was, if anybody is told it.
    pub(super) fn clock(&self, moment: Instant) -> Option<SystemTime> {
        (!self.taps.is_empty()).then(|| super::dnstap::clock(moment))
    }

    /// Whether nobody wants to know how questions end.
    pub(super) fn are_none(&self) -> bool {
        self.logs.is_empty() && self.taps.is_empty() && self.meters.is_none()
    }
}

impl Inside {
    /// A question has been judged; it is answered now or later.
    pub(super) fn tell_asked(&self, block: &Block, report: &Report<'_>) {
        if block.observers.taps.is_empty() {
            return;
        }
        let Ok(message) = self.message(block, report) else { return };
        block.observers.taps.iter().for_each(|tap| tap.asked(report, &message));
    }

    /// A question has ended.
    pub(super) fn tell_ended(&self, block: &Block, report: &Report<'_>) {
        let Observers { logs, taps, meters, .. } = &block.observers;
        if let Some(meters) = meters {
            meters.ended(report);
        }
        // Silence is not told: there is no answer to tell of. The rule that says so has a log of its own.
        let Some(reply) = report.reply.filter(|_| !logs.is_empty() || !taps.is_empty()) else { return };
        let Ok(message) = self.message(block, report).and_then(|message| message.with_own(reply)) else { return };
        for line in logs.iter().filter_map(|log| log.line(report, &message)) {
            self.teller.tell(line);
        }
        taps.iter().for_each(|tap| tap.answered((report, reply), &message));
    }

    /// An upstream has answered.
    pub(super) fn tell_heard(&self, asked: &Asked<'_>, heard: &Heard<'_>) {
        let Ok(question) = Question::of_query(asked.query) else { return };
        let Some((block, _)) = self.block(asked, &question) else { return };
        if block.observers.meters.is_some() {
            self.teller.metrics().heard(heard);
        }
        block.observers.taps.iter().for_each(|tap| tap.forwarded(asked, heard));
    }

    /// Something went wrong with a question.
    pub(super) fn tell_error(&self, block: &Block, error: &str, report: &Report<'_>) {
        let Some(errors) = &block.observers.errors else { return };
        // As CoreDNS has it: the code, the question, and why.
        let line = || format!("2 {} {}: {error}", super::text_of(&report.question.name), report.question.record_type);
        errors.tell(&self.teller, error, line);
    }

    fn message<'m>(&'m self, block: &'m Block, report: &Report<'m>) -> Result<Message<'m>, WireError> {
        let mut message = Message::new(*report.asked, &block.fields, &*self.identities)?;
        message.labels = report.labels.to_vec();
        Ok(message)
    }
}
