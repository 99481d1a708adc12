//! Policy and content files as a tree that knows its lines. JSON is read as the
//! YAML it is. Depth, and what aliases add, are bounded, so that nothing that
//! walks the tree needs bounds of its own.

use rustc_hash::FxHashMap;
use saphyr_parser::{Event, Parser, ScalarStyle};
use std::borrow::Cow;

/// Deeper than any policy.
const MOST_DEPTH: usize = 100;
/// How much aliases may add, in bytes of text and a few for each node.
const MOST_ALIASED: usize = 8 << 20;
/// What a node weighs besides its text.
const NODE: usize = 64;

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// From 1.
    pub(super) line: u32,
    pub(super) value: Tree,
}

#[derive(Clone, Debug)]
pub(super) enum Tree {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(Box<str>),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) line: u32,
    pub(super) text: Box<str>,
}

/// A line, and what is wrong there.
pub(super) type Fault = (u32, String);

pub(super) fn parse(text: &str) -> Result<Node, Fault> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = join_surrogates(text);
    let mut builder = Builder::default();
    for event in Parser::new_from_str(&text) {
        let (event, span) = event.map_err(|error| {
            let line = error.marker().line() as u32;
            (line, format!("it cannot be read: {}", error.info()))
        })?;
        builder.take(event, span.start.line() as u32)?;
    }
    builder.root.ok_or_else(|| (1, "there is nothing in it".to_owned()))
}

/// JSON writes what is beyond 16 bits as two escapes, YAML as one character.
fn join_surrogates(text: &str) -> Cow<'_, str> {
    if !text.trim_start().starts_with(['{', '[']) || !(text.contains("\\ud") || text.contains("\\uD")) {
        return text.into();
    }
    // Twelve bytes that JSON reads as one character are two escapes of four digits each.
    let pair = |escape: &str| serde_json::from_str::<char>(&format!("\"{}\"", escape.get(..12)?)).ok();
    let (mut joined, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, _)) = rest.split_once('\\') {
        joined += before;
        let escape = &rest[before.len()..];
        if let Some(character) = pair(escape) {
            joined.push(character);
            rest = &escape[12..];
        } else {
            // Any other escape: what it escapes begins none.
            let end = escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end);
            joined += &escape[..end];
            rest = &escape[end..];
        }
    }
    joined += rest;
    joined.into()
}

#[derive(Default)]
struct Builder {
    root: Option<Node>,
    open: Vec<Open>,
    anchors: FxHashMap<usize, Node>,
    aliased: usize,
}

/// A list or map that is not closed yet.
struct Open {
    line: u32,
    anchor: usize,
    items: Items,
}

enum Items {
    List(Vec<Node>),
    Map { entries: Vec<(Key, Node)>, known: FxHashMap<Box<str>, u32>, key: Option<Key> },
}

impl Builder {
    fn take(&mut self, event: Event<'_>, line: u32) -> Result<(), Fault> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let told_text = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
                let plain = style == ScalarStyle::Plain && !told_text;
                let value = if plain { plain_scalar(&text) } else { Tree::Text(text.as_ref().into()) };
                self.close(Node { line, value }, anchor, Some(&text))
            }
            Event::SequenceStart(anchor, _) => self.start(line, anchor, Items::List(Vec::new())),
            Event::MappingStart(anchor, _) => {
                self.start(line, anchor, Items::Map { entries: Vec::new(), known: FxHashMap::default(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { line, anchor, items }) = self.open.pop() else { return Ok(()) };
                let value = match items {
                    Items::List(items) => Tree::List(items),
                    Items::Map { entries, .. } => Tree::Map(entries),
                };
                self.close(Node { line, value }, anchor, None)
            }
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor) else {
                    return Err((line, "the alias is of itself or of nothing".to_owned()));
                };
                if self.open.len() + depth(node) > MOST_DEPTH {
                    return Err(too_deep(line));
                }
                self.aliased += weight(node);
                let node = Node { line, value: node.value.clone() };
                self.bounded(line)?;
                self.close(node, 0, None)
            }
            Event::DocumentStart(..) if self.root.is_some() => Err((line, "a second document".to_owned())),
            _ => Ok(()),
        }
    }

    fn start(&mut self, line: u32, anchor: usize, items: Items) -> Result<(), Fault> {
        if self.open.len() >= MOST_DEPTH {
            return Err(too_deep(line));
        }
        self.open.push(Open { line, anchor, items });
        Ok(())
    }

    fn bounded(&self, line: u32) -> Result<(), Fault> {
        if self.aliased > MOST_ALIASED { Err((line, "aliases blow it up; write it out".to_owned())) } else { Ok(()) }
    }

    /// A node is complete: it becomes a key, a value, an item or the root.
    fn close(&mut self, node: Node, anchor: usize, text: Option<&str>) -> Result<(), Fault> {
        if anchor > 0 {
            self.aliased += weight(&node);
            self.bounded(node.line)?;
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.items) {
            None => self.root = Some(node),
            Some(Items::List(items)) => items.push(node),
            Some(Items::Map { entries, known, key }) => match key.take() {
                Some(key) => entries.push((key, node)),
                None => {
                    let text: Box<str> = text.ok_or((node.line, "a key must be a text".to_owned()))?.into();
                    if let Some(first) = known.insert(text.clone(), node.line) {
                        return Err((node.line, format!("the key `{text}` is here twice; first on line {first}")));
                    }
                    *key = Some(Key { line: node.line, text });
                }
            },
        }
        Ok(())
    }
}

fn too_deep(line: u32) -> Fault {
    (line, format!("nested deeper than {MOST_DEPTH} levels"))
}

/// Levels of lists and maps.
fn depth(node: &Node) -> usize {
    match &node.value {
        Tree::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Tree::Map(entries) => 1 + entries.iter().map(|(_, node)| depth(node)).max().unwrap_or(0),
        _ => 0,
    }
}

fn weight(node: &Node) -> usize {
    NODE + match &node.value {
        Tree::List(items) => items.iter().map(weight).sum(),
        Tree::Map(entries) => entries.iter().map(|(key, node)| key.text.len() + weight(node)).sum(),
        Tree::Text(text) => text.len(),
        _ => 0,
    }
}

/// As YAML 1.1 reads it, which is what Themis reads: `yes` and `off` are no texts.
fn plain_scalar(text: &str) -> Tree {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Tree::Null,
        "true" | "True" | "TRUE" | "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Tree::Bool(true),
        "false" | "False" | "FALSE" | "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            return Tree::Bool(false);
        }
        _ => {}
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return Tree::Text(text.into());
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let radix = |prefix: &str, radix: u32| {
        let digits = digits.strip_prefix(prefix)?;
        let number = i64::from_str_radix(digits, radix).ok()?;
        digits.starts_with(|c: char| c.is_ascii_hexdigit()).then_some(if text.starts_with('-') {
            -number
        } else {
            number
        })
    };
    let octal = || (digits.len() > 1).then(|| radix("0", 8)).flatten();
    let integer = radix("0x", 16).or_else(|| radix("0b", 2)).or_else(octal).or_else(|| text.parse().ok());
    if let Some(integer) = integer {
        return Tree::Integer(integer);
    }
    let numeric = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'));
    match text.parse() {
        Ok(float) if numeric => Tree::Float(float),
        _ => Tree::Text(text.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> Vec<(String, Tree)> {
        let Tree::Map(entries) = parse(text).unwrap().value else { panic!("{text}") };
        entries.into_iter().map(|(key, node)| (key.text.into(), node.value)).collect()
    }

    #[test]
    fn scalars_are_what_themis_takes_them_for() {
        let text = "a: 80\nb: '80'\nc: yes\nd: 1.5\ne: 0x1f\nf: 010\ng: 10.0.0.1\nh: ~\ni: !!str 5\nj: -3\nk: 08\n";
        let read: Vec<String> = map(text).into_iter().map(|(key, value)| format!("{key} {value:?}")).collect();
        let expected = [
            "a Integer(80)",
            "b Text(\"80\")",
            "c Bool(true)",
            "d Float(1.5)",
            "e Integer(31)",
            "f Integer(8)",
            "g Text(\"10.0.0.1\")",
            "h Null",
            "i Text(\"5\")",
            "j Integer(-3)",
            "k Integer(8)",
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn json_is_read_too_and_knows_its_lines() {
        let node = parse("{\n\t\"a\": [1,\n\t {\"b\": \"\\ud83d\\uDE00 \\/\"}]\n}\n").unwrap();
        let Tree::Map(entries) = &node.value else { panic!() };
        let Tree::List(items) = &entries[0].1.value else { panic!() };
        assert_eq!((entries[0].0.line, items[1].line), (2, 3));
        let Tree::Map(inner) = &items[1].value else { panic!() };
        assert!(matches!(&inner[0].1.value, Tree::Text(text) if &**text == "😀 /"));
    }

    #[test]
    fn hostile_files_are_refused() {
        for (text, words) in [
            (format!("{}1{}", "[".repeat(200), "]".repeat(200)), "deeper"),
            ("a: 1\nb: 2\na: 3\n".into(), "twice"),
            ("a: &x [*x]\n".into(), "alias"),
            ("a: 1\n---\nb: 1\n".into(), "second"),
            ("a: [1\n".into(), "read"),
            ("? [a]\n: 1\n".into(), "key"),
            (String::new(), "nothing"),
        ] {
            let (_, message) = parse(&text).unwrap_err();
            assert!(message.contains(words), "{message}");
        }
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for i in 1..9 {
            bomb += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(","));
        }
        assert!(parse(&bomb).unwrap_err().1.contains("aliases"));
    }
}
