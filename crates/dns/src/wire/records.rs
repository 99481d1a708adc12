//! The records of a message, whatever they are.

use super::{Fields, HEADER, Header, Name, Question, RecordType, WireError, u16_at, u32_at};
use std::net::IpAddr;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Section {
    Answer,
    Authority,
    Additional,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    pub section: Section,
    /// Where its owner's name stands.
    pub owner: usize,
    pub kind: RecordType,
    pub class: u16,
    pub ttl: u32,
    /// Where its TTL stands.
    pub ttl_at: usize,
    pub data: &'a [u8],
}

impl Record<'_> {
    /// The address it gives.
    pub fn address(&self) -> Option<IpAddr> {
        match self.kind {
            RecordType::A => <[u8; 4]>::try_from(self.data).ok().map(IpAddr::from),
            RecordType::AAAA => <[u8; 16]>::try_from(self.data).ok().map(IpAddr::from),
            _ => None,
        }
    }
}

/// All of them, in their order. What is left behind the last is not looked at.
pub fn records(message: &[u8]) -> Result<Vec<Record<'_>>, WireError> {
    let mut records = Vec::new();
    each_record(message, |record| records.push(record))?;
    Ok(records)
}

/// Visits all of them, in their order.
pub fn each_record<'a>(message: &'a [u8], mut visit: impl FnMut(Record<'a>)) -> Result<(), WireError> {
    let header = Header::read(message)?;
    let mut at = HEADER;
    for _ in 0..header.questions {
        at = Name::skip(message, at)?.saturating_add(Question::AFTER_NAME);
    }
    let sections = [(Section::Answer, 6), (Section::Authority, 8), (Section::Additional, 10)];
    for (section, count) in sections {
        for _ in 0..u16_at(message, count)? {
            let owner = at;
            let fields = Fields::behind(Name::skip(message, at)?);
            let (kind, class) = (RecordType(u16_at(message, fields.kind)?), u16_at(message, fields.class)?);
            let ttl = u32_at(message, fields.ttl)?;
            at = fields.end(message)?;
            let data = message.get(fields.data..at).ok_or(WireError::Short)?;
            visit(Record { section, owner, kind, class, ttl, ttl_at: fields.ttl, data });
        }
    }
    Ok(())
}
