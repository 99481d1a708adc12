//! Egress firewalls of namespaces, and of the whole cluster.

use crate::layout::Layout;
use crate::random::Random;

/// In every few namespaces: names, networks, and nothing else.
pub(super) fn of_namespaces(layout: &Layout, count: usize) -> Vec<String> {
    let mut random = Random::new(3);
    let step = (layout.tenants().count() / count.max(1)).max(1);
    let chosen = layout.tenants().step_by(step).take(count);
    chosen
        .map(|namespace| {
            let (name, team, block) = (&namespace.name, &namespace.team, random.below(256));
            format!(
                "---
apiVersion: k8s.ovn.org/v1
kind: EgressFirewall
metadata:
  name: default
  namespace: {name}
spec:
  egress:
  - type: Allow
    to:
      dnsName: \"*.{team}.example\"
  - type: Allow
    to:
      dnsName: api{block}.provider.example
    ports:
    - protocol: TCP
      port: 443
  - type: Allow
    to:
      cidrSelector: 198.{block}.0.0/16
  - type: Deny
    to:
      cidrSelector: 0.0.0.0/0
"
            )
        })
        .collect()
}

/// A rule of a ClusterEgressFirewall.
pub(crate) const NO_METADATA: &str = "  - name: metadata
    action: Deny
    to:
    - networks:
      - 169.254.169.254/32
";
/// Another one.
pub(crate) const NO_KUBELETS: &str = "  - name: kubelets
    action: Deny
    to:
    - nodes: {}
    ports:
    - protocol: TCP
      port: 10250
";

pub(super) fn of_cluster(count: usize) -> Vec<String> {
    let metadata = format!(
        "---
apiVersion: namewall.dev/v1alpha1
kind: ClusterEgressFirewall
metadata:
  name: no-metadata
spec:
  priority: 10
  rules:
{NO_METADATA}"
    );
    let nodes = format!(
        "---
apiVersion: namewall.dev/v1alpha1
kind: ClusterEgressFirewall
metadata:
  name: no-kubelets
spec:
  priority: 20
  subject:
    namespaces:
      matchExpressions:
      - key: team
        operator: NotIn
        values:
        - platform
  rules:
{NO_KUBELETS}"
    );
    let mail = "---
apiVersion: namewall.dev/v1alpha1
kind: ClusterEgressFirewall
metadata:
  name: mail
spec:
  priority: 30
  subject:
    pods:
      podSelector:
        matchLabels:
          tier: frontend
  rules:
  - name: relay
    action: Allow
    to:
    - domainNames:
      - smtp.relay.example
    ports:
    - protocol: TCP
      port: 587
  - name: nobody-else
    action: Deny
    to:
    - networks:
      - 0.0.0.0/0
    ports:
    - protocol: TCP
      port: 25
    - protocol: TCP
      port: 587
";
    [metadata, nodes, mail.to_owned()].into_iter().take(count).collect()
}
