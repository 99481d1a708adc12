//! Documents: the objects of manifests, as trees with their places.

use crate::kinds::{is_cluster_wide, is_policy};
use crate::lower::object_name;
use crate::yaml::json::{self, Json};
use crate::yaml::{self, DocumentText, Fault, Mark, Node, Tree, Value};
use namewall_policy::{Finding, Source};
use std::borrow::Cow;
use std::sync::Arc;

/// One object, from one place.
#[derive(Clone, Debug)]
pub struct Document {
    pub file: Arc<str>,
    pub node: Node,
    /// What is wrong with its text. Each is reported as a Finding when the text is read.
    pub faults: Vec<Fault>,
}

impl Document {
    pub fn new(file: &Arc<str>, node: Node) -> Self {
        Self { file: file.clone(), node, faults: Vec::new() }
    }

    /// Reads every object in a text: several documents, and lists of objects.
    /// What cannot be read becomes a Finding, and the rest goes on.
    pub fn read_all(file: &Arc<str>, text: &str) -> (Vec<Document>, Vec<Finding>) {
        let (mut documents, mut findings) = (Vec::new(), Vec::new());
        read_part(FilePart { file, text: &unified_line_ends(text), first_line: 0 }, &mut documents, &mut findings);
        (documents, findings)
    }

    /// The objects in a tree that is already read: itself, or what a list holds.
    pub fn from_tree(file: &Arc<str>, node: Node) -> (Vec<Document>, Vec<Finding>) {
        let (mut documents, mut findings) = (Vec::new(), Vec::new());
        Flattener { file, documents: &mut documents, findings: &mut findings }.flatten(node, Vec::new());
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

/// What becomes of documents as they are read.
pub(crate) trait Gather {
    fn take(&mut self, document: Document);
    fn count(&self) -> usize;
    /// Drops all but the first so many.
    fn cut(&mut self, count: usize);
}

impl Gather for Vec<Document> {
    fn take(&mut self, document: Document) {
        self.push(document);
    }

    fn count(&self) -> usize {
        self.len()
    }

    fn cut(&mut self, count: usize) {
        self.truncate(count);
    }
}

/// A part of a file that starts after so many lines. Its lines end in line feeds.
#[derive(Clone, Copy)]
pub(crate) struct FilePart<'t> {
    pub(crate) file: &'t Arc<str>,
    pub(crate) text: &'t str,
    pub(crate) first_line: u32,
}

/// Passes every object of a text on as soon as it is read.
pub(crate) fn read_part<G: Gather>(part: FilePart<'_>, documents: &mut G, findings: &mut Vec<Finding>) {
    for mut text in yaml::split_documents(part.text) {
        text.first_line += part.first_line;
        let (count, said) = (documents.count(), findings.len());
        let mut reader = Flattener { file: part.file, documents, findings };
        if reader.list(text).is_some() {
            continue;
        }
        documents.cut(count);
        findings.truncate(said);
        let Tree { node, mut faults } = yaml::read_tree(text);
        if let Some(broken) = faults.last_mut().filter(|fault| fault.second.is_none())
            && text.text.contains("{{")
            && !is_binary(text.text)
        {
            broken.message += "; this looks like a template, render it first (helm template …)";
        }
        let mut reader = Flattener { file: part.file, documents, findings };
        match node {
            Some(node) => reader.flatten(node, faults),
            None => reader.report("", &faults),
        }
    }
}

/// True if it has characters that no text has.
fn is_binary(text: &str) -> bool {
    text.chars().any(|char| char.is_control() && !char.is_whitespace())
}

pub(crate) fn source(file: &Arc<str>, mark: Mark) -> Source {
    Source { file: file.clone(), line: mark.line, column: mark.column }
}

/// Carriage returns alone end lines too; our own reading knows only line feeds, with or without them.
pub(crate) fn unified_line_ends(text: &str) -> Cow<'_, str> {
    let alone = |at: usize| text.as_bytes().get(at + 1) != Some(&b'\n');
    if !text.bytes().enumerate().any(|(at, byte)| byte == b'\r' && alone(at)) {
        return text.into();
    }
    text.char_indices().map(|(at, c)| if c == '\r' && alone(at) { '\n' } else { c }).collect::<String>().into()
}

/// How to write a number or a boolean that stands in the place of a text.
pub(crate) fn meant_as_text(value: &Value) -> String {
    match (value, value.scalar_text()) {
        (Value::Written(written), Some(text)) => {
            let read = written.value.scalar_text().unwrap_or_default();
            format!(
                "expected a text; Kubernetes reads `{text}` as {read}, and the API server refuses that here. Put it in quotes: \"{text}\""
            )
        }
        (_, text) => format!("expected a text, found {}; put it in quotes", text.unwrap_or_default()),
    }
}

/// Takes lists of objects apart.
struct Flattener<'a, G> {
    file: &'a Arc<str>,
    documents: &'a mut G,
    findings: &'a mut Vec<Finding>,
}

impl<G: Gather> Flattener<'_, G> {
    /// A list whose items can be read one by one, so that its tree need not be held as a whole. After `None` some items
    /// may have been passed on in vain.
    fn list(&mut self, text: DocumentText<'_>) -> Option<()> {
        if yaml::is_json(text.text) {
            let read = json::read(text, |item| self.flatten(item, Vec::new()))?;
            return match read {
                Json::List => Some(()),
                Json::Tree(node) => {
                    self.flatten(node, Vec::new());
                    Some(())
                }
            };
        }
        for item in yaml::list_items(text)? {
            let Tree { node, faults } = yaml::read_tree(item);
            let Value::Seq(items) = node?.value else { return None };
            // An item that does not say what it is takes that from the list.
            let is_plain = |item: &Node| item.get("kind").and_then(Node::as_str).is_some();
            if !faults.is_empty() || !items.iter().all(is_plain) {
                return None;
            }
            items.into_iter().for_each(|item| self.flatten(item, Vec::new()));
        }
        Some(())
    }

    /// `kind: List` and `kind: …List`. The items of a typed list need not say
    /// what they are: the list does.
    fn flatten(&mut self, mut node: Node, mut faults: Vec<Fault>) {
        // A bare list of objects, as tools that write JSON make it.
        if let Value::Seq(items) = node.value {
            for (at, item) in items.into_iter().enumerate() {
                let its = within(&mut faults, &format!("[{at}]"));
                self.flatten(item, its);
            }
            self.report("", &faults);
            return;
        }
        let kind =
            node.get("kind").and_then(Node::as_str).and_then(|kind| kind.strip_suffix("List")).map(str::to_owned);
        let api_version = node.get("apiVersion").cloned();
        let Some((kind, items)) = kind.zip(node.get_mut("items")) else {
            self.object(node, faults);
            return;
        };
        let Value::Seq(items) = &mut items.value else {
            let finding = Finding::error("unreadable-field", format!("{kind}List"), "expected a list of objects");
            self.findings.push(finding.at("items").from_source(Some(source(self.file, node.mark))));
            return;
        };
        for (at, mut item) in std::mem::take(items).into_iter().enumerate() {
            if !kind.is_empty() && item.get("kind").is_none() {
                set(&mut item, "kind", Some(Node::string(&kind)));
                set(&mut item, "apiVersion", api_version.clone());
            }
            let its = within(&mut faults, &format!("items[{at}]"));
            self.flatten(item, its);
        }
        self.report(&format!("{kind}List"), &faults);
    }

    fn object(&mut self, mut node: Node, faults: Vec<Fault>) {
        if !matches!(node.value, Value::Map(_)) {
            self.report("", &faults);
            if faults.is_empty() && !node.is_null() {
                let message = "expected an object, found a text; is it a comment, or JSON with comments?";
                let finding = Finding::error("unreadable-document", "", message);
                self.findings.push(finding.from_source(Some(source(self.file, node.mark))));
            }
            return;
        }
        let unreadable = self.make_names_texts(&mut node);
        let document = Document { file: self.file.clone(), node, faults };
        let name = document.kind().map(|kind| object_name(&document, kind)).unwrap_or_default();
        self.findings.extend(unreadable.into_iter().map(|finding| Finding { object: name.clone(), ..finding }));
        self.report(&name, &document.faults);
        // Of a text that breaks off only a policy is kept, which closes what it selects: the rest of a pod or a
        // Service may change what it is.
        let is_policy = document.kind().is_some_and(is_policy);
        if document.faults.iter().any(|fault| fault.second.is_none()) && !(is_policy && is_placed(&document)) {
            return;
        }
        if is_policy && let Some(other) = other_namespace(&document) {
            let mut copy = document.clone();
            let namespace = copy.node.get_mut("metadata").and_then(|metadata| metadata.entry("namespace"));
            namespace.into_iter().for_each(|field| field.value = Value::String(other.clone()));
            self.documents.take(copy);
        }
        self.documents.take(document);
    }

    fn report(&mut self, object: &str, faults: &[Fault]) {
        for fault in faults {
            let finding = match fault.second {
                Some(_) => Finding::error("duplicate-key", object, fault.message.clone()).at(fault.path.clone()),
                None => Finding::error("unreadable-document", object, fault.message.clone()),
            };
            self.findings.push(finding.from_source(Some(source(self.file, fault.mark))));
        }
    }

    /// A name or namespace that is not a text would be lost, and the object with it, or moved elsewhere.
    fn make_names_texts(&self, node: &mut Node) -> Vec<Finding> {
        let mut findings = Vec::new();
        let Some(metadata) = node.get_mut("metadata") else { return findings };
        for key in ["name", "namespace"] {
            let Some(field) = metadata.get_mut(key) else { continue };
            let Some(text) = field.value.scalar_text() else { continue };
            let finding = Finding::error("unreadable-field", "", meant_as_text(&field.value));
            findings.push(finding.at(format!("metadata.{key}")).from_source(Some(source(self.file, field.mark))));
            field.value = Value::String(text);
        }
        findings
    }
}

/// Takes out the faults of a part, with their paths from there.
fn within(faults: &mut Vec<Fault>, prefix: &str) -> Vec<Fault> {
    let part = |fault: &mut Fault| {
        fault
            .path
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || !rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let mut its: Vec<Fault> = faults.extract_if(.., part).collect();
    for fault in &mut its {
        let rest = &fault.path[prefix.len()..];
        fault.path = rest.strip_prefix('.').unwrap_or(rest).to_owned();
    }
    its
}

/// True if the namespace of a policy is known, or it needs none.
fn is_placed(document: &Document) -> bool {
    document.kind().is_some_and(is_cluster_wide)
        || document.namespace().is_some()
        || !document.faults.iter().any(|fault| {
            fault.second.is_none()
                && (fault.path == "metadata"
                    || fault.path.starts_with("metadata.")
                    || document.node.get("metadata").is_none())
        })
}

/// The other namespace of an object that has two.
fn other_namespace(document: &Document) -> Option<Box<str>> {
    let second = |fault: &Fault| match (fault.path.as_str(), fault.second.as_ref()?) {
        ("metadata.namespace", second) => second.as_str().map(Into::into),
        ("metadata", second) => second.get("namespace")?.as_str().map(Into::into),
        _ => None,
    };
    let other: Box<str> = document.faults.iter().find_map(second)?;
    (Some(&*other) != document.namespace()).then_some(other)
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
