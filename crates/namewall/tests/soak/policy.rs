//! The policies that the soak applies: random ones, as manifests.

use crate::action::UpstreamFault;
use namewall_policy::domain::{DomainName, DomainPattern, Wildcard};
use namewall_testbed::Dice;
use std::fmt::Write as _;

/// The values of the pods' label `app`.
pub(crate) const COLORS: [&str; 3] = ["red", "green", "blue"];
pub(crate) const NAMESPACES: [&str; 2] = ["east", "west"];
/// The names that pods look up: one each, below one domain.
pub(crate) const NAMES: [&str; 4] = ["h0.soak.example", "h1.soak.example", "h2.soak.example", "h3.soak.example"];
const PATTERNS: [&str; 4] = ["h0.soak.example", "h1.soak.example", "h2.soak.example", "*.soak.example"];

/// A policy of one slot, which is one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Policy {
    /// Pods of a color may reach what a name resolves to.
    Names { color: &'static str, pattern: &'static str, priority: usize },
    /// Pods of a color may not reach some of the hosts outside, whatever names say.
    Firewall { color: &'static str, block: &'static str, priority: usize },
    /// Pods of a color in a namespace accept connections from another color only.
    Ingress { namespace: &'static str, color: &'static str, from: &'static str },
    /// Pods of a color in a namespace may reach another color only.
    Egress { namespace: &'static str, color: &'static str, to: &'static str },
}

impl Policy {
    pub(crate) fn random(dice: &mut Dice) -> Self {
        let color = dice.pick(&COLORS);
        let namespace = dice.pick(&NAMESPACES);
        match dice.within(0..10) {
            0..5 => Self::Names { color, pattern: dice.pick(&PATTERNS), priority: dice.within(1..100) },
            5 => {
                let block = dice.pick(&["198.51.100.10/31", "198.51.100.20/30"]);
                Self::Firewall { color, block, priority: dice.within(1..100) }
            }
            6..8 => Self::Ingress { namespace, color, from: dice.pick(&COLORS) },
            _ => Self::Egress { namespace, color, to: dice.pick(&COLORS) },
        }
    }

    /// The pattern of a rule by name, with the color of the pods that it is for.
    pub(crate) fn name_rule(&self) -> Option<(&'static str, DomainPattern)> {
        let Self::Names { color, pattern, .. } = self else { return None };
        let pattern = DomainPattern::parse(pattern, Wildcard::Subdomains).expect("the pattern is well formed");
        Some((color, pattern))
    }

    /// The manifest of the policy in this slot.
    pub(crate) fn manifest(&self, slot: usize) -> String {
        match self {
            Self::Names { color, pattern, priority } => format!(
                "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\n\
                 metadata: {{name: slot-{slot}}}\nspec:\n  tier: Admin\n  priority: {priority}\n  \
                 subject: {{pods: {{namespaceSelector: {{}}, podSelector: {{matchLabels: {{app: {color}}}}}}}}}\n  \
                 egress:\n  - action: Accept\n    to: [{{domainNames: [\"{pattern}\"]}}]\n    \
                 protocols: [{{tcp: {{destinationPort: {{number: 443}}}}}}]\n"
            ),
            Self::Firewall { color, block, priority } => format!(
                "apiVersion: namewall.dev/v1alpha1\nkind: ClusterEgressFirewall\nmetadata: {{name: slot-{slot}}}\n\
                 spec:\n  priority: {priority}\n  \
                 subject: {{pods: {{namespaceSelector: {{}}, podSelector: {{matchLabels: {{app: {color}}}}}}}}}\n  \
                 rules:\n  - {{name: hosts, action: Deny, to: [{{networks: [{block}]}}]}}\n"
            ),
            Self::Ingress { namespace, color, from } => format!(
                "{}  policyTypes: [Ingress]\n  ingress:\n  - from: [{}]\n",
                network_policy(slot, namespace, color),
                peer(from)
            ),
            Self::Egress { namespace, color, to } => format!(
                "{}  policyTypes: [Egress]\n  egress:\n  - to: [{}]\n  \
                 - to: [{{ipBlock: {{cidr: 203.0.113.53/32}}}}, {{ipBlock: {{cidr: 198.51.100.0/24}}}}]\n",
                network_policy(slot, namespace, color),
                peer(to)
            ),
        }
    }
}

fn network_policy(slot: usize, namespace: &str, color: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
         metadata: {{name: slot-{slot}, namespace: {namespace}}}\nspec:\n  \
         podSelector: {{matchLabels: {{app: {color}}}}}\n"
    )
}

fn peer(color: &str) -> String {
    format!("{{namespaceSelector: {{}}, podSelector: {{matchLabels: {{app: {color}}}}}}}")
}

/// What holds all the time: pods may ask the DNS server, and reach no host outside but by name.
pub(crate) const ALWAYS: &str = "\
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: dns}
spec:
  tier: Admin
  priority: 0
  subject: {namespaces: {}}
  egress:
  - action: Accept
    to: [{networks: [203.0.113.53/32]}]
    protocols: [{udp: {destinationPort: {number: 53}}}, {tcp: {destinationPort: {number: 53}}}]
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: outside}
spec:
  tier: Admin
  priority: 900
  subject: {namespaces: {}}
  egress:
  - action: Deny
    to: [{networks: [198.51.100.0/24]}]
";

/// The node, the namespaces and the pods with these colors.
pub(crate) fn cluster(colors: &[&str]) -> String {
    let mut text = String::from(
        "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\nspec: {podCIDRs: [10.244.1.0/24]}\n\
         status: {addresses: [{type: InternalIP, address: 192.0.2.11}]}\n",
    );
    for namespace in NAMESPACES {
        let _ = write!(text, "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n");
    }
    for (at, color) in colors.iter().enumerate() {
        let (namespace, address) = (NAMESPACES[at % NAMESPACES.len()], address(at));
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Pod\n\
             metadata: {{name: p{at}, namespace: {namespace}, labels: {{app: {color}}}}}\n\
             spec: {{nodeName: node-1, containers: [{{name: c, image: i}}]}}\n\
             status: {{phase: Running, podIP: {address}, podIPs: [{{ip: {address}}}]}}\n"
        );
    }
    text
}

/// The address of a pod.
pub(crate) fn address(pod: usize) -> String {
    format!("10.244.1.{}", 10 + pod)
}

/// The two hosts that a name moves between.
pub(crate) fn hosts(name: usize) -> [String; 2] {
    [format!("198.51.100.{}", 10 + name), format!("198.51.100.{}", 20 + name)]
}

pub(crate) fn domain(name: usize) -> DomainName {
    NAMES[name].parse().expect("the name is well formed")
}

/// A scenario must have a probe; nobody plays this one.
const PROBE: &str = "steps:\n- probe:\n  - east/p0 -> 203.0.113.53:53/UDP: allow";

/// The scenario file whose zones the DNS server has: where each name is now, and what is wrong with the server.
pub(crate) fn zones(at: &[usize], fault: Option<UpstreamFault>) -> String {
    let mut text = String::from("name: soak\ntopology:\n  manifests: [cluster.yaml]\n  dns:\n    servers: ");
    let server = match fault {
        None => "",
        Some(UpstreamFault::Silent) => "silent: true",
        Some(UpstreamFault::Servfail) => "rcode: SERVFAIL",
        Some(UpstreamFault::WrongId) => "spoof: [id]",
        // A question is asked three times, and a second is waited for each.
        Some(UpstreamFault::Late) => "slow: 1200ms",
    };
    let _ = writeln!(text, "{{203.0.113.53: {{{server}}}}}\n    zones:");
    for (name, host) in at.iter().enumerate() {
        let _ = writeln!(text, "      {}: {{A: [{}], ttl: 3600}}", NAMES[name], hosts(name)[*host]);
    }
    // Hosts that no name leads to now are there all the same.
    let all: Vec<String> = (0..NAMES.len()).flat_map(hosts).collect();
    let _ = writeln!(text, "      all.other.example: {{A: [{}], ttl: 3600}}\n{PROBE}", all.join(", "));
    text
}
