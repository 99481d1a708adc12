//! Answers taken apart into records, for directives that write them anew: `kubernetes` adds to an alias what others say
//! of its target, and `rewrite`, `dns64` and `minimal` change records. Nobody else decodes an answer.

use crate::message::text_of;
use crate::reply::{self, Sections};
use namewall_dns::wire::{Name, Rcode, RecordType, Section, WireError, records};
use namewall_zones::Record;

const OPT: RecordType = RecordType(41);

/// The records of an answer, with whole names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) answer: Vec<Record>,
    pub(crate) authority: Vec<Record>,
    pub(crate) additional: Vec<Record>,
}

impl Decoded {
    /// Takes an answer apart. Its OPT record is left out: each answer gets one of its own.
    pub(crate) fn read(message: &[u8]) -> Result<Self, WireError> {
        let mut decoded = Self::default();
        for record in records(message)?.iter().filter(|record| record.kind != OPT) {
            let owner = name(message, record.owner)?;
            // The data stand behind the TTL and their length.
            let start = record.ttl_at.saturating_add(6);
            let data = whole_data(&Place { message, start }, record.kind, record.data)?;
            let read = Record { owner, kind: record.kind, class: record.class, ttl: record.ttl, data };
            match record.section {
                Section::Answer => decoded.answer.push(read),
                Section::Authority => decoded.authority.push(read),
                Section::Additional => decoded.additional.push(read),
            }
        }
        Ok(decoded)
    }
}

/// A name of a message in its own letters.
fn name(message: &[u8], at: usize) -> Result<Vec<u8>, WireError> {
    Ok(Name::read(message, at)?.0.as_bytes().to_vec())
}

/// Where data stand in a message: pointers in them are seen from its beginning.
struct Place<'m> {
    message: &'m [u8],
    start: usize,
}

/// The data of a record. Names in it may be compressed in those types that RFC 1035 has, and in SRV, whose senders may
/// be old (RFC 3597 §4).
fn whole_data(place: &Place<'_>, kind: RecordType, data: &[u8]) -> Result<Vec<u8>, WireError> {
    // Where each name begins, and how many there are.
    let (before, names) = match kind.0 {
        2 | 3 | 4 | 5 | 7 | 8 | 9 | 12 | 39 => (0, 1),
        6 | 14 | 17 => (0, 2),
        15 | 18 | 21 | 36 => (2, 1),
        26 => (2, 2),
        33 => (6, 1),
        _ => return Ok(data.to_vec()),
    };
    let Place { message, start } = *place;
    let end = start + data.len();
    let mut whole = data.get(..before).ok_or(WireError::Data)?.to_vec();
    let mut at = start + before;
    for _ in 0..names {
        let (name, after) = Name::read(message, at)?;
        whole.extend(name.as_bytes());
        at = after;
    }
    whole.extend(message.get(at..end).ok_or(WireError::Data)?);
    Ok(whole)
}

/// An answer to a query with these records, and the flags and the code of another one.
pub(crate) fn encoded(query: &[u8], like: &[u8], decoded: &Decoded) -> Vec<u8> {
    let Decoded { answer, authority, additional } = decoded;
    let sections = Sections { answer, authority, additional, is_elsewhere: true };
    let mut message = reply::with_records(query, Rcode(like.get(3).copied().unwrap_or_default() & 0x0f), sections);
    // AA and TC, and RA, AD and CD.
    for (at, bits) in [(2, 0x06), (3, 0xb0)] {
        if let (Some(own), Some(other)) = (message.get_mut(at), like.get(at)) {
            *own = *own & !bits | other & bits;
        }
    }
    message
}

/// A name on the wire as text, in lower case and with the dot at the end.
pub(crate) fn name_text(wire: &[u8]) -> String {
    Name::read(wire, 0).map_or_else(|_| ".".to_owned(), |(name, _)| text_of(&name))
}

/// A name as text on the wire. None if it is none.
pub(crate) fn name_wire(text: &str) -> Option<Vec<u8>> {
    let (mut wire, mut label) = (Vec::new(), Vec::new());
    let mut bytes = text.bytes();
    let push = |wire: &mut Vec<u8>, label: &mut Vec<u8>| {
        wire.push(u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length))?);
        wire.append(label);
        Some(())
    };
    while let Some(byte) = bytes.next() {
        match byte {
            b'.' if label.is_empty() && text == "." => {}
            b'.' => push(&mut wire, &mut label)?,
            b'\\' => {
                let next = bytes.next()?;
                if next.is_ascii_digit() {
                    let digits = [next, bytes.next()?, bytes.next()?];
                    label.push(std::str::from_utf8(&digits).ok()?.parse().ok()?);
                } else {
                    label.push(next);
                }
            }
            _ => label.push(byte),
        }
    }
    if !label.is_empty() {
        push(&mut wire, &mut label)?;
    }
    wire.push(0);
    (wire.len() <= 255).then_some(wire)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_as_text_and_on_the_wire() {
        for (text, expected) in [
            (".", Some(&b"\0"[..])),
            ("a.example.", Some(b"\x01a\x07example\0")),
            ("a.example", Some(b"\x01a\x07example\0")),
            ("a\\.b.\\009.", Some(b"\x03a.b\x01\x09\0")),
            ("a..b.", None),
            (".a.", None),
            ("a\\", None),
            ("a\\300.", None),
        ] {
            assert_eq!(name_wire(text).as_deref(), expected, "{text}");
        }
        assert_eq!(name_text(b"\x03a.b\x01\x09\0"), "a\\.b.\\009.");
        assert!(name_wire(&"a".repeat(64)).is_none() && name_wire(&"a.".repeat(128)).is_none());
    }

    /// An answer with a compressed alias, an SOA of two compressed names and an OPT record.
    #[test]
    fn names_are_whole_wherever_they_were_compressed() {
        let mut message = b"\0\x07\x81\x80\0\x01\0\x01\0\x01\0\x01\x03www\x07example\x03com\0\0\x01\0\x01".to_vec();
        message.extend(b"\xc0\x0c\0\x05\0\x01\0\0\0\x1e\0\x06\x03cdn\xc0\x10");
        message.extend(b"\xc0\x10\0\x06\0\x01\0\0\0\x1e\0\x1d\x02ns\xc0\x10\x04host\xc0\x10");
        message.extend([0; 17]);
        message.extend(b"\0\0\x29\x04\xd0\0\0\0\0\0\0");
        // The SOA's numbers are five of four bytes.
        let at = message.windows(2).position(|two| two == b"\0\x1d").unwrap();
        message[at + 1] = 5 + 7 + 17;
        let decoded = Decoded::read(&message).unwrap();
        assert_eq!(decoded.answer[0].data, b"\x03cdn\x07example\x03com\0");
        assert_eq!(decoded.answer[0].owner, b"\x03www\x07example\x03com\0");
        assert!(decoded.authority[0].data.starts_with(b"\x02ns\x07example\x03com\0\x04host\x07example\x03com\0\0\0"));
        assert!(decoded.additional.is_empty(), "the OPT record is left out");
        message.truncate(message.len() - 12);
        assert!(Decoded::read(&message).is_err());
    }
}
