//! A question, and perhaps its answer, as rules see it.

use namewall_corefile::{Edns0, Encoding};
use namewall_dns::Asked;
use namewall_dns::wire::{Edns, Header, Name, Question, RecordType, Section, WireError, records};
use namewall_expression::{Fact, Facts, Phase, Value};
use std::borrow::Cow;
use std::fmt::{Debug, Write};
use std::net::{IpAddr, SocketAddr};

const SOA: RecordType = RecordType(6);

/// Who clients are, where that is known: the labels of `kubernetes/…`.
pub trait Identities: Send + Sync + Debug {
    fn label(&self, client: IpAddr, label: &str) -> Option<String>;
}

/// Nobody is known.
#[derive(Clone, Copy, Default, Debug)]
pub struct Strangers;

impl Identities for Strangers {
    fn label(&self, _: IpAddr, _: &str) -> Option<String> {
        None
    }
}

/// A question that can outlive its message.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    query: Vec<u8>,
    client: SocketAddr,
    server: SocketAddr,
    over_tcp: bool,
    answer: Option<Vec<u8>>,
}

impl Kept {
    pub(crate) fn new(asked: &Asked<'_>, answer: Option<&[u8]>) -> Self {
        let Asked { query, client, server, over_tcp } = *asked;
        Self { query: query.to_vec(), client, server, over_tcp, answer: answer.map(<[u8]>::to_vec) }
    }

    pub(crate) fn asked(&self) -> Asked<'_> {
        Asked { query: &self.query, client: self.client, server: self.server, over_tcp: self.over_tcp }
    }

    pub(crate) fn answer(&self) -> Option<&[u8]> {
        self.answer.as_deref()
    }
}

/// The facts of one question.
#[derive(Debug)]
pub(crate) struct Message<'a> {
    asked: Asked<'a>,
    pub(crate) question: Question,
    /// In lower case, with the dot at the end.
    pub(crate) name: String,
    kind: String,
    edns: Option<Edns<'a>>,
    fields: &'a [Edns0],
    identities: &'a dyn Identities,
    answer: Option<Told<'a>>,
    /// The address that is being judged (S9.3).
    pub(crate) address: Option<IpAddr>,
    /// What engines said besides.
    pub(crate) labels: Vec<(String, String)>,
}

/// The answer there is.
#[derive(Debug)]
struct Told<'a> {
    bytes: &'a [u8],
    header: Header,
    addresses: Vec<IpAddr>,
    /// Among what it says of authority.
    has_soa: bool,
}

impl<'a> Message<'a> {
    pub(crate) fn new(
        asked: Asked<'a>,
        fields: &'a [Edns0],
        identities: &'a dyn Identities,
    ) -> Result<Self, WireError> {
        let question = Question::of_query(asked.query)?;
        let name = text_of(&question.name);
        let kind = question.record_type.to_string();
        let edns = Edns::read(asked.query);
        let (answer, address, labels) = (None, None, Vec::new());
        Ok(Self { asked, question, name, kind, edns, fields, identities, answer, address, labels })
    }

    /// The same with its answer.
    pub(crate) fn with_answer(mut self, bytes: &'a [u8]) -> Result<Self, WireError> {
        let header = Header::read(bytes)?;
        let mut addresses = Vec::new();
        let all = records(bytes)?;
        let has_soa = all.iter().any(|record| record.section == Section::Authority && record.kind == SOA);
        for record in all.iter().filter(|record| record.section == Section::Answer) {
            // What is no address though it says so might be one to somebody.
            let is_one = matches!(record.kind.0, 1 | 28);
            match record.address() {
                Some(address) => addresses.push(address),
                None if is_one => return Err(WireError::Data),
                None => {}
            }
        }
        self.answer = Some(Told { bytes, header, addresses, has_soa });
        Ok(self)
    }

    /// The same with what the client gets.
    pub(crate) fn with_own<'b>(self, bytes: &'b [u8]) -> Result<Message<'b>, WireError>
    where
        'a: 'b,
    {
        Message::<'b> { ..self }.with_answer(bytes)
    }

    pub(crate) fn addresses(&self) -> &[IpAddr] {
        self.answer.as_ref().map_or(&[], |told| &told.addresses)
    }

    /// Whether its answer says that there is nothing of the kind (RFC 2308 §2.2).
    pub(crate) fn is_without_data(&self) -> bool {
        self.answer.as_ref().is_some_and(|told| told.header.answers == 0 && told.has_soa)
    }

    pub(crate) fn client(&self) -> SocketAddr {
        self.asked.client
    }

    pub(crate) fn query(&self) -> &'a [u8] {
        self.asked.query
    }

    fn label(&self, label: &str) -> Value<'_> {
        if let Some((_, value)) = self.labels.iter().rev().find(|(name, _)| name == label) {
            return Value::Text(Cow::Borrowed(value));
        }
        if let Some(field) = self.fields.iter().find(|field| *field.label == *label) {
            let option = self.edns.iter().flat_map(Edns::options).find(|(code, _)| *code == field.code);
            return option.map_or(Value::UNSET, |(_, data)| decoded(&field.encoding, data));
        }
        if label.starts_with("kubernetes/") {
            let known = self.identities.label(self.asked.client.ip().to_canonical(), label);
            return known.map_or(Value::UNSET, |text| Value::Text(text.into()));
        }
        Value::UNSET
    }
}

impl Facts for Message<'_> {
    fn get(&self, fact: &Fact) -> Value<'_> {
        let text = |text: &'static str| Value::Text(Cow::Borrowed(text));
        let number = |number: usize| Value::Number(number as u64);
        match fact {
            Fact::Name => Value::Text(Cow::Borrowed(&self.name)),
            Fact::Type => Value::Text(Cow::Borrowed(&self.kind)),
            Fact::Class => match self.question.class {
                1 => text("IN"),
                3 => text("CH"),
                4 => text("HS"),
                254 => text("NONE"),
                255 => text("ANY"),
                other => Value::Text(format!("CLASS{other}").into()),
            },
            Fact::Protocol => text(if self.asked.over_tcp { "tcp" } else { "udp" }),
            Fact::ClientIp => Value::Address(self.asked.client.ip().to_canonical()),
            Fact::ClientPort => number(self.asked.client.port().into()),
            Fact::ServerIp => Value::Address(self.asked.server.ip().to_canonical()),
            Fact::ServerPort => number(self.asked.server.port().into()),
            Fact::Size => number(self.asked.query.len()),
            Fact::Id => number(Header::read(self.asked.query).map_or(0, |header| header.id.into())),
            Fact::Opcode => number(Header::read(self.asked.query).map_or(0, |header| header.opcode.into())),
            Fact::BufferSize => number(self.edns.map_or(512, |edns| edns.payload.into())),
            Fact::Do => Value::Bool(self.edns.is_some_and(|edns| edns.is_dnssec_ok())),
            Fact::Rcode => {
                self.answer.as_ref().map_or(Value::UNSET, |told| Value::Text(told.header.rcode.to_string().into()))
            }
            Fact::ResponseSize => self.answer.as_ref().map_or(Value::UNSET, |told| number(told.bytes.len())),
            Fact::ResponseFlags => {
                self.answer.as_ref().map_or(Value::UNSET, |told| Value::Text(flags(told.bytes).into()))
            }
            Fact::ResponseIp => self.address.map_or(Value::UNSET, Value::Address),
            Fact::ResponseIps => Value::Addresses(Cow::Borrowed(self.addresses())),
            Fact::Label(label) => self.label(label),
        }
    }

    fn phase(&self) -> Phase {
        if self.answer.is_some() { Phase::Response } else { Phase::Query }
    }
}

/// As CoreDNS writes them.
fn flags(message: &[u8]) -> String {
    let (Some(high), Some(low)) = (message.get(2), message.get(3)) else { return String::new() };
    let all = [(high, 0x80, "qr"), (high, 0x04, "aa"), (high, 0x02, "tc"), (high, 0x01, "rd")];
    let all = all.into_iter().chain([(low, 0x80, "ra"), (low, 0x20, "ad"), (low, 0x10, "cd")]);
    let set: Vec<&str> = all.filter(|(byte, bit, _)| **byte & bit != 0).map(|(_, _, name)| name).collect();
    set.join(",")
}

/// A name as text, with its last dot.
pub(crate) fn text_of(name: &Name) -> String {
    let text = name.to_string();
    if text == "." { text } else { text + "." }
}

/// The value of a piece of EDNS0. What does not have the length it should have is not set.
fn decoded(encoding: &Encoding, data: &[u8]) -> Value<'static> {
    let hex = |bytes: &[u8]| {
        let mut text = String::with_capacity(bytes.len() * 2);
        bytes.iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
        Value::Text(text.into())
    };
    match *encoding {
        Encoding::Hex { length, start, end } => {
            if length.is_some_and(|length| length as usize != data.len()) {
                return Value::UNSET;
            }
            let end = end.map_or(data.len(), |end| end as usize);
            data.get(start as usize..end).map_or(Value::UNSET, hex)
        }
        Encoding::Bytes => Value::Text(String::from_utf8_lossy(data).into_owned().into()),
        Encoding::Address => {
            let v4 = <[u8; 4]>::try_from(data).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(data).map(IpAddr::from));
            // As text: a label is one, whatever it holds.
            address.map_or(Value::UNSET, |address| Value::Text(address.to_string().into()))
        }
    }
}

/// Whether a zone has a name, by its labels as they are on the wire.
pub(crate) fn is_under(name: &Name, zone: &namewall_corefile::Zone) -> bool {
    let namewall_corefile::Zone::Name(zone) = zone else { return true };
    let labels: Vec<&[u8]> = name.labels().collect();
    let zone: Vec<&str> = zone.labels().collect();
    labels.len() >= zone.len()
        && labels[labels.len() - zone.len()..].iter().zip(zone).all(|(own, of)| own.eq_ignore_ascii_case(of.as_bytes()))
}
