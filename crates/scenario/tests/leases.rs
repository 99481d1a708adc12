//! What can be seen of leases offline, named after the promises (S6).

use namewall_scenario::{Scenario, run};
use std::path::Path;

/// A cluster with two subjects behind a deny; only the first has a rule by name.
const TOPOLOGY: &str = "
topology:
  nodes: {n1: {addresses: [192.0.2.1], podCIDRs: [10.0.0.0/24]}}
  pods:
    a/one: {labels: {app: one}, ips: [10.0.0.1], node: n1}
    a/two: {labels: {app: two}, ips: [10.0.0.2], node: n1}
    kube-system/dns: {labels: {app: dns}, ips: [10.0.0.53], node: n1}
  objects:
  - {apiVersion: v1, kind: Service, metadata: {name: svc, namespace: a}, spec: {clusterIP: 10.96.0.9, ports: [{port: 443}]}}
  - apiVersion: policy.networking.k8s.io/v1alpha2
    kind: ClusterNetworkPolicy
    metadata: {name: names}
    spec:
      tier: Admin
      priority: 1
      subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: one}}}}
      egress: [{action: Accept, to: [{domainNames: [api.example, inside.svc.cluster.local]}]}]
  - apiVersion: policy.networking.k8s.io/v1alpha2
    kind: ClusterNetworkPolicy
    metadata: {name: rest}
    spec:
      tier: Admin
      priority: 2
      subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: a}}}
      egress: [{action: Deny, to: [{networks: [0.0.0.0/0]}]}]
";

fn check(steps: &str) {
    let text = format!("{TOPOLOGY}{steps}");
    let scenario = Scenario::parse(&text, "inline", Path::new(".")).unwrap_or_else(|error| panic!("{error}"));
    let outcome = run(&scenario);
    let failed: Vec<String> = outcome
        .probes
        .iter()
        .filter(|probe| !probe.passed)
        .map(|probe| format!("{}: expected {}, got {}", probe.probe.text, probe.probe.expect, probe.got))
        .collect();
    assert!(outcome.passed(), "{failed:#?} {:?}", outcome.broken);
}

#[test]
fn s6_3_a_lease_lasts_its_ttl_and_the_grace_and_zero_counts_as_five_seconds() {
    check(
        "
steps:
- answer: {name: api.example, addresses: [198.51.100.1], ttl: 30}
- answer: {name: api.example, addresses: [198.51.100.2], ttl: 0}
- advance: 9999ms
- probe: [a/one -> 198.51.100.2:443/TCP: allow]
- advance: 1ms
- probe: [a/one -> 198.51.100.2:443/TCP: deny, a/one -> 198.51.100.1:443/TCP: allow]
",
    );
}

#[test]
fn s6_4_when_a_lease_ends_no_new_connection_is_allowed() {
    check(
        "
steps:
- answer: {name: api.example, addresses: [198.51.100.1], ttl: 30}
- advance: 35s
probes: [a/one -> 198.51.100.1:443/TCP: deny by ClusterNetworkPolicy/rest]
",
    );
}

#[test]
fn s6_8_what_is_inside_is_never_leased() {
    for inside in ["127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0", "10.96.0.9", "192.0.2.1", "10.0.0.2"] {
        check(&format!(
            "
steps:
- answer: {{name: api.example, addresses: [\"{inside}\"], ttl: 30}}
probes: [a/one -> {inside}:444/TCP: deny]
"
        ));
    }
    check(
        "
steps:
- answer: {name: inside.svc.cluster.local, addresses: [10.0.0.2], ttl: 30}
probes: [a/one -> 10.0.0.2:444/TCP: allow by ClusterNetworkPolicy/names]
",
    );
}

#[test]
fn s6_9_a_domain_rule_opens_no_dns_server() {
    check("\nprobes: [a/one -> kube-system/dns:53/UDP: deny by ClusterNetworkPolicy/rest]\n");
}

#[test]
fn s6_10_a_lease_opens_nothing_for_another_subject() {
    check(
        "
steps:
- answer: {name: api.example, addresses: [198.51.100.1], ttl: 30}
probes: [a/one -> 198.51.100.1:443/TCP: allow, a/two -> 198.51.100.1:443/TCP: deny]
",
    );
}
