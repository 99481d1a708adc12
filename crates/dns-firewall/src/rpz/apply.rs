//! What an exchange does with a policy.

use super::{Looked, Verdict, is_judged, of_answer, of_question};
use crate::acl::Denied;
use crate::exchange::Exchange;
use crate::local::Alias;
use crate::reply::{self, Sections};
use crate::report::Ruling;
use namewall_corefile::Point;
use namewall_dns::wire::{Rcode, RecordType, reply as plain};
use namewall_zones::{PolicyAction, PolicyFound, Record};
use std::net::IpAddr;

/// "Blocked" (RFC 8914 §4.16).
const BLOCKED: u16 = 15;
const TRUNCATED: u8 = 0x02;
/// The longest name on the wire.
const LONGEST: usize = 255;

/// What a policy makes of a question or an answer.
pub(crate) enum Applied {
    Deny(Denied),
    Answer(Vec<u8>),
    /// An answer that ends with an alias, whose target is to be looked up.
    Alias(Vec<u8>, Alias),
}

impl Exchange {
    /// What policies say of the question.
    pub(crate) fn policy_of_question(&self) -> Option<Verdict> {
        of_question(&self.block().policies, self.client.ip(), &self.question)
    }

    /// What policies say of an answer with these addresses, unless they have decided already.
    pub(crate) fn policy_of_answer(&self, answer: &[u8], addresses: &[IpAddr]) -> Option<Verdict> {
        let policies = &self.block().policies;
        if policies.is_empty() || self.ruled.is_some() || !is_judged(&self.question) {
            return None;
        }
        let looked = Looked::read(&self.question, answer, addresses)
            .ok_or(Verdict { policy: 0, said: Err("the answer cannot be read") });
        match looked {
            Ok(looked) => of_answer(policies, self.client.ip(), &looked),
            Err(verdict) => Some(verdict),
        }
    }

    /// What the client gets by a policy; none if the question or the answer passes.
    pub(crate) fn apply(&self, verdict: &Verdict) -> Option<Applied> {
        if let Ok(PolicyFound { action: PolicyAction::Local(records), .. }) = &verdict.said {
            return Some(self.local_data(records));
        }
        self.denial_of(verdict).map(Applied::Deny)
    }

    /// The reply by a policy without data of its own.
    pub(crate) fn denial_of(&self, verdict: &Verdict) -> Option<Denied> {
        let query = self.query();
        let blocked = |rcode| {
            let why = verdict.said.as_ref().map_or("", |found| &found.owner);
            Denied::Reply(reply::explained(reply::with_soa(query, rcode, self.zone()), BLOCKED, why))
        };
        Some(match verdict.said.as_ref().map(|found| &found.action) {
            Err(_) => Denied::Reply(plain::failure(query, Rcode::SERV_FAIL)),
            Ok(PolicyAction::NxDomain) => blocked(Rcode::NX_DOMAIN),
            Ok(PolicyAction::NoData | PolicyAction::Local(_)) => blocked(Rcode::NO_ERROR),
            Ok(PolicyAction::Passthru) => return None,
            Ok(PolicyAction::Drop) => Denied::Silence,
            Ok(PolicyAction::TcpOnly) if self.over_tcp() => return None,
            Ok(PolicyAction::TcpOnly) => {
                let mut reply = plain::failure(query, Rcode::NO_ERROR);
                if let Some(flags) = reply.get_mut(2) {
                    *flags |= TRUNCATED;
                }
                Denied::Reply(reply)
            }
        })
    }

    /// The records of a policy, as those of the name that was asked for.
    fn local_data(&self, records: &[Record]) -> Applied {
        let (query, question) = (self.query(), &self.question);
        let name = question.name.as_bytes();
        let of_name = |record: &Record| Record { owner: name.to_vec(), ..record.clone() };
        let is_asked = |kind: RecordType| kind == question.record_type || question.record_type == RecordType::ANY;
        let answered = |records: &[Record]| {
            reply::with_records(query, Rcode::NO_ERROR, Sections { answer: records, ..Sections::default() })
        };
        if let [alias] = records
            && alias.kind == RecordType::CNAME
        {
            let Some(target) = target(name, &alias.data) else {
                return Applied::Deny(Denied::Reply(plain::failure(query, Rcode::SERV_FAIL)));
            };
            let alias = Record { data: target.clone(), ..of_name(alias) };
            let so_far = answered(&[alias]);
            return match is_asked(RecordType::CNAME) {
                true => Applied::Answer(so_far),
                false => Applied::Alias(so_far, Alias { target, without: None }),
            };
        }
        let asked: Vec<Record> = records.iter().filter(|record| is_asked(record.kind)).map(of_name).collect();
        match asked.is_empty() {
            true => Applied::Answer(reply::with_soa(query, Rcode::NO_ERROR, self.zone())),
            false => Applied::Answer(answered(&asked)),
        }
    }

    /// A policy as what rules decide is reported.
    pub(crate) fn ruling_of(&self, verdict: &Verdict, point: Point) -> Option<Ruling> {
        let policy = self.block().policies.get(verdict.policy)?;
        let outcome = match verdict.said.as_ref().map(|found| &found.action) {
            Err(_) => "error",
            Ok(PolicyAction::Passthru) => "allow",
            Ok(PolicyAction::Drop) => "drop",
            Ok(PolicyAction::Local(_)) => "redirect",
            Ok(PolicyAction::TcpOnly) if self.over_tcp() => "allow",
            Ok(PolicyAction::NxDomain | PolicyAction::NoData | PolicyAction::TcpOnly) => "block",
        };
        Some(Ruling { point, outcome, place: policy.place.clone(), name: Some(policy.label()) })
    }

    /// Which record of which zone says what, in words.
    pub(crate) fn policy_words(&self, verdict: &Verdict) -> String {
        let Some(policy) = self.block().policies.get(verdict.policy) else { return String::new() };
        let (place, label) = (&policy.place, policy.label());
        let found = match &verdict.said {
            Ok(found) => found,
            Err(why) => return format!("{place}: {label}: {why} → SERVFAIL"),
        };
        let line = policy.file.as_ref().zip(found.line);
        let line = line.map_or_else(String::new, |(file, line)| format!(" at {}:{line}", file.display()));
        let action = match &found.action {
            PolicyAction::NxDomain => "NXDOMAIN".to_owned(),
            PolicyAction::NoData => "NODATA".to_owned(),
            PolicyAction::Passthru => "it passes".to_owned(),
            PolicyAction::Drop => "no reply".to_owned(),
            PolicyAction::TcpOnly => "only over TCP".to_owned(),
            PolicyAction::Local(records) => format!("{} records of its own", records.len()),
        };
        format!("{place}: {label}: {}{line} → {action}", found.owner)
    }
}

/// Where an alias leads: the name that was asked for under the rest, if it begins with `*`.
fn target(name: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let whole = match data.strip_prefix(b"\x01*") {
        Some(rest) => [name.get(..name.len().checked_sub(1)?)?, rest].concat(),
        None => data.to_vec(),
    };
    (whole.len() <= LONGEST).then_some(whole)
}
