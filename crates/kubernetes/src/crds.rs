//! The CustomResourceDefinitions of the kinds that a cluster may lack, made from the table of kinds.
//!
//! Two kinds are our own. The others belong to other projects: group, versions, names, scope and fields are as
//! published. Where the published schema accepts what nobody can read (a protocol `TPC`, a CIDR that is none), ours
//! refuses it, so that users learn of a mistake when they make it.

use namewall_cluster::kinds::{Column, Definition, KINDS, Kind, ObjectScope, VersionedKind};
use serde_json::{Value, json};

/// A CustomResourceDefinition and its kind.
#[derive(Clone, Debug)]
pub struct Crd {
    pub kind: &'static Kind,
    pub object: Value,
}

/// The kinds that are defined here: our own first, then by group and name.
pub fn kinds() -> Vec<&'static Kind> {
    let mut kinds: Vec<&Kind> = KINDS.iter().copied().filter(|kind| kind.definition.is_some()).collect();
    kinds.sort_by_key(|kind| (!kind.is_own(), kind.group, kind.name));
    kinds
}

/// The definitions of [`kinds`].
pub fn definitions() -> Vec<Crd> {
    kinds().into_iter().filter_map(|kind| Some(Crd { kind, object: object(kind, kind.definition?) })).collect()
}

/// Definitions as YAML documents.
pub fn to_yaml(definitions: &[Crd]) -> Result<String, serde_saphyr::ser::Error> {
    let objects: Vec<&Value> = definitions.iter().map(|definition| &definition.object).collect();
    serde_saphyr::to_string_multiple(&objects)
}

/// Definitions as one list, which is what kubectl prints and takes.
pub fn to_list(definitions: &[Crd]) -> Value {
    let items: Vec<&Value> = definitions.iter().map(|definition| &definition.object).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn object(kind: &'static Kind, definition: &Definition) -> Value {
    let mut names = json!({
        "kind": kind.name,
        "listKind": format!("{}List", kind.name),
        "plural": kind.plural,
        "singular": kind.name.to_lowercase(),
    });
    if !kind.short_names.is_empty() {
        names["shortNames"] = json!(kind.short_names);
    }
    if kind.is_own() {
        names["categories"] = json!(["namewall"]);
    }
    let mut metadata = json!({"name": format!("{}.{}", kind.plural, kind.group)});
    if let Some(approved) = definition.approved {
        metadata["annotations"] = json!({"api-approved.kubernetes.io": approved});
    }
    let versions: Vec<Value> = kind.served().map(|served| version(served, definition)).collect();
    let scope = match kind.scope {
        ObjectScope::Cluster => "Cluster",
        ObjectScope::Namespace => "Namespaced",
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {"group": kind.group, "names": names, "scope": scope, "versions": versions},
    })
}

fn version(served: VersionedKind, definition: &Definition) -> Value {
    let mut version = json!({
        "name": served.version,
        "served": true,
        // Watches prefer the same version, so that objects need not be converted.
        "storage": served == served.kind.preferred(),
        "schema": {"openAPIV3Schema": (definition.schema)()},
        "subresources": {"status": {}},
    });
    if !definition.columns.is_empty() {
        let column = |one: &Column| json!({"name": one.name, "type": one.format, "jsonPath": one.path});
        version["additionalPrinterColumns"] = definition.columns.iter().map(column).collect();
    }
    version
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_as_yaml_is_what_is_printed_as_json() {
        let definitions = definitions();
        let yaml = to_yaml(&definitions).expect("it can be written");
        let (documents, findings) = namewall_cluster::Document::read_all(&"crds.yaml".into(), &yaml);
        assert!(findings.is_empty(), "{findings:?}");
        let json = to_list(&definitions).to_string();
        let (expected, findings) = namewall_cluster::Document::read_all(&"crds.json".into(), &json);
        assert!(findings.is_empty(), "{findings:?}");
        assert_eq!(documents.len(), definitions.len());
        for (document, expected) in documents.iter().zip(&expected) {
            assert_eq!(document.node.to_json(), expected.node.to_json());
        }
    }
}
