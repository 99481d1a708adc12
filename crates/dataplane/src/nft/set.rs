//! The sets and maps of the table, and their elements. `catalog` has the names of
//! those that every table has.

// What is read back may be of another program, or of another version: it must not make this code panic.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod catalog;

pub use catalog::*;

use super::expression::{family_number, verdict, write_verdict};
use super::wire::{LIST_ELEMENT, data, element};
use crate::netlink::Messages;
use namewall_policy::domain::DomainName;
use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Version {
    V4,
    V6,
}

impl Version {
    pub const BOTH: [Version; 2] = [Version::V4, Version::V6];

    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// A lease group's id is too long for one register.
pub(crate) fn halves(group: u64) -> (u32, u32) {
    ((group >> 32) as u32, group as u32)
}

/// What a set's keys are made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Field {
    Number,
    Address(Version),
    Protocol,
    Port,
    /// IPv4 or IPv6.
    Family,
    /// The number of a network interface.
    Interface,
}

impl Field {
    /// nft's number for the type, its name, and its length as a key.
    fn facts(self) -> (u32, &'static str, u32) {
        match self {
            Self::Number => (19, "mark", 4),
            Self::Address(Version::V4) => (7, "ipv4_addr", 4),
            Self::Address(Version::V6) => (8, "ipv6_addr", 16),
            Self::Protocol => (12, "inet_proto", 1),
            Self::Port => (13, "inet_service", 2),
            Self::Family => (2, "nf_proto", 1),
            Self::Interface => (20, "iface_index", 4),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holds {
    Keys,
    Verdicts,
    Counters,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetSpec {
    pub name: String,
    pub key: Vec<Field>,
    pub holds: Holds,
    pub interval: bool,
    pub timeout: bool,
}

impl SetSpec {
    pub fn new(name: &str, key: &[Field], holds: Holds) -> Self {
        Self { name: name.to_owned(), key: key.to_vec(), holds, interval: false, timeout: false }
    }

    pub fn interval(mut self) -> Self {
        self.interval = true;
        self
    }

    pub fn timeout(mut self) -> Self {
        self.timeout = true;
        self
    }

    pub(crate) fn key_type(&self) -> u32 {
        self.key.iter().fold(0, |all, field| all << 6 | field.facts().0)
    }

    /// Fields of a concatenation are padded to whole registers.
    pub(crate) fn key_length(&self) -> u32 {
        match self.key.as_slice() {
            [only] => only.facts().2,
            several => several.iter().map(|field| field.facts().2.next_multiple_of(4)).sum(),
        }
    }

    pub(crate) fn field_lengths(&self) -> impl Iterator<Item = u32> {
        self.key.iter().map(|field| field.facts().2)
    }

    /// What it is there for, for whoever lists the table.
    pub fn purpose(&self) -> Option<&'static str> {
        catalog::purpose(&self.name)
    }

    pub(crate) fn type_text(&self) -> String {
        let names: Vec<&str> = self.key.iter().map(|field| field.facts().1).collect();
        names.join(" . ")
    }
}

/// An element as the kernel has it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Element {
    pub key: Key,
    /// For a concatenation of intervals: its other end.
    pub key_end: Option<Box<Key>>,
    /// For an interval: the first key that is no longer in it.
    pub ends_interval: bool,
    pub value: Value,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Value {
    None,
    // There are few of these, and very many elements.
    Goto(Box<String>),
    /// The name of a counter of the table.
    Counter(Box<String>),
}

impl Value {
    pub(crate) fn goto(chain: String) -> Self {
        Self::Goto(Box::new(chain))
    }

    pub(crate) fn counter(name: String) -> Self {
        Self::Counter(Box::new(name))
    }
}

/// A key, and whether an interval ends there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Index {
    pub key: Key,
    pub ends_interval: bool,
}

pub(crate) fn read_address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

/// How long an element stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetime(pub Duration);

impl Element {
    pub fn key(key: Key) -> Self {
        Self { key, key_end: None, ends_interval: false, value: Value::None }
    }

    pub(super) fn at(Index { key, ends_interval }: Index) -> Self {
        Self { ends_interval, ..Self::key(key) }
    }

    pub fn mapped(key: Key, value: Value) -> Self {
        Self { value, ..Self::key(key) }
    }

    /// Its key alone, to ask for it by.
    pub(crate) fn without_value(&self) -> Self {
        Self { value: Value::None, ..self.clone() }
    }

    /// What it is found by in its set: an interval may begin where another ends, and both are elements.
    pub(crate) fn index(&self) -> Index {
        Index { key: self.key, ends_interval: self.ends_interval }
    }

    pub(crate) fn write(&self, out: &mut Messages, passing: Option<&Transient>) {
        out.nested(LIST_ELEMENT, |out| {
            out.nested(element::KEY, |out| out.bytes(data::VALUE, self.key.as_bytes()));
            if let Some(end) = &self.key_end {
                out.nested(element::KEY_END, |out| out.bytes(data::VALUE, end.as_bytes()));
            }
            if self.ends_interval {
                out.u32(element::FLAGS, element::INTERVAL_END);
            }
            match &self.value {
                Value::None => {}
                Value::Goto(chain) => {
                    out.nested(element::DATA, |out| write_verdict(out, verdict::GOTO, Some(chain)));
                }
                Value::Counter(name) => out.text(element::OBJECT, name),
            }
            if let Some(Transient { lifetime: Lifetime(lifetime), note, .. }) = passing {
                // Both, or refreshing an element with the timeout it had changes nothing.
                let milliseconds =
                    u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX).clamp(1, LONGEST.as_millis() as u64);
                out.u64(element::TIMEOUT, milliseconds);
                out.u64(element::EXPIRATION, milliseconds);
                if let Some(text) = note.as_ref().and_then(LeaseNote::text) {
                    out.written(element::USERDATA, |bytes| super::batch::write_comment(bytes, &text));
                }
            }
        });
    }
}

/// How often the kernel looks for elements that have expired. That stalls packets while it runs, and they do not match
/// anyway.
pub(crate) const SWEEP: Duration = Duration::from_secs(3600);

/// The kernel counts in its own ticks and refuses what overflows them; nobody leases for longer.
pub(crate) const LONGEST: Duration = Duration::from_secs(31 * 24 * 3600);

/// Elements that go by themselves, a list for each version of IP.
pub(crate) type Passing = [Vec<Transient>; 2];

/// An element that goes by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Transient {
    pub(crate) element: Element,
    pub(crate) lifetime: Lifetime,
    /// What a lease was opened by.
    pub(crate) note: Option<LeaseNote>,
}

/// What stays with an address that was opened, so that the next process and operators can read it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LeaseNote {
    /// The name that was asked for.
    pub(crate) name: DomainName,
    pub(crate) asked_by: Option<IpAddr>,
}

/// Between the name and the client.
const ASKED_BY: &str = " asked by ";

impl LeaseNote {
    /// As much of it as fits into a comment; the name is never cut.
    fn text(&self) -> Option<String> {
        let Self { name, asked_by } = self;
        if name.as_str().len() > super::batch::COMMENT_MAX {
            return None;
        }
        // One piece of memory for all of it: every new lease has such a text.
        let mut text = String::with_capacity(super::batch::COMMENT_MAX);
        text.push_str(name.as_str());
        if let Some(client) = asked_by {
            // To write into a text cannot fail.
            let _ = write!(text, "{ASKED_BY}{client}");
        }
        if text.len() > super::batch::COMMENT_MAX {
            text.truncate(name.as_str().len());
        }
        Some(text)
    }

    pub(crate) fn read(text: &str) -> Option<Self> {
        let (name, client) = text.split_once(ASKED_BY).map_or((text, None), |(name, client)| (name, Some(client)));
        Some(Self {
            name: DomainName::parse_recorded(name).ok()?,
            asked_by: client.and_then(|client| client.parse().ok()),
        })
    }
}

/// The key of an element: fields one after another, each padded to a register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    bytes: [u8; Key::LONGEST],
    length: u8,
}

impl Default for Key {
    fn default() -> Self {
        Self { bytes: [0; Self::LONGEST], length: 0 }
    }
}

impl Key {
    /// Two IPv6 addresses, a protocol and two ports.
    const LONGEST: usize = 44;

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= Self::LONGEST).then(|| Self::default().with(bytes))
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }

    #[allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "fields of ours fit, others are checked"
    )]
    fn with(mut self, more: &[u8]) -> Self {
        let start = usize::from(self.length);
        self.bytes[start..start + more.len()].copy_from_slice(more);
        self.length += more.len() as u8;
        self
    }

    pub fn number(self, number: u32) -> Self {
        self.with(&number.to_ne_bytes())
    }

    pub fn address(self, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => self.with(&v4.octets()),
            IpAddr::V6(v6) => self.with(&v6.octets()),
        }
    }

    pub fn protocol(self, protocol: u8) -> Self {
        self.with(&[protocol, 0, 0, 0])
    }

    /// A protocol and nothing else: what stands alone is not padded.
    pub fn only_protocol(protocol: u8) -> Self {
        Self::default().with(&[protocol])
    }

    /// A family and nothing else.
    pub fn only_family(version: Version) -> Self {
        Self::default().with(&[family_number(version == Version::V4)])
    }

    pub fn port(self, port: u16) -> Self {
        let [high, low] = port.to_be_bytes();
        self.with(&[high, low, 0, 0])
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().fmt(f)
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use super::*;

    /// A note has room for 127 bytes. The client is left out first, then the name.
    #[test]
    fn a_note_has_the_name_and_the_client_as_far_as_there_is_room() {
        let client = Some("10.0.0.1".parse().unwrap());
        let text = |length: usize, asked_by| {
            let labels = format!("{}.example.com", vec!["a".repeat(40); 5].join("."));
            let name: DomainName = labels[labels.len() - length..].trim_start_matches('.').parse().unwrap();
            (LeaseNote { asked_by, name: name.clone() }.text(), name.to_string())
        };
        let (note, name) = text(109, client);
        assert_eq!(note, Some(format!("{name} asked by 10.0.0.1")));
        assert_eq!(text(109, None).0, Some(name));
        let (note, name) = text(110, client);
        assert_eq!(note, Some(name), "no room for the client");
        let (note, name) = text(127, client);
        assert_eq!(note, Some(name));
        assert_eq!(text(128, client).0, None);
        let note = LeaseNote::read("example.com asked by 10.0.0.1").unwrap();
        assert_eq!(note.text().and_then(|text| LeaseNote::read(&text)), Some(note));
    }

    #[test]
    fn keys_have_types_that_nft_can_print() {
        let spec = |key: &[Field]| SetSpec::new("a", key, Holds::Keys);
        let v6 = Field::Address(Version::V6);
        let lease = spec(&[Field::Number, Field::Number, v6]);
        assert_eq!((lease.type_text().as_str(), lease.key_length()), ("mark . mark . ipv6_addr", 24));
        assert_eq!(lease.key_type(), 19 << 12 | 19 << 6 | 8);
        let generation = spec(&[Field::Family]);
        assert_eq!((generation.type_text().as_str(), generation.key_length()), ("nf_proto", 1), "nothing is padded");
        let ports = spec(&[Field::Protocol, Field::Port]);
        assert_eq!((ports.type_text().as_str(), ports.key_length()), ("inet_proto . inet_service", 8));
    }
}
