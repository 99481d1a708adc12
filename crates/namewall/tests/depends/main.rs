//! S10.5 in every view: what depends on something unknown is neither open nor
//! closed, and each format says so, and on what.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod diff;
mod explain;
mod exposure;
mod matrix;
mod policies;
mod scenarios;

use namewall_testbed::run_with_input;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};

const CLUSTER: &str = concat!(
    include_str!("../../../../tests/manifests/deployments.yaml"),
    "apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: out}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}}
  egress: [{name: no-dns, action: Deny, to: [{networks: [8.8.8.8/32]}]}]
"
);
const ZONE_FIREWALL: &str = include_str!("../../../../tests/manifests/zone-firewall.yaml");

const CONDITION: &str = "closed only if pods of shop/db live in 8.8.8.8/32";
/// The same in words that fit every pair.
const RELATIVE: &str = "closed only if pods of the target live in 8.8.8.8/32";

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

/// Two nodes, and a firewall for one of them.
fn node_firewall(networks: &str) -> String {
    let (workloads, _) = CLUSTER.rsplit_once("---").unwrap();
    let rules = format!("  rules: [{{name: rest, action: Deny, to: [{{networks: {networks}}}]}}]\n");
    format!("{workloads}---\n{ZONE_FIREWALL}{rules}")
}

const NODE_CONDITION: &str =
    "the node that shop/web runs on decides: ClusterEgressFirewall/zone-a is for certain nodes";

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        // Tests of one process run beside each other.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("namewall-depends-{name}-{process}-{number}"));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}
