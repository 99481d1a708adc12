//! What became of a question, in one value: log, errors, dnstap and metrics are told the same.

use crate::dnstap::Tapping;
use crate::errors::Errors;
use crate::log::Log;
use crate::message::Message;
use crate::metrics::Meters;
use crate::rules::Decision;
use crate::service::{Block, Inside};
use namewall_corefile::{Place, Point, Zone};
use namewall_dns::wire::{Question, WireError};
use namewall_dns::{Asked, Heard};
use std::time::{Instant, SystemTime};

/// What rules said, and which of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ruling {
    pub(crate) point: Point,
    /// One of [`Ruling::OUTCOMES`].
    pub(crate) outcome: &'static str,
    /// The rule, or the list at whose end it was.
    pub(crate) place: Place,
}

impl Ruling {
    pub(crate) const OUTCOMES: [&'static str; 6] = ["allow", "redirect", "refuse", "block", "drop", "error"];

    /// None where no list was asked.
    pub(crate) fn of(decision: &Decision, point: Point) -> Option<Self> {
        let outcome = decision.outcome.as_ref().map_or("error", |outcome| outcome.word());
        Some(Self { point, outcome, place: decision.place.clone()? })
    }
}

/// Where an answer comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// We say so ourselves.
    Own,
    Cache,
    Upstream,
    /// Somebody else was asked than others are: what they say is for this client alone.
    Redirected,
}

/// A question and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report<'r> {
    pub(crate) asked: &'r Asked<'r>,
    pub(crate) question: &'r Question,
    /// The one it was asked of.
    pub(crate) zone: &'r Zone,
    pub(crate) begun: Instant,
    /// The same by the clock, where anybody wants to know: one question has one time.
    pub(crate) asked_at: Option<SystemTime>,
    /// What engines said besides.
    pub(crate) labels: &'r [(String, String)],
    pub(crate) of_query: Option<&'r Ruling>,
    pub(crate) of_response: Option<&'r Ruling>,
    pub(crate) source: Source,
    /// What the client gets. None is nothing, or nothing yet.
    pub(crate) reply: Option<&'r [u8]>,
}

impl Report<'_> {
    /// The one that counts in the end.
    pub(crate) fn ruling(&self) -> Option<&Ruling> {
        self.of_response.or(self.of_query)
    }
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

    /// Whether nobody wants to know how questions end.
    pub(crate) fn are_none(&self) -> bool {
        self.logs.is_empty() && self.taps.is_empty() && self.meters.is_none()
    }
}

impl Inside {
    /// A question has been judged; it is answered now or later.
    pub(crate) fn tell_asked(&self, block: &Block, report: &Report<'_>) {
        if block.observers.taps.is_empty() {
            return;
        }
        let Ok(message) = self.message(block, report) else { return };
        block.observers.taps.iter().for_each(|tap| tap.asked(report, &message));
    }

    /// A question has ended.
    pub(crate) fn tell_ended(&self, block: &Block, report: &Report<'_>) {
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
    pub(crate) fn tell_heard(&self, asked: &Asked<'_>, heard: &Heard<'_>) {
        let Ok(question) = Question::of_query(asked.query) else { return };
        let Some((block, _)) = self.block(asked, &question) else { return };
        if block.observers.meters.is_some() {
            self.teller.metrics().heard(heard);
        }
        block.observers.taps.iter().for_each(|tap| tap.forwarded(asked, heard));
    }

    /// Something went wrong with a question.
    pub(crate) fn tell_error(&self, block: &Block, error: &str, report: &Report<'_>) {
        let Some(errors) = &block.observers.errors else { return };
        // As CoreDNS has it: the code, the question, and why.
        let line =
            || format!("2 {} {}: {error}", crate::message::text_of(&report.question.name), report.question.record_type);
        errors.tell(&self.teller, error, line);
    }

    fn message<'m>(&'m self, block: &'m Block, report: &Report<'m>) -> Result<Message<'m>, WireError> {
        let mut message = Message::new(*report.asked, &block.fields, &*self.identities)?;
        message.labels = report.labels.to_vec();
        Ok(message)
    }
}
