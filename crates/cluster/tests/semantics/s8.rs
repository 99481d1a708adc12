//! S8.1: EgressFirewall `k8s.ovn.org/v1`. The resolvers of S8.2 and on have
//! tests of their own.

use crate::check::{Cluster, check, findings, messages, place};
use crate::world::*;
use expect_test::expect;

const DENY_ALL: &str = "{type: Deny, to: {cidrSelector: 0.0.0.0/0}}, {type: Deny, to: {cidrSelector: '::/0'}}";

#[test]
fn s8_1_to_a_block_of_either_family() {
    check(
        world()
            + &ef(
                "{type: Deny, to: {cidrSelector: 203.0.113.0/24}}, {type: Deny, to: {cidrSelector: '2001:db8::/32'}}",
            ),
        &[
            "shop/web -> 203.0.113.0:1/TCP: deny by EgressFirewall/shop/default",
            "shop/web -> 203.0.113.255:ICMP: deny by EgressFirewall/shop/default",
            "shop/web -> 203.0.114.0:1/TCP: allow by default",
            "shop/web -> [2001:db8::1]:ICMPv6: deny by EgressFirewall/shop/default",
            "shop/web -> [2001:db9::1]:1/SCTP: allow by default",
            "203.0.113.9 -> shop/web:1/TCP: allow by default",
        ],
    );
}

#[test]
fn s8_1_to_a_name() {
    let cluster = Cluster::read(
        world() + &ef(&format!("{{type: Allow, to: {{dnsName: a.example}}}}, {DENY_ALL}")),
        &Default::default(),
    );
    cluster.lease("a.example", "203.0.113.9").lease("a.example", "2001:db8::9").check(&[
        "shop/web -> 203.0.113.9:443/TCP: allow by default",
        "shop/web -> [2001:db8::9]:443/TCP: allow by default",
        "shop/web -> a.example:443/TCP: allow by default",
        "shop/web -> 203.0.113.10:443/TCP: deny by EgressFirewall/shop/default",
    ]);
    // This kind may deny a name too: what is known of it is denied.
    let cluster = Cluster::read(world() + &ef("{type: Deny, to: {dnsName: a.example}}"), &Default::default());
    assert!(cluster.findings.is_empty());
    cluster.lease("a.example", "203.0.113.9").check(&[
        "shop/web -> 203.0.113.9:443/TCP: deny by EgressFirewall/shop/default",
        "shop/web -> a.example:443/TCP: deny by EgressFirewall/shop/default",
        "shop/web -> 203.0.113.10:443/TCP: allow by default",
    ]);
}

/// OVN-Kubernetes refuses such a name, and no DNSNameResolver can hold it: its addresses could not be shared (S8.7).
#[test]
fn s8_1_a_name_of_a_single_label_is_refused_and_fails_closed() {
    for name in ["com", "com.", "'*.com'"] {
        let allowed = ef(&format!("{{type: Allow, to: {{dnsName: {name}}}}}, {DENY_ALL}"));
        assert!(messages(&allowed).contains("error[single-label]"), "{name}: {}", messages(&allowed));
        let cluster = Cluster::read(world() + &allowed, &Default::default());
        let deny = "deny by EgressFirewall/shop/default";
        cluster
            .lease("com", "203.0.113.9")
            .lease("a.com", "203.0.113.9")
            .check(&[&format!("shop/web -> 203.0.113.9:443/TCP: {deny}")]);
        let denied = ef(&format!("{{type: Deny, to: {{dnsName: {name}}}}}"));
        check(world() + &denied, &[&format!("shop/web -> 203.0.113.10:443/TCP: {deny}")]);
    }
    // A wildcard over another public suffix is legal (S5.3).
    let read = messages(ef(&format!("{{type: Allow, to: {{dnsName: '*.co.uk'}}}}, {DENY_ALL}")));
    assert!(!read.contains("error["), "{read}");
}

#[test]
fn s8_1_to_nodes() {
    let published =
        "---\napiVersion: namewall.dev/v1alpha1\nkind: NodeAddresses\nmetadata: {name: n2}\naddresses: [10.244.2.1]\n";
    check(
        world()
            + published
            + &ef(&format!("{{type: Allow, to: {{nodeSelector: {{matchLabels: {{zone: b}}}}}}}}, {DENY_ALL}")),
        &[
            "shop/web -> node/n2:22/TCP: allow by default",
            "shop/web -> [fd00:1::2]:22/TCP: allow by default",
            "shop/web -> 10.244.2.1:22/TCP: allow by default",
            "shop/web -> ops/agent:9100/TCP: allow by default",
            "shop/web -> node/n1:22/TCP: deny by EgressFirewall/shop/default",
        ],
    );
    check(
        world() + &ef("{type: Deny, to: {nodeSelector: {}}}"),
        &[
            "shop/web -> node/n1:22/TCP: deny by EgressFirewall/shop/default",
            "shop/web -> 203.0.113.9:22/TCP: allow by default",
        ],
    );
}

#[test]
fn s8_1_a_selector_that_finds_no_node_matches_nothing_and_the_rest_stands() {
    check(
        world() + &ef(&format!("{{type: Allow, to: {{nodeSelector: {{matchLabels: {{zone: none}}}}}}}}, {DENY_ALL}")),
        &[
            "shop/web -> node/n1:22/TCP: deny by EgressFirewall/shop/default",
            "shop/web -> shop/db:1/TCP: allow by default",
        ],
    );
}

#[test]
fn s8_1_ports_need_a_protocol_and_none_means_all() {
    check(
        world()
            + &ef(
                "{type: Deny, ports: [{protocol: TCP, port: 443}, {protocol: UDP, port: 53}, {protocol: SCTP, port: 9}], to: {cidrSelector: 0.0.0.0/0}}",
            ),
        &[
            "shop/web -> 203.0.113.9:443/TCP: deny by EgressFirewall/shop/default",
            "shop/web -> 203.0.113.9:443/UDP: allow by default",
            "shop/web -> 203.0.113.9:53/UDP: deny by EgressFirewall/shop/default",
            "shop/web -> 203.0.113.9:9/SCTP: deny by EgressFirewall/shop/default",
            "shop/web -> 203.0.113.9:ICMP: allow by default",
        ],
    );
    for ports in ["ports: []", "ports: null"] {
        check(
            world() + &ef(&format!("{{type: Deny, {ports}, to: {{cidrSelector: 0.0.0.0/0}}}}")),
            &["shop/web -> 203.0.113.9:ICMP: deny by EgressFirewall/shop/default"],
        );
    }
}

#[test]
fn s8_1_the_name_is_default_or_it_closes_the_namespace() {
    let (other, first) = (ef(DENY_ALL).replace("name: default", "name: mine"), "name: another");
    check(
        world() + &other,
        &[
            "shop/web -> 203.0.113.9:1/TCP: deny by EgressFirewall/shop/mine",
            "shop/web -> ops/tool:1/TCP: allow by default",
        ],
    );
    // One of another name opens nothing, and takes nothing from what `default` allows, whichever name comes first.
    let allow = "{type: Allow, to: {cidrSelector: 203.0.113.0/24}}";
    for name in ["name: mine", first] {
        let both = ef(allow) + &ef("{type: Allow, to: {cidrSelector: 0.0.0.0/0}}").replace("name: default", name);
        check(
            world() + &both,
            &["shop/web -> 203.0.113.9:1/TCP: allow by default", "shop/web -> 198.51.100.1:1/TCP: deny"],
        );
    }
    expect![[r#"
        all.yaml:4:12: error[bad-name] EgressFirewall shop/mine metadata.name: an EgressFirewall is named `default`; of `mine` no rule counts, and the pods of its namespace reach nothing outside the pod network that an EgressFirewall named `default` does not allow
    "#]]
    .assert_eq(&messages(other));
}

#[test]
fn s8_1_exactly_one_destination_or_the_rule_fails_closed() {
    for to in [
        "{}",
        "{cidrSelector: 203.0.113.0/24, dnsName: a.example}",
        "{cidrSelector: 203.0.113.0/24, nodeSelector: {}}",
        "{nodeSelector: null}",
        "{cidrSelector: 203.0.113.0}",
        "{cidrSelector: 203.0.113.0/33}",
        "{cidrSelector: 203.0.113.0/24, zone: eu}",
        "{nodeSelector: {matchExpressions: [{key: a, operator: Is}]}}",
        "203.0.113.0/24",
        "null",
    ] {
        let deny = ef(&format!("{{type: Deny, to: {to}}}"));
        check(
            world() + &deny,
            &[
                "shop/web -> 203.0.113.9:1/TCP: deny by EgressFirewall/shop/default",
                "shop/web -> [2001:db8::9]:ICMP: deny by EgressFirewall/shop/default",
                // It denies all that the kind speaks of, and pods are not of it.
                "shop/web -> shop/db:1/TCP: allow by default",
            ],
        );
        let allow = ef(&format!("{{type: Allow, to: {to}}}, {DENY_ALL}"));
        check(world() + &allow, &["shop/web -> 203.0.113.9:1/TCP: deny by EgressFirewall/shop/default"]);
        assert_eq!(findings(&deny).len(), 1, "{to}: {:?}", findings(&deny));
    }
}

#[test]
fn s8_1_a_rule_without_destination_or_type_fails_closed() {
    for rule in [
        "{type: Deny}",
        "{to: {cidrSelector: 198.51.100.0/24}}",
        "{type: Drop, to: {cidrSelector: 198.51.100.0/24}}",
        "{type: Deny, too: {cidrSelector: 198.51.100.0/24}}",
    ] {
        check(world() + &ef(rule), &["shop/web -> 203.0.113.9:1/TCP: deny by EgressFirewall/shop/default"]);
        assert!(!findings(ef(rule)).is_empty());
    }
    for port in [
        "{port: 1}",
        "{protocol: tcp, port: 1}",
        "{protocol: TCP}",
        "{protocol: TCP, port: 0}",
        "{protocol: TCP, port: 65536}",
        "{protocol: TCP, port: 1, endPort: 2}",
    ] {
        let rule = format!("{{type: Deny, ports: [{port}], to: {{cidrSelector: 198.51.100.0/24}}}}");
        check(world() + &ef(&rule), &["shop/web -> 203.0.113.9:2/TCP: deny by EgressFirewall/shop/default"]);
        assert_eq!(findings(ef(&rule)).len(), 1);
    }
}

#[test]
fn s8_1_at_most_8000_rules_and_what_is_beyond_fails_closed() {
    let rule = "{type: Allow, to: {cidrSelector: 203.0.113.0/24}}";
    let last = "{type: Deny, to: {cidrSelector: 203.0.114.0/24}}";
    let full = ef(&format!("{}, {last}", times(7999, rule)));
    assert_eq!(findings(&full), Vec::<String>::new());
    check(
        world() + &full,
        &[
            "shop/web -> 203.0.114.9:1/TCP: deny by EgressFirewall/shop/default",
            "shop/web -> 203.0.115.9:1/TCP: allow by default",
        ],
    );
    let over = ef(&format!("{}, {last}", times(8000, rule)));
    assert_eq!(
        findings(&over),
        [format!("error[bad-count] EgressFirewall shop/default spec.egress {}", place(&over, "egress"))]
    );
    check(
        world() + &over,
        &[
            "shop/web -> 203.0.113.9:1/TCP: allow by default",
            "shop/web -> 203.0.115.9:1/TCP: deny by EgressFirewall/shop/default",
        ],
    );
    let over = ef(&format!("{}, {{type: Allow, to: {{cidrSelector: 0.0.0.0/0}}}}, {DENY_ALL}", times(8000, rule)));
    check(world() + &over, &["shop/web -> 203.0.115.9:1/TCP: deny by EgressFirewall/shop/default"]);
}

#[test]
fn s8_1_rules_that_are_no_list_deny_all() {
    for egress in ["{}", "none", "5"] {
        let broken = ef("").replace("egress: []", &format!("egress: {egress}"));
        check(world() + &broken, &["shop/web -> 203.0.113.9:1/TCP: deny by EgressFirewall/shop/default"]);
    }
    for egress in ["[]", "null"] {
        let empty = ef("").replace("egress: []", &format!("egress: {egress}"));
        check(world() + &empty, &["shop/web -> 203.0.113.9:1/TCP: allow by default"]);
    }
}
