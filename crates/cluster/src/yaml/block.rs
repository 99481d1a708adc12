//! The short way for block YAML as machines write it: one key or item a line,
//! scalars on one line, no anchors, tags or flow collections but empty ones.
//! Any other text is left to the events of `saphyr-parser`, which a property
//! test holds this to.

use super::parse::DocumentText;
use super::{Entry, Mark, Node, Value, scalar};

/// Deeper documents are left to the other reader, which has a bound of its own.
const MAX_DEPTH: usize = 50;
/// Keys are compared one by one here.
const MAX_ENTRIES: usize = 128;

/// The tree of a document, or `None` if it is not that plain.
pub(super) fn read(document: DocumentText<'_>) -> Option<Node> {
    let DocumentText { text, first_line } = document;
    if !text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')) {
        return None;
    }
    let mut reader = Reader { text, first_line, current: None, next: 0, number: 0 };
    reader.advance();
    if reader.current.is_some_and(|line| line.start == line.line_start && text[line.start..].starts_with("---")) {
        reader.only_marker()?;
        reader.advance();
    }
    let node = reader.block(0)?;
    reader.current.is_none().then_some(node)
}

/// A line with content; its start moves behind the dash of a list's item.
#[derive(Clone, Copy)]
struct Line {
    line_start: usize,
    start: usize,
    end: usize,
    number: u32,
}

impl Line {
    fn column(self) -> usize {
        self.start - self.line_start
    }
}

struct Reader<'t> {
    text: &'t str,
    first_line: u32,
    current: Option<Line>,
    next: usize,
    number: u32,
}

impl<'t> Reader<'t> {
    /// Goes to the next line that is neither empty nor a comment.
    fn advance(&mut self) {
        while self.next < self.text.len() {
            let line_start = self.next;
            let rest = &self.text[line_start..];
            let length = rest.find('\n').unwrap_or(rest.len());
            self.next = line_start + length + 1;
            self.number += 1;
            let line = rest[..length].trim_end_matches(' ');
            let indent = line.len() - line.trim_start_matches(' ').len();
            if line.len() > indent && line.as_bytes()[indent] != b'#' {
                let (start, end) = (line_start + indent, line_start + line.len());
                self.current = Some(Line { line_start, start, end, number: self.number });
                return;
            }
        }
        self.current = None;
    }

    /// `---`, with a comment at most.
    fn only_marker(&self) -> Option<()> {
        let line = self.current?;
        let rest = &self.text[line.start + 3..line.end];
        (rest.is_empty() || rest.trim_start_matches(' ').starts_with('#') && rest.starts_with(' ')).then_some(())
    }

    fn mark(&self, line: Line) -> Mark {
        Mark { line: self.first_line + line.number, column: line.column() as u32 + 1 }
    }

    fn is_item(&self, line: Line) -> bool {
        let content = &self.text[line.start..line.end];
        content == "-" || content.starts_with("- ")
    }

    fn block(&mut self, depth: usize) -> Option<Node> {
        let line = self.current?;
        if depth > MAX_DEPTH {
            return None;
        }
        if self.is_item(line) { self.list(line.column(), depth) } else { self.map(line.column(), depth) }
    }

    fn map(&mut self, indent: usize, depth: usize) -> Option<Node> {
        let mark = self.mark(self.current?);
        let mut entries: Vec<Entry> = Vec::new();
        while let Some(line) = self.current.filter(|line| line.column() >= indent) {
            if line.column() > indent || self.is_item(line) || entries.len() >= MAX_ENTRIES {
                return None;
            }
            let (key, rest) = self.key(line)?;
            if entries.iter().any(|entry| *entry.key == *key) {
                return None;
            }
            let node = match self.rest(line, rest) {
                Some(value) => {
                    let node = self.inline(value)?;
                    self.advance();
                    node
                }
                None => {
                    self.advance();
                    let next = self.current?;
                    if next.column() > indent {
                        self.block(depth + 1)?
                    } else if next.column() == indent && self.is_item(next) {
                        // Without indentation the other reader takes the first item for the beginning.
                        let first = self.rest(next, next.start + 1).map_or(next.end, |content| content.start);
                        let mark = self.mark(Line { start: first, ..next });
                        Node { mark, ..self.list(indent, depth + 1)? }
                    } else {
                        return None;
                    }
                }
            };
            entries.push(Entry { key, mark: self.mark(line), node });
        }
        Some(Node { mark, value: Value::Map(entries) })
    }

    fn list(&mut self, indent: usize, depth: usize) -> Option<Node> {
        let mark = self.mark(self.current?);
        let mut items = Vec::new();
        while let Some(line) = self.current.filter(|line| line.column() >= indent && self.is_item(*line)) {
            if line.column() > indent || depth > MAX_DEPTH {
                return None;
            }
            let Some(content) = self.rest(line, line.start + 1) else {
                self.advance();
                if self.current?.column() <= indent {
                    return None;
                }
                items.push(self.block(depth + 1)?);
                continue;
            };
            if self.is_item(content) {
                return None;
            }
            if self.key(content).is_some() {
                self.current = Some(content);
                items.push(self.map(content.column(), depth + 1)?);
            } else {
                items.push(self.inline(content)?);
                self.advance();
            }
        }
        // What is deeper than the list goes on with its last scalar.
        if self.current.is_some_and(|line| line.column() > indent) {
            return None;
        }
        Some(Node { mark, value: Value::Seq(items) })
    }

    /// What stands behind a key or a dash on the same line; `None` for nothing, or a comment.
    fn rest(&self, line: Line, from: usize) -> Option<Line> {
        let rest = &self.text[from..line.end];
        let start = from + (rest.len() - rest.trim_start_matches(' ').len());
        (start < line.end && self.text.as_bytes()[start] != b'#').then_some(Line { start, ..line })
    }

    /// The key at the start of a line, and where its value may start.
    fn key(&self, line: Line) -> Option<(Box<str>, usize)> {
        let content = &self.text[line.start..line.end];
        let bytes = content.as_bytes();
        let ends = |colon: usize| bytes.get(colon) == Some(&b':') && matches!(bytes.get(colon + 1), None | Some(b' '));
        if let quote @ (b'"' | b'\'') = bytes[0] {
            let inner = quoted(content, quote)?;
            let colon = inner.len() + 2;
            return (ends(colon) && inner != "<<").then(|| (inner.into(), line.start + colon + 1));
        }
        if !(bytes[0].is_ascii_alphanumeric() || matches!(bytes[0], b'_' | b'/' | b'.')) {
            return None;
        }
        let colon = (1..bytes.len()).find(|&at| ends(at))?;
        let key = &content[..colon];
        if key.len() > 1000 || key.ends_with(' ') || key.contains(" #") {
            return None;
        }
        Some((scalar::key(key)?.into(), line.start + colon + 1))
    }

    /// A scalar, or an empty collection.
    fn inline(&self, at: Line) -> Option<Node> {
        let content = &self.text[at.start..at.end];
        let bytes = content.as_bytes();
        let only = |length: usize| {
            content.len() == length
                || content[length..].trim_start_matches(' ').starts_with('#') && bytes[length] == b' '
        };
        let value = match bytes[0] {
            quote @ (b'"' | b'\'') => {
                let inner = quoted(content, quote)?;
                only(inner.len() + 2).then(|| Value::String(inner.into()))?
            }
            b'{' => (content.starts_with("{}") && only(2)).then(|| Value::Map(Vec::new()))?,
            b'[' => (content.starts_with("[]") && only(2)).then(|| Value::Seq(Vec::new()))?,
            first => {
                let second = bytes.get(1).is_some_and(u8::is_ascii_alphanumeric);
                let plain = first.is_ascii_alphanumeric() || matches!(first, b'_' | b'/' | b'.' | b'+' | b'~');
                if !(plain || first == b'-' && second) {
                    return None;
                }
                let text = content.find(" #").map_or(content, |comment| content[..comment].trim_end_matches(' '));
                if text.contains(": ") || text.ends_with(':') {
                    return None;
                }
                scalar::resolve(text)
            }
        };
        Some(Node { mark: self.mark(at), value })
    }
}

/// The inside of a quoted scalar at the start, if nothing in it is escaped.
fn quoted(content: &str, quote: u8) -> Option<&str> {
    let inner = &content[1..];
    let end = inner.find(char::from(quote))?;
    let escaped = inner.as_bytes().get(end + 1) == Some(&b'\'') && quote == b'\'';
    (!escaped && (quote == b'\'' || !inner[..end].contains('\\'))).then_some(&inner[..end])
}
