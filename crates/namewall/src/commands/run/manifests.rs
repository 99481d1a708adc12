//! Manifests that may change at any moment, and be wrong for a while.

use anyhow::Result;
use namewall_cluster::{self as cluster, LastGood, Read};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files and folders, and the last good version of each file.
#[derive(Debug)]
pub(crate) struct Manifests {
    paths: Vec<PathBuf>,
    settings: cluster::Settings,
    last_good: LastGood,
    seen: BTreeSet<Seen>,
}

/// A file as it was when it was last looked at.
type Seen = (PathBuf, u64, u64, i64, i64);

impl Manifests {
    pub(crate) fn new(paths: &[PathBuf], settings: cluster::Settings) -> Self {
        Self { paths: paths.to_vec(), settings, last_good: LastGood::default(), seen: BTreeSet::new() }
    }

    /// Whether any file has changed since they were read.
    pub(crate) fn have_changed(&self) -> bool {
        self.look() != self.seen
    }

    /// Reads all of them.
    pub(crate) fn read(&mut self) -> Result<Read> {
        // Before it is read: what changes meanwhile is read again.
        let seen = self.look();
        let loaded = cluster::load(&self.paths)?;
        self.seen = seen;
        let documents = loaded.documents.into_iter().map(Arc::new);
        Ok(self.last_good.lower(documents, loaded.findings, &self.settings))
    }

    fn look(&self) -> BTreeSet<Seen> {
        let mut seen = BTreeSet::new();
        self.paths.iter().for_each(|path| look_at(path, &mut seen));
        seen
    }
}

fn look_at(path: &Path, seen: &mut BTreeSet<Seen>) {
    // Through links: a mounted ConfigMap changes by one that leads elsewhere.
    let Ok(found) = std::fs::metadata(path) else { return };
    if found.is_dir() {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.for_each(|entry| look_at(&entry.path(), seen));
    } else {
        seen.insert((path.to_owned(), found.ino(), found.len(), found.mtime(), found.mtime_nsec()));
    }
}
