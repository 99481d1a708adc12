//! Frames as an attacker writes them, byte by byte.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(crate) type Mac = [u8; 6];

pub(crate) const BROADCAST: Mac = [0xff; 6];
pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const ARP: u16 = 0x0806;
pub(crate) const IPV6: u16 = 0x86dd;
pub(crate) const VLAN: u16 = 0x8100;
pub(crate) const PROVIDER_VLAN: u16 = 0x88a8;

const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const DESTINATION_OPTIONS: u8 = 60;
const UNKNOWN_OPTION: u8 = 253;

/// Who a frame is from and for.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) from: Mac,
    pub(crate) to: Mac,
}

/// A frame. `tags` are the types of VLAN tags, each with the number 0: a receiver takes such a tag for no tag at all.
pub(crate) fn frame(ends: Ends, tags: &[u16], kind: u16, packet: &[u8]) -> Vec<u8> {
    let mut bytes = [ends.to, ends.from].concat();
    for tag in tags {
        bytes.extend_from_slice(&tag.to_be_bytes());
        bytes.extend_from_slice(&[0, 0]);
    }
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(packet);
    bytes
}

/// The type of a frame that carries packets of this address's version.
pub(crate) fn kind_of(address: IpAddr) -> u16 {
    if address.is_ipv4() { IPV4 } else { IPV6 }
}

/// An IP packet with a UDP datagram.
pub(crate) fn udp(from: SocketAddr, to: SocketAddr, data: &[u8]) -> Vec<u8> {
    let length = (8 + data.len()) as u16;
    let mut datagram = Vec::new();
    for word in [from.port(), to.port(), length, 0] {
        datagram.extend_from_slice(&word.to_be_bytes());
    }
    datagram.extend_from_slice(data);
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => ipv4(from, to, &datagram),
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let sum =
                checksum(&[&from.octets(), &to.octets(), &[0, 0], &length.to_be_bytes(), &[0, 0, 0, UDP], &datagram]);
            datagram[6..8].copy_from_slice(&sum.to_be_bytes());
            ipv6(Header { from, to, next: UDP, hops: 64 }, &datagram)
        }
        _ => panic!("{from} and {to} are of two versions"),
    }
}

fn ipv4(from: Ipv4Addr, to: Ipv4Addr, datagram: &[u8]) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    header.extend_from_slice(&(20 + datagram.len() as u16).to_be_bytes());
    header.extend_from_slice(&[0, 0, 0, 0, 64, UDP, 0, 0]);
    header.extend_from_slice(&from.octets());
    header.extend_from_slice(&to.octets());
    sum_header(&mut header);
    [&header, datagram].concat()
}

/// The same IPv4 packet with options, whose length is a multiple of four bytes.
pub(crate) fn with_options(mut packet: Vec<u8>, options: &[u8]) -> Vec<u8> {
    let words = options.len() / 4;
    let length = u16::from_be_bytes([packet[2], packet[3]]) + options.len() as u16;
    packet[0] += words as u8;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet.splice(20..20, options.iter().copied());
    sum_header(&mut packet[..20 + words * 4]);
    packet
}

fn sum_header(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = checksum(&[header]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

struct Header {
    from: Ipv6Addr,
    to: Ipv6Addr,
    next: u8,
    hops: u8,
}

fn ipv6(Header { from, to, next, hops }: Header, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[next, hops]);
    packet.extend_from_slice(&from.octets());
    packet.extend_from_slice(&to.octets());
    packet.extend_from_slice(payload);
    packet
}

/// The same IPv6 packet with a header of options before its payload.
pub(crate) fn behind_options(mut packet: Vec<u8>) -> Vec<u8> {
    let (next, length) = (packet[6], u16::from_be_bytes([packet[4], packet[5]]) + 8);
    packet[4..6].copy_from_slice(&length.to_be_bytes());
    packet[6] = DESTINATION_OPTIONS;
    packet.splice(40..40, [next, 0, 1, 4, 0, 0, 0, 0]);
    packet
}

/// What a datagram of VXLAN has in it: a frame of the network with this number.
pub(crate) fn vxlan(network: u8, frame: &[u8]) -> Vec<u8> {
    [&[8, 0, 0, 0, 0, 0, network, 0], frame].concat()
}

/// What an ARP message says of its sender, and about whom it asks.
pub(crate) struct Arp {
    pub(crate) operation: u16,
    pub(crate) sender: (Mac, Ipv4Addr),
    pub(crate) target: (Mac, Ipv4Addr),
}

impl Arp {
    pub(crate) fn packet(&self) -> Vec<u8> {
        let mut packet = vec![0, 1, 8, 0, 6, 4];
        packet.extend_from_slice(&self.operation.to_be_bytes());
        for (mac, address) in [self.sender, self.target] {
            packet.extend_from_slice(&mac);
            packet.extend_from_slice(&address.octets());
        }
        packet
    }
}

/// A message of neighbour discovery.
pub(crate) struct Neighbour {
    pub(crate) kind: u8,
    pub(crate) from: Ipv6Addr,
    pub(crate) to: Ipv6Addr,
    pub(crate) target: Ipv6Addr,
    pub(crate) mac: Mac,
    /// Whether the message is behind a header of options.
    pub(crate) hidden: bool,
}

pub(crate) const ROUTER_ADVERTISEMENT: u8 = 134;
pub(crate) const SOLICITATION: u8 = 135;
pub(crate) const ADVERTISEMENT: u8 = 136;
pub(crate) const REDIRECT: u8 = 137;

impl Neighbour {
    /// The nonce is in an option that receivers do not know.
    pub(crate) fn packet(&self, nonce: &[u8]) -> Vec<u8> {
        let mut message = vec![self.kind, 0, 0, 0];
        // Of an advertisement: it is an answer, and takes the place of what is known.
        message.extend_from_slice(&[0x60, 0, 0, 0]);
        if self.kind == ROUTER_ADVERTISEMENT {
            message.extend_from_slice(&[0; 8]);
        } else {
            message.extend_from_slice(&self.target.octets());
            if self.kind == REDIRECT {
                message.extend_from_slice(&self.target.octets());
            }
            message.extend_from_slice(&[if self.kind == SOLICITATION { 1 } else { 2 }, 1]);
            message.extend_from_slice(&self.mac);
        }
        message.extend_from_slice(&[UNKNOWN_OPTION, 2, 0, 0, 0, 0, 0, 0]);
        message.extend_from_slice(nonce);
        let length = (message.len() as u32).to_be_bytes();
        let sum = checksum(&[&self.from.octets(), &self.to.octets(), &length, &[0, 0, 0, ICMPV6], &message]);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let (next, payload) = match self.hidden {
            true => (DESTINATION_OPTIONS, [&[ICMPV6, 0, 1, 4, 0, 0, 0, 0][..], &message].concat()),
            false => (ICMPV6, message),
        };
        ipv6(Header { from: self.from, to: self.to, next, hops: 255 }, &payload)
    }
}

fn checksum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    match !(sum as u16) {
        0 => 0xffff,
        sum => sum,
    }
}

/// The hardware address of a multicast address.
pub(crate) fn group_mac(group: IpAddr) -> Mac {
    match group {
        IpAddr::V4(group) => {
            let [_, b, c, d] = group.octets();
            [0x01, 0, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(group) => {
            let octets = group.octets();
            [0x33, 0x33, octets[12], octets[13], octets[14], octets[15]]
        }
    }
}
