//! Interfaces that lead to pods, where nobody knows which of them leads to
//! which pod: the ports of the bridge that the pods' addresses are routed to, or
//! a link that a whole network is routed to.
//!
//! That a bridge has pods behind it, its routes say, which are the node's own.
//! Which port a pod is at, only the bridge's table would say, and pods can forge
//! what is in it.

use super::routed::{LinkRoute, RoutedLink, link_routes};
use super::veth::veths;
use super::{Error, Socket, bridges};
use namewall_policy::addr::Cidr;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The interfaces that lead to other network namespaces and to one of these addresses, each with all of those that it
/// may lead to.
pub fn shared_links(socket: &mut Socket, wanted: &BTreeSet<IpAddr>) -> Result<Vec<RoutedLink>, Error> {
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
    for veth in veths(socket)? {
        let leads_by = match links.masters.get(&veth.index) {
            Some(master) => links.bridges.contains_key(master).then_some(*master),
            None => Some(veth.index),
        };
        if let Some(addresses) = leads_by.and_then(|link| behind.get(&link)) {
            let addresses = addresses.clone();
            found.push(RoutedLink { name: veth.name, index: veth.index, hardware: None, addresses });
        }
    }
    Ok(found)
}

/// The link of the narrowest route to an address.
fn link_to(routes: &[LinkRoute], address: IpAddr) -> Option<u32> {
    let leads_there = |route: &&LinkRoute| Cidr::new(route.to, route.bits).contains(address);
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
            let mut found = |wanted: &[&str]| {
                let wanted = wanted.iter().map(|text| text.parse().expect("an address")).collect();
                let links = shared_links(&mut socket, &wanted).expect("they are read");
                links.into_iter().map(|link| (link.name, link.addresses.len())).collect::<Vec<_>>()
            };
            let both = |count| vec![("pod1".to_owned(), count), ("pod2".to_owned(), count)];
            assert_eq!(found(&["10.88.0.5", "fd88::5", "198.51.100.1"]), both(2));
            assert_eq!(found(&["10.88.7.5"]), [("pod3".to_owned(), 1)], "the narrowest route counts");
            assert_eq!(found(&["198.51.100.1"]), []);
            drop(pod.stdin.take());
            pod.wait().expect("it ends");
        });
    }
}
