//! The answers we give ourselves: only where there is none to pass on.

use super::{HEADER, Header, Name, Rcode};

/// An answer to `query` without records. The question, the id and the wish for recursion are repeated.
pub fn failure(query: &[u8], rcode: Rcode) -> Vec<u8> {
    let mut reply = vec![0; HEADER];
    let Some(header) = query.get(..HEADER) else { return reply };
    reply[..2].copy_from_slice(&header[..2]);
    // An answer, with the query's opcode and RD; RA, since we do forward.
    reply[2] = 0x80 | header[2] & 0x79;
    reply[3] = 0x80 | rcode.0 & 0x0f;
    let has_one = Header::read(query).is_ok_and(|header| header.questions == 1);
    let end = Name::skip(query, HEADER).ok().map(|end| end + 4).filter(|&end| has_one && end <= query.len());
    if let Some(end) = end {
        reply[5] = 1;
        reply.extend_from_slice(&query[HEADER..end]);
    }
    reply
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
