//! Tunnel endpoints of nodes: overlay ports and tunnel protocols. A node takes a
//! packet out of what arrives there, and what is inside has any source that the
//! sender likes. So nothing that a pod sends arrives there, whatever policies say:
//!
//! ```text
//! input    egress   the port or protocol of a tunnel                      ─► from a pod, or translated? drop
//! forward  ingress  the same, no pod of this node with policies, a node   ─► from a pod, or translated? drop
//! ```
//! In the input hook every packet is for this node, be it by a broadcast address or
//! a group. In the forward hook other nodes are meant: the check stands after the
//! look-ups of the destination's class, so that what goes to pods with policies
//! does not pay for it. The endpoints of other nodes are taken to be those of this
//! one.
//!
//! The source tells a pod: it is one that is known, or one of the pod network, or
//! one that the settings allow pods. What was translated came through a Service or
//! a node port, which is no way between nodes: behind a node's address may be a
//! pod of it there.

use super::Render;
use super::rules::numbered_ways;
use crate::nft::rule::{Action as Do, End, Rule, TCP, Test, UDP};
use crate::nft::set::{self, Element, Field, Holds, Key, SetSpec, Version};
use crate::nft::table::Table;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const TUNNELS: &str = "tunnels";
/// Which of the packets that are forwarded go to a node.
const TO_NODES: &str = "tunnels/forward";
/// Of packets without ports, which have the protocol of a tunnel.
const PROTOCOLS: &str = "tunnels/protocols";
pub(crate) const REFUSE: &str = "tunnels/refuse";
/// The text in the log of denials, in place of a rule's name.
const WHY: &str = "overlay port or tunnel protocol of a node, where no pod may send";

/// Groups that nodes may be in, and the broadcast address.
const GROUPS: [(IpAddr, IpAddr); 3] = [
    (IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), IpAddr::V4(Ipv4Addr::new(239, 255, 255, 255))),
    (IpAddr::V4(Ipv4Addr::BROADCAST), IpAddr::V4(Ipv4Addr::BROADCAST)),
    (IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), IpAddr::V6(Ipv6Addr::from_bits(u128::MAX))),
];

impl Render<'_> {
    /// The nodes' addresses.
    pub(super) fn node_sets(&self, table: &mut Table) {
        for version in Version::BOTH {
            let nodes = table.set(SetSpec::new(set::NODES[version], &[Field::Address(version)], Holds::Keys));
            for (address, _) in self.program.node_addresses.iter().filter(|(at, _)| Version::of(*at) == version) {
                nodes.insert(Element::key(Key::default().address(*address)));
            }
        }
    }

    /// The chains, and the rules that lead there. The base chains have all their other rules.
    pub(super) fn tunnel_chains(&self, table: &mut Table) {
        if self.scope.tunnels.is_empty() {
            return;
        }
        if !self.scope.extra.is_empty() {
            self.fill_blocks(table, set::EXTRA, &self.scope.extra.iter().copied().collect());
        }
        let input = self.leads(table, TUNNELS);
        let base = table.chains.entry("egress-input".to_owned()).or_default();
        // Before DNS that was taken is let in: a port of its range may be a tunnel's.
        let at = base.rules.iter().position(|rule| rule.tests.contains(&Test::Translated)).unwrap_or(0);
        base.rules.splice(at..at, input);
        let forward = self.leads(table, TO_NODES);
        let base = table.chains.entry("ingress-forward".to_owned()).or_default();
        let is_dispatch = |rule: &Rule| matches!(rule.actions.last(), Some(Do::Dispatch { .. }));
        let at = base.rules.iter().rposition(is_dispatch).map_or(0, |at| at + 1);
        base.rules.splice(at..at, forward);
        let to_nodes = Version::BOTH.map(|version| within(End::Destination, version, set::NODES));
        let to_nodes = to_nodes.into_iter().chain([link_local()]);
        table.chains.entry(TO_NODES.to_owned()).or_default().rules =
            to_nodes.map(|test| Rule::new([test], Do::Jump(TUNNELS.to_owned()))).collect();
        table.chains.entry(TUNNELS.to_owned()).or_default().rules = self.rules_for_pods();
        table.chains.entry(REFUSE.to_owned()).or_default().rules = self.log_and_drop(WHY).to_vec();
    }

    /// The same inside a pod's network namespace, for what the pod sends by second interfaces. The node's hooks cannot
    /// tell that from what others send. Returns the rules that lead to the chains.
    pub(super) fn tunnel_chains_inside(&self, table: &mut Table) -> Vec<Rule> {
        if self.scope.tunnels.is_empty() {
            return Vec::new();
        }
        self.node_sets(table);
        let groups = GROUPS.map(|(low, high)| between(low, high));
        let nodes = Version::BOTH.map(|version| within(End::Destination, version, set::NODES));
        table.chains.entry(TO_NODES.to_owned()).or_default().rules = nodes
            .into_iter()
            .chain([link_local()])
            .chain(groups)
            .map(|test| Rule::new([test], Do::Goto(REFUSE.to_owned())))
            .collect();
        table.chains.entry(REFUSE.to_owned()).or_default().rules = self.log_and_drop(WHY).to_vec();
        self.leads(table, TO_NODES)
    }

    /// The rules for a base chain that lead packets for a tunnel to this chain.
    fn leads(&self, table: &mut Table, chain: &str) -> Vec<Rule> {
        let jump = || Do::Jump(chain.to_owned());
        let ports = numbered_ways(table, &self.scope.tunnels.udp());
        let mut rules: Vec<Rule> = ports.into_iter().map(|tests| Rule::new(tests, jump())).collect();
        let protocols: Vec<u8> = self.scope.tunnels.protocols.iter().copied().collect();
        match protocols.as_slice() {
            [] => {}
            &[only] => rules.push(Rule::new([Test::Protocol(only)], jump())),
            several => {
                // One rule for all: most packets are TCP or UDP, and fail at once.
                let name = if chain == TUNNELS { PROTOCOLS.to_owned() } else { format!("{chain}/protocols") };
                let rare = [TCP, UDP].map(Test::NotProtocol);
                rules.push(Rule::new(rare, Do::Jump(name.clone())));
                let each = several.iter().map(|number| Rule::new([Test::Protocol(*number)], jump()));
                table.chains.entry(name).or_default().rules = each.collect();
            }
        }
        rules
    }

    /// Nodes speak to each other here, so most packets are a node's.
    fn rules_for_pods(&self) -> Vec<Rule> {
        let refuse = || Do::Goto(REFUSE.to_owned());
        let mut rules = vec![Rule::new([Test::Translated], refuse())];
        let from = |set: set::Twins, action: &Do| {
            Version::BOTH.map(|version| Rule::new([within(End::Source, version, set)], action.clone()))
        };
        rules.extend(from(set::NODES, &Do::Return));
        let extra = (!self.scope.extra.is_empty()).then_some(set::EXTRA);
        let closed = (!self.scope.closed.is_empty()).then_some(set::CLOSED);
        let pods = [Some(set::PODS), Some(set::POD_NETWORK), closed, extra];
        rules.extend(pods.into_iter().flatten().flat_map(|set| from(set, &refuse())));
        rules
    }
}

fn within(end: End, version: Version, twins: set::Twins) -> Test {
    Test::Within { end, version, set: twins[version].to_owned() }
}

/// Every machine has link-local addresses, and no list has them.
fn link_local() -> Test {
    const FIRST: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);
    let last = Ipv6Addr::from_bits(FIRST.to_bits() | u128::MAX >> 10);
    between(IpAddr::V6(FIRST), IpAddr::V6(last))
}

fn between(low: IpAddr, high: IpAddr) -> Test {
    Test::Between { end: End::Destination, low, high }
}

#[cfg(test)]
mod tests {
    use super::super::{Ids, Scope, render};
    use super::*;
    use crate::nft::emulate::{Packet, Seen, forward, send, send_counted};
    use crate::sample::Sample;
    use crate::tunnels::Tunnels;
    use expect_test::expect;

    fn table_with(tunnels: Tunnels) -> Table {
        let sample = Sample::default()
            .node("n1", &["192.0.2.1", "2001:db8::1"])
            .node("n2", &["192.0.2.2", "2001:db8::2"])
            .pod("web", &["10.0.0.1", "fd00::1"], "n1")
            .pod("far", &["10.0.2.1", "fd00:2::1"], "n2");
        let scope = Scope {
            node: sample.snapshot.node_named("n1"),
            closed: vec!["10.0.0.0/24".parse().unwrap()],
            extra: vec!["10.8.0.0/24".parse().unwrap()],
            tunnels,
            ..Scope::default()
        };
        render(&sample.program(), &scope, &Ids::default()).table
    }

    fn table() -> Table {
        table_with(Tunnels { ports: [8472].into(), protocols: [47].into() })
    }

    #[test]
    fn s1_9_what_a_pod_sends_to_a_tunnel_of_its_node_is_dropped_and_says_why() {
        let table = table();
        let input = |packet: &Packet| send(&table, "egress-input", packet).accepted;
        for source in ["10.0.0.1", "10.0.2.1", "10.0.0.77", "10.8.0.9", "fd00::1", "fd00:2::1"] {
            let own = if source.contains(':') { "2001:db8::1" } else { "192.0.2.1" };
            for to in [own, if source.contains(':') { "ff02::1" } else { "255.255.255.255" }] {
                let (seen, counted) = send_counted(&table, "egress-input", &Packet::udp(source, to, 8472));
                assert!(!seen.accepted && counted == [WHY], "{source} to {to}: {counted:?}");
                assert!(!input(&Packet { protocol: 47, ..Packet::udp(source, to, 0) }), "{source} to {to}");
            }
        }
        assert!(input(&Packet::udp("10.0.0.1", "192.0.2.1", 8473)), "another port");
        assert!(input(&Packet::tcp("10.0.0.1", "192.0.2.1", 8472)), "another protocol");
        for source in ["192.0.2.2", "2001:db8::2", "198.51.100.9"] {
            let to = if source.contains(':') { "2001:db8::1" } else { "192.0.2.1" };
            assert!(input(&Packet::udp(source, to, 8472)), "{source} is no pod");
            let translated = Packet { is_translated: true, ..Packet::udp(source, to, 8472) };
            assert!(!input(&translated), "{source} through a Service");
        }
    }

    #[test]
    fn s1_9_tunnels_of_other_nodes_are_closed_where_the_pod_is() {
        let table = table();
        let passes = |packet: &Packet| forward(&table, packet).accepted;
        for (source, to) in [("10.0.0.1", "192.0.2.2"), ("fd00::1", "2001:db8::2"), ("fd00::1", "fe80::2")] {
            assert!(!passes(&Packet::udp(source, to, 8472)), "{source} to {to}");
            assert!(!passes(&Packet { protocol: 47, ..Packet::udp(source, to, 0) }), "{source} to {to}");
            assert!(passes(&Packet::udp(source, to, 53)), "{source} to {to}: another port");
        }
        assert!(passes(&Packet::udp("10.0.0.1", "10.0.2.1", 8472)), "to another pod");
        assert!(passes(&Packet::udp("10.0.0.1", "198.51.100.9", 8472)), "to the outside");
        let translated = |source| Packet { is_translated: true, ..Packet::udp(source, "192.0.2.2", 8472) };
        assert!(!passes(&translated("192.0.2.3")), "a node port that leads to another node");
    }

    #[test]
    fn a_node_without_tunnels_has_no_rules_for_them() {
        let table = table_with(Tunnels::default());
        assert!(!table.chains.keys().any(|chain| chain.starts_with(TUNNELS)));
        assert!(!table.sets.contains_key(set::NODES.0) && !table.sets.contains_key(set::EXTRA.0));
    }

    /// What goes to a pod with ingress policies does not meet these rules; all other packets fail at the first test.
    #[test]
    fn most_packets_pay_for_one_test_at_most() {
        let vxlan = Tunnels { ports: [8472].into(), protocols: [].into() };
        let (without, with) = (table_with(Tunnels::default()), table_with(vxlan));
        let cost = |packet: Packet| {
            let [before, after] = [&without, &with].map(|table| forward(table, &packet));
            let Seen { expressions, lookups, .. } = after;
            (expressions - before.expressions, lookups - before.lookups)
        };
        assert_eq!(cost(Packet::tcp("10.0.0.1", "198.51.100.9", 443)), (2, 0));
        assert_eq!(cost(Packet::udp("10.0.0.1", "198.51.100.9", 443)), (4, 0));
    }

    #[test]
    fn many_endpoints_are_looked_up() {
        let table = table_with(Tunnels { ports: [4789, 6081, 8472].into(), protocols: [4, 41, 47, 137].into() });
        let chain = |name: &str| table.chains[name].rules.iter().map(|rule| format!("{rule}\n")).collect::<String>();
        expect![[r#"
            ct state established accept
            ct state related jump related-errors
            tcp flags & (fin | syn | rst | ack) != syn jump cut
            meta l4proto . th dport @ports/f906fa08df1f20d9 jump tunnels
            meta l4proto != tcp meta l4proto != udp jump tunnels/protocols
            ct status dnat jump own-address
            ip saddr vmap @egress4 comment "egress policies of the source"
            ip6 hoplimit 255 icmpv6 type 133-137 accept
            ip6 saddr vmap @egress6 comment "egress policies of the source"
            ip saddr @closed4 jump closed-source
            ip6 saddr @closed6 jump closed-source
            goto allowed
        "#]]
        .assert_eq(&chain("egress-input"));
        expect![[r#"
            ct status dnat goto tunnels/refuse
            ip saddr @node4 return
            ip6 saddr @node6 return
            ip saddr @pod4 goto tunnels/refuse
            ip6 saddr @pod6 goto tunnels/refuse
            ip saddr @podnet4 goto tunnels/refuse
            ip6 saddr @podnet6 goto tunnels/refuse
            ip saddr @closed4 goto tunnels/refuse
            ip6 saddr @closed6 goto tunnels/refuse
            ip saddr @extra4 goto tunnels/refuse
            ip6 saddr @extra6 goto tunnels/refuse

            meta l4proto 4 jump tunnels
            meta l4proto 41 jump tunnels
            meta l4proto 47 jump tunnels
            meta l4proto 137 jump tunnels

            ip daddr @node4 jump tunnels
            ip6 daddr @node6 jump tunnels
            ip6 daddr fe80::-febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff jump tunnels

            limit rate 10/second burst 20 packets log prefix "namewall deny: overlay port or tunnel protocol of a node, where no pod may send" group 0
            counter drop comment "overlay port or tunnel protocol of a node, where no pod may send"
        "#]]
        .assert_eq(&["tunnels", "tunnels/protocols", "tunnels/forward", "tunnels/refuse"].map(chain).join("\n"));
        assert!(
            !send(&table, "egress-input", &Packet { protocol: 41, ..Packet::udp("10.0.0.1", "192.0.2.1", 0) }).accepted
        );
        assert!(!forward(&table, &Packet { protocol: 4, ..Packet::udp("10.0.0.1", "192.0.2.2", 0) }).accepted);
        assert!(!forward(&table, &Packet::udp("10.0.0.1", "192.0.2.2", 6081)).accepted);
    }
}
