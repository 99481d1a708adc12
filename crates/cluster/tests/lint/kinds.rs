//! Outdated kinds, and policies that are only audited.

use crate::check::{check, ingress, v1beta1};
use expect_test::expect;

#[test]
fn outdated_kinds() {
    check(
        "
apiVersion: extensions/v1beta1
kind: NetworkPolicy
metadata: {name: p, namespace: shop}
spec: {podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}
",
        expect![[r#"
            hint[migrate-v1beta1] NetworkPolicy shop/p: extensions/v1beta1 is gone from Kubernetes; move to networking.k8s.io/v1. Mind that an empty `from` or `ports` matches nothing here and everything there, and that there the policy itself isolates what it selects, not the namespace's annotation
            warning[no-effect-without-annotation] NetworkPolicy shop/p: it has no effect: the namespace shop is not isolated. Annotate it with net.beta.kubernetes.io/network-policy: '{"ingress": {"isolation": "DefaultDeny"}}', or move the policy to networking.k8s.io/v1
        "#]],
    );
    check(
        &v1beta1("[{from: [{podSelector: {}}]}]"),
        expect![[r#"
            hint[migrate-v1beta1] NetworkPolicy old/p: extensions/v1beta1 is gone from Kubernetes; move to networking.k8s.io/v1. Mind that an empty `from` or `ports` matches nothing here and everything there, and that there the policy itself isolates what it selects, not the namespace's annotation
        "#]],
    );
    check(
        "
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: a}
spec: {priority: 1, subject: {namespaces: {}}, ingress: [{action: Pass, from: [{namespaces: {}}]}]}
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: BaselineAdminNetworkPolicy
metadata: {name: default}
spec: {subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}
",
        expect![[r#"
            hint[migrate-admin] AdminNetworkPolicy a: AdminNetworkPolicy v1alpha1 is superseded; move to ClusterNetworkPolicy v1alpha2 with tier: Admin (Allow is called Accept there, and ports are under protocols)
            hint[migrate-admin] BaselineAdminNetworkPolicy default: BaselineAdminNetworkPolicy v1alpha1 is superseded; move to ClusterNetworkPolicy v1alpha2 with tier: Baseline (Allow is called Accept there, and ports are under protocols)
        "#]],
    );
}

#[test]
fn audited() {
    let policy = ingress("{podSelector: {}}");
    check(&policy, expect![[""]]);
    check(
        &policy.replace("{name: p,", "{name: p, annotations: {namewall.dev/enforcement: audit},"),
        expect![[r#"
        hint[audited] NetworkPolicy shop/p: it is only audited: what it would deny is reported and let through. Remove the annotation namewall.dev/enforcement to enforce it
    "#]],
    );
}
