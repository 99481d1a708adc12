//! What clients get who do not get an answer.

use super::message::Message;
use super::rules::Decision;
use crate::Outcome;
use crate::corefile::Zone;
use namewall_dns::wire::{Edns, HEADER, Question, Rcode, reply};

/// How long what is blocked may be remembered to be.
const BLOCKED_TTL: u32 = 60;
/// Extended errors (RFC 8914 §4): "Blocked" and "Prohibited".
const BLOCKED: u16 = 15;
const PROHIBITED: u16 = 18;
const SOA: u16 = 6;
const TXT: u16 = 16;
const CHAOS: u16 = 3;

/// The reply to a question that does not pass; none is silence. The zone is the one it was asked of.
pub(super) fn denied(message: &Message<'_>, decision: &Decision, zone: &Zone) -> Option<Vec<u8>> {
    let query = message.query();
    Some(match decision.outcome {
        Ok(Outcome::Refuse) => explained(reply::failure(query, Rcode::REFUSED), PROHIBITED),
        Ok(Outcome::Block) => explained(with_soa(query, Rcode::NX_DOMAIN, zone), BLOCKED),
        Ok(Outcome::Drop) if decision.drops_silently => return None,
        Ok(Outcome::Drop) => explained(with_soa(query, Rcode::NO_ERROR, zone), BLOCKED),
        _ => reply::failure(query, Rcode::SERV_FAIL),
    })
}

/// The same in words; none is that it passes.
pub(super) fn denial_words(decision: &Decision) -> Option<&'static str> {
    Some(match decision.outcome {
        Ok(Outcome::Allow | Outcome::Redirect(_)) => return None,
        Ok(Outcome::Refuse) => "REFUSED",
        Ok(Outcome::Block) => "NXDOMAIN",
        Ok(Outcome::Drop) if decision.drops_silently => "nothing",
        Ok(Outcome::Drop) => "NOERROR without data",
        _ => "SERVFAIL",
    })
}

/// Without records but an SOA, so that it is cached for a sane while (RFC 2308 §3).
pub(super) fn with_soa(query: &[u8], rcode: Rcode, zone: &Zone) -> Vec<u8> {
    let bare = reply::failure(query, rcode);
    let end = Question::end(query).unwrap_or(HEADER).min(bare.len());
    let mut message = bare[..end].to_vec();
    message[8..12].copy_from_slice(&[0, 1, 0, 0]);
    push_name(&mut message, zone);
    push_all(&mut message, &[SOA, 1]);
    message.extend(BLOCKED_TTL.to_be_bytes());
    let mut data = Vec::new();
    for label in ["namewall", "hostmaster"] {
        data.push(label.len() as u8);
        data.extend(label.as_bytes());
        data.extend([7]);
        data.extend(b"invalid");
        data.push(0);
    }
    for number in [1, 3_600, 600, 86_400, BLOCKED_TTL] {
        data.extend(number.to_be_bytes());
    }
    message.extend((data.len() as u16).to_be_bytes());
    message.extend(data);
    reply::push_opt(query, &mut message);
    message
}

fn push_name(message: &mut Vec<u8>, zone: &Zone) {
    if let Zone::Name(name) = zone {
        for label in name.labels() {
            message.push(label.len() as u8);
            message.extend(label.as_bytes());
        }
    }
    message.push(0);
}

fn push_all(message: &mut Vec<u8>, fields: &[u16]) {
    fields.iter().for_each(|field| message.extend(field.to_be_bytes()));
}

/// Says why in its OPT record, if it has one; which is the last.
fn explained(mut message: Vec<u8>, code: u16) -> Vec<u8> {
    if Edns::read(&message).is_some() {
        let length = message.len() - 2;
        message[length..].copy_from_slice(&6u16.to_be_bytes());
        push_all(&mut message, &[15, 2, code]);
    }
    message
}

/// An answer of texts to a question of the class CH.
pub(super) fn texts(query: &[u8], lines: &[String]) -> Vec<u8> {
    let bare = reply::failure(query, Rcode::NO_ERROR);
    let end = Question::end(query).unwrap_or(HEADER).min(bare.len());
    let mut message = bare[..end].to_vec();
    message[6..12].fill(0);
    let mut count: u16 = 0;
    for line in lines {
        // Text of any length is a row of strings of up to 255 bytes.
        let pieces: Vec<&[u8]> = line.as_bytes().chunks(255).collect();
        let length: usize = pieces.iter().map(|piece| piece.len() + 1).sum();
        if message.len() + length + 12 > 60_000 {
            break;
        }
        push_all(&mut message, &[0xc00c, TXT, CHAOS, 0, 0, length as u16]);
        for piece in pieces {
            message.push(piece.len() as u8);
            message.extend(piece);
        }
        count += 1;
    }
    message[6..8].copy_from_slice(&count.to_be_bytes());
    reply::push_opt(query, &mut message);
    message
}
