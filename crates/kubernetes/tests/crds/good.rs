//! Objects that are taken, and can be read.

use super::server::{Server, Stay, errors, object, versions};

const NAMES_AND_DENY: &str = "spec:
  priority: 10
  subject: {pods: {namespaceSelector: {matchLabels: {team: shop}}, podSelector: {}}}
  nodeSelector: {matchExpressions: [{key: pool, operator: NotIn, values: [system]}]}
  rules:
    - name: names
      action: Allow
      to: [{domainNames: [api.example.com, '*.Example.org.', '**.example.net', bücher.example, localhost, _srv.example]}]
      ports: [{port: 443}, {protocol: UDP, port: 8000, endPort: 8100}, {protocol: SCTP}]
    - action: Deny
      to: [{networks: [0.0.0.0/0, '::/0']}, {nodes: {}}, {apiServer: {}}]
";

/// Kind, name, the rest.
pub(crate) const GOOD: &[(&str, &str, &str)] = &[
    ("ClusterEgressFirewall", "names-and-deny", NAMES_AND_DENY),
    ("ClusterEgressFirewall", "empty", "spec: {priority: 0}"),
    ("ClusterEgressFirewall", "last", "spec: {priority: 1000, rules: []}"),
    ("ClusterEgressFirewall", "metadata-service",
     "spec: {priority: 1, rules: [{action: Deny, to: [{networks: [169.254.169.254/32]}], ports: [{port: 80}]}]}"),
    ("ClusterEgressFirewall", "one-port-range",
     "spec: {priority: 1, rules: [{action: Deny, to: [{nodes: {}}], ports: [{port: 22, endPort: 22}]}]}"),
    ("ClusterEgressFirewall", "host-bits", "spec: {priority: 1, rules: [{action: Deny, to: [{networks: [10.0.0.1/8]}]}]}"),
    ("NodeAddresses", "node-1", "addresses: [10.0.0.1, 172.17.0.1, 'fd00::1', 'fe80::1']"),
    ("NodeAddresses", "node-2", "addresses: []"),
    ("EgressFirewall", "default", "spec: {egress: []}"),
    ("EgressFirewall", "default", "spec:
  egress:
    - {type: Allow, to: {dnsName: www.Example.com}}
    - {type: Allow, to: {dnsName: '*.example.com.'}, ports: [{protocol: TCP, port: 443}, {protocol: SCTP, port: 1}]}
    - {type: Allow, to: {dnsName: '*.co.uk'}}
    - {type: Deny, to: {nodeSelector: {matchExpressions: [{key: pool, operator: Exists}]}}}
    - {type: Deny, to: {cidrSelector: 0.0.0.0/0}}
    - {type: Deny, to: {cidrSelector: '::/0'}, ports: []}
"),
    ("DNSNameResolver", "dns-a", "spec: {name: www.example.com.}"),
    ("DNSNameResolver", "dns-b", "spec: {name: '*.example.com.'}"),
    ("AdminNetworkPolicy", "all", "spec:
  priority: 55
  subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}
  ingress:
    - {name: one, action: Pass, from: [{namespaces: {}}], ports: [{namedPort: http}, {portNumber: {port: 80}}]}
    - {action: Deny, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: a}}}}]}
  egress:
    - {action: Allow, to: [{domainNames: [my-service.com, '*.cloud-provider.io', 'Www.Example.Com.']}],
       ports: [{portNumber: {protocol: UDP, port: 443}}, {portRange: {start: 1, end: 65535}}]}
    - {action: Deny, to: [{networks: [0.0.0.0/0]}, {nodes: {matchExpressions: [{key: a, operator: In, values: [b, '']}]}}]}
"),
    ("AdminNetworkPolicy", "no-rules", "spec: {priority: 0, subject: {namespaces: {}}}"),
    ("AdminNetworkPolicy", "no-ports", "spec: {priority: 0, subject: {namespaces: {}}, ingress: [{action: Allow, from: [{namespaces: {}}], ports: []}]}"),
    ("BaselineAdminNetworkPolicy", "default", "spec: {subject: {namespaces: {}}}"),
    ("BaselineAdminNetworkPolicy", "default", "spec:
  subject: {pods: {namespaceSelector: {}, podSelector: {}}}
  ingress: [{action: Deny, from: [{namespaces: {}}]}]
  egress: [{action: Allow, to: [{networks: ['fd00::/8']}, {nodes: {}}], ports: [{portRange: {protocol: SCTP, start: 5, end: 6}}]}]
"),
    ("ClusterNetworkPolicy", "admin", "spec:
  tier: Admin
  priority: 1000
  subject: {pods: {podSelector: {matchLabels: {app: web}}}}
  ingress: [{action: Pass, from: [{pods: {podSelector: {}}}], protocols: [{destinationNamedPort: web-1}]}]
  egress:
    - {action: Accept, to: [{domainNames: ['*.example.com']}], protocols: [{tcp: {destinationPort: {number: 443}}}]}
    - {action: Deny, to: [{networks: [10.0.0.0/8, 'fd00::/8']}, {nodes: {}}], protocols: [{sctp: {destinationPort: {range: {start: 1, end: 2}}}}]}
"),
    ("ClusterNetworkPolicy", "baseline", "spec: {tier: Baseline, priority: 0, subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [0.0.0.0/0]}]}]}"),
];

/// Lists as long as they may be.
fn longest() -> Vec<(&'static str, &'static str, String)> {
    let many = |count: usize, what: &str| format!("[{}]", vec![what; count].join(", "));
    let different = |count: usize, what: &dyn Fn(usize) -> String| {
        format!("[{}]", (0..count).map(what).collect::<Vec<String>>().join(", "))
    };
    let networks = different(25, &|at| format!("10.{at}.0.0/16"));
    let hundred = different(100, &|at| format!("10.{at}.0.0/16"));
    let names = different(25, &|at| format!("n{at}.example.com"));
    let label = "a".repeat(63);
    let longest_name = format!("{label}.{label}.{label}.{}", "a".repeat(61));
    vec![
        (
            "ClusterEgressFirewall",
            "longest",
            format!(
                "spec: {{priority: 1, rules: {}}}",
                many(100, &format!("{{action: Deny, to: [{{networks: [10.0.0.0/8]}}], name: {}}}", "n".repeat(100))),
            ),
        ),
        (
            "ClusterEgressFirewall",
            "widest",
            format!(
                "spec: {{priority: 1, rules: [{{action: Deny, to: [{{networks: {hundred}}}], ports: {}}}]}}",
                many(100, "{port: 1}"),
            ),
        ),
        (
            "ClusterEgressFirewall",
            "long-name",
            format!("spec: {{priority: 1, rules: [{{action: Allow, to: [{{domainNames: [{longest_name}]}}]}}]}}",),
        ),
        (
            "EgressFirewall",
            "default",
            format!("spec: {{egress: {}}}", many(8000, "{type: Deny, to: {cidrSelector: 10.0.0.0/8}}"),),
        ),
        (
            "AdminNetworkPolicy",
            "longest",
            format!(
                "spec: {{priority: 1, subject: {{namespaces: {{}}}}, ingress: {}, egress: {}}}",
                many(100, "{action: Deny, from: [{namespaces: {}}]}"),
                many(100, "{action: Deny, to: [{namespaces: {}}]}"),
            ),
        ),
        (
            "AdminNetworkPolicy",
            "widest",
            format!(
                "spec: {{priority: 1, subject: {{namespaces: {{}}}}, egress: [{{action: Allow, to: {}, ports: {}}}]}}",
                many(100, &format!("{{networks: {networks}}}")),
                many(100, "{portNumber: {port: 1}}"),
            ),
        ),
        (
            "ClusterNetworkPolicy",
            "longest",
            format!(
                "spec: {{tier: Admin, priority: 1, subject: {{namespaces: {{}}}}, egress: {}}}",
                many(25, &format!("{{action: Accept, to: [{{domainNames: {names}}}]}}")),
            ),
        ),
        (
            "ClusterNetworkPolicy",
            "long-name",
            format!(
                "spec: {{tier: Admin, priority: 1, subject: {{namespaces: {{}}}}, egress: [{{action: Accept, to: [{{domainNames: ['{longest_name}.']}}]}}]}}",
            ),
        ),
    ]
}

fn all() -> Vec<(&'static str, &'static str, String)> {
    let written = GOOD.iter().map(|(kind, name, body)| (*kind, *name, (*body).to_owned()));
    written.chain(longest()).collect()
}

/// How many policies there are when all are kept: of those that may be there only once, once.
pub(crate) fn policies() -> usize {
    let is_policy = |kind: &str| !matches!(kind, "NodeAddresses" | "DNSNameResolver");
    let count = all().iter().filter(|(kind, ..)| is_policy(kind)).count();
    count - GOOD.iter().filter(|(kind, ..)| *kind == "BaselineAdminNetworkPolicy").count() + 1
}

pub(crate) fn objects_are_taken_and_read(server: &Server) {
    let mut complaints = Vec::new();
    for (at, (kind, name, body)) in all().iter().enumerate() {
        // A namespace for each: in one there is only one EgressFirewall.
        let namespace = format!("good-{at}");
        server.plane.kubectl(&["create", "namespace", &namespace]).unwrap();
        for version in versions(kind) {
            let object = object(version, &namespace, name, body);
            match server.apply(version, &object, Stay::Kept) {
                Ok(taken) => complaints.extend(
                    errors(version, &taken)
                        .iter()
                        .map(|one| format!("{kind} {name} is taken and cannot be read: {one}")),
                ),
                Err(refusal) => complaints.push(format!("{kind} {name} is refused: {refusal}")),
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}
