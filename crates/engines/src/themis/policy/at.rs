//! Where the reader stands in a file, so that whatever is wrong is told with
//! file, line and the path of keys.

use super::tree::{Node, Tree};
use std::fmt;

/// What could not be taken as meant.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}:{line}: {path}{}{message}", if path.is_empty() { "" } else { ": " })]
pub struct PolicyError {
    pub file: String,
    pub line: u32,
    pub path: String,
    pub message: String,
}

/// A node with the way to it, kept on the stack.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) node: &'a Node,
    step: PathStep<'a>,
}

#[derive(Clone, Copy)]
enum PathStep<'a> {
    Root(SourceFile<'a>),
    Key(&'a At<'a>, &'a str),
    Item(&'a At<'a>, usize),
}

#[derive(Clone, Copy)]
pub(super) struct SourceFile<'a> {
    pub(super) file: &'a str,
    /// Themis reads the keys of JSON in any case, those of YAML only as they are.
    pub(super) any_case: bool,
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            PathStep::Root(_) => Ok(()),
            PathStep::Key(At { step: PathStep::Root(_), .. }, key) => f.write_str(key),
            PathStep::Key(up, key) => write!(f, "{up}.{key}"),
            PathStep::Item(up, at) => write!(f, "{up}[{at}]"),
        }
    }
}

impl<'a> At<'a> {
    pub(super) fn root(node: &'a Node, source: SourceFile<'a>) -> Self {
        Self { node, step: PathStep::Root(source) }
    }

    fn source(&self) -> SourceFile<'a> {
        match self.step {
            PathStep::Root(source) => source,
            PathStep::Key(up, _) | PathStep::Item(up, _) => up.source(),
        }
    }

    pub(super) fn wrong(&self, message: impl fmt::Display) -> PolicyError {
        self.wrong_on(self.node.line, message)
    }

    fn wrong_on(&self, line: u32, message: impl fmt::Display) -> PolicyError {
        let file = self.source().file.to_owned();
        PolicyError { file, line, path: self.to_string(), message: message.to_string() }
    }

    fn expected(&self, what: &str) -> PolicyError {
        let found = match &self.node.value {
            Tree::Null => "nothing".to_owned(),
            Tree::Bool(is) => format!("{is}; a word that YAML takes for this goes in quotes"),
            Tree::Integer(number) => format!("the number {number}; as a text it goes in quotes"),
            Tree::Float(number) => format!("the number {number}; as a text it goes in quotes"),
            Tree::Text(text) => format!("the text `{text}`"),
            Tree::List(_) => "a list".to_owned(),
            Tree::Map(_) => "a map".to_owned(),
        };
        self.wrong(format_args!("expected {what}, found {found}"))
    }

    pub(super) fn text(&self, what: &str) -> Result<&'a str, PolicyError> {
        match &self.node.value {
            Tree::Text(text) => Ok(text),
            _ => Err(self.expected(what)),
        }
    }

    pub(super) fn number(&self) -> Result<f64, PolicyError> {
        match self.node.value {
            Tree::Integer(number) => Ok(number as f64),
            Tree::Float(number) => Ok(number),
            _ => Err(self.expected("a number")),
        }
    }

    /// The part of a number before its point.
    pub(super) fn integer(&self) -> Result<i64, PolicyError> {
        /// Where a float stops to know every integer.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match self.node.value {
            Tree::Integer(number) => Ok(number),
            Tree::Float(number) if (-EXACT..=EXACT).contains(&number) => Ok(number as i64),
            Tree::Float(number) => Err(self.wrong(format_args!("{number} is no integer of 64 bits"))),
            _ => Err(self.expected("an integer")),
        }
    }

    pub(super) fn boolean(&self) -> Result<bool, PolicyError> {
        match self.node.value {
            Tree::Bool(is) => Ok(is),
            _ => Err(self.expected("true or false")),
        }
    }

    pub(super) fn items(&self, what: &str) -> Result<impl ExactSizeIterator<Item = At<'_>>, PolicyError> {
        match &self.node.value {
            Tree::List(items) => {
                Ok(items.iter().enumerate().map(|(at, node)| At { node, step: PathStep::Item(self, at) }))
            }
            _ => Err(self.expected(what)),
        }
    }

    pub(super) fn entries(&self, what: &str) -> Result<impl ExactSizeIterator<Item = (&str, At<'_>)>, PolicyError> {
        match &self.node.value {
            Tree::Map(entries) => {
                Ok(entries.iter().map(|(key, node)| (&*key.text, At { node, step: PathStep::Key(self, &key.text) })))
            }
            _ => Err(self.expected(what)),
        }
    }

    pub(super) fn is_text(&self) -> bool {
        matches!(self.node.value, Tree::Text(_))
    }

    /// Texts of a list; a map stands for its keys.
    pub(super) fn texts(&self, what: &str) -> Result<Vec<(&str, At<'_>)>, PolicyError> {
        match &self.node.value {
            Tree::Map(_) => Ok(self.entries(what)?.collect()),
            _ => {
                let mut texts = Vec::new();
                for item in self.items(what)? {
                    texts.push((item.text("a text")?, item));
                }
                Ok(texts)
            }
        }
    }

    /// Whether a key is written as this word.
    pub(super) fn is_word(&self, key: &str, word: &str) -> bool {
        key == word || (self.source().any_case && key.eq_ignore_ascii_case(word))
    }

    /// A map in which nothing but these keys may stand: a key nobody reads may be a misspelt restriction.
    pub(super) fn only(&self, what: &str, keys: &[&str]) -> Result<(), PolicyError> {
        let Tree::Map(entries) = &self.node.value else { return Err(self.expected(what)) };
        for (at, (key, _)) in entries.iter().enumerate() {
            let Some(word) = keys.iter().find(|word| self.is_word(&key.text, word)) else {
                let message = format!("`{}` is no key of {what}; there are {}", key.text, keys.join(", "));
                return Err(self.wrong_on(key.line, message));
            };
            if entries[..at].iter().any(|(earlier, _)| self.is_word(&earlier.text, word)) {
                return Err(self.wrong_on(key.line, format_args!("`{word}` is here twice")));
            }
        }
        Ok(())
    }

    pub(super) fn get(&self, word: &str) -> Option<At<'_>> {
        let Tree::Map(entries) = &self.node.value else { return None };
        let (key, node) = entries.iter().find(|(key, _)| self.is_word(&key.text, word))?;
        Some(At { node, step: PathStep::Key(self, &key.text) })
    }

    pub(super) fn need(&self, word: &str) -> Result<At<'_>, PolicyError> {
        self.get(word).ok_or_else(|| self.wrong(format_args!("`{word}` is missing")))
    }

    /// The one pair of a map.
    pub(super) fn pair(&self, what: &str) -> Result<(&str, At<'_>), PolicyError> {
        let mut entries = self.entries(what)?;
        match (entries.next(), entries.next()) {
            (Some(pair), None) => Ok(pair),
            _ => Err(self.wrong(format_args!("{what} is a map of one key, not of {}", self.entries(what)?.len()))),
        }
    }
}
