//! Objects between two readings. Those of a cluster are kept as text: trees of
//! ten thousand policies and nodes would take six times the room, and are looked
//! at only when one of them changes.

use crate::document::Document;
use crate::lean::whole;
use serde_json::Value as Json;
use std::borrow::Borrow;
use std::sync::Arc;

/// What a Document can be had from, as often as it is asked for.
pub trait Record: Clone {
    /// The file, or object, that it stands in.
    fn file(&self) -> &Arc<str>;
    fn document(&self) -> impl Borrow<Document>;
}

impl Record for Arc<Document> {
    fn file(&self) -> &Arc<str> {
        &self.file
    }

    fn document(&self) -> impl Borrow<Document> {
        self.clone()
    }
}

/// To go on without would be to lose a policy, and nobody would be told.
const SOUND: &str = "a tree has nothing in it that JSON has not, and is no deeper than the JSON it came from";

/// A Document that is in no file, and has no lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Text {
    file: Arc<str>,
    json: Arc<str>,
}

impl Text {
    pub(crate) fn of(document: &Document) -> Self {
        let json = serde_json::to_string(&document.node).expect(SOUND);
        Self { file: document.file.clone(), json: json.into() }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.file
    }

    pub(crate) fn json(&self) -> &Arc<str> {
        &self.json
    }

    pub(crate) fn read(&self) -> Document {
        let tree: Json = serde_json::from_str(&self.json).expect(SOUND);
        Document::new(&self.file, whole(&tree))
    }
}

impl Record for Text {
    fn file(&self) -> &Arc<str> {
        &self.file
    }

    fn document(&self) -> impl Borrow<Document> {
        self.read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_kept_as_text_is_read_as_it_was() {
        let tree = json!({
            "kind": "Policy \"quoted\" \u{1f9f1}\n",
            "spec": {"a": [1, -2, 1.5, 1e300, true, null, "", [], {}], "b": {"": "empty", "1": "1"}},
            "large": u64::MAX,
        });
        let document = Document::new(&"Policy one".into(), whole(&tree));
        let text = Text::of(&document);
        assert_eq!(text.read().node, document.node);
        assert_eq!(Text::of(&text.read()), text);
        assert_eq!(*text.file, *document.file);
    }
}
