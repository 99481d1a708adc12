//! The values Themis knows, and their types.

use super::domains::DomainMap;
use super::name::{Name, text_of};
use super::network::{Network, NetworkMap};
use rustc_hash::FxHashSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub enum Type {
    Boolean,
    String,
    Integer,
    Float,
    Address,
    Network,
    Domain,
    SetOfStrings,
    SetOfNetworks,
    SetOfDomains,
    ListOfStrings,
    /// One that a policy or a content declares.
    Flags(Arc<FlagsType>),
}

/// Up to 64 flags, each a bit from the lowest on.
#[derive(Debug)]
pub struct FlagsType {
    pub name: Box<str>,
    /// In lower case.
    pub flags: Vec<Arc<str>>,
}

impl FlagsType {
    pub(super) fn bit(&self, flag: &str) -> Option<usize> {
        self.flags.iter().position(|known| known.eq_ignore_ascii_case(flag))
    }

    /// The names of the bits that are set.
    pub(super) fn names(&self, bits: u64) -> impl Iterator<Item = Arc<str>> + '_ {
        self.flags.iter().enumerate().filter(move |(at, _)| bits >> at & 1 == 1).map(|(_, name)| name.clone())
    }
}

impl Type {
    /// By name, in any case; flags are whoever's that declared them.
    pub fn named(name: &str) -> Option<Self> {
        Some(match &*name.to_ascii_lowercase() {
            "boolean" => Self::Boolean,
            "string" => Self::String,
            "integer" => Self::Integer,
            "float" => Self::Float,
            "address" => Self::Address,
            "network" => Self::Network,
            "domain" => Self::Domain,
            "set of strings" => Self::SetOfStrings,
            "set of networks" => Self::SetOfNetworks,
            "set of domains" => Self::SetOfDomains,
            "list of strings" => Self::ListOfStrings,
            _ => return None,
        })
    }
}

/// Flags of two declarations are two types, even if they have the same names in them.
impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Flags(flags), Self::Flags(others)) => Arc::ptr_eq(flags, others),
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Boolean => "Boolean",
            Self::String => "String",
            Self::Integer => "Integer",
            Self::Float => "Float",
            Self::Address => "Address",
            Self::Network => "Network",
            Self::Domain => "Domain",
            Self::SetOfStrings => "Set of Strings",
            Self::SetOfNetworks => "Set of Networks",
            Self::SetOfDomains => "Set of Domains",
            Self::ListOfStrings => "List of Strings",
            Self::Flags(flags) => &flags.name,
        })
    }
}

/// A value. What is large is shared.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Boolean(bool),
    String(Arc<str>),
    Integer(i64),
    Float(f64),
    Address(IpAddr),
    Network(Network),
    Domain(Name),
    SetOfStrings(Arc<StringSet>),
    SetOfNetworks(Arc<NetworkSet>),
    SetOfDomains(Arc<DomainSet>),
    ListOfStrings(Arc<[Arc<str>]>),
    Flags(Flags),
}

/// How many flags there are, and which are set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flags {
    pub count: u8,
    pub bits: u64,
}

impl Value {
    pub fn string(text: &str) -> Self {
        Self::String(text.into())
    }

    /// Flags do not know their names, and so have none.
    pub(super) fn kind(&self) -> Option<Type> {
        Some(match self {
            Self::Boolean(_) => Type::Boolean,
            Self::String(_) => Type::String,
            Self::Integer(_) => Type::Integer,
            Self::Float(_) => Type::Float,
            Self::Address(_) => Type::Address,
            Self::Network(_) => Type::Network,
            Self::Domain(_) => Type::Domain,
            Self::SetOfStrings(_) => Type::SetOfStrings,
            Self::SetOfNetworks(_) => Type::SetOfNetworks,
            Self::SetOfDomains(_) => Type::SetOfDomains,
            Self::ListOfStrings(_) => Type::ListOfStrings,
            Self::Flags(_) => return None,
        })
    }

    /// What [`Display`](fmt::Display) writes, as a value again.
    pub(super) fn parse(kind: &Type, text: &str) -> Option<Self> {
        let items = || serde_json::from_str::<Vec<String>>(&format!("[{text}]")).ok();
        Some(match kind {
            Type::Boolean => Self::Boolean(text.parse().ok()?),
            Type::String => Self::string(text),
            Type::Integer => Self::Integer(text.parse().ok()?),
            Type::Float => Self::Float(text.parse().ok()?),
            Type::Address => Self::Address(text.parse::<IpAddr>().ok()?.to_canonical()),
            Type::Network => Self::Network(Network::parse(text)?),
            Type::Domain => Self::Domain(Name::parse(text).ok()?),
            Type::SetOfStrings => Self::SetOfStrings(Arc::new(items()?.iter().map(|item| (&**item).into()).collect())),
            Type::SetOfNetworks => {
                let networks: Option<_> = items()?.iter().map(|item| Network::parse(item)).collect();
                Self::SetOfNetworks(Arc::new(networks?))
            }
            Type::SetOfDomains => {
                let domains: Result<DomainSet, _> = items()?.iter().map(|item| Name::parse(item)).collect();
                Self::SetOfDomains(Arc::new(domains.ok()?))
            }
            Type::ListOfStrings => Self::ListOfStrings(items()?.iter().map(|item| (&**item).into()).collect()),
            Type::Flags(_) => return None,
        })
    }
}

/// As obligations are told: several items in quotes, with commas between.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(is) => write!(f, "{is}"),
            Self::String(text) => f.write_str(text),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number}"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Network(network) => write!(f, "{network}"),
            Self::Domain(name) => f.write_str(name.as_str()),
            Self::SetOfStrings(set) => quoted(f, set.iter()),
            Self::SetOfNetworks(set) => quoted(f, set.iter()),
            Self::SetOfDomains(set) => quoted(f, set.iter()),
            Self::ListOfStrings(list) => quoted(f, list.iter()),
            Self::Flags(flags) => write!(f, "{:#b} of {}", flags.bits, flags.count),
        }
    }
}

fn quoted(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = impl fmt::Display>) -> fmt::Result {
    for (at, item) in items.enumerate() {
        write!(f, "{}{}", if at > 0 { "," } else { "" }, serde_json::Value::String(item.to_string()))?;
    }
    Ok(())
}

/// Items of a set in the order of the last time each was named.
fn last_of_each<T: Clone + Eq + std::hash::Hash>(items: impl Iterator<Item = T>) -> Vec<T> {
    let all: Vec<T> = items.collect();
    let mut seen = FxHashSet::default();
    let mut kept: Vec<T> = all.iter().rev().filter(|item| seen.insert(*item)).cloned().collect();
    kept.reverse();
    kept
}

/// Texts without any twice, in an order.
#[derive(Clone, Default, Debug)]
pub struct StringSet {
    items: Vec<Arc<str>>,
    known: FxHashSet<Arc<str>>,
}

impl StringSet {
    pub fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.items.iter()
    }

    pub(super) fn contains(&self, text: &str) -> bool {
        self.known.contains(text)
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.known == other.known
    }

    /// What both have, by the alphabet.
    pub(super) fn intersect(&self, other: &Self) -> Self {
        let mut items: Vec<Arc<str>> = self.iter().filter(|item| other.contains(item)).cloned().collect();
        items.sort();
        items.into_iter().collect()
    }

    /// As a content has it: what is named twice stays where it was first.
    pub(super) fn of_content(items: impl Iterator<Item = Arc<str>>) -> Self {
        let mut set = Self::default();
        set.items.extend(items.filter(|item| set.known.insert(item.clone())));
        set
    }
}

impl FromIterator<Arc<str>> for StringSet {
    fn from_iter<I: IntoIterator<Item = Arc<str>>>(items: I) -> Self {
        let items = last_of_each(items.into_iter());
        Self { known: items.iter().cloned().collect(), items }
    }
}

/// In the same order.
impl PartialEq for StringSet {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
    }
}

/// Networks without any twice, in an order.
#[derive(Clone, Default, Debug)]
pub struct NetworkSet {
    items: Vec<Network>,
    map: NetworkMap<()>,
}

impl NetworkSet {
    pub fn iter(&self) -> impl Iterator<Item = &Network> {
        self.items.iter()
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.map.get(Network::host(address)).is_some()
    }
}

impl FromIterator<Network> for NetworkSet {
    fn from_iter<I: IntoIterator<Item = Network>>(items: I) -> Self {
        let items = last_of_each(items.into_iter());
        let mut map = NetworkMap::default();
        for network in &items {
            map.insert(*network, ());
        }
        Self { items, map }
    }
}

impl PartialEq for NetworkSet {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
    }
}

/// Domains without any twice, in an order. They are told in lower case.
#[derive(Clone, Default, Debug)]
pub struct DomainSet {
    items: Vec<Arc<str>>,
    map: DomainMap<()>,
}

impl DomainSet {
    pub fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.items.iter()
    }

    pub(super) fn contains(&self, name: &Name) -> bool {
        self.map.get(name).is_some()
    }
}

impl FromIterator<Name> for DomainSet {
    fn from_iter<I: IntoIterator<Item = Name>>(names: I) -> Self {
        let mut map = DomainMap::default();
        let texts = names.into_iter().map(|name| {
            map.insert(&name, ());
            Arc::from(text_of(name.key()))
        });
        let items = last_of_each(texts);
        Self { items, map }
    }
}

impl PartialEq for DomainSet {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(items: &[&str]) -> StringSet {
        items.iter().map(|item| Arc::from(*item)).collect()
    }

    #[test]
    fn sets_keep_an_order_without_doubles() {
        assert_eq!(strings(&["b", "a", "b"]), strings(&["a", "b"]));
        assert_ne!(strings(&["b", "a"]), strings(&["a", "b"]));
        assert!(strings(&["b", "a"]).is_same(&strings(&["a", "b"])));
        let both = strings(&["c", "b", "a"]).intersect(&strings(&["a", "c", "d"]));
        assert_eq!(both, strings(&["a", "c"]));
        let content = StringSet::of_content(["b", "a", "b"].into_iter().map(Arc::from));
        assert_eq!(content, strings(&["b", "a"]));
    }

    #[test]
    fn what_is_written_can_be_read() {
        let set = Value::SetOfStrings(Arc::new(strings(&["a,b", "\"q\""])));
        assert_eq!(set.to_string(), r#""a,b","\"q\"""#);
        let networks = ["10.0.0.0/8", "::/0"].into_iter().filter_map(Network::parse).collect();
        let domains = ["Example.com.", "net"].into_iter().filter_map(|text| Name::parse(text).ok()).collect();
        for value in [
            set,
            Value::Boolean(true),
            Value::string(""),
            Value::Integer(-5),
            Value::Float(1.5),
            Value::Address("::1".parse().unwrap()),
            Value::Network(Network::parse("10.0.0.0/8").unwrap()),
            Value::Domain(Name::parse("A.example.").unwrap()),
            Value::SetOfNetworks(Arc::new(networks)),
            Value::SetOfDomains(Arc::new(domains)),
            Value::ListOfStrings(["a", "a"].into_iter().map(Arc::from).collect()),
        ] {
            let read = Value::parse(&value.kind().unwrap(), &value.to_string());
            assert_eq!(read.as_ref(), Some(&value));
        }
    }
}
