//! S4.1 to S4.3: AdminNetworkPolicy, BaselineAdminNetworkPolicy and
//! ClusterNetworkPolicy; their forms, their limits, what they do not know, and
//! what networks and nodes match. Names are in `s4_names.rs`.

use crate::check::{check, findings, messages};
use crate::world::*;

/// A ClusterNetworkPolicy of the Admin tier, for all pods.
pub(crate) fn admin(fields: &str) -> String {
    cnp("p", &format!("{{tier: Admin, priority: 1, subject: {{namespaces: {{}}}}, {fields}}}"))
}

fn old_admin(fields: &str) -> String {
    anp("p", &format!("{{priority: 1, subject: {{namespaces: {{}}}}, {fields}}}"))
}

#[test]
fn s4_1_an_admin_policys_pods_need_both_selectors() {
    let peer = "pods: {podSelector: {matchLabels: {app: web}}}";
    let rule = format!("egress: [{{action: Allow, to: [{{{peer}}}]}}, {{action: Deny, to: [{{namespaces: {{}}}}]}}]");
    check(world() + &old_admin(&rule), &["ops/tool -> shop/web:1/TCP: deny"]);
    assert!(messages(old_admin(&rule)).contains("namespaceSelector: {}"));
    check(world() + &admin(&rule.replace("Allow", "Accept")), &["ops/tool -> shop/web:1/TCP: allow"]);
    let subject =
        format!("{{priority: 1, subject: {{{peer}}}, egress: [{{action: Deny, to: [{{namespaces: {{}}}}]}}]}}");
    check(world() + &anp("p", &subject), &["ops/tool -> shop/web:1/TCP: deny by AdminNetworkPolicy/p"]);
    check(
        world() + &cnp("p", &subject.replace("{priority", "{tier: Admin, priority")),
        &["ops/tool -> shop/web:1/TCP: allow"],
    );
}

#[test]
fn s4_1_subjects_are_namespaces_or_pods() {
    let deny = "egress: [{action: Deny, to: [{networks: [203.0.113.0/24]}]}]";
    for subject in [
        "namespaces: {matchLabels: {team: shop}}",
        "pods: {namespaceSelector: {matchLabels: {team: shop}}, podSelector: {matchLabels: {app: web}}}",
        "pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}",
    ] {
        let lines = ["shop/web -> 203.0.113.9:1/TCP: deny", "ops/tool -> 203.0.113.9:1/TCP: allow by default"];
        let spec = format!("priority: 1, subject: {{{subject}}}, {deny}");
        check(world() + &anp("p", &format!("{{{spec}}}")), &lines);
        check(world() + &cnp("p", &format!("{{tier: Baseline, {spec}}}")), &lines);
        check(world() + &banp(&format!("{{{}}}", spec.replace("priority: 1, ", ""))), &lines);
    }
}

#[test]
fn s4_1_ports_of_the_first_version() {
    let ports = "[{portNumber: {port: 1}}, {portNumber: {protocol: UDP, port: 2}}, {namedPort: gossip}, \
                 {portRange: {start: 10, end: 12}}, {portRange: {protocol: SCTP, start: 20, end: 20}}]";
    let policy = old_admin(&format!("ingress: [{{action: Deny, from: [{{namespaces: {{}}}}], ports: {ports}}}]"));
    check(
        world() + &policy,
        &[
            "shop/web -> shop/db:1/TCP: deny by AdminNetworkPolicy/p",
            "shop/web -> shop/db:1/UDP: allow by default",
            "shop/web -> shop/db:2/UDP: deny by AdminNetworkPolicy/p",
            "shop/web -> shop/db:2/TCP: allow by default",
            // A named port says no protocol: it is every port of that name.
            "shop/web -> shop/db:7946/UDP: deny by AdminNetworkPolicy/p",
            "shop/web -> shop/db:7947/TCP: deny by AdminNetworkPolicy/p",
            "shop/web -> shop/db:7946/TCP: allow by default",
            "shop/db -> shop/web:7946/UDP: allow by default",
            "shop/web -> shop/db:9/TCP: allow by default",
            "shop/web -> shop/db:10/TCP: deny by AdminNetworkPolicy/p",
            "shop/web -> shop/db:12/TCP: deny by AdminNetworkPolicy/p",
            "shop/web -> shop/db:13/TCP: allow by default",
            "shop/web -> shop/db:20/SCTP: deny by AdminNetworkPolicy/p",
            "shop/web -> shop/db:ICMP: allow by default",
        ],
    );
    let all = old_admin("ingress: [{action: Deny, from: [{namespaces: {}}], ports: []}]");
    check(world() + &all, &["shop/web -> shop/db:ICMP: deny by AdminNetworkPolicy/p"]);
}

#[test]
fn s4_1_protocols_of_the_second_version() {
    let protocols = "[{tcp: {destinationPort: {number: 1}}}, {udp: {destinationPort: {range: {start: 10, end: 12}}}}, \
                     {sctp: {destinationPort: {number: 2}}}, {destinationNamedPort: pg}]";
    let policy = admin(&format!("egress: [{{action: Deny, to: [{{namespaces: {{}}}}], protocols: {protocols}}}]"));
    check(
        world() + &policy,
        &[
            "shop/web -> shop/db:1/TCP: deny by ClusterNetworkPolicy/p",
            "shop/web -> shop/db:1/UDP: allow by default",
            "shop/web -> shop/db:10/UDP: deny by ClusterNetworkPolicy/p",
            "shop/web -> shop/db:12/UDP: deny by ClusterNetworkPolicy/p",
            "shop/web -> shop/db:13/UDP: allow by default",
            "shop/web -> shop/db:11/TCP: allow by default",
            "shop/web -> shop/db:2/SCTP: deny by ClusterNetworkPolicy/p",
            "shop/web -> shop/db:5432/TCP: deny by ClusterNetworkPolicy/p",
            "shop/web -> ops/tool:5432/TCP: allow by default",
            "shop/web -> shop/db:ICMP: allow by default",
        ],
    );
}

#[test]
fn s4_1_each_kind_has_its_own_words_for_actions() {
    let base = |action: &str| {
        banp(&format!("{{subject: {{namespaces: {{}}}}, egress: [{{action: {action}, to: [{{namespaces: {{}}}}]}}]}}"))
    };
    let rule = |action: &str| format!("egress: [{{action: {action}, to: [{{namespaces: {{}}}}]}}]");
    for known in [
        old_admin(&rule("Allow")),
        old_admin(&rule("Pass")),
        admin(&rule("Accept")),
        admin(&rule("Pass")),
        base("Allow"),
    ] {
        assert_eq!(findings(&known), Vec::<String>::new());
        check(world() + &known, &["shop/web -> shop/db:1/TCP: allow"]);
    }
    // A word of another kind is unknown here, and an unknown action denies.
    for unknown in [old_admin(&rule("Accept")), admin(&rule("Allow")), base("Pass"), base("Accept")] {
        let said = findings(&unknown);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("error[bad-action] ") && said[0].contains(" spec.egress[0].action 5:"), "{said:?}");
        check(world() + &unknown, &["shop/web -> shop/db:1/TCP: deny", "shop/web -> 203.0.113.9:1/TCP: deny"]);
    }
}

#[test]
fn s4_1_the_next_version_of_the_same_shape_is_read() {
    let policy = admin("egress: [{action: Deny, to: [{namespaces: {}}]}]").replace("v1alpha2", "v1beta1");
    check(world() + &policy, &["shop/web -> shop/db:1/TCP: deny by ClusterNetworkPolicy/p"]);
    assert_eq!(
        findings(policy.replace("v1beta1", "v1")),
        ["error[unknown-version] ClusterNetworkPolicy p apiVersion 2:1"]
    );
}

/// `most` of something are accepted by the last rule; one more is refused with a word about `path`.
fn check_limit(policy: impl Fn(usize) -> String, most: usize, path: &str) {
    assert_eq!(findings(policy(most)), Vec::<String>::new(), "{path}");
    let said = findings(policy(most + 1));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("error[bad-count] ") && said[0].contains(&format!(" {path} ")), "{said:?}");
    check(world() + &policy(most), &["shop/web -> shop/db:1/TCP: allow by default"]);
    // A Deny that is beyond the limit, or holds too much, denies all.
    check(world() + &policy(most + 1), &["shop/web -> shop/db:1/TCP: deny"]);
}

#[test]
fn s4_1_limits_of_the_second_version() {
    let rule = "{action: Deny, to: [{networks: [203.0.113.0/24]}]}";
    check_limit(|many| admin(&format!("egress: [{}]", times(many, rule))), 25, "spec.egress");
    let rule = "{action: Deny, from: [{namespaces: {matchLabels: {team: none}}}]}";
    check_limit(|many| admin(&format!("ingress: [{}]", times(many, rule))), 25, "spec.ingress");
    let with = |to: String| admin(&format!("egress: [{{action: Deny, {to}}}]"));
    let peer = "{networks: [203.0.113.0/24]}";
    check_limit(|many| with(format!("to: [{}]", times(many, peer))), 25, "spec.egress[0].to");
    check_limit(
        |many| with(format!("to: [{{networks: [{}]}}]", times(many, "203.0.113.0/24"))),
        25,
        "spec.egress[0].to[0].networks",
    );
    let port = "{tcp: {destinationPort: {number: 2}}}";
    check_limit(
        |many| with(format!("to: [{{namespaces: {{}}}}], protocols: [{}]", times(many, port))),
        25,
        "spec.egress[0].protocols",
    );
}

#[test]
fn s4_1_limits_of_the_first_version() {
    let rule = "{action: Deny, to: [{networks: [203.0.113.0/24]}]}";
    let with = |to: String| old_admin(&format!("egress: [{{action: Deny, {to}}}]"));
    check_limit(|many| old_admin(&format!("egress: [{}]", times(many, rule))), 100, "spec.egress");
    check_limit(
        |many| banp(&format!("{{subject: {{namespaces: {{}}}}, egress: [{}]}}", times(many, rule))),
        100,
        "spec.egress",
    );
    let peer = "{networks: [203.0.113.0/24]}";
    check_limit(|many| with(format!("to: [{}]", times(many, peer))), 100, "spec.egress[0].to");
    check_limit(
        |many| with(format!("to: [{{networks: [{}]}}]", times(many, "203.0.113.0/24"))),
        25,
        "spec.egress[0].to[0].networks",
    );
    let port = "{portNumber: {port: 2}}";
    check_limit(
        |many| with(format!("to: [{{namespaces: {{}}}}], ports: [{}]", times(many, port))),
        100,
        "spec.egress[0].ports",
    );
}

#[test]
fn s4_1_an_allow_beyond_the_limit_allows_nothing_and_the_others_stand() {
    let deny = "{action: Deny, to: [{networks: [203.0.113.0/24]}]}";
    let accept = "{action: Accept, to: [{namespaces: {}}]}";
    let base = banp("{subject: {namespaces: {}}, egress: [{action: Deny, to: [{namespaces: {}}]}]}");
    check(
        world() + &base + &admin(&format!("egress: [{}, {accept}]", times(25, deny))),
        &[
            "shop/web -> 203.0.113.9:1/TCP: deny by ClusterNetworkPolicy/p",
            "shop/web -> shop/db:1/TCP: deny by BaselineAdminNetworkPolicy/default",
        ],
    );
}

#[test]
fn s4_2_what_this_version_does_not_know_fails_closed() {
    // The rule in front decides nothing; Baseline would deny and the rule behind would accept.
    let base = banp("{subject: {namespaces: {}}, egress: [{action: Deny, to: [{namespaces: {}}]}]}");
    let unknown = [
        "to: [{serviceAccounts: {}}]",
        "to: [{namespaces: {}, zone: eu}]",
        "to: [{namespaces: {}}], protocols: [{icmp: {}}]",
        "to: [{namespaces: {}}], protocols: [{tcp: {sourcePort: {number: 1}}}]",
        "to: [{namespaces: {}}], protocols: [{tcp: {}}]",
        "to: [{namespaces: {}}], protocols: []",
        "to: [{namespaces: {}}], ports: [{portNumber: {port: 1}}]",
        "to: [{namespaces: {}}], schedule: night",
        "to: [{namespaces: null}]",
        "to: [{namespaces: {}, pods: {}}]",
        "to: [{}]",
        "to: []",
        "ports: []",
    ];
    for clauses in unknown {
        let rule = |action: &str| admin(&format!("egress: [{{action: {action}, {clauses}}}]"));
        check(
            world() + &base + &rule("Accept"),
            &["shop/web -> shop/db:1/TCP: deny by BaselineAdminNetworkPolicy/default"],
        );
        for action in ["Deny", "Pass", "Allow", "accept", "''"] {
            check(
                world() + &rule(action),
                &[
                    "shop/web -> shop/db:1/TCP: deny by ClusterNetworkPolicy/p",
                    "shop/web -> 203.0.113.9:1/UDP: deny by ClusterNetworkPolicy/p",
                    "shop/web -> [2001:db8::9]:ICMP: deny by ClusterNetworkPolicy/p",
                    // In that rule's direction only.
                    "203.0.113.9 -> shop/web:1/TCP: allow by default",
                ],
            );
        }
        assert!(!findings(rule("Accept")).is_empty(), "{clauses}");
    }
}

#[test]
fn s4_2_ingress_knows_no_networks_nodes_or_names() {
    for peer in ["networks: [0.0.0.0/0]", "nodes: {}", "domainNames: [a.example]"] {
        let rule = |action: &str| admin(&format!("ingress: [{{action: {action}, from: [{{{peer}}}]}}]"));
        check(
            world() + &rule("Deny"),
            &[
                "203.0.113.9 -> shop/db:1/TCP: deny by ClusterNetworkPolicy/p",
                "shop/db -> 203.0.113.9:1/TCP: allow by default",
            ],
        );
        let closed = np("db", "{podSelector: {}}");
        check(world() + &rule("Accept") + &closed, &["203.0.113.9 -> shop/db:1/TCP: deny by NetworkPolicy/shop/db"]);
    }
}

#[test]
fn s4_2_an_unknown_rule_ends_nothing_before_it() {
    let rules =
        "{action: Accept, to: [{pods: {podSelector: {matchLabels: {app: db}}}}]}, {action: Pass, to: [{what: {}}]}";
    check(
        world() + &admin(&format!("egress: [{rules}]")),
        &[
            "shop/web -> shop/db:1/TCP: allow by ClusterNetworkPolicy/p",
            "shop/web -> ops/tool:1/TCP: deny by ClusterNetworkPolicy/p",
        ],
    );
}

#[test]
fn s4_3_networks_match_icmp_and_pods_inside_them() {
    check(
        world()
            + &admin(
                "egress: [{action: Deny, to: [{networks: [10.244.2.0/24, 'fd00:244:2::/64', 203.0.113.0/24, '2001:db8::/32']}]}]",
            ),
        &[
            "shop/web -> shop/db:5432/TCP: deny by ClusterNetworkPolicy/p",
            "10.244.1.10 -> 10.244.2.20:ICMP: deny by ClusterNetworkPolicy/p",
            "fd00:244:1::10 -> [fd00:244:2::20]:ICMPv6: deny by ClusterNetworkPolicy/p",
            "shop/web -> 203.0.113.9:ICMP: deny by ClusterNetworkPolicy/p",
            "shop/web -> [2001:db8::9]:1/SCTP: deny by ClusterNetworkPolicy/p",
            "shop/web -> ops/tool:ICMP: allow by default",
        ],
    );
}

#[test]
fn s4_3_nodes_match_every_address_of_the_node_and_host_network_pods_there() {
    let published = "---\napiVersion: namewall.dev/v1alpha1\nkind: NodeAddresses\nmetadata: {name: n2}\naddresses: [172.16.0.2, 'fd99::2']\n";
    for policy in [
        admin("egress: [{action: Deny, to: [{nodes: {matchLabels: {zone: b}}}]}]"),
        old_admin("egress: [{action: Deny, to: [{nodes: {matchLabels: {zone: b}}}]}]"),
    ] {
        check(
            world() + published + &policy,
            &[
                "shop/web -> 192.168.0.2:1/TCP: deny",
                "shop/web -> [fd00:1::2]:1/UDP: deny",
                "shop/web -> 172.16.0.2:ICMP: deny",
                "shop/web -> [fd99::2]:1/SCTP: deny",
                "shop/web -> ops/agent:9100/TCP: deny",
                "shop/web -> shop/db:5432/TCP: allow by default",
                "shop/web -> node/n1:1/TCP: allow by default",
                "shop/web -> 172.16.0.1:1/TCP: allow by default",
            ],
        );
    }
}
