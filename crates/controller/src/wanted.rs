//! Which names policies speak of, and who can be asked for them.

use namewall_cluster::yaml::{Node, Value};
use namewall_cluster::{Document, Key, Store, find_dns_service, kinds};
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

/// The names of rules of EgressFirewalls that deny. They keep their addresses while DNS fails (S8.7): otherwise an
/// outage of DNS would open what they deny.
pub fn denied(store: &Store) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, document) in store.of(&kinds::EGRESS_FIREWALL) {
        let rules = document.node.get("spec").and_then(|spec| spec.get("egress"));
        let Some(Value::Seq(rules)) = rules.map(|rules| &rules.value) else { continue };
        let denies = |rule: &&Node| rule.get("type").and_then(Node::as_str) == Some("Deny");
        for rule in rules.iter().filter(denies) {
            walk(rule, "dnsName", &mut names);
        }
    }
    names
}

/// True if the name, or the wildcard over it, is among these.
pub(crate) fn has_rule_for(names: &BTreeSet<String>, name: &str) -> bool {
    let over = name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
    names.contains(name) || over.is_some_and(|wildcard| names.contains(&wildcard))
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

/// The addresses of a Service's pods, where it listens for DNS: those that are ready, or all if none is. A pod that is
/// not ready may not answer, or not know all names yet.
pub fn resolvers(store: &Store, named: Option<&Key>) -> Vec<SocketAddr> {
    // A Service that is named may lack an address of its own: only its pods are asked.
    let Some(Key { namespace, name }) = named.cloned().or_else(|| find_dns_service(store, None)) else {
        return Vec::new();
    };
    let (mut ready, mut unready) = (BTreeSet::new(), BTreeSet::new());
    for endpoints in store.endpoints_of(&namespace, &name) {
        let port = endpoints.ports.iter().find(|(_, protocol, _)| *protocol == Protocol::Udp);
        let port = port.map_or(DNS_PORT, |(_, _, number)| *number);
        for &address in &endpoints.addresses {
            let known = if endpoints.unready.contains(&address) { &mut unready } else { &mut ready };
            known.insert(SocketAddr::new(address, port));
        }
    }
    let found = if ready.is_empty() { unready } else { ready };
    found.into_iter().collect()
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
    fn s8_7_the_names_that_are_denied() {
        let rule = |action: &str, name: &str| json!({"type": action, "to": {"dnsName": name}});
        let egress = [rule("Allow", "a.example.com"), rule("Deny", "*.B.example.com")];
        let firewall = json!({"metadata": {"name": "default", "namespace": "a"}, "spec": {"egress": egress}});
        let names = denied(&store(&EGRESS_FIREWALL, firewall));
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["*.b.example.com."]);
    }

    #[test]
    fn other_kinds_count_where_that_is_wished() {
        let rule = json!({"action": "Accept", "to": [{"domainNames": ["api.example.com"]}]});
        let policy = json!({"metadata": {"name": "p"}, "spec": {"egress": [rule]}});
        let store = store(&CLUSTER_NETWORK_POLICY, policy);
        assert!(wanted(&store, Whose::EgressFirewalls).is_empty());
        assert_eq!(wanted(&store, Whose::All).len(), 1);
    }

    fn service(name: &str) -> Key {
        Key { namespace: "kube-system".into(), name: name.into() }
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
        assert_eq!(resolvers(&store, Some(&service("kube-dns"))), expected);
        assert_eq!(resolvers(&store, Some(&service("other"))), []);
        assert_eq!(resolvers(&store, None), [], "it has no Service");
    }

    #[test]
    fn pods_that_are_not_ready_are_asked_only_if_none_is() {
        let slice = |ready: [Option<bool>; 3]| {
            let endpoint = |(number, ready): (usize, &Option<bool>)| json!({"addresses": [format!("10.0.0.{number}")], "conditions": {"ready": ready}});
            let endpoints: Vec<_> = ready.iter().enumerate().map(endpoint).collect();
            let labels = json!({"kubernetes.io/service-name": "kube-dns"});
            let metadata = json!({"name": "dns-x", "namespace": "kube-system", "labels": labels});
            store(&ENDPOINT_SLICE, json!({"metadata": metadata, "endpoints": endpoints}))
        };
        let asked = |ready| {
            resolvers(&slice(ready), Some(&service("kube-dns"))).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(asked([Some(false), Some(true), None]), ["10.0.0.1:53", "10.0.0.2:53"]);
        assert_eq!(asked([Some(false); 3]).len(), 3);
    }
}
