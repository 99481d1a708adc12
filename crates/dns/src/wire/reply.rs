//! The answers we give ourselves: only where there is none to pass on.

use super::edns::{Edns, OPT};
use super::{HEADER, Name, Question, Rcode};

/// What we say we take: as much as passes everywhere in one piece.
const PAYLOAD: u16 = 1_232;

/// An answer to `query` without records. The question, the id and the wish for recursion are repeated,
/// and who speaks EDNS0 is told that we do: it might try without otherwise, and lose what it asked for.
pub fn failure(query: &[u8], rcode: Rcode) -> Vec<u8> {
    let Some(&[id0, id1, flags, code, ..]) = query.first_chunk::<HEADER>() else { return vec![0; HEADER] };
    let question = Question::end(query).ok().and_then(|end| query.get(HEADER..end));
    let mut header = [0; HEADER];
    // An answer, with the query's opcode and RD; RA, since we do forward, and CD as it was (RFC 4035 §3.2.2).
    let own = [id0, id1, 0x80 | flags & 0x79, 0x80 | code & 0x10 | rcode.0 & 0x0f, 0, question.is_some().into()];
    header.iter_mut().zip(own).for_each(|(byte, own)| *byte = own);
    let mut reply = header.to_vec();
    let Some(question) = question else { return reply };
    reply.extend_from_slice(question);
    push_opt(query, &mut reply);
    reply
}

/// Adds our OPT record to an answer without one, if the query has one.
pub fn push_opt(query: &[u8], reply: &mut Vec<u8>) {
    let Some(edns) = Edns::read(query) else { return };
    let Some(count) = reply.get_mut(10..).and_then(<[u8]>::first_chunk_mut) else { return };
    *count = u16::from_be_bytes(*count).saturating_add(1).to_be_bytes();
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
    let end = Name::skip(answer, HEADER).map_or(HEADER, |end| end.saturating_add(Question::AFTER_NAME));
    let mut reply = answer.get(..end).unwrap_or(answer).to_vec();
    reply.resize(reply.len().max(HEADER), 0);
    if let Some([_, _, flags, _, _, _, counts @ ..]) = reply.first_chunk_mut::<HEADER>() {
        *flags |= 0x02;
        counts.fill(0);
    }
    reply
}
