//! Interfaces that lead to pods, where nobody knows which of them leads to
//! which pod: the ports of the bridge that the pods' addresses are routed to, or
//! a link that a whole network is routed to.
//!
//! That a bridge has pods behind it, its routes say, which are the node's own.
//! Which port a pod is at, only the bridge's table would say, and pods can forge
//! what is in it.

use super::routed::{LinkRoute, link_routes};
use super::veth::veths;
use super::{Error, Socket, bridges};
use namewall_policy::addr::Cidr;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A veth that leads to one of several pods, and nobody knows to which.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedLink {
    pub name: String,
    pub index: u32,
    /// The addresses of pods that it may lead to.
    pub addresses: Vec<IpAddr>,
    /// What the node routes that way. No other source comes from there, but those of pods.
    pub blocks: Vec<Cidr>,
}

/// The interfaces that lead to other network namespaces and to one of these addresses, each with all of those that it
/// may lead to.
pub fn shared_links(socket: &mut Socket, wanted: &BTreeSet<IpAddr>) -> Result<Vec<SharedLink>, Error> {
    let routes = link_routes(socket)?;
    let mut behind: BTreeMap<u32, Vec<IpAddr>> = BTreeMap::new();
    for &address in wanted {
        if let Some(link) = link_to(&routes, address) {
            behind.entry(link).or_default().push(address);
        }
    }
    if behind.is_empty() {
        return Ok(Vec::new());
    }
    let links = bridges::links(socket)?;
    let mut found = Vec::new();
    let veths = veths(socket)?;
    // A bridge with other ports than pods' may have the gateway of a route behind one of those.
    let is_pods = |port: &u32| veths.iter().any(|veth| veth.index == *port);
    let has_uplink = |link: u32| links.masters.iter().any(|(port, master)| *master == link && !is_pods(port));
    let blocks_of = |link: u32| {
        let by_it = routes.iter().filter(|route| route.link == link && (route.is_direct || !has_uplink(link)));
        let mut blocks: Vec<Cidr> = by_it.map(|route| Cidr::new(route.to, route.bits)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    };
    for veth in &veths {
        let leads_by = match links.masters.get(&veth.index) {
            Some(master) => links.bridges.contains_key(master).then_some(*master),
            None => Some(veth.index),
        };
        if let Some((link, addresses)) = leads_by.and_then(|link| Some((link, behind.get(&link)?))) {
            let (name, index, addresses) = (veth.name.clone(), veth.index, addresses.clone());
            found.push(SharedLink { name, index, addresses, blocks: blocks_of(link) });
        }
    }
    Ok(found)
}

/// The link of the narrowest route to an address.
fn link_to(routes: &[LinkRoute], address: IpAddr) -> Option<u32> {
    let leads_there = |route: &&LinkRoute| route.is_direct && Cidr::new(route.to, route.bits).contains(address);
    routes.iter().filter(leads_there).max_by_key(|route| route.bits).map(|route| route.link)
}

#[cfg(all(test, feature = "system"))]
mod tests {
    use super::*;
    use crate::netlink::Family;
    use crate::nft::isolated;
    use std::process::{Command, Stdio};

    fn ip(arguments: &str) {
        let done = Command::new("ip").args(arguments.split_whitespace()).status().expect("ip runs");
        assert!(done.success(), "ip {arguments}");
    }

    #[test]
    fn s1_10_the_ports_of_a_bridge_with_pods_behind_it_are_found() {
        isolated(|| {
            let mut pod = Command::new("unshare");
            let mut pod = pod.args(["--net", "sh", "-c", "echo; read end"]);
            pod = pod.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut pod = pod.spawn().expect("unshare runs");
            // It has a network namespace of its own when it says something.
            let mut line = String::new();
            let said = pod.stdout.take().expect("its output");
            std::io::BufRead::read_line(&mut std::io::BufReader::new(said), &mut line).expect("it says something");
            let id = pod.id();
            ip("link add br0 type bridge");
            ip("link add other0 type bridge");
            for (port, bridge) in [("pod1", "br0"), ("pod2", "br0"), ("pod3", "other0")] {
                ip(&format!("link add {port} type veth peer name far-{port} netns {id}"));
                ip(&format!("link set {port} master {bridge}"));
            }
            // The uplink of the bridge is no pod's.
            ip("link add up0 type veth peer name up1");
            ip("link set up0 master br0");
            for link in ["br0", "other0", "pod1", "pod2", "pod3", "up0", "up1"] {
                ip(&format!("link set {link} up"));
            }
            ip("address add 10.88.0.1/16 dev br0");
            ip("address add fd88::1/64 dev br0 nodad");
            ip("address add 10.99.0.1/24 dev other0");
            ip("route add 10.88.7.0/24 dev other0");
            let mut socket = Socket::open(Family::NetlinkRoute).expect("a socket");
            let found = |socket: &mut Socket, wanted: &[&str]| {
                let wanted = wanted.iter().map(|text| text.parse().expect("an address")).collect();
                let links = shared_links(socket, &wanted).expect("they are read");
                links.into_iter().map(|link| (link.name, link.addresses.len())).collect::<Vec<_>>()
            };
            let both = |count| vec![("pod1".to_owned(), count), ("pod2".to_owned(), count)];
            assert_eq!(found(&mut socket, &["10.88.0.5", "fd88::5", "198.51.100.1"]), both(2));
            assert_eq!(found(&mut socket, &["10.88.7.5"]), [("pod3".to_owned(), 1)], "the narrowest route counts");
            assert_eq!(found(&mut socket, &["198.51.100.1"]), []);
            let mut blocks = |port: &str| {
                let wanted = ["10.88.0.5", "10.99.0.5"].map(|text| text.parse().expect("an address")).into();
                let links = shared_links(&mut socket, &wanted).expect("they are read");
                let link = links.into_iter().find(|link| link.name == port).expect("the port");
                let blocks = link.blocks.into_iter().map(|block| block.to_string());
                blocks.filter(|block| !block.starts_with("fe80")).collect::<Vec<_>>()
            };
            // What a pod routes for, the bridge's own network, and nothing by way of an uplink.
            ip("route add 198.18.0.0/15 via 10.99.0.7");
            ip("route add 198.51.100.0/24 via 10.88.0.7");
            assert_eq!(blocks("pod3"), ["10.88.7.0/24", "10.99.0.0/24", "198.18.0.0/15"]);
            assert_eq!(blocks("pod1"), ["10.88.0.0/16", "fd88::/64"]);
            drop(pod.stdin.take());
            pod.wait().expect("it ends");
        });
    }
}
