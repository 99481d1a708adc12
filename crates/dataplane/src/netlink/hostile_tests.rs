//! Any bytes for the readers of the kernel's messages: as datagrams, and in place
//! of some bytes of messages that are well formed. No reader may panic, and none
//! may read past what it was given.

use super::addresses::InterfaceAddress;
use super::bridges::Links;
use super::link::{INFO_DATA, INFO_KIND, LINK_HARDWARE, LINK_INFO, LINK_NAME, LINK_NAMESPACE, LINK_PEER, NEW_LINK};
use super::local::LocalRoute;
use super::routed::route;
use super::veth::Veth;
use super::{Attributes, Messages, Received};
use crate::tunnels::Tunnels;
use crate::{conntrack, nflog};
use proptest::prelude::*;

/// Every reader, on every message of a datagram.
fn read(datagram: &[u8]) {
    let mut links = Links::default();
    let mut messages = 0;
    for message in Received::all(datagram) {
        messages += 1;
        message.error_code();
        links.read(message);
        InterfaceAddress::read(message);
        Veth::read(message);
        Tunnels::default().read(message);
        route(message);
        LocalRoute::read(message);
        for fixed in [0, 4, 8, 12, 16, 20] {
            conntrack::read_connection(message.attributes(fixed));
            walk(message.attributes(fixed), 0);
        }
    }
    assert!(messages <= datagram.len() / 16, "a message has a header of 16 bytes");
    nflog::read_datagram(datagram);
}

/// All attributes, each of which may have attributes inside.
fn walk(attributes: Attributes<'_>, depth: usize) {
    for (kind, value) in attributes {
        attributes.u32(kind);
        attributes.u64(kind);
        attributes.text(kind);
        if depth < 4 {
            walk(Attributes(value), depth + 1);
        }
    }
}

/// Messages of each kind that is read, as the kernel writes them.
fn well_formed() -> Messages {
    let mut messages = Messages::new();
    messages.begin(NEW_LINK, 0, &[0; 16]);
    messages.text(LINK_NAME, "veth1");
    messages.native_u32(LINK_PEER, 2);
    messages.native_u32(LINK_NAMESPACE, 1);
    messages.bytes(LINK_HARDWARE, &[2, 0, 0, 0, 0, 1]);
    messages.nested(LINK_INFO, |info| info.text(INFO_KIND, "veth"));
    messages.begin(NEW_LINK, 0, &[0; 16]);
    messages.nested(LINK_INFO, |info| {
        info.text(INFO_KIND, "vxlan");
        info.nested(INFO_DATA, |data| data.u16(15, 4789));
    });
    // An address, and a route to one.
    messages.begin(20, 0, &[2, 24, 0, 0, 3, 0, 0, 0]);
    messages.bytes(1, &[10, 0, 0, 1]);
    messages.begin(24, 0, &[2, 32, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0]);
    messages.bytes(1, &[10, 0, 0, 2]);
    messages.native_u32(4, 3);
    // A connection.
    messages.begin(1 << 8, 0, &[2, 0, 0, 0]);
    for kind in [1, 2] {
        messages.nested(kind, |tuple| {
            tuple.nested(1, |addresses| (1..=2).for_each(|kind| addresses.u32(kind, 0x0a00_0001)));
            tuple.nested(2, |protocol| {
                protocol.bytes(1, &[6]);
                (2..=3).for_each(|kind| protocol.u16(kind, 443));
            });
        });
    }
    // A denied packet.
    messages.begin(4 << 8, 0, &[2, 0, 0, 0]);
    messages.text(10, "namewall deny: NetworkPolicy/shop/web egress rule 0");
    messages.bytes(9, &[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 1, 0, 53, 0, 8, 0, 0]);
    messages
}

#[test]
fn messages_that_are_well_formed_are_read() {
    let messages = well_formed();
    let all: Vec<_> = Received::all(messages.as_bytes()).collect();
    let has_tunnel = |message| {
        let mut found = Tunnels::default();
        found.read(message);
        !found.is_empty()
    };
    assert!(matches!(&all[..], [link, tunnel, address, route_, connection, _]
        if Veth::read(*link).is_some()
            && has_tunnel(*tunnel)
            && InterfaceAddress::read(*address).is_some()
            && route(*route_).is_some()
            && conntrack::read_connection(connection.attributes(4)).is_some()));
    assert_eq!(nflog::read_datagram(messages.as_bytes()).len(), 1);
}

proptest! {
    #[test]
    fn any_datagram_is_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        read(&bytes);
    }

    #[test]
    fn a_message_with_other_bytes_in_it_is_read_without_a_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = well_formed().as_bytes().to_vec();
        let length = bytes.len();
        for (at, byte) in changes {
            bytes[at.index(length)] = byte;
        }
        read(&bytes);
        read(&bytes[..end.index(length)]);
    }
}
