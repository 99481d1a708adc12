//! Objects that are refused, with the reason.

use super::server::{Server, Stay, object, versions};

/// Rules of each kind, written shorter.
fn cef(rule: &str) -> String {
    format!("spec: {{priority: 1, rules: [{rule}]}}")
}

fn efw(rule: &str) -> String {
    format!("spec: {{egress: [{rule}]}}")
}

fn anp(rule: &str) -> String {
    format!("spec: {{priority: 1, subject: {{namespaces: {{}}}}, egress: [{rule}]}}")
}

fn banp(rule: &str) -> String {
    format!("spec: {{subject: {{namespaces: {{}}}}, egress: [{rule}]}}")
}

fn cnp(rule: &str) -> String {
    format!("spec: {{tier: Admin, priority: 1, subject: {{namespaces: {{}}}}, egress: [{rule}]}}")
}

fn many(count: usize, what: &str) -> String {
    format!("[{}]", vec![what; count].join(", "))
}

fn different(networks: usize) -> String {
    let networks: Vec<String> = (0..networks).map(|at| format!("10.{at}.0.0/16")).collect();
    format!("[{}]", networks.join(", "))
}

/// What of it is wrong, the rest, and what is said against it.
pub(crate) type Case = (&'static str, String, &'static str);

fn cluster_egress_firewalls() -> Vec<Case> {
    vec![
        ("no spec", "{}".to_owned(), "spec: Required value"),
        ("no priority", "spec: {rules: []}".to_owned(), "spec.priority: Required value"),
        ("priority -1", "spec: {priority: -1}".to_owned(), "greater than or equal to 0"),
        ("priority 1001", "spec: {priority: 1001}".to_owned(), "less than or equal to 1000"),
        ("an unknown field", "spec: {priority: 1, nodes: {}}".to_owned(), "field not declared in schema"),
        (
            "two subjects",
            "spec: {priority: 1, subject: {namespaces: {}, pods: {podSelector: {}}}}".to_owned(),
            "at most 1",
        ),
        (
            "101 rules",
            format!("spec: {{priority: 1, rules: {}}}", many(101, "{action: Deny, to: [{nodes: {}}]}")),
            "at most 100 items",
        ),
        ("Pass", cef("{action: Pass, to: [{nodes: {}}]}"), "supported values: \"Allow\", \"Deny\""),
        ("no action", cef("{to: [{nodes: {}}]}"), "action: Required value"),
        ("no destination", cef("{action: Deny}"), "to: Required value"),
        ("no destinations", cef("{action: Deny, to: []}"), "at least 1 items"),
        (
            "an empty destination",
            cef("{action: Deny, to: [{}]}"),
            "exactly one of networks, nodes, apiServer and domainNames",
        ),
        (
            "two destinations in one",
            cef("{action: Deny, to: [{nodes: {}, apiServer: {}}]}"),
            "exactly one of networks, nodes, apiServer and domainNames",
        ),
        (
            "a name that is denied",
            cef("{action: Deny, to: [{nodes: {}}, {domainNames: [a.example]}]}"),
            "only in Allow rules",
        ),
        ("no CIDR", cef("{action: Deny, to: [{networks: [10.0.0.1]}]}"), "must be of type cidr"),
        ("a prefix beyond", cef("{action: Deny, to: [{networks: [10.0.0.0/33]}]}"), "must be of type cidr"),
        ("the same twice", cef("{action: Deny, to: [{networks: [10.0.0.0/8, 10.0.0.0/8]}]}"), "10.0.0.0/8"),
        ("no networks", cef("{action: Deny, to: [{networks: []}]}"), "at least 1 items"),
        ("a star inside", cef("{action: Allow, to: [{domainNames: [a.*.example]}]}"), "should match"),
        ("a star alone", cef("{action: Allow, to: [{domainNames: ['*']}]}"), "should match"),
        ("a space", cef("{action: Allow, to: [{domainNames: ['a b.example']}]}"), "should match"),
        ("a hyphen in front", cef("{action: Allow, to: [{domainNames: [-a.example]}]}"), "should match"),
        (
            "a long label",
            cef(&format!("{{action: Allow, to: [{{domainNames: [{}.example]}}]}}", "a".repeat(64))),
            "should match",
        ),
        ("port 0", cef("{action: Deny, to: [{nodes: {}}], ports: [{port: 0}]}"), "greater than or equal to 1"),
        ("port 65536", cef("{action: Deny, to: [{nodes: {}}], ports: [{port: 65536}]}"), "less than or equal to 65535"),
        (
            "ICMP",
            cef("{action: Deny, to: [{nodes: {}}], ports: [{protocol: ICMP}]}"),
            "supported values: \"TCP\", \"UDP\", \"SCTP\"",
        ),
        ("an end alone", cef("{action: Deny, to: [{nodes: {}}], ports: [{endPort: 5}]}"), "endPort needs a port"),
        (
            "a range that ends before",
            cef("{action: Deny, to: [{nodes: {}}], ports: [{port: 6, endPort: 5}]}"),
            "ends before it starts",
        ),
        ("no ports", cef("{action: Deny, to: [{nodes: {}}], ports: []}"), "at least 1 items"),
        (
            "an unknown operator",
            cef("{action: Deny, to: [{nodes: {matchExpressions: [{key: a, operator: Equals, values: [b]}]}}]}"),
            "supported values: \"In\"",
        ),
        (
            "In without values",
            cef("{action: Deny, to: [{nodes: {matchExpressions: [{key: a, operator: In}]}}]}"),
            "values",
        ),
        (
            "Exists with values",
            cef("{action: Deny, to: [{nodes: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}]}"),
            "values",
        ),
        ("a label's value", cef("{action: Deny, to: [{nodes: {matchLabels: {a: 'b c'}}}]}"), "should match"),
        (
            "a long rule name",
            cef(&format!("{{name: {}, action: Deny, to: [{{nodes: {{}}}}]}}", "n".repeat(101))),
            "Too long",
        ),
    ]
}

fn node_addresses() -> Vec<Case> {
    vec![
        ("no address", "addresses: [node-1.example]".to_owned(), "it is no IP address"),
        ("a zone", "addresses: ['fe80::1%eth0']".to_owned(), "it is no IP address"),
        ("a block", "addresses: [10.0.0.0/8]".to_owned(), "it is no IP address"),
        ("the same twice", "addresses: [10.0.0.1, 10.0.0.1]".to_owned(), "10.0.0.1"),
        ("a spec", "spec: {addresses: []}".to_owned(), "field not declared in schema"),
    ]
}

fn egress_firewalls() -> Vec<Case> {
    vec![
        ("no spec", "{}".to_owned(), "spec: Required value"),
        ("no rules", "spec: {}".to_owned(), "spec.egress: Required value"),
        (
            "8001 rules",
            format!("spec: {{egress: {}}}", many(8001, "{type: Deny, to: {cidrSelector: 10.0.0.0/8}}")),
            "at most 8000 items",
        ),
        ("an empty destination", efw("{type: Deny, to: {}}"), "at least 1"),
        ("two destinations", efw("{type: Deny, to: {cidrSelector: 10.0.0.0/8, dnsName: a.example}}"), "at most 1"),
        ("no destination", efw("{type: Deny}"), "to: Required value"),
        // The published patterns begin or end a choice, not the text: these pass there.
        ("Allowed", efw("{type: Allowed, to: {cidrSelector: 10.0.0.0/8}}"), "supported values: \"Allow\", \"Deny\""),
        (
            "TCPX",
            efw("{type: Deny, ports: [{protocol: TCPX, port: 1}], to: {cidrSelector: 10.0.0.0/8}}"),
            "supported values: \"TCP\", \"UDP\", \"SCTP\"",
        ),
        ("no CIDR", efw("{type: Deny, to: {cidrSelector: 10.0.0.0}}"), "must be of type cidr"),
        (
            "port 0",
            efw("{type: Deny, ports: [{protocol: TCP, port: 0}], to: {cidrSelector: 10.0.0.0/8}}"),
            "greater than or equal to 1",
        ),
        (
            "no protocol",
            efw("{type: Deny, ports: [{port: 1}], to: {cidrSelector: 10.0.0.0/8}}"),
            "protocol: Required value",
        ),
        ("two stars", efw("{type: Allow, to: {dnsName: '**.example.com'}}"), "should match"),
        ("a single label", efw("{type: Allow, to: {dnsName: com}}"), "should match"),
        ("a star over a single label", efw("{type: Allow, to: {dnsName: '*.com'}}"), "should match"),
        ("a star inside", efw("{type: Allow, to: {dnsName: 'a.*.com'}}"), "should match"),
    ]
}

fn resolvers() -> Vec<Case> {
    vec![
        ("no name", "spec: {}".to_owned(), "spec.name: Required value"),
        ("no dot at its end", "spec: {name: www.example.com}".to_owned(), "should match"),
        ("upper case", "spec: {name: Www.example.com.}".to_owned(), "should match"),
        ("one label", "spec: {name: localhost.}".to_owned(), "should match"),
        ("two stars", "spec: {name: '*.*.example.com.'}".to_owned(), "should match"),
        ("a long name", format!("spec: {{name: {}}}", "abcdefghi.".repeat(26)), "Too long"),
    ]
}

fn admin_network_policies() -> Vec<Case> {
    vec![
        ("no subject", "spec: {priority: 1}".to_owned(), "spec.subject: Required value"),
        ("an empty subject", "spec: {priority: 1, subject: {}}".to_owned(), "at least 1"),
        ("no priority", "spec: {subject: {namespaces: {}}}".to_owned(), "spec.priority: Required value"),
        ("priority 1001", "spec: {priority: 1001, subject: {namespaces: {}}}".to_owned(), "less than or equal to 1000"),
        (
            "no namespaceSelector",
            "spec: {priority: 1, subject: {pods: {podSelector: {}}}}".to_owned(),
            "namespaceSelector: Required value",
        ),
        (
            "no podSelector",
            "spec: {priority: 1, subject: {pods: {namespaceSelector: {}}}}".to_owned(),
            "podSelector: Required value",
        ),
        (
            "101 rules",
            format!(
                "spec: {{priority: 1, subject: {{namespaces: {{}}}}, ingress: {}}}",
                many(101, "{action: Deny, from: [{namespaces: {}}]}")
            ),
            "at most 100 items",
        ),
        ("Accept", anp("{action: Accept, to: [{namespaces: {}}]}"), "supported values: \"Allow\", \"Deny\", \"Pass\""),
        (
            "networks with a named port",
            anp("{action: Deny, to: [{networks: [10.0.0.0/8]}], ports: [{namedPort: http}]}"),
            "do not go with namedPort",
        ),
        ("26 networks", anp(&format!("{{action: Deny, to: [{{networks: {}}}]}}", different(26))), "at most 25 items"),
        ("a name that is denied", anp("{action: Deny, to: [{domainNames: [a.example.com]}]}"), "only in Allow rules"),
        ("a name that is passed", anp("{action: Pass, to: [{domainNames: [a.example.com]}]}"), "only in Allow rules"),
        ("a name without a dot", anp("{action: Allow, to: [{domainNames: [localhost]}]}"), "should match"),
        ("a star over a whole zone", anp("{action: Allow, to: [{domainNames: ['*.com']}]}"), "should match"),
        (
            "two ports in one",
            anp("{action: Deny, to: [{namespaces: {}}], ports: [{portNumber: {port: 1}, namedPort: http}]}"),
            "at most 1",
        ),
        (
            "a protocol",
            anp("{action: Deny, to: [{namespaces: {}}], ports: [{portNumber: {protocol: TPC, port: 1}}]}"),
            "supported values: \"TCP\"",
        ),
        (
            "a range that ends before",
            anp("{action: Deny, to: [{namespaces: {}}], ports: [{portRange: {start: 2, end: 1}}]}"),
            "ends before it starts",
        ),
        ("a port's name", anp("{action: Deny, to: [{namespaces: {}}], ports: [{namedPort: '80'}]}"), "namedPort"),
        ("a peer of a later version", anp("{action: Deny, to: [{services: {}}]}"), "field not declared in schema"),
    ]
}

fn baseline_admin_network_policies() -> Vec<Case> {
    vec![
        ("Pass", banp("{action: Pass, to: [{namespaces: {}}]}"), "supported values: \"Allow\", \"Deny\""),
        ("a name", banp("{action: Allow, to: [{domainNames: [a.example.com]}]}"), "field not declared in schema"),
        ("a priority", "spec: {priority: 1, subject: {namespaces: {}}}".to_owned(), "field not declared in schema"),
        (
            "nodes with a named port",
            banp("{action: Deny, to: [{nodes: {}}], ports: [{namedPort: http}]}"),
            "do not go with namedPort",
        ),
    ]
}

fn cluster_network_policies() -> Vec<Case> {
    vec![
        ("a tier", "spec: {tier: Middle, priority: 1, subject: {namespaces: {}}}".to_owned(), "supported values: \"Admin\", \"Baseline\""),
        ("priority 1001", "spec: {tier: Admin, priority: 1001, subject: {namespaces: {}}}".to_owned(), "less than or equal to 1000"),
        ("26 rules", format!("spec: {{tier: Admin, priority: 1, subject: {{namespaces: {{}}}}, egress: {}}}", many(26, "{action: Deny, to: [{namespaces: {}}]}")), "at most 25 items"),
        ("26 peers", cnp(&format!("{{action: Deny, to: {}}}", many(26, "{namespaces: {}}"))), "at most 25 items"),
        ("Allow", cnp("{action: Allow, to: [{namespaces: {}}]}"), "supported values: \"Accept\", \"Deny\", \"Pass\""),
        ("an empty peer", cnp("{action: Deny, to: [{}]}"), "at least 1"),
        ("no CIDR", cnp("{action: Deny, to: [{networks: [10.0.0]}]}"), "must be of type cidr"),
        ("a mapped address", cnp("{action: Deny, to: [{networks: ['::ffff:10.0.0.0/104']}]}"), "networks[0]\" must not validate"),
        ("a name that is denied", cnp("{action: Deny, to: [{domainNames: [a.example.com]}]}"), "only in Accept rules"),
        ("a name in the Baseline tier", "spec: {tier: Baseline, priority: 1, subject: {namespaces: {}}, egress: [{action: Accept, to: [{domainNames: [a.example.com]}]}]}".to_owned(), "only in the Admin tier"),
        ("a name with a named port", cnp("{action: Accept, to: [{domainNames: [a.example.com]}], protocols: [{destinationNamedPort: http}]}"), "do not go with destinationNamedPort"),
        ("no protocols", cnp("{action: Deny, to: [{namespaces: {}}], protocols: []}"), "at least 1 items"),
        ("tcp: {}", cnp("{action: Deny, to: [{namespaces: {}}], protocols: [{tcp: {}}]}"), "at least 1"),
        ("two protocols in one", cnp("{action: Deny, to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 1}}, udp: {destinationPort: {number: 1}}}]}"), "at most 1"),
        ("a range of one", cnp("{action: Deny, to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {range: {start: 1, end: 1}}}}]}"), "ends after it starts"),
        ("port 70000", cnp("{action: Deny, to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 70000}}}]}"), "less than or equal to 65535"),
    ]
}

/// Kind, name, and what is wrong with objects.
pub(crate) fn tables() -> Vec<(&'static str, &'static str, Vec<Case>)> {
    vec![
        ("ClusterEgressFirewall", "bad", cluster_egress_firewalls()),
        ("NodeAddresses", "bad", node_addresses()),
        ("EgressFirewall", "default", egress_firewalls()),
        ("DNSNameResolver", "bad", resolvers()),
        ("AdminNetworkPolicy", "bad", admin_network_policies()),
        ("BaselineAdminNetworkPolicy", "default", baseline_admin_network_policies()),
        ("ClusterNetworkPolicy", "bad", cluster_network_policies()),
    ]
}

pub(crate) fn objects_are_refused_with_a_reason(server: &Server) {
    let misnamed = [
        ("EgressFirewall", "mine", vec![("a name", "spec: {egress: []}".to_owned(), "is named default")]),
        (
            "BaselineAdminNetworkPolicy",
            "mine",
            vec![("a name", "spec: {subject: {namespaces: {}}}".to_owned(), "is named default")],
        ),
    ];
    let mut complaints = Vec::new();
    for (kind, name, cases) in tables().into_iter().chain(misnamed) {
        for (what, body, reason) in cases {
            for version in versions(kind) {
                match server.apply(version, &object(version, "default", name, &body), Stay::Tried) {
                    Ok(_) => complaints.push(format!("{kind} with {what} is taken")),
                    Err(refusal) if refusal.contains(reason) => {}
                    Err(refusal) => {
                        complaints.push(format!("{kind} with {what} is refused for another reason: {refusal}"))
                    }
                }
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}
