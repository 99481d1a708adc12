//! Networks that match more, or less, than they seem to.

use crate::check::{admin, check, check_alone, ingress};
use expect_test::expect;

#[test]
fn catches_pods() {
    check(
        &ingress("{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}"),
        expect![[r#"
        warning[catches-pods] NetworkPolicy shop/p spec.ingress[0]: 0.0.0.0/0 is every address, the pods' too: it lets in every pod, shop/web (10.244.0.1) among them. List the pods' networks under `except`, unless that is meant
    "#]],
    );
    check(
        &ingress("{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.244.0.0/24]}}]}]}"),
        expect![[r#"
            warning[catches-pods] NetworkPolicy shop/p spec.ingress[0]: 0.0.0.0/0 is every address, the pods' too: it lets in pods, at addresses like 10.244.1.0. List the pods' networks under `except`, unless that is meant
        "#]],
    );
    check(
        &ingress("{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}]}]}"),
        expect![[""]],
    );
    // There is no pod with an IPv6 address.
    check(&ingress("{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: '::/0'}}]}]}"), expect![[""]]);
    check(
        &admin("a", 1, "[{action: Accept, to: [{networks: [0.0.0.0/0]}]}]"),
        expect![[r#"
        warning[catches-pods] ClusterNetworkPolicy a spec.egress[0]: 0.0.0.0/0 is every address, the pods' too: it opens the way to every pod, shop/web (10.244.0.1) among them. Deny or pass the pods in a rule before it, or list only the networks outside, unless that is meant
    "#]],
    );
    check(
        &admin("a", 1, "[{action: Pass, to: [{namespaces: {}}]}, {action: Accept, to: [{networks: [0.0.0.0/0]}]}]"),
        expect![[""]],
    );
}

const DUAL_STACK: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: both}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: both}
status: {podIP: 10.244.0.9, podIPs: [{ip: 10.244.0.9}, {ip: 'fd00::9'}]}
---";

#[test]
fn a_deny_of_one_family_is_told_where_pods_have_both() {
    let firewall = |rules: &str| {
        format!(
            "{DUAL_STACK}
apiVersion: k8s.ovn.org/v1
kind: EgressFirewall
metadata: {{name: default, namespace: both}}
spec: {{egress: [{rules}]}}"
        )
    };
    let allow = "{type: Allow, to: {dnsName: api.example.com}}";
    check_alone(
        &firewall(&format!("{allow}, {{type: Deny, to: {{cidrSelector: 0.0.0.0/0}}}}")),
        expect![[r#"
            warning[one-family] EgressFirewall both/default spec.egress[1]: it denies 0.0.0.0/0, and pods it is for have addresses of both families: they may still open everything to any address in ::/0. Deny ::/0 too
        "#]],
    );
    let both = "{type: Deny, to: {cidrSelector: 0.0.0.0/0}}, {type: Deny, to: {cidrSelector: '::/0'}}";
    check_alone(&firewall(&format!("{allow}, {both}")), expect![[""]]);
}

#[test]
fn claimed_addresses() {
    let claim = |addresses: &str| {
        format!(
            "
{{apiVersion: v1, kind: Service, metadata: {{name: web, namespace: shop}}, spec: {{clusterIP: 10.96.0.1}}}}
---
apiVersion: v1
kind: Pod
metadata:
  name: two
  namespace: shop
  annotations: {{k8s.v1.cni.cncf.io/network-status: '[{{\"ips\": [{addresses}]}}]'}}
status: {{podIP: 10.244.0.9}}"
        )
    };
    check(
        &claim(r#""192.168.0.10", "10.244.0.3", "10.96.0.1""#),
        expect![[r#"
            warning[claimed-address] Pod shop/two metadata.annotations: the annotation lists 192.168.0.10, which is an address of node n0: it counts for nothing here. Only status.podIPs makes an address the pod's
            warning[claimed-address] Pod shop/two metadata.annotations: the annotation lists 10.244.0.3, which is the address of Pod shop/db: it counts for nothing here. Only status.podIPs makes an address the pod's
            warning[claimed-address] Pod shop/two metadata.annotations: the annotation lists 10.96.0.1, which is an address of Service shop/web: it counts for nothing here. Only status.podIPs makes an address the pod's
        "#]],
    );
    // A second network of its own, and the pod's own address, are what the annotation is for.
    check(&claim(r#""172.30.0.9", "10.244.0.9""#), expect![[""]]);
}
