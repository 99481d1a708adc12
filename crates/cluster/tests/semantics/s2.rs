//! S2.1 to S2.4: NetworkPolicy v1, what isolates, and peers. Ports, pods and
//! selectors are in `s2_ports.rs`.

use crate::check::{check, findings};
use crate::world::*;

/// A policy for shop/db with these fields.
fn db(fields: &str) -> String {
    np("db", &format!("{{podSelector: {{matchLabels: {{app: db}}}}, {fields}}}"))
}

/// Ingress to shop/db only from these peers.
fn from(peers: &str) -> String {
    db(&format!("ingress: [{{from: [{peers}]}}]"))
}

const NO_INGRESS: &[&str] = &[
    "shop/web -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db",
    "203.0.113.9 -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db",
    "2001:db8::9 -> shop/db:ICMP: deny by NetworkPolicy/shop/db",
    "shop/db -> shop/web:8080/TCP: allow by default",
];
const NO_EGRESS: &[&str] = &[
    "shop/db -> shop/web:8080/TCP: deny by NetworkPolicy/shop/db",
    "shop/db -> 203.0.113.9:443/TCP: deny by NetworkPolicy/shop/db",
    "shop/db -> [2001:db8::9]:ICMP: deny by NetworkPolicy/shop/db",
    "shop/web -> shop/db:5432/TCP: allow by default",
];
const NEITHER: &[&str] = &[
    "shop/web -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db",
    "shop/db -> shop/web:8080/TCP: deny by NetworkPolicy/shop/db",
];

#[test]
fn s2_1_policy_types_missing_empty_or_null_mean_ingress() {
    for types in ["", "policyTypes: []", "policyTypes: null"] {
        check(world() + &db(types), NO_INGRESS);
        // A list of no egress rules is no egress rule.
        for egress in ["egress: []", "egress: null"] {
            check(world() + &db(&format!("{egress}, {types}")), NO_INGRESS);
        }
    }
}

#[test]
fn s2_1_at_least_one_egress_rule_adds_egress() {
    for types in ["", "policyTypes: []", "policyTypes: null"] {
        let to_web = "egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]";
        check(
            world() + &db(&format!("{to_web}, {types}")),
            &[
                "shop/db -> shop/web:8080/TCP: allow by NetworkPolicy/shop/db",
                "shop/db -> ops/tool:8080/TCP: deny by NetworkPolicy/shop/db",
                "shop/web -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db",
            ],
        );
    }
}

#[test]
fn s2_1_policy_types_that_are_given_decide_alone() {
    check(world() + &db("policyTypes: [Ingress], egress: [{ports: [{port: 1}]}]"), NO_INGRESS);
    check(world() + &db("policyTypes: [Egress]"), NO_EGRESS);
    check(world() + &db("policyTypes: [Egress], ingress: [{ports: [{port: 1}]}]"), NO_EGRESS);
    check(world() + &db("policyTypes: [Egress, Ingress]"), NEITHER);
}

#[test]
fn s2_1_a_policy_without_spec_isolates_its_namespace() {
    for spec in ["{}", "null"] {
        check(
            world() + &np("db", spec),
            &[
                "ops/tool -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db",
                "203.0.113.9 -> shop/web:8080/TCP: deny by NetworkPolicy/shop/db",
                "shop/db -> 203.0.113.9:443/TCP: allow by default",
            ],
        );
    }
}

#[test]
fn s2_2_an_empty_rule_list_equals_a_missing_one() {
    for ingress in ["", "ingress: []", "ingress: null"] {
        check(world() + &db(ingress), NO_INGRESS);
        check(world() + &db(&format!("policyTypes: [Ingress], {ingress}")), NO_INGRESS);
    }
    for egress in ["", "egress: []", "egress: null"] {
        check(world() + &db(&format!("policyTypes: [Egress], {egress}")), NO_EGRESS);
    }
}

#[test]
fn s2_2_from_to_and_ports_missing_empty_or_null_match_everything() {
    for peers in ["", "from: []", "from: null"] {
        for ports in ["", "ports: []", "ports: null"] {
            let rule = [peers, ports].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
            check(
                world() + &db(&format!("ingress: [{{{rule}}}]")),
                &[
                    "shop/web -> shop/db:5432/TCP: allow by NetworkPolicy/shop/db",
                    "203.0.113.9 -> shop/db:1/SCTP: allow by NetworkPolicy/shop/db",
                    "2001:db8::9 -> shop/db:ICMP: allow by NetworkPolicy/shop/db",
                    "ops/agent -> shop/db:65535/UDP: allow",
                ],
            );
            check(
                world() + &db(&format!("egress: [{{{}}}], policyTypes: [Egress]", rule.replace("from", "to"))),
                &[
                    "shop/db -> shop/web:1/TCP: allow by NetworkPolicy/shop/db",
                    "shop/db -> 203.0.113.9:ICMP: allow by NetworkPolicy/shop/db",
                    "shop/db -> node/n2:22/TCP: allow by NetworkPolicy/shop/db",
                    "shop/db -> api.example.com:443/TCP: allow by NetworkPolicy/shop/db",
                ],
            );
        }
    }
}

#[test]
fn s2_3_namespace_and_pod_selector_of_one_peer_are_anded() {
    let peer = "namespaceSelector: {matchLabels: {team: ops}}, podSelector: {matchLabels: {app: tool}}";
    let more = pod("ops/web", "web", "1.31", "") + &pod("shop/tool", "tool", "1.32", "");
    check(
        world() + &more + &from(&format!("{{{peer}}}")),
        &[
            "ops/tool -> shop/db:5432/TCP: allow by NetworkPolicy/shop/db",
            "ops/web -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db",
            "shop/tool -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db",
            "shop/web -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db",
        ],
    );
    // As two peers they are ORed, and the second means the policy's own namespace.
    check(
        world() + &more + &from(&format!("{{{}}}", peer.replace("}, pod", "}}, {pod"))),
        &[
            "ops/tool -> shop/db:5432/TCP: allow by NetworkPolicy/shop/db",
            "ops/web -> shop/db:5432/TCP: allow by NetworkPolicy/shop/db",
            "shop/tool -> shop/db:5432/TCP: allow by NetworkPolicy/shop/db",
            "shop/web -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db",
        ],
    );
}

#[test]
fn s2_3_a_pod_selector_alone_means_the_policys_own_namespace() {
    for peer in ["{podSelector: {}}", "{podSelector: {}, namespaceSelector: null}"] {
        check(
            world() + &from(peer),
            &[
                "shop/web -> shop/db:5432/TCP: allow by NetworkPolicy/shop/db",
                "ops/tool -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db",
                "203.0.113.9 -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db",
            ],
        );
        let egress = format!("policyTypes: [Egress], egress: [{{to: [{peer}]}}]");
        check(
            world() + &db(&egress),
            &[
                "shop/db -> shop/web:5432/TCP: allow by NetworkPolicy/shop/db",
                "shop/db -> ops/tool:5432/TCP: deny by NetworkPolicy/shop/db",
            ],
        );
    }
}

#[test]
fn s2_3_namespaces_that_nobody_described_are_known_by_name() {
    let peer = "{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: lab}}}";
    check(
        world() + &pod("lab/x", "x", "1.40", "") + &from(peer),
        &[
            "lab/x -> shop/db:5432/TCP: allow by NetworkPolicy/shop/db",
            "ops/tool -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db",
        ],
    );
    // No manifest can take another's name.
    let liar =
        "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ops, labels: {kubernetes.io/metadata.name: lab}}\n";
    check(
        world().replace(&namespace("ops", ""), liar) + &from(peer),
        &["ops/tool -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db"],
    );
}

#[test]
fn s2_3_a_policy_without_namespace_is_in_default() {
    let policy = np("db", "{podSelector: {}}").replace(", namespace: shop", "");
    let here = pod("default/x", "x", "1.40", "").replace(", namespace: default", "");
    check(
        world() + &here + &policy,
        &[
            "shop/web -> default/x:80/TCP: deny by NetworkPolicy/default/db",
            "default/x -> shop/db:80/TCP: allow by default",
        ],
    );
}

#[test]
fn s2_4_except_is_only_a_hole_another_rule_may_allow() {
    let rule = |cidr: &str, except: &str| format!("{{to: [{{ipBlock: {{cidr: {cidr}, except: [{except}]}}}}]}}");
    let v4 = rule("203.0.113.0/24", "203.0.113.0/28, 203.0.113.64/28");
    let v6 = rule("'2001:db8::/32'", "'2001:db8:1::/48', '2001:db8:2::/48'");
    let again = "{to: [{ipBlock: {cidr: 203.0.113.9/32}}, {ipBlock: {cidr: '2001:db8:1::9/128'}}]}";
    check(
        world() + &db(&format!("policyTypes: [Egress], egress: [{v4}, {v6}, {again}]")),
        &[
            "shop/db -> 203.0.113.99:443/TCP: allow by NetworkPolicy/shop/db",
            "shop/db -> 203.0.113.8:443/TCP: deny by NetworkPolicy/shop/db",
            "shop/db -> 203.0.113.9:443/TCP: allow by NetworkPolicy/shop/db",
            "shop/db -> 203.0.113.64:443/TCP: deny by NetworkPolicy/shop/db",
            "shop/db -> 203.0.113.80:ICMP: allow by NetworkPolicy/shop/db",
            "shop/db -> [2001:db8::9]:443/TCP: allow by NetworkPolicy/shop/db",
            "shop/db -> [2001:db8:1::8]:443/TCP: deny by NetworkPolicy/shop/db",
            "shop/db -> [2001:db8:1::9]:443/TCP: allow by NetworkPolicy/shop/db",
            "shop/db -> [2001:db8:2::]:443/TCP: deny by NetworkPolicy/shop/db",
        ],
    );
}

#[test]
fn s2_4_except_is_a_hole_in_its_own_peer_only() {
    let peers = "{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.0/25]}}, {ipBlock: {cidr: 203.0.113.0/26}}";
    check(
        world() + &from(peers),
        &[
            "203.0.113.9 -> shop/db:5432/TCP: allow by NetworkPolicy/shop/db",
            "203.0.113.100 -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db",
            "203.0.113.200 -> shop/db:5432/TCP: allow by NetworkPolicy/shop/db",
        ],
    );
    // A pod in the hole comes in by another peer.
    check(
        world() + &from("{ipBlock: {cidr: 10.0.0.0/8, except: [10.244.1.0/24]}}, {podSelector: {}}"),
        &[
            "10.244.1.10 -> 10.244.2.20:5432/TCP: allow by NetworkPolicy/shop/db",
            "10.244.1.30 -> 10.244.2.20:5432/TCP: deny by NetworkPolicy/shop/db",
        ],
    );
}

#[test]
fn s2_4_a_block_ends_where_it_ends() {
    check(
        world() + &from("{ipBlock: {cidr: 203.0.113.16/28}}, {ipBlock: {cidr: '2001:db8::10/124'}}"),
        &[
            "203.0.113.15 -> shop/db:1/TCP: deny by NetworkPolicy/shop/db",
            "203.0.113.16 -> shop/db:1/TCP: allow by NetworkPolicy/shop/db",
            "203.0.113.31 -> shop/db:1/TCP: allow by NetworkPolicy/shop/db",
            "203.0.113.32 -> shop/db:1/TCP: deny by NetworkPolicy/shop/db",
            "2001:db8::f -> shop/db:1/TCP: deny by NetworkPolicy/shop/db",
            "2001:db8::10 -> shop/db:1/TCP: allow by NetworkPolicy/shop/db",
            "2001:db8::1f -> shop/db:1/TCP: allow by NetworkPolicy/shop/db",
            "2001:db8::20 -> shop/db:1/TCP: deny by NetworkPolicy/shop/db",
        ],
    );
    check(
        world() + &from("{ipBlock: {cidr: 0.0.0.0/0}}"),
        &[
            "255.255.255.255 -> shop/db:1/TCP: allow by NetworkPolicy/shop/db",
            "10.244.1.10 -> 10.244.2.20:1/TCP: allow by NetworkPolicy/shop/db",
            "2001:db8::f -> shop/db:1/TCP: deny by NetworkPolicy/shop/db",
            "fd00:244:1::10 -> [fd00:244:2::20]:1/TCP: deny by NetworkPolicy/shop/db",
        ],
    );
    check(
        world() + &from("{ipBlock: {cidr: '::/0'}}"),
        &[
            "203.0.113.9 -> shop/db:1/TCP: deny by NetworkPolicy/shop/db",
            "10.244.1.10 -> 10.244.2.20:1/TCP: deny by NetworkPolicy/shop/db",
            "fd00:244:1::10 -> [fd00:244:2::20]:1/TCP: allow by NetworkPolicy/shop/db",
            // One family is enough for two pods to speak.
            "shop/web -> shop/db:1/TCP: allow by NetworkPolicy/shop/db",
        ],
    );
}

#[test]
fn s2_4_host_bits_and_leading_zeros_are_read_by_masking() {
    let policy = from(
        "{ipBlock: {cidr: 203.0.113.77/24, except: [203.0.113.130/26]}}, {ipBlock: {cidr: '2001:db8::9/64'}}, {ipBlock: {cidr: 198.051.100.000/24}}",
    );
    check(
        world() + &policy,
        &[
            "203.0.113.1 -> shop/db:1/TCP: allow by NetworkPolicy/shop/db",
            "203.0.113.128 -> shop/db:1/TCP: deny by NetworkPolicy/shop/db",
            "203.0.113.192 -> shop/db:1/TCP: allow by NetworkPolicy/shop/db",
            "2001:db8::1 -> shop/db:1/TCP: allow by NetworkPolicy/shop/db",
            "2001:db8:0:1::1 -> shop/db:1/TCP: deny by NetworkPolicy/shop/db",
            "198.51.100.1 -> shop/db:1/TCP: allow by NetworkPolicy/shop/db",
        ],
    );
    let said = findings(policy);
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said.iter().all(|line| line.starts_with("warning[host-bits] NetworkPolicy shop/db spec.ingress[0].from[")));
}
