//! Manifests that may change at any moment, and be wrong for a while.

use crate::commands::watch::{Seen, look};
use anyhow::Result;
use namewall_cluster::{self as cluster, Document, Lowered};
use namewall_policy::{Finding, Severity};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Files and folders, and the last good version of each file.
#[derive(Debug)]
pub(crate) struct Manifests {
    paths: Vec<PathBuf>,
    settings: cluster::Settings,
    good: BTreeMap<Arc<str>, Vec<Document>>,
    seen: BTreeSet<Seen>,
}

/// What they say now.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) lowered: Lowered,
    pub(crate) findings: Vec<Finding>,
    /// Files that are wrong and whose last good version counts.
    pub(crate) kept: Vec<Arc<str>>,
}

impl Manifests {
    pub(crate) fn new(paths: &[PathBuf], settings: cluster::Settings) -> Self {
        Self { paths: paths.to_vec(), settings, good: BTreeMap::new(), seen: BTreeSet::new() }
    }

    /// Whether any file has changed since they were read.
    pub(crate) fn have_changed(&self) -> bool {
        self.look() != self.seen
    }

    /// Reads all of them. A file with an error in it keeps its last good version (S10.1); one that never had
    /// one counts as far as it can be read, and closed.
    pub(crate) fn read(&mut self) -> Result<Read> {
        // Before it is read: what changes meanwhile is read again.
        let seen = self.look();
        let loaded = cluster::load(&self.paths)?;
        self.seen = seen;
        let mut files: BTreeMap<Arc<str>, Vec<Document>> = BTreeMap::new();
        for document in loaded.documents {
            files.entry(document.file.clone()).or_default().push(document);
        }
        let all = |files: &BTreeMap<Arc<str>, Vec<Document>>| -> Vec<Document> {
            files.values().flatten().cloned().collect()
        };
        let mut lowered = cluster::lower(&all(&files), &self.settings);
        let errors = loaded.findings.iter().chain(&lowered.findings).filter(|one| one.severity == Severity::Error);
        let bad: BTreeSet<Arc<str>> = errors.filter_map(|one| one.source.as_ref()).map(|at| at.file.clone()).collect();
        let mut findings = loaded.findings;
        let mut kept = Vec::new();
        for file in &bad {
            if let Some(good) = self.good.get(file) {
                files.insert(file.clone(), good.clone());
                kept.push(file.clone());
            }
        }
        self.good.retain(|file, _| files.contains_key(file));
        for (file, documents) in files.iter().filter(|(file, _)| !bad.contains(*file)) {
            self.good.insert(file.clone(), documents.clone());
        }
        // What was wrong is told of, though it is not what counts.
        findings.append(&mut lowered.findings);
        if !kept.is_empty() {
            lowered = cluster::lower(&all(&files), &self.settings);
        }
        Ok(Read { lowered, findings, kept })
    }

    fn look(&self) -> BTreeSet<Seen> {
        self.paths.iter().flat_map(|path| look(path)).collect()
    }
}
