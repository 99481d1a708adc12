//! Records as they are written: `www 300 IN A 192.0.2.1`.

use crate::data::data;
use crate::name::wire;
use crate::words::{Word, entries};
use domain::base::iana::Rtype;
use namewall_dns::wire::RecordType;
use std::str::FromStr;

pub(crate) const NS: RecordType = RecordType(2);
pub(crate) const CNAME: RecordType = RecordType(5);
pub(crate) const SOA: RecordType = RecordType(6);
const MX: RecordType = RecordType(15);
const SRV: RecordType = RecordType(33);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// On the wire, as it was written.
    pub owner: Vec<u8>,
    pub kind: RecordType,
    pub class: u16,
    pub ttl: u32,
    pub data: Vec<u8>,
}

impl Record {
    /// The name it leads to, if it leads to one.
    pub(crate) fn target(&self) -> Option<&[u8]> {
        match self.kind {
            NS | CNAME => Some(&self.data),
            MX => self.data.get(2..),
            SRV => self.data.get(6..),
            _ => None,
        }
    }
}

/// What a record has that its line does not say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults<'a> {
    pub(crate) origin: &'a [u8],
    pub(crate) owner: Option<&'a [u8]>,
    pub(crate) ttl: Option<u32>,
}

/// The one record of a text, with whole names.
pub fn parse_one(text: &str) -> Result<Record, String> {
    let entries = entries(text.trim_start()).map_err(|(_, why)| why)?;
    match &entries[..] {
        // As in CoreDNS, a name without a dot at its end is whole all the same.
        [entry] => parse(&entry.words, false, Defaults { origin: &[0], owner: None, ttl: Some(3_600) }),
        _ => Err("expected one record".to_owned()),
    }
}

/// `[OWNER] [TTL] [CLASS] TYPE DATA…`, the TTL before the class or behind it.
pub(crate) fn parse(words: &[Word], is_indented: bool, defaults: Defaults<'_>) -> Result<Record, String> {
    let mut rest = words;
    let owner = match words.split_first() {
        Some((first, after)) if !is_indented => {
            rest = after;
            wire(&first.text, defaults.origin)?
        }
        _ => defaults.owner.ok_or("the first record has no owner")?.to_vec(),
    };
    let (mut own_ttl, mut class) = (None, None);
    let kind = loop {
        let (word, after) = rest.split_first().ok_or("a record is `OWNER [TTL] [CLASS] TYPE DATA…`")?;
        rest = after;
        let is_number = word.text.starts_with(|letter: char| letter.is_ascii_digit());
        match class_of(&word.text) {
            Some(named) if class.is_none() => class = Some(named),
            _ if is_number && own_ttl.is_none() => own_ttl = Some(ttl(&word.text)?),
            _ => break kind_of(&word.text)?,
        }
    };
    let ttl = own_ttl.or(defaults.ttl).ok_or("it has no TTL, and no `$TTL` stands before it")?;
    let data = data(kind, rest, defaults.origin)?;
    Ok(Record { owner, kind: RecordType(kind.to_int()), class: class.unwrap_or(1), ttl, data })
}

fn class_of(word: &str) -> Option<u16> {
    match &*word.to_ascii_uppercase() {
        "IN" => Some(1),
        "CH" => Some(3),
        "HS" => Some(4),
        _ => None,
    }
}

/// A type that records have. Types of questions and of messages have no place in a zone.
fn kind_of(word: &str) -> Result<Rtype, String> {
    let kind = Rtype::from_str(word).map_err(|_| {
        format!("`{word}` is no type of record; write its name, like `AAAA`, or `TYPE` and its number (RFC 3597)")
    })?;
    match kind.to_int() {
        0 | 41 | 128..=255 => Err(format!("`{word}` is no type that a record in a zone has")),
        _ => Ok(kind),
    }
}

/// Seconds, or `1h30m`.
pub(crate) fn ttl(text: &str) -> Result<u32, String> {
    let wrong = || format!("`{text}` is no TTL: write seconds, or times like `1h30m`");
    let (mut all, mut number) = (0u32, None::<u32>);
    for letter in text.chars() {
        let unit = match letter.to_ascii_lowercase() {
            digit @ '0'..='9' => {
                let digit = digit.to_digit(10).ok_or_else(wrong)?;
                let more = number.unwrap_or(0).checked_mul(10).and_then(|number| number.checked_add(digit));
                number = Some(more.ok_or_else(wrong)?);
                continue;
            }
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            'w' => 604_800,
            _ => return Err(wrong()),
        };
        let more = number.take().and_then(|number| number.checked_mul(unit)).and_then(|more| all.checked_add(more));
        all = more.ok_or_else(wrong)?;
    }
    let all = all.checked_add(number.unwrap_or(0)).ok_or_else(wrong)?;
    // RFC 2181 §8: the highest bit is not used.
    if text.is_empty() || all > i32::MAX as u32 { Err(wrong()) } else { Ok(all) }
}
