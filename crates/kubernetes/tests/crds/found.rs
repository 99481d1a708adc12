//! Objects that are written in this project's examples and scenarios: the API server takes those that can be read,
//! and no other.

use super::server::{Server, Stay, errors};
use namewall_cluster::kinds::{Kind, ObjectScope, VersionedKind};
use namewall_cluster::yaml;
use namewall_kubernetes::crds;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Names that can be read (S5) and that the published form does not know: in Unicode, with two stars, with `_` at
/// the edge of a label.
const MORE_THAN_PUBLISHED: [&str; 3] = ["bücher.example", "**.example.com", "_api._tcp.example.com"];

pub(crate) fn objects_of_examples_and_scenarios_are_taken_if_they_can_be_read(server: &Server) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = BTreeMap::new();
    for folder in ["examples", "tests/scenarios"] {
        files(&root.join(folder)).iter().for_each(|file| look_into(file, &mut found));
    }
    assert!(found.len() > 200, "only {} objects were found", found.len());
    let mut complaints = Vec::new();
    let mut more = BTreeSet::new();
    for (file, versioned, object) in found.values() {
        let errors = errors(*versioned, object);
        let taken = server.apply(*versioned, object, Stay::Tried);
        let object = format!("{}: {} {}", file.display(), versioned.kind.name, object["metadata"]["name"]);
        match (errors.is_empty(), taken) {
            (true, Err(refusal)) => match MORE_THAN_PUBLISHED.iter().find(|name| refusal.contains(*name)) {
                Some(name) => drop(more.insert(name)),
                None => complaints.push(format!("{object} can be read and is refused: {refusal}")),
            },
            (false, Ok(_)) => complaints.push(format!("{object} is taken and cannot be read: {errors:?}")),
            (true, Ok(_)) | (false, Err(_)) => {}
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    assert_eq!(more.len(), MORE_THAN_PUBLISHED.len(), "of those that the published form does not know");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files
}

/// By what they say, so that each is tried once.
type Found = BTreeMap<String, (PathBuf, VersionedKind, Value)>;

fn look_into(file: &Path, found: &mut Found) {
    let text = std::fs::read_to_string(file).unwrap();
    for part in yaml::split_documents(&text) {
        let Ok(Some(node)) = yaml::parse(part) else { continue };
        look(file, &node.to_json(), found);
    }
}

fn look(file: &Path, tree: &Value, found: &mut Found) {
    let is_it = |versioned: &VersionedKind| {
        tree["kind"] == versioned.kind.name
            && tree["apiVersion"] == versioned.api_version()
            && tree["metadata"]["name"].is_string()
    };
    if let Some(versioned) = crds::kinds().into_iter().flat_map(Kind::served).find(is_it) {
        let mut object = tree.clone();
        object["metadata"] = json!({"name": tree["metadata"]["name"]});
        if versioned.kind.scope == ObjectScope::Namespace {
            object["metadata"]["namespace"] = json!("default");
        }
        found.entry(object.to_string()).or_insert_with(|| (file.to_owned(), versioned, object));
        return;
    }
    match tree {
        Value::Array(items) => items.iter().for_each(|item| look(file, item, found)),
        Value::Object(fields) => fields.values().for_each(|field| look(file, field, found)),
        _ => {}
    }
}
