//! The last good version of what can be wrong for a while (S10.1).

use crate::document::Document;
use crate::lower::{Lowered, Settings, lower};
use namewall_policy::{Finding, Severity};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What documents say now.
#[derive(Debug)]
pub struct Read {
    pub lowered: Lowered,
    /// Also of what is wrong and does not count.
    pub findings: Vec<Finding>,
    /// Files, or objects of a cluster, that are wrong and whose last good version counts.
    pub kept: Vec<Arc<str>>,
}

/// What there is to say about objects, besides what they say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) findings: Vec<Finding>,
    pub(crate) kept: Vec<Arc<str>>,
}

type Files = BTreeMap<Arc<str>, Vec<Arc<Document>>>;

/// Remembers the documents of every file, or object, as they last were without an error.
#[derive(Debug, Default)]
pub struct LastGood {
    good: Files,
}

impl LastGood {
    /// Lowers documents. A file with an error in it keeps its last good version; one that never had one counts
    /// as far as it can be read, and closed. `findings` are those of reading the files.
    pub fn lower(
        &mut self,
        documents: impl IntoIterator<Item = Arc<Document>>,
        mut findings: Vec<Finding>,
        settings: &Settings,
    ) -> Read {
        let mut files = Files::new();
        for document in documents {
            files.entry(document.file.clone()).or_default().push(document);
        }
        let all = |files: &Files| lower(files.values().flatten().map(|document| &**document), settings);
        let mut lowered = all(&files);
        let errors = findings.iter().chain(&lowered.findings).filter(|one| one.severity == Severity::Error);
        let bad: BTreeSet<Arc<str>> = errors.filter_map(|one| one.source.as_ref()).map(|at| at.file.clone()).collect();
        let mut kept = Vec::new();
        for file in &bad {
            if let Some(good) = self.good.get(file) {
                files.insert(file.clone(), good.clone());
                kept.push(file.clone());
            }
        }
        self.good = files.iter().filter(|(file, _)| !bad.contains(*file) || kept.contains(file)).map(copy).collect();
        // What was wrong is told of, though it is not what counts.
        findings.append(&mut lowered.findings);
        if !kept.is_empty() {
            lowered = all(&files);
        }
        Read { lowered, findings, kept }
    }
}

fn copy((file, documents): (&Arc<str>, &Vec<Arc<Document>>)) -> (Arc<str>, Vec<Arc<Document>>) {
    (file.clone(), documents.clone())
}
