//! Events → tree. A fault in the text does not lose the rest of it: what a
//! policy selects may still be known, and then it is isolated (S10.1).

use super::scalar::{key, resolve};
use super::{Entry, Mark, Node, Value};
use rustc_hash::FxHashMap;
use saphyr_parser::{Event, ScalarStyle, Span, Tag};
use std::borrow::Cow;
use std::fmt::Write;

/// Deeper than any manifest; a bound for hostile input.
pub(super) const MAX_DEPTH: usize = 100;
/// How much anchors and aliases may add to a document, counted in bytes of
/// text and a few for each node: a bound for hostile input.
const MAX_ALIASED: usize = 8 << 20;
/// What a node weighs besides its text.
const NODE_WEIGHT: usize = 64;
/// A document with more keys that are there twice is not read any further.
const MAX_FAULTS: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    pub mark: Mark,
    pub message: String,
}

/// What is wrong with a text, and which part of its tree that puts in doubt.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// The key that is there twice, or the place where the text cannot be read any further.
    pub path: String,
    pub mark: Mark,
    pub message: String,
    /// The later value of a key that is there twice. `None`: the text is not read beyond this place.
    pub second: Option<Node>,
}

impl Fault {
    /// True if the value at the path, as the tree has it, may not be what was meant.
    pub fn puts_in_doubt(&self, path: &str, is_there: bool) -> bool {
        let within = |inner: &str, outer: &str| {
            inner
                .strip_prefix(outer)
                .is_some_and(|rest| outer.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
        };
        within(&self.path, path) || if self.second.is_some() { within(path, &self.path) } else { !is_there }
    }
}

#[derive(Default)]
pub(super) struct Builder {
    first_line: u32,
    faults: Vec<Fault>,
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
    /// The positions of the keys of a large map; small ones are searched one by one.
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

    /// An explicit entry replaces a merged one, which carries no mark. If the key is there twice, both values are
    /// joined, and the fault says so; its path is not known here.
    fn add(&mut self, entry: Entry) -> Option<Fault> {
        let Some(at) = self.position(&entry.key) else {
            self.push(entry);
            return None;
        };
        let Value::Map(entries) = &mut self.node.value else { return None };
        let first = entries[at].mark;
        if first == Mark::default() {
            entries[at] = entry;
            return None;
        }
        join(&mut entries[at].node, &entry.node);
        // Files that were joined without a line between them.
        let hint = if &*entry.key == "apiVersion" { "; is a line `---` missing before this one?" } else { "" };
        let message = format!("the key `{}` is here twice; first on line {}{hint}", entry.key, first.line);
        Some(Fault { path: entry.key.into(), mark: entry.mark, message, second: Some(entry.node) })
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

/// Adds what only the second value has: entries of maps and items of lists, so that no rule that denies is lost.
fn join(first: &mut Node, second: &Node) {
    match (&mut first.value, &second.value) {
        (Value::Map(entries), Value::Map(more)) => {
            let known: FxHashMap<Box<str>, usize> =
                entries.iter().enumerate().map(|(at, entry)| (entry.key.clone(), at)).collect();
            for entry in more {
                match known.get(&entry.key) {
                    Some(&at) => join(&mut entries[at].node, &entry.node),
                    None => entries.push(entry.clone()),
                }
            }
        }
        (Value::Seq(items), Value::Seq(more)) => items.extend(more.iter().cloned()),
        (Value::Null, _) => *first = second.clone(),
        _ => {}
    }
}

impl Builder {
    pub(super) fn new(first_line: u32) -> Self {
        Self { first_line, ..Self::default() }
    }

    pub(super) fn mark(&self, line: usize, column: usize) -> Mark {
        Mark { line: self.first_line + line as u32, column: column as u32 + 1 }
    }

    pub(super) fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), ParseError> {
        let mark = self.mark(span.start.line(), span.start.col());
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let scalar = Scalar { text: &text, style, tag: tag.as_deref() };
                let value = scalar.value().map_err(|message| ParseError { mark, message })?;
                self.close(Node { mark, value }, anchor, Some(&scalar))
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
    fn close(&mut self, node: Node, anchor: usize, scalar: Option<&Scalar<'_>>) -> Result<(), ParseError> {
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
                let Some(key) = scalar.and_then(Scalar::key) else {
                    return Err(ParseError { mark: node.mark, message: "a key must be a plain word".into() });
                };
                parent.key = Some((key.into(), node.mark));
            }
            (Value::Map(_), Some((key, _))) if &*key == "<<" => parent.merge(node)?,
            (Value::Map(_), Some((key, mark))) => {
                if let Some(mut fault) = parent.add(Entry { key, mark, node }) {
                    if self.faults.len() >= MAX_FAULTS {
                        return Err(ParseError { mark, message: fault.message });
                    }
                    fault.path = self.path(Some(&fault.path));
                    self.faults.push(fault);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The path of what is being read, or of a key of the innermost map.
    fn path(&self, key: Option<&str>) -> String {
        let mut path = String::new();
        let field = |path: &mut String, key: &str| {
            let dot = if path.is_empty() { "" } else { "." };
            _ = write!(path, "{dot}{key}");
        };
        for open in &self.open {
            match (&open.node.value, &open.key) {
                (Value::Seq(items), _) => _ = write!(path, "[{}]", items.len()),
                (_, Some((key, _))) => field(&mut path, key),
                _ => {}
            }
        }
        key.into_iter().for_each(|key| field(&mut path, key));
        path
    }

    /// The text cannot be read any further: what was read so far is closed as it is.
    pub(super) fn give_up(&mut self, error: ParseError) {
        let ParseError { mark, message } = error;
        self.faults.push(Fault { path: self.path(None), mark, message, second: None });
        while let Some(done) = self.open.pop() {
            // An alias or a bound may be at fault again; the tree is what it is.
            _ = self.close(done.node, 0, None);
        }
    }

    pub(super) fn into_parts(self) -> (Option<Node>, Vec<Fault>) {
        (self.root, self.faults)
    }
}

/// A scalar as the text has it.
struct Scalar<'t> {
    text: &'t str,
    style: ScalarStyle,
    tag: Option<&'t Tag>,
}

impl Scalar<'_> {
    fn value(&self) -> Result<Value, String> {
        let tag = self.tag.map(|tag| (tag.is_yaml_core_schema(), tag.suffix.as_str()));
        let text = || Value::String(self.text.into());
        let wrong = |tag: &str| Err(format!("`{}` is no !!{tag}", self.text));
        match tag {
            None if self.style == ScalarStyle::Plain => Ok(resolve(self.text)),
            None | Some((true, "str") | (false, _)) => Ok(text()),
            Some((true, tag @ ("int" | "float" | "bool" | "null"))) => {
                let value = resolve(self.text);
                match (tag, value.plain()) {
                    ("int", Value::Int(_)) | ("float", Value::Int(_) | Value::Float(_)) => Ok(value),
                    ("bool", Value::Bool(_)) | ("null", Value::Null) => Ok(value),
                    _ => wrong(tag),
                }
            }
            Some((true, tag)) => Err(format!("the tag !!{tag} is not read here")),
        }
    }

    fn key(&self) -> Option<Cow<'_, str>> {
        match self.value() {
            Ok(Value::String(_)) => Some(self.text.into()),
            Ok(_) => key(self.text),
            Err(_) => None,
        }
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
