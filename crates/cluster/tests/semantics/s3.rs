//! S3: NetworkPolicy extensions/v1beta1. Of S3.4 only the half that needs no
//! kernel is here.

use crate::check::{check, findings, place};
use crate::world::*;

/// The world, with shop isolated by its annotation.
fn isolated() -> String {
    world().replace(&namespace("shop", ""), &namespace("shop", DEFAULT_DENY))
}

fn db(ingress: &str) -> String {
    old_np("db", &format!("{{podSelector: {{matchLabels: {{app: db}}}}, ingress: [{ingress}]}}"))
}

#[test]
fn s3_1_the_annotation_alone_isolates_every_pod_for_ingress() {
    check(
        isolated(),
        &[
            "shop/web -> shop/db:5432/TCP: deny by Namespace/shop",
            "ops/tool -> shop/web:8080/UDP: deny by Namespace/shop",
            "203.0.113.9 -> shop/web:ICMP: deny by Namespace/shop",
            "2001:db8::9 -> shop/web:1/SCTP: deny by Namespace/shop",
            "node/n2 -> shop/db:5432/TCP: allow by own node",
            "shop/web -> 203.0.113.9:443/TCP: allow by default",
            "shop/web -> ops/tool:80/TCP: allow by default",
        ],
    );
}

#[test]
fn s3_1_a_policy_allows_under_the_annotation() {
    check(
        isolated() + &db("{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 5432}]}"),
        &[
            "shop/web -> shop/db:5432/TCP: allow by NetworkPolicy/shop/db",
            "shop/web -> shop/db:5433/TCP: deny by NetworkPolicy/shop/db",
            "ops/tool -> shop/db:5432/TCP: deny by Namespace/shop",
            "shop/db -> shop/web:8080/TCP: deny by Namespace/shop",
        ],
    );
}

#[test]
fn s3_1_without_the_annotation_the_policies_have_no_effect() {
    // They do not isolate,
    check(world() + &db(""), &["ops/tool -> shop/db:5432/TCP: allow by default"]);
    // and they do not allow what a v1 policy forbids.
    let v1 = np("v1", "{podSelector: {}}");
    check(world() + &db("{}") + &v1, &["ops/tool -> shop/db:5432/TCP: deny by NetworkPolicy/shop/v1"]);
    check(isolated() + &db("{}") + &v1, &["ops/tool -> shop/db:5432/TCP: allow by NetworkPolicy/shop/db"]);
}

#[test]
fn s3_1_annotations_that_do_not_isolate() {
    for json in ["'{}'", r#"'{"ingress": {}}'"#, r#"'{"ingress": null}'"#] {
        let shop = namespace("shop", &format!("net.beta.kubernetes.io/network-policy: {json}"));
        check(
            world().replace(&namespace("shop", ""), &shop) + &db(""),
            &["ops/tool -> shop/db:5432/TCP: allow by default"],
        );
    }
}

#[test]
fn s3_1_an_annotation_that_cannot_be_read_isolates_and_is_said() {
    for json in ["DefaultDeny", "'{'", r#"'{"ingress": {"isolation": "defaultdeny"}}'"#, r#"'{"ingress": true}'"#] {
        let shop = namespace("shop", &format!("net.beta.kubernetes.io/network-policy: {json}"));
        check(
            world().replace(&namespace("shop", ""), &shop),
            &["ops/tool -> shop/db:5432/TCP: deny by Namespace/shop"],
        );
        let at = place(&shop, "annotations");
        assert_eq!(findings(shop), [format!("error[bad-isolation] Namespace shop metadata.annotations {at}")]);
    }
}

#[test]
fn s3_1_the_spec_of_a_namespace_isolates_like_the_annotation() {
    let spec = |policy: &str| {
        world()
            .replace(&namespace("shop", ""), &(namespace("shop", "") + &format!("spec: {{networkPolicy: {policy}}}\n")))
    };
    let deny = "{ingress: {isolation: DefaultDeny}}";
    check(spec(deny), &["ops/tool -> shop/db:1/TCP: deny by Namespace/shop", "shop/db -> ops/tool:1/TCP: allow"]);
    check(spec(deny) + &db("{}"), &["ops/tool -> shop/db:1/TCP: allow", "ops/tool -> shop/web:1/TCP: deny"]);
    for none in ["{}", "null", "{ingress: {}}"] {
        check(spec(none), &["ops/tool -> shop/db:1/TCP: allow"]);
    }
    for bad in ["{ingress: {isolation: Deny}}", "{ingres: {}}", "[]", "DefaultDeny"] {
        check(spec(bad), &["ops/tool -> shop/db:1/TCP: deny by Namespace/shop"]);
        assert!(!findings(spec(bad)).is_empty(), "{bad}");
    }
}

#[test]
fn s3_1_a_misspelt_spec_of_a_namespace_isolates_and_is_said() {
    for key in ["networkpolicy", "networkPolicies", "network-policy"] {
        let spec = format!("spec: {{{key}: {{ingress: {{isolation: DefaultDeny}}}}}}\n");
        let cluster = world().replace(&namespace("shop", ""), &(namespace("shop", "") + &spec));
        check(&cluster, &["ops/tool -> shop/web:1/TCP: deny by Namespace/shop"]);
        assert_eq!(findings(&cluster).len(), 1, "{key}");
    }
}

#[test]
fn s3_1_other_namespaces_are_not_isolated() {
    check(
        isolated(),
        &["shop/web -> ops/tool:80/TCP: allow by default", "203.0.113.9 -> ops/tool:80/TCP: allow by default"],
    );
}

#[test]
fn s3_1_isolation_stands_in_the_network_policy_tier() {
    let admin = "{tier: Admin, priority: 0, subject: {namespaces: {}}, ingress: [{action: Accept, \
                 from: [{namespaces: {matchLabels: {team: ops}}}]}]}";
    let base = "{tier: Baseline, priority: 0, subject: {namespaces: {}}, ingress: [{action: Accept, from: [{namespaces: {}}]}]}";
    check(
        isolated() + &cnp("admin", admin) + &cnp("base", base),
        &[
            "ops/tool -> shop/db:5432/TCP: allow by ClusterNetworkPolicy/admin",
            "shop/web -> shop/db:5432/TCP: deny by Namespace/shop",
        ],
    );
}

#[test]
fn s3_2_present_but_empty_matches_nothing() {
    for rule in
        ["{from: []}", "{ports: []}", "{from: [], ports: [{port: 5432}]}", "{from: [{podSelector: {}}], ports: []}"]
    {
        check(
            isolated() + &db(rule),
            &[
                "shop/web -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db",
                "shop/web -> shop/db:ICMP: deny by NetworkPolicy/shop/db",
            ],
        );
    }
    // v1 says the reverse of the same rule.
    check(
        isolated() + &np("v1", "{podSelector: {}, ingress: [{from: [], ports: []}]}"),
        &["shop/web -> shop/db:5432/TCP: allow by NetworkPolicy/shop/v1"],
    );
}

#[test]
fn s3_2_missing_matches_everything() {
    for rule in ["{}", "{from: null}", "{ports: null, from: null}"] {
        check(
            isolated() + &db(rule),
            &[
                "203.0.113.9 -> shop/db:1/SCTP: allow by NetworkPolicy/shop/db",
                "2001:db8::9 -> shop/db:ICMP: allow by NetworkPolicy/shop/db",
                "shop/db -> shop/web:1/TCP: deny by Namespace/shop",
            ],
        );
    }
    check(
        isolated() + &db("{ports: [{port: pg}, {protocol: UDP}]}"),
        &[
            "203.0.113.9 -> shop/db:5432/TCP: allow by NetworkPolicy/shop/db",
            "203.0.113.9 -> shop/db:9/UDP: allow by NetworkPolicy/shop/db",
            "203.0.113.9 -> shop/db:9/TCP: deny by NetworkPolicy/shop/db",
        ],
    );
    for ingress in ["", "null"] {
        let policy = db("").replace("ingress: []", &format!("ingress: {ingress}"));
        check(isolated() + &policy, &["shop/web -> shop/db:1/TCP: deny by NetworkPolicy/shop/db"]);
    }
}

#[test]
fn s3_3_a_peer_is_one_of_the_two_selectors() {
    check(
        isolated() + &db("{from: [{podSelector: {}}]}"),
        &[
            "shop/web -> shop/db:1/TCP: allow by NetworkPolicy/shop/db",
            "ops/tool -> shop/db:1/TCP: deny by NetworkPolicy/shop/db",
        ],
    );
    check(
        isolated() + &db("{from: [{namespaceSelector: {matchLabels: {team: ops}}}]}"),
        &[
            "shop/web -> shop/db:1/TCP: deny by NetworkPolicy/shop/db",
            "ops/tool -> shop/db:1/TCP: allow by NetworkPolicy/shop/db",
        ],
    );
}

#[test]
fn s3_3_any_other_peer_allows_nothing_and_is_said() {
    let both = "{podSelector: {}, namespaceSelector: {}}";
    for peer in [both, "{}", "{ipBlock: {cidr: 0.0.0.0/0}}", "{podSelector: {}, ipBlock: {cidr: 0.0.0.0/0}}"] {
        let policy = db(&format!("{{from: [{peer}]}}"));
        check(
            isolated() + &policy,
            &[
                "shop/web -> shop/db:1/TCP: deny by NetworkPolicy/shop/db",
                "203.0.113.9 -> shop/db:1/TCP: deny by NetworkPolicy/shop/db",
            ],
        );
        let at = place(&policy, peer);
        assert_eq!(findings(policy), [format!("error[bad-peer] NetworkPolicy shop/db spec.ingress[0].from[0] {at}")]);
    }
}

#[test]
fn s3_3_there_is_no_egress() {
    let policy = db("{}").replace("ingress:", "policyTypes: [Egress], egress: [], ingress:");
    check(
        isolated() + &policy,
        &[
            "shop/db -> 203.0.113.9:443/TCP: allow by default",
            "ops/tool -> shop/db:5432/TCP: allow by NetworkPolicy/shop/db",
        ],
    );
    let (types, egress) = (place(&policy, "policyTypes"), place(&policy, "egress"));
    assert_eq!(
        findings(policy),
        [
            format!("error[unknown-field] NetworkPolicy shop/db spec.policyTypes {types}"),
            format!("error[unknown-field] NetworkPolicy shop/db spec.egress {egress}"),
        ]
    );
}

/// The offline half: the very connection that was allowed is denied under the
/// new policy. That it is cut when it exists takes packets.
#[test]
fn s3_4_a_new_policy_forbids_a_connection_that_was_allowed() {
    let open = isolated() + &db("{}");
    check(&open, &["ops/tool -> shop/db:5432/TCP: allow by NetworkPolicy/shop/db"]);
    let narrowed = isolated() + &db("{from: [{podSelector: {}}]}");
    check(
        &narrowed,
        &[
            "ops/tool -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db",
            "shop/web -> shop/db:5432/TCP: allow by NetworkPolicy/shop/db",
        ],
    );
}
