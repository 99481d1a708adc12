//! What is known of a question or an answer → attributes, as the first plugin
//! named them.

use super::codec::Attribute;
use super::name::Name;
use super::settings::AttributeSetting;
use super::value::{Type, Value};
use crate::EngineError;
use namewall_expression::{Fact, Facts, Phase, Value as Known};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How requests are made.
#[derive(Debug)]
pub(super) struct Form {
    query: Vec<AttributeSetting>,
    transfer: Vec<Transfer>,
}

/// An obligation that goes from a query to its responses. Between them it is a text, and so its type
/// is remembered here.
#[derive(Debug)]
struct Transfer {
    name: String,
    fact: Fact,
    /// In [`TYPES`].
    kind: AtomicUsize,
}

const TYPES: [Type; 11] = [
    Type::String,
    Type::Boolean,
    Type::Integer,
    Type::Float,
    Type::Address,
    Type::Network,
    Type::Domain,
    Type::SetOfStrings,
    Type::SetOfNetworks,
    Type::SetOfDomains,
    Type::ListOfStrings,
];

impl Form {
    pub(super) fn new(attributes: Vec<AttributeSetting>, transfer: Vec<String>) -> Self {
        let transfer = transfer.into_iter().map(|name| Transfer {
            fact: Fact::Label(name.as_str().into()),
            name,
            kind: AtomicUsize::new(0),
        });
        Self { query: attributes, transfer: transfer.collect() }
    }

    /// `None` where there is nothing to ask: an answer without addresses.
    pub(super) fn attributes(&self, facts: &dyn Facts) -> Result<Option<Vec<Attribute>>, EngineError> {
        match facts.phase() {
            Phase::Query => self.of_query(facts).map(Some),
            Phase::Response => self.of_response(facts),
        }
    }

    fn of_query(&self, facts: &dyn Facts) -> Result<Vec<Attribute>, EngineError> {
        let mut attributes = Vec::with_capacity(4 + self.query.len());
        attributes.push(Attribute::new("type", Value::string("query")));
        let name = facts.get(&Fact::Name).to_string();
        attributes.push(Attribute::new("domain_name", domain(&name)?));
        let number = record_type(&facts.get(&Fact::Type).to_string());
        attributes.push(Attribute::new("dns_qtype", Value::String(format!("{number:x}").into())));
        if let Some(address) = address(&facts.get(&Fact::ClientIp)) {
            attributes.push(Attribute::new("source_ip", Value::Address(address)));
        }
        for setting in &self.query {
            let Some(value) = value(&facts.get(&setting.fact), &setting.kind, &setting.name)? else { continue };
            match attributes.iter_mut().find(|attribute| *attribute.name == *setting.name) {
                Some(attribute) => attribute.value = value,
                None => attributes.push(Attribute { name: setting.name.as_str().into(), value }),
            }
        }
        Ok(attributes)
    }

    fn of_response(&self, facts: &dyn Facts) -> Result<Option<Vec<Attribute>>, EngineError> {
        let Some(address) = address(&facts.get(&Fact::ResponseIp)) else { return Ok(None) };
        let mut attributes = Vec::with_capacity(2 + self.transfer.len());
        attributes.push(Attribute::new("type", Value::string("response")));
        attributes.push(Attribute::new("address", Value::Address(address)));
        for transfer in &self.transfer {
            let kind = &TYPES[transfer.kind.load(Ordering::Relaxed)];
            if let Some(value) = value(&facts.get(&transfer.fact), kind, &transfer.name)? {
                attributes.push(Attribute { name: transfer.name.as_str().into(), value });
            }
        }
        Ok(Some(attributes))
    }

    /// Remembers of what type those obligations are that will be sent again.
    pub(super) fn learn(&self, obligations: &[Attribute]) {
        for transfer in &self.transfer {
            let obligation = obligations.iter().find(|obligation| *obligation.name == *transfer.name);
            let kind = obligation.and_then(|obligation| obligation.value.kind());
            if let Some(at) = TYPES.iter().position(|known| Some(known) == kind.as_ref()) {
                transfer.kind.store(at, Ordering::Relaxed);
            }
        }
    }
}

fn address(known: &Known<'_>) -> Option<IpAddr> {
    match known {
        Known::Address(address) => Some(address.to_canonical()),
        Known::Text(text) => text.parse::<IpAddr>().ok().map(|address| address.to_canonical()),
        _ => None,
    }
}

/// Themis' names have no dot at their end, but for the root.
fn domain(text: &str) -> Result<Value, EngineError> {
    let bare = text.strip_suffix('.').filter(|bare| !bare.is_empty() && !bare.ends_with('\\')).unwrap_or(text);
    let name = Name::parse(bare).map_err(|error| EngineError(format!("`{text}` is no domain name: {error}")))?;
    Ok(Value::Domain(name))
}

/// Nothing for what is not set. What is set and of another type is an error, not left out: a rule may
/// deny by it.
fn value(known: &Known<'_>, kind: &Type, name: &str) -> Result<Option<Value>, EngineError> {
    if *known == Known::UNSET {
        return Ok(None);
    }
    let value = match (known, kind) {
        (Known::Address(address), Type::Address) => Some(Value::Address(address.to_canonical())),
        (Known::Text(text), Type::String) => Some(Value::String(Arc::from(&**text))),
        (known, Type::Domain) => return domain(&known.to_string()).map(Some),
        (known, kind) => Value::parse(kind, &known.to_string()),
    };
    match value {
        Some(value) => Ok(Some(value)),
        None => Err(EngineError(format!("the attribute `{name}` cannot be of the type {kind}: `{known}`"))),
    }
}

/// The number of a type, 0 if nobody knows it.
fn record_type(text: &str) -> u16 {
    const NAMED: [(&str, u16); 40] = [
        ("A", 1),
        ("AAAA", 28),
        ("HTTPS", 65),
        ("SVCB", 64),
        ("CNAME", 5),
        ("MX", 15),
        ("NS", 2),
        ("PTR", 12),
        ("SOA", 6),
        ("SRV", 33),
        ("TXT", 16),
        ("ANY", 255),
        ("AFSDB", 18),
        ("AXFR", 252),
        ("CAA", 257),
        ("CDNSKEY", 60),
        ("CDS", 59),
        ("CERT", 37),
        ("CSYNC", 62),
        ("DNAME", 39),
        ("DNSKEY", 48),
        ("DS", 43),
        ("HINFO", 13),
        ("HIP", 55),
        ("IXFR", 251),
        ("LOC", 29),
        ("NAPTR", 35),
        ("NSEC", 47),
        ("NSEC3", 50),
        ("NSEC3PARAM", 51),
        ("NULL", 10),
        ("OPENPGPKEY", 61),
        ("RP", 17),
        ("RRSIG", 46),
        ("SMIMEA", 53),
        ("SPF", 99),
        ("SSHFP", 44),
        ("TLSA", 52),
        ("URI", 256),
        ("ZONEMD", 63),
    ];
    let named = NAMED.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
    named.or_else(|| text.strip_prefix("TYPE")?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_records_have_numbers() {
        assert_eq!(["A", "AAAA", "TYPE65280", "NONSENSE"].map(record_type), [1, 28, 65280, 0]);
    }

    #[test]
    fn names_lose_their_last_dot() {
        let text = |name: &str| domain(name).unwrap().to_string();
        assert_eq!(text("www.example.com."), "www.example.com");
        assert_eq!(text("."), ".");
        assert_eq!(text(r"a\."), r"a\.");
        assert!(domain("a..b.").is_err());
    }
}
