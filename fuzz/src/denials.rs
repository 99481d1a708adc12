//! What the kernel tells of denied packets: headers that anybody may have made.

use namewall_dataplane::netlink::Messages;
use namewall_dataplane::nflog::read_datagram;

const PACKET: u16 = 4 << 8;
const PAYLOAD: u16 = 9;
const PREFIX: u16 = 10;

/// As a whole datagram, and as the packet in a good one.
pub fn denials(bytes: &[u8]) {
    read_datagram(bytes);
    let mut datagram = Messages::new();
    datagram.begin(PACKET, 0, &[0; 4]);
    datagram.text(PREFIX, "namewall deny: NetworkPolicy/shop/web egress rule 0");
    datagram.bytes(PAYLOAD, &bytes[..bytes.len().min(1024)]);
    for denied in read_datagram(datagram.as_bytes()) {
        assert_eq!(denied.source.is_ipv4(), denied.destination.is_ipv4());
        assert_eq!(denied.rule, "NetworkPolicy/shop/web egress rule 0");
        assert!(denied.protocol.has_ports() || denied.port == 0);
    }
}
