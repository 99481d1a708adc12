//! Text → tree. Events come from `saphyr-parser`; [`super::scalar`] says what
//! plain scalars are.

use super::build::{Builder, Fault, ParseError};
use super::json::{self, Json};
use super::{Node, block};
use saphyr_parser::Parser;
use std::borrow::Cow;

/// One document's text and the line it starts on, counted from 0.
#[derive(Clone, Copy, Debug)]
pub struct DocumentText<'t> {
    pub text: &'t str,
    pub first_line: u32,
}

/// Cuts a stream at its `---` and `...` lines. YAML forbids such lines inside
/// any scalar, so the cut is exact, and a broken document cannot spoil the next.
pub fn split_documents(text: &str) -> Vec<DocumentText<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut documents = Vec::new();
    let (mut start, mut first_line) = (0, 0);
    let mut offset = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let end = offset + line.len();
        if is_marker(line, "---") {
            documents.push(DocumentText { text: &text[start..offset], first_line });
            (start, first_line) = (offset, number as u32);
        } else if is_marker(line, "...") {
            documents.push(DocumentText { text: &text[start..offset], first_line });
            (start, first_line) = (end, number as u32 + 1);
        }
        offset = end;
    }
    documents.push(DocumentText { text: &text[start..], first_line });
    documents.retain(|document| has_content(document.text));
    documents
}

fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

fn has_content(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.strip_prefix("---").unwrap_or(line).trim();
        // Directives, like %YAML 1.2, stand before the `---` of the document they are for.
        !line.is_empty() && !line.starts_with(['#', '%'])
    })
}

/// A document as far as it can be read.
#[derive(Debug, Default, PartialEq)]
pub struct Tree {
    /// `None` if there is nothing in it.
    pub node: Option<Node>,
    pub faults: Vec<Fault>,
}

/// Reads one document; `None` if there is nothing in it. Any fault is an error.
pub fn parse(document: DocumentText<'_>) -> Result<Option<Node>, ParseError> {
    let Tree { node, faults } = read_tree(document);
    match faults.into_iter().next() {
        None => Ok(node),
        Some(Fault { mark, message, .. }) => Err(ParseError { mark, message }),
    }
}

/// Reads one document as far as it can be read: the short way if it is that plain.
pub fn read_tree(document: DocumentText<'_>) -> Tree {
    let plain = if is_json(document.text) {
        match json::read(document, |_| ()) {
            Some(Json::Tree(node)) => Some(node),
            Some(Json::List) | None => None,
        }
    } else {
        block::read(document)
    };
    match plain {
        Some(node) => Tree { node: Some(node), faults: Vec::new() },
        None => read_tree_by_events(document),
    }
}

pub(crate) fn is_json(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// The items of a `kind: …List` as `kubectl get -o yaml` writes it, each as a document of its own: a list of one. `None`
/// if the text is anything else.
pub(crate) fn list_items(document: DocumentText<'_>) -> Option<Vec<DocumentText<'_>>> {
    let DocumentText { text, first_line } = document;
    let start = if text.starts_with("items:\n") { 0 } else { text.find("\nitems:\n")? + 1 };
    let mut items: Vec<DocumentText<'_>> = Vec::new();
    let mut offset = start + "items:\n".len();
    let before = first_line + text[..offset].bytes().filter(|&byte| byte == b'\n').count() as u32;
    for (number, line) in (before..).zip(text[offset..].split_inclusive('\n')) {
        match line.as_bytes()[0] {
            b'-' => items.push(DocumentText { text: &text[offset..offset], first_line: number }),
            b' ' | b'\n' => {}
            _ => break,
        }
        let item = items.last_mut()?;
        let from = offset - item.text.len();
        offset += line.len();
        item.text = &text[from..offset];
    }
    // What stands around the items says that it is a list, and nothing that needs a further look.
    let around = [&text[..start], &text[offset..]].concat();
    let shell = block::read(DocumentText { text: &around, first_line })?;
    let kind = shell.get("kind")?.as_str()?;
    (kind.ends_with("List") && shell.get("items").is_none() && !items.is_empty()).then_some(items)
}

/// The same by the events of a full YAML parser, which reads every document.
pub fn read_tree_by_events(document: DocumentText<'_>) -> Tree {
    let mut builder = Builder::new(document.first_line);
    let text = join_surrogates(document.text);
    for event in Parser::new_from_str(&text) {
        let taken = match event {
            Ok((event, span)) => builder.take(event, span),
            Err(error) => {
                let mark = builder.mark(error.marker().line(), error.marker().col());
                Err(ParseError { mark, message: format!("not valid YAML: {}", error.info()) })
            }
        };
        if let Err(error) = taken {
            builder.give_up(error);
            break;
        }
    }
    let (node, faults) = builder.into_parts();
    Tree { node, faults }
}

/// JSON writes what is beyond 16 bits as two escapes, which YAML writes as one.
fn join_surrogates(text: &str) -> Cow<'_, str> {
    let is_json = text.trim_start_matches("---").trim_start().starts_with(['{', '[']);
    if !is_json || !(text.contains("\\ud") || text.contains("\\uD")) {
        return text.into();
    }
    let unit = |escape: &str| {
        let digits = escape.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut joined = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        joined.push_str(before);
        let units = unit(escape).zip(escape.get(6..).and_then(unit));
        match units.and_then(|(high, low)| char::decode_utf16([high, low]).next()?.ok()) {
            Some(character) if u32::from(character) > 0xffff => {
                joined.push(character);
                rest = &escape[12..];
            }
            // Any other escape: what follows the backslash is not the start of one.
            _ => {
                let end = escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end);
                joined.push_str(&escape[..end]);
                rest = &escape[end..];
            }
        }
    }
    joined.push_str(rest);
    joined.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::Value;

    fn one(text: &str) -> Node {
        let documents = split_documents(text);
        assert_eq!(documents.len(), 1, "{text}");
        parse(documents[0]).unwrap().unwrap()
    }

    #[test]
    fn streams_are_cut_exactly_and_lines_go_on_counting() {
        let text = "---\n# only a comment\n---\na: 1\n---  \nb: |\n  ---not a cut\n  --- nor this\nc: 2\n...\n---\n\n";
        let documents = split_documents(text);
        assert_eq!(documents.len(), 2);
        assert_eq!(split_documents("%YAML 1.2\n---\na: 1\n").len(), 1);
        let second = parse(documents[1]).unwrap().unwrap();
        assert_eq!(second.get("b").unwrap().as_str(), Some("---not a cut\n--- nor this\n"));
        assert_eq!(second.get("c").unwrap().mark.line, 9);
    }

    #[test]
    fn scalars_are_texts_only_if_they_are_quoted_or_tagged() {
        let node = one(
            "a: 80\nb: \"80\"\nc: 'true'\nd: true\ne: ~\nf: 10.0.0.1\ng: 1.5\ni: !!str 5\nj: -3\nk: !!int \"7\"\nl: !x 5\n",
        );
        let expected = [
            ("a", Value::Int(80)),
            ("b", Value::String("80".into())),
            ("c", Value::String("true".into())),
            ("d", Value::Bool(true)),
            ("e", Value::Null),
            ("f", Value::String("10.0.0.1".into())),
            ("g", Value::Float(1.5)),
            ("i", Value::String("5".into())),
            ("j", Value::Int(-3)),
            ("k", Value::Int(7)),
            ("l", Value::String("5".into())),
        ];
        for (key, value) in expected {
            assert_eq!(node.get(key).unwrap().value, value, "{key}");
        }
    }

    #[test]
    fn json_is_read_too() {
        let node = one("{\n\t\"kind\": \"Pod\",\n\t\"n\": [1, {\"a\": null}], \"u\": \"\\u00fc\"\n}\n");
        assert_eq!(node.get("kind").unwrap().as_str(), Some("Pod"));
        assert_eq!(node.get("u").unwrap().as_str(), Some("ü"));
        let node = one(r#"{"a": "\ud83d\uDE00 \\ud83d \" \/", "b": "\\"}"#);
        assert_eq!(node.get("a").unwrap().as_str(), Some(r#"😀 \ud83d " /"#));
        assert_eq!(node.get("b").unwrap().as_str(), Some("\\"));
    }

    #[test]
    fn what_machines_write_takes_the_short_way() {
        let pod = "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  labels:\n    app: \"y\"\n  annotations: {}\nspec:\n  containers:\n  - image: a.example/b:1.0\n    name: c\n    ports:\n    - containerPort: 80\nstatus:\n  podIPs:\n  - ip: 10.0.0.1\n";
        assert!(block::read(split_documents(pod)[0]).is_some());
        let list = "apiVersion: v1\nitems:\n- kind: Pod\n  a: 1\n- kind: Pod\n  a: 2\nkind: List\n";
        assert_eq!(list_items(split_documents(list)[0]).unwrap().len(), 2);
        let json = "{\"kind\": \"List\", \"items\": [{\"kind\": \"Pod\"}, {\"kind\": \"Pod\"}]}";
        let mut items = 0;
        assert!(matches!(json::read(split_documents(json)[0], |_| items += 1), Some(Json::List)));
        assert_eq!(items, 2);
    }

    #[test]
    fn anchors_and_merge_keys() {
        let node = one("base: &b {x: 1, z: 2}\nmade:\n  <<: *b\n  z: 3\n");
        let made = node.get("made").unwrap();
        assert_eq!(made.get("x").unwrap().value, Value::Int(1));
        assert_eq!(made.get("z").unwrap().value, Value::Int(3));
    }

    #[test]
    fn large_maps_take_no_longer_than_their_text() {
        let text: String = (0..50_000).map(|i| format!("k{i}: {i}\n")).collect();
        assert_eq!(one(&text).entries().len(), 50_000);
        let twice = text + "k7: 1\n";
        assert!(parse(DocumentText { text: &twice, first_line: 0 }).is_err());
    }

    #[test]
    fn s10_1_a_key_that_is_there_twice_loses_nothing() {
        let text = "kind: A\nspec:\n  rules: [a]\n  pods: {x: 1}\nspec:\n  rules: [b]\n  pods: {x: 2, z: 3}\n";
        let tree = read_tree(split_documents(text)[0]);
        let spec = tree.node.as_ref().unwrap().get("spec").unwrap();
        assert!(matches!(&spec.get("rules").unwrap().value, Value::Seq(items) if items.len() == 2));
        assert_eq!(spec.get("pods").unwrap().get("x").unwrap().value, Value::Int(1));
        assert_eq!(spec.get("pods").unwrap().get("z").unwrap().value, Value::Int(3));
        let [fault] = tree.faults.as_slice() else { panic!("{:?}", tree.faults) };
        assert_eq!((fault.path.as_str(), fault.mark.line), ("spec", 5));
        assert!(fault.puts_in_doubt("spec.pods", true) && !fault.puts_in_doubt("kind", true));
        assert!(!fault.puts_in_doubt("special", true));
    }

    #[test]
    fn s10_1_what_stands_before_a_fault_is_read() {
        let tree = read_tree(split_documents("kind: A\nspec:\n  pods: {x: 1}\n  rules:\n  - a: 1\n  - b: {\n")[0]);
        let spec = tree.node.as_ref().unwrap().get("spec").unwrap();
        assert_eq!(spec.get("pods").unwrap().get("x").unwrap().value, Value::Int(1));
        let [fault] = tree.faults.as_slice() else { panic!("{:?}", tree.faults) };
        assert_eq!((fault.path.as_str(), fault.second.is_none()), ("spec.rules[1].b", true));
        assert!(!fault.puts_in_doubt("spec.pods", true) && fault.puts_in_doubt("spec.others", false));
        assert!(fault.puts_in_doubt("spec.rules", true));
    }

    #[test]
    fn s10_1_hostile_documents_are_refused() {
        let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
        assert!(parse(DocumentText { text: &deep, first_line: 0 }).is_err());
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for i in 1..9 {
            bomb += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(","));
        }
        assert!(parse(DocumentText { text: &bomb, first_line: 0 }).is_err());
        assert!(parse(DocumentText { text: "a: 1\na: 2\n", first_line: 0 }).is_err());
        assert!(parse(DocumentText { text: "a: &x [*x]\n", first_line: 0 }).is_err());
    }
}
