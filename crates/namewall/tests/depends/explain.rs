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

/// A pod that lets in one pod of another node, behind a Service with a node port and a load balancer of mode Proxy.
const BEHIND_A_NODE: &str = r#"
{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {podCIDRs: [10.244.1.0/24]}, status: {addresses: [{type: InternalIP, address: 172.18.0.2}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2}, spec: {podCIDRs: [10.244.2.0/24]}, status: {addresses: [{type: InternalIP, address: 172.18.0.3}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: api, namespace: shop, labels: {app: api}}, spec: {nodeName: n1, containers: []}, status: {podIP: 10.244.1.10, podIPs: [{ip: 10.244.1.10}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: far, namespace: shop}, spec: {nodeName: n2, containers: []}, status: {podIP: 10.244.2.10, podIPs: [{ip: 10.244.2.10}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: api, namespace: shop}, spec: {clusterIP: 10.96.0.1, selector: {app: api}, ports: [{port: 80, nodePort: 30080}]}, status: {loadBalancer: {ingress: [{ip: 198.51.100.2, ipMode: Proxy}]}}}
---
{apiVersion: v1, kind: Service, metadata: {name: out, namespace: shop}, spec: {clusterIP: 10.96.0.2, ports: [{port: 80}]}, status: {loadBalancer: {ingress: [{ip: 198.51.100.3, ipMode: Proxy}]}}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: out, namespace: shop, labels: {kubernetes.io/service-name: out}}, addressType: IPv4, ports: [{port: 80, protocol: TCP}], endpoints: [{addresses: [192.0.2.66]}]}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: api, namespace: shop}, spec: {podSelector: {matchLabels: {app: api}}, ingress: [{from: [{ipBlock: {cidr: 10.244.2.10/32}}, {ipBlock: {cidr: 203.0.113.0/24}}]}]}}
---
{apiVersion: k8s.ovn.org/v1, kind: EgressFirewall, metadata: {name: default, namespace: shop}, spec: {egress: [{type: Deny, to: {cidrSelector: 192.0.2.0/24}}]}}
"#;

#[test]
fn s1_11_what_others_do_on_the_way_has_kinds_of_its_own() {
    let depends_on = |from: &str, to: &str| {
        let asked = ["explain", "--from", from, "--to", to, "-o", "json", "-"];
        let answer: Value = serde_json::from_slice(&run(&asked, BEHIND_A_NODE).stdout).unwrap();
        assert_eq!(answer["verdict"], "depends", "{from} -> {to}: {answer}");
        answer["dependsOn"].clone()
    };
    let by_node = depends_on("shop/far", "172.18.0.3:30080");
    let nat = serde_json::json!({
        "text": "source NAT decides: the address that n2 may put in the place of that of shop/far",
        "on": "sourceNat", "of": "shop/far", "nodes": ["n2"],
    });
    assert_eq!(by_node, serde_json::json!([nat]));
    let kinds = |conditions: Value| {
        let all = conditions.as_array().unwrap().iter().map(|one| format!("{} {}", one["on"], one["of"]));
        all.collect::<Vec<_>>()
    };
    let by_balancer = kinds(depends_on("shop/far", "198.51.100.2:80"));
    assert_eq!(by_balancer, [r#""address" "a host outside""#, r#""sourceNat" "a host outside""#]);
    assert_eq!(kinds(depends_on("shop/far", "198.51.100.3:80")), [r#""loadBalancer" "192.0.2.66""#]);
    // Both halves are shown.
    let asked = ["explain", "--from", "shop/far", "--to", "198.51.100.2:80", "-"];
    let text = String::from_utf8(run(&asked, BEHIND_A_NODE).stdout).unwrap();
    for label in ["load balancer 198.51.100.2", "from the load balancer, Service shop/api to shop/api:80/TCP"] {
        assert!(text.contains(label), "{text}");
    }
}
