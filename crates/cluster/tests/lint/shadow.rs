//! Rules that never take effect because others come first.

use crate::check::{admin, check, check_alone, firewall};
use expect_test::expect;

#[test]
fn shadowed_by_its_own_policy() {
    check(
        &firewall(
            "[{type: Deny, to: {cidrSelector: 0.0.0.0/0}}, {type: Allow, to: {dnsName: api.example.com}}, {type: Allow, to: {cidrSelector: 192.0.2.0/24}}]",
        ),
        expect![[r#"
            warning[shadowed-rule] EgressFirewall shop/default spec.egress[1]: it never takes effect: all it matches is matched before by spec.egress[0] (deny). Move it up or remove it
            warning[shadowed-rule] EgressFirewall shop/default spec.egress[2]: it never takes effect: all it matches is matched before by spec.egress[0] (deny). Move it up or remove it
        "#]],
    );
    // Two halves, and ports in two parts.
    check(
        &admin(
            "a",
            1,
            "[{action: Deny, to: [{networks: [198.18.0.0/16]}], protocols: [{tcp: {destinationPort: {range: {start: 1, end: 100}}}}]},
              {action: Deny, to: [{networks: [198.18.0.0/15]}], protocols: [{tcp: {destinationPort: {range: {start: 80, end: 200}}}}]},
              {action: Accept, to: [{networks: [198.18.1.0/24]}], protocols: [{tcp: {destinationPort: {range: {start: 50, end: 150}}}}]},
              {action: Accept, to: [{networks: [198.19.1.0/24]}], protocols: [{tcp: {destinationPort: {range: {start: 50, end: 150}}}}]}]",
        ),
        expect![[r#"
            warning[shadowed-rule] ClusterNetworkPolicy a spec.egress[2]: it never takes effect: all it matches is matched before by other rules, the first of them spec.egress[0] (deny). Move it up or remove it
        "#]],
    );
    check(
        &admin(
            "a",
            1,
            "[{action: Deny, to: [{namespaces: {matchLabels: {team: shop}}}]},
              {action: Accept, to: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}]},
              {action: Accept, to: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {k8s-app: kube-dns}}}}]}]",
        ),
        expect![[r#"
            warning[shadowed-rule] ClusterNetworkPolicy a spec.egress[1]: it never takes effect: all it matches is matched before by spec.egress[0] (deny). Move it up or remove it
        "#]],
    );
    check(
        &admin(
            "a",
            1,
            "[{action: Accept, to: [{domainNames: ['*.example.com']}]}, {action: Accept, to: [{domainNames: [a.example.com]}]},
              {action: Accept, to: [{domainNames: [example.com]}]}, {action: Deny, to: [{networks: [0.0.0.0/0]}], protocols: [{tcp: {destinationPort: {number: 443}}}]}]",
        ),
        expect![[r#"
            warning[shadowed-rule] ClusterNetworkPolicy a spec.egress[1]: it never takes effect: all it matches is matched before by spec.egress[0] (allow). Move it up or remove it
        "#]],
    );
}

#[test]
fn shadowed_by_a_policy_that_comes_first() {
    let first = admin("first", 1, "[{action: Pass, to: [{networks: [198.18.0.0/15]}]}]");
    let second = admin("second", 2, "[{action: Deny, to: [{networks: [198.18.0.0/16]}]}]");
    check(
        &format!("{second}---{first}"),
        expect![[r#"
            warning[shadowed-rule] ClusterNetworkPolicy second spec.egress[0]: it never takes effect: all it matches is matched before by spec.egress[0] of ClusterNetworkPolicy first (pass). Move it up or remove it
        "#]],
    );
    // Not for all whom the second selects, or only audited: silent.
    let narrower = first.replace("namespaces: {}", "namespaces: {matchLabels: {team: shop}}");
    check(&format!("{second}---{narrower}"), expect![[""]]);
    let audited = first.replace("{name: first}", "{name: first, annotations: {namewall.dev/enforcement: audit}}");
    check(
        &format!("{second}---{audited}"),
        expect![[r#"
        hint[audited] ClusterNetworkPolicy first: it is only audited: what it would deny is reported and let through. Remove the annotation namewall.dev/enforcement to enforce it
    "#]],
    );
}

#[test]
fn shadowed_without_a_cluster() {
    check_alone(
        &firewall("[{type: Deny, to: {cidrSelector: 0.0.0.0/0}}, {type: Allow, to: {dnsName: api.example.com}}]"),
        expect![[r#"
            warning[shadowed-rule] EgressFirewall shop/default spec.egress[1]: it never takes effect: all it matches is matched before by spec.egress[0] (deny). Move it up or remove it
        "#]],
    );
    // Which pods these are nobody knows; only a rule for everyone surely matches them.
    check_alone(
        &admin("a", 1, "[{action: Deny, to: [{networks: [0.0.0.0/0]}]}, {action: Accept, to: [{namespaces: {}}]}]"),
        expect![[""]],
    );
    check_alone(
        &admin(
            "a",
            1,
            "[{action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}, {action: Accept, to: [{namespaces: {}}]}]",
        ),
        expect![[r#"
            warning[shadowed-rule] ClusterNetworkPolicy a spec.egress[1]: it never takes effect: all it matches is matched before by spec.egress[0] (deny). Move it up or remove it
        "#]],
    );
}

#[test]
fn s7_4_a_deny_that_still_works_through_a_service_is_not_shadowed() {
    let gate = "
apiVersion: namewall.dev/v1alpha1
kind: ClusterEgressFirewall
metadata: {name: c}
spec:
  priority: 1
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}
  rules:
  - {action: Allow, to: [{networks: [198.18.0.0/15]}]}
  - {action: Deny, to: [{networks: [198.18.0.0/16]}]}
";
    let service = "
{apiVersion: v1, kind: Service, metadata: {name: ext, namespace: shop}, spec: {clusterIP: 10.96.0.9, ports: [{port: 80}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: ext-1, namespace: shop, labels: {kubernetes.io/service-name: ext}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [198.18.0.1]}]
";
    check(
        gate,
        expect![[r#"
        warning[shadowed-rule] ClusterEgressFirewall c spec.rules[1]: it never takes effect: all it matches is matched before by spec.rules[0] (allow). Move it up or remove it
    "#]],
    );
    check(&format!("{gate}---{service}"), expect![[""]]);
}
