//! A question, and perhaps its answer, as rules see it.

use crate::exchange::Exchange;
use crate::service_hints::addresses_of;
use namewall_corefile::{Encoding, OF_NAMES, Zone};
use namewall_dns::wire::{Edns, Header, Name, RecordType, Section, WireError, records};
use namewall_expression::{Fact, Facts, ListedAt, Phase, Value, entropy};
use namewall_policy::dns_codes::{CLASSES, RCODES, TYPES};
use std::borrow::Cow;
use std::fmt::{Debug, Write};
use std::net::IpAddr;

const SOA: RecordType = RecordType(6);
const OPT: RecordType = RecordType(41);

/// Who clients are, where that is known: the labels of `kubernetes/…`.
pub trait Identities: Send + Sync + Debug {
    fn label(&self, client: IpAddr, label: &str) -> Option<String>;

    /// False until it is known who clients are. Questions whose outcome depends on it get SERVFAIL until then.
    fn are_known(&self) -> bool {
        true
    }
}

/// Why a question has no answer as long as it is not known who clients are.
pub(crate) const UNKNOWN_CLIENTS: &str = "the pods of the cluster are not known yet";

/// Nobody is known.
#[derive(Clone, Copy, Default, Debug)]
pub struct Strangers;

impl Identities for Strangers {
    fn label(&self, _: IpAddr, _: &str) -> Option<String> {
        None
    }
}

/// The facts of one exchange.
#[derive(Debug)]
pub(crate) struct Message<'a> {
    pub(crate) exchange: &'a Exchange,
    edns: Option<Edns<'a>>,
    answer: Option<ReceivedAnswer<'a>>,
    /// The address of the answer that is being judged (S9.3).
    pub(crate) address: Option<IpAddr>,
    /// What engines have added to their decisions.
    pub(crate) labels: Vec<(String, String)>,
}

/// The answer there is.
#[derive(Debug)]
struct ReceivedAnswer<'a> {
    bytes: &'a [u8],
    header: Header,
    /// With the bits that EDNS0 adds.
    rcode: u16,
    addresses: Vec<IpAddr>,
    /// Among what it says of authority.
    has_soa: bool,
}

impl<'a> Message<'a> {
    pub(crate) fn new(exchange: &'a Exchange) -> Self {
        let edns = Edns::read(exchange.query());
        Self { exchange, edns, answer: None, address: None, labels: Vec::new() }
    }

    /// The same with an answer, or with the reply that the client gets.
    pub(crate) fn with_answer<'b>(self, bytes: &'b [u8]) -> Result<Message<'b>, WireError>
    where
        'a: 'b,
    {
        let header = Header::read(bytes)?;
        let mut addresses = Vec::new();
        let all = records(bytes)?;
        // The upper bits of the code are the first of what is a TTL in other records (RFC 6891 §6.1.3).
        let opt = all.iter().find(|record| record.section == Section::Additional && record.kind == OPT);
        let upper = opt.map_or(0, |opt| (opt.ttl >> 24) as u16);
        let rcode = upper << 4 | u16::from(header.rcode.0);
        let has_soa = all.iter().any(|record| record.section == Section::Authority && record.kind == SOA);
        // In all sections, those of the answer first: a client may use any of them.
        for record in &all {
            addresses.extend(addresses_of(record)?);
        }
        Ok(Message { answer: Some(ReceivedAnswer { bytes, header, rcode, addresses, has_soa }), ..self })
    }

    pub(crate) fn addresses(&self) -> &[IpAddr] {
        self.answer.as_ref().map_or(&[], |told| &told.addresses)
    }

    /// Whether its answer says that there is nothing of the kind (RFC 2308 §2.2).
    pub(crate) fn is_without_data(&self) -> bool {
        self.answer.as_ref().is_some_and(|told| told.header.answers == 0 && told.has_soa)
    }

    fn label(&self, label: &str) -> Value<'_> {
        if let Some((_, value)) = self.labels.iter().rev().find(|(name, _)| name == label) {
            return Value::Text(Cow::Borrowed(value));
        }
        if let Some(field) = self.exchange.block().fields.iter().find(|field| *field.label == *label) {
            let option = self.edns.iter().flat_map(Edns::options).find(|(code, _)| *code == field.code);
            return option.map_or(Value::UNSET, |(_, data)| decoded(&field.encoding, data));
        }
        if let Some(cluster) = self.exchange.block().cluster.as_ref().filter(|_| OF_NAMES.contains(&label)) {
            let said = cluster.label(&self.exchange.question.name, label);
            return said.map_or(Value::UNSET, |text| Value::Text(text.into()));
        }
        if label.starts_with("geoip/") {
            return self.exchange.block().geoip_text(label, &self.exchange.asked());
        }
        if label.starts_with("kubernetes/") {
            let client = self.exchange.client.ip().to_canonical();
            let known = self.exchange.inside.identities.label(client, label);
            return known.map_or(Value::UNSET, |text| Value::Text(text.into()));
        }
        Value::UNSET
    }
}

impl Facts for Message<'_> {
    fn get(&self, fact: &Fact) -> Value<'_> {
        let text = |text: &'static str| Value::Text(Cow::Borrowed(text));
        let number = |number: usize| Value::Number(number as u64);
        let (exchange, question) = (self.exchange, &self.exchange.question);
        match fact {
            Fact::Name => Value::Text(Cow::Borrowed(exchange.name())),
            Fact::Type => Value::Text(TYPES.text(question.record_type.0)),
            Fact::Class => Value::Text(CLASSES.text(question.class)),
            Fact::Protocol => text(if exchange.over_tcp() { "tcp" } else { "udp" }),
            Fact::ClientIp => Value::Address(exchange.client.ip().to_canonical()),
            Fact::ClientPort => number(exchange.client.port().into()),
            Fact::ServerIp => Value::Address(exchange.server.ip().to_canonical()),
            Fact::ServerPort => number(exchange.server.port().into()),
            Fact::Size => number(exchange.query().len()),
            Fact::Id => number(Header::read(exchange.query()).map_or(0, |header| header.id.into())),
            Fact::Opcode => number(Header::read(exchange.query()).map_or(0, |header| header.opcode.into())),
            Fact::BufferSize => number(self.edns.map_or(512, |edns| edns.payload.into())),
            Fact::Do => Value::Bool(self.edns.is_some_and(|edns| edns.is_dnssec_ok())),
            Fact::Rcode => self.answer.as_ref().map_or(Value::UNSET, |told| Value::Text(RCODES.text(told.rcode))),
            Fact::ResponseSize => self.answer.as_ref().map_or(Value::UNSET, |told| number(told.bytes.len())),
            Fact::ResponseFlags => {
                self.answer.as_ref().map_or(Value::UNSET, |told| Value::Text(flags(told.bytes).into()))
            }
            Fact::ResponseIp => self.address.map_or(Value::UNSET, Value::Address),
            Fact::ResponseIps => Value::Addresses(Cow::Borrowed(self.addresses())),
            Fact::LabelLength => number(longest_label(&question.name).len()),
            Fact::LabelEntropy => label_entropy(&question.name),
            Fact::ClientRate => exchange.activity.map_or(Value::UNSET, |activity| Value::Fraction(activity.rate)),
            Fact::ClientSubdomains => {
                exchange.activity.map_or(Value::UNSET, |activity| Value::Number(activity.subdomains))
            }
            Fact::Label(label) => self.label(label),
        }
    }

    fn listed(&self, list: &str, name: &str) -> Result<Option<ListedAt>, String> {
        self.exchange.inside.lists.listed(list, name)
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

/// The longest label of a name, the first of several.
pub(crate) fn longest_label(name: &Name) -> &[u8] {
    name.labels().fold(&[], |longest: &[u8], label| if label.len() > longest.len() { label } else { longest })
}

/// The entropy of that label, to two decimal places.
pub(crate) fn label_entropy(name: &Name) -> Value<'static> {
    Value::Fraction((entropy(longest_label(name)) * 100.0).round() / 100.0)
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

/// Whether a name is in a zone, by its labels as they are on the wire.
pub(crate) fn is_under(name: &Name, zone: &Zone) -> bool {
    let Zone::Name(zone) = zone else { return true };
    let Some(above) = name.labels().count().checked_sub(zone.labels().count()) else { return false };
    name.labels().skip(above).zip(zone.labels()).all(|(own, of)| own.eq_ignore_ascii_case(of.as_bytes()))
}
