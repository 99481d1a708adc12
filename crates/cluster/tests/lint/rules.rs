//! Priorities, port names, and allows that a later stage denies.

use crate::check::{admin, check, ingress};
use expect_test::expect;

#[test]
fn equal_priority() {
    let deny = "[{action: Deny, to: [{networks: [198.18.0.0/16]}]}]";
    let other = "[{action: Deny, to: [{networks: [198.19.0.0/16]}]}]";
    let (a, b) = (admin("a", 5, deny), admin("b", 5, other));
    check(
        &format!("{b}---{a}"),
        expect![[r#"
        warning[equal-priority] ClusterNetworkPolicy b spec.priority: ClusterNetworkPolicy a has the priority 5 too, and both select shop/web; ClusterNetworkPolicy a goes before ClusterNetworkPolicy b, by kind, then name. Give them different priorities
    "#]],
    );
    check(&format!("{a}---{}", b.replace("priority: 5", "priority: 6")), expect![[""]]);
    // The older kind goes first, whatever the names.
    let older = "
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: z}
spec: {priority: 5, subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [198.19.0.0/16]}]}]}
";
    check(
        &format!("{a}---{older}"),
        expect![[r#"
        hint[migrate-admin] AdminNetworkPolicy z: AdminNetworkPolicy v1alpha1 is superseded; move to ClusterNetworkPolicy v1alpha2 with tier: Admin (Allow is called Accept there, and ports are under protocols)
        warning[equal-priority] ClusterNetworkPolicy a spec.priority: AdminNetworkPolicy z has the priority 5 too, and both select shop/web; AdminNetworkPolicy z goes before ClusterNetworkPolicy a, by kind, then name. Give them different priorities
    "#]],
    );
    let elsewhere = |policy: &str, name: &str| {
        policy.replace(
            "{namespaces: {}}",
            &format!("{{namespaces: {{matchLabels: {{kubernetes.io/metadata.name: {name}}}}}}}"),
        )
    };
    check(&format!("{}---{}", elsewhere(&a, "shop"), elsewhere(&b, "kube-system")), expect![[""]]);
}

#[test]
fn unknown_port_name() {
    check(
        &ingress(
            "{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: http}, {port: grpc}, {port: http, protocol: UDP}]}]}",
        ),
        expect![[r#"
            warning[unknown-port-name] NetworkPolicy shop/p spec.ingress[0]: no pod the policy selects has a TCP port named grpc, so it matches nothing. Name a container port so, or give the number
            warning[unknown-port-name] NetworkPolicy shop/p spec.ingress[0]: no pod the policy selects has a UDP port named http, so it matches nothing. Name a container port so, or give the number
        "#]],
    );
    check(
        &admin(
            "a",
            1,
            "[{action: Deny, to: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: api}}}}], protocols: [{destinationNamedPort: grpc}, {destinationNamedPort: http}]}]",
        ),
        expect![[r#"
            warning[unknown-port-name] ClusterNetworkPolicy a spec.egress[0]: no pod among its peers has a port named http, so it matches nothing. Name a container port so, or give the number
        "#]],
    );
}

#[test]
fn an_allow_of_a_gate_that_no_tier_passes_is_told() {
    let cluster = |egress: &str| {
        format!(
            "
apiVersion: k8s.ovn.org/v1
kind: EgressFirewall
metadata: {{name: default, namespace: shop}}
spec: {{egress: [{{type: Allow, to: {{cidrSelector: 203.0.113.0/24}}}}, {{type: Deny, to: {{cidrSelector: 0.0.0.0/0}}}}]}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{name: out, namespace: shop}}
spec: {{podSelector: {{}}, policyTypes: [Egress], egress: {egress}}}"
        )
    };
    check(
        &cluster("[]"),
        expect![[r#"
        warning[closed-anyway] EgressFirewall shop/default spec.egress[0]: no pod of the namespace can use it: after this gate a NetworkPolicy or an admin or baseline policy denies all of it. Allow it there too, or remove the rule
        warning[forgets-dns] NetworkPolicy shop/out: shop/web is isolated for egress and may open port 53 nowhere, so it can resolve no name. Allow UDP and TCP 53 to the cluster's DNS
    "#]],
    );
    check(&cluster("[{to: [{ipBlock: {cidr: 203.0.113.7/32}}]}]"), expect![[""]]);
    check(
        &cluster("[{to: [{ipBlock: {cidr: 198.51.100.0/24}}]}]"),
        expect![[r#"
        warning[closed-anyway] EgressFirewall shop/default spec.egress[0]: no pod of the namespace can use it: after this gate a NetworkPolicy or an admin or baseline policy denies all of it. Allow it there too, or remove the rule
        warning[forgets-dns] NetworkPolicy shop/out: shop/web is isolated for egress and may open port 53 nowhere, so it can resolve no name. Allow UDP and TCP 53 to the cluster's DNS
    "#]],
    );
}

#[test]
fn a_rule_for_the_api_server_on_other_ports_matches_nothing() {
    let firewall = |ports: &str| {
        format!(
            "
{{apiVersion: v1, kind: Service, metadata: {{name: kubernetes}}, spec: {{clusterIP: 10.96.0.1, ports: [{{port: 443}}]}}}}
---
apiVersion: v1
kind: Endpoints
metadata: {{name: kubernetes}}
subsets: [{{addresses: [{{ip: 192.168.0.10}}], ports: [{{port: 6443}}]}}]
---
apiVersion: namewall.dev/v1alpha1
kind: ClusterEgressFirewall
metadata: {{name: f}}
spec: {{priority: 1, rules: [{{action: Deny, to: [{{apiServer: {{}}}}]{ports}}}]}}"
        )
    };
    check(
        &firewall(", ports: [{port: 22}, {port: 10250}]"),
        expect![[r#"
            warning[api-server-port] ClusterEgressFirewall f spec.rules[0]: `apiServer` is the API server at the ports that it serves (TCP 6443), and none of them is among the rule's: it matches nothing there. For other ports of these hosts use `nodes` or `networks`
        "#]],
    );
    check(&firewall(", ports: [{port: 443}, {port: 6443}]"), expect![[""]]);
    // Connections to the Service are judged where they end.
    check(
        &firewall(", ports: [{port: 443}]"),
        expect![[r#"
            warning[api-server-port] ClusterEgressFirewall f spec.rules[0]: `apiServer` is the API server at the ports that it serves (TCP 6443), and none of them is among the rule's: it matches nothing there. A port of the Service is translated before anything is judged. For other ports of these hosts use `nodes` or `networks`
        "#]],
    );
    check(
        &firewall(", ports: [{port: 22}, {port: 6443}]"),
        expect![[r#"
            warning[api-server-port] ClusterEgressFirewall f spec.rules[0]: `apiServer` is the API server at the ports that it serves (TCP 6443): the rule does not deny TCP 22 of these hosts. For other ports of these hosts use `nodes` or `networks`
        "#]],
    );
}

#[test]
fn a_deny_of_the_api_server_leaves_other_ports_of_its_hosts_open() {
    let firewall = |rules: &str| {
        format!(
            "
{{apiVersion: v1, kind: Service, metadata: {{name: kubernetes}}, spec: {{clusterIP: 10.96.0.1, ports: [{{port: 443}}]}}}}
---
apiVersion: v1
kind: Endpoints
metadata: {{name: kubernetes}}
subsets: [{{addresses: [{{ip: 192.168.0.10}}], ports: [{{port: 6443}}]}}]
---
apiVersion: namewall.dev/v1alpha1
kind: ClusterEgressFirewall
metadata: {{name: f}}
spec: {{priority: 1, rules: [{rules}]}}"
        )
    };
    let deny = |more: &str| format!("{{action: Deny, to: [{{apiServer: {{}}}}]{more}}}");
    for more in ["", ", ports: [{port: 1, endPort: 65535}]"] {
        check(
            &firewall(&deny(more)),
            expect![[r#"
                hint[api-server-hosts] ClusterEgressFirewall f spec.rules[0]: `apiServer` is the API server at the ports that it serves (TCP 6443): other ports of 192.168.0.10 stay open to shop/web. For other ports of these hosts use `nodes` or `networks`
            "#]],
        );
    }
    // One that says which port is meant, one that denies the hosts besides, and an Allow leave nothing open by mistake.
    check(&firewall(&deny(", ports: [{port: 6443}]")), expect![[""]]);
    let host = "{action: Deny, to: [{networks: [192.168.0.10/32]}]}";
    check(&firewall(&format!("{}, {host}", deny(""))), expect![[""]]);
    check(&firewall(&format!("{}, {host}", deny("").replace("Deny", "Allow"))), expect![[""]]);
}
