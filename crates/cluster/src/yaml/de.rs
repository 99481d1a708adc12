//! Tree → typed values, through serde. Errors name the field's path and place;
//! fields nobody asked for are reported, because in a policy they may be a
//! misspelt restriction.

use super::{Entry, Mark, Node, Value};
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use std::cell::RefCell;
use std::fmt;

/// What could not be read, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError {
    pub path: String,
    pub mark: Mark,
    pub message: String,
}

/// A field that the type does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    pub path: String,
    pub mark: Mark,
}

/// Reads a `T`; `base` is the path of `node` in its document.
pub fn read<'n, T: de::Deserialize<'n>>(node: &'n Node, base: &str) -> Result<(T, Vec<Unknown>), ReadError> {
    let unknown = RefCell::new(Vec::new());
    let root = Path::Root(base);
    let value = T::deserialize(Reader { node, path: &root, unknown: &unknown, key: None });
    value.map(|value| (value, unknown.into_inner())).map_err(|error| error.placed(node, &root))
}

/// The way from the root, kept on the stack and only written out when needed.
enum Path<'p> {
    Root(&'p str),
    Field(&'p Path<'p>, &'p str),
    Item(&'p Path<'p>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(base) => f.write_str(base),
            Self::Field(Path::Root(""), key) => f.write_str(key),
            Self::Field(parent, key) => write!(f, "{parent}.{key}"),
            Self::Item(parent, at) => write!(f, "{parent}[{at}]"),
        }
    }
}

/// An error on its way up: unplaced until it passes the reader it happened in.
#[derive(Debug)]
struct Error {
    message: String,
    place: Option<(String, Mark)>,
}

impl Error {
    fn place(mut self, node: &Node, path: &Path<'_>) -> Self {
        self.place.get_or_insert_with(|| (path.to_string(), node.mark));
        self
    }

    /// Says what is written, if the value alone does not show it.
    fn written(mut self, node: &Node) -> Self {
        if let (Value::Written(written), None) = (&node.value, &self.place) {
            self.message += &format!("; it is written `{}`, which Kubernetes does not read as text", written.text);
        }
        self
    }

    fn placed(self, node: &Node, path: &Path<'_>) -> ReadError {
        let (path, mark) = self.place.unwrap_or_else(|| (path.to_string(), node.mark));
        ReadError { path, mark, message: self.message }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { message: message.to_string(), place: None }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let found = match found {
            Unexpected::Str(text) => format!("the text `{text}`"),
            Unexpected::Bool(value) => format!("`{value}` (put it in quotes if it is meant as text)"),
            Unexpected::Signed(value) => format!("the number {value} (put it in quotes if it is meant as text)"),
            Unexpected::Float(value) => format!("the number {value} (put it in quotes if it is meant as text)"),
            Unexpected::Seq => "a list".to_owned(),
            Unexpected::Map => "a map".to_owned(),
            Unexpected::Unit => "nothing".to_owned(),
            other => other.to_string(),
        };
        Self::custom(format!("expected {}, found {found}", in_words(expected)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let found = match found {
            Unexpected::Signed(value) => value.to_string(),
            Unexpected::Unsigned(value) => value.to_string(),
            other => other.to_string(),
        };
        Self::custom(format!("expected {}, found {found}", in_words(expected)))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::custom(format!("`{field}` is missing"))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::custom(format!("`{variant}` is not accepted; use {}", expected.join(", ")))
    }
}

/// What serde calls a type, as a user would.
fn in_words(expected: &dyn de::Expected) -> String {
    let name = expected.to_string();
    match name.as_str() {
        "u16" => "a number from 0 to 65535".to_owned(),
        "i64" | "i32" | "u32" | "u64" => "a number".to_owned(),
        "a string" => "a text".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        _ if name.starts_with("struct ") => "a map".to_owned(),
        _ => name,
    }
}

#[derive(Clone, Copy)]
struct Reader<'n, 'p> {
    node: &'n Node,
    path: &'p Path<'p>,
    unknown: &'p RefCell<Vec<Unknown>>,
    /// Where the key of this value stands, if it is a map's.
    key: Option<Mark>,
}

impl<'n> Reader<'n, '_> {
    fn wrong<V: Visitor<'n>>(self, visitor: &V) -> Error {
        let found = match self.node.plain() {
            Value::Null | Value::Written(_) => Unexpected::Unit,
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Int(value) => Unexpected::Signed(*value),
            Value::Float(value) => Unexpected::Float(*value),
            Value::String(text) => Unexpected::Str(text),
            Value::Seq(_) => Unexpected::Seq,
            Value::Map(_) => Unexpected::Map,
        };
        de::Error::invalid_type(found, visitor)
    }

    fn entries(self) -> Option<&'n [Entry]> {
        match &self.node.value {
            Value::Map(entries) => Some(entries),
            // As in Go: null is the empty value.
            Value::Null => Some(&[]),
            _ => None,
        }
    }

    fn visit_entries<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.entries() {
            Some(entries) => visitor.visit_map(Entries { reader: self, entries, at: 0 }),
            None => Err(self.wrong(&visitor)),
        }
    }

    fn visit_items<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Seq(items) => visitor.visit_seq(Items { reader: self, items, at: 0 }),
            Value::Null => visitor.visit_seq(Items { reader: self, items: &[], at: 0 }),
            _ => Err(self.wrong(&visitor)),
        }
    }
}

macro_rules! scalars {
    ($($method:ident),* $(,)?) => {$(
        fn $method<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
            self.deserialize_any(visitor)
        }
    )*};
}

impl<'n> Deserializer<'n> for Reader<'n, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        let value = match self.node.plain() {
            Value::Null | Value::Written(_) => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) => visitor.visit_i64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Seq(_) => return self.visit_items(visitor).map_err(|error| error.place(self.node, self.path)),
            Value::Map(_) => return self.visit_entries(visitor).map_err(|error| error.place(self.node, self.path)),
        };
        value.map_err(|error: Error| error.written(self.node).place(self.node, self.path))
    }

    scalars! {
        deserialize_bool, deserialize_i8, deserialize_i16, deserialize_i32, deserialize_i64, deserialize_u8,
        deserialize_u16, deserialize_u32, deserialize_u64, deserialize_f32, deserialize_f64, deserialize_char,
        deserialize_str, deserialize_string, deserialize_bytes, deserialize_byte_buf, deserialize_unit,
        deserialize_identifier,
    }

    fn deserialize_option<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.node.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit_struct<V: Visitor<'n>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'n>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        self.visit_items(visitor).map_err(|error| error.place(self.node, self.path))
    }

    fn deserialize_tuple<V: Visitor<'n>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'n>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        self.visit_entries(visitor).map_err(|error| error.place(self.node, self.path))
    }

    fn deserialize_struct<V: Visitor<'n>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'n>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let value = match &self.node.value {
            Value::String(text) => visitor.visit_enum((&**text).into_deserializer()),
            _ => Err(self.wrong(&visitor)),
        };
        value.map_err(|error: Error| error.place(self.node, self.path))
    }

    fn deserialize_ignored_any<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        let mark = self.key.unwrap_or(self.node.mark);
        self.unknown.borrow_mut().push(Unknown { path: self.path.to_string(), mark });
        visitor.visit_unit()
    }
}

struct Entries<'n, 'p> {
    reader: Reader<'n, 'p>,
    entries: &'n [Entry],
    at: usize,
}

impl<'n> MapAccess<'n> for Entries<'n, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'n>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(entry) = self.entries.get(self.at) else { return Ok(None) };
        seed.deserialize(de::value::BorrowedStrDeserializer::new(&entry.key)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'n>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let entry = &self.entries[self.at];
        self.at += 1;
        let path = Path::Field(self.reader.path, &entry.key);
        let reader = Reader { node: &entry.node, path: &path, unknown: self.reader.unknown, key: Some(entry.mark) };
        seed.deserialize(reader).map_err(|error| error.place(&entry.node, &path))
    }
}

struct Items<'n, 'p> {
    reader: Reader<'n, 'p>,
    items: &'n [Node],
    at: usize,
}

impl<'n> SeqAccess<'n> for Items<'n, '_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'n>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(node) = self.items.get(self.at) else { return Ok(None) };
        let path = Path::Item(self.reader.path, self.at);
        self.at += 1;
        let reader = Reader { node, path: &path, unknown: self.reader.unknown, key: None };
        seed.deserialize(reader).map(Some).map_err(|error| error.place(node, &path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::{parse, split_documents};
    use serde::Deserialize;

    #[derive(Deserialize, Debug, PartialEq)]
    #[serde(rename_all = "camelCase")]
    struct Sample {
        name: String,
        #[serde(default)]
        list: Vec<Inner>,
        maybe: Option<Inner>,
    }

    #[derive(Deserialize, Debug, PartialEq, Default)]
    struct Inner {
        #[serde(default)]
        port: u16,
    }

    fn node(text: &str) -> Node {
        parse(split_documents(text)[0]).unwrap().unwrap()
    }

    #[test]
    fn s10_2_errors_name_path_and_place() {
        let node = node("name: a\nlist:\n- port: 1\n- port: 70000\n");
        let error = read::<Sample>(&node, "spec").unwrap_err();
        assert_eq!(error.path, "spec.list[1].port");
        assert_eq!(error.mark, Mark { line: 4, column: 9 });
    }

    #[test]
    fn s10_2_unknown_fields_are_reported() {
        let node = node("name: a\nlist:\n- prot: 1\n");
        let (sample, unknown) = read::<Sample>(&node, "").unwrap();
        assert_eq!(sample.list, [Inner::default()]);
        assert_eq!(unknown, [Unknown { path: "list[0].prot".into(), mark: Mark { line: 3, column: 3 } }]);
    }

    #[test]
    fn numbers_are_not_text() {
        let node = node("name: 5\n");
        let error = read::<Sample>(&node, "").unwrap_err();
        assert!(error.message.contains("quotes"), "{}", error.message);
    }
}
