//! Rules as text, in the words of `nft list`.

use super::{Action, End, PacketInterface, Rule, Test};
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

/// A number that is a part of a key, as nft shows what `encode` makes of it: whatever the mark is, it is this number.
struct Number(u32);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "meta mark & {0:#010x} | {0:#010x}", self.0)
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
            Self::IsReset => f.write_str("tcp flags rst"),
            Self::WasCut(version) => {
                let (source, destination) = (Field(End::Source, *version), Field(End::Destination, *version));
                let ports = "meta l4proto . th sport . th dport";
                write!(f, "{source} . {destination} . {ports} @{}", set::CUT[*version])
            }
            Self::Translated => f.write_str("ct status dnat"),
            Self::NeighbourDiscovery => f.write_str("ip6 hoplimit 255 icmpv6 type 133-137"),
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
                write!(f, "{} . {} @{}", Number(*group), Field(*end, *version), set::PEERS[*version])
            }
            Self::Joined { end, version, number } => {
                let (number, address) = (Number(*number), Field(*end, *version));
                write!(f, "counter name {number} . {address} map @{}", set::JOINED[*version])
            }
            Self::Gate { version, number } => {
                write!(f, "{} . {} @{}", Number(*number), Field(End::Source, *version), set::GATES[*version])
            }
            Self::Leased { version, group } => {
                let (high, low) = set::halves(*group);
                let address = Field(End::Destination, *version);
                write!(f, "{} . {} . {address} @{}", Number(high), Number(low), set::LEASE[*version])
            }
            Self::NamedPort { version, group } => {
                let address = Field(End::Destination, *version);
                write!(f, "{} . {address} . meta l4proto . th dport @{}", Number(*group), set::NAMED[*version])
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
            Self::Local(version) => write!(f, "{} @{}", Field(End::Source, *version), set::LOCAL[*version]),
            Self::AskedPort(port) => write!(f, "ct original proto-dst {port}"),
            Self::Generation(number) => write!(f, "meta nfproto @{}", set::generation(*number)),
            Self::Frame(test) => test.fmt(f),
            Self::GoesOutBy(set) => write!(f, "meta oif @{set}"),
            Self::Interface { which, index, is_it } => {
                let key = match which {
                    PacketInterface::Input => "iif",
                    PacketInterface::Output => "oif",
                };
                write!(f, "{key} {}{index}", if *is_it { "" } else { "!= " })
            }
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
            Self::Reset => f.write_str("reject with tcp reset"),
            Self::Return => f.write_str("return"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
            Self::Dispatch { end, version, walk } => {
                write!(f, "{} vmap @{}", Field(*end, *version), walk.maps()[*version])
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
