//! What becomes of open connections, named after the promises (S1, S3.4, S6.4).

use expect_test::{Expect, expect};
use namewall_scenario::{Outcome, Scenario, run};
use std::path::Path;

const TOPOLOGY: &str = "
topology:
  namespaces: {shop: {}, old: {}}
  nodes: {n1: {addresses: [172.18.0.2], podCIDRs: [10.244.1.0/24]}}
  pods:
    shop/web: {labels: {app: web}, ips: [10.244.1.10], node: n1}
    shop/api: {labels: {app: api}, ips: [10.244.1.11], node: n1}
    shop/api-2: {labels: {app: api}, ips: [10.244.1.12], node: n1}
    old/db: {labels: {app: db}, ips: [10.244.1.13], node: n1}
  objects:
  - {apiVersion: v1, kind: Service, metadata: {name: api, namespace: shop}, spec: {clusterIP: 10.96.0.1, selector: {app: api}, ports: [{port: 80}]}}
  - {apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.96.0.2, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}}
  - apiVersion: k8s.ovn.org/v1
    kind: EgressFirewall
    metadata: {name: default, namespace: shop}
    spec:
      egress:
      - {type: Allow, to: {dnsName: api.example}}
      - {type: Deny, to: {cidrSelector: 0.0.0.0/0}}
";

const ISOLATE_API: &str = "- apply: {apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: closed, namespace: shop}, spec: {podSelector: {matchLabels: {app: api}}}}";

fn parse(steps: &str) -> Result<Scenario, String> {
    let text = format!("{TOPOLOGY}steps:\n{steps}\n");
    Scenario::parse(&text, "inline", Path::new(".")).map_err(|error| error.to_string())
}

fn play(steps: &str) -> Outcome {
    run(&parse(steps).unwrap_or_else(|error| panic!("{error}")))
}

/// What became of the connections, a line each.
fn check(steps: &str, expected: Expect) {
    let outcome = play(steps);
    let mut told: Vec<String> = outcome.connections.iter().map(|c| format!("{}: {}", c.name, c.got)).collect();
    told.extend(outcome.broken.clone());
    assert_eq!(outcome.passed(), outcome.broken.is_none(), "{told:?}");
    expected.assert_eq(&told.join("\n"));
}

fn refused(steps: &str, expected: Expect) {
    expected.assert_eq(&parse(steps).expect_err("it is refused"));
}

#[test]
fn s3_4_a_policy_that_forbids_a_connection_cuts_it() {
    check(
        &format!(
            "- connect: {{web: shop/web -> shop/api:80/TCP, out: old/db -> 192.0.2.1:53/UDP}}
- connections: {{web: open, out: open}}
{ISOLATE_API}
- connections: {{web: cut, out: open}}
- delete: {{kind: NetworkPolicy, name: closed}}
- connections: {{web: cut}}"
        ),
        expect![[r#"
            web: open
            out: open
            web: cut: shop/api is isolated for ingress by NetworkPolicy/shop/closed, and no rule allows this
            out: open
            web: cut: shop/api is isolated for ingress by NetworkPolicy/shop/closed, and no rule allows this"#]],
    );
}

#[test]
fn s3_4_with_cut_established_off_it_goes_on_until_the_setting_or_the_pod_changes() {
    check(
        &format!(
            "- connect: {{one: shop/web -> shop/api:80/TCP, two: shop/web -> shop/api-2:80/TCP}}
- settings: {{cutEstablished: false}}
{ISOLATE_API}
- connections: {{one: open, two: open}}
- delete: {{kind: Pod, namespace: shop, name: api}}
- connections: {{one: cut, two: open}}
- settings: {{cutEstablished: true}}
- connections: {{two: open}}
- relabel: {{namespace: old, labels: {{any: change}}}}
- connections: {{two: cut}}"
        ),
        expect![[r#"
            one: open
            two: open
            one: cut: the pod shop/api at 10.244.1.11 is gone
            two: open
            two: open
            two: cut: shop/api-2 is isolated for ingress by NetworkPolicy/shop/closed, and no rule allows this"#]],
    );
}

#[test]
fn s3_4_v1beta1_cuts_whatever_the_setting() {
    check(
        r#"- settings: {cutEstablished: false}
- connect: {db: shop/web -> old/db:5432/TCP}
- patch: {kind: Namespace, name: old, with: {metadata: {annotations: {net.beta.kubernetes.io/network-policy: '{"ingress": {"isolation": "DefaultDeny"}}'}}}}
- connections: {db: cut}"#,
        expect!["db: cut: old/db is isolated for ingress by its namespace, and no rule allows this"],
    );
}

#[test]
fn s6_4_an_expired_lease_cuts_nothing_but_a_removed_rule_does() {
    check(
        &format!(
            "- answer: {{name: api.example, addresses: [198.51.100.7], ttl: 1}}
- connect: {{api: 'shop/web -> api.example:443/TCP'}}
- advance: 7s
- probe: [shop/web -> 198.51.100.7:443/TCP: deny]
- connections: {{api: open}}
{ISOLATE_API}
- connections: {{api: open}}
- patch: {{kind: EgressFirewall, name: default, with: {{spec: {{egress: [{{type: Deny, to: {{cidrSelector: 0.0.0.0/0}}}}]}}}}}}
- connections: {{api: cut}}"
        ),
        expect![[r#"
            api: open
            api: open
            api: cut: denied in the namespace gate by EgressFirewall/shop/default egress rule 0"#]],
    );
}

#[test]
fn a_connection_goes_with_its_pod_and_the_next_holder_of_the_address_does_not_inherit_it() {
    check(
        "- connect: {to: shop/web -> old/db:5432/TCP, from: old/db -> shop/web:80/TCP, moves: shop/api -> shop/web:80/TCP}
- apply:
  - {apiVersion: v1, kind: Pod, metadata: {name: db, namespace: old}, spec: {nodeName: n1}, status: {phase: Succeeded, podIP: 10.244.1.13}}
  - {apiVersion: v1, kind: Pod, metadata: {name: next, namespace: old}, spec: {nodeName: n1}, status: {podIP: 10.244.1.13}}
  - {apiVersion: v1, kind: Pod, metadata: {name: api, namespace: shop}, spec: {nodeName: n1}, status: {podIP: 10.244.1.14}}
- connections: {to: cut, from: cut, moves: cut}",
        expect![[r#"
            to: cut: the pod old/db at 10.244.1.13 is gone
            from: cut: the pod old/db at 10.244.1.13 is gone
            moves: cut: the pod shop/api at 10.244.1.11 is gone"#]],
    );
}

#[test]
fn s1_a_connection_keeps_the_backend_it_was_sent_to() {
    check(
        "- connect: {web: shop/api -> shop/Service/web:80/TCP}
- relabel: {pod: shop/web, labels: {app: other}}
- delete: {kind: Service, namespace: shop, name: web}
- connections: {web: open}
- apply: {apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: other, namespace: shop}, spec: {podSelector: {matchLabels: {app: other}}}}
- connections: {web: cut}",
        expect![[r#"
            web: open
            web: cut: shop/web is isolated for ingress by NetworkPolicy/shop/other, and no rule allows this"#]],
    );
}

#[test]
fn what_cannot_be_opened_breaks_the_scenario() {
    let tail = "- connections: {x: open}";
    check(
        &format!("{ISOLATE_API}\n- connect: {{x: shop/web -> shop/api:80/TCP}}\n{tail}"),
        expect![
            "inline:22: the connection `x` cannot be opened: shop/api is isolated for ingress by NetworkPolicy/shop/closed, and no rule allows this"
        ],
    );
    check(
        &format!("- connect: {{x: shop/web -> 10.96.0.1:80/TCP}}\n{tail}"),
        expect![
            "inline:21: the connection `x` cannot be opened: there are 2 ways to go, and nobody can tell which it takes"
        ],
    );
    check(
        &format!("- connect: {{x: shop/web -> shop/nobody:80/TCP}}\n{tail}"),
        expect![
            "inline:21: the connection `x` cannot be opened: there is no workload or Service shop/nobody in the input"
        ],
    );
    check(
        &format!("- connect: {{x: 'old/db -> nobody.example:80/TCP'}}\n{tail}"),
        expect!["inline:21: the connection `x` cannot be opened: an end of it has no address"],
    );
}

#[test]
fn slips_are_told_with_their_place() {
    refused(
        "- connect: shop/web -> shop/api:80/TCP",
        expect!["inline:21:12: connections are a map, like {shopping: shop/web -> shop/api:80/TCP}"],
    );
    refused(
        "- connect: {x: shop/web -> shop/api/ICMP}",
        expect!["inline:21:16: ICMP has no connections to keep; use TCP or UDP"],
    );
    refused("- connect: {x: shop/web to shop/api}", expect!["inline:21:16: `shop/web to shop/api`: write FROM -> TO"]);
    refused(
        "- connect: {x: shop/web -> shop/api}",
        expect!["inline:21:16: `shop/web -> shop/api`: a port is needed, like :443/TCP, or /ICMP"],
    );
    refused(
        "- connect: {x: shop/web -> shop/api:80}\n- connect: {x: shop/web -> shop/api:81}",
        expect!["inline:22:16: there is a connection `x` already"],
    );
    refused("- connections: {x: open}", expect!["inline:21:20: no connection `x` is opened before this (none is)"]);
    refused(
        "- connect: {x: shop/web -> shop/api:80}\n- connections: {z: open}",
        expect!["inline:22:20: no connection `z` is opened before this (known: x)"],
    );
    refused(
        "- connect: {x: shop/web -> shop/api:80}\n- connections: {x: closed}",
        expect!["inline:22:20: a connection is open or cut, not `closed`"],
    );
    refused(
        "- connect: {x: shop/web -> shop/api:80}\n- connections: [x]",
        expect!["inline:22:16: what became of connections is a map, like {shopping: open}"],
    );
    refused("- settings: {cutEstablished: maybe}", expect!["inline:21:30: `cutEstablished` is true or false"]);
    refused(
        "- settings: {}",
        expect![
            "inline:21:13: which setting? There are cutEstablished, onLearnTimeout, holdLimit, minimumTtl, maximumTtl, grace, upstreams, neverLease, nat64Prefix, slowKernel"
        ],
    );
    refused("- connect: {x: shop/web -> shop/api:80}", expect!["inline: there is no probe in it, so it tests nothing"]);
}
