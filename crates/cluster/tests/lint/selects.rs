//! Selectors and rules that match nobody.

use crate::check::{check, check_alone, firewall, ingress, v1beta1};
use expect_test::expect;

#[test]
fn selects_nothing() {
    check(
        &ingress("{podSelector: {matchLabels: {app: wbe}}}"),
        expect![[r#"
        warning[selects-nothing] NetworkPolicy shop/p spec.podSelector: it selects no pod now: no pod in shop matches app=wbe. Check the selector against the labels that are there
    "#]],
    );
    check(
        &ingress(
            "{podSelector: {}, ingress: [{from: [
              {podSelector: {matchLabels: {app: web}}},
              {namespaceSelector: {matchLabels: {team: sohp}}},
              {namespaceSelector: {matchLabels: {team: shop}}, podSelector: {matchLabels: {app: gone}}}]}]}",
        ),
        expect![[r#"
            warning[selects-nothing] NetworkPolicy shop/p spec.ingress[0]: one of its peers matches nobody now: no namespace matches team=sohp. Check the selector against the labels that are there
            warning[selects-nothing] NetworkPolicy shop/p spec.ingress[0]: one of its peers matches nobody now: no pod in the namespaces team=shop matches app=gone. Check the selector against the labels that are there
        "#]],
    );
    check(
        &firewall("[{type: Deny, to: {nodeSelector: {matchLabels: {zone: b}}}}]"),
        expect![[r#"
            warning[selects-nothing] EgressFirewall shop/default spec.egress[0]: the rule matches nobody now: no node matches zone=b. Check the selector against the labels that are there
        "#]],
    );
    check(
        "
apiVersion: namewall.dev/v1alpha1
kind: ClusterEgressFirewall
metadata: {name: c}
spec: {priority: 1, nodeSelector: {matchLabels: {zone: b}}, rules: [{action: Deny, to: [{networks: [198.18.0.0/15]}]}]}
",
        expect![[r#"
            warning[selects-nothing] ClusterEgressFirewall c spec.nodeSelector: it selects no pod now: no node matches zone=b. Check the selector against the labels that are there
        "#]],
    );
}

#[test]
fn selects_something() {
    check(
        &ingress(
            "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}, {namespaceSelector: {}}]}]}",
        ),
        expect![[""]],
    );
    check(&firewall("[{type: Deny, to: {nodeSelector: {matchLabels: {zone: a}}}}]"), expect![[""]]);
}

#[test]
fn nothing_is_said_of_selectors_without_a_cluster() {
    check_alone(
        &ingress(
            "{podSelector: {matchLabels: {app: x}}, ingress: [{from: [{podSelector: {matchLabels: {a: b}}}], ports: [{port: http}]}]}",
        ),
        expect![[""]],
    );
    check_alone(&firewall("[{type: Deny, to: {nodeSelector: {matchLabels: {zone: b}}}}]"), expect![[""]]);
}

#[test]
fn never_matches() {
    check(
        &ingress(
            "{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.0/25, 192.0.2.128/25]}}]}]}",
        ),
        expect![[r#"
            warning[never-matches] NetworkPolicy shop/p spec.ingress[0]: the rule matches nobody now: the holes of 192.0.2.0/24 leave nothing of it. Make them smaller, or remove the rule
        "#]],
    );
    check(
        &ingress("{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.0/25]}}]}]}"),
        expect![[""]],
    );
    check(
        &v1beta1("[{from: []}, {ports: []}]"),
        expect![[r#"
            hint[migrate-v1beta1] NetworkPolicy old/p: extensions/v1beta1 is gone from Kubernetes; move to networking.k8s.io/v1. Mind that an empty `from` or `ports` matches nothing here and everything there, and that there the policy itself isolates what it selects, not the namespace's annotation
            warning[never-matches] NetworkPolicy old/p spec.ingress[0]: an empty `from` matches nothing in extensions/v1beta1; leave it out to match everything, or remove the rule
            warning[never-matches] NetworkPolicy old/p spec.ingress[1]: an empty `ports` matches nothing in extensions/v1beta1; leave it out to match everything, or remove the rule
        "#]],
    );
    check(
        "
apiVersion: namewall.dev/v1alpha1
kind: ClusterEgressFirewall
metadata: {name: c}
spec: {priority: 1, rules: [{action: Deny, to: [{apiServer: {}}]}]}
",
        expect![[r#"
            warning[never-matches] ClusterEgressFirewall c spec.rules[0]: the rule matches nobody now: no address of the API server is known. Give the Service `kubernetes` and its EndpointSlice, or the setting for its addresses
        "#]],
    );
}
