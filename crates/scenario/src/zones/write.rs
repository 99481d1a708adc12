//! Messages as bytes (RFC 1035, section 4), with names compressed or not.

use super::message::{CLASS_IN, Message, Question, flag};
use super::name::Name;
use super::record::{Data, Record, RecordType};
use std::collections::BTreeMap;

/// What a pointer can reach.
const REACH: usize = 0x4000;
const POINTER: u16 = 0xc000;
/// An OPT record without options.
const OPT: usize = 11;
/// What a stream can carry; nothing that is written may be longer.
pub(crate) const LONGEST: usize = 0xffff;

/// How a message is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub compress: bool,
    /// What does not fit is left out, and the message says so.
    pub limit: usize,
}

impl Default for Style {
    fn default() -> Self {
        Self { compress: true, limit: LONGEST }
    }
}

struct Writer {
    bytes: Vec<u8>,
    compress: bool,
    /// Where names and their ends were written, by their labels in lower case.
    known: BTreeMap<Vec<u8>, u16>,
}

pub(crate) fn write(message: &Message, style: Style) -> Vec<u8> {
    let mut writer = Writer { bytes: vec![0; 12], compress: style.compress, known: BTreeMap::new() };
    if let Some(question) = &message.question {
        writer.question(question);
    }
    let room = style.limit.saturating_sub(message.edns.map_or(0, |_| OPT));
    let mut counts = [0u16; 3];
    let sections = [&message.answer, &message.authority, &message.additional];
    let all = sections.into_iter().enumerate().flat_map(|(at, section)| section.iter().map(move |record| (at, record)));
    let mut left_out = None;
    for (at, record) in all {
        if !writer.fits(record, room) {
            left_out = Some(at);
            break;
        }
        counts[at] += 1;
    }
    // What is additional may be missing without a word (RFC 2181, section 9).
    let truncated = message.truncated || left_out.is_some_and(|section| section < 2);
    if let Some(size) = message.edns {
        writer.bytes.push(0);
        writer.number(RecordType::OPT.0);
        writer.number(size);
        writer.bytes.extend([0; 6]);
        counts[2] += 1;
    }
    let flags = message.flags & !flag::TRUNCATED | if truncated { flag::TRUNCATED } else { 0 };
    let flags = flags & !0xf | u16::from(message.rcode.0 & 0xf);
    let questions = u16::from(message.question.is_some());
    let header = [message.id, flags, questions, counts[0], counts[1], counts[2]];
    for (at, number) in header.into_iter().enumerate() {
        writer.bytes[2 * at..2 * at + 2].copy_from_slice(&number.to_be_bytes());
    }
    writer.bytes
}

impl Writer {
    fn number(&mut self, number: u16) {
        self.bytes.extend(number.to_be_bytes());
    }

    fn question(&mut self, question: &Question) {
        self.name(&question.name);
        self.number(question.kind.0);
        self.number(question.class);
    }

    /// Writes the record, unless it would not fit.
    fn fits(&mut self, record: &Record, room: usize) -> bool {
        let start = self.bytes.len();
        self.record(record);
        let fits = self.bytes.len() <= room;
        if !fits {
            self.bytes.truncate(start);
            self.known.retain(|_, at| usize::from(*at) < start);
        }
        fits
    }

    fn record(&mut self, record: &Record) {
        self.name(&record.owner);
        self.number(record.data.kind().0);
        self.number(CLASS_IN);
        self.bytes.extend(record.ttl.to_be_bytes());
        let length_at = self.bytes.len();
        self.number(0);
        match &record.data {
            Data::A(address) => self.bytes.extend(address.octets()),
            Data::Aaaa(address) => self.bytes.extend(address.octets()),
            Data::Name(_, target) => self.name(target),
            Data::Mx(preference, host) => {
                self.number(*preference);
                self.name(host);
            }
            Data::Soa(server, keeper, numbers) => {
                self.name(server);
                self.name(keeper);
                numbers.iter().for_each(|number| self.bytes.extend(number.to_be_bytes()));
            }
            Data::Raw(_, bytes) => self.bytes.extend(bytes),
        }
        let length = (self.bytes.len() - length_at - 2).min(LONGEST) as u16;
        self.bytes[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    }

    fn name(&mut self, name: &Name) {
        let mut labels = name.labels();
        while let [label, rest @ ..] = labels {
            let key: Vec<u8> = labels.iter().flat_map(|label| with_length(label)).collect();
            if let Some(&at) = self.known.get(&key.to_ascii_lowercase()).filter(|_| self.compress) {
                self.number(POINTER | at);
                return;
            }
            if self.bytes.len() < REACH {
                self.known.insert(key.to_ascii_lowercase(), self.bytes.len() as u16);
            }
            self.bytes.extend(with_length(label));
            labels = rest;
        }
        self.bytes.push(0);
    }
}

fn with_length(label: &[u8]) -> impl Iterator<Item = u8> {
    std::iter::once(label.len() as u8).chain(label.iter().copied())
}
