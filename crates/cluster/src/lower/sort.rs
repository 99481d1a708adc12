//! Objects by their kind, each once. What is not read is counted, and what could be a policy is reported.

use super::objects::{Item, ReadWorkload};
use super::{Lowering, NO_KIND, is_object_name, named, object_name};
use crate::document::Document;
use crate::kinds::{self, Kind, Reader, Recognised};
use namewall_policy::model::WorkloadKind;
use namewall_policy::{Finding, Source};
use rustc_hash::FxHashMap;

/// Groups with kinds of the same names that mean something else.
const FOREIGN_GROUPS: [&str; 2] = ["projectcalico.org", "antrea.io"];

#[derive(Default)]
pub(super) struct Sorted<'d> {
    lists: FxHashMap<List, Vec<Unread<'d>>>,
    /// Where each object is in its list.
    seen: FxHashMap<ObjectKey<'d>, usize>,
}

/// What makes two documents the same object.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ObjectKey<'d> {
    kind: &'static Kind,
    namespace: &'d str,
    name: &'d str,
}

/// The objects of a kind, in the order in which they were given. Templates of all kinds are one list, and CronJobs
/// come after it: the order of workloads is the order of rows in a matrix.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum List {
    Of(&'static Kind),
    Templates,
    CronJobs,
}

impl List {
    fn of(kind: &'static Kind) -> Self {
        match &kind.reader {
            Reader::Template(template) if template.workload == WorkloadKind::CronJob => Self::CronJobs,
            Reader::Template(_) => Self::Templates,
            _ => Self::Of(kind),
        }
    }
}

/// An object that is not lowered yet. Workloads may have been read when their file was.
#[derive(Clone, Copy)]
pub(super) enum Unread<'d> {
    Tree(&'static Kind, &'d Document),
    Workload(&'d ReadWorkload),
}

impl Unread<'_> {
    fn kind(self) -> &'static Kind {
        match self {
            Self::Tree(kind, _) => kind,
            Self::Workload(workload) => workload.kind,
        }
    }

    fn place(self) -> Source {
        match self {
            Self::Tree(_, document) => document.place(""),
            Self::Workload(workload) => workload.place.clone(),
        }
    }
}

impl<'d> Sorted<'d> {
    /// The documents of a kind. Workloads have lists of their own.
    pub(super) fn of(&self, kind: &'static Kind) -> impl Iterator<Item = &'d Document> {
        self.list(List::Of(kind)).iter().filter_map(|one| match one {
            Unread::Tree(_, document) => Some(*document),
            Unread::Workload(_) => None,
        })
    }

    pub(super) fn pods(&self) -> &[Unread<'d>] {
        self.list(List::Of(&kinds::POD))
    }

    pub(super) fn templates(&self) -> impl Iterator<Item = &Unread<'d>> {
        self.list(List::Templates).iter().chain(self.list(List::CronJobs))
    }

    fn list(&self, list: List) -> &[Unread<'d>] {
        self.lists.get(&list).map_or(&[], Vec::as_slice)
    }

    /// Adds an object, or replaces the one at a place. Returns its place.
    fn put(&mut self, one: Unread<'d>, place: Option<usize>) -> usize {
        let list = self.lists.entry(List::of(one.kind())).or_default();
        match place {
            Some(place) => list[place] = one,
            None => list.push(one),
        }
        place.unwrap_or(list.len() - 1)
    }
}

impl Lowering<'_> {
    pub(super) fn sort<'d>(&mut self, items: impl Iterator<Item = Item<'d>>) -> Sorted<'d> {
        let mut sorted = Sorted::default();
        for item in items {
            match item {
                Item::PassedOver(kind) => *self.out.passed_over.entry(kind.to_owned()).or_default() += 1,
                Item::Workload(workload) => {
                    let ReadWorkload { kind, namespace, name, .. } = workload;
                    self.put(&mut sorted, ObjectKey { kind, namespace, name }, Unread::Workload(workload));
                }
                Item::Tree(document) => self.sort_document(&mut sorted, document),
            }
        }
        sorted
    }

    fn sort_document<'d>(&mut self, sorted: &mut Sorted<'d>, document: &'d Document) {
        let Some(kind) = self.kind_of(document) else { return };
        let Some(name) = document.name().filter(|name| !name.is_empty()) else {
            // It counts all the same: a policy without a name must not be lost.
            let finding = Finding::error("missing-name", kind.name, "metadata.name is missing; every object has one");
            self.out.findings.push(finding.at("metadata.name").from_source(Some(document.place("metadata"))));
            sorted.put(Unread::Tree(kind, document), None);
            return;
        };
        let namespace = document.namespace().filter(|name| !name.is_empty()).unwrap_or("default");
        for (path, text) in [("metadata.name", name), ("metadata.namespace", namespace)] {
            if !is_object_name(text) {
                let message = format!("{text:?} cannot be a name; letters, digits, `-`, `.`, `_` and `:` are accepted");
                let finding = Finding::error("bad-name", object_name(document, kind.name), message).at(path);
                self.out.findings.push(finding.from_source(Some(document.place(path))));
            }
        }
        self.put(sorted, ObjectKey { kind, namespace, name }, Unread::Tree(kind, document));
    }

    /// The kind that a document is read as. None, with a finding if it could be a policy, for what is not read.
    fn kind_of(&mut self, document: &Document) -> Option<&'static Kind> {
        let (Some(api_version), Some(name)) = (document.api_version(), document.kind()) else {
            self.pass_over_kindless(document);
            return None;
        };
        match kinds::recognise(api_version, name) {
            Recognised::Read(kind) => Some(kind),
            Recognised::No => self.pass_over(document, api_version, name),
            Recognised::OtherVersion(kind) => {
                let accepted = kind.versions.join(" or ");
                let message = format!("version {api_version} of {name} is not read; {accepted} is");
                let finding = Finding::error("unknown-version", object_name(document, name), message);
                self.out.findings.push(finding.at("apiVersion").from_source(Some(document.place("apiVersion"))));
                // A policy is not lost: its subject is read as far as it can be, and closed.
                kind.is_policy().then_some(kind)
            }
        }
    }

    /// Of two objects with the same key the later counts, in the place of the first.
    fn put<'d>(&mut self, sorted: &mut Sorted<'d>, key: ObjectKey<'d>, one: Unread<'d>) {
        let first = sorted.seen.get(&key).copied();
        if let Some(at) = first {
            let first = sorted.list(List::of(key.kind))[at].place();
            let message = format!("it is defined twice, first at {first}; the later one counts");
            let finding = Finding::warning("defined-twice", named(key.kind.name, key.namespace, key.name), message);
            self.out.findings.push(finding.from_source(Some(one.place())));
        }
        let at = sorted.put(one, first);
        sorted.seen.insert(key, at);
    }

    /// Counts an object that is not read. One that could be a policy is reported. Where only the kind is misspelt, the
    /// object is not lost: its subject is read as far as it can be, and closed.
    fn pass_over(&mut self, document: &Document, api_version: &str, name: &str) -> Option<&'static Kind> {
        let meant = kinds::meant_policy(api_version, name);
        let object = object_name(document, name);
        if let Some(meant) = meant.filter(|meant| kinds::is_of(meant, api_version)) {
            let message = format!("{api_version} has no kind {name}; did you mean {}?", meant.name);
            let finding = Finding::error("unknown-kind", object, message).at("kind");
            self.out.findings.push(finding.from_source(Some(document.place("kind"))));
            return Some(meant);
        }
        *self.out.passed_over.entry(name.to_owned()).or_default() += 1;
        let meant = meant?;
        let accepted = kinds::api_versions(meant.name);
        let accepted =
            if meant.name == name { format!("{accepted} is") } else { format!("{} of {accepted} is", meant.name) };
        let message = format!("{name} of {api_version} is not read, and has no effect here; {accepted}");
        // Other systems have kinds of the same name; a misspelt group is a policy that is lost.
        let group = api_version.split('/').next().unwrap_or_default();
        let is_foreign =
            |known: &&str| group == *known || group.strip_suffix(known).is_some_and(|rest| rest.ends_with('.'));
        let finding = match FOREIGN_GROUPS.iter().any(is_foreign) {
            true => Finding::warning("foreign-kind", object, message),
            false => Finding::error("unknown-version", object, message),
        };
        self.out.findings.push(finding.at("apiVersion").from_source(Some(document.place("apiVersion"))));
        None
    }

    /// What looks like an object but does not say what it is may be a policy.
    fn pass_over_kindless(&mut self, document: &Document) {
        *self.out.passed_over.entry(NO_KIND.to_owned()).or_default() += 1;
        let has = |key| document.node.get(key).is_some();
        let is_object = has("metadata") && (has("spec") || has("kind") || has("apiVersion"));
        // Files of settings have a `kind` too; none has that of a policy.
        let is_policy = document.kind().is_some_and(|kind| kinds::meant_policy("", kind).is_some());
        if is_object || is_policy || (has("apiVersion") && has("spec")) {
            let missing = if document.kind().is_none() { "kind" } else { "apiVersion" };
            let message = format!("`{missing}` is missing, so nobody can tell what this is; it has no effect");
            let finding = Finding::error("missing-kind", document.name().unwrap_or_default(), message);
            self.out.findings.push(finding.from_source(Some(document.place(""))));
        }
    }
}
