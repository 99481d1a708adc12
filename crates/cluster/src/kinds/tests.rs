//! Every row is complete, and its parts agree with each other.

use super::*;
use crate::document::Document;
use crate::lower::{Lowered, Settings, lower};
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;

/// Fails with all rows that are wrong.
fn check(what: &str, is_wrong: impl Fn(&'static Kind) -> bool) {
    let wrong: Vec<&Kind> = KINDS.iter().copied().filter(|kind| is_wrong(kind)).collect();
    assert!(wrong.is_empty(), "{what}: {wrong:?}");
}

#[test]
fn a_group_has_a_kind_once() {
    let names: BTreeSet<(&str, &str)> = KINDS.iter().map(|kind| (kind.group, kind.name)).collect();
    assert_eq!(names.len(), KINDS.len());
    let plurals: BTreeSet<(&str, &str)> = KINDS.iter().map(|kind| (kind.group, kind.plural)).collect();
    assert_eq!(plurals.len(), KINDS.len());
}

#[test]
fn rows_are_complete() {
    check("no version", |kind| kind.versions.is_empty());
    check("a plural with capitals", |kind| kind.plural.chars().any(|c| !c.is_ascii_lowercase()));
    check("watched, neither v1 nor defined by us: not every cluster serves it", |kind| {
        kind.definition.is_none() && kind.versions[0] != "v1" && !kind.watched_by.is_empty()
    });
    check("defined, and watched by nobody", |kind| kind.definition.is_some() && kind.watched_by.is_empty());
    check("our own, and not defined", |kind| kind.is_own() && kind.definition.is_none());
    check("written by a component that does not watch it", |kind| {
        kind.write_access().any(|access| !kind.watched_by.contains(&access.by))
    });
}

/// An object of a kind with this spec, lowered.
fn lowered(kind: &'static Kind, spec: &Json) -> Lowered {
    let object = json!({
        "apiVersion": kind.preferred().api_version(),
        "kind": kind.name,
        "metadata": {"name": "default", "namespace": "shop"},
        "spec": spec,
    });
    let (documents, findings) = Document::read_all(&"one.json".into(), &object.to_string());
    assert!(findings.is_empty(), "{findings:?}");
    lower(&documents, &Settings::default())
}

#[test]
fn a_policy_is_lowered_as_what_its_row_says() {
    for kind in policies() {
        let policies = lowered(kind, &json!({})).snapshot.policies;
        let [policy] = &policies[..] else { panic!("{kind:?}: {policies:?}") };
        assert_eq!(policy.id.kind.name(), kind.name, "{kind:?}");
        assert_eq!(policy.id.namespace.is_some(), kind.scope == ObjectScope::Namespace, "{kind:?}");
    }
}

fn schema(kind: &Kind) -> Option<Json> {
    kind.definition.map(|definition| (definition.schema)())
}

#[test]
fn a_policy_may_have_the_fields_of_its_schema_and_no_others() {
    for kind in policies() {
        let Some(schema) = schema(kind) else { continue };
        let fields = schema["properties"]["spec"]["properties"].as_object().expect("a spec");
        let mut spec: serde_json::Map<String, Json> = fields.keys().map(|key| (key.clone(), Json::Null)).collect();
        spec.insert("unheardOf".to_owned(), Json::Null);
        let findings = lowered(kind, &Json::Object(spec)).findings;
        let unknown: Vec<&str> =
            findings.iter().filter(|one| one.code == "unknown-field").map(|one| one.path.as_str()).collect();
        assert_eq!(unknown, ["spec.unheardOf"], "{kind:?}");
    }
}

#[test]
fn the_field_with_names_is_in_the_schema() {
    for kind in policies() {
        let (Some(schema), Some(policy)) = (schema(kind), kind.policy()) else { continue };
        let text = schema.to_string();
        for key in ["domainNames", "dnsName"] {
            let has = text.contains(&format!("\"{key}\":{{"));
            assert_eq!(has, policy.names.is_some_and(|field| field.key == key), "{kind:?} {key}");
        }
    }
}

#[test]
fn a_schema_describes_an_object_with_a_status() {
    for kind in KINDS {
        let Some(schema) = schema(kind) else { continue };
        assert!(schema["properties"]["metadata"].is_object(), "{kind:?}");
        assert!(schema["properties"]["status"].is_object(), "{kind:?}");
        assert!(schema["description"].is_string(), "{kind:?}");
    }
}

#[test]
fn what_is_kept_of_a_policy_is_its_whole_spec() {
    check("a field that is not known here may be a restriction", |kind| kind.is_policy() && kind.kept != ["spec"]);
}
