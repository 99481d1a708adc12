//! Sockets that belong to a pod's network namespace. Who is root opens them
//! there and passes them on; who has NET_ADMIN can then use them from outside,
//! without a right to enter the namespace.

use super::addresses::{ADDRESS_GROUPS, ADDRESS_HEADER, GET_ADDRESS, InterfaceAddress};
use super::link::{
    GET_LINK, INFO_KIND, LINK_HARDWARE, LINK_HEADER, LINK_INFO, LINK_MASTER, LINK_NAME, NEW_LINK, index, request,
    uninterrupted,
};
use super::notices::LINKS;
use super::route::{Way, way};
use super::{Error, Family, Socket};
use crate::conntrack::{Connection, Conntrack};
use crate::nflog::DenialLog;
use crate::nft::rule::Hardware;
use namewall_policy::model::Direction;
use nix::errno::Errno;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

/// The kernel's number for a link of Ethernet frames.
const ETHERNET: u16 = 1;
/// The loopback interface is the first of every network namespace.
const LOOPBACK: u32 = 1;

/// The sockets of one namespace.
#[derive(Debug)]
pub struct PodSockets {
    pub(crate) netfilter: Socket,
    links: Socket,
    notices: Socket,
    pub(crate) log: DenialLog,
    connections: Socket,
    /// The same as `connections`, once somebody has asked for it.
    conntrack: Option<Arc<Mutex<Conntrack>>>,
}

/// An interface of a pod, with its addresses as the kernel has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecondLink {
    pub name: String,
    pub index: u32,
    pub hardware: Option<Hardware>,
    pub addresses: Vec<IpAddr>,
    /// False for what sends no Ethernet frames of the pod's own: tunnels, and bridges with their ports, which pass on
    /// the frames of others.
    pub has_own_frames: bool,
}

/// The interfaces of a pod other than the loopback.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SecondLinks {
    /// The index of the pod's own interface in the cluster's network.
    pub own: Option<u32>,
    /// The addresses of that interface, and of the loopback.
    pub local: Vec<IpAddr>,
    pub second: Vec<SecondLink>,
}

impl SecondLinks {
    /// Which of the pod's policies judge a connection: those for egress if the pod has opened it or forwards it. None
    /// if it stays inside the pod or goes by the pod's own interface. Conntrack does not note interfaces: a connection
    /// goes by a second interface if one end is an address of it, or if the pod's packets leave by it.
    pub(crate) fn direction<E>(
        &self,
        connection: &Connection,
        mut way: impl FnMut(Option<IpAddr>, IpAddr) -> Result<Way, E>,
    ) -> Result<Option<Direction>, E> {
        let is_second = |address: IpAddr| self.second.iter().any(|link| link.addresses.contains(&address));
        let is_local = |address: IpAddr| is_second(address) || self.local.contains(&address) || address.is_loopback();
        let is_out = |way| matches!(way, Way::By(index) if self.second.iter().any(|link| link.index == index));
        let (source, destination) = (connection.source, connection.destination.0);
        let (direction, is_by_second) = match (is_local(source), is_local(destination)) {
            (true, true) => return Ok(None),
            (true, false) => (Direction::Egress, is_second(source) || is_out(way(Some(source), destination)?)),
            (false, true) => (Direction::Ingress, is_second(destination) || is_out(way(Some(destination), source)?)),
            (false, false) => match way(None, destination)? {
                // It came for a group. Answers show where from.
                Way::Here => (Direction::Ingress, is_out(way(None, source)?)),
                forwarded => (Direction::Egress, is_out(forwarded)),
            },
        };
        Ok(is_by_second.then_some(direction))
    }
}

impl PodSockets {
    /// How many there are.
    pub const COUNT: usize = 5;

    /// Opens them in the namespace that the thread is in.
    pub fn open() -> Result<Self, Error> {
        Ok(Self {
            netfilter: Socket::open(Family::NetlinkNetFilter)?,
            links: Socket::open(Family::NetlinkRoute)?,
            notices: Socket::open_for(Family::NetlinkRoute, LINKS | ADDRESS_GROUPS)?,
            log: DenialLog::at(Socket::open(Family::NetlinkNetFilter)?),
            connections: Socket::open(Family::NetlinkNetFilter)?,
            conntrack: None,
        })
    }

    /// To pass them on.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; Self::COUNT] {
        [self.netfilter.as_fd(), self.links.as_fd(), self.notices.as_fd(), self.log.as_fd(), self.connections.as_fd()]
    }

    /// Takes what was passed on, in the same order. None if it is not as many.
    pub fn received(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let [netfilter, links, notices, log, connections] = <[OwnedFd; Self::COUNT]>::try_from(descriptors).ok()?;
        let plain = |fd| Socket::of(fd, false);
        Some(Self {
            netfilter: plain(netfilter),
            links: plain(links),
            notices: Socket::of(notices, true),
            log: DenialLog::at(plain(log)),
            connections: plain(connections),
            conntrack: None,
        })
    }

    /// Lists the connections of the namespace, while others use the other sockets.
    pub(crate) fn conntrack(&mut self) -> Result<Arc<Mutex<Conntrack>>, Error> {
        if let Some(conntrack) = &self.conntrack {
            return Ok(conntrack.clone());
        }
        let fd = self.connections.as_fd().try_clone_to_owned();
        let fd = fd.map_err(|error| Error::Open(Errno::from_raw(error.raw_os_error().unwrap_or_default())))?;
        let conntrack = Arc::new(Mutex::new(Conntrack::at(Socket::of(fd, false))));
        self.conntrack = Some(conntrack.clone());
        Ok(conntrack)
    }

    /// The way to an address; where `from` is an address of the pod, the way from there.
    pub(crate) fn way(&mut self, from: Option<IpAddr>, to: IpAddr) -> Result<Way, Error> {
        way(&mut self.links, from, to)
    }

    /// True if an interface or an address has come, gone or changed since this was last asked. Does not wait.
    pub(crate) fn have_news(&mut self) -> bool {
        self.notices.discard()
    }

    /// The interfaces there are. `own` is the name of the pod's own one.
    pub(crate) fn read_links(&mut self, own: &str) -> Result<SecondLinks, Error> {
        uninterrupted(|| self.dump(own))
    }

    fn dump(&mut self, own: &str) -> Result<SecondLinks, Error> {
        let mut found = SecondLinks::default();
        self.links.dump(&request(GET_LINK, LINK_HEADER), |message| {
            let attributes = message.attributes(LINK_HEADER);
            let Some(index) = index(message).filter(|_| message.kind == NEW_LINK) else { return };
            let name = attributes.text(LINK_NAME).unwrap_or_default().to_owned();
            if name == own {
                found.own = Some(index);
            } else if index != LOOPBACK {
                let hardware = attributes.get(LINK_HARDWARE).and_then(|bytes| bytes.try_into().ok()).map(Hardware);
                let link_type = message.body.get(2..4).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
                let is_bridge = attributes.nested(LINK_INFO).text(INFO_KIND) == Some("bridge");
                let has_own_frames = link_type == Some(ETHERNET) && !is_bridge && attributes.get(LINK_MASTER).is_none();
                let addresses = Vec::new();
                found.second.push(SecondLink { name, index, hardware, addresses, has_own_frames });
            }
        })?;
        self.links.dump(&request(GET_ADDRESS, ADDRESS_HEADER), |message| {
            let Some(one) = InterfaceAddress::read(message) else { return };
            match found.second.iter_mut().find(|link| link.index == one.interface) {
                Some(link) => link.addresses.push(one.address),
                None => found.local.push(one.address),
            }
        })?;
        Ok(found)
    }
}
