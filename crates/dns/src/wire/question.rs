//! What a message asks.

use super::name::NameSpan;
use super::{HEADER, Header, Name, WireError, u16_at};
use namewall_policy::dns_codes::TYPES;
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RecordType(pub u16);

impl RecordType {
    pub const A: Self = Self(1);
    pub const NS: Self = Self(2);
    pub const CNAME: Self = Self(5);
    pub const AAAA: Self = Self(28);
    pub const ANY: Self = Self(255);
}

impl RecordType {
    /// The name that IANA has given the type: `A`. Others are written `TYPE` and their number (RFC 3597).
    pub fn name(self) -> Option<&'static str> {
        TYPES.name(self.0)
    }

    /// The type with this name in any case, or written as `TYPE` and a number.
    pub fn named(name: &str) -> Option<Self> {
        TYPES.number(name).map(Self)
    }
}

impl fmt::Display for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&TYPES.text(self.0))
    }
}

/// The class of everything on the Internet.
pub(super) const IN: u16 = 1;

/// A question. Two are the same in whatever case they are written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    pub name: Name,
    pub record_type: RecordType,
    pub class: u16,
}

impl Question {
    /// Bytes of a question behind its name: type and class.
    pub(crate) const AFTER_NAME: usize = 4;

    /// Reads the one question of a message; gives it and where its name stands: the records begin
    /// [`Self::AFTER_NAME`] bytes behind that.
    pub(super) fn read(message: &[u8], header: &Header) -> Result<(Self, NameSpan), WireError> {
        if header.questions != 1 {
            return Err(WireError::Questions(header.questions));
        }
        let (name, place) = Name::read_with_place(message, HEADER)?;
        let (record_type, class) =
            (RecordType(u16_at(message, place.end)?), u16_at(message, place.end.saturating_add(2))?);
        Ok((Self { name, record_type, class }, place))
    }

    /// Where the question of a query ends (RFC 9619: there is exactly one). Its name has no pointers:
    /// there is nothing before it they could lead to.
    pub fn end(query: &[u8]) -> Result<usize, WireError> {
        let header = Header::read(query)?;
        if header.is_answer {
            return Err(WireError::NotAQuery);
        }
        if header.questions != 1 {
            return Err(WireError::Questions(header.questions));
        }
        let mut at = HEADER;
        loop {
            match *query.get(at).ok_or(WireError::Short)? {
                0 => break,
                length @ 1..64 => at = at.saturating_add(1).saturating_add(usize::from(length)),
                _ => return Err(WireError::Label),
            }
            if at.saturating_sub(HEADER) >= Name::LONGEST {
                return Err(WireError::LongName);
            }
        }
        let end = at.saturating_add(1).saturating_add(Self::AFTER_NAME);
        if end > query.len() { Err(WireError::Short) } else { Ok(end) }
    }

    /// What a query asks.
    pub fn of_query(query: &[u8]) -> Result<Self, WireError> {
        let header = Header::read(query)?;
        if header.is_answer {
            return Err(WireError::NotAQuery);
        }
        Ok(Self::read(query, &header)?.0)
    }

    /// The question an answer repeats.
    pub fn of_answer(answer: &[u8]) -> Result<Self, WireError> {
        let header = Header::read(answer)?;
        if !header.is_answer {
            return Err(WireError::NotAnAnswer);
        }
        Ok(Self::read(answer, &header)?.0)
    }

    /// True if an answer repeats the question of a query, in whatever case, and the opcode (S6.1).
    pub fn is_repeated(query: &[u8], answer: &[u8]) -> bool {
        let (Ok(end), Ok(asked), Ok(told)) = (Self::end(query), Header::read(query), Header::read(answer)) else {
            return false;
        };
        let (Some(own), Some(same)) = (query.get(HEADER..end), answer.get(HEADER..end)) else { return false };
        // Type and class are compared as they are: they may look like letters.
        let name = own.len().saturating_sub(Self::AFTER_NAME);
        let (Some((name, rest)), Some((same, others))) = (own.split_at_checked(name), same.split_at_checked(name))
        else {
            return false;
        };
        told.is_answer
            && told.opcode == asked.opcode
            && told.questions == 1
            && same.eq_ignore_ascii_case(name)
            && others == rest
    }

    /// Writes the name of a message's question as it is spelled here. The name must be the same but for letter case.
    pub(crate) fn spell(message: &mut [u8], name: &[u8]) {
        let place = message.get_mut(HEADER..).and_then(|rest| rest.get_mut(..name.len()));
        if let Some(place) = place.filter(|place| place.eq_ignore_ascii_case(name)) {
            place.copy_from_slice(name);
        }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.record_type)
    }
}
