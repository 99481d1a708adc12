//! Links, addresses and routes, as routing netlink messages.
//!
//! Both ends of every link have the same hardware address and speak no ARP and
//! no neighbour discovery, so a packet put in at one end comes out at the other
//! and is taken there: no neighbour has to be found, none can be forgotten, and
//! no first packet waits. A gateway's address is then only a word for "the
//! other end"; Calico's are used. Where the kernel has IPv6, both ends of a pod's
//! link have link-local addresses, in clusters without IPv6 too, as on real nodes.

use namewall_dataplane::guard::link_local;
use namewall_dataplane::netlink::{CREATE, EXCLUSIVE, Error, Family, Messages, Socket};
use namewall_dataplane::nft::rule::Hardware;
use nix::errno::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
pub(crate) const HARDWARE_ADDRESS: [u8; 6] = [0x02, 0x6e, 0x77, 0x6c, 0x6c, 0x01];
/// The node's link-local address on every pod's link, as with Calico. The pod's is made of its hardware address; since
/// both ends have the same one, the node's cannot be. Nor is it the gateway's: the kernel takes no route by an address
/// of its own.
const NODE_LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0xecee, 0xeeff, 0xfeee, 0xeeee);
const LINK_LOCAL_BITS: u8 = 64;

pub(crate) const LOOPBACK: u32 = 1;
/// Links get numbers from here. The kernel may have made a few of its own before.
pub(crate) const FIRST_LINK: u32 = 100;

/// A user namespace cannot raise the size of a socket's buffer; this much always fits.
const CHUNK: usize = 32 << 10;
/// The kernel does at once what is waited for, unless the machine is overloaded.
const KERNEL_TIMEOUT: Duration = Duration::from_secs(5);

const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
const GET_ROUTE: u16 = 26;

const REPLACE: u16 = 0x100;

const LINK_ADDRESS: u16 = 1;
const LINK_NAME: u16 = 3;
const LINK_MASTER: u16 = 10;
const LINK_INFO: u16 = 18;
const LINK_GROUP: u16 = 27;
const LINK_NAMESPACE: u16 = 28;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VETH_PEER: u16 = 1;
/// Frames that a bridge forwards pass the firewall of IP packets.
const BRIDGE_CALLS_IPTABLES: u16 = 36;
const BRIDGE_CALLS_IP6TABLES: u16 = 37;
/// A group of links that nothing else uses.
const TO_BE_REMOVED: u32 = 1;
const UP: u32 = 0x1;
const RUNNING: u32 = 0x40;
const NO_ARP: u32 = 0x80;

const ADDRESS: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
const ADDRESS_FLAGS: u16 = 8;
const NO_DUPLICATE_CHECK: u32 = 0x2;

const ROUTE_TO: u16 = 1;
const ROUTE_DEVICE: u16 = 4;
const ROUTE_GATEWAY: u16 = 5;
const MAIN_TABLE: u8 = 254;
const STATIC: u8 = 4;
const UNICAST: u8 = 1;
const LOCAL: u8 = 2;
const ON_LINK: u32 = 4;

/// One end of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkEnd<'a> {
    pub index: u32,
    pub name: &'a str,
    /// Its own hardware address, for a link whose ends find each other by ARP and neighbour discovery.
    pub hardware: Option<[u8; 6]>,
}

impl LinkEnd<'_> {
    fn flags(&self) -> u32 {
        if self.hardware.is_some() { 0 } else { NO_ARP }
    }
}

/// An address on a link, with the length of its network's prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct InNetwork {
    pub address: IpAddr,
    pub bits: u8,
}

impl InNetwork {
    /// The address is all of its network.
    fn alone(address: IpAddr) -> Self {
        Self { address, bits: bits(address) }
    }
}

/// What a route leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To {
    Address(IpAddr),
    EverythingV4,
    EverythingV6,
}

/// The kind of a message to the kernel, and its flags.
#[derive(Clone, Copy)]
struct MessageType {
    kind: u16,
    flags: u16,
}

impl MessageType {
    /// What is asked for must not be there yet.
    fn create(kind: u16) -> Self {
        Self { kind, flags: CREATE | EXCLUSIVE }
    }

    fn plain(kind: u16) -> Self {
        Self { kind, flags: 0 }
    }
}

/// Requests for the kernel, to be sent together.
#[derive(Default, Debug)]
pub(crate) struct Batch {
    full: Vec<Messages>,
    messages: Messages,
    removes_links: bool,
}

impl Batch {
    fn begin(&mut self, message: MessageType, fixed: &[u8]) -> &mut Messages {
        if self.messages.len() > CHUNK {
            self.full.push(std::mem::take(&mut self.messages));
        }
        self.messages.begin(message.kind, message.flags, fixed);
        &mut self.messages
    }

    /// A pair of links. The near end is up at once; the kernel wants the far end to be brought up apart.
    pub(crate) fn link(&mut self, near: LinkEnd<'_>, far: LinkEnd<'_>, far_namespace: BorrowedFd<'_>) {
        let fixed = link_header(near.index, UP | near.flags(), UP | NO_ARP);
        let messages = self.begin(MessageType::create(NEW_LINK), &fixed);
        messages.text(LINK_NAME, near.name);
        messages.bytes(LINK_ADDRESS, &near.hardware.unwrap_or(HARDWARE_ADDRESS));
        messages.nested(LINK_INFO, |info| {
            info.text(INFO_KIND, "veth");
            info.nested(INFO_DATA, |data| {
                data.group(VETH_PEER, &link_header(far.index, far.flags(), NO_ARP), |peer| {
                    peer.text(LINK_NAME, far.name);
                    peer.bytes(LINK_ADDRESS, &far.hardware.unwrap_or(HARDWARE_ADDRESS));
                    peer.native_u32(LINK_NAMESPACE, far_namespace.as_raw_fd() as u32);
                });
            });
        });
    }

    /// A bridge that is up. IP packets in the frames that it forwards pass the forward hook, as container networks
    /// have it.
    pub(crate) fn bridge(&mut self, LinkEnd { index, name, hardware }: LinkEnd<'_>) {
        let messages = self.begin(MessageType::create(NEW_LINK), &link_header(index, UP, UP));
        messages.text(LINK_NAME, name);
        messages.bytes(LINK_ADDRESS, &hardware.unwrap_or(HARDWARE_ADDRESS));
        messages.nested(LINK_INFO, |info| {
            info.text(INFO_KIND, "bridge");
            info.nested(INFO_DATA, |data| {
                data.bytes(BRIDGE_CALLS_IPTABLES, &[1]);
                data.bytes(BRIDGE_CALLS_IP6TABLES, &[1]);
            });
        });
    }

    /// Makes a link a port of a bridge.
    pub(crate) fn port(&mut self, link: u32, bridge: u32) {
        self.begin(MessageType::plain(NEW_LINK), &link_header(link, 0, 0)).native_u32(LINK_MASTER, bridge);
    }

    pub(crate) fn up(&mut self, link: u32) {
        self.begin(MessageType::plain(NEW_LINK), &link_header(link, UP, UP));
    }

    /// Its other end, its addresses and its routes go with it. It goes at the
    /// end of the batch, with all others: the kernel waits as long for one as for many.
    pub(crate) fn remove_link(&mut self, link: u32) {
        self.begin(MessageType::plain(NEW_LINK), &link_header(link, 0, 0)).native_u32(LINK_GROUP, TO_BE_REMOVED);
        self.removes_links = true;
    }

    fn finish(mut self) -> Vec<Messages> {
        if self.removes_links {
            self.begin(MessageType::plain(DELETE_LINK), &link_header(0, 0, 0)).native_u32(LINK_GROUP, TO_BE_REMOVED);
        }
        self.full.push(self.messages);
        self.full.retain(|messages| !messages.is_empty());
        self.full.iter_mut().for_each(Messages::acknowledge);
        self.full
    }

    pub(crate) fn address(&mut self, link: u32, address: IpAddr) {
        self.address_message(MessageType::create(NEW_ADDRESS), link, InNetwork::alone(address));
    }

    /// An address whose network is on the link.
    pub(crate) fn address_in(&mut self, link: u32, address: InNetwork) {
        self.address_message(MessageType::create(NEW_ADDRESS), link, address);
    }

    /// The link-local address of a pod, at its own end of its link.
    pub(crate) fn pod_link_local(&mut self, link: u32) {
        let address = link_local(Hardware(HARDWARE_ADDRESS)).into();
        self.address_in(link, InNetwork { address, bits: LINK_LOCAL_BITS });
    }

    /// The link-local address of a node, at its end of a pod's link.
    pub(crate) fn node_link_local(&mut self, link: u32) {
        self.address_in(link, InNetwork { address: NODE_LINK_LOCAL.into(), bits: LINK_LOCAL_BITS });
    }

    pub(crate) fn remove_address(&mut self, link: u32, address: IpAddr) {
        self.address_message(MessageType::plain(DELETE_ADDRESS), link, InNetwork::alone(address));
    }

    fn address_message(&mut self, message: MessageType, link: u32, InNetwork { address, bits }: InNetwork) {
        let mut fixed = [0; 8];
        fixed[0] = family(address);
        fixed[1] = bits;
        fixed[4..].copy_from_slice(&link.to_ne_bytes());
        let messages = self.begin(message, &fixed);
        with_octets(address, |octets| {
            messages.bytes(ADDRESS_LOCAL, octets);
            messages.bytes(ADDRESS, octets);
        });
        messages.native_u32(ADDRESS_FLAGS, NO_DUPLICATE_CHECK);
    }

    /// A route to whoever is at the other end of the link.
    pub(crate) fn route(&mut self, to: To, link: u32) {
        self.route_message(MessageType::create(NEW_ROUTE), to, link);
    }

    /// Everything of its family goes to this router.
    pub(crate) fn route_by(&mut self, router: IpAddr, link: u32) {
        let mut fixed = [0; 12];
        fixed[0] = family(router);
        fixed[4] = MAIN_TABLE;
        fixed[5] = STATIC;
        fixed[7] = UNICAST;
        let messages = self.begin(MessageType::create(NEW_ROUTE), &fixed);
        with_octets(router, |octets| messages.bytes(ROUTE_GATEWAY, octets));
        messages.native_u32(ROUTE_DEVICE, link);
    }

    /// With the last IPv4 address of a link the kernel takes every IPv4 route over it away.
    pub(crate) fn restore_default_route(&mut self, link: u32) {
        self.route_message(MessageType { kind: NEW_ROUTE, flags: CREATE | REPLACE }, To::EverythingV4, link);
    }

    pub(crate) fn remove_route(&mut self, to: To, link: u32) {
        self.route_message(MessageType::plain(DELETE_ROUTE), to, link);
    }

    fn route_message(&mut self, message: MessageType, to: To, link: u32) {
        let gateway = match to {
            To::Address(IpAddr::V4(_)) | To::EverythingV4 => IpAddr::V4(GATEWAY_V4),
            To::Address(IpAddr::V6(_)) | To::EverythingV6 => IpAddr::V6(GATEWAY_V6),
        };
        let mut fixed = [0; 12];
        fixed[0] = family(gateway);
        fixed[4] = MAIN_TABLE;
        fixed[5] = STATIC;
        fixed[7] = UNICAST;
        fixed[8..].copy_from_slice(&ON_LINK.to_ne_bytes());
        if let To::Address(address) = to {
            fixed[1] = bits(address);
        }
        let messages = self.begin(message, &fixed);
        if let To::Address(address) = to {
            with_octets(address, |octets| messages.bytes(ROUTE_TO, octets));
        }
        with_octets(gateway, |octets| messages.bytes(ROUTE_GATEWAY, octets));
        messages.native_u32(ROUTE_DEVICE, link);
    }
}

/// The routing tables of the namespace that the thread was in when it was opened.
#[derive(Debug)]
pub(crate) struct Wires(Socket);

impl Wires {
    pub(crate) fn open() -> Result<Self, Error> {
        Socket::open(Family::NetlinkRoute).map(Self)
    }

    pub(crate) fn commit(&mut self, batch: Batch) -> Result<(), Error> {
        batch.finish().iter().try_for_each(|messages| self.0.commit(messages))
    }

    /// Waits until the link carries packets. The kernel sees to the end that
    /// was up first from a work queue, and drops what is sent before.
    pub(crate) fn wait_until_running(&mut self, link: u32) -> Result<bool, Error> {
        let mut request = Messages::new();
        request.begin(GET_LINK, 0, &link_header(link, 0, 0));
        request.acknowledge();
        self.wait_until(&request, |link| {
            let flags = link.get(8..12).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
            flags.is_some_and(|flags| flags & RUNNING != 0)
        })
    }

    /// Waits until packets for the address are taken. The kernel makes the
    /// route that says so of an IPv6 address from a work queue, after it has
    /// acknowledged the address, and passes packets on before.
    pub(crate) fn wait_until_local(&mut self, address: IpAddr) -> Result<bool, Error> {
        if address.is_ipv4() {
            return Ok(true);
        }
        let mut fixed = [0; 12];
        fixed[0] = family(address);
        fixed[1] = bits(address);
        let mut request = Messages::new();
        request.begin(GET_ROUTE, 0, &fixed);
        with_octets(address, |octets| request.bytes(ROUTE_TO, octets));
        request.acknowledge();
        self.wait_until(&request, |route| route.get(7) == Some(&LOCAL))
    }

    /// Asks again until the answer is as wanted; false if it does not come to be.
    fn wait_until(&mut self, request: &Messages, wanted: impl Fn(&[u8]) -> bool) -> Result<bool, Error> {
        let deadline = Instant::now() + KERNEL_TIMEOUT;
        loop {
            let mut is_so = false;
            match self.0.commit_echoed(request, |answer| is_so |= wanted(answer.body)) {
                // There is no route at all yet.
                Err(Error::Refused { errno: Errno::ENETUNREACH | Errno::EHOSTUNREACH, .. }) => {}
                result => result?,
            }
            if is_so || Instant::now() > deadline {
                return Ok(is_so);
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

fn link_header(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..].copy_from_slice(&change.to_ne_bytes());
    header
}

fn family(address: IpAddr) -> u8 {
    let family = if address.is_ipv4() { nix::libc::AF_INET } else { nix::libc::AF_INET6 };
    family as u8
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn with_octets(address: IpAddr, mut write: impl FnMut(&[u8])) {
    match address {
        IpAddr::V4(address) => write(&address.octets()),
        IpAddr::V6(address) => write(&address.octets()),
    }
}
