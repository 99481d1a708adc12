//! Sockets that belong to a pod's network namespace. Who is root opens them
//! there and passes them on; who has NET_ADMIN can then use them from outside,
//! without a right to enter the namespace.

use super::addresses::{ADDRESS_GROUPS, ADDRESS_HEADER, GET_ADDRESS, InterfaceAddress};
use super::link::{GET_LINK, LINK_HARDWARE, LINK_HEADER, LINK_NAME, NEW_LINK, index, request, uninterrupted};
use super::notices::LINKS;
use super::{Error, Family, Socket};
use crate::nft::rule::Hardware;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// The loopback interface is the first of every network namespace.
const LOOPBACK: u32 = 1;

/// The sockets of one namespace.
#[derive(Debug)]
pub struct PodSockets {
    pub(crate) netfilter: Socket,
    links: Socket,
    notices: Socket,
}

/// An interface of a pod, with its addresses as the kernel has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecondLink {
    pub name: String,
    pub index: u32,
    pub hardware: Option<Hardware>,
    pub addresses: Vec<IpAddr>,
}

/// The interfaces of a pod other than the loopback.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SecondLinks {
    /// The index of the pod's own interface in the cluster's network.
    pub own: Option<u32>,
    pub second: Vec<SecondLink>,
}

impl PodSockets {
    /// How many there are.
    pub const COUNT: usize = 3;

    /// Opens them in the namespace that the thread is in.
    pub fn open() -> Result<Self, Error> {
        Ok(Self {
            netfilter: Socket::open(Family::NetlinkNetFilter)?,
            links: Socket::open(Family::NetlinkRoute)?,
            notices: Socket::open_for(Family::NetlinkRoute, LINKS | ADDRESS_GROUPS)?,
        })
    }

    /// To pass them on.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; Self::COUNT] {
        [self.netfilter.as_fd(), self.links.as_fd(), self.notices.as_fd()]
    }

    /// Takes what was passed on, in the same order. None if it is not as many.
    pub fn received(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let [netfilter, links, notices] = <[OwnedFd; Self::COUNT]>::try_from(descriptors).ok()?;
        let plain = |fd| Socket::of(fd, false);
        Some(Self { netfilter: plain(netfilter), links: plain(links), notices: Socket::of(notices, true) })
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
                found.second.push(SecondLink { name, index, hardware, addresses: Vec::new() });
            }
        })?;
        self.links.dump(&request(GET_ADDRESS, ADDRESS_HEADER), |message| {
            let Some(one) = InterfaceAddress::read(message) else { return };
            if let Some(link) = found.second.iter_mut().find(|link| link.index == one.interface) {
                link.addresses.push(one.address);
            }
        })?;
        Ok(found)
    }
}
