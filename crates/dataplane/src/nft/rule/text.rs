//! Rules as text, in the words of `nft list`.

use super::{Action, End, Rule, Test};
use crate::nft::set::{self, Version};
use std::fmt;

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tests = self.tests.iter().map(Test::to_string);
        let words: Vec<String> = tests.chain(self.actions.iter().map(Action::to_string)).collect();
        f.write_str(&words.join(" "))?;
        match &self.comment {
            Some(comment) => write!(f, " comment \"{comment}\""),
            None => Ok(()),
        }
    }
}

/// `ip saddr`, `ip6 daddr`.
struct Field(End, Version);

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.1 {
            Version::V4 => "ip",
            Version::V6 => "ip6",
        };
        let end = match self.0 {
            End::Source => "saddr",
            End::Destination => "daddr",
        };
        write!(f, "{family} {end}")
    }
}

fn protocol_name(number: u8) -> String {
    match number {
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        132 => "sctp".to_owned(),
        other => other.to_string(),
    }
}

/// `ip daddr`, or `ct original ip daddr`.
struct Destination(Version, bool);

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(version, asked) = self;
        write!(f, "{}{}", if *asked { "ct original " } else { "" }, Field(End::Destination, *version))
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Established => f.write_str("ct state established"),
            Self::Related => f.write_str("ct state related"),
            Self::New => f.write_str("ct state new"),
            Self::MidStream => f.write_str("tcp flags & (fin | syn | rst | ack) != syn"),
            Self::WasCut(version) => {
                let (source, destination) = (Field(End::Source, *version), Field(End::Destination, *version));
                let ports = "meta l4proto . th sport . th dport";
                write!(f, "{source} . {destination} . {ports} @{}", set::CUT[*version])
            }
            Self::Translated => f.write_str("ct status dnat"),
            Self::NeighbourDiscovery => f.write_str("icmpv6 type 133-137 ip6 hoplimit 255"),
            Self::Version(Version::V4) => f.write_str("meta nfproto ipv4"),
            Self::Version(Version::V6) => f.write_str("meta nfproto ipv6"),
            Self::Protocol(number) => write!(f, "meta l4proto {}", protocol_name(*number)),
            Self::NotProtocol(number) => write!(f, "meta l4proto != {}", protocol_name(*number)),
            Self::Port { low, high } if low == high => write!(f, "th dport {low}"),
            Self::Port { low, high } => write!(f, "th dport {low}-{high}"),
            Self::PortsIn(set) => write!(f, "meta l4proto . th dport @{set}"),
            Self::Between { end, low, high } => {
                write!(f, "{} {low}", Field(*end, Version::of(*low)))?;
                if low == high { Ok(()) } else { write!(f, "-{high}") }
            }
            Self::Within { end, version, set } => write!(f, "{} @{set}", Field(*end, *version)),
            Self::Peer { end, version, group } => {
                write!(f, "{group:#010x} . {} @{}", Field(*end, *version), set::PEERS[*version])
            }
            Self::Leased { version, group } => {
                let (high, low) = set::halves(*group);
                let address = Field(End::Destination, *version);
                write!(f, "{high:#010x} . {low:#010x} . {address} @{}", set::LEASE[*version])
            }
            Self::NamedPort { version, group } => {
                let address = Field(End::Destination, *version);
                write!(f, "{group:#010x} . {address} . meta l4proto . th dport @{}", set::NAMED[*version])
            }
            Self::OwnAddress(version) => {
                let (source, destination) = (Field(End::Source, *version), Field(End::Destination, *version));
                write!(f, "{source} . {destination} @{}", set::OWN[*version])
            }
            Self::AsksDns => write!(f, "th dport 53 meta l4proto @{}", set::ALIVE),
            Self::Resolver { version, asked } => {
                write!(f, "{} . meta l4proto @{}", Destination(*version, *asked), set::RESOLVERS[*version])
            }
            Self::Asker { version, asked } => {
                let (source, destination) = (Field(End::Source, *version), Destination(*version, *asked));
                write!(f, "{source} . {destination} . meta l4proto @{}", set::ASKERS[*version])
            }
            Self::Local(version) => write!(f, "{} map @{}", Field(End::Source, *version), set::WHO[*version]),
            Self::AskedPort(port) => write!(f, "ct original proto-dst {port}"),
            Self::Generation(number) => write!(f, "{number} @{}", set::GENERATION),
            Self::EveryNth(below) => write!(f, "numgen inc mod {below} 0"),
            Self::AtMost { a_second, burst } => write!(f, "limit rate {a_second}/second burst {burst} packets"),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count => f.write_str("counter"),
            Self::Log { group, prefix } => write!(f, "log prefix \"{prefix}\" group {group}"),
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Return => f.write_str("return"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
            Self::Dispatch { end, version, walk } => {
                let (who, walk) = (walk.numbers()[*version], *walk as u32);
                write!(f, "{walk:#010x} . {} map @{who} vmap @{}", Field(*end, *version), set::CLASSES)
            }
            Self::TranslateTo { address, port } => {
                let family = if address.is_ipv4() { "ip" } else { "ip6" };
                write!(f, "dnat {family} to {}", std::net::SocketAddr::new(*address, *port))
            }
            Self::Masquerade => f.write_str("masquerade"),
            Self::DispatchService { version, map } => {
                let family = match version {
                    Version::V4 => "ip",
                    Version::V6 => "ip6",
                };
                write!(f, "ct original {family} daddr . meta l4proto . ct original proto-dst vmap @{map}")
            }
        }
    }
}
