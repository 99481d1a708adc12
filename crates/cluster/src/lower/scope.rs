//! One object while it is lowered: reads its fields and collects what is wrong.

use super::parts;
use crate::document::{Document, meant_as_text, source};
use crate::kinds::meta::ObjectMeta;
use crate::yaml::{self, Entry, Mark, Node, Value};
use namewall_policy::labels::UNREADABLE;
use namewall_policy::model::{Action, Clauses, Rule};
use namewall_policy::{Finding, Source};
use serde::Deserialize;
use std::collections::BTreeMap;

pub(crate) struct Scope<'d> {
    pub(crate) document: &'d Document,
    pub(crate) meta: ObjectMeta,
    object: String,
    findings: &'d mut Vec<Finding>,
}

/// Whether `spec: null` is the empty spec.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EmptySpec {
    Accepted,
    Refused,
}

/// A list of rules, one a node.
pub(crate) struct RuleList<'d> {
    pub(crate) path: String,
    pub(crate) items: Vec<&'d Node>,
}

/// A rule as read: its name, what it does, what it matches.
pub(crate) type ReadRule = (Option<String>, Action, Clauses);

/// How a kind writes its ordered rules.
pub(crate) struct RuleForm<'f> {
    /// The list under `spec`.
    pub(crate) key: &'f str,
    pub(crate) most: usize,
    /// The field of a rule that says what it does, and the words for it.
    pub(crate) action: &'f str,
    pub(crate) words: &'f [(&'f str, Action)],
}

impl RuleForm<'_> {
    /// The action of a rule that cannot be read in full; an unknown one counts as Deny.
    fn written_action(&self, node: &Node) -> Action {
        let written = node.get(self.action).and_then(Node::as_str);
        let known = self.words.iter().find(|(word, _)| Some(*word) == written);
        known.map_or(Action::Deny, |(_, action)| *action)
    }
}

/// The fields of metadata that matter here.
const METADATA: [&str; 5] = ["name", "namespace", "labels", "annotations", "ownerReferences"];
/// The parts of every object.
const PARTS: [&str; 3] = ["metadata", "spec", "status"];

/// Whether a word is another one with one or two slips in it.
fn is_misspelt(written: &str, meant: &str) -> bool {
    let slips = if meant.len() < 5 { 1 } else { 2 };
    let (written, meant) = (written.to_ascii_lowercase(), meant.to_ascii_lowercase());
    strsim::osa_distance(&written, &meant) <= slips
}

impl<'d> Scope<'d> {
    pub(crate) fn new(document: &'d Document, findings: &'d mut Vec<Finding>) -> Self {
        let kind = document.kind().unwrap_or_default();
        let object = super::object_name(document, kind);
        let mut scope = Self { document, meta: ObjectMeta::default(), object, findings };
        scope.meta = scope.metadata(document.node.get("metadata"), "metadata");
        scope
    }

    /// Of an object that is not a policy.
    pub(crate) fn of_fact(document: &'d Document, findings: &'d mut Vec<Finding>) -> Self {
        let mut scope = Self::new(document, findings);
        let misspelt = scope.find_misspelt(Some(&document.node), "", &PARTS);
        scope.meta.labels_are_in_doubt |= misspelt.contains(&"metadata");
        scope
    }

    /// The labels by which policies select, of a pod, the pods of a template or of a namespace. If some cannot be read,
    /// no policy can tell whether it is meant: the pods are isolated (S10.1).
    pub(crate) fn selected_labels(&mut self, meta: &ObjectMeta, path: &str) -> BTreeMap<String, String> {
        let mut labels = meta.labels.clone();
        if meta.labels_are_in_doubt {
            let message = "labels here cannot be read, so nobody can tell which policies are meant. Its pods are \
                           isolated in both directions until they can";
            self.error("unreadable-labels", path, message);
            labels.insert(UNREADABLE.to_owned(), String::new());
        }
        labels
    }

    /// Metadata, read piece by piece: one bad label must not lose the others,
    /// and with them the policies that select by them.
    pub(crate) fn metadata(&mut self, node: Option<&'d Node>, path: &str) -> ObjectMeta {
        let misspelt = self.find_misspelt(node, path, &METADATA);
        let text = |key: &str| node.and_then(|node| node.get(key)).and_then(Node::as_str).map(str::to_owned);
        let owners = node.and_then(|node| node.get("ownerReferences"));
        let labels = self.texts(node, "labels", path);
        let at = format!("{path}.labels");
        let are_good = labels.iter().fold(true, |good, (key, value)| parts::check_label(self, key, value, &at) && good);
        let is_unread = |node: &Node| match &node.value {
            Value::Map(_) => node.entries().iter().any(|one| matches!(one.node.value, Value::Seq(_) | Value::Map(_))),
            Value::Null => false,
            _ => true,
        };
        let labels_are_in_doubt = !are_good
            || misspelt.contains(&"labels")
            || node.and_then(|node| node.get("labels")).is_some_and(is_unread)
            || self.is_in_doubt(&at.split('.').collect::<Vec<_>>());
        ObjectMeta {
            name: text("name").filter(|name| !name.is_empty()).unwrap_or_else(|| super::UNNAMED.to_owned()),
            namespace: text("namespace"),
            labels,
            labels_are_in_doubt,
            annotations: self.texts(node, "annotations", path),
            owner_references: owners
                .and_then(|node| self.read_loose(node, &format!("{path}.ownerReferences")))
                .unwrap_or_default(),
        }
    }

    fn texts(&mut self, node: Option<&'d Node>, key: &str, path: &str) -> BTreeMap<String, String> {
        let mut texts = BTreeMap::new();
        let Some(map) = node.and_then(|node| node.get(key)) else { return texts };
        let path = format!("{path}.{key}");
        if !matches!(map.value, Value::Map(_) | Value::Null) {
            self.error("unreadable-field", &path, "expected a map of texts");
        }
        for entry in map.entries() {
            let text = match &entry.node.value {
                Value::String(text) => text.to_string(),
                // The API server refuses these; what was meant is plain enough to go on with.
                value @ (Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Written(_)) => {
                    self.error_at(entry.node.mark, &format!("{path}.{}", entry.key), &meant_as_text(value));
                    value.scalar_text().unwrap_or_default().into()
                }
                Value::Null => String::new(),
                Value::Seq(_) | Value::Map(_) => {
                    // Kept as an empty text: that it is there may matter.
                    self.error_at(entry.node.mark, &format!("{path}.{}", entry.key), "expected a text");
                    String::new()
                }
            };
            texts.insert(entry.key.to_string(), text);
        }
        texts
    }

    /// Objects that are not policies may have any field; most do not matter here. One that is nearly the name of a
    /// field that does is an error, if that field is not there: a pod without its labels is selected by no policy.
    /// Returns the fields that are meant.
    pub(crate) fn find_misspelt<'f>(&mut self, node: Option<&Node>, path: &str, fields: &[&'f str]) -> Vec<&'f str> {
        let mut meant = Vec::new();
        let Some(node) = node else { return meant };
        let is_known = |key: &str| fields.contains(&key);
        for entry in node.entries().iter().filter(|entry| !is_known(&entry.key)) {
            let is_meant = |field: &&&str| node.get(field).is_none() && is_misspelt(&entry.key, field);
            if let Some(field) = fields.iter().find(is_meant) {
                let message = format!("`{}` is not known here; did you mean `{field}`?", entry.key);
                let path = if path.is_empty() { entry.key.to_string() } else { format!("{path}.{}", entry.key) };
                self.error("unknown-field", &path, message);
                meant.push(*field);
            }
        }
        meant
    }

    fn error_at(&mut self, mark: Mark, path: &str, message: &str) {
        let place = source(&self.document.file, mark);
        self.findings.push(Finding::error("unreadable-field", &self.object, message).at(path).from_source(Some(place)));
    }

    pub(crate) fn namespace(&self) -> &str {
        self.meta.namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or("default")
    }

    pub(crate) fn node(&self, path: &[&str]) -> Option<&'d Node> {
        path.iter().try_fold(&self.document.node, |node, key| node.get(key)).filter(|node| !node.is_null())
    }

    /// True if a fault in the text leaves open what is meant there.
    pub(crate) fn is_in_doubt(&self, path: &[&str]) -> bool {
        let is_there = self.node(path).is_some();
        let path = path.join(".");
        self.document.faults.iter().any(|fault| fault.puts_in_doubt(&path, is_there))
    }

    pub(crate) fn place(&self, path: &str) -> Option<Source> {
        Some(self.document.place(path))
    }

    pub(crate) fn error(&mut self, code: &'static str, path: &str, message: impl Into<String>) {
        let finding = Finding::error(code, &self.object, message).at(path).from_source(self.place(path));
        self.findings.push(finding);
    }

    pub(crate) fn warning(&mut self, code: &'static str, path: &str, message: impl Into<String>) {
        let finding = Finding::warning(code, &self.object, message).at(path).from_source(self.place(path));
        self.findings.push(finding);
    }

    pub(crate) fn hint(&mut self, code: &'static str, path: &str, message: impl Into<String>) {
        let finding = Finding::hint(code, &self.object, message).at(path).from_source(self.place(path));
        self.findings.push(finding);
    }

    /// Reads a part strictly: a field it does not know is an error too, since
    /// in a policy it may be a restriction that was misspelt.
    pub(crate) fn read<T: Deserialize<'d>>(&mut self, node: &'d Node, path: &str) -> Option<T> {
        if node.is_null() {
            return None;
        }
        match yaml::read::<T>(node, path) {
            Ok((value, unknown)) => {
                for field in &unknown {
                    let finding = Finding::error(
                        "unknown-field",
                        &self.object,
                        "this field is not known here; check its spelling and indentation",
                    )
                    .at(field.path.clone())
                    .from_source(Some(source(&self.document.file, field.mark)));
                    self.findings.push(finding);
                }
                unknown.is_empty().then_some(value)
            }
            Err(error) => {
                self.unreadable(error);
                None
            }
        }
    }

    /// Reads a part, minding only the fields that matter here.
    pub(crate) fn read_loose<T: Deserialize<'d>>(&mut self, node: &'d Node, path: &str) -> Option<T> {
        match yaml::read::<T>(node, path) {
            Ok((value, _)) => Some(value),
            Err(error) => {
                self.unreadable(error);
                None
            }
        }
    }

    /// A part that is missing, or cannot be read, is as if nothing stood there.
    pub(crate) fn read_part<T: Deserialize<'d> + Default>(&mut self, node: Option<&'d Node>, path: &str) -> T {
        node.and_then(|node| self.read_loose(node, path)).unwrap_or_default()
    }

    /// The items of a list, each on its own: one that cannot be read loses no other.
    pub(crate) fn read_items<T: Deserialize<'d>>(&mut self, node: Option<&'d Node>, path: &str) -> Vec<T> {
        match node.map(|node| &node.value) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Seq(items)) => {
                let items = items.iter().enumerate();
                items.filter_map(|(at, item)| self.read_loose(item, &format!("{path}[{at}]"))).collect()
            }
            Some(_) => {
                self.error("unreadable-field", path, "expected a list");
                Vec::new()
            }
        }
    }

    pub(crate) fn read_whole<T: Deserialize<'d>>(&mut self) -> Option<T> {
        self.read_loose(&self.document.node, "")
    }

    fn unreadable(&mut self, error: yaml::ReadError) {
        let finding = Finding::error("unreadable-field", &self.object, error.message)
            .at(error.path)
            .from_source(Some(source(&self.document.file, error.mark)));
        self.findings.push(finding);
    }

    /// The items of a list under `spec`; `Err` if it is there and no list.
    pub(crate) fn rules(&mut self, key: &str) -> Result<RuleList<'d>, ()> {
        let path = format!("spec.{key}");
        match self.node(&["spec", key]).map(|node| &node.value) {
            None => Ok(RuleList { path, items: Vec::new() }),
            Some(Value::Seq(items)) => {
                for at in (0..items.len()).filter(|&at| items[at].is_null()) {
                    self.error("unreadable-field", &format!("{path}[{at}]"), "an empty rule; write {} if all is meant");
                }
                Ok(RuleList { path, items: items.iter().collect() })
            }
            Some(_) => {
                self.error("unreadable-field", &path, "expected a list of rules");
                Err(())
            }
        }
    }

    /// True if the object has the fields of its kind and no others; those of its spec are the fields of `S`. A policy
    /// with other fields cannot be read: a misspelt field may be a restriction.
    pub(crate) fn is_well_formed<S: Deserialize<'d>>(&mut self) -> bool {
        self.has_known_fields(yaml::field_names::<S>(), EmptySpec::Refused)
    }

    /// The same for kinds whose spec may be null: the API server reads that as the empty spec.
    pub(crate) fn is_well_formed_or_empty<S: Deserialize<'d>>(&mut self) -> bool {
        self.has_known_fields(yaml::field_names::<S>(), EmptySpec::Accepted)
    }

    fn has_known_fields(&mut self, spec_fields: &[&str], empty: EmptySpec) -> bool {
        let top = ["apiVersion", "kind", "metadata", "spec", "status"];
        let mut good = self.only_fields(&self.document.node, "", &top);
        // A part of the text cannot be read, which was reported when it was parsed.
        good &= self.document.faults.is_empty();
        // Another version may mean something else by the same words; that it is one was said already.
        good &= super::is_known_version(self.document);
        match self.document.node.get("spec") {
            Some(spec @ Node { value: Value::Map(_), .. }) => good &= self.only_fields(spec, "spec.", spec_fields),
            Some(Node { value: Value::Null, .. }) if empty == EmptySpec::Accepted => {}
            Some(_) => {
                self.error("unreadable-field", "spec", format!("expected a map with {}", spec_fields.join(", ")));
                good = false;
            }
            None => {
                self.error("missing-spec", "", "`spec` is missing; without it nobody can tell what the policy says");
                good = false;
            }
        }
        good
    }

    fn only_fields(&mut self, node: &Node, prefix: &str, accepted: &[&str]) -> bool {
        let unknown: Vec<&Entry> = node.entries().iter().filter(|e| !accepted.contains(&&*e.key)).collect();
        for entry in &unknown {
            let message = format!("`{}` is not known here; accepted are {}", entry.key, accepted.join(", "));
            self.error("unknown-field", &format!("{prefix}{}", entry.key), message);
        }
        unknown.is_empty()
    }

    /// S10.1: an object that cannot be read isolates what it selects.
    pub(crate) fn isolate(&self, path: &str) -> Vec<Rule> {
        vec![self.rule(path, None, Action::Deny)]
    }

    /// An ordered list of rules, each read on its own; those beyond the most
    /// that are accepted, and those that cannot be read, fail closed.
    pub(crate) fn ordered_rules(
        &mut self,
        form: &RuleForm<'_>,
        mut read: impl FnMut(&mut Self, &'d Node, &str) -> Option<ReadRule>,
    ) -> Vec<Rule> {
        let Ok(list) = self.rules(form.key) else {
            // Some rules are there and none can be told.
            return self.isolate(&format!("spec.{}", form.key));
        };
        if list.items.len() > form.most {
            let message =
                format!("{} rules; {} is the most. The rules beyond it fail closed", list.items.len(), form.most);
            self.error("bad-count", &list.path, message);
        }
        let mut rules = Vec::new();
        for (at, node) in list.items.into_iter().enumerate() {
            let path = format!("{}[{at}]", list.path);
            let rule = read(self, node, &path).filter(|_| at < form.most);
            rules.push(self.rule(&path, rule, form.written_action(node)));
        }
        rules
    }

    /// A rule of which at least the action may be known.
    pub(crate) fn rule(&self, path: &str, read: Option<ReadRule>, fallback: Action) -> Rule {
        let (name, action, clauses) = read.unwrap_or((None, fallback, Clauses::Unreadable));
        Rule { name: name.map(Into::into), action, clauses, source: self.place(path) }
    }
}
