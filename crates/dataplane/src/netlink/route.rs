//! Which way a packet goes, as the kernel says.

use super::{ACK, Error, Messages, Socket};
use nix::errno::Errno;
use std::net::IpAddr;

const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const ROUTE_HEADER: usize = 12;
/// Where the kind of a route is in the header.
const KIND: usize = 7;
const TO: u16 = 1;
const FROM: u16 = 2;
const LINK: u16 = 4;
/// Kinds of routes: to this host itself, to a broadcast address, to an anycast address, to a multicast group.
const OF_THIS_HOST: [u8; 4] = [2, 3, 4, 5];

/// Where packets for an address go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Out by the interface with this index.
    By(u32),
    /// Nowhere: this host, or a group, has the address.
    Here,
    /// There is no route.
    None,
}

/// The way to an address; where `from` is an address of this host, the way from there.
pub(super) fn way(socket: &mut Socket, from: Option<IpAddr>, to: IpAddr) -> Result<Way, Error> {
    let mut asked = Messages::new();
    let bits = |address: IpAddr| if address.is_ipv4() { 32 } else { 128 };
    let family = if to.is_ipv4() { 2 } else { 10 };
    let header: [u8; ROUTE_HEADER] = [family, bits(to), from.map_or(0, bits), 0, 0, 0, 0, 0, 0, 0, 0, 0];
    asked.begin(GET_ROUTE, ACK, &header);
    for (kind, address) in [(TO, Some(to)), (FROM, from)] {
        match address {
            Some(IpAddr::V4(address)) => asked.bytes(kind, &address.octets()),
            Some(IpAddr::V6(address)) => asked.bytes(kind, &address.octets()),
            None => {}
        }
    }
    let mut found = Way::None;
    let done = socket.commit_echoed(&asked, |answer| {
        if answer.kind != NEW_ROUTE {
            return;
        }
        let link = answer.attributes(ROUTE_HEADER).get(LINK).and_then(|bytes| bytes.try_into().ok());
        found = match (answer.body.get(KIND), link) {
            (Some(kind), _) if OF_THIS_HOST.contains(kind) => Way::Here,
            (_, Some(link)) => Way::By(u32::from_ne_bytes(link)),
            _ => Way::None,
        };
    });
    match done {
        Ok(()) => Ok(found),
        Err(Error::Refused {
            errno: Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::EACCES | Errno::EINVAL, ..
        }) => Ok(Way::None),
        Err(error) => Err(error),
    }
}
