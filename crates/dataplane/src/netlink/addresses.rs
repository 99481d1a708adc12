//! The addresses that a machine answers for, and notice of changes: those on its
//! interfaces, and those of its local routes.
//!
//! Interfaces that are down count as well: Linux answers for their addresses
//! on any other interface.

use super::link::{GET_LINK, LINK_HEADER, LINK_NAME, NEW_LINK, index, request, uninterrupted};
use super::local::{GET_ROUTE, LocalRoute, MachineAddresses, ROUTE_GROUPS, ROUTE_HEADER};
use super::{Error, Family, Received, Socket};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
pub(super) const GET_ADDRESS: u16 = 22;

/// The groups that hear of IPv4 and IPv6 addresses.
pub(super) const ADDRESS_GROUPS: u32 = 0x10 | 0x100;

/// `struct ifaddrmsg`.
pub(super) const ADDRESS_HEADER: usize = 8;
/// The address, or on a point-to-point interface the other end's.
const ADDRESS: u16 = 1;
/// The interface's own address. IPv6 has it only on point-to-point interfaces.
const LOCAL: u16 = 2;

/// Where kube-proxy puts the addresses of Services in its IPVS mode. They are not the node's: a connection to one goes
/// on to the Service's backends. The kernel has a local route by this interface for each of them.
const OF_SERVICES: &str = "kube-ipvs0";

/// An address on an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InterfaceAddress {
    pub(super) interface: u32,
    pub(super) address: IpAddr,
    /// Another address of its network that this host answers for: the broadcast address of an IPv4 network, and the
    /// subnet-router anycast address of an IPv6 network.
    shared: Option<IpAddr>,
}

impl InterfaceAddress {
    /// None for a message about something else, or one that is cut short.
    pub(super) fn read(message: Received<'_>) -> Option<Self> {
        if message.kind != NEW_ADDRESS {
            return None;
        }
        let attributes = message.attributes(ADDRESS_HEADER);
        let address = attributes.get(LOCAL).or_else(|| attributes.get(ADDRESS))?;
        let (interface, address) = (index(message)?, ip(address)?);
        let shared = shared(address, *message.body.get(1)?);
        Some(Self { interface, address, shared })
    }
}

/// The broadcast address of an IPv4 network, or the subnet-router anycast address of an IPv6 network, at which every
/// machine that forwards answers. A network of one or two addresses has neither.
fn shared(address: IpAddr, bits: u8) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => {
            let hosts = u32::MAX.checked_shr(bits.into()).filter(|_| bits < 31)?;
            Some(Ipv4Addr::from_bits(address.to_bits() | hosts).into())
        }
        IpAddr::V6(address) => {
            let hosts = u128::MAX.checked_shr(bits.into()).filter(|_| bits < 127)?;
            let anycast = Ipv6Addr::from_bits(address.to_bits() & !hosts);
            (!anycast.is_unspecified()).then_some(anycast.into())
        }
    }
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok();
    v4().or_else(|| <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok())
}

/// The addresses of the network namespace the thread was in when this was opened.
#[derive(Debug)]
pub struct Addresses {
    requests: Socket,
    notices: Socket,
}

impl Addresses {
    pub fn open() -> Result<Self, Error> {
        // Notices first: a change while the addresses are read is noticed.
        let notices = Socket::open_for(Family::NetlinkRoute, ADDRESS_GROUPS | ROUTE_GROUPS)?;
        Ok(Self { notices, requests: Socket::open(Family::NetlinkRoute)? })
    }

    /// True if an address or a local route has come or gone since this was last asked. Does not wait.
    pub fn have_changed(&mut self) -> bool {
        self.notices.discard_all_but(|message| {
            [NEW_ADDRESS, DELETE_ADDRESS].contains(&message.kind) || LocalRoute::read(message).is_some()
        })
    }

    /// All addresses, of interfaces that are up or down, of every scope, and of local routes.
    pub fn read(&mut self) -> Result<MachineAddresses, Error> {
        uninterrupted(|| self.dump())
    }

    fn dump(&mut self) -> Result<MachineAddresses, Error> {
        let mut of_services = BTreeSet::new();
        self.requests.dump(&request(GET_LINK, LINK_HEADER), |message| {
            let is_of_services = message.attributes(LINK_HEADER).text(LINK_NAME) == Some(OF_SERVICES);
            of_services.extend(index(message).filter(|_| message.kind == NEW_LINK && is_of_services));
        })?;
        let mut found = MachineAddresses::default();
        self.requests.dump(&request(GET_ADDRESS, ADDRESS_HEADER), |message| {
            let read = InterfaceAddress::read(message).filter(|one| !of_services.contains(&one.interface));
            found.listed.extend(read.into_iter().flat_map(|one| [Some(one.address), one.shared]).flatten());
        })?;
        let mut routes = Vec::new();
        self.requests.dump(&request(GET_ROUTE, ROUTE_HEADER), |message| {
            let is_of_services = |route: &LocalRoute| route.link.is_some_and(|link| of_services.contains(&link));
            routes.extend(LocalRoute::read(message).filter(|route| !is_of_services(route)));
        })?;
        found.add(routes.into_iter());
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Messages;

    /// A message of a dump: an address with these attributes on interface 3.
    fn message(kind: u16, attributes: &[(u16, &[u8])]) -> Messages {
        let mut messages = Messages::new();
        // Family, prefix, flags, scope, interface.
        let mut header = vec![2, 24, 0x80, 0];
        header.extend(3_u32.to_ne_bytes());
        messages.begin(kind, 0, &header);
        attributes.iter().for_each(|(kind, value)| messages.bytes(*kind, value));
        messages
    }

    #[track_caller]
    fn check(messages: &Messages, expected: Option<&str>) {
        let read: Vec<_> = Received::all(messages.as_bytes()).filter_map(InterfaceAddress::read).collect();
        let expected = expected.map(|text| (3, text.parse::<IpAddr>().unwrap()));
        assert_eq!(read.first().map(|one| (one.interface, one.address)), expected);
    }

    #[test]
    fn s7_2_addresses_of_every_scope_are_read() {
        let v6 = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
        check(&message(NEW_ADDRESS, &[(ADDRESS, &[172, 17, 0, 1]), (LOCAL, &[172, 17, 0, 1])]), Some("172.17.0.1"));
        check(&message(NEW_ADDRESS, &[(ADDRESS, &[127, 0, 0, 1])]), Some("127.0.0.1"));
        check(&message(NEW_ADDRESS, &[(ADDRESS, &[169, 254, 20, 10])]), Some("169.254.20.10"));
        check(&message(NEW_ADDRESS, &[(ADDRESS, &v6("fe80::1"))]), Some("fe80::1"));
        check(&message(NEW_ADDRESS, &[(ADDRESS, &v6("2001:db8::7"))]), Some("2001:db8::7"));
    }

    #[test]
    fn s7_2_the_anycast_address_of_a_network_is_the_machines_too() {
        let of = |text: &str, bits| shared(text.parse().unwrap(), bits).map(|address| address.to_string());
        assert_eq!(of("2001:db8:1::1", 64).as_deref(), Some("2001:db8:1::"));
        assert_eq!(of("fe80::1:2:3:4", 64).as_deref(), Some("fe80::"));
        assert_eq!(of("2001:db8::7", 126).as_deref(), Some("2001:db8::4"));
        assert_eq!(
            (of("::1", 64), of("fd00::1", 127), of("fd00::1", 128), of("fd00::1", 200)),
            (None, None, None, None)
        );
    }

    #[test]
    fn s1_10_the_broadcast_address_of_a_network_is_the_machines_too() {
        let of = |text: &str, bits| shared(text.parse().unwrap(), bits).map(|address| address.to_string());
        assert_eq!(of("10.244.1.1", 24).as_deref(), Some("10.244.1.255"));
        assert_eq!(of("10.244.1.1", 30).as_deref(), Some("10.244.1.3"));
        assert_eq!(of("10.244.1.1", 0).as_deref(), Some("255.255.255.255"));
        assert_eq!((of("10.244.1.1", 31), of("10.244.1.1", 32), of("10.244.1.1", 200)), (None, None, None));
    }

    #[test]
    fn the_other_end_of_a_tunnel_is_not_this_machine() {
        check(&message(NEW_ADDRESS, &[(ADDRESS, &[10, 8, 0, 2]), (LOCAL, &[10, 8, 0, 1])]), Some("10.8.0.1"));
    }

    #[test]
    fn what_is_no_address_is_left_out() {
        check(&message(NEW_LINK, &[(ADDRESS, &[10, 8, 0, 2])]), None);
        check(&message(NEW_ADDRESS, &[]), None);
        check(&message(NEW_ADDRESS, &[(ADDRESS, &[10, 8, 0])]), None);
        let mut short = Messages::new();
        short.begin(NEW_ADDRESS, 0, &[2, 24]);
        check(&short, None);
    }
}
