//! Messages as they stand on the wire (RFC 1035 §4). Nothing is decoded that
//! is not needed: a query is read as far as its question, an answer as far as
//! the addresses it gives the question's name. Whoever sends the bytes may be
//! hostile: every length is checked, and pointers lead only backwards. No byte from the network can make this code
//! panic: it neither indexes nor calculates without a check.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod answer;
mod edns;
mod header;
mod name;
mod question;
mod records;
pub mod reply;

pub use answer::{Address, Addresses, MOST_LINKS, Unreadable, addresses};
pub use edns::Edns;
pub use header::{HEADER, Header, Rcode};
pub use name::Name;
pub use question::{Question, RecordType};
pub use records::{Record, Section, each_record, records};

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    #[error("the message ends too early")]
    Short,
    #[error("a label is longer than 63 bytes, or of a kind nobody uses")]
    Label,
    #[error("a name is longer than 255 bytes")]
    LongName,
    #[error("a pointer does not lead back to a name")]
    Pointer,
    #[error("it has {0} questions; one is asked at a time")]
    Questions(u16),
    #[error("it is an answer")]
    NotAQuery,
    #[error("it is a query")]
    NotAnAnswer,
    #[error("the data of a record do not fit its type")]
    Data,
}

/// Two bytes at `at`, in network order.
fn u16_at(bytes: &[u8], at: usize) -> Result<u16, WireError> {
    let field = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(WireError::Short)?;
    Ok(u16::from_be_bytes(*field))
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, WireError> {
    let field = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(WireError::Short)?;
    Ok(u32::from_be_bytes(*field))
}

/// Places of the fields of a record, which begin behind its owner's name.
#[derive(Clone, Copy)]
struct Fields {
    kind: usize,
    class: usize,
    ttl: usize,
    length: usize,
    data: usize,
}

impl Fields {
    /// Those behind a name that ends there. A place beyond any message is as good as the end of all memory.
    fn behind(name: usize) -> Self {
        let [kind, class, ttl, length, data] = [0, 2, 4, 8, 10].map(|field: usize| name.saturating_add(field));
        Self { kind, class, ttl, length, data }
    }

    /// Where the record ends.
    fn end(self, message: &[u8]) -> Result<usize, WireError> {
        Ok(self.data.saturating_add(usize::from(u16_at(message, self.length)?)))
    }
}
