//! What is said of policies: whether each can be read as it is written. Pure.

use namewall_cluster::kinds::{Kind, WATCHED};
use namewall_cluster::yaml::{Node, Value};
use namewall_cluster::{Document, Key, Settings, Store, lower};
use namewall_kubernetes::Verdict;
use namewall_policy::Severity;
use std::collections::HashMap;

/// Kinds of policies.
const POLICIES: [&str; 6] = [
    "NetworkPolicy",
    "AdminNetworkPolicy",
    "BaselineAdminNetworkPolicy",
    "ClusterNetworkPolicy",
    "EgressFirewall",
    "ClusterEgressFirewall",
];
/// More than a reader of `kubectl describe` takes in at once.
const MOST_WORDS: usize = 5;

/// A verdict on every policy.
pub fn verdicts(store: &Store) -> HashMap<(&'static str, Key), Verdict> {
    let of = |kind: &'static str| store.of(kind).map(move |(key, document)| (kind, key, document));
    let policies: Vec<(&'static str, &Key, Document)> = POLICIES.into_iter().flat_map(of).collect();
    let findings = lower(policies.iter().map(|(_, _, document)| document), &Settings::default()).findings;
    let mut by_object: HashMap<&str, (Vec<String>, usize)> = HashMap::new();
    for finding in findings.iter().filter(|finding| finding.severity == Severity::Error) {
        let Some(source) = &finding.source else { continue };
        let (words, count) = by_object.entry(&*source.file).or_default();
        *count += 1;
        if words.len() < MOST_WORDS {
            let path = if finding.path.is_empty() { String::new() } else { format!("{}: ", finding.path) };
            words.push(format!("{path}{}", finding.message));
        }
    }
    let verdict = |(name, key, document): &(&'static str, &Key, Document)| {
        let (mut errors, count) = by_object.get(&*document.file).cloned().unwrap_or_default();
        if count > errors.len() {
            errors.push(format!("and {} more", count - errors.len()));
        }
        let verdict = Verdict { kind: kind_of(name, document), generation: generation(document), errors };
        ((*name, Key::clone(key)), verdict)
    };
    policies.iter().map(verdict).collect()
}

/// In the version it is watched in.
fn kind_of(name: &str, document: &Document) -> Kind {
    let is_it = |kind: &&Kind| kind.name == name && Some(&*kind.api_version()) == document.api_version();
    let any = || WATCHED.iter().find(|kind| kind.name == name);
    *WATCHED.iter().find(is_it).or_else(any).unwrap_or(&WATCHED[0])
}

fn generation(document: &Document) -> i64 {
    match document.node.get("metadata").and_then(|metadata| metadata.get("generation")) {
        Some(Node { value: Value::Int(number), .. }) => *number,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_cannot_be_read_is_said_with_its_place() {
        let kind = WATCHED.iter().find(|kind| kind.name == "EgressFirewall").expect("it is watched");
        let mut store = Store::default();
        let firewall = |name: &str, to: serde_json::Value| {
            json!({
                "metadata": {"name": "default", "namespace": name, "generation": 7},
                "spec": {"egress": [{"type": "Allow", "to": to}]},
            })
        };
        store.apply(kind, &firewall("good", json!({"cidrSelector": "192.0.2.0/24"})));
        store.apply(kind, &firewall("bad", json!({"cidrSelector": "192.0.2.0/240"})));
        let all = verdicts(&store);
        let of =
            |namespace: &str| &all[&("EgressFirewall", Key { namespace: namespace.into(), name: "default".into() })];
        assert_eq!((of("good").generation, of("good").errors.len()), (7, 0));
        assert!(of("bad").errors[0].starts_with("spec.egress[0].to.cidrSelector: "), "{:?}", of("bad").errors);
    }
}
