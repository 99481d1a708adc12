//! `view`: which questions of its zones a server block is for.

use crate::message::{UNKNOWN_CLIENTS, label_entropy, longest_label, text_of};
use crate::service::{Block, Inside};
use namewall_corefile::{View, is_client_fact};
use namewall_dns::Asked;
use namewall_dns::wire::{Edns, Header, Question};
use namewall_expression::{Fact, Facts, ListedAt, Phase, Value};
use namewall_policy::dns_codes::{CLASSES, TYPES};
use std::borrow::Cow;

/// A question before its server block is found.
pub(crate) struct Arrived<'a> {
    pub(crate) inside: &'a Inside,
    /// The server block that has the view.
    pub(crate) block: &'a Block,
    pub(crate) asked: &'a Asked<'a>,
    pub(crate) question: &'a Question,
}

impl Arrived<'_> {
    /// True if all conditions hold. An error is why that is not known: the question may be for this view, and for no other.
    pub(crate) fn is_seen_by(&self, view: &View) -> Result<bool, String> {
        for condition in &view.conditions {
            let is_of_client = |fact: &Fact| matches!(fact, Fact::Label(label) if is_client_fact(label));
            if !self.inside.identities.are_known() && condition.facts().iter().any(is_of_client) {
                return Err(format!("{}: {UNKNOWN_CLIENTS}", view.place));
            }
            match condition.is_true(self) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => return Err(format!("{}: {error}", view.place)),
            }
        }
        Ok(true)
    }
}

impl Facts for Arrived<'_> {
    fn get(&self, fact: &Fact) -> Value<'_> {
        let number = |number: usize| Value::Number(number as u64);
        let Self { inside, block, asked, question } = self;
        let header = || Header::read(asked.query);
        let edns = || Edns::read(asked.query);
        match fact {
            Fact::Name => Value::Text(Cow::Owned(text_of(&question.name))),
            Fact::Type => Value::Text(TYPES.text(question.record_type.0)),
            Fact::Class => Value::Text(CLASSES.text(question.class)),
            Fact::Protocol => Value::Text(Cow::Borrowed(if asked.over_tcp() { "tcp" } else { "udp" })),
            Fact::ClientIp => Value::Address(asked.client.ip().to_canonical()),
            Fact::ClientPort => number(asked.client.port().into()),
            Fact::ServerIp => Value::Address(asked.server.ip().to_canonical()),
            Fact::ServerPort => number(asked.server.port().into()),
            Fact::Size => number(asked.query.len()),
            Fact::Id => number(header().map_or(0, |header| header.id.into())),
            Fact::Opcode => number(header().map_or(0, |header| header.opcode.into())),
            Fact::BufferSize => number(edns().map_or(512, |edns| edns.payload.into())),
            Fact::Do => Value::Bool(edns().is_some_and(|edns| edns.is_dnssec_ok())),
            Fact::LabelLength => number(longest_label(&question.name).len()),
            Fact::LabelEntropy => label_entropy(&question.name),
            Fact::Label(label) if label.starts_with("geoip/") => block.geoip_text(label, asked),
            Fact::Label(label) => {
                let known = inside.identities.label(asked.client.ip().to_canonical(), label);
                known.map_or(Value::UNSET, |text| Value::Text(text.into()))
            }
            _ => Value::UNSET,
        }
    }

    fn listed(&self, list: &str, name: &str) -> Result<Option<ListedAt>, String> {
        self.inside.lists.listed(list, name)
    }

    fn phase(&self) -> Phase {
        Phase::Query
    }
}
