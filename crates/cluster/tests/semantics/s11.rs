//! S11: policies that are only audited are evaluated and reported, and change
//! nothing.

use crate::check::{check, findings, place};
use crate::world::*;

#[test]
fn s11_1_an_audited_policy_of_any_kind_is_reported_and_not_enforced() {
    let subject = "subject: {namespaces: {}}";
    let deny = "egress: [{action: Deny, to: [{networks: [203.0.113.0/24, '2001:db8::/32']}]}]";
    let policies = [
        (
            "ClusterEgressFirewall/p",
            cef("p", "{priority: 1, rules: [{action: Deny, to: [{networks: [203.0.113.0/24, '2001:db8::/32']}]}]}"),
        ),
        (
            "EgressFirewall/shop/default",
            ef("{type: Deny, to: {cidrSelector: 203.0.113.0/24}}, {type: Deny, to: {cidrSelector: '2001:db8::/32'}}"),
        ),
        ("ClusterNetworkPolicy/p", cnp("p", &format!("{{tier: Admin, priority: 1, {subject}, {deny}}}"))),
        ("ClusterNetworkPolicy/p", cnp("p", &format!("{{tier: Baseline, priority: 1, {subject}, {deny}}}"))),
        ("AdminNetworkPolicy/p", anp("p", &format!("{{priority: 1, {subject}, {deny}}}"))),
        ("BaselineAdminNetworkPolicy/default", banp(&format!("{{{subject}, {deny}}}"))),
        (
            "NetworkPolicy/shop/p",
            np("p", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 198.51.100.0/24}}]}]}"),
        ),
    ];
    for (name, policy) in policies {
        let denied = format!("shop/web -> 203.0.113.9:1/TCP: deny by {name}");
        check(world() + &policy, &[&denied, "shop/web -> 198.51.100.9:1/TCP: allow"]);
        for yaml in [annotated(&policy, "audit"), annotated(&policy, "'audit'")] {
            assert_eq!(findings(&yaml), Vec::<String>::new());
            check(
                world() + &yaml,
                &[
                    &format!("shop/web -> 203.0.113.9:1/TCP: allow by default, would deny by {name}"),
                    &format!("shop/web -> [2001:db8::9]:ICMPv6: allow by default, would deny by {name}"),
                    "shop/web -> 198.51.100.9:1/TCP: allow by default",
                    "203.0.113.9 -> shop/web:1/TCP: allow by default",
                ],
            );
        }
    }
}

#[test]
fn s11_1_ingress_is_audited_too() {
    let policy = np("db", "{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 5432}]}]}");
    check(
        world() + &annotated(&policy, "audit"),
        &[
            "ops/tool -> shop/db:5432/TCP: allow by default",
            "ops/tool -> shop/db:22/TCP: allow by default, would deny by NetworkPolicy/shop/db",
            "203.0.113.9 -> shop/db:22/TCP: allow by default, would deny by NetworkPolicy/shop/db",
            "node/n2 -> shop/db:22/TCP: allow by own node",
            "shop/db -> shop/db:22/TCP: allow by own address",
        ],
    );
}

#[test]
fn s11_1_all_others_stay_enforced() {
    let audited = annotated(&np("audited", "{podSelector: {}, policyTypes: [Ingress, Egress]}"), "audit");
    let enforced = np("enforced", "{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 5432}]}]}");
    check(
        world() + &audited + &enforced,
        &[
            "ops/tool -> shop/db:5432/TCP: allow by NetworkPolicy/shop/enforced",
            "ops/tool -> shop/db:22/TCP: deny by NetworkPolicy/shop/enforced",
            "ops/tool -> shop/web:22/TCP: allow by default, would deny by NetworkPolicy/shop/audited",
            "shop/web -> shop/db:5432/TCP: allow by NetworkPolicy/shop/enforced, would deny by NetworkPolicy/shop/audited",
        ],
    );
}

#[test]
fn s11_1_what_an_audited_policy_allows_opens_nothing() {
    let closed = np("closed", "{podSelector: {}}");
    let open = np("open", "{podSelector: {}, ingress: [{}]}");
    let line = "ops/tool -> shop/db:22/TCP: deny by NetworkPolicy/shop/closed";
    check(world() + &closed + &annotated(&open, "audit"), &[line]);
    let accept = cnp(
        "open",
        "{tier: Admin, priority: 0, subject: {namespaces: {}}, ingress: [{action: Accept, from: [{namespaces: {}}]}]}",
    );
    check(world() + &closed + &annotated(&accept, "audit"), &[line]);
    let gate = cef("open", "{priority: 0, rules: [{action: Allow, to: [{networks: [203.0.113.9/32]}]}]}");
    let edge = cef("edge", "{priority: 1, rules: [{action: Deny, to: [{networks: [203.0.113.0/24]}]}]}");
    check(
        world() + &annotated(&gate, "audit") + &edge,
        &["shop/web -> 203.0.113.9:1/TCP: deny by ClusterEgressFirewall/edge"],
    );
    let isolated = world().replace(&namespace("shop", ""), &namespace("shop", DEFAULT_DENY));
    check(
        isolated + &annotated(&old_np("old", "{podSelector: {}, ingress: [{}]}"), "audit"),
        &["ops/tool -> shop/db:22/TCP: deny by Namespace/shop"],
    );
}

#[test]
fn s11_1_isolation_by_an_audited_policy_does_not_hide_baseline() {
    let base = banp(
        "{subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}], ports: [{portNumber: {port: 1}}]}]}",
    );
    let audited = annotated(&np("audited", "{podSelector: {}, ingress: [{ports: [{port: 1}]}]}"), "audit");
    check(
        world() + &base + &audited,
        &[
            "ops/tool -> shop/db:1/TCP: deny by BaselineAdminNetworkPolicy/default",
            "ops/tool -> shop/db:2/TCP: allow by default, would deny by NetworkPolicy/shop/audited",
        ],
    );
}

#[test]
fn s11_1_audited_policies_are_judged_together() {
    let one = annotated(&np("one", "{podSelector: {}, ingress: [{ports: [{port: 1}]}]}"), "audit");
    let two = annotated(&np("two", "{podSelector: {}, ingress: [{ports: [{port: 2}]}]}"), "audit");
    check(
        world() + &one + &two,
        &[
            "ops/tool -> shop/db:1/TCP: allow by default",
            "ops/tool -> shop/db:2/TCP: allow by default",
            "ops/tool -> shop/db:3/TCP: allow by default, would deny by NetworkPolicy/shop/one",
            "ops/tool -> shop/db:3/TCP: allow by default, would deny by NetworkPolicy/shop/two",
        ],
    );
}

#[test]
fn s11_1_audit_and_nothing_else_means_audit() {
    let policy = np("db", "{podSelector: {matchLabels: {app: db}}}");
    let denied = "ops/tool -> shop/db:22/TCP: deny by NetworkPolicy/shop/db";
    check(world() + &annotated(&policy, "enforce"), &[denied]);
    assert_eq!(findings(annotated(&policy, "enforce")), Vec::<String>::new());
    for value in ["Audit", "AUDIT", "' audit'", "'off'", "warn", "''", "dryrun"] {
        let yaml = annotated(&policy, value);
        check(world() + &yaml, &[denied]);
        assert_eq!(
            findings(&yaml),
            [format!(
                "error[bad-enforcement] NetworkPolicy shop/db metadata.annotations {}",
                place(&yaml, "annotations")
            )]
        );
    }
    // Not even text: the annotations cannot be read, so they say nothing.
    for value in ["true", "5"] {
        let yaml = annotated(&policy, value);
        check(world() + &yaml, &[denied]);
        assert!(!findings(&yaml).is_empty());
    }
}

#[test]
fn s11_1_unreadable_rules_of_an_audited_policy_are_audited_too() {
    let broken =
        cnp("p", "{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{what: {}}]}]}");
    check(
        world() + &annotated(&broken, "audit"),
        &["shop/web -> 203.0.113.9:1/TCP: allow by default, would deny by ClusterNetworkPolicy/p"],
    );
}
