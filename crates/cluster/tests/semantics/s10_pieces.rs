//! One bad piece of an object must not lose the others, nor the object.

use crate::check::{check, findings};
use crate::world::*;

const TEMPLATES: &str = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: a}\n\
    spec: {template: {metadata: {labels: {app: d}}, spec: {containers: [{name: c}]}}}\n\
    ---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: e, namespace: a}\n\
    spec: {template: {metadata: {labels: {app: e}}, spec: {containers: [{name: c}]}}}\n";

#[test]
fn s10_1_a_policy_without_a_name_still_isolates() {
    let policy = np("x", "{podSelector: {}}").replace("name: x, ", "");
    check(world() + &policy, &["ops/tool -> shop/db:1/TCP: deny"]);
    assert!(findings(&policy).iter().any(|said| said.starts_with("error[missing-name]")));
}

#[test]
fn s10_1_a_numeric_namespace_is_the_one_that_was_meant() {
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: '123'}\nstatus: {podIP: 10.244.1.99}\n";
    let policy = np("x", "{podSelector: {}}").replace("namespace: shop", "namespace: 123");
    check(world() + pod + &policy, &["ops/tool -> 123/p:1/TCP: deny by NetworkPolicy/123/x"]);
    assert_eq!(findings(&policy).len(), 1);
}

#[test]
fn s10_1_a_bad_port_does_not_take_the_pod_off_its_node() {
    let pod = pod("shop/odd", "odd", "1.77", "{name: x, containerPort: many}");
    let firewall = cef(
        "f",
        "{priority: 1, nodeSelector: {matchLabels: {zone: a}}, rules: [{action: Deny, to: [{networks: [203.0.113.0/24]}]}]}",
    );
    check(world() + &pod + &firewall, &["shop/odd -> 203.0.113.9:1/TCP: deny by ClusterEgressFirewall/f"]);
}

#[test]
fn s10_1_one_bad_address_of_a_node_does_not_lose_the_others() {
    let odd = node("n3", "zone: c", "3").replace("{type: Hostname, address: n3}", "{type: InternalIP}");
    let firewall = cef("f", "{priority: 1, rules: [{action: Deny, to: [{nodes: {}}]}]}");
    check(world() + &odd + &firewall, &["shop/web -> 192.168.0.3:22/TCP: deny by ClusterEgressFirewall/f"]);
}

#[test]
fn s10_1_a_subject_that_cannot_be_read_keeps_its_denials() {
    let rules = "{action: Deny, to: [{networks: [203.0.113.0/24]}]}, {action: Allow, to: [{networks: [0.0.0.0/0]}]}";
    for subject in ["subject: {foo: {}}", "subject: {}", "nodeSelector: {matchExpressions: [{key: a, operator: is}]}"] {
        let firewall = cef("f", &format!("{{priority: 1, {subject}, rules: [{rules}]}}"));
        let later = cef("later", "{priority: 2, rules: [{action: Deny, to: [{networks: [198.51.100.0/24]}]}]}");
        check(
            world() + &firewall + &later,
            &[
                "shop/web -> 203.0.113.9:1/TCP: deny by ClusterEgressFirewall/f",
                "shop/web -> 198.51.100.9:1/TCP: deny by ClusterEgressFirewall/later",
                "shop/web -> 192.0.2.77:1/TCP: allow by default",
            ],
        );
    }
}

#[test]
fn s10_1_an_isolation_annotation_that_is_no_text_isolates() {
    let odd = namespace("shop", "net.beta.kubernetes.io/network-policy: {ingress: {isolation: DefaultDeny}}");
    check(world().replace(&namespace("shop", ""), &odd), &["ops/tool -> shop/db:1/TCP: deny"]);
}

#[test]
fn s10_2_kinds_a_slip_away_from_a_policy_are_said() {
    for kind in ["networkpolicy", "NetworkPolicies", "Networkpolicy"] {
        let policy = np("x", "{podSelector: {}}").replace("kind: NetworkPolicy", &format!("kind: {kind}"));
        assert_eq!(findings(&policy).len(), 1, "{kind}");
    }
}

#[test]
fn s7_1_a_firewall_for_some_nodes_denies_a_pod_that_may_be_there_and_allows_it_nothing() {
    let nodes = |label: &str| format!("nodeSelector: {{matchLabels: {{{label}}}}}");
    let deny = |label| {
        cef(
            "f",
            &format!(
                "{{priority: 1, {}, rules: [{{action: Deny, to: [{{networks: [203.0.113.0/24]}}]}}]}}",
                nodes(label)
            ),
        )
    };
    check(world() + TEMPLATES + &deny("zone: a"), &["a/d -> 203.0.113.9:1/TCP: deny by ClusterEgressFirewall/f"]);
    check(world() + TEMPLATES + &deny("zone: z"), &["a/d -> 203.0.113.9:1/TCP: allow by default"]);
    let allow = cef(
        "f",
        &format!("{{priority: 1, {}, rules: [{{action: Allow, to: [{{networks: [0.0.0.0/0]}}]}}]}}", nodes("zone: a")),
    );
    let later = cef("later", "{priority: 2, rules: [{action: Deny, to: [{networks: [203.0.113.0/24]}]}]}");
    check(world() + TEMPLATES + &allow + &later, &["a/d -> 203.0.113.9:1/TCP: deny by ClusterEgressFirewall/later"]);
}

#[test]
fn s4_3_no_pod_has_a_reserved_address_or_a_nodes() {
    for to in ["networks: [169.254.169.254/32]", "networks: [127.0.0.0/8, 224.0.0.0/4]", "nodes: {}"] {
        let firewall = cef("f", &format!("{{priority: 1, rules: [{{action: Deny, to: [{{{to}}}]}}]}}"));
        check(TEMPLATES.to_owned() + &firewall, &["a/d -> a/e:80/TCP: allow by default"]);
    }
    // Where it may be, nobody knows: what may cover it denies.
    let firewall = cef("f", "{priority: 1, rules: [{action: Deny, to: [{networks: [10.0.0.0/8]}]}]}");
    check(TEMPLATES.to_owned() + &firewall, &["a/d -> a/e:80/TCP: deny by ClusterEgressFirewall/f"]);
}

#[test]
fn s4_3_an_ipv4_mapped_address_is_the_ipv4_address() {
    let firewall = cef("f", "{priority: 1, rules: [{action: Deny, to: [{networks: [169.254.169.254/32]}]}]}");
    let mapped: std::net::IpAddr = namewall_policy::addr::parse_address("::ffff:169.254.169.254").unwrap();
    check(world() + &firewall, &[&format!("shop/web -> {mapped}:80/TCP: deny by ClusterEgressFirewall/f")]);
}

#[test]
fn s4_1_published_rules_on_ports_and_selectors() {
    for rule in [
        "{action: Accept, to: [{networks: [10.0.0.0/8]}], protocols: [{destinationNamedPort: http}]}",
        "{action: Accept, to: [{nodes: {}}], protocols: [{destinationNamedPort: http}]}",
        "{action: Accept, to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {range: {start: 80, end: 80}}}}]}",
        "{action: Accept, to: [{pods: {namespaceSelector: {}}}]}",
    ] {
        let spec = format!(
            "{{tier: Admin, priority: 1, subject: {{namespaces: {{}}}}, egress: [{rule}, {{action: Deny, to: [{{namespaces: {{}}}}]}}]}}"
        );
        check(world() + &cnp("p", &spec), &["shop/web -> shop/db:80/TCP: deny by ClusterNetworkPolicy/p"]);
        assert_eq!(findings(cnp("p", &spec)).len(), 1, "{rule}");
    }
}

#[test]
fn s10_2_names_that_no_object_can_have_are_said() {
    let policy = np("x", "{podSelector: {}}").replace("name: x", r#"name: "a,b\u001b""#);
    let said = findings(&policy);
    assert!(said.len() == 1 && said[0].starts_with("error[bad-name]"), "{said:?}");
}

#[test]
fn s10_1_a_policy_of_an_unknown_version_isolates_what_it_selects() {
    let np = np("x", "{podSelector: {}, ingress: [{}]}").replace("networking.k8s.io/v1", "networking.k8s.io/v2");
    check(world() + &np, &["ops/tool -> shop/db:1/TCP: deny by NetworkPolicy/shop/x"]);
    let spec =
        "{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Accept, to: [{namespaces: {}}]}]}";
    let cnp = cnp("x", spec).replace("v1alpha2", "v9");
    check(world() + &cnp, &["ops/tool -> shop/db:1/TCP: deny by ClusterNetworkPolicy/x"]);
    assert_eq!((findings(&np).len(), findings(&cnp).len()), (1, 1));
}

#[test]
fn s10_2_a_bare_list_of_objects_is_read() {
    let policy = np("x", "{podSelector: {}}").replace("---\n", "").replace('\n', "\n  ");
    check(world() + "---\n- " + policy.trim_end(), &["ops/tool -> shop/db:1/TCP: deny by NetworkPolicy/shop/x"]);
}
