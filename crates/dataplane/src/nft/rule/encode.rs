//! Rules as kernel expressions.

use super::{Action, End, ICMPV6, PacketInterface, TCP, Test};
use crate::nft::expression::{Base, Expression, FIRST, conntrack, family_number, meta, verdict};
use crate::nft::set::{self, Version};
use std::net::IpAddr;

/// TCP's flags, as far as they say what a packet is there for.
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

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

pub(super) fn protocol_is(number: u8, equal: bool) -> [Expression; 2] {
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

/// A number as a part of a key: no bit of the packet's mark, and the bits of the number in their place. A plain
/// immediate would take one expression less, but nft has no type for it in a concatenation, and prints
/// `[invalid type]`.
fn number(into: u32, number: u32) -> [Expression; 2] {
    let (mask, flip) = (vec![0; 4], number.to_ne_bytes().to_vec());
    [Expression::Meta { into, key: meta::MARK }, Expression::Bitwise { register: into, mask, flip }]
}

fn masked(mask: Vec<u8>) -> Expression {
    let flip = vec![0; mask.len()];
    Expression::Bitwise { register: FIRST, mask, flip }
}

fn lookup(set: &str, register: u32) -> Expression {
    Expression::Lookup { set: set.to_owned(), register }
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
        masked(flags.to_ne_bytes().to_vec()),
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
    pub(super) fn write(&self, out: &mut Vec<Expression>) {
        match self {
            Self::Established => out.extend(flags_hold(conntrack::STATE, conntrack::ESTABLISHED)),
            Self::Related => out.extend(flags_hold(conntrack::STATE, conntrack::RELATED)),
            Self::New => out.extend(flags_hold(conntrack::STATE, conntrack::NEW)),
            Self::MidStream => {
                out.extend(protocol_is(TCP, true));
                out.push(Expression::Payload { into: FIRST, base: Base::Transport, offset: 13, length: 1 });
                out.push(masked(vec![FIN | SYN | RST | ACK]));
                out.push(Expression::Compare { register: FIRST, equal: false, to: vec![SYN] });
            }
            Self::IsReset => {
                out.extend(protocol_is(TCP, true));
                out.push(Expression::Payload { into: FIRST, base: Base::Transport, offset: 13, length: 1 });
                out.push(masked(vec![RST]));
                out.push(Expression::Compare { register: FIRST, equal: false, to: vec![0] });
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
                // The protocol first: it tells most packets apart.
                out.extend(protocol_is(ICMPV6, true));
                out.extend(version_is(Version::V6));
                // Only from this very link: what was routed has come down from there.
                out.push(Expression::Payload { into: FIRST, base: Base::Network, offset: 7, length: 1 });
                out.push(Expression::Compare { register: FIRST, equal: true, to: vec![255] });
                out.push(Expression::Payload { into: FIRST, base: Base::Transport, offset: 0, length: 1 });
                out.push(Expression::Range { register: FIRST, low: vec![133], high: vec![137] });
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
                out.extend(number(FIRST, *group));
                out.push(address_at(*end, *version, FIRST + 1));
                out.push(lookup(set::PEERS[*version], FIRST));
            }
            Self::Joined { end, version, number: joined } => {
                out.extend(version_is(*version));
                out.extend(number(FIRST, *joined));
                out.push(address_at(*end, *version, FIRST + 1));
                out.push(Expression::CountIn { map: set::JOINED[*version].to_owned(), register: FIRST });
            }
            Self::Gate { version, number: gate } => {
                out.extend(version_is(*version));
                out.extend(number(FIRST, *gate));
                out.push(address_at(End::Source, *version, FIRST + 1));
                out.push(lookup(set::GATES[*version], FIRST));
            }
            Self::Leased { version, group } => {
                out.extend(version_is(*version));
                let (high, low) = set::halves(*group);
                out.extend(number(FIRST, high));
                out.extend(number(FIRST + 1, low));
                out.push(address_at(End::Destination, *version, FIRST + 2));
                out.push(lookup(set::LEASE[*version], FIRST));
            }
            Self::NamedPort { version, group } => {
                out.extend(version_is(*version));
                let after = FIRST + 1 + width(*version);
                out.extend(number(FIRST, *group));
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
                out.push(lookup(set::LOCAL[*version], FIRST));
            }
            Self::AskedPort(port) => {
                out.push(Expression::Conntrack { into: FIRST, key: conntrack::PORT, original: true });
                out.push(Expression::Compare { register: FIRST, equal: true, to: port.to_be_bytes().to_vec() });
            }
            Self::Generation(number) => {
                out.push(Expression::Meta { into: FIRST, key: meta::FAMILY });
                out.push(lookup(&set::generation(*number), FIRST));
            }
            Self::Frame(test) => test.write(out),
            Self::GoesOutBy(set) => {
                out.push(Expression::Meta { into: FIRST, key: meta::OUTPUT_INTERFACE });
                out.push(lookup(set, FIRST));
            }
            Self::Interface { which, index, is_it } => {
                let key = match which {
                    PacketInterface::Input => meta::INPUT_INTERFACE,
                    PacketInterface::Output => meta::OUTPUT_INTERFACE,
                };
                out.push(Expression::Meta { into: FIRST, key });
                out.push(Expression::Compare { register: FIRST, equal: *is_it, to: index.to_ne_bytes().to_vec() });
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

/// The group of peers that a rule asks for: the number in the first register when it asks.
pub(crate) fn peer_group(expressions: &[Expression]) -> Option<u32> {
    numbers_asked(expressions, set::PEERS)?.first().copied()
}

/// The number of the cluster gates that a rule asks for.
pub(crate) fn gate_number(expressions: &[Expression]) -> Option<u32> {
    numbers_asked(expressions, set::GATES)?.first().copied()
}

/// The group of leases that a rule asks for.
pub(crate) fn lease_group(expressions: &[Expression]) -> Option<u64> {
    let [high, low] = numbers_asked(expressions, set::LEASE)?[..] else { return None };
    Some(u64::from(high) << 32 | u64::from(low))
}

/// The numbers in the key when a rule looks one of these sets up.
fn numbers_asked(expressions: &[Expression], twins: set::Twins) -> Option<Vec<u32>> {
    let asks = |one: &Expression| matches!(one, Expression::Lookup { set, .. } if *set == twins.0 || *set == twins.1);
    let at = expressions.iter().position(asks)?;
    let is_lookup = |expression: &&Expression| matches!(expression, Expression::Lookup { .. });
    let key = expressions[..at].iter().rev().take_while(|expression| !is_lookup(expression));
    let mut numbers: Vec<u32> = key
        .filter_map(|expression| match expression {
            Expression::Bitwise { mask, flip, .. } if mask.iter().all(|byte| *byte == 0) => {
                flip.as_slice().try_into().ok().map(u32::from_ne_bytes)
            }
            _ => None,
        })
        .collect();
    numbers.reverse();
    Some(numbers)
}

pub(super) fn between(low: Vec<u8>, high: Vec<u8>) -> Expression {
    if low == high {
        Expression::Compare { register: FIRST, equal: true, to: low }
    } else {
        Expression::Range { register: FIRST, low, high }
    }
}

impl Action {
    pub(super) fn write(&self, out: &mut Vec<Expression>) {
        let verdict = |code| Expression::Verdict { code, chain: None };
        match self {
            Self::Count => out.push(Expression::Counter),
            Self::Log { group, prefix } => out.push(Expression::Log { group: *group, prefix: prefix.clone() }),
            Self::Accept => out.push(verdict(verdict::ACCEPT)),
            Self::Drop => out.push(verdict(verdict::DROP)),
            Self::Reset => out.push(Expression::Reset),
            Self::Return => out.push(verdict(verdict::RETURN)),
            Self::Jump(chain) => out.push(Expression::Verdict { code: verdict::JUMP, chain: Some(chain.clone()) }),
            Self::Goto(chain) => out.push(Expression::Verdict { code: verdict::GOTO, chain: Some(chain.clone()) }),
            Self::Dispatch { end, version, walk } => {
                out.extend(version_is(*version));
                out.push(address_at(*end, *version, FIRST));
                out.push(Expression::Dispatch { map: walk.maps()[*version].to_owned(), register: FIRST });
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
