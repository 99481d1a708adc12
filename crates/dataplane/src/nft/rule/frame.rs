//! Tests of a frame: for tables that see what an interface receives, before
//! anything is known of it but its bytes.

use crate::nft::expression::{Base, Expression, Extension, FIRST, meta};
use crate::nft::set::Version;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A hardware address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Hardware(pub [u8; 6]);

impl fmt::Display for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: Vec<String> = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        f.write_str(&bytes.join(":"))
    }
}

/// What a frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EtherType {
    Ipv4 = 0x0800,
    Arp = 0x0806,
    Ipv6 = 0x86dd,
}

/// Where a table sees frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameAt {
    /// As an interface receives them.
    Received,
    /// Between two ports of a bridge.
    Bridge,
    /// As an interface sends them.
    Sent,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrameTest {
    /// The frame carries this, and was sent by this hardware address, if that is known. A frame with a VLAN tag
    /// carries none of them: the kernel shows the tag in the place of the type, also where the network card or a
    /// veth has taken it out of the frame.
    Carries {
        at: FrameAt,
        what: EtherType,
        sender: Option<Hardware>,
    },
    /// The frame is for a group of hosts and not for one. It is the lowest bit of the destination's first byte.
    ToGroup,
    /// The source address. Needs a test of what the frame carries before it, as do all that follow.
    From(IpAddr),
    /// The source is in this block: an address, and how many of its bits count.
    FromBlock {
        block: IpAddr,
        bits: u8,
    },
    /// The source, an address of this version, is in this set.
    FromOneOf {
        version: Version,
        set: String,
    },
    /// The destination is in this block: an address, and how many of its bits count.
    To {
        block: IpAddr,
        bits: u8,
    },
    /// The destination, an IPv4 address, is in this set.
    ToOneOf(String),
    /// ARP that says this address is at this hardware address.
    ArpSender {
        address: Ipv4Addr,
        sender: Option<Hardware>,
    },
    /// ARP that asks whether an address is free, and says nothing of the sender.
    ArpProbe {
        sender: Option<Hardware>,
    },
    /// A DHCP request of a host without an address.
    DhcpRequest,
    /// The type of an ICMPv6 message. Needs a test of the protocol before it.
    Icmpv6 {
        low: u8,
        high: u8,
    },
    HopLimit(u8),
    /// An IPv4 header without options: its version and its length in one byte, which is the cheapest test of it.
    PlainHeader,
    /// The length of an IPv4 header, in words of four bytes. It is 5 without options.
    HeaderLength {
        low: u8,
        high: u8,
    },
    /// Whether an IPv4 header has the option Router Alert. Options that the kernel cannot read count as none.
    RouterAlert(bool),
    /// An IPv6 packet has a header that names further hops.
    RoutingHeader,
    /// The address that neighbour discovery is about. Needs a test of the message's type before it.
    Target(Ipv6Addr),
    /// The kernel has routed the packet, so that it has passed the hooks of IP packets. What a packet socket sends has
    /// no route.
    Routed,
}

/// The kernel's number for a link of Ethernet frames.
const ETHERNET: u16 = 1;
const HARDWARE_SOURCE: u32 = 6;
const ETHER_TYPE: u32 = 12;
const ARP_OPERATION: u32 = 6;
const ARP_SENDER_HARDWARE: u32 = 8;
const ARP_SENDER_ADDRESS: u32 = 14;
const ARP_REQUEST: [u8; 2] = [0, 1];
const UDP_PORTS_OF_DHCP: [u8; 4] = [0, 68, 0, 67];
/// The class of no route, unless somebody with NET_ADMIN gives it one.
const NO_CLASS: [u8; 4] = [0xff; 4];

/// Loads bytes and compares them.
fn bytes_are(base: Base, offset: u32, to: Vec<u8>, out: &mut Vec<Expression>) {
    out.push(Expression::Payload { into: FIRST, base, offset, length: to.len() as u32 });
    out.push(Expression::Compare { register: FIRST, equal: true, to });
}

/// Tests whether the packet has this option or extension header.
fn has(what: Extension, is_there: bool, out: &mut Vec<Expression>) {
    out.push(Expression::Present { into: FIRST, what });
    out.push(Expression::Compare { register: FIRST, equal: true, to: vec![u8::from(is_there)] });
}

/// Loads an address of the packet and compares the bits that count.
fn is_in_block(offset: u32, block: IpAddr, bits: u8, out: &mut Vec<Expression>) {
    let octets = match block {
        IpAddr::V4(block) => block.octets().to_vec(),
        IpAddr::V6(block) => block.octets().to_vec(),
    };
    let length = octets.len() as u32;
    out.push(Expression::Payload { into: FIRST, base: Base::Network, offset, length });
    if u32::from(bits) < length * 8 {
        let mask = (0..length as u8).map(|byte| mask_of(bits.saturating_sub(byte * 8))).collect();
        out.push(Expression::Bitwise { register: FIRST, mask, flip: vec![0; length as usize] });
    }
    out.push(Expression::Compare { register: FIRST, equal: true, to: octets });
}

impl FrameTest {
    pub(super) fn write(&self, out: &mut Vec<Expression>) {
        match self {
            // Neighbours in the frame are compared in one go, as nft does it.
            Self::Carries { at, what, sender } => {
                // A bridge has no other frames. Elsewhere nft wants it said, or it shows bare numbers.
                let link_type = match at {
                    FrameAt::Received => Some(meta::INPUT_LINK_TYPE),
                    FrameAt::Bridge => None,
                    FrameAt::Sent => Some(meta::OUTPUT_LINK_TYPE),
                };
                if let Some(key) = link_type {
                    out.push(Expression::Meta { into: FIRST, key });
                    out.push(Expression::Compare { register: FIRST, equal: true, to: ETHERNET.to_ne_bytes().to_vec() });
                }
                let kind = (*what as u16).to_be_bytes();
                match sender {
                    Some(Hardware(sender)) => {
                        bytes_are(Base::Link, HARDWARE_SOURCE, [&sender[..], &kind].concat(), out);
                    }
                    None => bytes_are(Base::Link, ETHER_TYPE, kind.to_vec(), out),
                }
            }
            Self::ToGroup => {
                out.push(Expression::Payload { into: FIRST, base: Base::Link, offset: 0, length: 6 });
                out.push(Expression::Bitwise { register: FIRST, mask: vec![1, 0, 0, 0, 0, 0], flip: vec![0; 6] });
                out.push(Expression::Compare { register: FIRST, equal: true, to: vec![1, 0, 0, 0, 0, 0] });
            }
            Self::From(IpAddr::V4(source)) => bytes_are(Base::Network, 12, source.octets().to_vec(), out),
            Self::From(IpAddr::V6(source)) => bytes_are(Base::Network, 8, source.octets().to_vec(), out),
            Self::FromBlock { block: block @ IpAddr::V4(_), bits } => is_in_block(12, *block, *bits, out),
            Self::FromBlock { block, bits } => is_in_block(8, *block, *bits, out),
            Self::FromOneOf { version, set } => {
                let (offset, length) = if *version == Version::V4 { (12, 4) } else { (8, 16) };
                out.push(Expression::Payload { into: FIRST, base: Base::Network, offset, length });
                out.push(Expression::Lookup { set: set.clone(), register: FIRST });
            }
            Self::To { block: block @ IpAddr::V4(_), bits } => is_in_block(16, *block, *bits, out),
            Self::To { block, bits } => is_in_block(24, *block, *bits, out),
            Self::ToOneOf(set) => {
                out.push(Expression::Payload { into: FIRST, base: Base::Network, offset: 16, length: 4 });
                out.push(Expression::Lookup { set: set.clone(), register: FIRST });
            }
            Self::ArpSender { address, sender: Some(Hardware(sender)) } => {
                let both = [&sender[..], &address.octets()].concat();
                bytes_are(Base::Network, ARP_SENDER_HARDWARE, both, out);
            }
            Self::ArpSender { address, sender: None } => {
                bytes_are(Base::Network, ARP_SENDER_ADDRESS, address.octets().to_vec(), out);
            }
            Self::ArpProbe { sender: Some(Hardware(sender)) } => {
                let all = [&ARP_REQUEST, &sender[..], &[0; 4]].concat();
                bytes_are(Base::Network, ARP_OPERATION, all, out);
            }
            Self::ArpProbe { sender: None } => {
                bytes_are(Base::Network, ARP_OPERATION, ARP_REQUEST.to_vec(), out);
                bytes_are(Base::Network, ARP_SENDER_ADDRESS, vec![0; 4], out);
            }
            Self::DhcpRequest => {
                bytes_are(Base::Network, 12, vec![0, 0, 0, 0, 255, 255, 255, 255], out);
                out.extend(super::encode::protocol_is(super::UDP, true));
                bytes_are(Base::Transport, 0, UDP_PORTS_OF_DHCP.to_vec(), out);
            }
            Self::Icmpv6 { low, high } => {
                out.push(Expression::Payload { into: FIRST, base: Base::Transport, offset: 0, length: 1 });
                out.push(super::encode::between(vec![*low], vec![*high]));
            }
            Self::HopLimit(limit) => bytes_are(Base::Network, 7, vec![*limit], out),
            Self::PlainHeader => bytes_are(Base::Network, 0, vec![0x45], out),
            Self::HeaderLength { low, high } => {
                out.push(Expression::Payload { into: FIRST, base: Base::Network, offset: 0, length: 1 });
                out.push(Expression::Bitwise { register: FIRST, mask: vec![0x0f], flip: vec![0] });
                out.push(super::encode::between(vec![*low], vec![*high]));
            }
            Self::RouterAlert(is_there) => has(Extension::RouterAlert, *is_there, out),
            Self::RoutingHeader => has(Extension::Routing, true, out),
            Self::Target(target) => bytes_are(Base::Transport, 8, target.octets().to_vec(), out),
            // The class of a route can be read only where there is a route. Which class it is does not matter.
            Self::Routed => {
                out.push(Expression::Meta { into: FIRST, key: meta::ROUTE_CLASS });
                out.push(Expression::Compare { register: FIRST, equal: false, to: NO_CLASS.to_vec() });
            }
        }
    }
}

/// A byte whose first bits are set.
fn mask_of(bits: u8) -> u8 {
    !(0xff_u8.checked_shr(u32::from(bits)).unwrap_or(0))
}

/// In the words of `nft list`, where it knows what is before it in the rule.
impl fmt::Display for FrameTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arp_sender =
            |sender: &Option<Hardware>| sender.map(|sender| format!("arp saddr ether {sender} ")).unwrap_or_default();
        match self {
            Self::Carries { what, sender, .. } => {
                if let Some(sender) = sender {
                    write!(f, "ether saddr {sender} ")?;
                }
                f.write_str(match what {
                    EtherType::Ipv4 => "ether type ip",
                    EtherType::Arp => "ether type arp",
                    EtherType::Ipv6 => "ether type ip6",
                })
            }
            Self::ToGroup => f.write_str("ether daddr & 01:00:00:00:00:00 == 01:00:00:00:00:00"),
            Self::From(IpAddr::V4(source)) => write!(f, "ip saddr {source}"),
            Self::From(IpAddr::V6(source)) => write!(f, "ip6 saddr {source}"),
            Self::FromBlock { block: block @ IpAddr::V4(_), bits } => write!(f, "ip saddr {block}/{bits}"),
            Self::FromBlock { block, bits: 128 } => write!(f, "ip6 saddr {block}"),
            Self::FromBlock { block, bits } => write!(f, "ip6 saddr {block}/{bits}"),
            Self::FromOneOf { version: Version::V4, set } => write!(f, "ip saddr @{set}"),
            Self::FromOneOf { version: Version::V6, set } => write!(f, "ip6 saddr @{set}"),
            Self::To { block: block @ IpAddr::V4(_), bits: 32 } => write!(f, "ip daddr {block}"),
            Self::To { block: block @ IpAddr::V4(_), bits } => write!(f, "ip daddr {block}/{bits}"),
            Self::To { block, bits: 128 } => write!(f, "ip6 daddr {block}"),
            Self::To { block, bits } => write!(f, "ip6 daddr {block}/{bits}"),
            Self::ToOneOf(set) => write!(f, "ip daddr @{set}"),
            Self::ArpSender { address, sender } => write!(f, "{}arp saddr ip {address}", arp_sender(sender)),
            Self::ArpProbe { sender } => {
                write!(f, "arp operation request {}arp saddr ip 0.0.0.0", arp_sender(sender))
            }
            Self::DhcpRequest => f.write_str("ip saddr 0.0.0.0 ip daddr 255.255.255.255 udp sport 68 udp dport 67"),
            Self::Icmpv6 { low, high } if low == high => write!(f, "icmpv6 type {low}"),
            Self::Icmpv6 { low, high } => write!(f, "icmpv6 type {low}-{high}"),
            Self::HopLimit(limit) => write!(f, "ip6 hoplimit {limit}"),
            Self::PlainHeader => f.write_str("ip version 4 ip hdrlength 5"),
            Self::HeaderLength { low, high } if low == high => write!(f, "ip hdrlength {low}"),
            Self::HeaderLength { low, high } => write!(f, "ip hdrlength {low}-{high}"),
            Self::RouterAlert(true) => f.write_str("ip option ra exists"),
            Self::RouterAlert(false) => f.write_str("ip option ra missing"),
            Self::RoutingHeader => f.write_str("exthdr rt exists"),
            Self::Target(target) => write!(f, "icmpv6 taddr {target}"),
            Self::Routed => f.write_str("meta rtclassid != 4294967295"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_compared_by_the_bits_that_count() {
        assert_eq!([0, 1, 4, 8, 9].map(mask_of), [0, 0x80, 0xf0, 0xff, 0xff]);
        let mut out = Vec::new();
        FrameTest::To { block: "224.0.0.0".parse().unwrap(), bits: 4 }.write(&mut out);
        assert!(out.contains(&Expression::Bitwise { register: FIRST, mask: vec![0xf0, 0, 0, 0], flip: vec![0; 4] }));
        let mut out = Vec::new();
        FrameTest::To { block: "255.255.255.255".parse().unwrap(), bits: 32 }.write(&mut out);
        assert_eq!(out.len(), 2, "no mask for a single address: {out:?}");
    }
}
