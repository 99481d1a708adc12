//! Documents: the objects of manifests, as trees with their places.

use crate::yaml::{self, Mark, Node, Value};
use namewall_policy::{Finding, Source};
use std::sync::Arc;

/// One object, from one place.
#[derive(Clone, Debug)]
pub struct Document {
    pub file: Arc<str>,
    pub node: Node,
}

impl Document {
    /// Reads every object in a text: several documents, and lists of objects.
    /// What cannot be read becomes a Finding, and the rest goes on.
    pub fn read_all(file: &Arc<str>, text: &str) -> (Vec<Document>, Vec<Finding>) {
        Self::read_part(file, text, 0)
    }

    /// The same for a part of a file that starts after `first_line` lines.
    pub(crate) fn read_part(file: &Arc<str>, text: &str, first_line: u32) -> (Vec<Document>, Vec<Finding>) {
        let (mut documents, mut findings) = (Vec::new(), Vec::new());
        for mut part in yaml::split_documents(text) {
            part.first_line += first_line;
            match yaml::parse(part) {
                Ok(None) => {}
                Ok(Some(node)) => {
                    let mut reader = Flattener { file, documents: &mut documents, findings: &mut findings };
                    reader.flatten(node);
                }
                Err(error) => {
                    let helm = if part.text.contains("{{") {
                        "; this looks like a template, render it first (helm template …)"
                    } else {
                        ""
                    };
                    let finding = Finding::error("unreadable-document", "", format!("{}{helm}", error.message));
                    findings.push(finding.from_source(Some(source(file, error.mark))));
                }
            }
        }
        (documents, findings)
    }

    /// The objects in a tree that is already read: itself, or what a list holds.
    pub fn from_tree(file: &Arc<str>, node: Node) -> (Vec<Document>, Vec<Finding>) {
        let (mut documents, mut findings) = (Vec::new(), Vec::new());
        Flattener { file, documents: &mut documents, findings: &mut findings }.flatten(node);
        (documents, findings)
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        self.node.get(key)?.as_str()
    }

    pub fn kind(&self) -> Option<&str> {
        self.text("kind")
    }

    pub fn api_version(&self) -> Option<&str> {
        self.text("apiVersion")
    }

    pub fn name(&self) -> Option<&str> {
        self.node.get("metadata")?.get("name")?.as_str()
    }

    pub fn namespace(&self) -> Option<&str> {
        self.node.get("metadata")?.get("namespace")?.as_str()
    }

    /// Where the field stands, or what is nearest above it.
    pub fn place(&self, path: &str) -> Source {
        source(&self.file, locate(&self.node, path))
    }
}

pub(crate) fn source(file: &Arc<str>, mark: Mark) -> Source {
    Source { file: file.clone(), line: mark.line, column: mark.column }
}

/// Takes lists of objects apart.
struct Flattener<'a> {
    file: &'a Arc<str>,
    documents: &'a mut Vec<Document>,
    findings: &'a mut Vec<Finding>,
}

impl Flattener<'_> {
    /// `kind: List` and `kind: …List`. The items of a typed list need not say
    /// what they are: the list does.
    fn flatten(&mut self, mut node: Node) {
        // A bare list of objects, as tools that write JSON make it.
        if let Value::Seq(items) = node.value {
            items.into_iter().for_each(|item| self.flatten(item));
            return;
        }
        let kind =
            node.get("kind").and_then(Node::as_str).and_then(|kind| kind.strip_suffix("List")).map(str::to_owned);
        let api_version = node.get("apiVersion").cloned();
        let Some((kind, items)) = kind.zip(node.get_mut("items")) else {
            self.name(&mut node);
            self.documents.push(Document { file: self.file.clone(), node });
            return;
        };
        let Value::Seq(items) = &mut items.value else {
            let finding = Finding::error("unreadable-field", format!("{kind}List"), "expected a list of objects");
            self.findings.push(finding.at("items").from_source(Some(source(self.file, node.mark))));
            return;
        };
        for mut item in std::mem::take(items) {
            if !kind.is_empty() && item.get("kind").is_none() {
                set(&mut item, "kind", Some(Node::string(&kind)));
                set(&mut item, "apiVersion", api_version.clone());
            }
            self.flatten(item);
        }
    }

    /// A name or namespace that is no text would be lost, and the object with it, or moved elsewhere.
    fn name(&mut self, node: &mut Node) {
        let Some(metadata) = node.get_mut("metadata") else { return };
        for key in ["name", "namespace"] {
            let Some(field) = metadata.get_mut(key) else { continue };
            let text = match &field.value {
                Value::Int(value) => value.to_string(),
                Value::Float(value) => value.to_string(),
                Value::Bool(value) => value.to_string(),
                _ => continue,
            };
            let message = format!("expected a text, found {text}; put it in quotes");
            let finding = Finding::error("unreadable-field", &text, message).at(format!("metadata.{key}"));
            self.findings.push(finding.from_source(Some(source(self.file, field.mark))));
            field.value = Value::String(text.into());
        }
    }
}

fn set(item: &mut Node, key: &str, value: Option<Node>) {
    if let (Some(entry), Some(value)) = (item.entry(key), value) {
        *entry = value;
    }
}

fn locate(node: &Node, path: &str) -> Mark {
    let mut here = node;
    let mut mark = node.mark;
    for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
        if let Some(index) = step.strip_suffix(']') {
            let Value::Seq(items) = &here.value else { return mark };
            let Some(item) = index.parse().ok().and_then(|at: usize| items.get(at)) else { return mark };
            here = item;
            mark = item.mark;
        } else {
            let Some(entry) = here.entries().iter().find(|entry| &*entry.key == step) else { return mark };
            here = &entry.node;
            mark = entry.mark;
        }
    }
    mark
}
