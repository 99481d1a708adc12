//! Which addresses an answer gives the name that was asked for (S6.1).

use super::name::NameSpan;
use super::question::IN;
use super::{Fields, Header, Name, Question, Rcode, RecordType, WireError, u16_at, u32_at};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// The longest chain of CNAMEs that is followed (S6.1).
pub const MOST_LINKS: usize = 16;

/// An address the question's name has, and for how long: the lowest TTL on the way to it (S6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    pub address: IpAddr,
    pub ttl: Duration,
}

/// What an answer says of the name it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Addresses {
    pub question: Question,
    pub addresses: Vec<Address>,
    /// The names the CNAMEs lead over, in order.
    pub aliases: Vec<Name>,
    /// Addresses whose owner is not on the way from the question.
    pub foreign: usize,
}

/// Why nothing is learned from an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("it is malformed: {0}")]
    Malformed(#[from] WireError),
    #[error("its CNAMEs are a loop, or a chain of more than {MOST_LINKS} links")]
    LongChain,
    #[error("a name in it has two CNAMEs")]
    TwoAliases,
}

#[derive(Clone, Copy)]
struct Record {
    owner: usize,
    kind: RecordType,
    ttl: u32,
    data: (usize, usize),
}

/// Reads an answer: NOERROR, class IN, to a question for addresses. Anything else has none.
/// The records may stand in any order.
pub fn addresses(answer: &[u8]) -> Result<Addresses, Unreadable> {
    let header = Header::read(answer)?;
    if !header.is_answer {
        return Err(WireError::NotAnAnswer.into());
    }
    let (question, asked) = Question::read(answer, &header)?;
    let wants = |kind| {
        let asked = question.record_type;
        matches!(kind, RecordType::A | RecordType::AAAA) && (asked == kind || asked == RecordType::ANY)
    };
    let has_addresses = wants(RecordType::A) || wants(RecordType::AAAA);
    let is_usual = header.opcode == 0 && header.rcode == Rcode::NO_ERROR;
    if !is_usual || question.class != IN || !has_addresses {
        return Ok(Addresses { question, addresses: Vec::new(), aliases: Vec::new(), foreign: 0 });
    }
    let records = records(answer, asked.end.saturating_add(Question::AFTER_NAME), header.answers)?;
    let mut found = Vec::with_capacity(records.len());
    let (mut aliases, mut place, mut lowest) = (Vec::new(), asked, u32::MAX);
    loop {
        let owner = aliases.last().unwrap_or(&question.name);
        let mut next: Option<(Name, NameSpan, u32)> = None;
        for record in &records {
            if !(record.kind == RecordType::CNAME || wants(record.kind)) || !owner.is_at(answer, record.owner, place)? {
                continue;
            }
            let ttl = lowest.min(record.ttl);
            if record.kind != RecordType::CNAME {
                let address = address(answer, record)?;
                found.push(Address { address, ttl: Duration::from_secs(ttl.into()) });
                continue;
            }
            let (target, at) = Name::read_with_place(answer, record.data.0)?;
            if at.end != record.data.1 {
                return Err(WireError::Data.into());
            }
            match &mut next {
                Some((known, _, lower)) if *known == target => *lower = ttl.min(*lower),
                Some(_) => return Err(Unreadable::TwoAliases),
                None => next = Some((target, at, ttl)),
            }
        }
        let Some((target, at, ttl)) = next else { break };
        if aliases.len() == MOST_LINKS || target == question.name || aliases.contains(&target) {
            return Err(Unreadable::LongChain);
        }
        (lowest, place) = (ttl, at);
        aliases.push(target);
    }
    let foreign = records.iter().filter(|record| wants(record.kind)).count().saturating_sub(found.len());
    Ok(Addresses { question, addresses: found, aliases, foreign })
}

/// The records of the answer section, whatever they are.
fn records(answer: &[u8], mut at: usize, count: u16) -> Result<Vec<Record>, WireError> {
    // A record is 11 bytes at least: a header cannot make us reserve more than was sent.
    let mut records = Vec::with_capacity(usize::from(count).min(answer.len() / 11));
    for _ in 0..count {
        let owner = at;
        at = Name::skip(answer, at)?;
        let fields = Fields::behind(at);
        let (kind, class) = (RecordType(u16_at(answer, fields.kind)?), u16_at(answer, fields.class)?);
        let ttl = u32_at(answer, fields.ttl)?;
        let (start, end) = (fields.data, fields.end(answer)?);
        if end > answer.len() {
            return Err(WireError::Short);
        }
        at = end;
        if class == IN {
            // RFC 2181 §8: with the highest bit set it counts as 0.
            let ttl = if ttl > i32::MAX as u32 { 0 } else { ttl };
            records.push(Record { owner, kind, ttl, data: (start, end) });
        }
    }
    Ok(records)
}

fn address(answer: &[u8], record: &Record) -> Result<IpAddr, WireError> {
    let data = answer.get(record.data.0..record.data.1).ok_or(WireError::Short)?;
    match record.kind {
        RecordType::A => <[u8; 4]>::try_from(data).map(|octets| Ipv4Addr::from(octets).into()),
        _ => <[u8; 16]>::try_from(data).map(|octets| Ipv6Addr::from(octets).into()),
    }
    .map_err(|_| WireError::Data)
}
