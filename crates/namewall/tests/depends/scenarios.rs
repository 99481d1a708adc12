//! `test`.

use super::{CLUSTER, CONDITION, Folder, conditions, run};
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
