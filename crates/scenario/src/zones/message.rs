//! A message, queries and answers alike, as a plain value; and its bytes read
//! back. `write` is the other way.

use super::name::Name;
use super::record::{Data, Rcode, Record, RecordType};
use super::write::{Style, write};
use std::net::IpAddr;

pub(crate) const CLASS_IN: u16 = 1;
const HEADER: usize = 12;
/// The pointers of a name lead backwards, so there cannot be more of them than bytes; this many nobody needs.
const POINTERS: usize = 128;

pub(crate) mod flag {
    pub(crate) const RESPONSE: u16 = 0x8000;
    pub(crate) const OPCODE: u16 = 0x7800;
    pub(crate) const AUTHORITATIVE: u16 = 0x0400;
    pub(crate) const TRUNCATED: u16 = 0x0200;
    pub(crate) const RECURSION_DESIRED: u16 = 0x0100;
    pub(crate) const RECURSION_AVAILABLE: u16 = 0x0080;
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    pub name: Name,
    pub kind: RecordType,
    pub class: u16,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub id: u16,
    /// As in the header, but for the rcode and whether it is truncated.
    pub flags: u16,
    pub rcode: Rcode,
    pub truncated: bool,
    pub question: Option<Question>,
    pub answer: Vec<Record>,
    pub authority: Vec<Record>,
    /// Without the OPT record.
    pub additional: Vec<Record>,
    /// EDNS0, and the size of UDP messages its sender takes.
    pub edns: Option<u16>,
}

/// Bytes that are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are no DNS message (at byte {0})")]
pub struct Malformed(pub usize);

impl Message {
    pub fn query(id: u16, name: Name, kind: RecordType) -> Self {
        Self {
            id,
            flags: flag::RECURSION_DESIRED,
            rcode: Rcode::NOERROR,
            truncated: false,
            question: Some(Question { name, kind, class: CLASS_IN }),
            answer: Vec::new(),
            authority: Vec::new(),
            additional: Vec::new(),
            edns: None,
        }
    }

    pub fn is_response(&self) -> bool {
        self.flags & flag::RESPONSE != 0
    }

    /// Whether it is a response to that query: its id, and its question whatever the case.
    pub fn answers(&self, query: &Self) -> bool {
        self.is_response() && self.id == query.id && self.question == query.question && self.question.is_some()
    }

    /// Every address in the answer, whoever's it is.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.answer.iter().filter_map(|record| record.data.address())
    }

    /// As bytes, whole, and compressed.
    pub fn write(&self) -> Vec<u8> {
        write(self, Style::default())
    }

    /// Reads one question at most, and records of the class IN alone.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader { bytes, at: 0 };
        let [id, flags, questions, answers, authorities, additionals] = {
            let mut header = [0; HEADER / 2];
            for number in &mut header {
                *number = reader.number()?;
            }
            header
        };
        let question = match questions {
            0 => None,
            1 => Some(Question { name: reader.name()?, kind: RecordType(reader.number()?), class: reader.number()? }),
            _ => return Err(Malformed(4)),
        };
        let mut edns = None;
        let mut section = |count: u16| {
            let mut records = Vec::new();
            for _ in 0..count {
                match reader.record()? {
                    MessageRecord::Record(record) => records.push(record),
                    MessageRecord::Opt(size) => edns = Some(size),
                }
            }
            Ok(records)
        };
        let (answer, authority, additional) = (section(answers)?, section(authorities)?, section(additionals)?);
        if reader.at != bytes.len() {
            return Err(Malformed(reader.at));
        }
        Ok(Self {
            id,
            flags: flags & !flag::TRUNCATED & !0xf,
            rcode: Rcode((flags & 0xf) as u8),
            truncated: flags & flag::TRUNCATED != 0,
            question,
            answer,
            authority,
            additional,
            edns,
        })
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

enum MessageRecord {
    Record(Record),
    Opt(u16),
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let taken = self.bytes.get(self.at..self.at + length).ok_or(Malformed(self.at))?;
        self.at += length;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u16, Malformed> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn long_number(&mut self) -> Result<u32, Malformed> {
        Ok((u32::from(self.number()?) << 16) | u32::from(self.number()?))
    }

    fn name(&mut self) -> Result<Name, Malformed> {
        let mut labels = Vec::new();
        // Where reading goes on after the first pointer.
        let mut after = None;
        for _ in 0..POINTERS {
            let start = self.at;
            let length = usize::from(self.take(1)?[0]);
            match length >> 6 {
                0 if length == 0 => {
                    self.at = after.unwrap_or(self.at);
                    return Name::from_labels(labels).ok_or(Malformed(start));
                }
                0 => labels.push(self.take(length)?.into()),
                3 => {
                    let to = ((length & 0x3f) << 8) | usize::from(self.take(1)?[0]);
                    after.get_or_insert(self.at);
                    if to >= start {
                        return Err(Malformed(start));
                    }
                    self.at = to;
                }
                _ => return Err(Malformed(start)),
            }
        }
        Err(Malformed(self.at))
    }

    fn record(&mut self) -> Result<MessageRecord, Malformed> {
        let owner = self.name()?;
        let (kind, class) = (RecordType(self.number()?), self.number()?);
        let ttl = self.long_number()?;
        let length = usize::from(self.number()?);
        let end = self.at + length;
        if end > self.bytes.len() {
            return Err(Malformed(self.at));
        }
        if kind == RecordType::OPT {
            self.at = end;
            return Ok(MessageRecord::Opt(class));
        }
        // An address of another class is none of the Internet's.
        if class != CLASS_IN {
            return Err(Malformed(self.at));
        }
        let data = self.data(kind, length)?;
        if self.at != end { Err(Malformed(self.at)) } else { Ok(MessageRecord::Record(Record { owner, ttl, data })) }
    }

    fn data(&mut self, kind: RecordType, length: usize) -> Result<Data, Malformed> {
        let at = self.at;
        let wrong = |_| Malformed(at);
        Ok(match kind {
            RecordType::A => Data::A(<[u8; 4]>::try_from(self.take(length)?).map_err(wrong)?.into()),
            RecordType::AAAA => Data::Aaaa(<[u8; 16]>::try_from(self.take(length)?).map_err(wrong)?.into()),
            RecordType::CNAME | RecordType::NS | RecordType::PTR => Data::Name(kind, self.name()?),
            RecordType::MX => Data::Mx(self.number()?, self.name()?),
            RecordType::SOA => {
                let (server, keeper) = (self.name()?, self.name()?);
                let mut numbers = [0; 5];
                for number in &mut numbers {
                    *number = self.long_number()?;
                }
                Data::Soa(server, keeper, numbers)
            }
            _ => Data::Raw(kind, self.take(length)?.to_vec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compressed_and_read_back() {
        let query = Message::query(7, "WWW.example.com".parse().unwrap(), RecordType::A);
        assert_eq!(Message::read(&query.write()), Ok(query.clone()));
        let record = |text: &str| text.parse::<Record>().unwrap();
        let answer = vec![record("www.example.com 30 CNAME api.EXAMPLE.com"), record("api.example.com 5 A 192.0.2.1")];
        let message = Message { flags: flag::RESPONSE, answer, edns: Some(1232), ..query.clone() };
        let (short, long) = (message.write(), write(&message, Style { compress: false, ..Style::default() }));
        assert!(short.len() + 30 < long.len(), "{} and {}", short.len(), long.len());
        assert_eq!(Message::read(&short), Ok(message.clone()));
        assert_eq!(Message::read(&long), Ok(message.clone()));
        assert!(message.answers(&query));
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        let query = Message::query(7, "a.example".parse().unwrap(), RecordType::A).write();
        for length in 0..query.len() {
            assert!(Message::read(&query[..length]).is_err(), "{length}");
        }
        let to_itself = [&query[..12], &[0xc0, 12, 0, 1, 0, 1]].concat();
        assert_eq!(Message::read(&to_itself), Err(Malformed(12)));
        let ahead = [&query[..12], &[0xc0, 14, 0, 0, 1, 0, 1]].concat();
        assert!(Message::read(&ahead).is_err());
        assert!(Message::read(&[&query[..], b"more"].concat()).is_err());
    }
}
