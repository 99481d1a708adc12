//! ICMP echo, of either version.

use std::net::IpAddr;

const HEADER: usize = 8;

/// A request, told from others by its identifier and what it carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Echo {
    pub identifier: u16,
    pub nonce: [u8; 8],
}

/// Request and reply.
fn kinds(to: IpAddr) -> (u8, u8) {
    if to.is_ipv4() { (8, 0) } else { (128, 129) }
}

impl Echo {
    pub(crate) fn request(&self, to: IpAddr) -> Vec<u8> {
        let mut packet = vec![kinds(to).0, 0, 0, 0];
        packet.extend_from_slice(&self.identifier.to_be_bytes());
        packet.extend_from_slice(&1u16.to_be_bytes());
        packet.extend_from_slice(&self.nonce);
        // The kernel writes that of ICMPv6, which covers the addresses too.
        if to.is_ipv4() {
            let sum = checksum(&packet);
            packet[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        packet
    }

    /// Whether a message, without an IP header, answers this request.
    pub(crate) fn is_answered_by(&self, message: &[u8], from: IpAddr) -> bool {
        message.first() == Some(&kinds(from).1)
            && message.get(4..6) == Some(&self.identifier.to_be_bytes())
            && message.get(HEADER..) == Some(&self.nonce)
    }
}

fn checksum(packet: &[u8]) -> u16 {
    let words = packet.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[test]
fn a_request_adds_up_to_nothing() {
    let echo = Echo { identifier: 0x1234, nonce: *b"namewall" };
    assert_eq!(checksum(&echo.request(IpAddr::from([192, 0, 2, 1]))), 0);
}
