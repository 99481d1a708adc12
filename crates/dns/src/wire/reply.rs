//! The answers we give ourselves: only where there is none to pass on.

use super::edns::{Edns, OPT};
use super::{HEADER, Name, Question, Rcode};

/// What we say we take: as much as passes everywhere in one piece.
const PAYLOAD: u16 = 1_232;

/// An answer to `query` without records. The question, the id and the wish for recursion are repeated,
/// and who speaks EDNS0 is told that we do: it might try without otherwise, and lose what it asked for.
pub fn failure(query: &[u8], rcode: Rcode) -> Vec<u8> {
    let mut reply = vec![0; HEADER];
    let Some(header) = query.get(..HEADER) else { return reply };
    reply[..2].copy_from_slice(&header[..2]);
    // An answer, with the query's opcode and RD; RA, since we do forward, and CD as it was (RFC 4035 §3.2.2).
    reply[2] = 0x80 | header[2] & 0x79;
    reply[3] = 0x80 | header[3] & 0x10 | rcode.0 & 0x0f;
    let Ok(end) = Question::end(query) else { return reply };
    reply[5] = 1;
    reply.extend_from_slice(&query[HEADER..end]);
    push_opt(query, &mut reply);
    reply
}

/// Adds our OPT record to an answer without one, if the query has one.
pub fn push_opt(query: &[u8], reply: &mut Vec<u8>) {
    let Some(edns) = Edns::read(query) else { return };
    let Some(count) = reply.get(10..12).map(|count| u16::from_be_bytes([count[0], count[1]]).saturating_add(1)) else {
        return;
    };
    reply[10..12].copy_from_slice(&count.to_be_bytes());
    reply.push(0);
    for field in [OPT, PAYLOAD, 0, edns.flags & 0x8000, 0] {
        reply.extend_from_slice(&field.to_be_bytes());
    }
}

/// An answer as far as it fits the datagram of who asked: if it does not, its client asks again over TCP.
pub fn fit(query: &[u8], answer: Vec<u8>) -> Vec<u8> {
    let room = Edns::read(query).map_or(512, |edns| usize::from(edns.payload).max(512));
    if answer.len() > room { truncated(&answer) } else { answer }
}

/// The beginning of an answer that was too long for its datagram: header and question, marked as
/// truncated, so that the client asks again over TCP (RFC 2181 §9).
pub fn truncated(answer: &[u8]) -> Vec<u8> {
    let end = Name::skip(answer, HEADER).map_or(HEADER, |end| end + 4).min(answer.len());
    let mut reply = answer[..end].to_vec();
    reply.resize(end.max(HEADER), 0);
    reply[2] |= 0x02;
    reply[6..HEADER].fill(0);
    reply
}
