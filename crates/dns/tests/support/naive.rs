//! A second reader of answers, to compare `wire` with. It decodes every name
//! into labels of its own, and follows aliases as S6.1 says. It shares no code
//! with `wire`, and is as strict: libraries are not, so it is written here.

use namewall_dns::wire::{Addresses, addresses};
use std::net::IpAddr;

pub(crate) type Labels = Vec<Vec<u8>>;

const MOST_LINKS: usize = 16;
const MOST_POINTERS: usize = 127;

/// What an answer says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reading {
    pub(crate) question: Labels,
    /// Each with the lowest TTL on the way to it.
    pub(crate) addresses: Vec<(IpAddr, u32)>,
    pub(crate) aliases: Vec<Labels>,
    pub(crate) foreign: usize,
}

/// What to do with names and data that are broken, but of no concern to the question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Elsewhere {
    MayBeBroken,
    MustBeGood,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// None if it is no name.
    pub(crate) owner: Option<Labels>,
    pub(crate) kind: u16,
    pub(crate) class: u16,
    pub(crate) ttl: u32,
    pub(crate) data: Vec<u8>,
    /// If it is a CNAME's.
    pub(crate) target: Option<Labels>,
}

/// Fails unless both readers say the same of the message.
///
/// `wire` stops reading a name as soon as it is another, so what is broken
/// behind that it may find or not. It must never make an address of it.
pub(crate) fn agree(message: &[u8]) {
    let fast = addresses(message).ok().map(|fast| plain(&fast));
    match &fast {
        Some(_) => assert_eq!(fast, read(message, Elsewhere::MayBeBroken), "of {message:02x?}"),
        None => assert_eq!(fast, read(message, Elsewhere::MustBeGood), "of {message:02x?}"),
    }
}

fn plain(fast: &Addresses) -> Reading {
    let labels = |name: &namewall_dns::wire::Name| name.labels().map(<[u8]>::to_vec).collect();
    Reading {
        question: labels(&fast.question.name),
        addresses: fast.addresses.iter().map(|one| (one.address, one.ttl.as_secs() as u32)).collect(),
        aliases: fast.aliases.iter().map(labels).collect(),
        foreign: fast.foreign,
    }
}

/// None if nothing is to be learned from it.
pub(crate) fn read(message: &[u8], elsewhere: Elsewhere) -> Option<Reading> {
    let header = message.get(..12)?;
    let is_answer = header[2] & 0x80 != 0;
    let (opcode, rcode) = (header[2] >> 3 & 0x0f, header[3] & 0x0f);
    if !is_answer || number(message, 4)? != 1 {
        return None;
    }
    let (name, after) = name_at(message, 12)?;
    let question = name?;
    let (asked, class) = (number(message, after)?, number(message, after + 2)?);
    let mut reading = Reading { question, addresses: Vec::new(), aliases: Vec::new(), foreign: 0 };
    if opcode != 0 || rcode != 0 || class != 1 || ![1, 28, 255].contains(&asked) {
        return Some(reading);
    }
    let mut records = records(message, after + 4)?;
    records.retain(|record| record.class == 1);
    if elsewhere == Elsewhere::MustBeGood && !records.iter().all(is_good) {
        return None;
    }
    let is_wanted = |kind: u16| [1, 28].contains(&kind) && (asked == kind || asked == 255);

    let mut owner = reading.question.clone();
    let mut lowest = u32::MAX;
    loop {
        let own: Vec<&Record> = records.iter().filter(|record| record.owner.as_ref() == Some(&owner)).collect();
        for record in own.iter().filter(|record| is_wanted(record.kind)) {
            reading.addresses.push((address(record)?, lowest.min(record.ttl)));
        }
        let aliases: Vec<&&Record> = own.iter().filter(|record| record.kind == 5).collect();
        let Some(first) = aliases.first() else { break };
        let target = first.target.clone()?;
        if aliases.iter().any(|alias| alias.target.as_ref() != Some(&target)) {
            return None;
        }
        lowest = aliases.iter().map(|alias| alias.ttl).chain([lowest]).min()?;
        if reading.aliases.len() == MOST_LINKS || reading.question == target || reading.aliases.contains(&target) {
            return None;
        }
        reading.aliases.push(target.clone());
        owner = target;
    }
    reading.foreign = records.iter().filter(|record| is_wanted(record.kind)).count() - reading.addresses.len();
    Some(reading)
}

fn is_good(record: &Record) -> bool {
    record.owner.is_some()
        && match record.kind {
            1 | 28 => address(record).is_some(),
            5 => record.target.is_some(),
            _ => true,
        }
}

fn address(record: &Record) -> Option<IpAddr> {
    match record.kind {
        1 => <[u8; 4]>::try_from(record.data.clone()).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(record.data.clone()).ok().map(IpAddr::from),
    }
}

pub(crate) fn records(message: &[u8], mut at: usize) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    for _ in 0..number(message, 6)? {
        let (owner, after) = name_at(message, at)?;
        let (kind, class) = (number(message, after)?, number(message, after + 2)?);
        let ttl = u32::from(number(message, after + 4)?) * 65_536 + u32::from(number(message, after + 6)?);
        // RFC 2181 §8.
        let ttl = if ttl >= 0x8000_0000 { 0 } else { ttl };
        let start = after + 10;
        let end = start + usize::from(number(message, after + 8)?);
        let data = message.get(start..end)?.to_vec();
        let target = (kind == 5).then(|| name_at(message, start)).flatten();
        let target = target.filter(|(_, after)| *after == end).and_then(|(target, _)| target);
        records.push(Record { owner, kind, class, ttl, data, target });
        at = end;
    }
    Some(records)
}

pub(crate) fn number(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from(*message.get(at)?) * 256 + u16::from(*message.get(at + 1)?))
}

/// The name, if it is a good one, and where it ends; none if not even that can be told.
pub(crate) fn name_at(message: &[u8], start: usize) -> Option<(Option<Labels>, usize)> {
    let mut at = start;
    loop {
        match *message.get(at)? {
            0 => return Some((follow(message, start), at + 1)),
            length @ 1..=63 => at += 1 + usize::from(length),
            64..=191 => return None,
            192..=255 => {
                message.get(at + 1)?;
                return Some((follow(message, start), at + 2));
            }
        }
    }
}

/// All labels in lower case, over pointers that lead before the place the last one led to, and behind the header.
fn follow(message: &[u8], start: usize) -> Option<Labels> {
    let mut labels = Labels::new();
    let (mut at, mut before, mut pointers) = (start, start, 0);
    loop {
        match *message.get(at)? {
            0 => break,
            length @ 1..=63 => {
                let after = at + 1 + usize::from(length);
                labels.push(message.get(at + 1..after)?.to_ascii_lowercase());
                at = after;
            }
            64..=191 => return None,
            192..=255 => {
                let target = usize::from(number(message, at)? % 0x4000);
                pointers += 1;
                if target < 12 || target >= before || pointers > MOST_POINTERS {
                    return None;
                }
                (at, before) = (target, target);
            }
        }
    }
    let length: usize = labels.iter().map(|label| label.len() + 1).sum();
    (length < 255).then_some(labels)
}
