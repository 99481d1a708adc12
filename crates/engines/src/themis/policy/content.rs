//! Local content: what selectors look up. A content has items, an item a value
//! or maps of maps of values, by text, network or domain.

use super::at::{At, PolicyError};
use super::symbols::{Types, flags_type, flags_value, values};
use crate::themis::domains::DomainMap;
use crate::themis::name::Name;
use crate::themis::network::{Network, NetworkMap};
use crate::themis::value::{StringSet, Type, Value};
use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Contents by id, items by name.
pub(super) type Contents = FxHashMap<Box<str>, FxHashMap<Box<str>, Arc<Item>>>;

#[derive(Debug)]
pub(super) struct Item {
    pub(super) kind: Type,
    pub(super) keys: Vec<KeyKind>,
    pub(super) root: Level,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeyKind {
    Text,
    /// Of addresses and networks alike.
    Network,
    Domain,
}

impl KeyKind {
    /// Whether a value of this type can be looked up.
    pub(super) fn takes(self, kind: &Type) -> bool {
        match self {
            Self::Text => *kind == Type::String,
            Self::Network => matches!(kind, Type::Address | Type::Network),
            Self::Domain => *kind == Type::Domain,
        }
    }
}

#[derive(Debug)]
pub(super) enum Level {
    Value(Value),
    Texts(FxHashMap<Box<str>, Level>),
    Networks(NetworkMap<Level>),
    Domains(DomainMap<Level>),
}

impl Level {
    pub(super) fn get(&self, key: &Value) -> Option<&Self> {
        match (self, key) {
            (Self::Texts(map), Value::String(text)) => map.get(&**text),
            (Self::Networks(map), Value::Address(address)) => map.get(Network::host(*address)),
            (Self::Networks(map), Value::Network(network)) => map.get(*network),
            (Self::Domains(map), Value::Domain(name)) => map.get(name),
            _ => None,
        }
    }

    pub(super) fn get_text(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Texts(map) => map.get(key),
            _ => None,
        }
    }
}

/// Reads a content and adds it to the others.
pub(super) fn read(file: &At<'_>, contents: &mut Contents) -> Result<(), PolicyError> {
    file.only("a content", &["id", "items"])?;
    let id = match file.get("id") {
        Some(id) => id.text("the id of the content")?,
        None => "",
    };
    let mut items = FxHashMap::default();
    let mut types = Types::default();
    if let Some(list) = file.get("items") {
        for (name, item) in list.entries("the items of the content")? {
            items.insert(name.into(), Arc::new(read_item(&item, &mut types)?));
        }
    }
    match contents.insert(id.into(), items) {
        None => Ok(()),
        Some(_) => Err(file.wrong(format_args!("there are two contents of the id `{id}`"))),
    }
}

fn read_item(at: &At<'_>, types: &mut Types) -> Result<Item, PolicyError> {
    at.only("an item", &["type", "keys", "data"])?;
    let kind = at.need("type")?;
    let kind = if kind.is_text() { types.read(&kind)? } else { declared(&kind, types)? };
    let mut keys = Vec::new();
    if let Some(list) = at.get("keys") {
        for key in list.items("a list of types")? {
            keys.push(match Type::named(key.text("a type")?) {
                Some(Type::String) => KeyKind::Text,
                Some(Type::Address | Type::Network) => KeyKind::Network,
                Some(Type::Domain) => KeyKind::Domain,
                _ => return Err(key.wrong("keys are of the types string, address, network or domain")),
            });
        }
    }
    let root = read_level(&at.need("data")?, &keys, &kind)?;
    Ok(Item { kind, keys, root })
}

/// `{"meta": "flags", "name": …, "flags": […]}`; by its name later items can have it too.
fn declared(at: &At<'_>, types: &mut Types) -> Result<Type, PolicyError> {
    at.only("a type", &["meta", "name", "flags"])?;
    let name = at.get("name").map(|name| name.text("the name of the type").map(str::to_owned)).transpose()?;
    let kind = flags_type(at, name.as_deref().unwrap_or("flags"))?;
    if name.is_some() {
        types.declare(at, kind.clone())?;
    }
    Ok(Type::Flags(kind))
}

fn read_level(at: &At<'_>, keys: &[KeyKind], kind: &Type) -> Result<Level, PolicyError> {
    let Some((key, deeper)) = keys.split_first() else { return Ok(Level::Value(read_value(at, kind)?)) };
    let entries = at.entries("a map")?;
    match key {
        KeyKind::Text => {
            let mut map = FxHashMap::default();
            for (key, entry) in entries {
                map.insert(key.into(), read_level(&entry, deeper, kind)?);
            }
            Ok(Level::Texts(map))
        }
        KeyKind::Network => {
            let mut map = NetworkMap::default();
            for (key, entry) in entries {
                let network = address_or_network(key).ok_or_else(|| entry.wrong("its key is no address or network"))?;
                if map.insert(network, read_level(&entry, deeper, kind)?).is_some() {
                    return Err(entry.wrong(format_args!("{network} is here twice")));
                }
            }
            Ok(Level::Networks(map))
        }
        KeyKind::Domain => {
            let mut map = DomainMap::default();
            for (key, entry) in entries {
                let name =
                    Name::parse(key).map_err(|error| entry.wrong(format_args!("its key is no name: {error}")))?;
                if map.insert(&name, read_level(&entry, deeper, kind)?).is_some() {
                    return Err(entry.wrong("this name is here twice"));
                }
            }
            Ok(Level::Domains(map))
        }
    }
}

fn address_or_network(text: &str) -> Option<Network> {
    text.parse::<IpAddr>().ok().map(Network::host).or_else(|| Network::parse(text))
}

/// Contents may have what policies may not: booleans, addresses in sets of networks, maps as sets.
fn read_value(at: &At<'_>, kind: &Type) -> Result<Value, PolicyError> {
    Ok(match kind {
        Type::Boolean => Value::Boolean(at.boolean()?),
        Type::SetOfStrings => {
            let texts = at.texts("a set of strings")?;
            Value::SetOfStrings(Arc::new(StringSet::of_content(texts.into_iter().map(|(text, _)| text.into()))))
        }
        Type::SetOfNetworks => {
            let mut networks = Vec::new();
            for (text, item) in at.texts("a set of networks")? {
                networks.push(address_or_network(text).ok_or_else(|| item.wrong("it is no address or network"))?);
            }
            Value::SetOfNetworks(Arc::new(networks.into_iter().collect()))
        }
        Type::Flags(flags) => flags_value(at, flags)?,
        _ => values(at, kind)?,
    })
}
