//! Statuses as namewall writes them, and what is refused of them.

use super::server::{Server, Stay, errors, object, versions};
use namewall_cluster::Key;
use namewall_cluster::kinds::Verb;
use namewall_cluster::kinds::cluster_egress_firewall::{
    ClusterEgressFirewallStatus, ConcreteRule, OffendingService, Port,
};
use namewall_cluster::kinds::egress_firewall::EgressFirewallStatus;
use namewall_cluster::kinds::meta::{Condition, PolicyStatus};
use serde_json::{Value, json};

const TIME: &str = "2026-01-02T03:04:05Z";

fn condition(kind: &str, status: &str) -> Condition {
    Condition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        observed_generation: Some(1),
        last_transition_time: TIME.parse().unwrap(),
        reason: "Read".to_owned(),
        message: "every rule can be read".to_owned(),
    }
}

fn key(namespace: &str, name: &str) -> Key {
    Key { namespace: namespace.into(), name: name.into() }
}

/// Writes a status to an object that is there, and reads it back.
fn write(server: &Server, kind: &str, key: &Key, status: Value) -> Result<Value, String> {
    let mut with_status = object(versions(kind)[0], &key.namespace, &key.name, "{}");
    with_status["status"] = status;
    server.apply_status(versions(kind)[0], &with_status)
}

pub(crate) fn are_written_and_read_back(server: &Server) {
    firewalls(server);
    resolvers(server);
    let status = PolicyStatus { conditions: vec![condition("Accepted", "Unknown")] };
    for (kind, name) in
        [("AdminNetworkPolicy", "all"), ("BaselineAdminNetworkPolicy", "default"), ("ClusterNetworkPolicy", "admin")]
    {
        let written = write(server, kind, &key("", name), json!(status)).unwrap();
        assert_eq!(serde_json::from_value::<PolicyStatus>(written["status"].clone()).unwrap(), status);
    }
    let status = json!({"observedGeneration": 1, "conditions": [condition("Current", "True")]});
    let written = write(server, "NodeAddresses", &key("", "node-1"), status.clone()).unwrap();
    assert_eq!(written["status"], status);
    assert_eq!(written["addresses"][0], "10.0.0.1", "a status changes nothing else");
}

fn firewalls(server: &Server) {
    let status = ClusterEgressFirewallStatus {
        observed_generation: Some(1),
        conditions: vec![condition("Accepted", "True"), condition("Enforced", "False")],
        enforcing_nodes: Some(0),
        concrete_rules: vec![ConcreteRule {
            rule: 1,
            name: None,
            action: Verb::Deny,
            networks: vec!["0.0.0.0/0".to_owned(), "10.0.1.2/32".to_owned()],
            networks_count: 2,
            ports: vec![Port { protocol: Some("SCTP".to_owned()), port: Some(22), end_port: None }],
        }],
        offending_services: vec![OffendingService {
            namespace: "shop".to_owned(),
            name: "way-round".to_owned(),
            rule: 1,
            address: "10.0.1.2".to_owned(),
        }],
        offending_services_count: Some(1),
    };
    let firewall = key("", "names-and-deny");
    let written = write(server, "ClusterEgressFirewall", &firewall, json!(status)).unwrap();
    assert_eq!(serde_json::from_value::<ClusterEgressFirewallStatus>(written["status"].clone()).unwrap(), status);
    assert_eq!(written["metadata"]["generation"], 1, "a status is no change of the firewall");
    assert_eq!(written["spec"]["rules"][0]["ports"][0]["protocol"], "TCP", "the default");
    let table = server.plane.kubectl(&["get", "cef", "names-and-deny", "empty"]).unwrap();
    let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["NAME", "PRIORITY", "ENFORCING", "ACCEPTED", "AGE"]);
    assert_eq!(words[1][..4], ["names-and-deny", "10", "0", "True"]);
    // All pods, if it does not say whom it is for.
    let empty = server.plane.get(&["cef", "empty"]).unwrap();
    assert_eq!(empty["spec"]["subject"], json!({"namespaces": {}}));

    let twice = json!({"conditions": [condition("Accepted", "True"), condition("Accepted", "False")]});
    let refusal = write(server, "ClusterEgressFirewall", &firewall, twice).unwrap_err();
    assert!(refusal.contains("duplicate"), "{refusal}");
    let mut odd = json!({"conditions": [condition("Accepted", "True")]});
    odd["conditions"][0]["status"] = json!("Perhaps");
    let refusal = write(server, "ClusterEgressFirewall", &firewall, odd).unwrap_err();
    assert!(refusal.contains("supported values"), "{refusal}");

    let status = EgressFirewallStatus {
        status: Some("EgressFirewall Rules applied".to_owned()),
        messages: vec!["node-1: applied".to_owned()],
    };
    let namespace = namespace_of(server, "egressfirewalls");
    let written = write(server, "EgressFirewall", &key(&namespace, "default"), json!(status)).unwrap();
    assert_eq!(serde_json::from_value::<EgressFirewallStatus>(written["status"].clone()).unwrap(), status);
}

/// Where the first object of a kind is.
fn namespace_of(server: &Server, plural: &str) -> String {
    let list = server.plane.get(&[plural, "--all-namespaces"]).unwrap();
    list["items"][0]["metadata"]["namespace"].as_str().unwrap().to_owned()
}

fn resolvers(server: &Server) {
    let kind = versions("DNSNameResolver")[0];
    let namespace = namespace_of(server, "dnsnameresolvers");
    let resolver = key(&namespace, "dns-a");
    let address = |ip: &str| json!({"ip": ip, "ttlSeconds": 30, "lastLookupTime": TIME});
    let status = json!({"resolvedNames": [{
        "conditions": [condition("Degraded", "False")],
        "dnsName": "www.example.com.",
        "resolvedAddresses": [address("203.0.113.80"), address("2001:db8::80")],
        "resolutionFailures": 2,
    }]});
    let written = write(server, "DNSNameResolver", &resolver, status.clone()).unwrap();
    assert_eq!(written["status"], status);
    assert_eq!(errors(kind, &written), Vec::<String>::new());

    let mut odd = status;
    odd["resolvedNames"][0]["resolvedAddresses"][0]["ip"] = json!("somewhere");
    let refusal = write(server, "DNSNameResolver", &resolver, odd).unwrap_err();
    assert!(refusal.contains("somewhere"), "{refusal}");

    let another = object(kind, &resolver.namespace, &resolver.name, "spec: {name: other.example.com.}");
    let refusal = server.apply(kind, &another, Stay::Tried).unwrap_err();
    assert!(refusal.contains("spec.name is immutable"), "{refusal}");
}
