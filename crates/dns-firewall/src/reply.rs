//! What clients get who do not get an answer.

use crate::exchange::Exchange;
use crate::rules::Decision;
use namewall_corefile::Zone;
use namewall_dns::wire::{Edns, HEADER, Question, Rcode, reply};
use namewall_expression::Outcome;
use namewall_zones::Record;
use rustc_hash::FxHashMap;

/// How long what is blocked may be remembered to be.
const BLOCKED_TTL: u32 = 60;
/// Extended errors (RFC 8914 §4): "Blocked" and "Prohibited".
const BLOCKED: u16 = 15;
const PROHIBITED: u16 = 18;
const SOA: u16 = 6;
const TXT: u16 = 16;
const CHAOS: u16 = 3;
/// Bits of the header's third byte.
const AUTHORITATIVE: u8 = 0x04;
const TRUNCATED: u8 = 0x02;
/// What a message of ours holds, with room for what comes last.
const MOST_BYTES: usize = 65_000;

/// The reply to a question that does not pass; none is silence.
pub(crate) fn denied(exchange: &Exchange, decision: &Decision) -> Option<Vec<u8>> {
    let (query, zone) = (exchange.query(), exchange.zone());
    Some(match decision.outcome {
        Ok(Outcome::Refuse) => explained(reply::failure(query, Rcode::REFUSED), PROHIBITED, ""),
        Ok(Outcome::Block) => explained(with_soa(query, Rcode::NX_DOMAIN, zone), BLOCKED, ""),
        Ok(Outcome::Drop) if decision.drops_silently => return None,
        Ok(Outcome::Drop) => explained(with_soa(query, Rcode::NO_ERROR, zone), BLOCKED, ""),
        _ => reply::failure(query, Rcode::SERV_FAIL),
    })
}

/// A reply that says that there is no recursion here.
pub(crate) fn without_recursion(mut reply: Vec<u8>) -> Vec<u8> {
    const RECURSION_AVAILABLE: u8 = 0x80;
    if let Some(flags) = reply.get_mut(3) {
        *flags &= !RECURSION_AVAILABLE;
    }
    reply
}

/// The same in words; none is that it passes.
pub(crate) fn denial_words(decision: &Decision) -> Option<&'static str> {
    Some(match decision.outcome {
        Ok(Outcome::Allow | Outcome::Redirect(_)) => return None,
        Ok(Outcome::Refuse) => "REFUSED",
        Ok(Outcome::Block) => "NXDOMAIN",
        Ok(Outcome::Drop) if decision.drops_silently => "nothing",
        Ok(Outcome::Drop) => "NOERROR without data",
        _ => "SERVFAIL",
    })
}

/// Without records but an SOA, so that it is cached for a sane while (RFC 2308 §3).
pub(crate) fn with_soa(query: &[u8], rcode: Rcode, zone: &Zone) -> Vec<u8> {
    let bare = reply::failure(query, rcode);
    let end = Question::end(query).unwrap_or(HEADER).min(bare.len());
    let mut message = bare[..end].to_vec();
    message[8..12].copy_from_slice(&[0, 1, 0, 0]);
    push_name(&mut message, zone);
    push_all(&mut message, &[SOA, 1]);
    message.extend(BLOCKED_TTL.to_be_bytes());
    let mut data = Vec::new();
    for label in ["namewall", "hostmaster"] {
        data.push(label.len() as u8);
        data.extend(label.as_bytes());
        data.extend([7]);
        data.extend(b"invalid");
        data.push(0);
    }
    for number in [1, 3_600, 600, 86_400, BLOCKED_TTL] {
        data.extend(number.to_be_bytes());
    }
    message.extend((data.len() as u16).to_be_bytes());
    message.extend(data);
    reply::push_opt(query, &mut message);
    message
}

fn push_name(message: &mut Vec<u8>, zone: &Zone) {
    if let Zone::Name(name) = zone {
        for label in name.labels() {
            message.push(label.len() as u8);
            message.extend(label.as_bytes());
        }
    }
    message.push(0);
}

fn push_all(message: &mut Vec<u8>, fields: &[u16]) {
    fields.iter().for_each(|field| message.extend(field.to_be_bytes()));
}

/// Says why in its OPT record, if it has one; which is the last.
pub(crate) fn explained(mut message: Vec<u8>, code: u16, reason: &str) -> Vec<u8> {
    if Edns::read(&message).is_some() {
        let (length, reason) = (message.len() - 2, &reason.as_bytes()[..reason.len().min(200)]);
        message[length..].copy_from_slice(&(6 + reason.len() as u16).to_be_bytes());
        push_all(&mut message, &[15, 2 + reason.len() as u16, code]);
        message.extend(reason);
    }
    message
}

/// The records of an answer of our own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sections<'a> {
    pub(crate) answer: &'a [Record],
    pub(crate) authority: &'a [Record],
    pub(crate) additional: &'a [Record],
    /// It only says who knows.
    pub(crate) is_elsewhere: bool,
}

/// Names that stand in a message, and where: later ones are pointers to them (RFC 1035 §4.1.4). A name that was asked
/// for keeps the letters it was asked in.
#[derive(Default)]
struct WrittenNames(FxHashMap<Vec<u8>, u16>);

impl WrittenNames {
    /// A whole name stands at a place.
    fn note(&mut self, name: &[u8], at: usize) {
        let mut start = 0;
        while let Some(length) = name.get(start).copied().filter(|length| (1..64).contains(length)) {
            // Pointers lead to the first 16 KiB.
            let Some(place) = u16::try_from(at + start).ok().filter(|place| *place < 0x4000) else { return };
            self.0.entry(name[start..].to_ascii_lowercase()).or_insert(place);
            start += 1 + usize::from(length);
        }
    }

    /// Writes a name, the end of it as a pointer if it stands somewhere already.
    fn push(&mut self, message: &mut Vec<u8>, name: &[u8]) {
        let (at, mut start) = (message.len(), 0);
        while let Some(length) = name.get(start).copied().filter(|length| (1..64).contains(length)) {
            if let Some(place) = self.0.get(&name[start..].to_ascii_lowercase()) {
                message.extend(&name[..start]);
                message.extend((0xc000 | place).to_be_bytes());
                self.note_until(name, start, at);
                return;
            }
            start += 1 + usize::from(length);
        }
        message.extend(name);
        self.note(name, at);
    }

    /// The first labels of a name stand at a place, and a pointer behind them.
    fn note_until(&mut self, name: &[u8], end: usize, at: usize) {
        let mut start = 0;
        while start < end {
            if let Some(place) = u16::try_from(at + start).ok().filter(|place| *place < 0x4000) {
                self.0.entry(name[start..].to_ascii_lowercase()).or_insert(place);
            }
            start += 1 + usize::from(name[start]);
        }
    }
}

/// The name that the data of a record end with.
fn target(record: &Record) -> &[u8] {
    match record.kind.0 {
        2 | 5 | 12 => &record.data,
        15 => record.data.get(2..).unwrap_or_default(),
        33 => record.data.get(6..).unwrap_or_default(),
        _ => &[],
    }
}

/// An answer with these records, as far as a message holds them.
pub(crate) fn with_records(query: &[u8], rcode: Rcode, sections: Sections<'_>) -> Vec<u8> {
    let bare = reply::failure(query, rcode);
    let end = Question::end(query).unwrap_or(HEADER).min(bare.len());
    let mut message = bare[..end].to_vec();
    message[6..HEADER].fill(0);
    if !sections.is_elsewhere {
        message[2] |= AUTHORITATIVE;
    }
    let mut names = WrittenNames::default();
    names.note(query.get(HEADER..end.saturating_sub(4)).unwrap_or_default(), HEADER);
    let all = [(6, sections.answer), (8, sections.authority), (10, sections.additional)];
    for (count_at, records) in all {
        let mut count: u16 = 0;
        for record in records {
            if message.len() + record.owner.len() + record.data.len() + 10 > MOST_BYTES {
                message[2] |= TRUNCATED;
                break;
            }
            names.push(&mut message, &record.owner);
            push_all(&mut message, &[record.kind.0, record.class]);
            message.extend(record.ttl.to_be_bytes());
            message.extend((record.data.len() as u16).to_be_bytes());
            names.note(target(record), message.len() + record.data.len() - target(record).len());
            message.extend(&record.data);
            count += 1;
        }
        message[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
    }
    reply::push_opt(query, &mut message);
    message
}

/// An answer of texts to a question of the class CH.
pub(crate) fn texts(query: &[u8], lines: &[String]) -> Vec<u8> {
    let bare = reply::failure(query, Rcode::NO_ERROR);
    let end = Question::end(query).unwrap_or(HEADER).min(bare.len());
    let mut message = bare[..end].to_vec();
    message[6..12].fill(0);
    let mut count: u16 = 0;
    for line in lines {
        // Text of any length is a row of strings of up to 255 bytes.
        let pieces: Vec<&[u8]> = line.as_bytes().chunks(255).collect();
        let length: usize = pieces.iter().map(|piece| piece.len() + 1).sum();
        if message.len() + length + 12 > 60_000 {
            break;
        }
        push_all(&mut message, &[0xc00c, TXT, CHAOS, 0, 0, length as u16]);
        for piece in pieces {
            message.push(piece.len() as u8);
            message.extend(piece);
        }
        count += 1;
    }
    message[6..8].copy_from_slice(&count.to_be_bytes());
    reply::push_opt(query, &mut message);
    message
}
