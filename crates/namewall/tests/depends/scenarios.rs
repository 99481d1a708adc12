//! `test`.

use super::{CLUSTER, CONDITION, Folder, NODE_CONDITION, conditions, node_firewall, run};
use serde_json::Value;

fn scenario(folder: &Folder, expected: &str) -> String {
    folder.file("cluster.yaml", CLUSTER);
    let probes = format!("probes:\n- shop/web -> shop/db:80/TCP: {expected}\n- shop/web -> 8.8.8.8:80/TCP: deny\n");
    folder.file("scenario.yaml", &format!("name: depends\ntopology: {{manifests: [cluster.yaml]}}\n{probes}"))
}

#[test]
fn s10_5_a_scenario_fails_on_depends_unless_it_is_expected() {
    let folder = Folder::new("scenario");
    let code = |expected: &str| run(&["test", &scenario(&folder, expected)], "").status.code();
    assert_eq!(["allow", "deny", "depends"].map(code), [Some(1), Some(1), Some(0)]);
}

#[test]
fn s10_5_a_probe_says_what_it_depends_on_in_every_format() {
    for expected in ["allow", "depends"] {
        let folder = Folder::new(&format!("formats-{expected}"));
        let scenario = scenario(&folder, expected);
        for format in ["text", "json", "json2", "junit"] {
            let output = String::from_utf8(run(&["test", "-o", format, &scenario], "").stdout).unwrap();
            assert!(output.contains(CONDITION), "{format}, {expected} is expected: {output}");
        }
        let json: Value = serde_json::from_slice(&run(&["test", "-o", "json", &scenario], "").stdout).unwrap();
        let probes = &json[0]["probes"];
        assert_eq!(conditions(&probes[0]), [CONDITION]);
        assert_eq!(probes[0]["dependsOn"][0]["closed"], serde_json::json!(["8.8.8.8/32"]));
        assert_eq!(probes[1].get("dependsOn"), None);
    }
}

/// A step that needs to know says what it would have to know, and is not taken as if it were closed.
#[test]
fn s10_5_a_step_that_depends_on_something_says_on_what() {
    let folder = Folder::new("steps");
    folder.file("cluster.yaml", &node_firewall("[203.0.113.0/24]"));
    let topology = "topology:\n  manifests: [cluster.yaml]\n  dns: {servers: {203.0.113.53: {}}, zones: {a.example: {A: [198.51.100.7]}}}\n";
    for step in
        ["connect: {c: shop/web -> 203.0.113.9:443/TCP}\n- connections: {c: open}", "resolve: shop/web a.example"]
    {
        let file = folder.file("scenario.yaml", &format!("name: step\n{topology}steps:\n- {step}\n"));
        let output = run(&["test", &file], "");
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains(&format!("it depends: {NODE_CONDITION}")), "{step}: {said}");
        assert_eq!(output.status.code(), Some(1), "{step}");
    }
}
