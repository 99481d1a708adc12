//! A small cluster, and policies of each kind by name and spec.

/// Two nodes, two namespaces, pods with an address of each family, one of them
/// on its node's network.
pub(crate) fn world() -> String {
    let mut text = String::new();
    text += &node("n1", "zone: a", "1");
    text += &node("n2", "zone: b", "2");
    text += &namespace("shop", "");
    text += &namespace("ops", "");
    text += &pod("shop/web", "web", "1.10", "{name: http, containerPort: 8080}");
    let ports = "{name: pg, containerPort: 5432}, {name: stats, containerPort: 9187}, \
                 {name: gossip, containerPort: 7946, protocol: UDP}, {name: gossip, containerPort: 7947}";
    text += &pod("shop/db", "db", "2.20", ports);
    text += &pod("ops/tool", "tool", "1.30", "");
    text += &host_pod("ops/agent", "agent", "2");
    text
}

/// The pod at `SUBNET.HOST`: on the node `nSUBNET`, with the addresses `10.244.SUBNET.HOST` and `fd00:244:SUBNET::HOST`.
pub(crate) fn pod(name: &str, app: &str, at: &str, ports: &str) -> String {
    let (subnet, host) = at.split_once('.').unwrap();
    let (namespace, name) = name.split_once('/').unwrap();
    format!(
        "---\napiVersion: v1\nkind: Pod\n\
         metadata: {{name: {name}, namespace: {namespace}, labels: {{app: {app}}}}}\n\
         spec: {{nodeName: n{subnet}, containers: [{{name: c, ports: [{ports}]}}]}}\n\
         status: {{phase: Running, podIP: 10.244.{subnet}.{host}, \
         podIPs: [{{ip: 10.244.{subnet}.{host}}}, {{ip: 'fd00:244:{subnet}::{host}'}}]}}\n"
    )
}

/// A pod on the network of node `nNUMBER`.
pub(crate) fn host_pod(name: &str, app: &str, number: &str) -> String {
    let (namespace, name) = name.split_once('/').unwrap();
    format!(
        "---\napiVersion: v1\nkind: Pod\n\
         metadata: {{name: {name}, namespace: {namespace}, labels: {{app: {app}}}}}\n\
         spec: {{nodeName: n{number}, hostNetwork: true, containers: [{{ports: [{{name: api, containerPort: 9100}}]}}]}}\n\
         status: {{podIP: 192.168.0.{number}, podIPs: [{{ip: 192.168.0.{number}}}, {{ip: 'fd00:1::{number}'}}]}}\n"
    )
}

pub(crate) fn node(name: &str, label: &str, number: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{{label}}}}}\n\
         spec: {{podCIDR: 10.244.{number}.0/24, podCIDRs: [10.244.{number}.0/24, 'fd00:244:{number}::/64']}}\n\
         status: {{addresses: [{{type: InternalIP, address: 192.168.0.{number}}}, \
         {{type: InternalIP, address: 'fd00:1::{number}'}}, {{type: Hostname, address: {name}}}]}}\n"
    )
}

/// A namespace labelled `team: NAME`.
pub(crate) fn namespace(name: &str, annotations: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Namespace\n\
         metadata: {{name: {name}, labels: {{team: {name}}}, annotations: {{{annotations}}}}}\n"
    )
}

/// The annotation of S3.1.
pub(crate) const DEFAULT_DENY: &str =
    r#"net.beta.kubernetes.io/network-policy: '{"ingress": {"isolation": "DefaultDeny"}}'"#;

/// A NetworkPolicy `networking.k8s.io/v1` in shop.
pub(crate) fn np(name: &str, spec: &str) -> String {
    object("networking.k8s.io/v1 NetworkPolicy", &format!("name: {name}, namespace: shop"), spec)
}

/// A NetworkPolicy `extensions/v1beta1` in shop.
pub(crate) fn old_np(name: &str, spec: &str) -> String {
    object("extensions/v1beta1 NetworkPolicy", &format!("name: {name}, namespace: shop"), spec)
}

pub(crate) fn anp(name: &str, spec: &str) -> String {
    object("policy.networking.k8s.io/v1alpha1 AdminNetworkPolicy", &format!("name: {name}"), spec)
}

pub(crate) fn banp(spec: &str) -> String {
    object("policy.networking.k8s.io/v1alpha1 BaselineAdminNetworkPolicy", "name: default", spec)
}

pub(crate) fn cnp(name: &str, spec: &str) -> String {
    object("policy.networking.k8s.io/v1alpha2 ClusterNetworkPolicy", &format!("name: {name}"), spec)
}

/// A ClusterEgressFirewall.
pub(crate) fn cef(name: &str, spec: &str) -> String {
    object("namewall.dev/v1alpha1 ClusterEgressFirewall", &format!("name: {name}"), spec)
}

/// The EgressFirewall of shop.
pub(crate) fn ef(egress: &str) -> String {
    object("k8s.ovn.org/v1 EgressFirewall", "name: default, namespace: shop", &format!("{{egress: [{egress}]}}"))
}

/// The object: line 2 has its version, 3 its kind, 4 its metadata, 5 its spec.
pub(crate) fn object(kind: &str, metadata: &str, spec: &str) -> String {
    let (version, kind) = kind.split_once(' ').unwrap();
    format!("---\napiVersion: {version}\nkind: {kind}\nmetadata: {{{metadata}}}\nspec: {spec}\n")
}

/// The same object, annotated `namewall.dev/enforcement: VALUE`.
pub(crate) fn annotated(object: &str, value: &str) -> String {
    object.replacen("}\nspec:", &format!(", annotations: {{namewall.dev/enforcement: {value}}}}}\nspec:"), 1)
}

/// So many copies, separated by commas.
pub(crate) fn times(many: usize, item: &str) -> String {
    vec![item; many].join(", ")
}
