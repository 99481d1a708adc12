//! Answering a query.

use super::message::{CLASS_IN, Message, Question, flag};
use super::name::Name;
use super::owner::{Exact, Owner};
use super::record::{Data, Rcode, Record, RecordType};
use super::server::{FORGED_V4, FORGED_V6, Server, Spoof, Transport};
use super::write::{LONGEST, Style, write};
use super::{Reply, Sender, Zones};
use std::net::IpAddr;

/// What a client takes that does not say (RFC 1035), and what we say we take (DNS flag day 2020).
const CLASSIC: u16 = 512;
const OURS: u16 = 1232;
/// Of SOA records, and so of answers that there is nothing.
const NEGATIVE_TTL: u32 = 30;
const FORGED_TTL: u32 = 300;
/// Longer than any chain that is worth a test.
const LINKS: usize = 64;

impl Zones {
    /// What this server sends for these bytes, in order. Nothing may come of it.
    pub fn respond(&mut self, server: IpAddr, query: &[u8], transport: Transport) -> Vec<Reply> {
        let Some((_, known)) = self.servers.iter_mut().find(|(address, _)| *address == server) else {
            return Vec::new();
        };
        if !known.listens(transport) {
            return Vec::new();
        }
        known.queries += 1;
        let known = known.clone();
        if known.silent || known.queries <= known.drop {
            return Vec::new();
        }
        let reply = |bytes, sender| Reply { delay: known.slow, bytes, sender };
        let query = match Message::read(query) {
            Ok(query) if !query.is_response() => query,
            Ok(_) => return Vec::new(),
            Err(_) => return malformed(query).map(|bytes| reply(bytes, Sender::Server)).into_iter().collect(),
        };
        if known.garbage {
            return vec![reply(garbage(query.id), Sender::Server)];
        }
        let mut replies = Vec::new();
        let (answer, style) = (self.answer(&known, &query, transport), style(&known, &query, transport));
        for &spoof in &known.spoof {
            replies
                .extend(forge(spoof, &answer, transport).map(|(forged, sender)| reply(write(&forged, style), sender)));
        }
        replies.push(reply(write(&answer, style), Sender::Server));
        replies
    }

    fn answer(&mut self, server: &Server, query: &Message, transport: Transport) -> Message {
        let mut answer = Message {
            flags: flag::RESPONSE
                | flag::AUTHORITATIVE
                | flag::RECURSION_AVAILABLE
                | query.flags & (flag::OPCODE | flag::RECURSION_DESIRED),
            edns: query.edns.map(|_| OURS),
            answer: Vec::new(),
            authority: Vec::new(),
            additional: Vec::new(),
            ..query.clone()
        };
        let question = query.question.as_ref().filter(|_| query.flags & flag::OPCODE == 0);
        match (server.rcode, question) {
            (Some(rcode), _) => answer.rcode = rcode,
            (None, None) => answer.rcode = Rcode::NOTIMP,
            (None, Some(question)) if question.class != CLASS_IN => answer.rcode = Rcode::REFUSED,
            (None, Some(question)) => self.look_up(question, &mut answer),
        }
        if server.truncate && transport == Transport::Udp {
            answer.truncated = true;
            answer.answer.clear();
            answer.authority.clear();
            answer.additional.clear();
        }
        if let Some(question) = answer.question.as_mut().filter(|_| server.wrong_case) {
            question.name = question.name.lower();
        }
        answer
    }

    fn look_up(&mut self, question: &Question, answer: &mut Message) {
        let mut name = question.name.clone();
        for _ in 0..LINKS {
            let known = self.known(&name);
            let Some(owner) = known.and_then(|known| self.owners.get_mut(&known)) else {
                let exists = self.exists(&name);
                answer.rcode = if exists { Rcode::NOERROR } else { Rcode::NXDOMAIN };
                answer.authority.push(start_of_authority(&name));
                return;
            };
            match owner {
                Owner::Exact(exact) => return exact.spell(answer),
                Owner::Records(set) => {
                    let ttl = set.ttl;
                    let record = |data| Record { owner: name.clone(), ttl, data };
                    if let Some(alias) = &set.alias {
                        let link = record(Data::Name(RecordType::CNAME, alias.target.clone()));
                        // Round in a circle: all of it has been told.
                        if answer.answer.contains(&link) {
                            return;
                        }
                        answer.answer.push(link);
                        if !alias.chase || matches!(question.kind, RecordType::CNAME | RecordType::ANY) {
                            return;
                        }
                        name = alias.target.clone();
                        continue;
                    }
                    let data = set.take(question.kind);
                    if data.is_empty() {
                        answer.authority.push(start_of_authority(&name));
                    }
                    answer.answer.extend(data.into_iter().map(record));
                    return;
                }
            }
        }
    }

    /// The owner that answers for a name: itself, or the wildcard under the
    /// nearest name above that exists (RFC 4592).
    fn known(&self, name: &Name) -> Option<Name> {
        if self.exists(name) {
            return self.owners.contains_key(name).then(|| name.clone());
        }
        let mut above = name.parent();
        while let Some(parent) = above {
            if self.exists(&parent) {
                return parent.under(b"*").filter(|wildcard| self.owners.contains_key(wildcard));
            }
            above = parent.parent();
        }
        None
    }

    /// Whether it has records, or names under it have.
    fn exists(&self, name: &Name) -> bool {
        let next = self.owners.range(name..).next();
        next.is_some_and(|(next, _)| next.is_within(name))
    }
}

impl Exact {
    fn spell(&self, answer: &mut Message) {
        answer.rcode = self.rcode.unwrap_or(Rcode::NOERROR);
        answer.answer.extend(self.answer.iter().cloned());
        answer.authority.extend(self.authority.iter().cloned());
        answer.additional.extend(self.additional.iter().cloned());
    }
}

/// Nobody wrote down where zones begin: the last two labels are as good a guess as any.
fn start_of_authority(name: &Name) -> Record {
    let zone = name.last(2);
    let within = |label: &[u8]| zone.under(label).unwrap_or_default();
    let data = Data::Soa(within(b"ns"), within(b"hostmaster"), [1, 3600, 600, 86_400, NEGATIVE_TTL]);
    Record { owner: zone, ttl: NEGATIVE_TTL, data }
}

fn style(server: &Server, query: &Message, transport: Transport) -> Style {
    let limit = match transport {
        Transport::Udp => usize::from(query.edns.unwrap_or(CLASSIC).max(CLASSIC)),
        Transport::Tcp => LONGEST,
    };
    Style { compress: server.compress, limit }
}

/// FORMERR, if there are a header and a question in it that can be told from a response.
fn malformed(query: &[u8]) -> Option<Vec<u8>> {
    let header: [u8; 12] = query.get(..12)?.try_into().ok()?;
    let (id, flags) = (u16::from_be_bytes([header[0], header[1]]), u16::from_be_bytes([header[2], header[3]]));
    if flags & flag::RESPONSE != 0 {
        return None;
    }
    let nothing = Message::query(id, Name::default(), RecordType::A);
    let message = Message { flags: flag::RESPONSE, rcode: Rcode::FORMERR, question: None, ..nothing };
    Some(message.write())
}

/// The header promises much, and the first name never ends.
fn garbage(id: u16) -> Vec<u8> {
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend([0x84, 0x00, 0x00, 0x01, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xc0, 0x0c]);
    bytes.extend([0xff; 40]);
    bytes
}

/// An answer that nobody should believe. Over TCP ports and addresses cannot be forged.
fn forge(spoof: Spoof, answer: &Message, transport: Transport) -> Option<(Message, Sender)> {
    let question = answer.question.clone()?;
    let address = if question.kind == RecordType::AAAA { FORGED_V6 } else { FORGED_V4 };
    let record = Record { owner: question.name.clone(), ttl: FORGED_TTL, data: address.into() };
    let mut forged = Message {
        rcode: Rcode::NOERROR,
        truncated: false,
        answer: vec![record],
        authority: Vec::new(),
        additional: Vec::new(),
        ..answer.clone()
    };
    let sender = match spoof {
        Spoof::Id => {
            forged.id ^= 0x5555;
            Sender::Server
        }
        Spoof::Question => {
            let name = question.name.last(question.name.labels().len().saturating_sub(1));
            forged.question = Some(Question { name: name.under(b"forged")?, ..question });
            Sender::Server
        }
        Spoof::Port => Sender::OtherPort,
        Spoof::Source => Sender::OtherAddress,
    };
    (sender == Sender::Server || transport == Transport::Udp).then_some((forged, sender))
}

#[cfg(test)]
#[path = "respond_tests.rs"]
mod tests;
