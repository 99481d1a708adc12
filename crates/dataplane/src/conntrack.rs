//! The kernel's table of connections: reading it, and cutting what a new
//! Program forbids (S3.4). A connection that is deleted there is judged anew by
//! its next packet, from whichever end that comes; so TCP that was cut is
//! remembered in the table first.

// What the kernel says carries bytes that anybody may have sent.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::netlink::{Attributes, DUMP, Error, Family, Messages, Socket};
use crate::nft::batch_fixed;
use namewall_policy::port::Protocol;
use nix::errno::Errno;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

const SUBSYSTEM: u16 = 1;
const GET: u16 = SUBSYSTEM << 8 | 1;
const DELETE: u16 = SUBSYSTEM << 8 | 2;
const FIXED: usize = 4;

const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const ID: u16 = 12;
const ZONE: u16 = 18;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;

/// A connection as it was opened, and as it goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connection {
    pub protocol: Protocol,
    pub source: IpAddr,
    pub source_port: u16,
    /// Where it was addressed to, before DNAT.
    pub asked: (IpAddr, u16),
    /// Where it goes, after DNAT.
    pub destination: (IpAddr, u16),
    /// The kernel's own description, to delete it by.
    original: Vec<u8>,
    id: Option<Vec<u8>>,
    zone: Option<Vec<u8>>,
}

/// Reads and deletes connections of one network namespace.
#[derive(Debug)]
pub struct Conntrack {
    socket: Socket,
}

impl Conntrack {
    pub fn open() -> Result<Self, Error> {
        Socket::open(Family::NetlinkNetFilter).map(Self::at)
    }

    /// Those of the namespace that the socket was opened in.
    pub(crate) fn at(socket: Socket) -> Self {
        Self { socket }
    }

    /// Every connection. The kernel's table changes while it is read; one that
    /// is opened meanwhile is judged by the new rules anyway.
    pub fn list(&mut self) -> Result<Vec<Connection>, Error> {
        let mut connections = Vec::new();
        let mut request = Messages::new();
        request.begin(GET, DUMP, &batch_fixed(0, 0));
        let read = self.socket.dump(&request, |answer| connections.extend(read_connection(answer.attributes(FIXED))));
        match read {
            Ok(()) | Err(Error::Interrupted) => Ok(connections),
            Err(error) => Err(error),
        }
    }

    /// Cuts a connection; false if it was gone already.
    pub fn delete(&mut self, connection: &Connection) -> Result<bool, Error> {
        delete(&mut self.socket, connection)
    }
}

/// Cuts a connection of the namespace that the socket was opened in; false if it was gone already.
pub(crate) fn delete(socket: &mut Socket, connection: &Connection) -> Result<bool, Error> {
    let family = if connection.source.is_ipv4() { 2 } else { 10 };
    let mut request = Messages::new();
    request.begin(DELETE, 0, &batch_fixed(family, 0));
    request.bytes(ORIGINAL | 0x8000, &connection.original);
    if let Some(id) = &connection.id {
        request.bytes(ID, id);
    }
    if let Some(zone) = &connection.zone {
        request.bytes(ZONE, zone);
    }
    request.acknowledge();
    match socket.commit(&request) {
        Ok(()) => Ok(true),
        Err(error) if error.errno() == Some(Errno::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

impl Connection {
    /// A connection that no kernel knows, for tests and simulations.
    pub fn between(protocol: Protocol, from: SocketAddr, to: SocketAddr) -> Self {
        let (destination, (original, id, zone)) = ((to.ip(), to.port()), Default::default());
        let (source, source_port) = (from.ip(), from.port());
        Self { protocol, source, source_port, asked: destination, destination, original, id, zone }
    }
}

impl AsFd for Conntrack {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

struct Tuple {
    source: IpAddr,
    destination: IpAddr,
    protocol: Protocol,
    source_port: u16,
    port: u16,
}

pub(crate) fn read_connection(of: Attributes<'_>) -> Option<Connection> {
    let original = read_tuple(of.nested(ORIGINAL))?;
    let reply = read_tuple(of.nested(REPLY))?;
    let has_ports = original.protocol.has_ports();
    Some(Connection {
        protocol: original.protocol,
        source: original.source,
        source_port: original.source_port,
        asked: (original.destination, original.port),
        // Whoever answers is where it went.
        destination: (reply.source, if has_ports { reply.source_port } else { 0 }),
        original: of.get(ORIGINAL)?.to_vec(),
        id: of.get(ID).map(<[u8]>::to_vec),
        zone: of.get(ZONE).map(<[u8]>::to_vec),
    })
}

fn read_tuple(of: Attributes<'_>) -> Option<Tuple> {
    let (addresses, protocol) = (of.nested(TUPLE_IP), of.nested(TUPLE_PROTOCOL));
    let v4 = |kind| addresses.get(kind).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()).map(IpAddr::from);
    let v6 = |kind| addresses.get(kind).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()).map(IpAddr::from);
    let port = |kind| protocol.get(kind).and_then(|bytes| <[u8; 2]>::try_from(bytes).ok()).map(u16::from_be_bytes);
    let number = *protocol.get(1)?.first()?;
    Some(Tuple {
        source: v4(1).or_else(|| v6(3))?,
        destination: v4(2).or_else(|| v6(4))?,
        protocol: protocol_of(number),
        source_port: port(2).unwrap_or(0),
        port: port(3).unwrap_or(0),
    })
}

pub(crate) fn protocol_of(number: u8) -> Protocol {
    match number {
        6 => Protocol::Tcp,
        17 => Protocol::Udp,
        132 => Protocol::Sctp,
        1 | 58 => Protocol::Icmp,
        other => Protocol::Other(other),
    }
}
