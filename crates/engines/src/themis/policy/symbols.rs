//! What a file declares: types of flags, attributes. And values as they are
//! written in files.

use super::at::{At, PolicyError};
use crate::themis::name::Name;
use crate::themis::network::Network;
use crate::themis::value::{Flags, FlagsType, Type, Value};
use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::sync::Arc;

const MOST_FLAGS: usize = 64;

/// Declared types by name, in lower case.
#[derive(Default, Debug)]
pub(super) struct Types(FxHashMap<String, Arc<FlagsType>>);

impl Types {
    /// The type that is named here.
    pub(super) fn read(&self, at: &At<'_>) -> Result<Type, PolicyError> {
        let name = at.text("a type")?;
        let declared = || self.0.get(&name.to_ascii_lowercase()).cloned().map(Type::Flags);
        Type::named(name).or_else(declared).ok_or_else(|| at.wrong(format_args!("there is no type `{name}`")))
    }

    pub(super) fn declare(&mut self, at: &At<'_>, flags: Arc<FlagsType>) -> Result<(), PolicyError> {
        let name = flags.name.to_ascii_lowercase();
        if Type::named(&name).is_some() || name == "undefined" || self.0.contains_key(&name) {
            return Err(at.wrong(format_args!("there is a type `{name}` already")));
        }
        self.0.insert(name, flags);
        Ok(())
    }
}

/// `meta: flags`, `flags: […]`.
pub(super) fn flags_type(at: &At<'_>, name: &str) -> Result<Arc<FlagsType>, PolicyError> {
    let meta = at.need("meta")?;
    if !meta.text("`flags`")?.eq_ignore_ascii_case("flags") {
        return Err(meta.wrong("the one meta type is `flags`"));
    }
    let list = at.need("flags")?;
    let mut flags: Vec<Arc<str>> = Vec::new();
    for (flag, item) in list.texts("the names of flags")? {
        let flag = flag.to_ascii_lowercase().into();
        if flags.contains(&flag) {
            return Err(item.wrong(format_args!("the flag `{flag}` is here twice")));
        }
        flags.push(flag);
    }
    if flags.is_empty() || flags.len() > MOST_FLAGS {
        return Err(list.wrong(format_args!("{} flags; there can be 1 to {MOST_FLAGS}", flags.len())));
    }
    Ok(Arc::new(FlagsType { name: name.into(), flags }))
}

#[derive(Clone, Debug)]
pub(super) struct Declared {
    pub(super) slot: usize,
    pub(super) name: Arc<str>,
    pub(super) kind: Type,
}

/// Attributes and types of a policy file.
#[derive(Default, Debug)]
pub(super) struct Symbols {
    pub(super) types: Types,
    attributes: FxHashMap<Arc<str>, Declared>,
}

impl Symbols {
    pub(super) fn read(file: &At<'_>) -> Result<Self, PolicyError> {
        let mut symbols = Self::default();
        if let Some(types) = file.get("types") {
            for (name, declaration) in types.entries("types by name")? {
                declaration.only("a type", &["meta", "flags"])?;
                let flags = flags_type(&declaration, name)?;
                symbols.types.declare(&declaration, flags)?;
            }
        }
        if let Some(attributes) = file.get("attributes") {
            for (name, kind) in attributes.entries("types by attribute")? {
                let kind = symbols.types.read(&kind)?;
                let slot = symbols.attributes.len();
                symbols.attributes.insert(name.into(), Declared { slot, name: name.into(), kind });
            }
        }
        Ok(symbols)
    }

    pub(super) fn len(&self) -> usize {
        self.attributes.len()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Declared> {
        self.attributes.get(name)
    }

    pub(super) fn attribute(&self, at: &At<'_>, name: &str) -> Result<&Declared, PolicyError> {
        self.get(name).ok_or_else(|| at.wrong(format_args!("the attribute `{name}` is not declared in `attributes`")))
    }
}

/// `{type: …, content: …}`
pub(super) fn immediate(at: &At<'_>, types: &Types) -> Result<(Type, Value), PolicyError> {
    at.only("a value", &["type", "content"])?;
    let kind = types.read(&at.need("type")?)?;
    let content = at.need("content")?;
    let value = match &kind {
        Type::Boolean => return Err(at.wrong("Themis has no immediate values of the type Boolean")),
        Type::Flags(flags) => flags_value(&content, flags)?,
        _ => values(&content, &kind)?,
    };
    Ok((kind, value))
}

pub(super) fn flags_value(at: &At<'_>, flags: &FlagsType) -> Result<Value, PolicyError> {
    let mut bits = 0;
    for (flag, item) in at.texts("the names of flags")? {
        let bit = flags.bit(flag);
        bits |= 1 << bit.ok_or_else(|| item.wrong(format_args!("`{flag}` is no flag of `{}`", flags.name)))?;
    }
    Ok(Value::Flags(Flags { count: flags.flags.len() as u8, bits }))
}

/// A value as policies and contents write it alike.
pub(super) fn values(at: &At<'_>, kind: &Type) -> Result<Value, PolicyError> {
    Ok(match kind {
        Type::Boolean => Value::Boolean(at.boolean()?),
        Type::String => Value::string(at.text("a text")?),
        Type::Integer => Value::Integer(at.integer()?),
        Type::Float => Value::Float(at.number()?),
        Type::Address => {
            let address = at.text("an address")?.parse::<IpAddr>();
            Value::Address(address.map_err(|_| at.wrong("it is no address"))?.to_canonical())
        }
        Type::Network => Value::Network(network(at.text("a network")?, at)?),
        Type::Domain => Value::Domain(domain(at.text("a domain")?, at)?),
        Type::SetOfStrings => Value::SetOfStrings(Arc::new(
            at.texts("a set of strings")?.into_iter().map(|(text, _)| text.into()).collect(),
        )),
        Type::SetOfNetworks => {
            let networks: Result<_, _> =
                at.texts("a set of networks")?.iter().map(|(text, at)| network(text, at)).collect();
            Value::SetOfNetworks(Arc::new(networks?))
        }
        Type::SetOfDomains => {
            let domains: Result<_, _> =
                at.texts("a set of domains")?.iter().map(|(text, at)| domain(text, at)).collect();
            Value::SetOfDomains(Arc::new(domains?))
        }
        Type::ListOfStrings => {
            Value::ListOfStrings(at.texts("a list of strings")?.into_iter().map(|(text, _)| text.into()).collect())
        }
        Type::Flags(flags) => flags_value(at, flags)?,
    })
}

fn network(text: &str, at: &At<'_>) -> Result<Network, PolicyError> {
    Network::parse(text).ok_or_else(|| at.wrong("it is no network"))
}

fn domain(text: &str, at: &At<'_>) -> Result<Name, PolicyError> {
    Name::parse(text).map_err(|error| at.wrong(format_args!("it is no domain: {error}")))
}
