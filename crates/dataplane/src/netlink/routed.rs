//! Interfaces that lead to one address each: the links of pods where a node
//! routes to every pod, as Calico and the `ptp` plugin of CNI do it.
//!
//! Routes are the node's own, and no pod can change them. Neighbour entries and
//! the tables of bridges are not looked at: pods can forge those.

use super::link::{
    ATTEMPTS, GET_LINK, INFO_KIND, LINK_HARDWARE, LINK_HEADER, LINK_INFO, LINK_MASTER, LINK_NAME, LINK_NAMESPACE,
    LINK_PEER, NEW_LINK, index, request,
};
use super::{ACK, Error, Messages, Received, Socket};
use crate::nft::rule::Hardware;
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::net::IpAddr;

const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;

/// Asks about a link of the network namespace with this number.
const TARGET_NAMESPACE: u16 = 46;

const ROUTE_HEADER: usize = 12;
const MAIN_TABLE: u8 = 254;
const UNICAST: u8 = 1;
const ROUTE_TO: u16 = 1;
const ROUTE_LINK: u16 = 4;
const ROUTE_GATEWAY: u16 = 5;

/// A veth whose other end is in another network namespace, and the addresses that are routed to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoutedLink {
    pub name: String,
    pub index: u32,
    /// The hardware address of the other end, if the kernel tells it.
    pub hardware: Option<Hardware>,
    pub addresses: Vec<IpAddr>,
}

struct Veth {
    name: String,
    index: u32,
    peer: u32,
    namespace: u32,
}

impl Veth {
    /// None for other links, and for ports of a bridge: their routes lead to the bridge.
    fn read(message: Received<'_>) -> Option<Self> {
        let attributes = message.attributes(LINK_HEADER);
        let kind = attributes.nested(LINK_INFO).text(INFO_KIND);
        if message.kind != NEW_LINK || kind != Some("veth") || attributes.get(LINK_MASTER).is_some() {
            return None;
        }
        let native = |kind| attributes.get(kind).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
        let index = index(message)?;
        let name = attributes.text(LINK_NAME)?.to_owned();
        Some(Self { name, index, peer: native(LINK_PEER)?, namespace: native(LINK_NAMESPACE)? })
    }
}

/// A route to one address, by its link.
fn route(message: Received<'_>) -> Option<(u32, IpAddr)> {
    let [_, bits, _, _, table, _, _, kind, ..] = *message.body else { return None };
    let attributes = message.attributes(ROUTE_HEADER);
    let is_plain = message.kind == NEW_ROUTE && table == MAIN_TABLE && kind == UNICAST;
    if !is_plain || attributes.get(ROUTE_GATEWAY).is_some() {
        return None;
    }
    let link = attributes.get(ROUTE_LINK)?.try_into().ok().map(u32::from_ne_bytes)?;
    let to = attributes.get(ROUTE_TO)?;
    let address = match to.len() {
        4 => <[u8; 4]>::try_from(to).ok().map(IpAddr::from)?,
        _ => <[u8; 16]>::try_from(to).ok().map(IpAddr::from)?,
    };
    (usize::from(bits) == to.len() * 8).then_some((link, address))
}

/// The links of the network namespace that the socket was opened in.
pub fn routed_links(socket: &mut Socket) -> Result<Vec<RoutedLink>, Error> {
    let mut attempt = 1;
    loop {
        match read(socket) {
            Err(Error::Interrupted) if attempt < ATTEMPTS => attempt += 1,
            done => return done,
        }
    }
}

fn read(socket: &mut Socket) -> Result<Vec<RoutedLink>, Error> {
    let mut routes: BTreeMap<u32, Vec<IpAddr>> = BTreeMap::new();
    socket.dump(&request(GET_ROUTE, ROUTE_HEADER), |message| {
        if let Some((link, address)) = route(message) {
            routes.entry(link).or_default().push(address);
        }
    })?;
    let mut veths = Vec::new();
    socket.dump(&request(GET_LINK, LINK_HEADER), |message| veths.extend(Veth::read(message)))?;
    let mut links = Vec::new();
    for veth in veths {
        let Some(addresses) = routes.remove(&veth.index) else { continue };
        let hardware = far_hardware(socket, &veth)?;
        links.push(RoutedLink { name: veth.name, index: veth.index, hardware, addresses });
    }
    Ok(links)
}

/// The hardware address of the other end. None if it is gone, or of a namespace that we have no right to ask about.
fn far_hardware(socket: &mut Socket, veth: &Veth) -> Result<Option<Hardware>, Error> {
    let mut header = [0; LINK_HEADER];
    header[4..8].copy_from_slice(&veth.peer.to_ne_bytes());
    let mut request = Messages::new();
    request.begin(GET_LINK, ACK, &header);
    request.native_u32(TARGET_NAMESPACE, veth.namespace);
    let mut hardware = None;
    let asked = socket.commit_echoed(&request, |message| {
        let bytes = message.attributes(LINK_HEADER).get(LINK_HARDWARE);
        hardware = bytes.and_then(|bytes| bytes.try_into().ok()).map(Hardware);
    });
    match asked {
        Ok(()) => Ok(hardware),
        Err(Error::Refused { errno: Errno::ENODEV | Errno::EINVAL | Errno::EACCES | Errno::EPERM, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(all(test, feature = "system"))]
mod tests {
    use super::*;
    use crate::netlink::Family;
    use crate::nft::isolated;
    use std::process::{Child, Command};

    fn ip(arguments: &str) {
        let done = Command::new("ip").args(arguments.split_whitespace()).status().expect("ip runs");
        assert!(done.success(), "ip {arguments}");
    }

    /// A process in a network namespace of its own.
    struct Pod(Child);

    impl Pod {
        fn new() -> Self {
            let pod = Command::new("unshare").args(["--net", "sleep", "60"]).spawn().expect("unshare runs");
            let own = std::fs::read_link("/proc/thread-self/ns/net").expect("a namespace");
            let path = format!("/proc/{}/ns/net", pod.id());
            while std::fs::read_link(&path).is_ok_and(|other| other == own) {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            Self(pod)
        }
    }

    impl Drop for Pod {
        fn drop(&mut self) {
            let _ = self.0.kill().and_then(|()| self.0.wait());
        }
    }

    #[test]
    fn s1_9_a_route_to_one_address_names_the_interface_of_a_pod() {
        isolated(|| {
            let pod = Pod::new();
            let id = pod.0.id();
            ip(&format!("link add cali1 type veth peer name eth0 address 0a:58:0a:f4:01:05 netns {id}"));
            ip(&format!("link add port1 type veth peer name eth1 netns {id}"));
            ip("link add up0 type veth peer name up1");
            ip("link add br0 type bridge");
            ip("link set port1 master br0");
            for link in ["cali1", "port1", "up0", "up1", "br0"] {
                ip(&format!("link set {link} up"));
            }
            ip("route add 10.244.1.5/32 dev cali1");
            ip("route add fd00::5/128 dev cali1");
            ip("route add 10.9.0.0/24 dev cali1");
            // A bridge, a port of one, and an uplink that is a veth to this very namespace.
            ip("route add 10.244.1.6/32 dev br0");
            ip("route add 10.244.1.7/32 dev port1");
            ip("route add 10.244.1.8/32 dev up0");
            let mut socket = Socket::open(Family::NetlinkRoute).unwrap();
            let links = routed_links(&mut socket).unwrap();
            let [link] = &links[..] else { panic!("{links:?}") };
            assert_eq!(link.name, "cali1");
            assert_eq!(link.hardware, Some(Hardware([0x0a, 0x58, 0x0a, 0xf4, 0x01, 0x05])));
            assert_eq!(link.addresses, ["10.244.1.5", "fd00::5"].map(|text| text.parse::<IpAddr>().unwrap()));
        });
    }
}
