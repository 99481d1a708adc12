//! What is said of policies: whether each can be read as it is written. Pure.

use namewall_cluster::kinds::{self, Kind, VersionedKind};
use namewall_cluster::yaml::{Node, Value};
use namewall_cluster::{Document, Key, Settings, Store, lower};
use namewall_kubernetes::Verdict;
use namewall_policy::Severity;
use std::collections::{BTreeMap, HashMap};

/// More than a reader of `kubectl describe` takes in at once.
const MOST_WORDS: usize = 5;

/// A verdict on every policy.
pub fn verdicts(store: &Store) -> BTreeMap<(&'static Kind, Key), Verdict> {
    let of = |kind: &'static Kind| store.of(kind).map(move |(key, document)| (kind, key, document));
    let policies: Vec<(&'static Kind, &Key, Document)> = kinds::policies().flat_map(of).collect();
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
    let verdict = |(kind, key, document): &(&'static Kind, &Key, Document)| {
        let (mut errors, count) = by_object.get(&*document.file).cloned().unwrap_or_default();
        if count > errors.len() {
            errors.push(format!("and {} more", count - errors.len()));
        }
        let (versioned, generation) = (version_of(kind, document), generation(document));
        let verdict = Verdict { versioned, generation, errors, nodes: None };
        ((*kind, Key::clone(key)), verdict)
    };
    policies.iter().map(verdict).collect()
}

/// The kind in the version that the document is written in.
fn version_of(kind: &'static Kind, document: &Document) -> VersionedKind {
    let is_it = |one: &VersionedKind| Some(&*one.api_version()) == document.api_version();
    kind.served().find(is_it).unwrap_or_else(|| kind.preferred())
}

pub(crate) fn generation(document: &Document) -> i64 {
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
        let kind = &kinds::EGRESS_FIREWALL;
        let mut store = Store::default();
        let firewall = |name: &str, to: serde_json::Value| {
            json!({
                "metadata": {"name": "default", "namespace": name, "generation": 7},
                "spec": {"egress": [{"type": "Allow", "to": to}]},
            })
        };
        store.apply(kind.preferred(), &firewall("good", json!({"cidrSelector": "192.0.2.0/24"})));
        store.apply(kind.preferred(), &firewall("bad", json!({"cidrSelector": "192.0.2.0/240"})));
        let all = verdicts(&store);
        let of = |namespace: &str| &all[&(kind, Key { namespace: namespace.into(), name: "default".into() })];
        assert_eq!((of("good").generation, of("good").errors.len()), (7, 0));
        assert!(of("bad").errors[0].starts_with("spec.egress[0].to.cidrSelector: "), "{:?}", of("bad").errors);
    }
}
