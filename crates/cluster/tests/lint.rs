//! Each lint where it speaks and where it is silent, from manifests.

use expect_test::{Expect, expect};
use namewall_cluster::{Document, Settings, lower};
use namewall_policy::compile;
use namewall_policy::lint::lint;

/// Lints a manifest together with a small shop: web, api and db in `shop`, DNS in `kube-system`, one node.
fn check(policies: &str, expected: Expect) {
    check_alone(&format!("{CLUSTER}---{policies}"), expected);
}

fn check_alone(yaml: &str, expected: Expect) {
    let (documents, unread) = Document::read_all(&"test.yaml".into(), yaml);
    let lowered = lower(&documents, &Settings::default());
    let refused: Vec<String> = unread.iter().chain(&lowered.findings).map(ToString::to_string).collect();
    assert!(refused.is_empty(), "the manifest of the test is wrong: {refused:#?}");
    let (program, _) = compile(&lowered.snapshot);
    let mut text = String::new();
    for finding in lint(&lowered.snapshot, &program) {
        assert!(finding.source.is_some(), "{finding}");
        let path = if finding.path.is_empty() { String::new() } else { format!(" {}", finding.path) };
        text += &format!("{}[{}] {}{path}: {}\n", finding.severity, finding.code, finding.object, finding.message);
    }
    expected.assert_eq(&text);
}

const CLUSTER: &str = r#"
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: shop}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}
---
apiVersion: v1
kind: Node
metadata: {name: n0, labels: {zone: a}}
spec: {podCIDRs: [10.244.0.0/16]}
status: {addresses: [{type: InternalIP, address: 192.168.0.10}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {nodeName: n0, containers: [{ports: [{name: http, containerPort: 80}]}]}
status: {podIP: 10.244.0.1}
---
apiVersion: v1
kind: Pod
metadata: {name: api, namespace: shop, labels: {app: api}}
spec: {nodeName: n0, containers: [{ports: [{name: grpc, containerPort: 9000}]}]}
status: {podIP: 10.244.0.2}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db}}
spec: {nodeName: n0, containers: [{}]}
status: {podIP: 10.244.0.3}
---
apiVersion: v1
kind: Pod
metadata: {name: dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec: {nodeName: n0, containers: [{ports: [{name: dns, protocol: UDP, containerPort: 53}]}]}
status: {podIP: 10.244.0.53}
"#;

/// A ClusterNetworkPolicy for everybody with these egress rules.
fn admin(name: &str, priority: u32, egress: &str) -> String {
    format!(
        "
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {{name: {name}}}
spec:
  tier: Admin
  priority: {priority}
  subject: {{namespaces: {{}}}}
  egress: {egress}
"
    )
}

fn firewall(egress: &str) -> String {
    format!(
        "
apiVersion: k8s.ovn.org/v1
kind: EgressFirewall
metadata: {{name: default, namespace: shop}}
spec: {{egress: {egress}}}
"
    )
}

fn ingress(spec: &str) -> String {
    format!(
        "
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{name: p, namespace: shop}}
spec: {spec}
"
    )
}

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
        "
{apiVersion: v1, kind: Namespace, metadata: {name: old, annotations: {net.beta.kubernetes.io/network-policy: '{\"ingress\": {\"isolation\": \"DefaultDeny\"}}'}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: old}}
---
apiVersion: extensions/v1beta1
kind: NetworkPolicy
metadata: {name: p, namespace: old}
spec: {podSelector: {}, ingress: [{from: []}, {ports: []}]}
",
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

#[test]
fn forgets_dns() {
    check(
        &ingress("{podSelector: {matchLabels: {app: web}}, egress: [{to: [{podSelector: {}}], ports: [{port: 80}]}]}"),
        expect![[r#"
            warning[forgets-dns] NetworkPolicy shop/p: shop/web is isolated for egress and may open port 53 nowhere, so it can resolve no name. Allow UDP and TCP 53 to the cluster's DNS
        "#]],
    );
    check(
        &ingress(
            "{podSelector: {matchLabels: {app: web}}, egress: [{to: [{podSelector: {}}], ports: [{port: 80}]}, {ports: [{port: 53, protocol: UDP}]}]}",
        ),
        expect![[""]],
    );
    // A named port that is 53 somewhere may be the DNS server's.
    check(
        &ingress(
            "{podSelector: {matchLabels: {app: web}}, egress: [{to: [{namespaceSelector: {}}], ports: [{port: dns, protocol: UDP}]}]}",
        ),
        expect![[""]],
    );
    check(
        &admin("a", 1, "[{action: Deny, to: [{networks: [0.0.0.0/0]}]}]"),
        expect![[r#"
            warning[forgets-dns] ClusterNetworkPolicy a spec.egress[0]: this rule leaves shop/web no way to port 53 anywhere, so it can resolve no name. Allow UDP and TCP 53 to the cluster's DNS
        "#]],
    );
    check(
        &admin(
            "a",
            1,
            "[{action: Accept, to: [{namespaces: {}}], protocols: [{udp: {destinationPort: {number: 53}}}]},
              {action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}]",
        ),
        expect![[""]],
    );
}

/// A pod goes by its address in one policy and by its labels in the next.
#[test]
fn dns_passed_by_address_and_allowed_by_labels_is_not_forgotten() {
    let pass = "[{action: Pass, to: [{networks: [10.244.0.53/32]}]}, {action: Deny, to: [{networks: [0.0.0.0/0]}]}]";
    let allow = ingress("{podSelector: {}, egress: [{to: [{namespaceSelector: {}}]}]}");
    check(&format!("{}---{allow}", admin("a", 1, pass)), expect![[""]]);
}

#[test]
fn name_without_dns() {
    let names = "{action: Accept, to: [{domainNames: [api.example.com]}]}";
    let deny = "{action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}";
    let dns = "{action: Accept, to: [{namespaces: {}}], protocols: [{udp: {destinationPort: {number: 53}}}]}";
    check(
        &admin("a", 1, &format!("[{names}, {deny}]")),
        expect![[r#"
            warning[name-without-dns] ClusterNetworkPolicy a spec.egress[0]: shop/web can reach no DNS server, so the name is never resolved and the rule opens nothing. Allow UDP and TCP 53 to the cluster's DNS
            warning[forgets-dns] ClusterNetworkPolicy a spec.egress[1]: this rule leaves shop/web no way to port 53 anywhere, so it can resolve no name. Allow UDP and TCP 53 to the cluster's DNS
        "#]],
    );
    check(&admin("a", 1, &format!("[{dns}, {names}, {deny}]")), expect![[""]]);
}

#[test]
fn name_without_deny() {
    check(
        &admin(
            "a",
            1,
            "[{action: Accept, to: [{domainNames: [api.example.com]}]}, {action: Deny, to: [{networks: [203.0.113.0/24]}]}]",
        ),
        expect![[r#"
            warning[name-without-deny] ClusterNetworkPolicy a spec.egress[0]: whom it is for may open these ports to any address outside anyway, so it changes nothing. Deny the rest in a rule after it, or remove it
        "#]],
    );
    check(
        &firewall(
            "[{type: Allow, to: {dnsName: api.example.com}, ports: [{protocol: TCP, port: 443}]}, {type: Deny, to: {cidrSelector: 0.0.0.0/0}, ports: [{protocol: TCP, port: 443}]}]",
        ),
        expect![[""]],
    );
}

#[test]
fn name_denied() {
    check(
        &firewall("[{type: Deny, to: {dnsName: bad.example.com}}]"),
        expect![[r#"
        warning[name-denied] EgressFirewall shop/default spec.egress[0]: nobody knows every address of bad.example.com, so denying it does not keep pods from it. Allow what is needed and deny the rest by network
    "#]],
    );
}

#[test]
fn public_suffix() {
    let deny = "{type: Deny, to: {cidrSelector: 0.0.0.0/0}}";
    check(
        &firewall(&format!("[{{type: Allow, to: {{dnsName: '*.co.uk'}}}}, {deny}]")),
        expect![[r#"
        warning[public-suffix] EgressFirewall shop/default spec.egress[0]: *.co.uk covers a whole public suffix: anybody can register a name under co.uk. Name the domains that are meant
    "#]],
    );
    check(&firewall(&format!("[{{type: Allow, to: {{dnsName: '*.example.co.uk'}}}}, {deny}]")), expect![[""]]);
}

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
        "
{apiVersion: v1, kind: Namespace, metadata: {name: old, annotations: {net.beta.kubernetes.io/network-policy: '{\"ingress\": {\"isolation\": \"DefaultDeny\"}}'}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: old}}
---
apiVersion: extensions/v1beta1
kind: NetworkPolicy
metadata: {name: p, namespace: old}
spec: {podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}
",
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
