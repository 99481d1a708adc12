//! Manifests that may change at any moment, and be wrong for a while.

use crate::commands::watch::{Seen, look};
use anyhow::Result;
use namewall_cluster::{self as cluster, Document, LastGood, Read};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Files and folders, and the last good version of each file.
#[derive(Debug)]
pub(crate) struct Manifests {
    paths: Vec<PathBuf>,
    settings: cluster::Settings,
    last_good: LastGood<Arc<Document>>,
    seen: BTreeSet<Seen>,
}

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
        self.paths.iter().flat_map(|path| look(path)).collect()
    }
}
