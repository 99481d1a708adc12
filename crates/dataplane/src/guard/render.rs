//! What the guard's tables have: pure.

use super::{ExtraSource, Guard, PodInterface, shared};
use crate::nflog::DENY;
use crate::nft::rule::{Action as Do, EtherType, FrameAt, FrameTest, ICMPV6, Rule, Test};
use crate::nft::table::{Chain, Fallback, Hook, HookKind, Point, Table};
use crate::render::{LOG_BURST, LOG_RATE};
use namewall_policy::addr::Cidr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The chain that a frame with a wrong source ends in, and what is logged of it.
pub(crate) const WRONG_SOURCE: &str = "wrong-source";
const WHY: &str = "its source is not the pod's at that interface";
/// The chain that a packet ends in whose header may name further hops, and what is logged of it. Policies judge a packet
/// by the destination in its header, and such a packet goes on from there.
pub(crate) const SOURCE_ROUTE: &str = "source-route";
const FURTHER_HOPS: &str = "it has IPv4 options or an IPv6 routing header, which can name further hops";
/// The length of an IPv4 header without options, in words of four bytes.
const PLAIN: u8 = 5;
const LONGEST: u8 = 15;
/// Before whoever else looks at frames there.
pub(super) const PRIORITY: i32 = -300;

pub(super) const ROUTER_SOLICITATION: u8 = 133;
pub(super) const ROUTER_ADVERTISEMENT: u8 = 134;
pub(super) const NEIGHBOUR_SOLICITATION: u8 = 135;
pub(super) const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
pub(super) const REDIRECT: u8 = 137;
pub(super) const LISTENER_DONE: u8 = 132;
pub(super) const LISTENER_REPORT: u8 = 143;
/// Neighbour discovery counts only with this hop limit, which no router leaves as it is.
pub(super) const FROM_THIS_LINK: u8 = 255;

/// The netdev table: a chain for each interface. Comparing with the pod's own addresses is cheaper than a look-up, and
/// 1,000 interfaces cost a packet no more than two.
pub(crate) fn frames(guard: &Guard<'_>) -> Table {
    let mut table =
        table_of(guard.interfaces, guard.log_group, FrameAt::Received, |interface| match interface.is_shared {
            true => shared::rules(interface),
            false => Sender(interface, FrameAt::Received).rules(),
        });
    if guard.interfaces.iter().any(|interface| interface.is_shared) {
        shared::declare(&mut table, guard);
    }
    table
}

/// The netdev table inside a pod's network namespace, for what the pod's end of a link sends. A packet that the kernel
/// has routed was judged by the hooks of IP packets. What a packet socket sends was not: of that, ARP and DHCP requests
/// pass. Where the kernel cannot tell the two apart, the source alone decides.
pub(crate) fn sent_frames(interfaces: &[PodInterface], log_group: u16, tells_routed: bool) -> Table {
    table_of(interfaces, log_group, FrameAt::Sent, |interface| {
        let mut rules = Sender(interface, FrameAt::Sent).rules();
        let judged = rules.iter_mut().filter(|rule| tells_routed && needs_route(rule));
        judged.for_each(|rule| rule.tests.push(Test::Frame(FrameTest::Routed)));
        rules
    })
}

/// Whether a rule accepts IP packets other than DHCP requests.
fn needs_route(rule: &Rule) -> bool {
    let is_ip =
        |test: &Test| matches!(test, Test::Frame(FrameTest::Carries { what: EtherType::Ipv4 | EtherType::Ipv6, .. }));
    let is_dhcp = |test: &Test| *test == Test::Frame(FrameTest::DhcpRequest);
    rule.actions == [Do::Accept] && rule.tests.iter().any(is_ip) && !rule.tests.iter().any(is_dhcp)
}

fn table_of(
    interfaces: &[PodInterface],
    log_group: u16,
    at: FrameAt,
    rules: impl Fn(&PodInterface) -> Vec<Rule>,
) -> Table {
    let mut table = Table::default();
    for (chain, why) in [(WRONG_SOURCE, WHY), (SOURCE_ROUTE, FURTHER_HOPS)] {
        let limit = Test::AtMost { a_second: LOG_RATE, burst: LOG_BURST };
        let log = Rule::new([limit], Do::Log { group: log_group, prefix: format!("{DENY}{why}") });
        table.chains.insert(chain.to_owned(), Chain { hook: None, rules: vec![log, drops()], comment: None });
    }
    for interface in interfaces {
        let hook = Hook {
            point: if at == FrameAt::Sent { Point::Egress } else { Point::Ingress },
            device: Some(interface.name.clone()),
            priority: PRIORITY,
            kind: HookKind::Filter,
            fallback: Fallback::Drop,
        };
        // With the index, an interface that was made anew under the same name is a change: before Linux 6.16 the kernel
        // removes the chain together with the interface that it is hooked to.
        let who = if interface.is_shared { "a pod that is not known" } else { "the pod" };
        let comment = Some(format!("what {who} at interface {} may send", interface.index));
        let rules = rules(interface);
        table.chains.insert(format!("pod/{}", interface.name), Chain { hook: Some(hook), rules, comment });
    }
    table
}

/// What may come from an interface, and where the table sees it.
struct Sender<'a>(&'a PodInterface, FrameAt);

impl Sender<'_> {
    fn rules(&self) -> Vec<Rule> {
        let mut rules = self.ipv4();
        rules.extend(self.ipv6());
        rules.extend(self.arp());
        rules.push(wrong_source([]));
        rules
    }

    fn carries(&self, what: EtherType) -> Test {
        Test::Frame(FrameTest::Carries { at: self.1, what, sender: self.0.hardware })
    }

    /// The pod's own addresses, and single ones that the settings allow it.
    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.0.addresses.iter().copied().chain(self.0.extra.iter().filter_map(ExtraSource::single))
    }

    fn addresses_v4(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.addresses().filter_map(|address| if let IpAddr::V4(v4) = address { Some(v4) } else { None })
    }

    fn addresses_v6(&self) -> Vec<Ipv6Addr> {
        self.addresses().filter_map(|address| if let IpAddr::V6(v6) = address { Some(v6) } else { None }).collect()
    }

    /// The blocks of one version that the settings allow the pod, each without the addresses that others have.
    fn blocks(&self, is_v4: bool) -> impl Iterator<Item = (Cidr, &[IpAddr])> {
        let blocks = self.0.extra.iter().filter_map(|extra| Some((extra.block()?, &extra.except[..])));
        blocks.filter(move |(block, _)| block.address().is_ipv4() == is_v4)
    }

    /// Only headers without options pass, and those that have a Router Alert and nothing else, as IGMP does. Nearly all
    /// packets are accepted by the first rule.
    fn ipv4(&self) -> Vec<Rule> {
        let carries = || self.carries(EtherType::Ipv4);
        let plain = || Test::Frame(FrameTest::PlainHeader);
        let mut rules: Vec<Rule> = self.addresses_v4().map(|own| accept([carries(), plain(), from(own)])).collect();
        rules.push(accept([carries(), plain(), Test::Frame(FrameTest::DhcpRequest)]));
        for (_, except) in self.blocks(true) {
            rules.extend(except.iter().map(|&other| wrong_source([carries(), from(other)])));
        }
        rules.extend(self.blocks(true).map(|(block, _)| accept([carries(), plain(), from_block(block)])));
        rules.extend(self.addresses_v4().map(|own| {
            let alert = Test::Frame(FrameTest::RouterAlert(true));
            accept([carries(), header_length(PLAIN + 1, PLAIN + 1), alert, from(own)])
        }));
        rules.push(source_route([carries(), header_length(PLAIN + 1, LONGEST)]));
        rules
    }

    fn arp(&self) -> Vec<Rule> {
        let (carries, sender) = (|| self.carries(EtherType::Arp), self.0.hardware);
        let says = |address| accept([carries(), Test::Frame(FrameTest::ArpSender { address, sender })]);
        let probe = accept([carries(), Test::Frame(FrameTest::ArpProbe { sender })]);
        self.addresses_v4().map(says).chain([probe]).collect()
    }

    /// What a pod says of neighbours must be about itself, it is no router, and it redirects nobody.
    fn ipv6(&self) -> Vec<Rule> {
        let own = self.addresses_v6();
        // Also those that may only speak of neighbours.
        let mut neighbours = own.clone();
        neighbours.extend(self.0.link_local().filter(|address| !own.contains(address)));
        let carries = || self.carries(EtherType::Ipv6);
        let message = |low: u8, high: u8| Test::Frame(FrameTest::Icmpv6 { low, high });
        let about = |target: Ipv6Addr| Test::Frame(FrameTest::Target(target));
        let hops = |limit: u8| Test::Frame(FrameTest::HopLimit(limit));
        let icmp = || Test::Protocol(ICMPV6);
        let nobody = || from(Ipv6Addr::UNSPECIFIED);
        let mut rules = vec![source_route([carries(), Test::Frame(FrameTest::RoutingHeader)])];
        for (_, except) in self.blocks(false) {
            rules.extend(except.iter().map(|&other| wrong_source([carries(), from(other)])));
        }
        rules.extend(
            self.blocks(false).map(|(block, _)| accept([carries(), from_block(block), Test::NotProtocol(ICMPV6)])),
        );
        for &source in &own {
            rules.push(accept([carries(), from(source), Test::NotProtocol(ICMPV6)]));
        }
        for &source in &neighbours {
            for &target in &neighbours {
                let advertisement = message(NEIGHBOUR_ADVERTISEMENT, NEIGHBOUR_ADVERTISEMENT);
                rules.push(accept([carries(), from(source), icmp(), advertisement, about(target)]));
            }
        }
        let advertisement = message(ROUTER_ADVERTISEMENT, ROUTER_ADVERTISEMENT);
        rules.push(wrong_source([carries(), icmp(), advertisement]));
        rules.push(wrong_source([carries(), icmp(), message(NEIGHBOUR_ADVERTISEMENT, REDIRECT)]));
        for &source in &own {
            // All other messages, and what cannot be read of a fragment: the kernel takes no neighbour discovery from
            // fragments. A packet whose headers cannot be followed has no protocol, and does not pass.
            rules.push(accept([carries(), from(source), icmp()]));
        }
        for (block, _) in self.blocks(false) {
            // Who is behind a router has no neighbours here.
            let discovery = message(ROUTER_SOLICITATION, REDIRECT);
            rules.push(wrong_source([carries(), from_block(block), icmp(), discovery]));
            rules.push(accept([carries(), from_block(block), icmp()]));
        }
        for &source in neighbours.iter().filter(|source| !own.contains(source)) {
            let solicitations = message(ROUTER_SOLICITATION, NEIGHBOUR_SOLICITATION);
            rules.push(accept([carries(), from(source), hops(FROM_THIS_LINK), icmp(), solicitations]));
            rules.push(accept([carries(), from(source), hops(1), icmp(), message(LISTENER_REPORT, LISTENER_REPORT)]));
        }
        // Whether an address is free, which a host asks before it has it.
        for &target in &neighbours {
            let solicitation = message(NEIGHBOUR_SOLICITATION, NEIGHBOUR_SOLICITATION);
            rules.push(accept([carries(), nobody(), hops(FROM_THIS_LINK), icmp(), solicitation, about(target)]));
        }
        let solicitation = message(ROUTER_SOLICITATION, ROUTER_SOLICITATION);
        rules.push(accept([carries(), nobody(), hops(FROM_THIS_LINK), icmp(), solicitation]));
        rules.push(accept([carries(), nobody(), hops(1), icmp(), message(LISTENER_REPORT, LISTENER_REPORT)]));
        rules
    }
}

pub(super) fn from(source: impl Into<IpAddr>) -> Test {
    Test::Frame(FrameTest::From(source.into()))
}

pub(super) fn from_block(block: Cidr) -> Test {
    Test::Frame(FrameTest::FromBlock { block: block.address(), bits: block.prefix() })
}

/// The header of an IPv4 packet is so many words long.
fn header_length(low: u8, high: u8) -> Test {
    Test::Frame(FrameTest::HeaderLength { low, high })
}

/// Packets that may name further hops, for interfaces of pods that are not known. A packet whose only option is a
/// Router Alert goes on.
pub(super) fn further_hops(carries: impl Fn(EtherType) -> Test) -> [Rule; 3] {
    let no_alert = Test::Frame(FrameTest::RouterAlert(false));
    [
        source_route([carries(EtherType::Ipv4), header_length(PLAIN + 2, LONGEST)]),
        source_route([carries(EtherType::Ipv4), header_length(PLAIN + 1, PLAIN + 1), no_alert]),
        source_route([carries(EtherType::Ipv6), Test::Frame(FrameTest::RoutingHeader)]),
    ]
}

fn source_route<const N: usize>(tests: [Test; N]) -> Rule {
    Rule::new(tests, Do::Goto(SOURCE_ROUTE.to_owned()))
}

pub(super) fn accept<const N: usize>(tests: [Test; N]) -> Rule {
    Rule::new(tests, Do::Accept)
}

pub(super) fn wrong_source<const N: usize>(tests: [Test; N]) -> Rule {
    Rule::new(tests, Do::Goto(WRONG_SOURCE.to_owned()))
}

/// The last rule of a chain that drops.
pub(super) fn drops() -> Rule {
    Rule { tests: Vec::new(), actions: vec![Do::Count, Do::Drop], comment: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nft::rule::Hardware;
    use expect_test::expect;

    fn pod(addresses: &[&str]) -> PodInterface {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let hardware = Some(Hardware([0x0a, 0x58, 0x0a, 0xf4, 0x01, 0x05]));
        PodInterface {
            name: "veth1".to_owned(),
            index: 7,
            hardware,
            addresses,
            extra: Vec::new(),
            is_shared: false,
            hears_groups: false,
        }
    }

    fn guarding(interfaces: &[PodInterface]) -> Table {
        frames(&Guard { interfaces, own: &[], log_group: 53 })
    }

    fn text(table: &Table) -> String {
        format!("table {{\n{table}}}\n").replace('\t', "  ")
    }

    #[test]
    fn a_pod_of_both_versions_may_send_this() {
        expect![[r#"
            table {
              chain pod/veth1 {
                comment "what the pod at interface 7 may send"
                type filter hook ingress device "veth1" priority -300; policy drop;
                ether saddr 0a:58:0a:f4:01:05 ether type ip ip version 4 ip hdrlength 5 ip saddr 10.244.1.5 accept
                ether saddr 0a:58:0a:f4:01:05 ether type ip ip version 4 ip hdrlength 5 ip saddr 0.0.0.0 ip daddr 255.255.255.255 udp sport 68 udp dport 67 accept
                ether saddr 0a:58:0a:f4:01:05 ether type ip ip hdrlength 6 ip option ra exists ip saddr 10.244.1.5 accept
                ether saddr 0a:58:0a:f4:01:05 ether type ip ip hdrlength 6-15 goto source-route
                ether saddr 0a:58:0a:f4:01:05 ether type ip6 exthdr rt exists goto source-route
                ether saddr 0a:58:0a:f4:01:05 ether type ip6 ip6 saddr fd00::5 meta l4proto != 58 accept
                ether saddr 0a:58:0a:f4:01:05 ether type ip6 ip6 saddr fd00::5 meta l4proto 58 icmpv6 type 136 icmpv6 taddr fd00::5 accept
                ether saddr 0a:58:0a:f4:01:05 ether type ip6 ip6 saddr fd00::5 meta l4proto 58 icmpv6 type 136 icmpv6 taddr fe80::858:aff:fef4:105 accept
                ether saddr 0a:58:0a:f4:01:05 ether type ip6 ip6 saddr fe80::858:aff:fef4:105 meta l4proto 58 icmpv6 type 136 icmpv6 taddr fd00::5 accept
                ether saddr 0a:58:0a:f4:01:05 ether type ip6 ip6 saddr fe80::858:aff:fef4:105 meta l4proto 58 icmpv6 type 136 icmpv6 taddr fe80::858:aff:fef4:105 accept
                ether saddr 0a:58:0a:f4:01:05 ether type ip6 meta l4proto 58 icmpv6 type 134 goto wrong-source
                ether saddr 0a:58:0a:f4:01:05 ether type ip6 meta l4proto 58 icmpv6 type 136-137 goto wrong-source
                ether saddr 0a:58:0a:f4:01:05 ether type ip6 ip6 saddr fd00::5 meta l4proto 58 accept
                ether saddr 0a:58:0a:f4:01:05 ether type ip6 ip6 saddr fe80::858:aff:fef4:105 ip6 hoplimit 255 meta l4proto 58 icmpv6 type 133-135 accept
                ether saddr 0a:58:0a:f4:01:05 ether type ip6 ip6 saddr fe80::858:aff:fef4:105 ip6 hoplimit 1 meta l4proto 58 icmpv6 type 143 accept
                ether saddr 0a:58:0a:f4:01:05 ether type ip6 ip6 saddr :: ip6 hoplimit 255 meta l4proto 58 icmpv6 type 135 icmpv6 taddr fd00::5 accept
                ether saddr 0a:58:0a:f4:01:05 ether type ip6 ip6 saddr :: ip6 hoplimit 255 meta l4proto 58 icmpv6 type 135 icmpv6 taddr fe80::858:aff:fef4:105 accept
                ether saddr 0a:58:0a:f4:01:05 ether type ip6 ip6 saddr :: ip6 hoplimit 255 meta l4proto 58 icmpv6 type 133 accept
                ether saddr 0a:58:0a:f4:01:05 ether type ip6 ip6 saddr :: ip6 hoplimit 1 meta l4proto 58 icmpv6 type 143 accept
                ether saddr 0a:58:0a:f4:01:05 ether type arp arp saddr ether 0a:58:0a:f4:01:05 arp saddr ip 10.244.1.5 accept
                ether saddr 0a:58:0a:f4:01:05 ether type arp arp operation request arp saddr ether 0a:58:0a:f4:01:05 arp saddr ip 0.0.0.0 accept
                goto wrong-source
              }

              chain source-route {
                limit rate 10/second burst 20 packets log prefix "namewall deny: it has IPv4 options or an IPv6 routing header, which can name further hops" group 53
                counter drop
              }

              chain wrong-source {
                limit rate 10/second burst 20 packets log prefix "namewall deny: its source is not the pod's at that interface" group 53
                counter drop
              }
            }
        "#]].assert_eq(&text(&guarding(&[pod(&["10.244.1.5", "fd00::5"])])));
    }

    #[test]
    fn s1_9_an_interface_made_anew_under_the_same_name_is_a_change() {
        let old = pod(&["10.244.1.5"]);
        let new = PodInterface { index: old.index + 1, ..old.clone() };
        assert_ne!(guarding(&[old]), guarding(&[new]));
    }

    #[test]
    fn where_the_hardware_address_is_not_known_the_rest_counts() {
        let one = PodInterface { hardware: None, ..pod(&["10.244.1.5"]) };
        expect![[r#"
            table {
              chain pod/veth1 {
                comment "what the pod at interface 7 may send"
                type filter hook ingress device "veth1" priority -300; policy drop;
                ether type ip ip version 4 ip hdrlength 5 ip saddr 10.244.1.5 accept
                ether type ip ip version 4 ip hdrlength 5 ip saddr 0.0.0.0 ip daddr 255.255.255.255 udp sport 68 udp dport 67 accept
                ether type ip ip hdrlength 6 ip option ra exists ip saddr 10.244.1.5 accept
                ether type ip ip hdrlength 6-15 goto source-route
                ether type ip6 exthdr rt exists goto source-route
                ether type ip6 meta l4proto 58 icmpv6 type 134 goto wrong-source
                ether type ip6 meta l4proto 58 icmpv6 type 136-137 goto wrong-source
                ether type ip6 ip6 saddr :: ip6 hoplimit 255 meta l4proto 58 icmpv6 type 133 accept
                ether type ip6 ip6 saddr :: ip6 hoplimit 1 meta l4proto 58 icmpv6 type 143 accept
                ether type arp arp saddr ip 10.244.1.5 accept
                ether type arp arp operation request arp saddr ip 0.0.0.0 accept
                goto wrong-source
              }

              chain source-route {
                limit rate 10/second burst 20 packets log prefix "namewall deny: it has IPv4 options or an IPv6 routing header, which can name further hops" group 53
                counter drop
              }

              chain wrong-source {
                limit rate 10/second burst 20 packets log prefix "namewall deny: its source is not the pod's at that interface" group 53
                counter drop
              }
            }
        "#]]
        .assert_eq(&text(&guarding(&[one])));
    }

    #[test]
    fn s1_9_extra_sources_pass_but_for_addresses_that_others_have() {
        let extra = |block: &str, except: &[&str]| ExtraSource {
            block: block.parse().unwrap(),
            except: except.iter().map(|address| address.parse().unwrap()).collect(),
        };
        let extra = vec![
            extra("10.8.0.0/16", &["10.8.0.9"]),
            extra("192.0.2.7/32", &[]),
            extra("192.0.2.8/32", &["192.0.2.8"]),
            extra("fd08::/64", &["fd08::9"]),
        ];
        let own = PodInterface { hardware: None, ..pod(&["10.244.1.5", "fd00::5"]) };
        let plain: Vec<String> = text(&guarding(std::slice::from_ref(&own))).lines().map(str::to_owned).collect();
        let with = text(&guarding(&[PodInterface { extra, ..own }]));
        let new: Vec<&str> =
            with.lines().map(str::trim).filter(|line| !plain.iter().any(|known| known.trim() == *line)).collect();
        expect![[r#"
            ether type ip ip version 4 ip hdrlength 5 ip saddr 192.0.2.7 accept
            ether type ip ip saddr 10.8.0.9 goto wrong-source
            ether type ip ip version 4 ip hdrlength 5 ip saddr 10.8.0.0/16 accept
            ether type ip ip hdrlength 6 ip option ra exists ip saddr 192.0.2.7 accept
            ether type ip6 ip6 saddr fd08::9 goto wrong-source
            ether type ip6 ip6 saddr fd08::/64 meta l4proto != 58 accept
            ether type ip6 ip6 saddr fd08::/64 meta l4proto 58 icmpv6 type 133-137 goto wrong-source
            ether type ip6 ip6 saddr fd08::/64 meta l4proto 58 accept
            ether type arp arp saddr ip 192.0.2.7 accept"#]]
        .assert_eq(&new.join("\n"));
    }
}
