//! Text → tree. Events come from `saphyr-parser`; plain scalars are read nearly
//! as YAML 1.2's core schema has them: `yes` and `on` are texts, `010` is ten.

use super::{Entry, Mark, Node, Value};
use rustc_hash::FxHashMap;
use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use std::borrow::Cow;

/// Deeper than any manifest; a bound for hostile input.
const MAX_DEPTH: usize = 100;
/// How much anchors and aliases may add to a document, counted in bytes of
/// text and a few for each node: a bound for hostile input.
const MAX_ALIASED: usize = 8 << 20;
/// What a node weighs besides its text.
const NODE_WEIGHT: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    pub mark: Mark,
    pub message: String,
}

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

/// Reads one document; `None` if there is nothing in it.
pub fn parse(document: DocumentText<'_>) -> Result<Option<Node>, ParseError> {
    let mut builder = Builder { first_line: document.first_line, ..Builder::default() };
    let text = join_surrogates(document.text);
    for event in Parser::new_from_str(&text) {
        match event {
            Ok((event, span)) => builder.take(event, span)?,
            Err(error) => {
                let mark = builder.mark(error.marker().line(), error.marker().col());
                return Err(ParseError { mark, message: format!("not valid YAML: {}", error.info()) });
            }
        }
    }
    Ok(builder.root)
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

#[derive(Default)]
struct Builder {
    first_line: u32,
    root: Option<Node>,
    open: Vec<Open>,
    anchors: FxHashMap<usize, Node>,
    /// What anchors and aliases have copied so far.
    copied: usize,
}

/// A sequence or map that is not closed yet.
struct Open {
    node: Node,
    anchor: usize,
    /// The key whose value comes next, in a map.
    key: Option<(Box<str>, Mark)>,
    /// Where the keys of a large map stand; small ones are searched as they are.
    known: FxHashMap<Box<str>, usize>,
}

/// From how many entries on a map is worth an index.
const LARGE: usize = 32;

impl Open {
    fn position(&mut self, key: &str) -> Option<usize> {
        let entries = self.node.entries();
        if entries.len() < LARGE {
            return entries.iter().position(|entry| &*entry.key == key);
        }
        if self.known.is_empty() {
            self.known = entries.iter().enumerate().map(|(at, entry)| (entry.key.clone(), at)).collect();
        }
        self.known.get(key).copied()
    }

    fn push(&mut self, entry: Entry) {
        let Value::Map(entries) = &mut self.node.value else { return };
        if !self.known.is_empty() {
            self.known.insert(entry.key.clone(), entries.len());
        }
        entries.push(entry);
    }

    /// What is written out wins over what was merged in, whose entries carry no mark.
    fn add(&mut self, key: Box<str>, mark: Mark, node: Node) -> Result<(), ParseError> {
        let Some(at) = self.position(&key) else {
            self.push(Entry { key, mark, node });
            return Ok(());
        };
        let Value::Map(entries) = &mut self.node.value else { return Ok(()) };
        let first = entries[at].mark;
        if first != Mark::default() {
            let message = format!("the key `{key}` is here twice; first on line {}", first.line);
            return Err(ParseError { mark, message });
        }
        entries[at] = Entry { key, mark, node };
        Ok(())
    }

    /// `<<: *base`, or a list of such.
    fn merge(&mut self, node: Node) -> Result<(), ParseError> {
        let mark = node.mark;
        let sources = match node.value {
            Value::Seq(items) => items,
            value => vec![Node { mark: node.mark, value }],
        };
        for source in sources {
            let Value::Map(merged) = source.value else {
                return Err(ParseError { mark, message: "`<<` merges a map, or a list of maps".into() });
            };
            for entry in merged {
                if self.position(&entry.key).is_none() {
                    self.push(Entry { mark: Mark::default(), ..entry });
                }
            }
        }
        Ok(())
    }
}

impl Builder {
    fn mark(&self, line: usize, column: usize) -> Mark {
        Mark { line: self.first_line + line as u32, column: column as u32 + 1 }
    }

    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), ParseError> {
        let mark = self.mark(span.start.line(), span.start.col());
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let tagged_string = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
                let value = if style == ScalarStyle::Plain && !tagged_string {
                    resolve(&text)
                } else {
                    Value::String(text.as_ref().into())
                };
                self.close(Node { mark, value }, anchor, Some(&text))
            }
            Event::SequenceStart(anchor, _) => self.start(mark, anchor, Value::Seq(Vec::new())),
            Event::MappingStart(anchor, _) => self.start(mark, anchor, Value::Map(Vec::new())),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(done) = self.open.pop() else { return Ok(()) };
                self.close(done.node, done.anchor, None)
            }
            Event::Alias(anchor) => {
                let Some(anchored) = self.anchors.get(&anchor) else {
                    return Err(ParseError { mark, message: "the alias refers to itself or to nothing".into() });
                };
                if self.open.len() + depth(anchored) > MAX_DEPTH {
                    return Err(too_deep(mark));
                }
                self.copied += weight(anchored);
                if self.copied > MAX_ALIASED {
                    return Err(blown_up(mark));
                }
                let mut node = anchored.clone();
                node.mark = mark;
                self.close(node, 0, None)
            }
            _ => Ok(()),
        }
    }

    fn start(&mut self, mark: Mark, anchor: usize, value: Value) -> Result<(), ParseError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep(mark));
        }
        self.open.push(Open { node: Node { mark, value }, anchor, key: None, known: FxHashMap::default() });
        Ok(())
    }

    /// A node is complete: it becomes a key, a value, an item or the root.
    fn close(&mut self, node: Node, anchor: usize, text: Option<&str>) -> Result<(), ParseError> {
        if anchor > 0 {
            self.copied += weight(&node);
            if self.copied > MAX_ALIASED {
                return Err(blown_up(node.mark));
            }
            self.anchors.insert(anchor, node.clone());
        }
        let Some(parent) = self.open.last_mut() else {
            self.root.get_or_insert(node);
            return Ok(());
        };
        match (&mut parent.node.value, parent.key.take()) {
            (Value::Seq(items), _) => items.push(node),
            (Value::Map(_), None) => {
                let Some(text) = text else {
                    return Err(ParseError { mark: node.mark, message: "a key must be a plain word".into() });
                };
                parent.key = Some((text.into(), node.mark));
            }
            (Value::Map(_), Some((key, _))) if &*key == "<<" => parent.merge(node)?,
            (Value::Map(_), Some((key, mark))) => parent.add(key, mark, node)?,
            _ => {}
        }
        Ok(())
    }
}

fn too_deep(mark: Mark) -> ParseError {
    ParseError { mark, message: format!("nested deeper than {MAX_DEPTH} levels") }
}

/// Levels of lists and maps.
fn depth(node: &Node) -> usize {
    match &node.value {
        Value::Seq(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Map(entries) => 1 + entries.iter().map(|entry| depth(&entry.node)).max().unwrap_or(0),
        _ => 0,
    }
}

fn weight(node: &Node) -> usize {
    NODE_WEIGHT
        + match &node.value {
            Value::Seq(items) => items.iter().map(weight).sum(),
            Value::Map(entries) => entries.iter().map(|entry| entry.key.len() + weight(&entry.node)).sum(),
            Value::String(text) => text.len(),
            _ => 0,
        }
}

fn blown_up(mark: Mark) -> ParseError {
    ParseError { mark, message: "aliases blow this document up; write it out".into() }
}

/// A plain scalar by the core schema.
fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    // Only what begins like a number can be one; this spares most words the attempt.
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return Value::String(text.into());
    }
    let integer = match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    if let Some(integer) = integer {
        return Value::Int(integer);
    }
    let numeric = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'));
    match text.parse::<f64>() {
        Ok(float) if numeric => Value::Float(float),
        _ => Value::String(text.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn scalars_follow_the_core_schema() {
        let node =
            one("a: 80\nb: \"80\"\nc: 'true'\nd: true\ne: ~\nf: 10.0.0.1\ng: 1.5\nh: y\ni: !!str 5\nj: -3\nk: 1e3\n");
        let expected = [
            ("a", Value::Int(80)),
            ("b", Value::String("80".into())),
            ("c", Value::String("true".into())),
            ("d", Value::Bool(true)),
            ("e", Value::Null),
            ("f", Value::String("10.0.0.1".into())),
            ("g", Value::Float(1.5)),
            ("h", Value::String("y".into())),
            ("i", Value::String("5".into())),
            ("j", Value::Int(-3)),
            ("k", Value::Float(1000.0)),
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
    fn anchors_and_merge_keys() {
        let node = one("base: &b {x: 1, y: 2}\nmade:\n  <<: *b\n  y: 3\n");
        let made = node.get("made").unwrap();
        assert_eq!(made.get("x").unwrap().value, Value::Int(1));
        assert_eq!(made.get("y").unwrap().value, Value::Int(3));
    }

    #[test]
    fn large_maps_take_no_longer_than_their_text() {
        let text: String = (0..50_000).map(|i| format!("k{i}: {i}\n")).collect();
        assert_eq!(one(&text).entries().len(), 50_000);
        let twice = text + "k7: 1\n";
        assert!(parse(DocumentText { text: &twice, first_line: 0 }).is_err());
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
