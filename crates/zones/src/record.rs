//! Records as they are written: `www 300 IN A 192.0.2.1`.

use crate::name::{text, wire};
use crate::words::{Word, entries};
use namewall_dns::wire::RecordType;
use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) const NS: RecordType = RecordType(2);
pub(crate) const CNAME: RecordType = RecordType(5);
pub(crate) const SOA: RecordType = RecordType(6);
const MX: RecordType = RecordType(15);
const SRV: RecordType = RecordType(33);

/// Types that can be written by name; others are `TYPE65280 \# 2 00ff` (RFC 3597).
const TYPES: [(&str, u16); 10] = [
    ("A", 1),
    ("AAAA", 28),
    ("CAA", 257),
    ("CNAME", 5),
    ("MX", 15),
    ("NS", 2),
    ("PTR", 12),
    ("SOA", 6),
    ("SRV", 33),
    ("TXT", 16),
];

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
    pub(crate) origin: Option<&'a [u8]>,
    pub(crate) owner: Option<&'a [u8]>,
    pub(crate) ttl: Option<u32>,
}

/// The one record of a text, with whole names.
pub fn parse_one(text: &str) -> Result<Record, String> {
    let entries = entries(text.trim_start()).map_err(|(_, why)| why)?;
    match &entries[..] {
        // As CoreDNS has it: a name without a dot at its end is whole all the same.
        [entry] => parse(&entry.words, false, Defaults { origin: Some(&[0]), owner: None, ttl: Some(3_600) }),
        _ => Err("there is to be one record".to_owned()),
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
    Ok(Record { owner, kind: RecordType(kind), class: class.unwrap_or(1), ttl, data })
}

fn class_of(word: &str) -> Option<u16> {
    match &*word.to_ascii_uppercase() {
        "IN" => Some(1),
        "CH" => Some(3),
        "HS" => Some(4),
        _ => None,
    }
}

fn kind_of(word: &str) -> Result<u16, String> {
    let upper = word.to_ascii_uppercase();
    let known = TYPES.iter().find(|(name, _)| *name == upper).map(|(_, number)| *number);
    known.or_else(|| upper.strip_prefix("TYPE")?.parse().ok()).ok_or_else(|| {
        let names: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
        format!("`{word}` is no type that is read; there are {}, and `TYPE` with a number and `\\#`", names.join(", "))
    })
}

/// Seconds, or `1h30m`.
pub(crate) fn ttl(text: &str) -> Result<u32, String> {
    let wrong = || format!("`{text}` is no TTL");
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

fn data(kind: u16, words: &[Word], origin: Option<&[u8]>) -> Result<Vec<u8>, String> {
    let texts: Vec<&str> = words.iter().map(|word| &*word.text).collect();
    let name = |text: &str| wire(text, origin);
    let number = |text: &str| text.parse::<u16>().map_err(|_| format!("`{text}` is no number up to 65535"));
    let of = |usage: &str| Err(format!("its data are to be `{usage}`"));
    Ok(match (kind, &texts[..]) {
        (_, [mark, length, hex @ ..]) if *mark == "\\#" => generic(length, hex)?,
        (1, [address]) => {
            address.parse::<Ipv4Addr>().map_err(|_| format!("`{address}` is no IPv4 address"))?.octets().to_vec()
        }
        (28, [address]) => {
            address.parse::<Ipv6Addr>().map_err(|_| format!("`{address}` is no IPv6 address"))?.octets().to_vec()
        }
        (2 | 5 | 12, [target]) => name(target)?,
        (15, [preference, exchange]) => [number(preference)?.to_be_bytes().to_vec(), name(exchange)?].concat(),
        (33, [priority, weight, port, target]) => {
            let numbers = [number(priority)?, number(weight)?, number(port)?];
            [numbers.iter().flat_map(|number| number.to_be_bytes()).collect(), name(target)?].concat()
        }
        (6, [server, mailbox, serial, times @ ..]) if times.len() == 4 => {
            let serial: u32 = serial.parse().map_err(|_| format!("`{serial}` is no serial number"))?;
            let mut data = [name(server)?, name(mailbox)?, serial.to_be_bytes().to_vec()].concat();
            for time in times {
                data.extend(ttl(time)?.to_be_bytes());
            }
            data
        }
        (16, [_, ..]) => {
            let pieces = texts.iter().map(|piece| text(piece)).collect::<Result<Vec<_>, _>>()?;
            pieces.iter().flat_map(|piece| [&[piece.len() as u8][..], piece].concat()).collect()
        }
        (257, [flags, tag, value]) => {
            let flags: u8 = flags.parse().map_err(|_| format!("`{flags}` is no number up to 255"))?;
            let (tag, value) = (text(tag)?, text(value)?);
            [&[flags, tag.len() as u8][..], &tag, &value].concat()
        }
        (1, _) => return of("ADDRESS"),
        (28, _) => return of("IPV6-ADDRESS"),
        (2 | 5 | 12, _) => return of("NAME"),
        (15, _) => return of("PREFERENCE NAME"),
        (33, _) => return of("PRIORITY WEIGHT PORT NAME"),
        (6, _) => return of("SERVER MAILBOX SERIAL REFRESH RETRY EXPIRE MINIMUM"),
        (16, _) => return of("TEXT…"),
        (257, _) => return of("FLAGS TAG VALUE"),
        _ => return of("\\# LENGTH HEXADECIMAL…"),
    })
}

fn generic(length: &str, hex: &[&str]) -> Result<Vec<u8>, String> {
    let digits: Vec<u8> = hex.concat().into_bytes();
    let pair = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(|two| pair(two).filter(|_| two.len() == 2)).collect();
    let bytes = bytes.ok_or("what follows `\\#` is the length and pairs of hexadecimal digits")?;
    if length.parse() != Ok(bytes.len()) || bytes.len() > usize::from(u16::MAX) {
        return Err(format!("`\\# {length}` is followed by {} bytes", bytes.len()));
    }
    Ok(bytes)
}
