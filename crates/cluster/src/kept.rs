//! The last good version of what can be wrong for a while (S10.1).

use crate::lower::{Lowered, Settings, lower};
use crate::record::Record;
use namewall_policy::{Finding, Severity};
use std::borrow::Borrow;
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
pub(crate) struct Remarks {
    pub(crate) findings: Vec<Finding>,
    pub(crate) kept: Vec<Arc<str>>,
}

type Files<R> = BTreeMap<Arc<str>, Vec<R>>;

/// Remembers the documents of every file, or object, as they last were without an error.
#[derive(Debug)]
pub struct LastGood<R> {
    good: Files<R>,
}

impl<R> Default for LastGood<R> {
    fn default() -> Self {
        Self { good: Files::new() }
    }
}

impl<R: Record> LastGood<R> {
    /// Takes versions that an earlier process knew to be good. What was lowered since counts more.
    pub fn adopt(&mut self, records: impl IntoIterator<Item = R>) {
        let mut files = Files::new();
        for record in records {
            files.entry(record.file().clone()).or_default().push(record);
        }
        for (file, records) in files {
            self.good.entry(file).or_insert(records);
        }
    }

    /// The files, or objects, that have a good version.
    pub fn files(&self) -> impl Iterator<Item = &Arc<str>> {
        self.good.keys()
    }

    /// The good version of a file, or object.
    pub fn of(&self, file: &str) -> Option<&[R]> {
        self.good.get(file).map(Vec::as_slice)
    }

    /// Lowers documents. A file with an error in it keeps its last good version; one that never had one counts
    /// as far as it can be read, and closed. `findings` are those of reading the files.
    pub fn lower(
        &mut self,
        records: impl IntoIterator<Item = R>,
        mut findings: Vec<Finding>,
        settings: &Settings,
    ) -> Read {
        let mut files = Files::new();
        for record in records {
            files.entry(record.file().clone()).or_default().push(record);
        }
        let all = |files: &Files<R>| {
            let documents: Vec<_> = files.values().flatten().map(Record::document).collect();
            lower(documents.iter().map(Borrow::borrow), settings)
        };
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
        let is_good = |file: &Arc<str>| !bad.contains(file) || kept.contains(file);
        let good = files.iter().filter(|(file, _)| is_good(file));
        self.good = good.map(|(file, records)| (file.clone(), records.clone())).collect();
        // What was wrong is told of, though it is not what counts.
        findings.append(&mut lowered.findings);
        if !kept.is_empty() {
            lowered = all(&files);
        }
        Read { lowered, findings, kept }
    }
}
