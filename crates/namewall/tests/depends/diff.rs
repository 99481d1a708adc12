//! `diff`.

use super::{CLUSTER, CONDITION, Folder, NODE_CONDITION, RELATIVE, node_firewall, run, with_egress};
use serde_json::{Value, json};

/// The same workloads without any policy.
fn without_policies() -> &'static str {
    CLUSTER.rsplit_once("---").unwrap().0
}

fn diff(old: &str, new: &str, format: &str) -> String {
    let folder = Folder::new("diff");
    let before = folder.file("before.yaml", old);
    let output = run(&["diff", &before, "-", "-o", format], new);
    String::from_utf8(output.stdout).unwrap()
}

fn entry(old: &str, new: &str, ends: [&str; 2]) -> Value {
    let list: Value = serde_json::from_str(&diff(old, new, "json")).unwrap();
    let is_it = |entry: &&Value| entry["from"] == ends[0] && entry["to"] == ends[1];
    list.as_array().unwrap().iter().find(is_it).unwrap_or_else(|| panic!("{list:#}")).clone()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["text"].as_str().unwrap()).collect()
}

#[test]
fn s10_5_a_diff_tells_what_begins_to_depend_and_on_what() {
    let text = diff(without_policies(), CLUSTER, "text");
    assert!(text.contains("~ shop/web -> shop/db: depends: everything [1]  (was everything)\n"), "{text}");
    assert!(text.contains(&format!("\n[1] {RELATIVE}\nhint: ")), "{text}");
    assert!(text.lines().last().unwrap().starts_with("0 added"), "the summary stays the last line: {text}");
    let markdown = diff(without_policies(), CLUSTER, "md");
    assert!(
        markdown.contains("| changed | `shop/web` | `shop/db` | everything | depends: everything [1] |"),
        "{markdown}"
    );
    assert!(markdown.contains(&format!("\n\nDepends on:\n\n1. {RELATIVE}\n\nHint: ")), "{markdown}");
}

#[test]
fn s10_5_a_diff_in_json_has_before_and_after() {
    let entry = entry(without_policies(), CLUSTER, ["shop/web", "shop/db"]);
    assert_eq!(entry["dependsOn"]["before"], json!([]));
    assert_eq!(texts(&entry["dependsOn"]["after"]), [CONDITION]);
    assert_eq!(entry["dependsOn"]["after"][0]["closed"], json!(["8.8.8.8/32"]));
    assert_eq!(entry["dependsOn"]["after"][0]["of"], "shop/db");
    assert_eq!(entry["depends"]["other"], json!({"before": false, "after": true}));
    let entry = self::entry(CLUSTER, without_policies(), ["shop/web", "shop/db"]);
    assert_eq!(texts(&entry["dependsOn"]["before"]), [CONDITION]);
    assert_eq!(entry["dependsOn"]["after"], json!([]));
    let entry = self::entry(without_policies(), CLUSTER, ["shop/web", "8.8.8.8-8.8.8.8"]);
    assert_eq!(entry.get("dependsOn"), None);
}

/// The same connections are in doubt before and after, and what decides about them is another network.
#[test]
fn s10_5_a_diff_tells_that_something_else_decides() {
    let other = CLUSTER.replace("8.8.8.8/32", "10.0.0.0/8");
    let entry = entry(CLUSTER, &other, ["shop/web", "shop/db"]);
    assert_eq!(texts(&entry["dependsOn"]["before"]), [CONDITION]);
    assert_eq!(texts(&entry["dependsOn"]["after"]), [CONDITION.replace("8.8.8.8/32", "10.0.0.0/8")]);
    let text = diff(CLUSTER, &other, "text");
    assert!(text.contains("~ shop/web -> shop/db: depends: everything [2]  (was depends: everything [1])"), "{text}");
    assert_eq!(diff(CLUSTER, CLUSTER, "text"), "The same connections are open before and after.\n");
}

#[test]
fn s10_5_a_diff_says_what_addresses_and_names_outside_depend_on() {
    let firewall = node_firewall("[203.0.113.0/24]");
    let entry = entry(without_policies(), &firewall, ["shop/web", "203.0.113.0-203.0.113.255"]);
    assert_eq!(texts(&entry["dependsOn"]["after"]), [NODE_CONDITION]);
    let named = with_egress(
        "  - {name: not-there, action: Deny, to: [{networks: [192.0.2.0/24]}]}
  - {name: names, action: Accept, to: [{domainNames: ['*.example.com']}]}
",
    );
    let entry = self::entry(without_policies(), &named, ["shop/web", "*.example.com (any subdomain)"]);
    let condition = "closed only if *.example.com (any subdomain) resolves to an address in 192.0.2.0/24";
    assert_eq!(texts(&entry["dependsOn"]["after"]), [condition]);
}
