//! Interfaces that lead to one address each: the links of pods where a node
//! routes to every pod, as Calico and the `ptp` plugin of CNI do it.
//!
//! Routes are the node's own, and no pod can change them. Neighbour entries and
//! the tables of bridges are not looked at: pods can forge those.

use super::link::{request, uninterrupted};
use super::veth::veths;
use super::{Error, Received, Socket};
use crate::nft::rule::Hardware;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;

const ROUTE_HEADER: usize = 12;
const MAIN_TABLE: u8 = 254;
const UNICAST: u8 = 1;
const ROUTE_TO: u16 = 1;
const ROUTE_LINK: u16 = 4;
const ROUTE_GATEWAY: u16 = 5;
const ROUTE_VIA: u16 = 18;
const FAMILY_V4: u8 = 2;

/// A veth whose other end is in another network namespace, and the addresses that are routed to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoutedLink {
    pub name: String,
    pub index: u32,
    /// The hardware address of the other end, if the kernel tells it.
    pub hardware: Option<Hardware>,
    pub addresses: Vec<IpAddr>,
}

/// A route by a link.
pub(super) struct LinkRoute {
    pub(super) link: u32,
    pub(super) to: IpAddr,
    pub(super) bits: u8,
    /// True for addresses of the link itself. All others are behind a gateway.
    pub(super) is_direct: bool,
}

/// A route of the main table by a link.
pub(super) fn link_route(message: Received<'_>) -> Option<LinkRoute> {
    let [family, bits, _, _, table, _, _, kind, ..] = *message.body else { return None };
    let attributes = message.attributes(ROUTE_HEADER);
    if message.kind != NEW_ROUTE || table != MAIN_TABLE || kind != UNICAST {
        return None;
    }
    let link = attributes.get(ROUTE_LINK)?.try_into().ok().map(u32::from_ne_bytes)?;
    let to = attributes.get(ROUTE_TO);
    // IPv4 by a gateway of IPv6 has an attribute of its own.
    let has_gateway = [ROUTE_GATEWAY, ROUTE_VIA].iter().any(|kind| attributes.get(*kind).is_some());
    let is_direct = to.is_some() && !has_gateway;
    let to = match (to, family) {
        (Some(to), _) if to.len() == 4 => <[u8; 4]>::try_from(to).ok().map(IpAddr::from)?,
        (Some(to), _) => <[u8; 16]>::try_from(to).ok().map(IpAddr::from)?,
        // The default route.
        (None, FAMILY_V4) => Ipv4Addr::UNSPECIFIED.into(),
        (None, _) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let most = if to.is_ipv4() { 32 } else { 128 };
    (bits <= most).then_some(LinkRoute { link, to, bits, is_direct })
}

/// A route to one address, by its link.
pub(super) fn route(message: Received<'_>) -> Option<(u32, IpAddr)> {
    let LinkRoute { link, to, bits, is_direct } = link_route(message)?;
    (is_direct && bits == if to.is_ipv4() { 32 } else { 128 }).then_some((link, to))
}

/// All routes by links.
pub(super) fn link_routes(socket: &mut Socket) -> Result<Vec<LinkRoute>, Error> {
    uninterrupted(|| {
        let mut routes = Vec::new();
        socket.dump(&request(GET_ROUTE, ROUTE_HEADER), |message| routes.extend(link_route(message))).map(|()| routes)
    })
}

/// The links of the network namespace that the socket was opened in.
pub fn routed_links(socket: &mut Socket) -> Result<Vec<RoutedLink>, Error> {
    uninterrupted(|| read(socket))
}

fn read(socket: &mut Socket) -> Result<Vec<RoutedLink>, Error> {
    let mut routes: BTreeMap<u32, Vec<IpAddr>> = BTreeMap::new();
    socket.dump(&request(GET_ROUTE, ROUTE_HEADER), |message| {
        if let Some((link, address)) = route(message) {
            routes.entry(link).or_default().push(address);
        }
    })?;
    let mut links = Vec::new();
    // The routes to ports of a bridge lead to the bridge.
    for veth in veths(socket)?.into_iter().filter(|veth| !veth.is_port) {
        let Some(addresses) = routes.remove(&veth.index) else { continue };
        let hardware = veth.far_hardware(socket)?;
        links.push(RoutedLink { name: veth.name, index: veth.index, hardware, addresses });
    }
    Ok(links)
}

#[cfg(all(test, feature = "system"))]
mod tests {
    use super::*;
    use crate::netlink::Family;
    use crate::netlink::veth::pod_links;
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
            let index = |link: &str| {
                let text = std::fs::read_to_string(format!("/proc/thread-self/net/dev_snmp6/{link}")).unwrap();
                text.lines().find_map(|line| line.strip_prefix("ifIndex")).unwrap().trim().parse::<u32>().unwrap()
            };
            // The port of a bridge is a pod's link too; one to this very namespace is not.
            let wanted = ["port1", "up0", "br0"].map(index).into();
            let named: Vec<String> =
                pod_links(&mut socket, &wanted).unwrap().into_iter().map(|link| link.name).collect();
            assert_eq!(named, ["port1"]);
            let links = routed_links(&mut socket).unwrap();
            let [link] = &links[..] else { panic!("{links:?}") };
            assert_eq!(link.name, "cali1");
            assert_eq!(link.hardware, Some(Hardware([0x0a, 0x58, 0x0a, 0xf4, 0x01, 0x05])));
            assert_eq!(link.addresses, ["10.244.1.5", "fd00::5"].map(|text| text.parse::<IpAddr>().unwrap()));
        });
    }
}
