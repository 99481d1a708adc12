//! One object while it is lowered: reads its fields and collects what is wrong.

use crate::api::meta::ObjectMeta;
use crate::document::{Document, source};
use crate::yaml::{self, Node, Value};
use namewall_policy::model::{Action, Clauses, Rule};
use namewall_policy::{Finding, Source};
use serde::Deserialize;

pub(super) struct Scope<'d> {
    pub(super) document: &'d Document,
    pub(super) meta: ObjectMeta,
    object: String,
    findings: &'d mut Vec<Finding>,
}

/// A list of rules, one a node.
pub(super) struct RuleList<'d> {
    pub(super) path: String,
    pub(super) items: Vec<&'d Node>,
}

impl<'d> Scope<'d> {
    pub(super) fn new(document: &'d Document, findings: &'d mut Vec<Finding>) -> Self {
        let kind = document.kind().unwrap_or_default();
        let object =
            format!("{kind} {}", super::display_name(document.namespace(), document.name().unwrap_or_default()));
        let mut scope = Self { document, meta: ObjectMeta::default(), object, findings };
        if let Some(node) = document.node.get("metadata") {
            scope.meta = scope.read_loose(node, "metadata").unwrap_or_else(|| ObjectMeta {
                name: document.name().unwrap_or_default().to_owned(),
                namespace: document.namespace().map(str::to_owned),
                ..ObjectMeta::default()
            });
        }
        scope
    }

    pub(super) fn namespace(&self) -> &str {
        self.meta.namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or("default")
    }

    pub(super) fn node(&self, path: &[&str]) -> Option<&'d Node> {
        path.iter().try_fold(&self.document.node, |node, key| node.get(key)).filter(|node| !node.is_null())
    }

    pub(super) fn place(&self, path: &str) -> Option<Source> {
        Some(self.document.place(path))
    }

    pub(super) fn error(&mut self, code: &'static str, path: &str, message: impl Into<String>) {
        let finding = Finding::error(code, &self.object, message).at(path).from_source(self.place(path));
        self.findings.push(finding);
    }

    pub(super) fn warning(&mut self, code: &'static str, path: &str, message: impl Into<String>) {
        let finding = Finding::warning(code, &self.object, message).at(path).from_source(self.place(path));
        self.findings.push(finding);
    }

    /// Reads a part strictly: a field it does not know is an error too, since
    /// in a policy it may be a restriction that was misspelt.
    pub(super) fn read<T: Deserialize<'d>>(&mut self, node: &'d Node, path: &str) -> Option<T> {
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
    pub(super) fn read_loose<T: Deserialize<'d>>(&mut self, node: &'d Node, path: &str) -> Option<T> {
        match yaml::read::<T>(node, path) {
            Ok((value, _)) => Some(value),
            Err(error) => {
                self.unreadable(error);
                None
            }
        }
    }

    pub(super) fn read_whole<T: Deserialize<'d>>(&mut self) -> Option<T> {
        self.read_loose(&self.document.node, "")
    }

    fn unreadable(&mut self, error: yaml::ReadError) {
        let finding = Finding::error("unreadable-field", &self.object, error.message)
            .at(error.path)
            .from_source(Some(source(&self.document.file, error.mark)));
        self.findings.push(finding);
    }

    /// The items of a list under `spec`; `Err` if it is there and no list.
    pub(super) fn rules(&mut self, key: &str) -> Result<RuleList<'d>, ()> {
        let path = format!("spec.{key}");
        match self.node(&["spec", key]).map(|node| &node.value) {
            None => Ok(RuleList { path, items: Vec::new() }),
            Some(Value::Seq(items)) => Ok(RuleList { path, items: items.iter().collect() }),
            Some(_) => {
                self.error("unreadable-field", &path, "expected a list of rules");
                Err(())
            }
        }
    }

    /// Fields under `spec` besides those the kind has.
    pub(super) fn check_spec_fields(&mut self, accepted: &[&str]) -> bool {
        let Some(spec) = self.document.node.get("spec") else { return true };
        let unknown: Vec<String> =
            spec.entries().iter().filter(|e| !accepted.contains(&&*e.key)).map(|e| e.key.to_string()).collect();
        for key in &unknown {
            let message = format!("`{key}` is not known here; accepted are {}", accepted.join(", "));
            self.error("unknown-field", &format!("spec.{key}"), message);
        }
        unknown.is_empty()
    }

    /// A rule of which at least the action may be known.
    pub(super) fn rule(&self, path: &str, read: Option<(Option<String>, Action, Clauses)>, fallback: Action) -> Rule {
        let (name, action, clauses) = read.unwrap_or((None, fallback, Clauses::Unreadable));
        Rule { name: name.map(Into::into), action, clauses, source: self.place(path) }
    }
}
