//! Which names policies speak of, and who can be asked for them.

use namewall_cluster::yaml::{Node, Value};
use namewall_cluster::{Document, Store, kinds};
use namewall_policy::domain::{DomainPattern, Wildcard};
use namewall_policy::port::Protocol;
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// Whose names are looked up again and again.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Whose {
    /// Those of EgressFirewalls: they have no other way to be learned by those who watch DNSNameResolvers.
    #[default]
    EgressFirewalls,
    /// Those of all kinds.
    All,
}

const DNS_PORT: u16 = 53;

/// The names, lower case and with their last dot, each once. What is no name is reported where it is enforced.
pub fn wanted(store: &Store, whose: Whose) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for kind in kinds::policies() {
        let field = kind.policy().and_then(|policy| policy.names);
        let Some(field) = field.filter(|field| field.always_resolved || whose == Whose::All) else { continue };
        store.of(kind).for_each(|(_, document)| texts(&document, field.key, &mut names));
    }
    names
}

/// What stands under a key, wherever it is in the spec.
fn texts(document: &Document, key: &str, names: &mut BTreeSet<String>) {
    if let Some(spec) = document.node.get("spec") {
        walk(spec, key, names);
    }
}

fn walk(node: &Node, key: &str, names: &mut BTreeSet<String>) {
    match &node.value {
        Value::Map(entries) => entries.iter().for_each(|entry| match *entry.key == *key {
            true => take(&entry.node, names),
            false => walk(&entry.node, key, names),
        }),
        Value::Seq(items) => items.iter().for_each(|item| walk(item, key, names)),
        _ => {}
    }
}

fn take(node: &Node, names: &mut BTreeSet<String>) {
    match &node.value {
        Value::Seq(items) => items.iter().for_each(|item| take(item, names)),
        Value::String(text) => {
            // The API refuses a single label.
            let read = DomainPattern::parse(text, Wildcard::OneLabel).ok();
            let name = read.filter(|pattern| pattern.domain().as_str().contains('.'));
            names.extend(name.map(|pattern| match &pattern {
                DomainPattern::Exact(domain) => format!("{domain}."),
                DomainPattern::OneLabel(domain) | DomainPattern::Subdomains(domain) => format!("*.{domain}."),
            }));
        }
        _ => {}
    }
}

/// The addresses of a Service's pods, where it listens for DNS.
pub fn resolvers(store: &Store, namespace: &str, service: &str) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for endpoints in store.endpoints_of(namespace, service) {
        let port = endpoints.ports.iter().find(|(_, protocol, _)| *protocol == Protocol::Udp);
        let port = port.map_or(DNS_PORT, |(_, _, number)| *number);
        found.extend(endpoints.addresses.iter().map(|&address| SocketAddr::new(address, port)));
    }
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_cluster::kinds::{CLUSTER_NETWORK_POLICY, EGRESS_FIREWALL, ENDPOINT_SLICE, Kind};
    use serde_json::json;

    fn store(kind: &'static Kind, object: serde_json::Value) -> Store {
        let mut store = Store::default();
        store.apply(kind.preferred(), &object);
        store
    }

    #[test]
    fn s8_2_each_name_once_in_lower_case_with_its_last_dot() {
        let rule = |name: &str| json!({"type": "Allow", "to": {"dnsName": name}});
        let egress = ["WWW.Example.com", "www.example.com.", "*.example.com", "nodots", "-bad-.example"].map(rule);
        let firewall = json!({"metadata": {"name": "default", "namespace": "a"}, "spec": {"egress": egress}});
        let names = wanted(&store(&EGRESS_FIREWALL, firewall), Whose::EgressFirewalls);
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["*.example.com.", "www.example.com."]);
    }

    #[test]
    fn other_kinds_count_where_that_is_wished() {
        let rule = json!({"action": "Accept", "to": [{"domainNames": ["api.example.com"]}]});
        let policy = json!({"metadata": {"name": "p"}, "spec": {"egress": [rule]}});
        let store = store(&CLUSTER_NETWORK_POLICY, policy);
        assert!(wanted(&store, Whose::EgressFirewalls).is_empty());
        assert_eq!(wanted(&store, Whose::All).len(), 1);
    }

    #[test]
    fn resolvers_are_the_pods_of_the_service() {
        let slice = json!({
            "metadata": {"name": "dns-x", "namespace": "kube-system", "labels": {"kubernetes.io/service-name": "kube-dns"}},
            "endpoints": [{"addresses": ["10.0.0.2"]}, {"addresses": ["10.0.0.1"]}],
            "ports": [{"name": "dns-tcp", "port": 53, "protocol": "TCP"}, {"name": "dns", "port": 1053, "protocol": "UDP"}],
        });
        let store = store(&ENDPOINT_SLICE, slice);
        let expected: [SocketAddr; 2] = [([10, 0, 0, 1], 1053).into(), ([10, 0, 0, 2], 1053).into()];
        assert_eq!(resolvers(&store, "kube-system", "kube-dns"), expected);
        assert_eq!(resolvers(&store, "kube-system", "other"), []);
    }
}
