//! Objects as the API server sends them, without the fields that nobody looks at:
//! an agent watches a hundred thousand pods. The table of kinds says which fields
//! of a kind are kept.

use crate::kinds::Kind;
use crate::lower::ANNOTATIONS;
use crate::yaml::{Entry, Mark, Node, Value};
use serde_json::Value as Json;

const METADATA: [&str; 8] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.labels",
    "metadata.generation",
    "metadata.uid",
    "metadata.ownerReferences.kind",
    "metadata.ownerReferences.name",
    "metadata.ownerReferences.controller",
];

/// What is kept of an object.
pub(crate) fn lean(kind: &Kind, object: &Json) -> Node {
    let all = ["apiVersion", "kind"].iter().chain(&METADATA).chain(kind.kept);
    let paths: Vec<&str> = all.copied().collect();
    let mut kept = part(object, &paths);
    let annotations = object.pointer("/metadata/annotations").and_then(Json::as_object);
    for (key, text) in annotations.into_iter().flatten().filter(|(key, _)| ANNOTATIONS.contains(&key.as_str())) {
        let place = kept.entry("metadata").and_then(|metadata| metadata.entry("annotations"));
        if let Some(place) = place.and_then(|annotations| annotations.entry(key)) {
            *place = whole(text);
        }
    }
    kept
}

/// The part of a tree that paths lead to.
fn part(tree: &Json, paths: &[&str]) -> Node {
    if paths.contains(&"") {
        return whole(tree);
    }
    let value = match tree {
        Json::Array(items) => Value::Seq(items.iter().map(|item| part(item, paths)).collect()),
        Json::Object(fields) => {
            let entries = fields.iter().filter_map(|(key, field)| {
                let further: Vec<&str> = paths.iter().filter_map(|path| beyond(path, key)).collect();
                (!further.is_empty()).then(|| entry(key, part(field, &further)))
            });
            Value::Map(entries.collect())
        }
        // Not what the path expects: kept, so that it is told of.
        _ => return whole(tree),
    };
    Node { mark: Mark::default(), value }
}

/// What of a path is left behind its first step.
fn beyond<'p>(path: &'p str, step: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(step)?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('.') }
}

fn entry(key: &str, node: Node) -> Entry {
    Entry { key: key.into(), mark: Mark::default(), node }
}

pub(crate) fn whole(tree: &Json) -> Node {
    let value = match tree {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => {
            number.as_i64().map_or_else(|| Value::Float(number.as_f64().unwrap_or_default()), Value::Int)
        }
        Json::String(text) => Value::String(text.as_str().into()),
        Json::Array(items) => Value::Seq(items.iter().map(whole).collect()),
        Json::Object(fields) => Value::Map(fields.iter().map(|(key, field)| entry(key, whole(field))).collect()),
    };
    Node { mark: Mark::default(), value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::POD;
    use serde_json::json;

    #[test]
    fn a_pod_keeps_what_policies_can_see() {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "web", "namespace": "shop", "labels": {"app": "web"}, "managedFields": [{"manager": "kubelet"}],
                "annotations": {"namewall.dev/enforcement": "audit", "kubectl.kubernetes.io/last-applied": "much"},
            },
            "spec": {"nodeName": "one", "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]},
            "status": {"podIP": "10.0.0.1", "conditions": []},
        });
        let expected = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "web", "namespace": "shop", "labels": {"app": "web"},
                "annotations": {"namewall.dev/enforcement": "audit"},
            },
            "spec": {"nodeName": "one", "containers": [{"ports": [{"containerPort": 80}]}]},
            "status": {"podIP": "10.0.0.1"},
        });
        assert_eq!(lean(&POD, &pod), whole(&expected));
    }

    #[test]
    fn what_has_an_unexpected_shape_is_kept_to_be_told_of() {
        let pod = json!({"kind": "Pod", "spec": {"containers": "none"}});
        assert_eq!(lean(&POD, &pod), whole(&pod));
    }
}
