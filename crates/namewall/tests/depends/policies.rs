//! `policies`.

use super::{node_firewall, run};
use serde_json::Value;

#[test]
fn s10_5_a_firewall_that_may_not_apply_says_so() {
    let cluster = node_firewall("[203.0.113.0/24]");
    let condition = "it applies only if shop/web runs on a node that it is for";
    let text = String::from_utf8(run(&["policies", "shop/web", "-"], &cluster).stdout).unwrap();
    assert!(text.contains(&format!("depends: {condition}")), "{text}");
    let json: Value =
        serde_json::from_slice(&run(&["policies", "shop/web", "-o", "json", "-"], &cluster).stdout).unwrap();
    let policy = &json["stages"][0]["policies"][0];
    assert_eq!(policy["policy"], "ClusterEgressFirewall/zone-a");
    assert_eq!(policy["dependsOn"][0]["text"], condition);
    let placed = cluster.replace("containers: []", "nodeName: n1, containers: []");
    let text = String::from_utf8(run(&["policies", "shop/web", "-"], &placed).stdout).unwrap();
    assert!(text.contains("ClusterEgressFirewall/zone-a") && !text.contains("depends"), "{text}");
}
