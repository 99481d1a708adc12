//! S10.5 in every view: what depends on something unknown is neither open nor
//! closed, and each format says so.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output, Stdio};

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
    let mut child = Command::new(env!("CARGO_BIN_EXE_namewall"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(args: &[&str]) -> String {
    String::from_utf8(run(args, CLUSTER).stdout).unwrap()
}

fn row(args: &[&str]) -> Value {
    let rows: Value = serde_json::from_slice(&run(args, CLUSTER).stdout).unwrap();
    let of_pair = |row: &&Value| row["from"] == "shop/web" && row["to"] == "shop/db";
    rows.as_array().unwrap().iter().find(of_pair).unwrap().clone()
}

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
