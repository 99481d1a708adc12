//! Two ways through a text give the same: the short way of plain documents and
//! the events of a full parser; reading at once, and loading before lowering.

#![allow(clippy::unwrap_used)] // In helpers of tests.

use namewall_cluster::yaml::{read_tree, read_tree_by_events, split_documents};
use namewall_cluster::{Settings, load, lower, read};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn same_trees(text: &str) {
    for document in split_documents(text) {
        assert_eq!(read_tree(document), read_tree_by_events(document), "{}", document.text);
    }
}

fn same_snapshots(folder: &Path) {
    let loaded = load(&[folder]).unwrap();
    let slow = lower(&loaded.documents, &Settings::default());
    let fast = read(&[folder], &Settings::default()).unwrap();
    assert_eq!(format!("{:?}", fast.lowered.snapshot), format!("{:?}", slow.snapshot));
    assert_eq!(fast.lowered.findings, slow.findings);
    assert_eq!(fast.lowered.resolved, slow.resolved);
    assert_eq!(fast.lowered.passed_over, slow.passed_over);
    assert_eq!(fast.findings, loaded.findings);
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

#[test]
fn texts_of_this_project_are_read_the_same_both_ways() {
    let mut all = Vec::new();
    for folder in ["tests/scenarios", "examples", "fuzz/corpus/manifests", "fuzz/corpus/scenarios"] {
        files(&Path::new(ROOT).join(folder), &mut all);
    }
    let mut read = 0;
    for path in all {
        if let Ok(text) = std::fs::read_to_string(&path) {
            same_trees(&text);
            read += 1;
        }
    }
    assert!(read > 100, "{read} files");
}

/// Lines that a manifest may be made of, and some that it may not.
const LINES: [&str; 34] = [
    "a:",
    "b: 1",
    "c: text",
    "- x",
    "- d: 2",
    "- e:",
    "  f: 0x10",
    "  g:",
    "  - h: y",
    "    i: \"q: r\"",
    "  - 'j'",
    "-",
    "# comment",
    "",
    "k: v # comment",
    "  l: {}",
    "  m: []",
    "    n: a b",
    "  - o: 1.10",
    "p:  spaced",
    "\"q r\": s",
    "  - - t",
    "u: |",
    "  text",
    "v: &a 1",
    "w: *a",
    "x: 'it''s'",
    "y: \"a\\nb\"",
    "z : 1",
    "---",
    "  aa: http://b:1/c",
    "bb: -",
    "cc: -1",
    "- {}",
];

#[test]
fn a_lone_minus_is_no_number() {
    for text in ["{\"a\":-}", "{\"a\":null,\"b\":-}", "[-]", "[-,1]", "{\"a\":-", "[-1,-.5,--1]"] {
        same_trees(text);
    }
}

#[test]
fn a_list_without_indentation_begins_at_the_same_place_both_ways() {
    for text in ["g:\n- h: y\n", "a:\n  g:\n  -  h: y\n", "- e:\n  - h: y\n", "g:\n-\n  h: y\n", "g:\n- # c\n  h: y\n"]
    {
        same_trees(text);
    }
}

fn lines() -> impl Strategy<Value = String> {
    proptest::collection::vec((0..3usize, 0..LINES.len()), 1..12).prop_map(|lines| {
        lines.into_iter().map(|(indent, at)| format!("{}{}\n", " ".repeat(2 * indent), LINES[at])).collect()
    })
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i32>().prop_map(Into::into),
        prop::sample::select(vec!["", "a", "y", "ü €", "😀\"\\\n\u{1}", "0120", "a: b", "# c"]).prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop::sample::select(vec!["kind", "items", "a", "ü", "x y", "metadata"]);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            proptest::collection::btree_map(key.prop_map(str::to_owned), inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn lines_are_read_the_same_both_ways(text in lines()) {
        same_trees(&text);
    }

    #[test]
    fn json_is_read_the_same_both_ways(value in json(), pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        same_trees(&text);
    }

    /// Cut off, or with a byte too many.
    #[test]
    fn broken_json_is_read_the_same_both_ways(value in json(), at: prop::sample::Index, with in "[{},:\" 1]?") {
        let text = serde_json::to_string(&value).unwrap();
        let at = (0..=at.index(text.len() + 1)).rev().find(|&at| text.is_char_boundary(at)).unwrap();
        same_trees(&format!("{}{with}", &text[..at]));
    }
}

const OBJECTS: [&str; 12] = [
    "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  namespace: shop\n  labels:\n    app: a\nstatus:\n  podIP: 10.0.0.1\n",
    "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  namespace: shop\nstatus:\n  podIP: 10.0.0.900\n",
    "apiVersion: v1\nkind: Pod\nmetadata:\n  name: done\nstatus:\n  phase: Succeeded\n",
    "apiVersion: v1\nkind: Pod\nmetadata:\n  name: A b\n  namespace: y\n  labels: app=db\n",
    "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: d\n  namespace: shop\nspec:\n  template:\n    metadata:\n      labels:\n        app: d\n    spec:\n      containers:\n      - name: c\n        ports:\n        - name: http\n          containerPort: 0120\n",
    "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: d\nspec: {}\n",
    "apiVersion: batch/v1\nkind: CronJob\nmetadata:\n  name: d\nspec:\n  jobTemplate:\n    spec:\n      template:\n        metadata:\n          labels: {app: c}\n",
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  a: |\n    text\n",
    "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: p\n  namespace: shop\nspec:\n  podSelector:\n    matchLabels:\n      app: a\n  ingress:\n  - from:\n    - podSelector: {}\n",
    "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: p\n  namespace: shop\nspec:\n  podSelector: {}\n  podSelector: {}\n",
    "apiVersion: v1\nkind: Service\nmetadata:\n  name: s\n  namespace: shop\nspec:\n  clusterIP: 10.96.0.1\n  selector:\n    app: a\n  ports:\n  - port: 80\n",
    "kind: Pod\nmetadata: {name: z}\nspec: {}\n",
];

/// The same objects as several documents, as a list in YAML, and as a list in JSON.
fn write(folder: &Path, objects: &[usize]) {
    std::fs::create_dir_all(folder).unwrap();
    let texts: Vec<&str> = objects.iter().map(|&at| OBJECTS[at]).collect();
    std::fs::write(folder.join("a.yaml"), texts.join("---\n")).unwrap();
    let items: String = texts
        .iter()
        .map(|text| text.lines().enumerate().map(|(at, line)| format!("{} {line}\n", if at == 0 { "-" } else { " " })))
        .flat_map(|lines| lines.collect::<Vec<_>>())
        .collect();
    std::fs::write(folder.join("b.yaml"), format!("apiVersion: v1\nitems:\n{items}kind: List\n")).unwrap();
    let trees = texts.iter().filter_map(|text| read_tree(split_documents(text)[0]).node);
    let items: Vec<serde_json::Value> = trees.map(|tree| serde_json::to_value(&tree).unwrap()).collect();
    let list = serde_json::json!({"apiVersion": "v1", "items": items, "kind": "List"});
    std::fs::write(folder.join("c.json"), serde_json::to_string_pretty(&list).unwrap()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn reading_at_once_is_loading_and_lowering(objects in proptest::collection::vec(0..OBJECTS.len(), 1..10)) {
        let folder = std::env::temp_dir().join(format!("namewall-reading-{}", std::process::id()));
        write(&folder, &objects);
        same_snapshots(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn lists_are_read_as_their_items_are() {
    let folder = std::env::temp_dir().join(format!("namewall-lists-{}", std::process::id()));
    write(&folder, &[0, 4, 8, 10]);
    let read = |file: &str| {
        let read = read(&[folder.join(file)], &Settings::default()).unwrap();
        let snapshot = read.lowered.snapshot;
        let ids = snapshot.workload_ids().map(|id| snapshot.workload_name(id)).collect::<Vec<_>>();
        (ids, snapshot.policies.len(), snapshot.services.len(), read.lowered.findings.len())
    };
    let one = read("a.yaml");
    assert_eq!((one.0.len(), one.1, one.2, one.3), (2, 1, 1, 0));
    assert_eq!((read("b.yaml"), read("c.json")), (one.clone(), one));
    std::fs::remove_dir_all(&folder).unwrap();
}
