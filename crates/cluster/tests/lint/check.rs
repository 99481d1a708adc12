//! Lints the manifests of a test.

use expect_test::Expect;
use namewall_cluster::{Document, Settings, lower};
use namewall_policy::compile;
use namewall_policy::lint::lint;

/// Lints a manifest together with a small shop: web, api and db in `shop`, DNS in `kube-system`, one node.
pub(crate) fn check(policies: &str, expected: Expect) {
    check_alone(&format!("{CLUSTER}---{policies}"), expected);
}

pub(crate) fn check_alone(yaml: &str, expected: Expect) {
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

/// A pod in an isolated namespace, and a v1beta1 policy of it with these rules.
pub(crate) fn v1beta1(ingress: &str) -> String {
    format!(
        "
{{apiVersion: v1, kind: Namespace, metadata: {{name: old, annotations: {{net.beta.kubernetes.io/network-policy: '{{\"ingress\": {{\"isolation\": \"DefaultDeny\"}}}}'}}}}}}
---
{{apiVersion: v1, kind: Pod, metadata: {{name: a, namespace: old}}}}
---
apiVersion: extensions/v1beta1
kind: NetworkPolicy
metadata: {{name: p, namespace: old}}
spec: {{podSelector: {{}}, ingress: {ingress}}}
"
    )
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
pub(crate) fn admin(name: &str, priority: u32, egress: &str) -> String {
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

pub(crate) fn firewall(egress: &str) -> String {
    format!(
        "
apiVersion: k8s.ovn.org/v1
kind: EgressFirewall
metadata: {{name: default, namespace: shop}}
spec: {{egress: {egress}}}
"
    )
}

pub(crate) fn ingress(spec: &str) -> String {
    format!(
        "
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{name: p, namespace: shop}}
spec: {spec}
"
    )
}
