//! S1, its last paragraph: who is exempt. A pod to its own address, pods on
//! their node's network, and what comes from the pod's own node.

use crate::check::check;
use crate::world::*;

/// Every policy kind that could close everything, does.
fn closed() -> String {
    let deny = "action: Deny";
    let all = "networks: [0.0.0.0/0, '::/0']";
    [
        cef("gate", &format!("{{priority: 0, rules: [{{{deny}, to: [{{{all}}}]}}]}}")),
        ef("{type: Deny, to: {cidrSelector: 0.0.0.0/0}}"),
        cnp(
            "admin",
            &format!(
                "{{tier: Admin, priority: 0, subject: {{namespaces: {{}}}}, egress: [{{{deny}, to: [{{{all}}}, {{nodes: {{}}}}]}}], \
                 ingress: [{{{deny}, from: [{{namespaces: {{}}}}]}}]}}"
            ),
        ),
        np("none", "{podSelector: {}, policyTypes: [Ingress, Egress]}"),
        np("none", "{podSelector: {}, policyTypes: [Ingress, Egress]}").replace("namespace: shop", "namespace: ops"),
    ]
    .concat()
}

#[test]
fn s1_a_pod_may_always_reach_its_own_address() {
    check(
        world() + &closed(),
        &[
            "shop/web -> shop/web:8080/TCP: allow by own address",
            "shop/web -> shop/web:ICMP: allow by own address",
            "10.244.1.10 -> 10.244.1.10:8080/UDP: allow by own address",
            "fd00:244:1::10 -> [fd00:244:1::10]:8080/SCTP: allow by own address",
            "shop/web -> shop/db:8080/TCP: deny by ClusterEgressFirewall/gate",
        ],
    );
}

#[test]
fn s1_two_pods_of_one_template_are_not_one_address() {
    let deployment = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api, namespace: shop}\n\
                      spec: {template: {metadata: {labels: {app: api}}}}\n";
    check(
        world() + deployment + &np("none", "{podSelector: {}}"),
        &["shop/api -> shop/api:80/TCP: deny by NetworkPolicy/shop/none"],
    );
}

#[test]
fn s1_host_network_pods_are_no_subjects() {
    check(
        world() + &closed(),
        &[
            "ops/agent -> 203.0.113.9:443/TCP: allow by default",
            "ops/agent -> [2001:db8::9]:443/TCP: allow by default",
            "ops/agent -> node/n1:22/TCP: allow by default",
            "203.0.113.9 -> ops/agent:9100/TCP: allow by default",
            "node/n1 -> ops/agent:9100/TCP: allow by default",
            "ops/agent -> ops/agent:9100/TCP: allow by default",
        ],
    );
}

#[test]
fn s1_host_network_pods_are_no_pod_or_namespace_peers() {
    let by_pod = "{namespaceSelector: {}, podSelector: {matchLabels: {app: agent}}}";
    let allow = |peer: &str| {
        np("web", &format!("{{podSelector: {{matchLabels: {{app: web}}}}, ingress: [{{from: [{peer}]}}]}}"))
    };
    for peer in [by_pod, "{namespaceSelector: {}}", "{namespaceSelector: {matchLabels: {team: ops}}}"] {
        check(world() + &allow(peer), &["ops/agent -> shop/web:8080/TCP: deny by NetworkPolicy/shop/web"]);
    }
    for peer in ["{ipBlock: {cidr: 192.168.0.2/32}}", "{ipBlock: {cidr: 'fd00:1::/64'}}"] {
        check(world() + &allow(peer), &["ops/agent -> shop/web:8080/TCP: allow by NetworkPolicy/shop/web"]);
    }
    let deny = "{tier: Admin, priority: 0, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}], \
                egress: [{action: Deny, to: [{namespaces: {}}]}]}";
    check(
        world() + &cnp("pods", deny),
        &[
            "ops/agent -> shop/web:8080/TCP: allow by default",
            "shop/web -> ops/agent:9100/TCP: allow by default",
            "shop/web -> ops/tool:9100/TCP: deny by ClusterNetworkPolicy/pods",
        ],
    );
}

#[test]
fn s1_host_network_pods_are_node_and_network_peers() {
    let to = |peer: &str| {
        let rule = format!("{{action: Deny, to: [{peer}]}}");
        cnp("out", &format!("{{tier: Admin, priority: 0, subject: {{namespaces: {{}}}}, egress: [{rule}]}}"))
    };
    for peer in ["{nodes: {matchLabels: {zone: b}}}", "{networks: [192.168.0.0/16, 'fd00:1::2/128']}"] {
        check(world() + &to(peer), &["shop/web -> ops/agent:9100/TCP: deny by ClusterNetworkPolicy/out"]);
    }
    check(world() + &to("{nodes: {matchLabels: {zone: a}}}"), &["shop/web -> ops/agent:9100/TCP: allow by default"]);
}

#[test]
fn s1_what_comes_from_the_pods_own_node_is_never_stopped() {
    check(
        world() + &closed(),
        &[
            "node/n2 -> shop/db:5432/TCP: allow by own node",
            "192.168.0.2 -> 10.244.2.20:ICMP: allow by own node",
            "fd00:1::2 -> [fd00:244:2::20]:5432/TCP: allow by own node",
            "ops/agent -> shop/db:5432/TCP: allow by own node",
            "node/n1 -> shop/db:5432/TCP: deny by NetworkPolicy/shop/none",
            "fd00:1::1 -> [fd00:244:2::20]:5432/TCP: deny by NetworkPolicy/shop/none",
            "ops/agent -> shop/web:8080/TCP: deny by NetworkPolicy/shop/none",
        ],
    );
}

#[test]
fn s1_the_own_node_is_known_by_every_address_that_its_agent_publishes() {
    let published = "---\napiVersion: namewall.dev/v1alpha1\nkind: NodeAddresses\nmetadata: {name: n2}\naddresses: [10.244.2.1, 'fe80::2']\n";
    check(
        world() + published + &closed(),
        &[
            "10.244.2.1 -> shop/db:5432/TCP: allow by own node",
            "10.244.2.1 -> shop/web:8080/TCP: deny by NetworkPolicy/shop/none",
        ],
    );
}

#[test]
fn s1_there_is_no_egress_exemption_towards_the_own_node() {
    let isolated = np("web", "{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}");
    let nodes = "{tier: Admin, priority: 0, subject: {namespaces: {}}, egress: [{action: Deny, to: [{nodes: {}}]}]}";
    check(world() + &isolated, &["shop/web -> node/n1:10250/TCP: deny by NetworkPolicy/shop/web"]);
    check(
        world() + &cnp("out", nodes),
        &[
            "shop/web -> node/n1:10250/TCP: deny by ClusterNetworkPolicy/out",
            "10.244.1.10 -> 192.168.0.1:ICMP: deny by ClusterNetworkPolicy/out",
            "shop/db -> ops/agent:9100/TCP: deny by ClusterNetworkPolicy/out",
        ],
    );
}

#[test]
fn s1_own_node_means_nothing_where_the_node_is_not_known() {
    let pod = pod("shop/lost", "lost", "1.77", "").replace("nodeName: n1, ", "");
    check(
        world() + &pod + &np("none", "{podSelector: {}}"),
        &[
            "node/n1 -> shop/lost:80/TCP: deny by NetworkPolicy/shop/none",
            "203.0.113.9 -> shop/lost:80/TCP: deny by NetworkPolicy/shop/none",
        ],
    );
}
