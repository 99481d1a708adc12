//! The answers we give ourselves: only where there is none to pass on.

use super::{HEADER, Name, Question, Rcode, u16_at};

/// EDNS0's own record (RFC 6891 §6.1.1).
const OPT: u16 = 41;
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
    if let Some(flags) = edns_flags(query, end) {
        reply[11] = 1;
        reply.push(0);
        for field in [OPT, PAYLOAD, 0, flags & 0x8000, 0] {
            reply.extend_from_slice(&field.to_be_bytes());
        }
    }
    reply
}

/// The flags of the query's OPT record, which stands somewhere behind its question, if there is one.
fn edns_flags(query: &[u8], mut at: usize) -> Option<u16> {
    let counts = [6, 8, 10].map(|count| u16_at(query, count).map_or(0, usize::from));
    let before = counts[0] + counts[1];
    for number in 0..before + counts[2] {
        let owner = at;
        at = Name::skip(query, at).ok()?;
        let kind = u16_at(query, at).ok()?;
        let end = at + 10 + usize::from(u16_at(query, at + 8).ok()?);
        if end > query.len() {
            return None;
        }
        if number >= before && kind == OPT && query[owner] == 0 {
            return u16_at(query, at + 6).ok();
        }
        at = end;
    }
    None
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
