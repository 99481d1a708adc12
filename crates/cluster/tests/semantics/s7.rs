//! S7: ClusterEgressFirewall. S7.5 is status, which has tests of its own.

use crate::check::{Cluster, check, findings, messages, place};
use crate::world::*;
use expect_test::expect;
use namewall_cluster::Settings;

/// A firewall with these rules for all pods.
fn rules(rules: &str) -> String {
    cef("f", &format!("{{priority: 5, rules: [{rules}]}}"))
}

const DENY: &str = "{action: Deny, to: [{networks: [203.0.113.0/24, '2001:db8::/32']}]}";
const DENIED: &str = "shop/web -> 203.0.113.9:1/TCP: deny by ClusterEgressFirewall/f";

#[test]
fn s7_1_all_pods_unless_a_subject_is_given() {
    for subject in ["", "subject: null, "] {
        check(
            world() + &cef("f", &format!("{{priority: 0, {subject}rules: [{DENY}]}}")),
            &[
                DENIED,
                "shop/web -> [2001:db8::9]:ICMPv6: deny by ClusterEgressFirewall/f",
                "ops/tool -> 203.0.113.9:1/UDP: deny by ClusterEgressFirewall/f",
                "ops/tool -> 198.51.100.9:1/UDP: allow by default",
            ],
        );
    }
    let pods = "subject: {pods: {podSelector: {matchLabels: {app: web}}}}";
    check(
        world() + &cef("f", &format!("{{priority: 1000, {pods}, rules: [{DENY}]}}")),
        &[DENIED, "shop/db -> 203.0.113.9:1/TCP: allow by default"],
    );
}

#[test]
fn s7_1_a_node_selector_means_pods_on_those_nodes() {
    let on_b = "nodeSelector: {matchLabels: {zone: b}}";
    check(
        world() + &cef("f", &format!("{{priority: 0, {on_b}, rules: [{DENY}]}}")),
        &[
            "shop/db -> 203.0.113.9:1/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> 203.0.113.9:1/TCP: allow by default",
        ],
    );
    let ops = "subject: {namespaces: {matchLabels: {team: ops}}}";
    check(
        world()
            + &pod("ops/far", "far", "2.31", "")
            + &cef("f", &format!("{{priority: 0, {ops}, {on_b}, rules: [{DENY}]}}")),
        &[
            "ops/far -> 203.0.113.9:1/TCP: deny by ClusterEgressFirewall/f",
            "ops/tool -> 203.0.113.9:1/TCP: allow by default",
            "shop/db -> 203.0.113.9:1/TCP: allow by default",
        ],
    );
    for everywhere in ["nodeSelector: {}", "nodeSelector: null"] {
        check(world() + &cef("f", &format!("{{priority: 0, {everywhere}, rules: [{DENY}]}}")), &[DENIED]);
    }
}

#[test]
fn s7_1_ports_by_number_range_and_protocol() {
    let ports = "[{port: 443}, {protocol: UDP, port: 50, endPort: 52}, {protocol: SCTP}]";
    check(
        world()
            + &rules(&format!(
                "{{name: web, action: Deny, to: [{{networks: [203.0.113.0/24]}}, {{networks: ['2001:db8::/32']}}], ports: {ports}}}"
            )),
        &[
            "shop/web -> 203.0.113.9:443/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> [2001:db8::9]:443/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> 203.0.113.9:443/UDP: allow by default",
            "shop/web -> 203.0.113.9:49/UDP: allow by default",
            "shop/web -> 203.0.113.9:50/UDP: deny by ClusterEgressFirewall/f",
            "shop/web -> 203.0.113.9:52/UDP: deny by ClusterEgressFirewall/f",
            "shop/web -> 203.0.113.9:53/UDP: allow by default",
            "shop/web -> 203.0.113.9:65535/SCTP: deny by ClusterEgressFirewall/f",
            "shop/web -> 203.0.113.9:ICMP: allow by default",
        ],
    );
}

#[test]
fn s7_1_names_are_accepted_with_allow_only() {
    let rest = "{action: Deny, to: [{networks: [0.0.0.0/0]}]}";
    let allow =
        rules(&format!("{{action: Allow, to: [{{domainNames: [a.example]}}], ports: [{{port: 443}}]}}, {rest}"));
    Cluster::read(world() + &allow, &Settings::default()).lease("a.example", "203.0.113.9").check(&[
        "shop/web -> 203.0.113.9:443/TCP: allow by default",
        "shop/web -> 203.0.113.9:80/TCP: deny by ClusterEgressFirewall/f",
        "shop/web -> 203.0.113.10:443/TCP: deny by ClusterEgressFirewall/f",
    ]);
    let deny = rules("{action: Deny, to: [{domainNames: [a.example]}]}");
    check(world() + &deny, &["shop/web -> 198.51.100.9:1/TCP: deny by ClusterEgressFirewall/f"]);
    expect![[r#"
        all.yaml:5:44: error[bad-domain-rule] ClusterEgressFirewall f spec.rules[0].to: domainNames are accepted only in Allow rules: nobody knows every address of a name, so it cannot be denied safely
    "#]]
    .assert_eq(&messages(deny));
}

#[test]
fn s7_1_objects_are_added_and_removed_independently() {
    let one = cef("one", "{priority: 1, rules: [{action: Deny, to: [{networks: [203.0.113.0/24]}]}]}");
    let two = cef("two", "{priority: 1, rules: [{action: Deny, to: [{networks: [198.51.100.0/24]}]}]}");
    let (first, second) = ("shop/web -> 203.0.113.9:1/TCP", "shop/web -> 198.51.100.9:1/TCP");
    let (allow, by_one, by_two) =
        ("allow by default", "deny by ClusterEgressFirewall/one", "deny by ClusterEgressFirewall/two");
    for (yaml, a, b) in [
        (one.clone() + &two, by_one, by_two),
        (one, by_one, allow),
        (two, allow, by_two),
        (String::new(), allow, allow),
    ] {
        check(world() + &yaml, &[&format!("{first}: {a}"), &format!("{second}: {b}")]);
    }
}

#[test]
fn s7_1_a_priority_out_of_range_fails_closed() {
    for priority in [
        "priority: -1, ",
        "priority: 1001, ",
        "priority: high, ",
        "priority: '5', ",
        "priority: 1.5, ",
        "priority: null, ",
        "",
    ] {
        let with = |rule: &str| cef("f", &format!("{{{priority}rules: [{rule}]}}"));
        check(world() + &with(DENY), &["shop/web -> 198.51.100.9:1/TCP: deny by ClusterEgressFirewall/f"]);
        let later = cef("later", &format!("{{priority: 9, rules: [{DENY}]}}"));
        let allow = with("{action: Allow, to: [{networks: [0.0.0.0/0]}]}");
        // S10.1: an object that cannot be read isolates what it selects.
        check(world() + &allow + &later, &["shop/web -> 203.0.113.9:1/TCP: deny by ClusterEgressFirewall/f"]);
        let said = findings(&allow);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("error[bad-priority] ClusterEgressFirewall f spec"), "{said:?}");
    }
}

#[test]
fn s7_1_a_rule_that_cannot_be_read_fails_closed() {
    for clauses in [
        "to: [{}]",
        "to: []",
        "name: x",
        "to: [{networks: []}]",
        "to: [{networks: [203.0.113.0]}]",
        "to: [{networks: [203.0.113.0/24], nodes: {}}]",
        "to: [{apiServer: null}]",
        "to: [{apiServer: {port: 6443}}]",
        "to: [{pods: {}}]",
        "to: [{networks: [203.0.113.0/24]}], ports: []",
        "to: [{networks: [203.0.113.0/24]}], ports: [{port: http}]",
        "to: [{networks: [203.0.113.0/24]}], ports: [{endPort: 5}]",
        "to: [{networks: [203.0.113.0/24]}], ports: [{protocol: ICMP}]",
        "to: [{networks: [203.0.113.0/24]}], port: [{port: 1}]",
    ] {
        let deny = rules(&format!("{{action: Deny, {clauses}}}"));
        check(
            world() + &deny,
            &[
                "shop/web -> 198.51.100.9:7/TCP: deny by ClusterEgressFirewall/f",
                "shop/web -> shop/db:ICMP: deny by ClusterEgressFirewall/f",
            ],
        );
        assert!(!findings(&deny).is_empty(), "{clauses}");
        let allow = rules(&format!("{{action: Allow, {clauses}}}, {DENY}"));
        check(world() + &allow, &[DENIED, "shop/web -> 198.51.100.9:7/TCP: allow by default"]);
    }
    // Pass is no word of this kind.
    for action in ["Pass", "allow", "Accept"] {
        let rule = rules(&format!("{{action: {action}, to: [{{networks: [203.0.113.0/24]}}]}}"));
        check(world() + &rule, &["shop/web -> 198.51.100.9:7/TCP: deny by ClusterEgressFirewall/f"]);
        assert_eq!(
            findings(&rule),
            [format!("error[bad-action] ClusterEgressFirewall f spec.rules[0].action {}", place(&rule, "action"))]
        );
    }
}

#[test]
fn s7_2_nodes_covers_every_address_that_the_agent_published() {
    let published = |name: &str, addresses: &str| {
        format!(
            "---\napiVersion: namewall.dev/v1alpha1\nkind: NodeAddresses\nmetadata: {{name: {name}}}\naddresses: [{addresses}]\n"
        )
    };
    let all =
        published("n1", "192.168.0.1, 10.244.1.1, 172.17.0.1, 'fd99::1', 'fe80::1'") + &published("n9", "172.17.0.9");
    check(
        world() + &all + &rules("{action: Deny, to: [{nodes: {}}]}"),
        &[
            "shop/web -> 192.168.0.1:1/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> [fd00:1::1]:1/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> 10.244.1.1:ICMP: deny by ClusterEgressFirewall/f",
            "shop/web -> 172.17.0.1:1/UDP: deny by ClusterEgressFirewall/f",
            "shop/web -> [fd99::1]:1/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> [fe80::1]:1/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> 192.168.0.2:1/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> ops/agent:9100/TCP: deny by ClusterEgressFirewall/f",
            // A node that nobody described has no labels, and `{}` asks for none.
            "shop/web -> 172.17.0.9:1/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> 172.17.0.2:1/TCP: allow by default",
            "shop/web -> shop/db:1/TCP: allow by default",
        ],
    );
    check(
        world() + &all + &rules("{action: Deny, to: [{nodes: {matchLabels: {zone: a}}}]}"),
        &[
            "shop/web -> 172.17.0.1:1/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> 172.17.0.9:1/TCP: allow by default",
        ],
    );
}

fn kubernetes(namespace: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: kubernetes, namespace: {namespace}}}\n\
         spec: {{clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, 'fd96::1'], ports: [{{name: https, port: 443, targetPort: 6443}}]}}\n\
         ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: kubernetes-x, namespace: {namespace}, labels: {{kubernetes.io/service-name: kubernetes}}}}\n\
         endpoints: [{{addresses: [172.20.0.5, 172.20.0.6]}}, {{addresses: [172.20.0.7]}}]\nports: [{{name: https, port: 6443}}]\n\
         ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: kubernetes-y, namespace: {namespace}, labels: {{kubernetes.io/service-name: kubernetes}}}}\n\
         addressType: IPv6\nendpoints: [{{addresses: ['fd20::5']}}]\nports: [{{name: https, port: 6443}}]\n"
    )
}

#[test]
fn s7_3_the_api_server_is_its_cluster_ips_its_endpoints_and_what_settings_add() {
    let deny = rules("{action: Deny, to: [{apiServer: {}}]}");
    let settings = ["198.51.100.77:6443", "198.51.100.78:8443"].map(|text| text.parse().unwrap());
    let settings = Settings { api_server: settings.into(), ..Settings::default() };
    Cluster::read(world() + &kubernetes("default") + &deny, &settings).check(&[
        "shop/web -> 10.96.0.1:443/TCP: deny by ClusterEgressFirewall/f",
        "shop/web -> [fd96::1]:443/TCP: deny by ClusterEgressFirewall/f",
        "shop/web -> 172.20.0.5:6443/TCP: deny by ClusterEgressFirewall/f",
        // On its own ports alone: these hosts are more than the API server.
        "shop/web -> 10.96.0.1:6443/TCP: allow by default",
        "shop/web -> 172.20.0.6:443/TCP: allow by default",
        "shop/web -> 172.20.0.6:22/TCP: allow by default",
        "shop/web -> 172.20.0.5:6443/UDP: allow by default",
        "shop/web -> 172.20.0.7:ICMP: allow by default",
        "shop/web -> [fd20::5]:6443/TCP: deny by ClusterEgressFirewall/f",
        "shop/web -> 198.51.100.77:6443/TCP: deny by ClusterEgressFirewall/f",
        "shop/web -> 198.51.100.77:8443/TCP: allow by default",
        "shop/web -> 198.51.100.78:8443/TCP: deny by ClusterEgressFirewall/f",
        "shop/web -> 198.51.100.78:6443/TCP: allow by default",
        "shop/web -> service/default/kubernetes:443/TCP: deny by ClusterEgressFirewall/f",
        "shop/web -> 172.20.0.8:6443/TCP: allow by default",
        "ops/agent -> 172.20.0.5:6443/TCP: allow by default",
    ]);
}

#[test]
fn s7_3_an_allow_of_the_api_server_opens_its_ports_alone() {
    // The node that runs it has an sshd and a kubelet.
    let slice = "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: kubernetes, namespace: default, \
                 labels: {kubernetes.io/service-name: kubernetes}}\nendpoints: [{addresses: [192.168.0.1]}]\nports: [{port: 6443}]\n";
    let only_api = rules(
        "{action: Allow, to: [{apiServer: {}}, {networks: [203.0.113.9/32]}]}, {action: Deny, to: [{networks: [0.0.0.0/0]}]}",
    );
    check(
        world() + slice + &only_api,
        &[
            "shop/web -> 192.168.0.1:6443/TCP: allow by default",
            "shop/web -> 192.168.0.1:22/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> 192.168.0.1:10250/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> 203.0.113.9:22/TCP: allow by default",
        ],
    );
    // The rule's own ports narrow it further.
    let on = |port: u16| rules(&format!("{{action: Deny, to: [{{apiServer: {{}}}}], ports: [{{port: {port}}}]}}"));
    check(world() + slice + &on(6443), &["shop/web -> 192.168.0.1:6443/TCP: deny by ClusterEgressFirewall/f"]);
    check(
        world() + slice + &on(22),
        &["shop/web -> 192.168.0.1:22/TCP: allow by default", "shop/web -> 192.168.0.1:6443/TCP: allow by default"],
    );
}

/// A server on a node listens at all of the node's addresses.
#[test]
fn s7_3_a_deny_of_the_api_server_covers_every_address_of_its_node() {
    let slice = "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: kubernetes, namespace: default, \
                 labels: {kubernetes.io/service-name: kubernetes}}\nendpoints: [{addresses: [192.168.7.1]}]\nports: [{port: 6443}]\n";
    let nodes = "---\n{apiVersion: v1, kind: Node, metadata: {name: api}, status: {addresses: [\
                 {type: InternalIP, address: 192.168.7.1}, {type: InternalIP, address: 'fd00:7::1'}, \
                 {type: ExternalIP, address: 198.51.100.70}]}}\n\
                 ---\n{apiVersion: v1, kind: Node, metadata: {name: other}, status: {addresses: [\
                 {type: InternalIP, address: 192.168.7.2}]}}\n";
    let deny = rules("{action: Deny, to: [{apiServer: {}}]}");
    check(
        world() + slice + nodes + &deny,
        &[
            "shop/web -> 192.168.7.1:6443/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> 198.51.100.70:6443/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> [fd00:7::1]:6443/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> [fe80::1]:6443/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> 198.51.100.70:22/TCP: allow by default",
            "shop/web -> 192.168.7.2:6443/TCP: allow by default",
        ],
    );
    // An Allow speaks of what is surely the API server.
    let allow = rules("{action: Allow, to: [{apiServer: {}}]}, {action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}");
    check(
        world() + slice + nodes + &allow,
        &[
            "shop/web -> 192.168.7.1:6443/TCP: allow by default",
            "shop/web -> 198.51.100.70:6443/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> [fe80::1]:6443/TCP: deny by ClusterEgressFirewall/f",
        ],
    );
}

#[test]
fn s7_3_only_the_service_in_default_is_the_api_server() {
    check(
        world() + &kubernetes("shop") + &rules("{action: Deny, to: [{apiServer: {}}]}"),
        &["shop/web -> 10.96.0.1:443/TCP: allow by default", "shop/web -> 172.20.0.5:6443/TCP: allow by default"],
    );
    let endpoints = "---\napiVersion: v1\nkind: Service\nmetadata: {name: kubernetes}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 443}]}\n\
                     ---\napiVersion: v1\nkind: Endpoints\nmetadata: {name: kubernetes}\nsubsets: [{addresses: [{ip: 172.20.0.5}], ports: [{port: 6443}]}]\n";
    check(
        world() + endpoints + &rules("{action: Deny, to: [{apiServer: {}}], ports: [{port: 6443}]}"),
        &[
            "shop/web -> 172.20.0.5:6443/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> 172.20.0.5:22/TCP: allow by default",
        ],
    );
}

#[test]
fn s7_6_host_network_pods_are_not_blocked() {
    check(
        world() + &rules("{action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}, {nodes: {}}]}"),
        &[
            DENIED,
            "ops/agent -> 203.0.113.9:1/TCP: allow by default",
            "ops/agent -> [2001:db8::9]:1/TCP: allow by default",
            "ops/agent -> node/n1:1/TCP: allow by default",
            "ops/agent -> shop/web:1/TCP: allow by default",
            "node/n1 -> 203.0.113.9:1/TCP: allow by default",
        ],
    );
}

fn published(name: &str, addresses: &str) -> String {
    format!(
        "---\napiVersion: namewall.dev/v1alpha1\nkind: NodeAddresses\nmetadata: {{name: {name}}}\naddresses: [{addresses}]\n"
    )
}

#[test]
fn s7_2_a_deny_covers_loopback_and_link_local_of_the_nodes() {
    check(
        world() + &rules("{action: Deny, to: [{nodes: {matchLabels: {zone: a}}}]}"),
        &[
            "shop/web -> 127.0.0.1:1/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> 127.0.0.53:53/UDP: deny by ClusterEgressFirewall/f",
            "shop/web -> [::1]:1/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> [fe80::ecee:eeff:feee:eeee]:1/TCP: deny by ClusterEgressFirewall/f",
            // IPv4 link-local addresses are a node's only where it has them: others are the cloud's.
            "shop/web -> 169.254.20.10:53/UDP: allow by default",
            "shop/web -> 192.168.0.2:1/TCP: allow by default",
        ],
    );
    check(
        world() + &published("n1", "169.254.20.10") + &rules("{action: Deny, to: [{nodes: {}}]}"),
        &["shop/web -> 169.254.20.10:53/UDP: deny by ClusterEgressFirewall/f"],
    );
    check(
        world() + &rules("{action: Deny, to: [{nodes: {matchLabels: {zone: none}}}]}"),
        &["shop/web -> 127.0.0.1:1/TCP: allow by default", "shop/web -> [fe80::1]:1/TCP: allow by default"],
    );
}

#[test]
fn s7_2_an_allow_does_not_cover_what_others_may_have() {
    let all = published("n1", "172.17.0.1, 169.254.20.10, 'fe80::1', 127.0.0.1")
        + &published("n2", "172.17.0.1, 172.18.0.2, 'fe80::1', 127.0.0.1");
    let allow = |nodes: &str| {
        rules(&format!(
            "{{action: Allow, to: [{{nodes: {nodes}}}]}}, {{action: Deny, to: [{{networks: [0.0.0.0/0, '::/0']}}]}}"
        ))
    };
    check(
        world() + &all + &allow("{matchLabels: {zone: a}}"),
        &[
            "shop/web -> 192.168.0.1:1/TCP: allow by default",
            "shop/web -> 169.254.20.10:53/UDP: allow by default",
            // Also n2's: nothing says which of the two it is.
            "shop/web -> 172.17.0.1:1/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> 172.18.0.2:1/TCP: deny by ClusterEgressFirewall/f",
        ],
    );
    check(
        world() + &all + &allow("{}"),
        &[
            "shop/web -> 172.17.0.1:1/TCP: allow by default",
            // Every machine on the link may have these, pods among them.
            "shop/web -> [fe80::1]:1/TCP: deny by ClusterEgressFirewall/f",
            "shop/web -> 127.0.0.1:1/TCP: deny by ClusterEgressFirewall/f",
        ],
    );
    // A pod that has a node's address is not let in for the node.
    check(
        world() + &published("n1", "10.244.2.20") + &allow("{}"),
        &["shop/web -> 10.244.2.20:1/TCP: deny by ClusterEgressFirewall/f"],
    );
}

#[test]
fn s7_2_the_own_node_is_not_known_by_an_address_that_several_have() {
    let all =
        published("n1", "172.17.0.1, 'fe80::1', 127.0.0.1") + &published("n2", "172.17.0.1, 'fe80::1', 127.0.0.1");
    let closed = np("none", "{podSelector: {}, policyTypes: [Ingress]}");
    check(
        world() + &all + &closed,
        &[
            "192.168.0.2 -> shop/db:1/TCP: allow by own node",
            "172.17.0.1 -> shop/db:1/TCP: deny by NetworkPolicy/shop/none",
            "fe80::1 -> shop/db:1/TCP: deny by NetworkPolicy/shop/none",
            "127.0.0.1 -> shop/db:1/TCP: deny by NetworkPolicy/shop/none",
        ],
    );
    // One that only one node has, but that a pod may have too.
    check(
        world() + &published("n2", "'fe80::2'") + &closed,
        &["fe80::2 -> shop/db:1/TCP: deny by NetworkPolicy/shop/none"],
    );
}
