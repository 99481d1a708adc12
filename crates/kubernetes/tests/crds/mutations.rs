//! Good objects with one thing changed: whatever the API server still takes must still be readable. Nobody has to
//! think of the mistake first.

use super::good;
use super::server::{Server, Stay, errors, object, versions};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What could stand in place of a text: names, blocks, addresses and words, right somewhere and wrong elsewhere.
const ODD: &str = "* *. **.a.b *.a *.10.0.0.1 10.0.0.1. a..b .a a.b. -a.b A_b.c-.d ü.example a/b 0 80 a--b \
                   10.0.0.0/8 10.0.0.0/08 10.0.0.0/33 ::/0 ::/129 1.2.3/24 ::ffff:1.2.3.4/120 0:0::FFFF:1.2.3.4/120 \
                   10.0.0.1 010.0.0.1 ::ffff:10.0.0.1 fe80::1%0 \
                   allow Accept Deny Pass tcp ICMP UDP Exists Gt Baseline";

/// A step into a tree.
#[derive(Clone, Debug)]
enum Step {
    Key(String),
    At(usize),
}

pub(crate) fn are_readable_if_they_are_taken(server: &Server) {
    let mut tried = BTreeSet::new();
    let (mut taken, mut complaints) = (0, Vec::new());
    for (kind, name, body) in good::GOOD {
        let version = versions(kind)[0];
        let whole = object(version, "default", name, body);
        let mut paths = Vec::new();
        for key in ["spec", "addresses"].iter().filter(|key| whole.get(**key).is_some()) {
            walk(&whole[*key], &mut vec![Step::Key((*key).to_owned())], &mut paths);
        }
        for path in paths {
            for change in changes(at(&whole, &path)) {
                let place = match written(&path) {
                    // All kinds have the same selectors.
                    path if path.contains(".match") => format!("{} {change:?}", &path[path.find(".match").unwrap()..]),
                    path => format!("{kind} {path} {change:?}"),
                };
                if !tried.insert(place.clone()) {
                    continue;
                }
                let changed = with(&whole, &path, change);
                let Ok(answer) = server.apply(version, &changed, Stay::Tried) else { continue };
                taken += 1;
                complaints.extend(errors(version, &answer).iter().map(|error| format!("{place} is taken: {error}")));
            }
        }
    }
    assert!(complaints.is_empty(), "of {} that were tried and {taken} taken:\n{}", tried.len(), complaints.join("\n"));
    assert!(tried.len() > 1000 && taken > 100, "{} tried, {taken} taken", tried.len());
}

/// Every place in a tree.
fn walk(tree: &Value, path: &mut Vec<Step>, paths: &mut Vec<Vec<Step>>) {
    paths.push(path.clone());
    let mut go = |step: Step, part: &Value| {
        path.push(step);
        walk(part, path, paths);
        path.pop();
    };
    match tree {
        Value::Object(fields) => fields.iter().for_each(|(key, part)| go(Step::Key(key.clone()), part)),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, part)| go(Step::At(index), part)),
        _ => {}
    }
}

/// A path as the schema has it: all items of a list are alike.
fn written(path: &[Step]) -> String {
    let steps = path.iter().map(|step| match step {
        Step::Key(key) => key.as_str(),
        Step::At(_) => "[]",
    });
    steps.collect::<Vec<&str>>().join(".")
}

fn at<'t>(tree: &'t Value, path: &[Step]) -> &'t Value {
    path.iter().fold(tree, |part, step| match step {
        Step::Key(key) => &part[key],
        Step::At(index) => &part[*index],
    })
}

/// What could stand there instead. `None`: nothing.
fn changes(part: &Value) -> Vec<Option<Value>> {
    let mut changes = vec![None, Some(Value::Null), Some(json!({})), Some(json!([])), Some(json!("x")), Some(json!(1))];
    match part {
        Value::String(_) => {
            let long = [format!("{}.example.com.", "a".repeat(64)), "abcdefghi.".repeat(26), "n".repeat(101)];
            let empty = ["", " "].map(str::to_owned);
            let odd = ODD.split(' ').map(str::to_owned);
            changes.extend(odd.chain(empty).chain(long).map(|text| Some(json!(text))));
        }
        Value::Number(_) => {
            changes.extend([-1, 0, 1000, 1001, 65535, 65536, i64::from(u32::MAX)].map(|number| Some(json!(number))))
        }
        Value::Array(items) => {
            let twice: Vec<&Value> = items.iter().chain(items).collect();
            changes.push(Some(json!(twice)));
        }
        Value::Object(fields) => {
            let mut more = fields.clone();
            more.insert("unheard".to_owned(), json!({}));
            changes.push(Some(Value::Object(more)));
        }
        _ => {}
    }
    changes
}

fn with(tree: &Value, path: &[Step], change: Option<Value>) -> Value {
    let mut tree = tree.clone();
    let Some((last, parents)) = path.split_last() else { return tree };
    let parent = parents.iter().fold(&mut tree, |part, step| match step {
        Step::Key(key) => &mut part[key.as_str()],
        Step::At(index) => &mut part[*index],
    });
    match (last, parent, change) {
        (Step::Key(key), parent, Some(change)) => parent[key.as_str()] = change,
        (Step::At(index), parent, Some(change)) => parent[*index] = change,
        (Step::Key(key), Value::Object(fields), None) => drop(fields.remove(key)),
        (Step::At(index), Value::Array(items), None) => drop(items.remove(*index)),
        _ => {}
    }
    tree
}
