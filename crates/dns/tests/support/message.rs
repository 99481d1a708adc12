//! Messages written as lines of a zone file (RFC 1035 §5.1), so that a test
//! reads as what it says. What no zone can hold is written in the generic form
//! of RFC 3597 §5: `www.example 30 A \# 3 c00002` is an A record of three bytes.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) type Labels = Vec<Vec<u8>>;

/// How names are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packing {
    Plain,
    /// With pointers to what was written before, wherever there is something (RFC 1035 §4.1.4).
    Compressed,
}

/// One record, ready to be written.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) owner: Labels,
    pub(crate) kind: u16,
    pub(crate) class: u16,
    pub(crate) ttl: u32,
    pub(crate) data: Data,
}

#[derive(Clone, Debug)]
pub(crate) enum Data {
    Bytes(Vec<u8>),
    Name(Labels),
}

/// The labels of a name in the form of a zone file: `a\.b` is one label, `\000` a byte.
pub(crate) fn labels(text: &str) -> Labels {
    let mut labels = vec![Vec::new()];
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let last = labels.last_mut().unwrap();
        match byte {
            b'.' => labels.push(Vec::new()),
            b'\\' => match bytes.next().unwrap() {
                digit @ b'0'..=b'9' => {
                    let digits = [digit, bytes.next().unwrap(), bytes.next().unwrap()];
                    last.push(digits.iter().fold(0, |number, digit| number * 10 + (digit - b'0')));
                }
                other => last.push(other),
            },
            _ => last.push(byte),
        }
    }
    labels.retain(|label| !label.is_empty());
    labels
}

/// A name without pointers.
pub(crate) fn name(text: &str) -> Vec<u8> {
    let mut writer = Writer { bytes: Vec::new(), packing: Packing::Plain, known: Vec::new() };
    writer.name(&labels(text));
    writer.bytes
}

/// `A` or `TYPE1`, `IN` or `CLASS1`.
fn number(word: &str, prefix: &str, known: &[(&str, u16)]) -> Option<u16> {
    let written = word.strip_prefix(prefix).and_then(|number| number.parse().ok());
    written.or_else(|| known.iter().find(|(name, _)| *name == word).map(|(_, number)| *number))
}

fn record_type(word: &str) -> Option<u16> {
    let known =
        [("A", 1), ("NS", 2), ("CNAME", 5), ("SOA", 6), ("HINFO", 13), ("TXT", 16), ("AAAA", 28), ("DNAME", 39)];
    number(word, "TYPE", &known).or((word == "ANY").then_some(255))
}

fn class(word: &str) -> Option<u16> {
    number(word, "CLASS", &[("IN", 1), ("CH", 3), ("HS", 4), ("NONE", 254)])
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).unwrap()).collect()
}

/// `OWNER TTL [CLASS] TYPE DATA`
impl From<&str> for Record {
    fn from(line: &str) -> Self {
        let mut words = line.split_whitespace().peekable();
        let (owner, ttl) = (labels(words.next().unwrap()), words.next().unwrap().parse().unwrap());
        let class = words.next_if(|word| class(word).is_some()).and_then(class).unwrap_or(1);
        let kind = record_type(words.next().unwrap()).unwrap_or_else(|| panic!("no type in `{line}`"));
        let first = words.next().unwrap_or_default();
        let data = match (first, kind) {
            ("\\#", _) => Data::Bytes(hex(words.nth(1).unwrap_or_default())),
            (_, 1) => Data::Bytes(first.parse::<Ipv4Addr>().unwrap().octets().into()),
            (_, 28) => Data::Bytes(first.parse::<Ipv6Addr>().unwrap().octets().into()),
            (_, 2 | 5 | 39) => Data::Name(labels(first)),
            _ => Data::Bytes([&[first.len() as u8], first.as_bytes()].concat()),
        };
        Self { owner, kind, class, ttl, data }
    }
}

/// Writes an answer, record by record.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
    packing: Packing,
    known: Vec<(Labels, u16)>,
}

impl Writer {
    /// An answer of no records yet to `NAME TYPE [CLASS]`.
    pub(crate) fn answer(question: &str, packing: Packing) -> Self {
        let words: Vec<&str> = question.split_whitespace().collect();
        let class = words.get(2).map_or(1, |word| class(word).unwrap());
        Self::asked(&labels(words[0]), record_type(words[1]).unwrap(), class, packing)
    }

    pub(crate) fn asked(name: &Labels, kind: u16, class: u16, packing: Packing) -> Self {
        let bytes = vec![0x12, 0x34, 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0];
        let mut writer = Self { bytes, packing, known: Vec::new() };
        writer.name(name);
        writer.u16(kind);
        writer.u16(class);
        writer
    }

    pub(crate) fn record(&mut self, record: &Record) {
        self.name(&record.owner);
        self.u16(record.kind);
        self.u16(record.class);
        self.bytes.extend_from_slice(&record.ttl.to_be_bytes());
        let length_at = self.bytes.len();
        self.u16(0);
        match &record.data {
            Data::Bytes(bytes) => self.bytes.extend_from_slice(bytes),
            Data::Name(name) => self.name(name),
        }
        let length = (self.bytes.len() - length_at - 2) as u16;
        self.bytes[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
        let count = u16::from_be_bytes([self.bytes[6], self.bytes[7]]) + 1;
        self.bytes[6..8].copy_from_slice(&count.to_be_bytes());
    }

    fn u16(&mut self, number: u16) {
        self.bytes.extend_from_slice(&number.to_be_bytes());
    }

    fn name(&mut self, labels: &Labels) {
        for (at, label) in labels.iter().enumerate() {
            let rest = &labels[at..];
            let seen = self.known.iter().find(|(known, _)| known == rest).map(|(_, at)| *at);
            if let Some(seen) = seen.filter(|_| self.packing == Packing::Compressed) {
                return self.u16(0xc000 | seen);
            }
            if self.bytes.len() < 0x4000 {
                self.known.push((rest.to_vec(), self.bytes.len() as u16));
            }
            self.bytes.push(label.len() as u8);
            self.bytes.extend_from_slice(label);
        }
        self.bytes.push(0);
    }
}

/// A whole answer.
pub(crate) fn written(question: &str, records: &[&str], packing: Packing) -> Vec<u8> {
    let mut writer = Writer::answer(question, packing);
    records.iter().for_each(|&line| writer.record(&line.into()));
    writer.bytes
}
