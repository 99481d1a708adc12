//! `rewrite edns0`: the options of EDNS0 that upstreams are sent. What the client is sent has none of them.

use crate::exchange::Exchange;
use crate::message::Message;
use namewall_corefile::{OptionAction, OptionData, OptionRewrite};
use namewall_dns::wire::{Edns, HEADER, Section, records};
use namewall_expression::{Fact, Facts};
use std::net::IpAddr;

const OPT: u16 = 41;
/// What a query of ours takes over UDP if the client does not say what it takes.
const PAYLOAD: u16 = 1_232;

/// A question as rules before this one have left it.
#[derive(Clone, Copy)]
pub(super) struct Question<'q> {
    pub(super) name: &'q str,
    pub(super) kind: u16,
}

/// The options of a query.
pub(super) struct Options {
    /// The OPT record of the query: payload, version and flags.
    opt: Option<(u16, u32)>,
    all: Vec<(u16, Vec<u8>)>,
    is_changed: bool,
}

impl Options {
    /// An error is a query that cannot be read, or has two OPT records (RFC 6891 §6.1.1): an upstream might read the one
    /// that no rule has changed.
    pub(super) fn of(query: &[u8]) -> Result<Self, ()> {
        let opts = records(query).map_err(drop)?.iter().filter(|record| record.kind.0 == OPT).count();
        if opts > 1 {
            return Err(());
        }
        let edns = Edns::read(query);
        let opt = edns.map(|edns| (edns.payload, u32::from(edns.version) << 16 | u32::from(edns.flags)));
        let all = edns.iter().flat_map(Edns::options).map(|(code, data)| (code, data.to_vec())).collect();
        Ok(Self { opt, all, is_changed: false })
    }

    /// None if the rule does nothing, so that the next one is looked at.
    pub(super) fn apply(&mut self, rule: &OptionRewrite, exchange: &Exchange, question: Question<'_>) -> Option<()> {
        let is_there = self.all.iter().any(|(code, _)| *code == rule.code);
        let (data, of) = match &rule.action {
            OptionAction::Unset => {
                self.is_changed |= is_there;
                self.all.retain(|(code, _)| *code != rule.code);
                return Some(());
            }
            OptionAction::Replace(_) if !is_there => return None,
            OptionAction::Append(OptionData::Bytes(bytes)) => {
                self.all.push((rule.code, bytes.to_vec()));
                self.is_changed = true;
                return Some(());
            }
            OptionAction::Append(_) if is_there => return None,
            OptionAction::Set(of) | OptionAction::Append(of) | OptionAction::Replace(of) => {
                let Some(data) = written(of, exchange, question) else {
                    // What the client says of itself must not stand where the server has nothing to say.
                    self.is_changed |= is_there;
                    self.all.retain(|(code, _)| *code != rule.code);
                    return is_there.then_some(());
                };
                (data, rule.code)
            }
        };
        // It stands where the first of its kind stood. A second one of the client would be as good as ours.
        let at = self.all.iter().position(|(code, _)| *code == of).unwrap_or(self.all.len());
        self.all.retain(|(code, _)| *code != of);
        self.all.insert(at.min(self.all.len()), (of, data));
        self.is_changed = true;
        Some(())
    }

    /// A query with these options. An error if there is no room for them.
    pub(super) fn written(&self, query: Vec<u8>) -> Result<Vec<u8>, ()> {
        if !self.is_changed {
            return Ok(query);
        }
        let (payload, flags) = self.opt.unwrap_or((PAYLOAD, 0));
        let length: usize = self.all.iter().map(|(_, data)| 4 + data.len()).sum();
        let length = u16::try_from(length).map_err(drop)?;
        let mut opt = vec![0];
        opt.extend(OPT.to_be_bytes());
        opt.extend(payload.to_be_bytes());
        opt.extend(flags.to_be_bytes());
        opt.extend(length.to_be_bytes());
        for (code, data) in &self.all {
            opt.extend(code.to_be_bytes());
            opt.extend((data.len() as u16).to_be_bytes());
            opt.extend(data);
        }
        let there = records(&query)
            .map_err(drop)?
            .iter()
            .find(|record| record.section == Section::Additional && record.kind.0 == OPT)
            .map(|record| record.owner..record.ttl_at + 6 + record.data.len());
        let mut written = query;
        match there {
            Some(place) => _ = written.splice(place, opt),
            None => {
                let count = u16::from_be_bytes([written[HEADER - 2], written[HEADER - 1]]).saturating_add(1);
                written[HEADER - 2..HEADER].copy_from_slice(&count.to_be_bytes());
                written.extend(opt);
            }
        }
        if written.len() > usize::from(u16::MAX) { Err(()) } else { Ok(written) }
    }
}

/// What an option is made of, for this question. None if it is not known.
fn written(data: &OptionData, exchange: &Exchange, question: Question<'_>) -> Option<Vec<u8>> {
    let bytes = |address: IpAddr| match address.to_canonical() {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let port = |port: u16| port.to_be_bytes().to_vec();
    Some(match data {
        OptionData::Bytes(bytes) => bytes.to_vec(),
        // As with CoreDNS in the client's own letters, unless another rule has changed the name.
        OptionData::Name if question.name == exchange.name() => spelled(exchange.query())?.into_bytes(),
        OptionData::Name => question.name.as_bytes().to_vec(),
        OptionData::Type => question.kind.to_be_bytes().to_vec(),
        OptionData::ClientIp => bytes(exchange.client.ip()),
        OptionData::ServerIp => bytes(exchange.server.ip()),
        OptionData::ClientPort => port(exchange.client.port()),
        OptionData::ServerPort => port(exchange.server.port()),
        OptionData::Protocol => if exchange.over_tcp() { b"tcp" } else { b"udp" }.to_vec(),
        OptionData::Label(label) => {
            let text = Message::new(exchange).get(&Fact::Label(label.clone())).to_string();
            if text.is_empty() {
                return None;
            }
            text.into_bytes()
        }
        OptionData::Subnet { v4, v6 } => subnet(exchange.client.ip().to_canonical(), *v4, *v6),
    })
}

/// The name of a question in the letters of its client, with its last dot.
fn spelled(query: &[u8]) -> Option<String> {
    let (mut text, mut at) = (String::new(), HEADER);
    while let length @ 1..64 = usize::from(*query.get(at)?) {
        for &byte in query.get(at + 1..at + 1 + length)? {
            match byte {
                b'.' | b'\\' => text.extend(['\\', char::from(byte)]),
                0x21..0x7f => text.push(char::from(byte)),
                _ => text.push_str(&format!("\\{byte:03}")),
            }
        }
        text.push('.');
        at += 1 + length;
    }
    Some(if text.is_empty() { ".".to_owned() } else { text })
}

/// The option of RFC 7871 for the network of an address.
fn subnet(client: IpAddr, v4: u8, v6: u8) -> Vec<u8> {
    let (family, length, mut bytes) = match client {
        IpAddr::V4(address) => (1, v4, address.octets().to_vec()),
        IpAddr::V6(address) => (2, v6, address.octets().to_vec()),
    };
    bytes.truncate(usize::from(length).div_ceil(8));
    if let (Some(last), rest @ 1..) = (bytes.last_mut(), length % 8) {
        *last &= 0xff << (8 - rest);
    }
    [&[0, family, length, 0], &bytes[..]].concat()
}
