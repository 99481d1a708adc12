//! The short way for JSON. What is not JSON is left to the YAML reader, of which
//! JSON is a part; a property test holds the two together.

use super::parse::DocumentText;
use super::{Entry, Mark, Node, Value, scalar};

/// Deeper documents are left to the other reader, which has a bound of its own.
const MAX_DEPTH: usize = 50;
/// Keys are compared one by one here.
const MAX_ENTRIES: usize = 128;

/// What a JSON text is.
pub(crate) enum Json {
    Tree(Node),
    /// A list, whose items have been passed on one by one.
    List,
}

/// Reads a text. The items of a `kind: …List` are passed on as they are read, so that no tree holds all of them; if
/// `None` is returned, some may have been passed on in vain.
pub(crate) fn read(document: DocumentText<'_>, mut item: impl FnMut(Node)) -> Option<Json> {
    let mut reader = Reader { text: document.text, at: 0, line: document.first_line + 1, line_start: 0, beyond: 0 };
    reader.space();
    if reader.peek()? != b'{' {
        return None;
    }
    let mark = reader.mark();
    let mut passed_on = 0;
    let entries = reader.entries(0, |reader, key| {
        if key != "items" || reader.peek()? != b'[' {
            return reader.value(1);
        }
        let mark = reader.mark();
        reader.items(|reader| {
            let node = reader.value(2)?;
            // An item that does not say what it is takes that from the list, which may say so later.
            node.get("kind")?.as_str()?;
            passed_on += 1;
            item(node);
            Some(())
        })?;
        Some(Node { mark, value: Value::Seq(Vec::new()) })
    })?;
    reader.space();
    if reader.at < reader.text.len() {
        return None;
    }
    let node = Node { mark, value: Value::Map(entries) };
    let is_list = node.get("kind").and_then(Node::as_str).is_some_and(|kind| kind.ends_with("List"));
    match (is_list && node.get("items").is_some(), passed_on) {
        (true, _) if matches!(node.get("items")?.value, Value::Seq(_)) => Some(Json::List),
        (_, 0) => Some(Json::Tree(node)),
        _ => None,
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    line: u32,
    line_start: usize,
    /// Bytes of this line that are no characters of their own.
    beyond: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b'\n' => {
                    self.line += 1;
                    (self.line_start, self.beyond) = (self.at + 1, 0);
                }
                b' ' | b'\t' | b'\r' => {}
                _ => return,
            }
            self.at += 1;
        }
    }

    fn mark(&self) -> Mark {
        Mark { line: self.line, column: (self.at - self.line_start - self.beyond) as u32 + 1 }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn value(&mut self, depth: usize) -> Option<Node> {
        if depth > MAX_DEPTH {
            return None;
        }
        let mark = self.mark();
        let value = match self.peek()? {
            b'{' => Value::Map(self.entries(depth, |reader, _| reader.value(depth + 1))?),
            b'[' => {
                let mut items = Vec::new();
                self.items(|reader| {
                    items.push(reader.value(depth + 1)?);
                    Some(())
                })?;
                Value::Seq(items)
            }
            b'"' => Value::String(self.string()?),
            _ => {
                let rest = &self.text[self.at..];
                let end = rest.find([',', '}', ']', ' ', '\t', '\r', '\n']).unwrap_or(rest.len());
                let word = &rest[..end];
                let number = |b: u8| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E');
                // A lone `-` is no scalar of YAML.
                let starts = word.strip_prefix('-').unwrap_or(word).starts_with(|c: char| c.is_ascii_digit());
                if !(matches!(word, "true" | "false" | "null") || starts && word.bytes().all(number)) {
                    return None;
                }
                self.at += end;
                scalar::resolve(word)
            }
        };
        Some(Node { mark, value })
    }

    fn items(&mut self, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.take(b'[')?;
        self.space();
        if self.take(b']').is_some() {
            return Some(());
        }
        loop {
            item(self)?;
            self.space();
            if self.take(b',').is_none() {
                return self.take(b']');
            }
            self.space();
        }
    }

    fn entries(&mut self, depth: usize, mut value: impl FnMut(&mut Self, &str) -> Option<Node>) -> Option<Vec<Entry>> {
        let mut entries: Vec<Entry> = Vec::new();
        self.take(b'{')?;
        self.space();
        if depth > MAX_DEPTH || self.take(b'}').is_some() {
            return (depth <= MAX_DEPTH).then_some(entries);
        }
        loop {
            let mark = self.mark();
            let key = self.string()?;
            self.space();
            self.take(b':')?;
            self.space();
            if &*key == "<<" || entries.len() >= MAX_ENTRIES || entries.iter().any(|entry| entry.key == key) {
                return None;
            }
            let node = value(self, &key)?;
            entries.push(Entry { key, mark, node });
            self.space();
            if self.take(b',').is_none() {
                self.take(b'}')?;
                return Some(entries);
            }
            self.space();
        }
    }

    fn string(&mut self) -> Option<Box<str>> {
        self.take(b'"')?;
        let start = self.at;
        let length = self.text[start..].bytes().position(|byte| matches!(byte, b'"' | b'\\') || byte < b' ')?;
        self.at += length;
        let plain = &self.text[start..self.at];
        if self.peek()? == b'"' {
            self.at += 1;
            self.count(plain);
            return Some(plain.into());
        }
        let mut text = plain.to_owned();
        loop {
            let from = self.at;
            match self.peek()? {
                b'"' => break,
                b'\\' => text.push(self.escape()?),
                byte if byte < b' ' => return None,
                _ => {
                    let rest = &self.text[from..];
                    let length = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\') || byte < b' ')?;
                    self.at += length;
                    text.push_str(&rest[..length]);
                }
            }
        }
        self.at += 1;
        let whole = &self.text[start..self.at];
        self.count(whole);
        Some(text.into())
    }

    fn count(&mut self, text: &str) {
        if !text.is_ascii() {
            self.beyond += text.len() - text.chars().count();
        }
    }

    fn escape(&mut self) -> Option<char> {
        let escape = *self.text.as_bytes().get(self.at + 1)?;
        self.at += 2;
        Some(match escape {
            b'"' | b'\\' | b'/' => char::from(escape),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.unit()?;
                if let Some(character) = char::from_u32(u32::from(first)) {
                    return Some(character);
                }
                // Two escapes for what is beyond 16 bits.
                self.take(b'\\')?;
                self.take(b'u')?;
                let pair = [first, self.unit()?];
                char::decode_utf16(pair).next()?.ok()?
            }
            _ => return None,
        })
    }

    fn unit(&mut self) -> Option<u16> {
        let digits = self.text.get(self.at..self.at + 4)?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        self.at += 4;
        u16::from_str_radix(digits, 16).ok()
    }
}
