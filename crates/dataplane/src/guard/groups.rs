//! Broadcast and multicast for pods with ingress policies (S1.10): a bridge gives
//! such a frame to all its ports, and no policy can tell for which pod it is.
//! Keeps link-local destinations from interfaces of pods that are not known, too.
//! Pure.

use super::PodInterface;
use super::render::{
    FROM_THIS_LINK, LISTENER_DONE, LISTENER_REPORT, PRIORITY, REDIRECT, ROUTER_SOLICITATION, accept, drops,
};
use super::shared;
use crate::nft::rule::{Action as Do, EtherType, FrameAt, FrameTest, ICMPV6, Rule, Test};
use crate::nft::set::{Element, Field, Holds, Key, SetSpec, Version};
use crate::nft::table::{Chain, Fallback, Hook, HookKind, Point, Table};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const LISTENER_QUERY: u8 = 130;
const GROUPS: &str = "groups";
pub(crate) const FOR_A_GROUP: &str = "for-a-group";
/// The interfaces of pods that hear no groups.
const DEAF: &str = "no-groups";
/// The node's own addresses.
const NODE: &str = "node";
/// The interfaces of pods that are not known.
const SHARED: &str = "shared";

/// The bridge table: keeps what is for a group of hosts from pods with ingress policies. The group is told by the
/// frame and by the packet: a host takes a packet for a group out of a frame for itself. Keeps link-local destinations
/// from interfaces of pods that are not known.
pub(crate) fn groups(interfaces: &[PodInterface], own: &[IpAddr]) -> Table {
    let mut table = Table::default();
    let deaf = table.set(SetSpec::new(DEAF, &[Field::Interface], Holds::Keys));
    for interface in interfaces.iter().filter(|interface| !interface.hears_groups) {
        deaf.insert(Element::key(Key::default().number(interface.index)));
    }
    let node = table.set(SetSpec::new(NODE, &[Field::Address(Version::V4)], Holds::Keys));
    for &address in own.iter().filter(|address| address.is_ipv4()) {
        node.insert(Element::key(Key::default().address(address)));
    }
    let hook = Hook {
        point: Point::Forward,
        device: None,
        priority: PRIORITY,
        kind: HookKind::Filter,
        fallback: Fallback::Accept,
    };
    // Of a link-local address nobody knows whose it is.
    let shared = table.set(SetSpec::new(SHARED, &[Field::Interface], Holds::Keys));
    for interface in interfaces.iter().filter(|interface| interface.is_shared) {
        shared.insert(Element::key(Key::default().number(interface.index)));
    }
    let by = |set: &str, mut tests: Vec<Test>| {
        tests.push(Test::GoesOutBy(set.to_owned()));
        Rule::new(tests, Do::Goto(FOR_A_GROUP.to_owned()))
    };
    let rules = for_groups(FrameAt::Bridge).into_iter().map(|tests| by(DEAF, tests));
    let rules = rules.chain(for_link_local(FrameAt::Bridge).into_iter().map(|tests| by(SHARED, tests))).collect();
    let comment = Some("broadcast and multicast between pods".to_owned());
    table.chains.insert(GROUPS.to_owned(), Chain { hook: Some(hook), rules, comment });
    table.chains.insert(FOR_A_GROUP.to_owned(), heard_all_the_same(FrameAt::Bridge));
    table
}

/// The same for a kernel without tables for bridges: chains in the table of frames, at the hook of what leaves for each
/// pod. That hook does not tell what the node itself sends, so that such pods do not hear that either.
pub(crate) fn add_groups(table: &mut Table, interfaces: &[PodInterface], own: &[IpAddr]) {
    let node = table.set(SetSpec::new(NODE, &[Field::Address(Version::V4)], Holds::Keys));
    for &address in own.iter().filter(|address| address.is_ipv4()) {
        node.insert(Element::key(Key::default().address(address)));
    }
    for interface in interfaces.iter().filter(|interface| !interface.hears_groups || interface.is_shared) {
        let mut tests = Vec::new();
        if !interface.hears_groups {
            tests.extend(for_groups(FrameAt::Sent));
        }
        if interface.is_shared {
            tests.extend(for_link_local(FrameAt::Sent));
        }
        let rules = tests.into_iter().map(|tests| Rule::new(tests, Do::Goto(FOR_A_GROUP.to_owned()))).collect();
        let hook = Hook {
            point: Point::Egress,
            device: Some(interface.name.clone()),
            priority: PRIORITY,
            kind: HookKind::Filter,
            fallback: Fallback::Accept,
        };
        let comment = Some(format!("what the pod at interface {} hears of groups", interface.index));
        table.chains.insert(format!("{GROUPS}/{}", interface.name), Chain { hook: Some(hook), rules, comment });
    }
    table.chains.insert(FOR_A_GROUP.to_owned(), heard_all_the_same(FrameAt::Sent));
}

fn carried(at: FrameAt, what: EtherType) -> Test {
    Test::Frame(FrameTest::Carries { at, what, sender: None })
}

/// How a frame for a group is told: each by all of these tests.
fn for_groups(at: FrameAt) -> Vec<Vec<Test>> {
    let carries = |what| carried(at, what);
    let to = |block: IpAddr, bits| Test::Frame(FrameTest::To { block, bits });
    vec![
        vec![Test::Frame(FrameTest::ToGroup)],
        vec![carries(EtherType::Ipv4), to(Ipv4Addr::new(224, 0, 0, 0).into(), 4)],
        vec![carries(EtherType::Ipv4), to(Ipv4Addr::BROADCAST.into(), 32)],
        vec![carries(EtherType::Ipv4), Test::Frame(FrameTest::ToOneOf(NODE.to_owned()))],
        vec![carries(EtherType::Ipv6), to(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0).into(), 8)],
    ]
}

/// How a frame for a link-local address is told.
fn for_link_local(at: FrameAt) -> [Vec<Test>; 2] {
    let to = |block: IpAddr, bits| Test::Frame(FrameTest::To { block, bits });
    [
        vec![carried(at, EtherType::Ipv4), to(shared::LINK_LOCAL_V4.into(), 16)],
        vec![carried(at, EtherType::Ipv6), to(shared::LINK_LOCAL_V6.into(), 10)],
    ]
}

/// What pods with ingress policies hear of groups.
fn heard_all_the_same(at: FrameAt) -> Chain {
    let carries = |what| carried(at, what);
    let message = |low, high| Test::Frame(FrameTest::Icmpv6 { low, high });
    let hops = |limit: u8| Test::Frame(FrameTest::HopLimit(limit));
    let icmp = || Test::Protocol(ICMPV6);
    let rules = vec![
        accept([carries(EtherType::Arp)]),
        accept([carries(EtherType::Ipv6), hops(FROM_THIS_LINK), icmp(), message(ROUTER_SOLICITATION, REDIRECT)]),
        accept([carries(EtherType::Ipv6), hops(1), icmp(), message(LISTENER_QUERY, LISTENER_DONE)]),
        accept([carries(EtherType::Ipv6), hops(1), icmp(), message(LISTENER_REPORT, LISTENER_REPORT)]),
        drops(),
    ];
    let comment = Some("what pods with ingress policies hear of it".to_owned());
    Chain { hook: None, rules, comment }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nft::rule::Hardware;
    use expect_test::expect;

    fn pod(index: u32, hears_groups: bool) -> PodInterface {
        PodInterface {
            name: format!("veth{index}"),
            index,
            hardware: Some(Hardware([0x0a, 0x58, 0x0a, 0xf4, 0x01, 0x05])),
            addresses: Vec::new(),
            extra: Vec::new(),
            is_shared: false,
            hears_groups,
        }
    }

    fn text(table: &Table) -> String {
        format!("table {{\n{table}}}\n").replace('\t', "  ")
    }

    #[test]
    fn groups_are_kept_from_pods_with_ingress_policies() {
        let table = groups(
            &[pod(7, false), pod(8, true)],
            &[Ipv4Addr::new(10, 244, 1, 255).into(), "fd00::1".parse().unwrap()],
        );
        assert_eq!(table.sets[DEAF].elements.len(), 1);
        expect![[r#"
            table {
              set no-groups {
                type iface_index
              }

              set node {
                type ipv4_addr
              }

              set shared {
                type iface_index
              }

              chain for-a-group {
                comment "what pods with ingress policies hear of it"
                ether type arp accept
                ether type ip6 ip6 hoplimit 255 meta l4proto 58 icmpv6 type 133-137 accept
                ether type ip6 ip6 hoplimit 1 meta l4proto 58 icmpv6 type 130-132 accept
                ether type ip6 ip6 hoplimit 1 meta l4proto 58 icmpv6 type 143 accept
                counter drop
              }

              chain groups {
                comment "broadcast and multicast between pods"
                type filter hook forward priority -300; policy accept;
                ether daddr & 01:00:00:00:00:00 == 01:00:00:00:00:00 meta oif @no-groups goto for-a-group
                ether type ip ip daddr 224.0.0.0/4 meta oif @no-groups goto for-a-group
                ether type ip ip daddr 255.255.255.255 meta oif @no-groups goto for-a-group
                ether type ip ip daddr @node meta oif @no-groups goto for-a-group
                ether type ip6 ip6 daddr ff00::/8 meta oif @no-groups goto for-a-group
                ether type ip ip daddr 169.254.0.0/16 meta oif @shared goto for-a-group
                ether type ip6 ip6 daddr fe80::/10 meta oif @shared goto for-a-group
              }
            }
        "#]]
        .assert_eq(&text(&table));
    }

    #[test]
    fn s1_10_without_tables_for_bridges_the_same_is_kept_from_pods_at_their_ports() {
        let shared = PodInterface { is_shared: true, ..pod(9, false) };
        let mut table = Table::default();
        add_groups(&mut table, &[pod(7, false), pod(8, true), shared], &[]);
        let rules = |chain: &str| table.chains.get(chain).map(|chain| chain.rules.len());
        assert_eq!((rules("groups/veth7"), rules("groups/veth8"), rules("groups/veth9")), (Some(5), None, Some(7)));
        assert_eq!(rules(FOR_A_GROUP), Some(5));
    }
}
