//! Interfaces that lead to a pod, and nobody knows to which: the ports of a
//! bridge without the CNI plugin and without a container runtime that can be
//! asked, like those of Podman and Docker. The source address tells the pod, so
//! what no address of a pod, or of the pods' network, can vouch for does not pass:
//!
//! - sources that the node does not route that way, and that no such pod has;
//! - addresses of the node itself, and of pods whose interface is known;
//! - link-local sources, but for neighbour discovery, multicast listener
//!   reports and DHCPv6 (S1.10), and the unspecified source likewise;
//! - router advertisements and redirects;
//! - packets whose header may name further hops: IPv4 options, IPv6 routing headers;
//! - frames with VLAN tags, which the hooks of IP packets do not see, and
//!   frames that carry neither IP nor ARP.

use super::render::{
    FROM_THIS_LINK, LISTENER_DONE, LISTENER_REPORT, NEIGHBOUR_ADVERTISEMENT, NEIGHBOUR_SOLICITATION, REDIRECT,
    ROUTER_ADVERTISEMENT, ROUTER_SOLICITATION, accept, from, from_block, further_hops, wrong_source,
};
use super::{Guard, PodInterface};
use crate::nft::rule::{EtherType, FrameAt, FrameTest, ICMPV6, Rule, Test, UDP};
use crate::nft::set::{Element, Field, Holds, Key, SetSpec, Twins, Version};
use crate::nft::table::Table;
use namewall_policy::addr::Cidr;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) const LINK_LOCAL_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 0);
pub(super) const LINK_LOCAL_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);
/// A host says of groups that it listens to them, or no longer.
const LISTENER_OLD_REPORT: u8 = LISTENER_DONE - 1;
/// All servers and relays of DHCPv6 on a link, and their port.
const DHCPV6_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
const DHCPV6_PORT: u16 = 547;

/// Addresses that no pod behind such an interface has: the node's own, and those of pods whose interface is known.
const OTHERS: Twins = Twins("others4", "others6");
/// Addresses of pods whose interface is not known.
const UNKNOWN: Twins = Twins("unknown4", "unknown6");

/// The sets that the rules of these interfaces ask.
pub(super) fn declare(table: &mut Table, guard: &Guard<'_>) {
    let (shared, known): (Vec<_>, Vec<_>) = guard.interfaces.iter().partition(|interface| interface.is_shared);
    let addresses = |interfaces: Vec<&PodInterface>| -> BTreeSet<IpAddr> {
        interfaces.into_iter().flat_map(|interface| interface.addresses.iter().copied()).collect()
    };
    let unknown = addresses(shared);
    let mut others = addresses(known);
    others.extend(guard.own);
    // An address may be claimed twice: then it does not tell who has it.
    others.retain(|address| guard.own.contains(address) || !unknown.contains(address));
    for (twins, addresses) in [(OTHERS, others), (UNKNOWN, unknown)] {
        for version in Version::BOTH {
            let set = table.set(SetSpec::new(twins[version], &[Field::Address(version)], Holds::Keys));
            for &address in addresses.iter().filter(|address| Version::of(**address) == version) {
                set.insert(Element::key(Key::default().address(address)));
            }
        }
    }
}

/// What such an interface may send.
pub(super) fn rules(interface: &PodInterface) -> Vec<Rule> {
    let mut rules = further_hops(carries).to_vec();
    rules.extend(ipv4());
    rules.extend(sources(interface, Version::V4));
    rules.extend(ipv6());
    rules.extend(sources(interface, Version::V6));
    rules.push(accept([carries(EtherType::Arp)]));
    rules.push(wrong_source([]));
    rules
}

fn carries(what: EtherType) -> Test {
    Test::Frame(FrameTest::Carries { at: FrameAt::Received, what, sender: None })
}

/// The sources that may come from there.
fn sources(interface: &PodInterface, version: Version) -> Vec<Rule> {
    let carried = match version {
        Version::V4 => EtherType::Ipv4,
        Version::V6 => EtherType::Ipv6,
    };
    let one_of = |twins: Twins| {
        let set = twins[version].to_owned();
        [carries(carried), Test::Frame(FrameTest::FromOneOf { version, set })]
    };
    let mut rules = vec![wrong_source(one_of(OTHERS))];
    let extra = || interface.extra.iter().filter(|extra| Version::of(extra.block.address()) == version);
    let except = extra().flat_map(|extra| &extra.except);
    rules.extend(except.map(|&other| wrong_source([carries(carried), from(other)])));
    rules.extend(extra().map(|extra| accept([carries(carried), from_block(extra.block)])));
    rules.push(accept(one_of(UNKNOWN)));
    rules
}

fn ipv4() -> Vec<Rule> {
    let carries = || carries(EtherType::Ipv4);
    vec![
        accept([carries(), Test::Frame(FrameTest::DhcpRequest)]),
        wrong_source([carries(), from(Ipv4Addr::UNSPECIFIED)]),
        wrong_source([carries(), from_block(block(LINK_LOCAL_V4, 16))]),
    ]
}

fn ipv6() -> Vec<Rule> {
    let carries = || carries(EtherType::Ipv6);
    let message = |low: u8, high: u8| Test::Frame(FrameTest::Icmpv6 { low, high });
    let hops = |limit: u8| Test::Frame(FrameTest::HopLimit(limit));
    let icmp = || Test::Protocol(ICMPV6);
    let mut rules = vec![
        wrong_source([carries(), icmp(), message(ROUTER_ADVERTISEMENT, ROUTER_ADVERTISEMENT)]),
        wrong_source([carries(), icmp(), message(REDIRECT, REDIRECT)]),
    ];
    let discovery = [(ROUTER_SOLICITATION, ROUTER_SOLICITATION), (NEIGHBOUR_SOLICITATION, NEIGHBOUR_ADVERTISEMENT)];
    let listening = [(LISTENER_OLD_REPORT, LISTENER_DONE), (LISTENER_REPORT, LISTENER_REPORT)];
    for source in [block(LINK_LOCAL_V6, 10), block(Ipv6Addr::UNSPECIFIED, 128)] {
        let from = || from_block(source);
        for (low, high) in discovery {
            rules.push(accept([carries(), from(), hops(FROM_THIS_LINK), icmp(), message(low, high)]));
        }
        for (low, high) in listening {
            rules.push(accept([carries(), from(), hops(1), icmp(), message(low, high)]));
        }
        let servers = Test::Frame(FrameTest::To { block: DHCPV6_SERVERS.into(), bits: 128 });
        let port = Test::Port { low: DHCPV6_PORT, high: DHCPV6_PORT };
        rules.push(accept([carries(), from(), servers, Test::Protocol(UDP), port]));
        rules.push(wrong_source([carries(), from()]));
    }
    rules
}

fn block(address: impl Into<IpAddr>, bits: u8) -> Cidr {
    Cidr::new(address.into(), bits)
}

#[cfg(test)]
mod tests {
    use super::super::{Guard, PodInterface, frames};
    use super::*;
    use crate::netlink::shared::SharedLink;
    use expect_test::expect;

    #[test]
    fn s1_10_a_pod_that_is_not_known_may_send_this() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let blocks = ["10.88.0.0/16", "fd88::/64"].map(|text| text.parse().unwrap()).into();
        let link = SharedLink { name: "veth1".to_owned(), index: 7, addresses: vec![ip("10.88.0.5")], blocks };
        let shared = PodInterface::shared(link);
        let known = PodInterface {
            name: "veth2".to_owned(),
            addresses: vec![ip("10.88.0.6"), ip("fd88::6")],
            is_shared: false,
            ..shared.clone()
        };
        let own = [ip("10.88.0.1"), ip("fd88::1")];
        let table = frames(&Guard { interfaces: &[shared, known], own: &own, log_group: 53 });
        let texts = |set: &str| table.sets[set].elements.len();
        assert_eq!(["others4", "others6", "unknown4", "unknown6"].map(texts), [2, 2, 1, 0]);
        let chain = &table.chains["pod/veth1"];
        let text: String = chain.rules.iter().map(|rule| format!("{rule}\n")).collect();
        expect![[r#"
            ether type ip ip hdrlength 7-15 goto source-route
            ether type ip ip hdrlength 6 ip option ra missing goto source-route
            ether type ip6 exthdr rt exists goto source-route
            ether type ip ip saddr 0.0.0.0 ip daddr 255.255.255.255 udp sport 68 udp dport 67 accept
            ether type ip ip saddr 0.0.0.0 goto wrong-source
            ether type ip ip saddr 169.254.0.0/16 goto wrong-source
            ether type ip ip saddr @others4 goto wrong-source
            ether type ip ip saddr 10.88.0.0/16 accept
            ether type ip ip saddr @unknown4 accept
            ether type ip6 meta l4proto 58 icmpv6 type 134 goto wrong-source
            ether type ip6 meta l4proto 58 icmpv6 type 137 goto wrong-source
            ether type ip6 ip6 saddr fe80::/10 ip6 hoplimit 255 meta l4proto 58 icmpv6 type 133 accept
            ether type ip6 ip6 saddr fe80::/10 ip6 hoplimit 255 meta l4proto 58 icmpv6 type 135-136 accept
            ether type ip6 ip6 saddr fe80::/10 ip6 hoplimit 1 meta l4proto 58 icmpv6 type 131-132 accept
            ether type ip6 ip6 saddr fe80::/10 ip6 hoplimit 1 meta l4proto 58 icmpv6 type 143 accept
            ether type ip6 ip6 saddr fe80::/10 ip6 daddr ff02::1:2 meta l4proto udp th dport 547 accept
            ether type ip6 ip6 saddr fe80::/10 goto wrong-source
            ether type ip6 ip6 saddr :: ip6 hoplimit 255 meta l4proto 58 icmpv6 type 133 accept
            ether type ip6 ip6 saddr :: ip6 hoplimit 255 meta l4proto 58 icmpv6 type 135-136 accept
            ether type ip6 ip6 saddr :: ip6 hoplimit 1 meta l4proto 58 icmpv6 type 131-132 accept
            ether type ip6 ip6 saddr :: ip6 hoplimit 1 meta l4proto 58 icmpv6 type 143 accept
            ether type ip6 ip6 saddr :: ip6 daddr ff02::1:2 meta l4proto udp th dport 547 accept
            ether type ip6 ip6 saddr :: goto wrong-source
            ether type ip6 ip6 saddr @others6 goto wrong-source
            ether type ip6 ip6 saddr fd88::/64 accept
            ether type ip6 ip6 saddr @unknown6 accept
            ether type arp accept
            goto wrong-source
        "#]]
        .assert_eq(&text);
    }
}
