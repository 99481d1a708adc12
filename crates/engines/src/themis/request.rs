//! What is known of a question or an answer → attributes, as the first plugin
//! named them.

use super::codec::Attribute;
use super::name::Name;
use super::settings::AttributeSetting;
use super::value::{Type, Value};
use crate::EngineError;
use namewall_expression::{Fact, Facts, Phase, Value as Known};
use namewall_policy::dns_codes;
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

    /// What is asked. An answer without an address is judged by its question, as CoreDNS' plugin does it.
    pub(super) fn attributes(&self, facts: &dyn Facts) -> Result<Vec<Attribute>, EngineError> {
        match (facts.phase(), address(&facts.get(&Fact::ResponseIp))) {
            (Phase::Response, Some(address)) => self.of_response(facts, address),
            _ => self.of_query(facts),
        }
    }

    fn of_query(&self, facts: &dyn Facts) -> Result<Vec<Attribute>, EngineError> {
        let mut attributes = Vec::with_capacity(4 + self.query.len());
        attributes.push(Attribute::new("type", Value::string("query")));
        let name = facts.get(&Fact::Name).to_string();
        attributes.push(Attribute::new("domain_name", domain(&name)?));
        let number = dns_codes::TYPES.number(&facts.get(&Fact::Type).to_string()).unwrap_or_default();
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

    fn of_response(&self, facts: &dyn Facts, address: IpAddr) -> Result<Vec<Attribute>, EngineError> {
        let mut attributes = Vec::with_capacity(2 + self.transfer.len());
        attributes.push(Attribute::new("type", Value::string("response")));
        attributes.push(Attribute::new("address", Value::Address(address)));
        for transfer in &self.transfer {
            let kind = &TYPES[transfer.kind.load(Ordering::Relaxed)];
            if let Some(value) = value(&facts.get(&transfer.fact), kind, &transfer.name)? {
                attributes.push(Attribute { name: transfer.name.as_str().into(), value });
            }
        }
        Ok(attributes)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_last_dot() {
        let text = |name: &str| domain(name).unwrap().to_string();
        assert_eq!(text("www.example.com."), "www.example.com");
        assert_eq!(text("."), ".");
        assert_eq!(text(r"a\."), r"a\.");
        assert!(domain("a..b.").is_err());
    }
}
