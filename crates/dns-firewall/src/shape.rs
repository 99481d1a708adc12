//! Directives that change answers on their way out: `minimal`, `header`, `nsid` and `bufsize`.

use crate::records::{Decoded, encoded};
use namewall_corefile::{FlagChange, HeaderFlag};
use namewall_dns::wire::{Edns, Header, Rcode, Section, records, reply};
use std::sync::Arc;

/// The option of RFC 5001.
const NSID: u16 = 3;
const OPT: u16 = 41;

/// What a server block changes of its answers.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    pub(crate) is_minimal: bool,
    pub(crate) flags: Vec<FlagChange>,
    /// What the server calls itself.
    pub(crate) server_id: Option<Arc<str>>,
    /// The longest datagram for clients that speak EDNS0.
    pub(crate) most_bytes: Option<u16>,
}

/// A question, as far as the form of its answer depends on it.
#[derive(Clone, Copy)]
pub(crate) struct Client<'q> {
    pub(crate) query: &'q [u8],
    pub(crate) over_tcp: bool,
}

impl Shape {
    /// True if answers go out as they come.
    pub(crate) fn is_plain(&self) -> bool {
        !self.is_minimal && self.flags.is_empty() && self.server_id.is_none() && self.most_bytes.is_none()
    }

    /// An answer of `local`, `any` or `chaos`, which stand before `header` and `minimal`, as with CoreDNS.
    pub(crate) fn of_fixed(&self, client: Client<'_>, answer: &[u8]) -> Option<Vec<u8>> {
        let before = Self { is_minimal: false, flags: Vec::new(), server_id: self.server_id.clone(), ..*self };
        before.of(client, answer)
    }

    /// The answer as the client gets it. None if nothing changes.
    pub(crate) fn of(&self, client: Client<'_>, answer: &[u8]) -> Option<Vec<u8>> {
        let mut changed = None;
        if self.is_minimal {
            changed = minimal(client.query, answer);
        }
        let now = |changed: &Option<Vec<u8>>| changed.clone().unwrap_or_else(|| answer.to_vec());
        if !self.flags.is_empty() {
            let mut message = now(&changed);
            change_flags(&mut message, &self.flags);
            changed = Some(message);
        }
        if let Some(id) = &self.server_id
            && has_option(client.query, NSID)
        {
            changed = Some(with_id(client.query, now(&changed), id));
        }
        let most = self.most_bytes.filter(|_| !client.over_tcp && Edns::read(client.query).is_some());
        let length = changed.as_ref().map_or(answer.len(), Vec::len);
        if most.is_some_and(|most| length > usize::from(most)) {
            changed = Some(reply::truncated(&now(&changed)));
        }
        changed.filter(|message| message != answer)
    }
}

/// Sets or clears bits of the header.
pub(crate) fn change_flags(message: &mut [u8], changes: &[FlagChange]) {
    for change in changes {
        let (at, bit) = match change.flag {
            HeaderFlag::Authoritative => (2, 0x04),
            HeaderFlag::RecursionDesired => (2, 0x01),
            HeaderFlag::RecursionAvailable => (3, 0x80),
        };
        if let Some(byte) = message.get_mut(at) {
            *byte = if change.is_set { *byte | bit } else { *byte & !bit };
        }
    }
}

/// An answer without authority and additional records, if it has what was asked for.
fn minimal(query: &[u8], answer: &[u8]) -> Option<Vec<u8>> {
    let header = Header::read(answer).ok()?;
    if header.rcode != Rcode::NO_ERROR || header.answers == 0 {
        return None;
    }
    let decoded = Decoded::read(answer).ok()?;
    if decoded.authority.is_empty() && decoded.additional.is_empty() {
        return None;
    }
    Some(encoded(query, answer, &Decoded { answer: decoded.answer, ..Decoded::default() }))
}

fn has_option(message: &[u8], code: u16) -> bool {
    Edns::read(message).is_some_and(|edns| edns.options().any(|(own, _)| own == code))
}

/// The answer with our name in its OPT record, which is made the last one for that.
fn with_id(query: &[u8], answer: Vec<u8>, id: &str) -> Vec<u8> {
    let is_last = |all: &[namewall_dns::wire::Record<'_>]| {
        all.last().is_some_and(|last| last.section == Section::Additional && last.kind.0 == OPT && last.data.is_empty())
    };
    let mut message = match records(&answer) {
        Ok(all) if is_last(&all) => answer,
        _ => match Decoded::read(&answer) {
            Ok(decoded) => encoded(query, &answer, &decoded),
            Err(_) => return answer,
        },
    };
    let id = &id.as_bytes()[..id.len().min(200)];
    // Its data are empty: their length is the last field.
    let at = message.len().saturating_sub(2);
    message.truncate(at);
    message.extend((4 + id.len() as u16).to_be_bytes());
    message.extend(NSID.to_be_bytes());
    message.extend((id.len() as u16).to_be_bytes());
    message.extend(id);
    message
}
