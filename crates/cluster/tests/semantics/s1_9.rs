//! S1.9: an address needs proof. Only `status.podIPs` makes an address a pod's; the annotation of second networks, which
//! whoever may patch a pod can write, does not.

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
