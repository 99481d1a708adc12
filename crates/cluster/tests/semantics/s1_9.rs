//! S1.9: an address needs proof. Only `status.podIPs` makes an address a pod's; the annotation of second networks, which
//! everyone with the right to patch a pod can write, does not.

use crate::check::{Cluster, check};
use crate::world::*;
use namewall_cluster::Settings;
use namewall_policy::lease::{NeverLeased, Refusal};

/// The pod, with these addresses in the annotation of second networks.
fn claiming(pod: &str, addresses: &str) -> String {
    let status = format!(r#"k8s.v1.cni.cncf.io/network-status: '[{{"name": "lan", "ips": [{addresses}]}}]'"#);
    pod.replace("labels:", &format!("annotations: {{{status}}}, labels:"))
}

/// The cluster, where a pod of shop claims these addresses before all others.
fn claimed(addresses: &str) -> String {
    claiming(&pod("shop/a-claimant", "web", "1.99", ""), addresses) + &world()
}

const NODE: &str = r#""192.168.0.1", "fd00:1::1""#;

#[test]
fn s1_9_a_claimed_nodes_address_is_not_the_pods_own() {
    let deny = cef("f", "{priority: 5, rules: [{action: Deny, to: [{nodes: {}}]}]}");
    check(
        claimed(NODE) + &deny,
        &[
            "shop/a-claimant -> 192.168.0.1:22/TCP: deny by ClusterEgressFirewall/f",
            "shop/a-claimant -> [fd00:1::1]:22/TCP: deny by ClusterEgressFirewall/f",
            "ops/tool -> node/n1:22/TCP: deny by ClusterEgressFirewall/f",
        ],
    );
}

#[test]
fn s7_4_a_claimed_nodes_address_is_no_pod_behind_a_service() {
    let service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: ext, namespace: shop}\nspec: {type: NodePort, ports: [{port: 80, nodePort: 30080}]}\n\
                   ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: ext-1, namespace: shop, labels: {kubernetes.io/service-name: ext}}\n\
                   endpoints: [{addresses: [192.168.0.1]}]\nports: [{port: 22}]\n";
    let deny = cef("f", "{priority: 5, rules: [{action: Deny, to: [{nodes: {}}]}]}");
    let yaml = claimed(NODE) + service + &deny;
    check(
        &yaml,
        &[
            "shop/a-claimant -> service/shop/ext:80/TCP: deny by ClusterEgressFirewall/f",
            "ops/tool -> service/shop/ext:80/TCP: deny by ClusterEgressFirewall/f",
            "198.51.100.1 -> service/shop/ext:80/TCP: deny by ClusterEgressFirewall/f",
        ],
    );
    // What `offendingServices` leaves out are backends that are pods.
    let cluster = Cluster::read(yaml, &Settings::default());
    assert_eq!(cluster.program.pod_at("192.168.0.1".parse().unwrap()), None);
}

#[test]
fn s1_9_a_claim_does_not_open_another_pod() {
    let isolated = object("networking.k8s.io/v1 NetworkPolicy", "name: closed, namespace: ops", "{podSelector: {}}");
    let tool = r#""10.244.1.30", "fd00:244:1::30""#;
    check(
        claimed(tool) + &isolated,
        &[
            "shop/web -> ops/tool:1/TCP: deny by NetworkPolicy/ops/closed",
            "shop/web -> 10.244.1.30:1/TCP: deny by NetworkPolicy/ops/closed",
            "shop/web -> [fd00:244:1::30]:1/TCP: deny by NetworkPolicy/ops/closed",
            "shop/a-claimant -> 10.244.1.30:1/TCP: deny by NetworkPolicy/ops/closed",
        ],
    );
}

#[test]
fn s1_9_a_claimed_outside_address_is_not_inside_the_pod_network() {
    let claimed = || claimed(r#""203.0.113.9", "2001:db8::9""#);
    check(
        claimed() + &ef("{type: Deny, to: {cidrSelector: 0.0.0.0/0}}, {type: Deny, to: {cidrSelector: '::/0'}}"),
        &[
            "shop/web -> 203.0.113.9:443/TCP: deny by EgressFirewall/shop/default",
            "shop/web -> [2001:db8::9]:443/TCP: deny by EgressFirewall/shop/default",
            "shop/a-claimant -> 203.0.113.9:443/TCP: deny by EgressFirewall/shop/default",
        ],
    );
    let pods_only = "{priority: 5, subject: {namespaces: {}}, egress: [\
                     {action: Pass, to: [{namespaces: {}}]}, {action: Deny, to: [{networks: [0.0.0.0/0]}]}]}";
    check(
        claimed() + &anp("pods-only", pods_only),
        &["shop/web -> 203.0.113.9:443/TCP: deny by AdminNetworkPolicy/pods-only"],
    );
}

#[test]
fn s6_8_a_claim_closes_no_name_for_others() {
    let never = NeverLeased::new("cluster.local".parse().unwrap());
    let refusal = |cluster: &Cluster, address: &str| {
        never.refusal(&cluster.program, &"api.example.com".parse().unwrap(), address.parse().unwrap())
    };
    let cluster = Cluster::read(claimed(r#""203.0.113.9""#), &Settings::default());
    assert_eq!(refusal(&cluster, "203.0.113.9"), None);
    assert_eq!(refusal(&cluster, "10.244.1.99"), Some(Refusal::Pod));
}

#[test]
fn s1_9_second_addresses_are_kept_apart() {
    let yaml = claimed(r#""172.30.0.88", "10.244.1.99""#);
    let cluster = Cluster::read(&yaml, &Settings::default());
    let pod = cluster.snapshot.workloads.iter().find(|one| &*one.name == "a-claimant").unwrap();
    // The annotation lists the pod's first address too.
    assert_eq!(*pod.second_addresses, ["172.30.0.88".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(pod.addresses.len(), 2);
    // They decide nothing: without the pod's interface, they prove nothing.
    check(
        yaml + &np("all", "{podSelector: {}, policyTypes: [Ingress, Egress]}"),
        &[
            "172.30.0.88 -> 203.0.113.9:1/TCP: allow by default",
            "198.51.100.1 -> 172.30.0.88:1/TCP: allow by default",
            "shop/a-claimant -> 172.30.0.88:1/TCP: deny by NetworkPolicy/shop/all",
        ],
    );
}

// --- Two pods claim one address ---

/// A pod of ops at the address of shop/web. It comes first by its name where pods are sorted.
fn stale() -> String {
    pod("ops/a-stale", "stale", "1.10", "{name: http, containerPort: 9090}")
}

fn in_ops(name: &str, spec: &str) -> String {
    object("networking.k8s.io/v1 NetworkPolicy", &format!("name: {name}, namespace: ops"), spec)
}

const FROM_TOOL: &str = "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: tool}}}]}]}";

#[test]
fn s1_9_a_stale_pod_does_not_open_an_isolated_one() {
    for cluster in [stale() + &world(), world() + &stale()] {
        check(
            cluster + &np("web", FROM_TOOL),
            &[
                "ops/tool -> shop/web:1/TCP: allow by NetworkPolicy/shop/web",
                "ops/tool -> 10.244.1.10:1/TCP: allow by NetworkPolicy/shop/web",
                "ops/tool -> ops/a-stale:1/TCP: allow by NetworkPolicy/shop/web",
                "shop/db -> shop/web:1/TCP: deny by NetworkPolicy/shop/web",
                "shop/db -> 10.244.1.10:1/TCP: deny by NetworkPolicy/shop/web",
                "shop/db -> [fd00:244:1::10]:1/TCP: deny by NetworkPolicy/shop/web",
                "shop/db -> ops/a-stale:1/TCP: deny by NetworkPolicy/shop/web",
                "198.51.100.1 -> 10.244.1.10:1/TCP: deny by NetworkPolicy/shop/web",
            ],
        );
    }
}

#[test]
fn s1_9_both_must_allow() {
    let both = np("web", FROM_TOOL)
        + &in_ops("stale", "{podSelector: {matchLabels: {app: stale}}, ingress: [{ports: [{port: 443}]}]}");
    check(
        world() + &stale() + &both,
        &[
            "ops/tool -> shop/web:443/TCP: allow",
            "ops/tool -> shop/web:80/TCP: deny by NetworkPolicy/ops/stale",
            "shop/db -> shop/web:443/TCP: deny by NetworkPolicy/shop/web",
        ],
    );
    // On the way out, gates and tiers of both.
    let gate = cef(
        "f",
        "{priority: 5, subject: {namespaces: {matchLabels: {team: ops}}}, rules: [{action: Deny, to: [{networks: [203.0.113.0/24]}]}]}",
    );
    let out = gate
        + &np(
            "out",
            "{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 203.0.113.0/24}}, {ipBlock: {cidr: 198.51.100.0/24}}]}]}",
        );
    check(
        world() + &stale() + &out,
        &[
            "shop/web -> 203.0.113.9:1/TCP: deny by ClusterEgressFirewall/f",
            "10.244.1.10 -> 203.0.113.9:1/TCP: deny by ClusterEgressFirewall/f",
            "ops/a-stale -> 192.0.2.1:1/TCP: deny by NetworkPolicy/shop/out",
            "ops/a-stale -> 198.51.100.9:1/TCP: allow",
        ],
    );
}

#[test]
fn s1_9_as_peers_an_allow_must_speak_of_both_and_a_deny_of_one() {
    let from = |app: &str| {
        format!(
            "{{podSelector: {{matchLabels: {{app: db}}}}, ingress: [{{from: [{{namespaceSelector: {{}}, podSelector: {{matchLabels: {{app: {app}}}}}}}]}}]}}"
        )
    };
    let any = np(
        "db",
        "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchExpressions: [{key: app, operator: In, values: [web, stale]}]}}]}]}",
    );
    check(world() + &stale() + &np("db", &from("web")), &["shop/web -> shop/db:1/TCP: deny by NetworkPolicy/shop/db"]);
    check(
        world() + &stale() + &np("db", &from("stale")),
        &["10.244.1.10 -> shop/db:1/TCP: deny by NetworkPolicy/shop/db"],
    );
    check(world() + &stale() + &any, &["shop/web -> shop/db:1/TCP: allow by NetworkPolicy/shop/db"]);
    let admin = |action: &str, more: &str| {
        let peer = "{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: stale}}}}";
        anp(
            "a",
            &format!(
                "{{priority: 5, subject: {{namespaces: {{}}}}, ingress: [{{action: {action}, from: [{peer}]}}{more}]}}"
            ),
        )
    };
    let denied =
        ["shop/web -> shop/db:1/TCP: deny by AdminNetworkPolicy/a", "ops/tool -> shop/db:1/TCP: allow by default"];
    check(world() + &stale() + &admin("Deny", ""), &denied);
    // A Pass of one of them leads past a Deny that is for the other.
    let then_deny = ", {action: Deny, from: [{namespaces: {}}]}";
    check(world() + &stale() + &admin("Pass", then_deny), &denied[..1]);
    check(world() + &stale() + &admin("Allow", then_deny), &denied[..1]);
}

#[test]
fn s1_9_a_port_name_opens_only_what_both_mean_by_it() {
    let http = np("web", "{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: http}]}]}");
    check(
        world() + &stale() + &http,
        &[
            "shop/db -> shop/web:8080/TCP: deny by NetworkPolicy/shop/web",
            "shop/db -> shop/web:9090/TCP: deny by NetworkPolicy/shop/web",
        ],
    );
    let deny = anp(
        "a",
        "{priority: 5, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}], ports: [{namedPort: http}]}]}",
    );
    check(
        world() + &stale() + &deny,
        &[
            "shop/db -> shop/web:8080/TCP: deny by AdminNetworkPolicy/a",
            "shop/db -> shop/web:9090/TCP: deny by AdminNetworkPolicy/a",
            "shop/db -> shop/web:1/TCP: allow by default",
        ],
    );
}

#[test]
fn s1_9_a_pod_that_is_replaced_by_one_like_it_simply_works() {
    let cluster =
        world() + &pod("shop/web-2", "web", "1.10", "{name: http, containerPort: 8080}") + &np("web", FROM_TOOL);
    check(
        &cluster,
        &[
            "ops/tool -> shop/web:8080/TCP: allow by NetworkPolicy/shop/web",
            "shop/db -> shop/web-2:1/TCP: deny by NetworkPolicy/shop/web",
            "shop/web -> shop/db:1/TCP: allow by default",
        ],
    );
    let said = crate::check::findings(&cluster);
    assert!(said.iter().all(|line| line.starts_with("hint[shared-address] Pod shop/web-2 status.podIP")), "{said:?}");
}

#[test]
fn s1_9_shared_addresses_are_reported_and_those_that_do_not_count_are_not() {
    let said = crate::check::messages(world() + &stale());
    assert!(said.contains("error[shared-address]") && said.contains("the policies of both must allow"), "{said}");
    // S2.7: a pod that has ended has no address. Pods on their node's network share it as they should.
    let ended = stale().replace("phase: Running", "phase: Failed");
    let cluster = world() + &ended + &host_pod("ops/other", "agent", "2") + &np("web", FROM_TOOL);
    assert_eq!(crate::check::findings(&cluster), Vec::<String>::new());
    check(cluster, &["ops/tool -> shop/web:1/TCP: allow by NetworkPolicy/shop/web"]);
}

#[test]
fn s6_10_an_address_of_two_pods_learns_only_the_names_of_both() {
    let name = |namespace: &str, name: &str| {
        anp(
            name,
            &format!(
                "{{priority: 5, subject: {{namespaces: {{matchLabels: {{team: {namespace}}}}}}}, egress: [{{action: Allow, to: [{{domainNames: [{name}.example.com, both.example.com]}}]}}]}}"
            ),
        )
    };
    assert_eq!(names_of_shared(name("shop", "one") + &name("ops", "two")), ["both.example.com"]);
}

/// Both must allow, so the Deny of one counts.
#[test]
fn s6_10_an_address_of_two_pods_learns_the_names_that_one_of_them_is_denied() {
    let denies = "
---
{apiVersion: k8s.ovn.org/v1, kind: EgressFirewall, metadata: {name: default, namespace: shop},
 spec: {egress: [{type: Allow, to: {dnsName: one.example.com}}, {type: Deny, to: {dnsName: bad.example.com}}]}}
";
    assert_eq!(names_of_shared(denies.to_owned()), ["bad.example.com"]);
}

/// The names that the address of two pods learns.
fn names_of_shared(policies: String) -> Vec<String> {
    let cluster = Cluster::read(world() + &stale() + &policies, &Settings::default());
    let class = cluster.program.class_at("10.244.1.10".parse().unwrap()).unwrap();
    let names = cluster.program.names_of(class);
    let pattern = |at| cluster.program.patterns.get(namewall_policy::domain::PatternId(at as u32)).to_string();
    names.iter().map(pattern).collect()
}
