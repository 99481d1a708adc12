//! The twelve bytes every message begins with.

use super::WireError;
use namewall_policy::dns_codes::RCODES;
use std::fmt;

/// Bytes of a header.
pub const HEADER: usize = 12;

/// The answer's outcome, without the bits EDNS0 adds to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rcode(pub u8);

impl Rcode {
    pub const NO_ERROR: Self = Self(0);
    pub const FORM_ERR: Self = Self(1);
    pub const SERV_FAIL: Self = Self(2);
    pub const NX_DOMAIN: Self = Self(3);
    pub const NOT_IMP: Self = Self(4);
    pub const REFUSED: Self = Self(5);
}

impl fmt::Display for Rcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&RCODES.text(self.0.into()))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub id: u16,
    pub is_answer: bool,
    pub opcode: u8,
    pub is_truncated: bool,
    pub rcode: Rcode,
    pub questions: u16,
    pub answers: u16,
}

impl Header {
    pub fn read(message: &[u8]) -> Result<Self, WireError> {
        let header = message.first_chunk::<HEADER>().ok_or(WireError::Short)?;
        let [id0, id1, flags, code, questions0, questions1, answers0, answers1, ..] = *header;
        Ok(Self {
            id: u16::from_be_bytes([id0, id1]),
            is_answer: flags & 0x80 != 0,
            opcode: flags >> 3 & 0x0f,
            is_truncated: flags & 0x02 != 0,
            rcode: Rcode(code & 0x0f),
            questions: u16::from_be_bytes([questions0, questions1]),
            answers: u16::from_be_bytes([answers0, answers1]),
        })
    }

    /// Puts another id on a message that has a header.
    pub fn set_id(message: &mut [u8], id: u16) {
        if let Some(field) = message.get_mut(..2) {
            field.copy_from_slice(&id.to_be_bytes());
        }
    }
}
