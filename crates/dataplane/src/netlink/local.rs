//! Blocks of addresses that a machine takes packets for by its routes: those of
//! type `local`, `broadcast` and `anycast`. The kernel has such routes for the
//! addresses of interfaces. An administrator, or a cloud's agent on the machine,
//! may add more: after `ip route add local 192.0.2.0/24 dev lo` the machine
//! answers at addresses that no interface has.

use super::Received;
use namewall_policy::addr::{Cidr, is_own_to_each_machine, next_address};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The groups that hear of IPv4 and IPv6 routes.
pub(super) const ROUTE_GROUPS: u32 = 0x40 | 0x400;

const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
pub(super) const GET_ROUTE: u16 = 26;

/// `struct rtmsg`.
pub(super) const ROUTE_HEADER: usize = 12;
const ROUTE_TO: u16 = 1;
const ROUTE_LINK: u16 = 4;
const FAMILY_V4: u8 = 2;
const FAMILY_V6: u8 = 10;
/// The tables `local`, `main` and `default`, in which the kernel looks for every packet. A packet meets other tables
/// only by a rule of the administrator, as for transparent proxies, which often have `local default` there.
const TABLE_LOCAL: u8 = 255;
const TABLES: [u8; 3] = [TABLE_LOCAL, 254, 253];
/// Kinds of routes: local, broadcast, anycast.
const OF_THIS_HOST: [u8; 3] = [2, 3, 4];

/// So many addresses of networks are listed one by one.
const MOST_LISTED: u32 = 256;

/// A route by which the machine takes packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LocalRoute {
    pub(super) link: Option<u32>,
    pub(super) block: Cidr,
    /// True for a route of the table `local`, which the kernel asks first. A network of another table may have longer
    /// routes that lead elsewhere, to pods for example.
    pub(super) is_asked_first: bool,
}

impl LocalRoute {
    /// None for a message about another kind of route or something else, for one that is cut short, and for blocks that
    /// every machine has for itself.
    pub(super) fn read(message: Received<'_>) -> Option<Self> {
        let [family, bits, _, _, table, _, _, kind, ..] = *message.body else { return None };
        let is_route = [NEW_ROUTE, DELETE_ROUTE].contains(&message.kind);
        if !is_route || !TABLES.contains(&table) || !OF_THIS_HOST.contains(&kind) {
            return None;
        }
        let attributes = message.attributes(ROUTE_HEADER);
        let to: IpAddr = match (family, attributes.get(ROUTE_TO)) {
            (FAMILY_V4, Some(to)) => <[u8; 4]>::try_from(to).ok()?.into(),
            (FAMILY_V6, Some(to)) => <[u8; 16]>::try_from(to).ok()?.into(),
            // All addresses.
            (FAMILY_V4, None) => Ipv4Addr::UNSPECIFIED.into(),
            (FAMILY_V6, None) => Ipv6Addr::UNSPECIFIED.into(),
            _ => return None,
        };
        let block = Cidr::new(to, bits);
        let link = attributes.get(ROUTE_LINK).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
        (!is_own_block(&block)).then_some(Self { link, block, is_asked_first: table == TABLE_LOCAL })
    }
}

/// True if every machine has all addresses of the block for itself.
fn is_own_block(block: &Cidr) -> bool {
    let shortest = match block.address() {
        IpAddr::V4(_) => 8,
        IpAddr::V6(v6) if v6.is_loopback() => 128,
        IpAddr::V6(_) => 10,
    };
    block.prefix() >= shortest && is_own_to_each_machine(block.address())
}

/// The addresses that a machine answers for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MachineAddresses {
    /// Those of interfaces and of local routes, those of small networks one by one.
    pub listed: BTreeSet<IpAddr>,
    /// Networks of local routes that have too many addresses for that, or that other routes may take addresses out of.
    pub unlisted: BTreeSet<Cidr>,
}

impl MachineAddresses {
    /// Adds the blocks of local routes, the smallest first.
    pub(super) fn add(&mut self, routes: impl Iterator<Item = LocalRoute>) {
        let (mut networks, mut uncertain) = (BTreeSet::new(), BTreeSet::new());
        for LocalRoute { block, is_asked_first, .. } in routes {
            match (size(&block), is_asked_first) {
                (Some(1), _) => _ = self.listed.insert(block.address()),
                (_, true) => _ = networks.insert(block),
                (_, false) => _ = uncertain.insert(block),
            }
        }
        self.unlisted.extend(uncertain.difference(&networks));
        let mut networks: Vec<Cidr> = networks.into_iter().collect();
        networks.sort_by_key(|network| size(network).unwrap_or(u32::MAX));
        let mut left = MOST_LISTED;
        for network in networks {
            match size(&network).and_then(|size| left.checked_sub(size)) {
                Some(rest) => {
                    left = rest;
                    let first = Some(network.address());
                    let all = std::iter::successors(first, |address| next_address(*address));
                    self.listed.extend(all.take_while(|address| network.contains(*address)));
                }
                None => _ = self.unlisted.insert(network),
            }
        }
    }
}

/// How many addresses the block has. None for more than fit.
fn size(block: &Cidr) -> Option<u32> {
    let bits: u8 = if block.address().is_ipv4() { 32 } else { 128 };
    1_u32.checked_shl(bits.checked_sub(block.prefix())?.into())
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::netlink::Messages;

    const LOCAL: u8 = 2;
    const UNICAST: u8 = 1;

    /// A message about a route by interface 3.
    fn message(header: [u8; ROUTE_HEADER], to: &[u8]) -> Messages {
        let mut messages = Messages::new();
        messages.begin(NEW_ROUTE, 0, &header);
        if !to.is_empty() {
            messages.bytes(ROUTE_TO, to);
        }
        messages.native_u32(ROUTE_LINK, 3);
        messages
    }

    #[track_caller]
    fn check(route: [u8; 4], to: &str, expected: Option<&str>) {
        let [family, bits, table, kind] = route;
        let is_asked_first = table == TABLE_LOCAL;
        let to = match to.parse::<IpAddr>() {
            Ok(IpAddr::V4(v4)) => v4.octets().to_vec(),
            Ok(IpAddr::V6(v6)) => v6.octets().to_vec(),
            Err(_) => Vec::new(),
        };
        let messages = message([family, bits, 0, 0, table, 0, 0, kind, 0, 0, 0, 0], &to);
        let read: Vec<_> = Received::all(messages.as_bytes()).filter_map(LocalRoute::read).collect();
        let expected = expected.map(|text| LocalRoute { link: Some(3), block: text.parse().unwrap(), is_asked_first });
        assert_eq!(read.first().copied(), expected);
    }

    #[test]
    fn s7_2_local_routes_are_read() {
        check([2, 32, 255, LOCAL], "192.0.2.7", Some("192.0.2.7/32"));
        check([2, 24, 255, LOCAL], "192.0.2.0", Some("192.0.2.0/24"));
        check([2, 24, 254, LOCAL], "192.0.2.0", Some("192.0.2.0/24"));
        check([10, 64, 255, LOCAL], "2001:db8::", Some("2001:db8::/64"));
        check([2, 0, 255, LOCAL], "", Some("0.0.0.0/0"));
        check([10, 0, 255, LOCAL], "", Some("::/0"));
        check([2, 32, 255, 3], "10.0.0.200", Some("10.0.0.200/32"));
    }

    #[test]
    fn other_routes_and_blocks_that_every_machine_has_are_left_out() {
        check([2, 32, 255, UNICAST], "192.0.2.7", None);
        // As a transparent proxy has it in a table of its own.
        check([2, 0, 100, LOCAL], "", None);
        check([2, 8, 255, LOCAL], "127.0.0.0", None);
        check([10, 128, 255, LOCAL], "::1", None);
        check([10, 128, 255, LOCAL], "fe80::1", None);
        check([10, 10, 255, LOCAL], "fe80::", None);
        check([7, 32, 255, LOCAL], "192.0.2.7", None);
        check([2, 32, 255, LOCAL], "2001:db8::1", None);
    }

    #[test]
    fn s7_2_a_network_that_only_begins_with_loopback_counts() {
        check([2, 7, 255, LOCAL], "126.0.0.0", Some("126.0.0.0/7"));
        check([10, 9, 255, LOCAL], "fe80::", Some("fe80::/9"));
    }

    #[test]
    fn s7_2_small_networks_are_listed_and_others_named() {
        let blocks =
            ["192.0.2.0/25", "2001:db8::/64", "198.51.100.7/32", "203.0.113.0/24", "fd00::8/125", "fd00::/128"];
        let mut found = MachineAddresses::default();
        found.add(blocks.iter().map(|text| route(text, true)));
        assert_eq!(found.listed.len(), 128 + 1 + 8 + 1);
        for text in ["192.0.2.0", "192.0.2.127", "198.51.100.7", "fd00::8", "fd00::f", "fd00::"] {
            assert!(found.listed.contains(&text.parse::<IpAddr>().unwrap()), "{text}");
        }
        let unlisted: Vec<String> = found.unlisted.iter().map(ToString::to_string).collect();
        assert_eq!(unlisted, ["203.0.113.0/24", "2001:db8::/64"]);
    }

    #[test]
    fn a_network_at_the_end_of_the_addresses_is_listed() {
        let mut found = MachineAddresses::default();
        found.add(["255.255.255.252/30"].iter().map(|text| route(text, true)));
        assert_eq!(found.listed.len(), 4);
    }

    #[test]
    fn s7_2_a_network_that_longer_routes_may_lead_out_of_is_named_and_its_single_addresses_are_listed() {
        let mut found = MachineAddresses::default();
        found.add([route("10.244.1.0/26", false), route("10.244.1.9/32", false)].into_iter());
        assert_eq!(found.listed.len(), 1);
        assert_eq!(found.unlisted.len(), 1);
        // The kernel finds it in the table `local` first.
        let mut found = MachineAddresses::default();
        found.add([route("192.0.2.0/30", false), route("192.0.2.0/30", true)].into_iter());
        assert_eq!((found.listed.len(), found.unlisted.len()), (4, 0));
    }

    fn route(block: &str, is_asked_first: bool) -> LocalRoute {
        LocalRoute { link: None, block: block.parse().unwrap(), is_asked_first }
    }
}

#[cfg(all(test, feature = "system"))]
mod system_tests {
    use super::*;
    use crate::netlink::Addresses;
    use crate::nft::isolated;
    use std::process::Command;

    fn ip(arguments: &str) {
        let done = Command::new("ip").args(arguments.split_whitespace()).status().expect("ip runs");
        assert!(done.success(), "ip {arguments}");
    }

    #[test]
    fn s7_2_addresses_of_local_routes_count_and_a_change_is_noticed() {
        isolated(|| {
            ip("link set lo up");
            // As kube-proxy has it in its IPVS mode, but for the kind of the interface.
            ip("link add kube-ipvs0 type bridge");
            ip("link set kube-ipvs0 up");
            ip("address add 10.96.0.1/32 dev kube-ipvs0");
            ip("route add local 10.96.0.2/32 dev kube-ipvs0");
            let mut addresses = Addresses::open().expect("sockets");
            let has = |addresses: &mut Addresses, text: &str| {
                addresses.read().expect("it is read").listed.contains(&text.parse::<IpAddr>().expect("an address"))
            };
            assert!(!addresses.have_changed());
            assert!(!has(&mut addresses, "10.96.0.1") && !has(&mut addresses, "10.96.0.2"));
            for (route, one) in [
                ("192.0.2.7/32 dev lo", "192.0.2.7"),
                ("198.51.100.0/28 dev lo", "198.51.100.9"),
                ("fd00:98::1/128 dev lo", "fd00:98::1"),
                ("fd00:98::10/124 dev lo", "fd00:98::1f"),
            ] {
                let version = if one.contains(':') { "-6" } else { "-4" };
                ip(&format!("{version} route add local {route}"));
                assert!(addresses.have_changed(), "{route}");
                assert!(has(&mut addresses, one), "{route}");
                ip(&format!("{version} route del local {route}"));
                assert!(addresses.have_changed(), "{route} goes");
                assert!(!has(&mut addresses, one), "{route} goes");
            }
            // Neither counts: packets meet this table only by a rule, and the other route leads on.
            ip("route add local default dev lo table 100");
            ip("route add 203.0.113.0/24 dev lo");
            assert!(!addresses.have_changed());
            ip("-6 route add local 2001:db8::/64 dev lo");
            assert!(addresses.have_changed());
            let unlisted = addresses.read().expect("it is read").unlisted;
            assert_eq!(unlisted.iter().map(ToString::to_string).collect::<Vec<_>>(), ["2001:db8::/64"]);
        });
    }
}
