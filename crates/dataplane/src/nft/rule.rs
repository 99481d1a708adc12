//! A rule of the kernel's table: tests that must all hold, then what happens.
//! It is written as kernel expressions here, and in `text` as `nft list` shows it.

mod text;

use super::expression::{Base, Expression, FIRST, conntrack, family_number, meta, verdict};
use super::set::{self, Version};
use std::net::IpAddr;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
/// TCP's flags, as far as they say what a packet is there for.
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rule {
    pub tests: Vec<Test>,
    pub actions: Vec<Action>,
    /// What it is there for: the policy's rule.
    pub comment: Option<String>,
}

/// Which end of the packet an address is at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    Source,
    Destination,
}

/// Which of its chains a class is sent to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Walk {
    Egress = 1,
    Ingress = 2,
    /// The same for policies that are only audited.
    AuditEgress = 3,
    AuditIngress = 4,
    /// The cluster gates of pods of other nodes.
    Remote = 5,
    AuditRemote = 6,
}

impl Walk {
    /// The walk of pods of other nodes, in place of that of our own.
    pub(crate) fn of_others(self) -> Self {
        match self {
            Self::Egress | Self::Ingress | Self::Remote => Self::Remote,
            Self::AuditEgress | Self::AuditIngress | Self::AuditRemote => Self::AuditRemote,
        }
    }

    /// What an address leads to a number by.
    fn numbers(self) -> set::Twins {
        match self {
            Self::Egress | Self::Ingress | Self::AuditEgress | Self::AuditIngress => set::WHO,
            Self::Remote | Self::AuditRemote => set::REMOTE,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Test {
    /// The packet belongs to a connection that was let through.
    Established,
    /// It is about one, or belongs to one that a helper expects.
    Related,
    /// The first packet of a connection.
    New,
    /// TCP that opens nothing: a connection begins with a bare SYN.
    MidStream,
    /// It belongs to a connection that was cut.
    WasCut(Version),
    /// The destination was changed: it came through a Service.
    Translated,
    /// IPv6 cannot do without these.
    NeighbourDiscovery,
    Version(Version),
    Protocol(u8),
    NotProtocol(u8),
    /// The destination's port; needs a test of the protocol before it.
    Port {
        low: u16,
        high: u16,
    },
    /// Protocol and destination port are in a set.
    PortsIn(String),
    /// The address is one of a range.
    Between {
        end: End,
        low: IpAddr,
        high: IpAddr,
    },
    /// The address is in a set of networks.
    Within {
        end: End,
        version: Version,
        set: String,
    },
    /// The address is that of a pod in a group of peers.
    Peer {
        end: End,
        version: Version,
        group: u32,
    },
    /// A name the group knows leads to the destination, for now.
    Leased {
        version: Version,
        group: u64,
    },
    /// The destination pod calls this port by a name the group knows.
    NamedPort {
        version: Version,
        group: u32,
    },
    /// The pod at one end is the pod at the other.
    OwnAddress(Version),
    /// A question to a DNS server, while ours lives.
    AsksDns,
    /// The destination, or what was asked for before it was changed, is a Service that answers DNS.
    Resolver {
        version: Version,
        asked: bool,
    },
    /// The pod may ask the Service that the packet goes to, or that it asked for.
    Asker {
        version: Version,
        asked: bool,
    },
    /// The source is a pod that is judged here.
    Local(Version),
    /// The port that was asked for, before it was changed.
    AskedPort(u16),
    /// The last change had this number.
    Generation(u16),
    /// One in so many, in turn.
    EveryNth(u32),
    /// No more often than this; the rest goes on to the next rule.
    AtMost {
        a_second: u64,
        burst: u32,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    Count,
    Log {
        group: u16,
        prefix: String,
    },
    Accept,
    Drop,
    Return,
    Jump(String),
    Goto(String),
    /// To the chain there is for the class of the pod at this end, if it has one.
    Dispatch {
        end: End,
        version: Version,
        walk: Walk,
    },
    /// Sends the connection to another address and port.
    TranslateTo {
        address: IpAddr,
        port: u16,
    },
    /// Makes the node the source.
    Masquerade,
    /// To the chain of the Service the connection was addressed to.
    DispatchService {
        version: Version,
        map: String,
    },
}

impl Rule {
    pub fn new(tests: impl Into<Vec<Test>>, action: Action) -> Self {
        Self { tests: tests.into(), actions: vec![action], comment: None }
    }

    pub fn about(mut self, comment: impl Into<String>) -> Self {
        self.comment = Some(comment.into());
        self
    }

    pub(crate) fn expressions(&self) -> Vec<Expression> {
        let mut out = Vec::new();
        for test in &self.tests {
            test.write(&mut out);
        }
        for action in &self.actions {
            action.write(&mut out);
        }
        out
    }
}

fn address_at(end: End, version: Version, into: u32) -> Expression {
    let (offset, length) = match (version, end) {
        (Version::V4, End::Source) => (12, 4),
        (Version::V4, End::Destination) => (16, 4),
        (Version::V6, End::Source) => (8, 16),
        (Version::V6, End::Destination) => (24, 16),
    };
    Expression::Payload { into, base: Base::Network, offset, length }
}

fn version_is(version: Version) -> [Expression; 2] {
    [
        Expression::Meta { into: FIRST, key: meta::FAMILY },
        Expression::Compare { register: FIRST, equal: true, to: vec![family_number(version == Version::V4)] },
    ]
}

fn protocol_is(number: u8, equal: bool) -> [Expression; 2] {
    [
        Expression::Meta { into: FIRST, key: meta::PROTOCOL },
        Expression::Compare { register: FIRST, equal, to: vec![number] },
    ]
}

fn port_into(into: u32) -> Expression {
    Expression::Payload { into, base: Base::Transport, offset: 2, length: 2 }
}

fn source_port_into(into: u32) -> Expression {
    Expression::Payload { into, base: Base::Transport, offset: 0, length: 2 }
}

fn load(into: u32, value: u32) -> Expression {
    Expression::Load { into, value: value.to_ne_bytes().to_vec() }
}

fn lookup(set: &str, register: u32) -> Expression {
    Expression::Lookup { set: set.to_owned(), register, into: None, inverted: false }
}

/// How many registers an address takes.
fn width(version: Version) -> u32 {
    match version {
        Version::V4 => 1,
        Version::V6 => 4,
    }
}

fn flags_hold(key: u32, flags: u32) -> [Expression; 3] {
    [
        Expression::Conntrack { into: FIRST, key, original: false },
        Expression::Mask { register: FIRST, mask: flags.to_ne_bytes().to_vec() },
        Expression::Compare { register: FIRST, equal: false, to: vec![0; 4] },
    ]
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

impl Test {
    fn write(&self, out: &mut Vec<Expression>) {
        match self {
            Self::Established => out.extend(flags_hold(conntrack::STATE, conntrack::ESTABLISHED)),
            Self::Related => out.extend(flags_hold(conntrack::STATE, conntrack::RELATED)),
            Self::New => out.extend(flags_hold(conntrack::STATE, conntrack::NEW)),
            Self::MidStream => {
                out.extend(protocol_is(TCP, true));
                out.push(Expression::Payload { into: FIRST, base: Base::Transport, offset: 13, length: 1 });
                out.push(Expression::Mask { register: FIRST, mask: vec![FIN | SYN | RST | ACK] });
                out.push(Expression::Compare { register: FIRST, equal: false, to: vec![SYN] });
            }
            Self::WasCut(version) => {
                let (second, after) = (FIRST + width(*version), FIRST + 2 * width(*version));
                out.extend(version_is(*version));
                out.push(address_at(End::Source, *version, FIRST));
                out.push(address_at(End::Destination, *version, second));
                out.push(Expression::Meta { into: after, key: meta::PROTOCOL });
                out.push(source_port_into(after + 1));
                out.push(port_into(after + 2));
                out.push(lookup(set::CUT[*version], FIRST));
            }
            Self::Translated => out.extend(flags_hold(conntrack::STATUS, conntrack::TRANSLATED)),
            Self::NeighbourDiscovery => {
                out.extend(protocol_is(58, true));
                out.push(Expression::Payload { into: FIRST, base: Base::Transport, offset: 0, length: 1 });
                out.push(Expression::Range { register: FIRST, low: vec![133], high: vec![137] });
                // Only from this very link: what was routed has come down from there.
                out.push(Expression::Payload { into: FIRST, base: Base::Network, offset: 7, length: 1 });
                out.push(Expression::Compare { register: FIRST, equal: true, to: vec![255] });
            }
            Self::Version(version) => out.extend(version_is(*version)),
            Self::Protocol(number) => out.extend(protocol_is(*number, true)),
            Self::NotProtocol(number) => out.extend(protocol_is(*number, false)),
            Self::Port { low, high } => {
                out.push(port_into(FIRST));
                out.push(between(low.to_be_bytes().to_vec(), high.to_be_bytes().to_vec()));
            }
            Self::PortsIn(set) => {
                out.push(Expression::Meta { into: FIRST, key: meta::PROTOCOL });
                out.push(port_into(FIRST + 1));
                out.push(lookup(set, FIRST));
            }
            Self::Between { end, low, high } => {
                let version = Version::of(*low);
                out.extend(version_is(version));
                out.push(address_at(*end, version, FIRST));
                out.push(between(octets(*low), octets(*high)));
            }
            Self::Within { end, version, set } => {
                out.extend(version_is(*version));
                out.push(address_at(*end, *version, FIRST));
                out.push(lookup(set, FIRST));
            }
            Self::Peer { end, version, group } => {
                out.extend(version_is(*version));
                out.push(load(FIRST, *group));
                out.push(address_at(*end, *version, FIRST + 1));
                out.push(lookup(set::PEERS[*version], FIRST));
            }
            Self::Leased { version, group } => {
                out.extend(version_is(*version));
                let (high, low) = set::halves(*group);
                out.extend([load(FIRST, high), load(FIRST + 1, low)]);
                out.push(address_at(End::Destination, *version, FIRST + 2));
                out.push(lookup(set::LEASE[*version], FIRST));
            }
            Self::NamedPort { version, group } => {
                out.extend(version_is(*version));
                let after = FIRST + 1 + width(*version);
                out.push(load(FIRST, *group));
                out.push(address_at(End::Destination, *version, FIRST + 1));
                out.push(Expression::Meta { into: after, key: meta::PROTOCOL });
                out.push(port_into(after + 1));
                out.push(lookup(set::NAMED[*version], FIRST));
            }
            Self::OwnAddress(version) => {
                out.extend(version_is(*version));
                out.push(address_at(End::Source, *version, FIRST));
                out.push(address_at(End::Destination, *version, FIRST + width(*version)));
                out.push(lookup(set::OWN[*version], FIRST));
            }
            Self::AsksDns => {
                // The port first: it tells most packets apart, and costs least.
                out.push(port_into(FIRST));
                out.push(Expression::Compare { register: FIRST, equal: true, to: 53_u16.to_be_bytes().to_vec() });
                out.push(Expression::Meta { into: FIRST, key: meta::PROTOCOL });
                out.push(lookup(set::ALIVE, FIRST));
            }
            Self::Resolver { version, asked } => {
                out.extend(version_is(*version));
                out.push(destination(*version, *asked, FIRST));
                out.push(Expression::Meta { into: FIRST + width(*version), key: meta::PROTOCOL });
                out.push(lookup(set::RESOLVERS[*version], FIRST));
            }
            Self::Asker { version, asked } => {
                out.extend(version_is(*version));
                out.push(address_at(End::Source, *version, FIRST));
                out.push(destination(*version, *asked, FIRST + width(*version)));
                out.push(Expression::Meta { into: FIRST + 2 * width(*version), key: meta::PROTOCOL });
                out.push(lookup(set::ASKERS[*version], FIRST));
            }
            Self::Local(version) => {
                out.extend(version_is(*version));
                out.push(address_at(End::Source, *version, FIRST));
                let (set, into) = (set::WHO[*version].to_owned(), Some(FIRST + 4));
                out.push(Expression::Lookup { set, register: FIRST, into, inverted: false });
            }
            Self::AskedPort(port) => {
                out.push(Expression::Conntrack { into: FIRST, key: conntrack::PORT, original: true });
                out.push(Expression::Compare { register: FIRST, equal: true, to: port.to_be_bytes().to_vec() });
            }
            Self::Generation(number) => {
                out.push(Expression::Load { into: FIRST, value: number.to_be_bytes().to_vec() });
                out.push(lookup(set::GENERATION, FIRST));
            }
            Self::EveryNth(below) => {
                out.push(Expression::Turn { into: FIRST, below: *below });
                out.push(Expression::Compare { register: FIRST, equal: true, to: vec![0; 4] });
            }
            Self::AtMost { a_second, burst } => {
                out.push(Expression::Limit { a_second: *a_second, burst: *burst });
            }
        }
    }
}

/// The destination as it is, or as it was asked for.
fn destination(version: Version, asked: bool, into: u32) -> Expression {
    match (asked, version) {
        (false, _) => address_at(End::Destination, version, into),
        (true, Version::V4) => Expression::Conntrack { into, key: conntrack::DESTINATION_V4, original: true },
        (true, Version::V6) => Expression::Conntrack { into, key: conntrack::DESTINATION_V6, original: true },
    }
}

/// The group of peers that a rule asks for: what was loaded last before it asks.
pub(crate) fn peer_group(expressions: &[Expression]) -> Option<u32> {
    let is_peers = |set: &str| set == set::PEERS.0 || set == set::PEERS.1;
    let asks = |expression: &Expression| matches!(expression, Expression::Lookup { set, .. } if is_peers(set));
    let at = expressions.iter().position(asks)?;
    expressions[..at].iter().rev().find_map(|expression| match expression {
        Expression::Load { into: FIRST, value } => value.as_slice().try_into().ok().map(u32::from_ne_bytes),
        _ => None,
    })
}

fn between(low: Vec<u8>, high: Vec<u8>) -> Expression {
    if low == high {
        Expression::Compare { register: FIRST, equal: true, to: low }
    } else {
        Expression::Range { register: FIRST, low, high }
    }
}

impl Action {
    fn write(&self, out: &mut Vec<Expression>) {
        let verdict = |code| Expression::Verdict { code, chain: None };
        match self {
            Self::Count => out.push(Expression::Counter),
            Self::Log { group, prefix } => out.push(Expression::Log { group: *group, prefix: prefix.clone() }),
            Self::Accept => out.push(verdict(verdict::ACCEPT)),
            Self::Drop => out.push(verdict(verdict::DROP)),
            Self::Return => out.push(verdict(verdict::RETURN)),
            Self::Jump(chain) => out.push(Expression::Verdict { code: verdict::JUMP, chain: Some(chain.clone()) }),
            Self::Goto(chain) => out.push(Expression::Verdict { code: verdict::GOTO, chain: Some(chain.clone()) }),
            Self::Dispatch { end, version, walk } => {
                out.extend(version_is(*version));
                // The class goes into the second half of a number that was loaded
                // whole. `nft list` cannot show one look-up that feeds another: it
                // ends in an assertion. This way it sees the number alone.
                let whole = [(*walk as u32).to_ne_bytes(), [0; 4]].concat();
                out.push(Expression::Load { into: FIRST, value: whole });
                out.push(address_at(*end, *version, FIRST + 4));
                let who = walk.numbers()[*version].to_owned();
                let (register, into) = (FIRST + 4, Some(FIRST + 1));
                out.push(Expression::Lookup { set: who, register, into, inverted: false });
                out.push(Expression::Dispatch { map: set::CLASSES.to_owned(), register: FIRST });
            }
            Self::TranslateTo { address, port } => {
                let port_at = FIRST + width(Version::of(*address));
                out.push(Expression::Load { into: FIRST, value: octets(*address) });
                out.push(Expression::Load { into: port_at, value: port.to_be_bytes().to_vec() });
                let family = family_number(address.is_ipv4());
                out.push(Expression::TranslateDestination { family, address: FIRST, port: port_at });
            }
            Self::Masquerade => out.push(Expression::Masquerade),
            Self::DispatchService { version, map } => {
                out.extend(version_is(*version));
                let key = match version {
                    Version::V4 => conntrack::DESTINATION_V4,
                    Version::V6 => conntrack::DESTINATION_V6,
                };
                let after = FIRST + width(*version);
                out.push(Expression::Conntrack { into: FIRST, key, original: true });
                out.push(Expression::Meta { into: after, key: meta::PROTOCOL });
                out.push(Expression::Conntrack { into: after + 1, key: conntrack::PORT, original: true });
                out.push(Expression::Dispatch { map: map.clone(), register: FIRST });
            }
        }
    }
}
