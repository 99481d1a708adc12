//! YAML and JSON text as a tree that remembers where everything stood, so that
//! a Finding can name line and column, and `explain` the line of a rule.

mod block;
mod build;
mod de;
mod fields;
pub(crate) mod json;
mod parse;
mod scalar;
mod ser;

pub use build::{Fault, ParseError};
pub use de::{ReadError, Unknown, read};
pub(crate) use fields::field_names;
pub use parse::{DocumentText, Tree, parse, read_tree, read_tree_by_events, split_documents};
pub(crate) use parse::{is_json, list_items};

/// A place in a file, counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    pub line: u32,
    pub column: u32,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    pub mark: Mark,
    pub value: Value,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// A boolean or a number that is not written as usual, like `yes` or `0120`.
    Written(Box<Written>),
    String(Box<str>),
    Seq(Vec<Node>),
    Map(Vec<Entry>),
}

/// A plain scalar that Kubernetes does not read as the text it is.
#[derive(Clone, PartialEq, Debug)]
pub struct Written {
    pub text: Box<str>,
    pub value: Value,
}

impl Value {
    /// The value itself, however it is written.
    pub fn plain(&self) -> &Value {
        match self {
            Self::Written(written) => &written.value,
            other => other,
        }
    }

    /// The text of a boolean or number: as it is written, or as it usually is.
    pub fn scalar_text(&self) -> Option<Box<str>> {
        match self {
            Self::Written(written) => Some(written.text.clone()),
            other => other.usual_text(),
        }
    }

    fn usual_text(&self) -> Option<Box<str>> {
        match self {
            Self::Bool(value) => Some(value.to_string().into()),
            Self::Int(value) => Some(value.to_string().into()),
            Self::Float(value) => Some(value.to_string().into()),
            _ => None,
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    pub key: Box<str>,
    pub mark: Mark,
    pub node: Node,
}

impl Node {
    pub fn null(mark: Mark) -> Self {
        Self { mark, value: Value::Null }
    }

    pub fn string(text: &str) -> Self {
        Self { mark: Mark::default(), value: Value::String(text.into()) }
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|entry| &*entry.key == key).map(|entry| &entry.node)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        match &mut self.value {
            Value::Map(entries) => entries.iter_mut().find(|entry| &*entry.key == key).map(|entry| &mut entry.node),
            _ => None,
        }
    }

    /// The entry of that key in a map, made if it is missing. A null becomes a map first.
    pub fn entry(&mut self, key: &str) -> Option<&mut Node> {
        if self.value == Value::Null {
            self.value = Value::Map(Vec::new());
        }
        let mark = self.mark;
        let Value::Map(entries) = &mut self.value else { return None };
        let at = entries.iter().position(|entry| &*entry.key == key).unwrap_or_else(|| {
            entries.push(Entry { key: key.into(), mark, node: Node::null(mark) });
            entries.len() - 1
        });
        Some(&mut entries[at].node)
    }

    pub fn remove(&mut self, key: &str) {
        if let Value::Map(entries) = &mut self.value {
            entries.retain(|entry| &*entry.key != key);
        }
    }

    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value, however it is written.
    pub fn plain(&self) -> &Value {
        self.value.plain()
    }

    /// The same tree without places.
    pub fn to_json(&self) -> serde_json::Value {
        match self.plain() {
            Value::Null | Value::Written(_) => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Int(value) => (*value).into(),
            Value::Float(value) => (*value).into(),
            Value::String(text) => (**text).into(),
            Value::Seq(items) => items.iter().map(Self::to_json).collect(),
            Value::Map(entries) => entries.iter().map(|entry| (entry.key.to_string(), entry.node.to_json())).collect(),
        }
    }

    pub fn is_null(&self) -> bool {
        self.value == Value::Null
    }

    /// JSON merge patch (RFC 7396): maps are merged, null removes, all else replaces.
    pub fn merge(&mut self, patch: &Node) {
        let Value::Map(changes) = &patch.value else {
            *self = patch.clone();
            return;
        };
        if !matches!(self.value, Value::Map(_)) {
            self.value = Value::Map(Vec::new());
        }
        for change in changes {
            if change.node.is_null() {
                self.remove(&change.key);
            } else if let Some(entry) = self.entry(&change.key) {
                entry.merge(&change.node);
            }
        }
    }
}
