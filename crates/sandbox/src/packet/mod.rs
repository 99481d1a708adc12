//! The packets we write ourselves, since no socket does: echo requests, and as
//! much of SCTP as tells an open port from a closed one.

mod crc32c;
pub(crate) mod echo;
pub(crate) mod sctp;

/// What an IPv4 packet carries; raw sockets of IPv6 give only that to begin with.
pub(crate) fn without_ipv4_header(packet: &[u8]) -> &[u8] {
    let words = packet.first().map_or(0, |first| usize::from(first & 0x0f));
    packet.get(words * 4..).unwrap_or_default()
}
