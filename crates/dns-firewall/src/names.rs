//! `dnsnameresolver`: what names were found at is told to who keeps that, before
//! the answer goes out (S8.5).

use crate::message::text_of;
use namewall_corefile::DnsNameResolver;
use namewall_dns::wire::{Header, Question, Rcode, RecordType, addresses};
use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

/// Keeps what names were found at.
pub trait Names: Debug + Send + Sync {
    /// Takes note of it, and waits for nothing; whether somebody is to be told, and the answer to wait.
    fn note(&self, looked_up: &LookedUp<'_>) -> bool;

    /// Waits until all that was noted is told, for as long as a client can be kept waiting.
    fn finish(&self);
}

/// What became of a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LookedUp<'a> {
    /// Lower case, with its last dot.
    pub name: String,
    /// Addresses with their TTLs, or the name of the rcode.
    pub outcome: Result<Vec<(IpAddr, Duration)>, String>,
    pub directive: &'a DnsNameResolver,
}

impl<'a> LookedUp<'a> {
    /// What an upstream's answer says of it; nothing, if it is not about addresses or there are none.
    pub(crate) fn read(directive: &'a DnsNameResolver, question: &Question, answer: &[u8]) -> Option<Self> {
        const IN: u16 = 1;
        if question.class != IN || !matches!(question.record_type, RecordType::A | RecordType::AAAA) {
            return None;
        }
        let name = text_of(&question.name).to_ascii_lowercase();
        let name = if name.ends_with('.') { name } else { format!("{name}.") };
        let rcode = Header::read(answer).ok()?.rcode;
        if rcode != Rcode::NO_ERROR {
            return Some(Self { name, outcome: Err(rcode.to_string()), directive });
        }
        let found: Vec<_> = addresses(answer).ok()?.addresses.iter().map(|one| (one.address, one.ttl)).collect();
        (!found.is_empty()).then_some(Self { name, outcome: Ok(found), directive })
    }
}
