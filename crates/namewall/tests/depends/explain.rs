//! `explain`.

use super::{CLUSTER, CONDITION, HTTP, TLS, conditions, different_ports, run, with_egress};
use serde_json::Value;

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
