//! `matrix --exposure`.

use super::{CLUSTER, conditions, node_firewall, run};
use serde_json::{Value, json};

fn exposure(cluster: &str) -> (Value, String) {
    let json = serde_json::from_slice(&run(&["matrix", "--exposure", "-o", "json", "-"], cluster).stdout).unwrap();
    let text = String::from_utf8(run(&["matrix", "--exposure", "-"], cluster).stdout).unwrap();
    (json, text)
}

fn row<'r>(rows: &'r Value, from: &str, to: &str) -> &'r Value {
    rows.as_array().unwrap().iter().find(|row| row["from"] == from && row["to"] == to).unwrap()
}

#[test]
fn s10_5_exposure_says_what_it_depends_on() {
    let (rows, text) = exposure(CLUSTER);
    let out = row(&rows, "shop/web", "all pods");
    assert_eq!(conditions(out), ["closed only if the new pods live in 8.8.8.8/32"]);
    assert_eq!((&out["dependsOn"][0]["of"], &out["dependsOn"][0]["on"]), (&json!("all pods"), &json!("address")));
    assert_eq!(out["dependsOn"][0]["closed"], json!(["8.8.8.8/32"]));
    assert_eq!(conditions(row(&rows, "all pods", "shop/web")), ["closed only if pods of shop/web live in 8.8.8.8/32"]);
    assert!(
        text.contains("  → depends: everything  new: all pods\n      closed only if the new pods live in 8.8.8.8/32\n"),
        "{text}"
    );
    assert!(text.contains("hint: ") && text.contains("--pod-network"), "{text}");
}

#[test]
fn s10_5_exposure_says_whose_node_decides() {
    let (rows, _) = exposure(&node_firewall("[0.0.0.0/0, '::/0']"));
    let words = "decides: ClusterEgressFirewall/zone-a is for certain nodes";
    assert_eq!(conditions(row(&rows, "shop/web", "all pods")), [format!("the node that shop/web runs on {words}")]);
    assert_eq!(conditions(row(&rows, "all pods", "shop/web")), [format!("the node that the new pods run on {words}")]);
}

/// New pods that depend on different networks fare differently, though the same ports are in doubt.
#[test]
fn s10_5_new_pods_that_depend_on_something_else_have_a_row_of_their_own() {
    let other = "
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: tests}
spec:
  tier: Admin
  priority: 0
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: test}}}}
  egress:
  - {name: no-tests, action: Deny, to: [{networks: [192.168.0.0/16]}]}
  - {name: rest, action: Accept, to: [{networks: [0.0.0.0/0]}]}
";
    let (rows, _) = exposure(&format!("{CLUSTER}{other}"));
    let others = row(&rows, "all other pods", "shop/web");
    assert_eq!(conditions(others), ["closed only if pods of shop/web live in 8.8.8.8/32"]);
    let tests = row(&rows, "pods app=test in all namespaces", "shop/web");
    assert_eq!(others["depends"], tests["depends"]);
    assert_eq!(conditions(tests), ["closed only if pods of shop/web live in 192.168.0.0/16"]);
}

/// Whether a rule by the name of a port opens it depends on where the new pod lives.
#[test]
fn s10_5_named_ports_of_new_pods_say_what_they_depend_on() {
    let (workloads, _) = CLUSTER.rsplit_once("---").unwrap();
    let cluster = format!(
        "{workloads}---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{name: metrics, namespace: shop}}
spec:
  podSelector: {{matchLabels: {{app: web}}}}
  policyTypes: [Egress]
  egress: [{{to: [{{ipBlock: {{cidr: 10.0.0.0/8}}}}], ports: [{{port: metrics}}]}}]
"
    );
    let (rows, text) = exposure(&cluster);
    let out = row(&rows, "shop/web", "all pods");
    assert_eq!(out.get("depends"), None);
    let named = &out["named"][0];
    assert_eq!((&named["name"], &named["protocol"], &named["ports"]), (&json!("metrics"), &json!("TCP"), &json!([])));
    assert_eq!(named["depends"], json!(["1-65535"]));
    assert_eq!(conditions(named), ["open only if the new pods live in 10.0.0.0/8"]);
    assert!(text.contains("depends: TCP port named metrics"), "{text}");
    assert!(text.contains("\n      open only if the new pods live in 10.0.0.0/8\n"), "{text}");
    let filtered = run(&["matrix", "--exposure", "--port", "9090", "-"], &cluster).stdout;
    assert!(String::from_utf8(filtered).unwrap().contains("port named metrics"));
}
