//! S10.5 in every view: what depends on something unknown is neither open nor
//! closed, and each format says so.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use namewall_testbed::run_with_input;
use serde_json::Value;
use std::process::Output;

const CLUSTER: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {template: {metadata: {labels: {app: web}}, spec: {containers: []}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: db, namespace: shop}
spec: {template: {metadata: {labels: {app: db}}, spec: {containers: []}}}
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: out}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}}
  egress: [{name: no-dns, action: Deny, to: [{networks: [8.8.8.8/32]}]}]
";

const CONDITION: &str = "closed only if pods of shop/db live in 8.8.8.8/32";

fn run(args: &[&str], input: &str) -> Output {
    run_with_input(env!("CARGO_BIN_EXE_namewall"), args, input)
}

fn text(args: &[&str]) -> String {
    String::from_utf8(run(args, CLUSTER).stdout).unwrap()
}

fn row(args: &[&str]) -> Value {
    row_of(CLUSTER, args)
}

fn row_of(cluster: &str, args: &[&str]) -> Value {
    let rows: Value = serde_json::from_slice(&run(args, cluster).stdout).unwrap();
    let of_pair = |row: &&Value| row["from"] == "shop/web" && row["to"] == "shop/db";
    rows.as_array().unwrap().iter().find(of_pair).unwrap().clone()
}

/// What the row or the answer depends on, in words.
fn conditions(value: &Value) -> Vec<&str> {
    let list = value["dependsOn"].as_array().unwrap();
    list.iter().map(|one| one["text"].as_str().unwrap()).collect()
}

/// The same workloads with other rules for what leaves them.
fn with_egress(rules: &str) -> String {
    let (before, _) = CLUSTER.rsplit_once("  egress:").unwrap();
    format!("{before}  egress:\n{rules}")
}

/// Each network opens a port of its own, so no network opens all that any of them does.
fn different_ports() -> String {
    with_egress(
        "  - {name: web, action: Accept, to: [{networks: [10.0.0.0/8]}], protocols: [{tcp: {destinationPort: {number: 80}}}]}
  - {name: tls, action: Accept, to: [{networks: [192.168.0.0/16]}], protocols: [{tcp: {destinationPort: {number: 443}}}]}
  - {name: rest, action: Deny, to: [{networks: [0.0.0.0/0]}]}
",
    )
}

const HTTP: &str = "open only if pods of shop/db live in 10.0.0.0/8";
const TLS: &str = "open only if pods of shop/db live in 192.168.0.0/16";

#[test]
fn s10_5_explain_says_depends_and_on_what() {
    let asked = ["explain", "--from", "shop/web", "--to", "shop/db:80", "-o", "json", "-"];
    let answer: Value = serde_json::from_slice(&run(&asked, CLUSTER).stdout).unwrap();
    assert_eq!(answer["verdict"], "depends");
    assert_eq!(answer["dependsOn"][0]["text"], CONDITION);
    assert_eq!(answer["dependsOn"][0]["closed"], serde_json::json!(["8.8.8.8/32"]));
    for (expected, code) in [("allow", 1), ("deny", 1), ("depends", 0)] {
        let args = ["explain", "--from", "shop/web", "--to", "shop/db:80", "--expect", expected, "-"];
        assert_eq!(run(&args, CLUSTER).status.code(), Some(code), "--expect {expected}");
    }
}

#[test]
fn s10_5_the_matrix_says_depends_in_every_format() {
    let json = row(&["matrix", "-o", "json", "-"]);
    assert_eq!(json["allowed"]["TCP"], serde_json::json!([]));
    assert_eq!(json["depends"]["TCP"], serde_json::json!(["1-65535"]));
    assert_eq!(json["dependsOn"][0]["text"], CONDITION);
    let plain = text(&["matrix", "-"]);
    assert!(plain.contains("depends: everything  shop/db") && plain.contains(CONDITION), "{plain}");
    assert!(plain.contains("--pod-network"), "{plain}");
    let csv = text(&["matrix", "-o", "csv", "-"]);
    assert!(csv.contains("shop/web,Deployment,shop/db,Deployment,,,,1-65535,1-65535,1-65535"), "{csv}");
    let markdown = text(&["matrix", "-o", "md", "-"]);
    assert!(markdown.contains("| shop/web | shop/db | ? all | ? all | ? all |"), "{markdown}");
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
fn s10_5_a_diff_tells_what_begins_to_depend() {
    let folder = std::env::temp_dir().join(format!("namewall-depends-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let before = folder.join("before.yaml");
    std::fs::write(&before, CLUSTER.rsplit_once("---").unwrap().0).unwrap();
    let output = run(&["diff", before.to_str().unwrap(), "-"], CLUSTER);
    std::fs::remove_dir_all(&folder).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("~ shop/web -> shop/db: depends: everything  (was everything)"), "{text}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn s10_5_a_scenario_fails_on_depends_unless_it_is_expected() {
    let folder = std::env::temp_dir().join(format!("namewall-depends-scenario-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("cluster.yaml"), CLUSTER).unwrap();
    let code = |expected: &str| {
        let scenario = format!(
            "name: depends\ntopology: {{manifests: [cluster.yaml]}}\nprobes:\n- shop/web -> shop/db:80/TCP: {expected}\n"
        );
        let file = folder.join("scenario.yaml");
        std::fs::write(&file, scenario).unwrap();
        run(&["test", file.to_str().unwrap()], "").status.code()
    };
    let codes = ["allow", "deny", "depends"].map(code);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(codes, [Some(1), Some(1), Some(0)]);
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

#[test]
fn s10_5_explain_without_a_port_says_what_each_port_depends_on() {
    let cluster = different_ports();
    let asked = ["explain", "--from", "shop/web", "--to", "shop/db"];
    let answer: Value =
        serde_json::from_slice(&run(&[&asked[..], &["-o", "json", "-"]].concat(), &cluster).stdout).unwrap();
    assert_eq!(answer["verdict"], "depends");
    assert_eq!(conditions(&answer), [format!("TCP 80: {HTTP}"), format!("TCP 443: {TLS}")]);
    let plain = String::from_utf8(run(&[&asked[..], &["-"]].concat(), &cluster).stdout).unwrap();
    assert!(plain.contains(&format!("TCP 80: {HTTP}; TCP 443: {TLS}")), "{plain}");
}

#[test]
fn s10_5_explain_with_an_open_port_says_what_the_others_depend_on() {
    let cluster = with_egress(
        "  - {name: no-tls, action: Deny, to: [{networks: [192.168.0.0/16]}], protocols: [{tcp: {destinationPort: {number: 443}}}]}\n",
    );
    let condition = "closed only if pods of shop/db live in 192.168.0.0/16";
    let asked = ["explain", "--from", "shop/web", "--to", "shop/db"];
    let answer: Value =
        serde_json::from_slice(&run(&[&asked[..], &["-o", "json", "-"]].concat(), &cluster).stdout).unwrap();
    assert_eq!(answer["verdict"], "allow");
    assert_eq!(answer["depends"]["TCP"], serde_json::json!(["443"]));
    assert_eq!(conditions(&answer), [condition]);
    let plain = String::from_utf8(run(&[&asked[..], &["-"]].concat(), &cluster).stdout).unwrap();
    assert!(plain.contains("ports that depend: TCP 443\n    closed only if pods"), "{plain}");
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

/// Two nodes, and a firewall for one of them.
fn node_firewall(networks: &str) -> String {
    let (workloads, _) = CLUSTER.rsplit_once("---").unwrap();
    format!(
        "{workloads}---
apiVersion: v1
kind: Node
metadata: {{name: n1, labels: {{zone: a}}}}
---
apiVersion: v1
kind: Node
metadata: {{name: n2, labels: {{zone: b}}}}
---
apiVersion: namewall.dev/v1alpha1
kind: ClusterEgressFirewall
metadata: {{name: zone-a}}
spec:
  priority: 1
  nodeSelector: {{matchLabels: {{zone: a}}}}
  rules: [{{name: rest, action: Deny, to: [{{networks: {networks}}}]}}]
"
    )
}

#[test]
fn s10_5_what_is_outside_says_what_it_depends_on() {
    let cluster = node_firewall("[203.0.113.0/24]");
    let condition = "the node that shop/web runs on decides: ClusterEgressFirewall/zone-a is for certain nodes";
    for format in ["text", "svg", "html", "dot"] {
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
    let cell = "shop/web → api.example.com: depends: everything (the node that shop/web runs on decides";
    assert!(picture.contains(cell), "{picture}");
}
