//! `matrix` in every format.

use super::{
    CONDITION, HTTP, NODE_CONDITION, RELATIVE, TLS, conditions, different_ports, node_firewall, row, row_of, run, text,
    with_egress,
};
use serde_json::Value;

#[test]
fn s10_5_the_matrix_says_depends_in_every_format() {
    let json = row(&["matrix", "-o", "json", "-"]);
    assert_eq!(json["allowed"]["TCP"], serde_json::json!([]));
    assert_eq!(json["depends"]["TCP"], serde_json::json!(["1-65535"]));
    assert_eq!(json["dependsOn"][0]["text"], CONDITION);
    let plain = text(&["matrix", "-"]);
    assert!(plain.contains("depends: everything  shop/web, shop/db\n") && plain.contains(CONDITION), "{plain}");
    assert!(plain.contains("--pod-network"), "{plain}");
    let csv = text(&["matrix", "-o", "csv", "-"]);
    let line = format!("shop/web,Deployment,shop/db,Deployment,,,,1-65535,1-65535,1-65535,{CONDITION}\n");
    assert!(csv.contains(&line), "{csv}");
    let markdown = text(&["matrix", "-o", "md", "-"]);
    assert!(
        markdown.contains("| from | to | TCP | UDP | SCTP | depends on |\n|---|---|---|---|---|---|\n"),
        "{markdown}"
    );
    assert!(markdown.contains("| shop/web | shop/db | ? all | ? all | ? all | 1 |"), "{markdown}");
    assert!(markdown.contains(&format!("\n\nDepends on:\n\n1. {RELATIVE}\n")), "{markdown}");
    assert!(markdown.contains("Hint:") && markdown.contains("--pod-network"), "{markdown}");
    for format in ["svg", "html", "dot"] {
        let picture = text(&["matrix", "-o", format, "-"]);
        assert!(picture.contains("depends"), "{format}: {picture}");
    }
}

#[test]
fn s10_5_a_pod_network_settles_the_matrix() {
    let open = row(&["matrix", "-o", "json", "--pod-network", "10.244.0.0/16", "-"]);
    assert_eq!(open["allowed"]["TCP"], serde_json::json!(["1-65535"]));
    assert_eq!(open.get("depends"), None);
}

#[test]
fn s10_5_each_port_says_what_it_depends_on() {
    let cluster = different_ports();
    let row = row_of(&cluster, &["matrix", "-o", "json", "-"]);
    assert_eq!(row["depends"]["TCP"], serde_json::json!(["80", "443"]));
    assert_eq!(conditions(&row), [format!("TCP 80: {HTTP}"), format!("TCP 443: {TLS}")]);
    assert_eq!(row["dependsOn"][0]["ports"]["TCP"], serde_json::json!(["80"]));
    let plain = String::from_utf8(run(&["matrix", "-"], &cluster).stdout).unwrap();
    assert!(plain.contains(&format!("TCP 80: {HTTP}")) && plain.contains(&format!("TCP 443: {TLS}")), "{plain}");
}

#[test]
fn s10_5_a_filter_by_port_leaves_only_what_that_port_depends_on() {
    let row = row_of(&different_ports(), &["matrix", "-o", "json", "--port", "443", "-"]);
    assert_eq!(conditions(&row), [TLS]);
    assert_eq!(row["dependsOn"][0].get("ports"), None);
}

/// A pod on the network of its node, and one whose node is not known.
const OWN_NODE: &str = "
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: 172.16.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec: {nodeName: n1, hostNetwork: true, containers: []}
status: {podIPs: [{ip: 172.16.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop}
spec: {containers: []}
status: {podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed, namespace: shop}
spec: {podSelector: {}}
";

#[test]
fn s10_5_pods_that_may_share_a_node_say_so() {
    let row = row_of(OWN_NODE, &["matrix", "-o", "json", "-"]);
    let condition = "open only if shop/db runs on the node of shop/web: a node may always reach its own pods";
    assert_eq!(conditions(&row), [condition]);
}

#[test]
fn s10_5_what_is_outside_says_what_it_depends_on() {
    let cluster = node_firewall("[203.0.113.0/24]");
    let relative = NODE_CONDITION.replace("shop/web", "the source");
    for (format, condition) in [
        ("text", NODE_CONDITION),
        ("json", NODE_CONDITION),
        ("csv", NODE_CONDITION),
        ("md", &relative),
        ("svg", &relative),
        ("html", &relative),
        ("dot", &relative),
    ] {
        let output =
            String::from_utf8(run(&["matrix", "--focus", "shop/web", "-o", format, "-"], &cluster).stdout).unwrap();
        assert!(output.contains(condition), "{format}: {output}");
    }
}

/// A name that no rule of a workload speaks of is as open as the outside.
#[test]
fn s10_5_a_name_without_a_rule_depends_as_the_outside_does() {
    let named = "
---
apiVersion: v1
kind: Pod
metadata: {name: other, namespace: bank}
spec: {nodeName: n2, containers: []}
status: {podIPs: [{ip: 10.9.0.1}]}
---
apiVersion: k8s.ovn.org/v1
kind: EgressFirewall
metadata: {name: default, namespace: bank}
spec: {egress: [{type: Allow, to: {dnsName: api.example.com}}]}
";
    let cluster = node_firewall("[0.0.0.0/0, '::/0']") + named;
    let picture = String::from_utf8(run(&["matrix", "-o", "svg", "-"], &cluster).stdout).unwrap();
    let cell = "shop/web → api.example.com: depends: everything (the node that the source runs on decides";
    assert!(picture.contains(cell), "{picture}");
}

/// Pods of one Deployment among themselves are a pair like any other.
#[test]
fn s10_5_a_row_to_itself_is_in_every_format() {
    let plain = text(&["matrix", "--focus", "shop/db", "-"]);
    let own = "shop/db Deployment\n  → depends: everything  shop/web, shop/db\n";
    assert!(plain.contains(own) && plain.contains(CONDITION), "{plain}");
}

/// Nothing depends on anything, so there is nothing to say on what.
#[test]
fn a_table_without_conditions_has_no_column_for_them() {
    let markdown = text(&["matrix", "-o", "md", "--pod-network", "10.244.0.0/16", "-"]);
    assert!(markdown.starts_with("| from | to | TCP | UDP | SCTP |\n|---|---|---|---|---|\n"), "{markdown}");
    assert!(!markdown.contains("Depends on"), "{markdown}");
    let csv = text(&["matrix", "-o", "csv", "--pod-network", "10.244.0.0/16", "-"]);
    let (header, rows) = csv.split_once('\n').unwrap();
    assert!(header.ends_with(",depends_on"), "{header}");
    assert!(rows.lines().all(|row| row.ends_with(',')), "{rows}");
}

/// A bitmap of the graph has no tooltips.
#[test]
fn s10_5_a_graph_says_on_what_in_its_title() {
    let dot = text(&["matrix", "-o", "dot", "-"]);
    assert!(dot.contains(&format!("\\n[1] {RELATIVE}\"; labelloc=t")), "{dot}");
    assert!(dot.contains("label=\"? everything [1]\""), "{dot}");
}

/// A pattern of names is named as it is written, not by a name that it matches.
#[test]
fn s10_5_a_pattern_of_names_says_what_it_depends_on() {
    let cluster = with_egress(
        "  - {name: not-there, action: Deny, to: [{networks: [192.0.2.0/24]}]}
  - {name: names, action: Accept, to: [{domainNames: ['*.example.com']}]}
",
    );
    let condition = "closed only if *.example.com (any subdomain) resolves to an address in 192.0.2.0/24";
    for format in ["text", "json", "csv"] {
        let output = String::from_utf8(run(&["matrix", "-o", format, "-"], &cluster).stdout).unwrap();
        assert!(output.contains(condition), "{format}: {output}");
    }
    let markdown = String::from_utf8(run(&["matrix", "-o", "md", "-"], &cluster).stdout).unwrap();
    assert!(markdown.contains("closed only if the target resolves to an address in 192.0.2.0/24"), "{markdown}");
}

/// A firewall that has no rule for the destination decides nothing about it.
#[test]
fn s10_5_only_the_firewalls_that_decide_are_named() {
    let cluster = node_firewall("[203.0.113.0/24]");
    let (_, firewall) = cluster.rsplit_once("---").unwrap();
    let other = firewall.replace("name: zone-a", "name: elsewhere").replace("203.0.113.0/24", "198.51.100.0/24");
    let output = run(&["matrix", "-o", "json", "-"], &format!("{cluster}---{other}"));
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let is_it = |row: &&Value| row["from"] == "shop/web" && row["to"] == "203.0.113.0-203.0.113.255";
    let row = rows.as_array().unwrap().iter().find(is_it).unwrap();
    assert_eq!(conditions(row), [NODE_CONDITION]);
}
