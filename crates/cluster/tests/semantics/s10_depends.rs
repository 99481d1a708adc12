//! S10.5: what depends on something unknown is neither open nor closed.

use crate::question::{ask, ask_with};
use namewall_cluster::Settings;

const DEPLOYMENTS: &str = include_str!("../../../../tests/manifests/deployments.yaml");
const ZONE_FIREWALL: &str = include_str!("../../../../tests/manifests/zone-firewall.yaml");

fn egress(rules: &str) -> String {
    format!(
        "{DEPLOYMENTS}
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {{name: out}}
spec:
  tier: Admin
  priority: 1
  subject: {{namespaces: {{}}}}
  egress: {rules}
---
"
    )
}

const DENY_ONE: &str = "[{name: no-dns, action: Deny, to: [{networks: [8.8.8.8/32]}]}]";

#[test]
fn s10_5_one_denied_address_closes_no_pair_of_deployments() {
    let depends = "depends: closed only if pods of shop/db live in 8.8.8.8/32";
    assert_eq!(ask(&egress(DENY_ONE), "shop/web -> shop/db:5432"), depends);
}

#[test]
fn s10_5_pod_networks_settle_it() {
    let settings = |network: &str| Settings { pod_networks: vec![network.parse().unwrap()], ..Settings::default() };
    let cluster = egress(DENY_ONE);
    assert_eq!(ask_with(&cluster, "shop/web -> shop/db:5432", &settings("10.244.0.0/16")), "allow");
    assert_eq!(ask_with(&cluster, "shop/web -> shop/db:5432", &settings("8.8.8.8/32")), "deny");
    let node = "
apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {podCIDR: 10.244.1.0/24}
";
    assert_eq!(ask(&format!("{cluster}{node}"), "shop/web -> shop/db:5432"), "allow");
}

#[test]
fn s10_5_several_rules_may_cover_every_address_together() {
    let halves = "[{name: low, action: Deny, to: [{networks: [0.0.0.0/1]}]}, {name: high, action: Deny, to: [{networks: [128.0.0.0/1]}]}]";
    assert_eq!(ask(&egress(halves), "shop/web -> shop/db:5432"), "deny");
    let private = "[{name: pods, action: Accept, to: [{networks: [10.0.0.0/8]}]}, {name: rest, action: Deny, to: [{networks: [0.0.0.0/0]}]}]";
    let depends = "depends: open only if pods of shop/db live in 10.0.0.0/8";
    assert_eq!(ask(&egress(private), "shop/web -> shop/db:5432"), depends);
}

#[test]
fn s10_5_a_name_that_is_not_resolved_depends_on_its_address() {
    let isolated = format!(
        "{DEPLOYMENTS}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{name: out, namespace: shop}}
spec:
  podSelector: {{}}
  policyTypes: [Egress]
  egress: [{{to: [{{ipBlock: {{cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}}}]}}]
"
    );
    let depends = "depends: closed only if api.example.com resolves to an address in 10.0.0.0/8";
    assert_eq!(ask(&isolated, "shop/web -> api.example.com:443"), depends);
    assert_eq!(ask(&isolated, "shop/web -> api.example.com:443 with api.example.com=203.0.113.1"), "allow");
    assert_eq!(ask(&isolated, "shop/web -> api.example.com:443 with api.example.com=10.9.9.9"), "deny");
}

#[test]
fn s10_5_a_firewall_for_certain_nodes_depends_on_the_node() {
    let firewall = format!(
        "{DEPLOYMENTS}{ZONE_FIREWALL}
  rules:
  - {{name: ok, action: Allow, to: [{{networks: [203.0.113.0/24]}}]}}
  - {{name: rest, action: Deny, to: [{{networks: [0.0.0.0/0]}}]}}
"
    );
    let depends = "depends: the node that shop/web runs on decides: ClusterEgressFirewall/zone-a is for certain nodes";
    assert_eq!(ask(&firewall, "shop/web -> 198.51.100.1:443"), depends);
    assert_eq!(ask(&firewall, "shop/web -> 203.0.113.9:443"), "allow");
}

#[test]
fn s10_5_a_node_may_reach_its_own_pods() {
    let isolated = format!(
        "{DEPLOYMENTS}
apiVersion: v1
kind: Node
metadata: {{name: n1}}
status: {{addresses: [{{type: InternalIP, address: 172.16.0.1}}]}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{name: closed, namespace: shop}}
spec: {{podSelector: {{}}}}
"
    );
    let depends = "depends: open only if shop/db runs on node n1 (172.16.0.1): a node may always reach its own pods";
    assert_eq!(ask(&isolated, "172.16.0.1 -> shop/db:5432"), depends);
    assert_eq!(ask(&isolated, "shop/web -> shop/db:5432"), "deny");
}
