//! The objects of a cluster that lives, as they are now.

use crate::document::Document;
use crate::kept::{LastGood, Read};
use crate::kinds::{DNS_NAME_RESOLVER, Kind};
use crate::lean::lean;
use crate::lower::{Settings, object_name};
use crate::yaml::{Node, Value};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An object within its kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// Empty where the kind has none.
    pub namespace: Box<str>,
    pub name: Box<str>,
}

impl Key {
    pub fn of(object: &Json) -> Self {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().into();
        Self { namespace: text("namespace"), name: text("name") }
    }
}

/// An object as far as it is kept, on its way into a [`Store`].
#[derive(Debug)]
pub struct Listed {
    key: Key,
    document: Document,
}

impl Listed {
    pub fn new(kind: &Kind, object: &Json) -> Self {
        Self { key: Key::of(object), document: document(kind, object) }
    }
}

/// What a cluster has, by kind. Fed by watches; says whether a change is one that anybody could notice.
#[derive(Debug, Default)]
pub struct Store {
    kinds: BTreeMap<&'static str, BTreeMap<Key, Arc<Document>>>,
    last_good: LastGood,
}

impl Store {
    /// An object that is new, or as it is now.
    pub fn apply(&mut self, kind: &Kind, object: &Json) -> bool {
        let Listed { key, document } = Listed::new(kind, object);
        let objects = self.kinds.entry(kind.name).or_default();
        if objects.get(&key).is_some_and(|known| known.node == document.node) {
            return false;
        }
        objects.insert(key, Arc::new(document));
        true
    }

    pub fn remove(&mut self, kind: &Kind, key: &Key) -> bool {
        self.kinds.get_mut(kind.name).is_some_and(|objects| objects.remove(key).is_some())
    }

    /// All objects of a kind, as they are now: what is not among them is gone.
    pub fn replace(&mut self, kind: &Kind, objects: Vec<Listed>) -> bool {
        let mut before = self.kinds.remove(kind.name).unwrap_or_default();
        let mut now = BTreeMap::new();
        let mut changed = false;
        for Listed { key, document } in objects {
            let same = before.remove(&key).filter(|known| known.node == document.node);
            changed |= same.is_none();
            now.insert(key, same.unwrap_or_else(|| Arc::new(document)));
        }
        changed |= !before.is_empty();
        self.kinds.insert(kind.name, now);
        changed
    }

    pub fn get(&self, kind: &str, key: &Key) -> Option<&Document> {
        self.kinds.get(kind)?.get(key).map(|document| &**document)
    }

    pub fn of(&self, kind: &str) -> impl Iterator<Item = (&Key, &Document)> {
        self.kinds.get(kind).into_iter().flatten().map(|(key, document)| (key, &**document))
    }

    /// A digest of all objects of a kind, each as it was last changed: two who have the same have the same objects.
    pub fn digest(&self, kind: &str) -> String {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let mut add = |bytes: &[u8]| {
            for byte in bytes.iter().chain(b"/") {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for (key, document) in self.of(kind) {
            add(key.namespace.as_bytes());
            add(key.name.as_bytes());
            let generation = document.node.get("metadata").and_then(|metadata| metadata.get("generation"));
            if let Some(Node { value: Value::Int(number), .. }) = generation {
                add(&number.to_be_bytes());
            }
        }
        format!("{hash:016x}")
    }

    pub fn count(&self) -> usize {
        self.kinds.values().map(BTreeMap::len).sum()
    }

    /// What the objects say. One with an error keeps its last good version.
    pub fn read(&mut self, settings: &Settings) -> Read {
        // What names are known is no policy: it is shared by other ways.
        let kinds = self.kinds.iter().filter(|(kind, _)| **kind != DNS_NAME_RESOLVER.name);
        let documents = kinds.flat_map(|(_, objects)| objects.values()).cloned();
        self.last_good.lower(documents, Vec::new(), settings)
    }
}

/// The objects of a list need not say what they are.
fn document(kind: &Kind, object: &Json) -> Document {
    let mut node = lean(kind.name, object);
    for (key, text) in [("apiVersion", kind.api_version().as_str()), ("kind", kind.name)] {
        if let Some(field) = node.entry(key).filter(|field| field.is_null()) {
            *field = Node::string(text);
        }
    }
    let mut document = Document { file: Arc::from(""), node };
    document.file = object_name(&document, kind.name).into();
    document
}
