//! Made-up clusters of any size, the same ones every time: teams with their
//! namespaces, applications with their pods, and the policies a platform team
//! and its tenants would write. Nothing here is random: two runs, and two
//! machines, measure the same text.
//!
//! `layout` says who is where, `objects` and `policies` write it down as
//! manifests ([`bulk`] many at once), and [`flows`] picks connections to be judged. [`crowd`] is another
//! cluster, in which a packet has a long way to its verdict. What is measured on
//! them is in `benches/`, `bin/` and `scripts/bench`; [`figures`] is how.

pub mod bulk;
pub mod crowd;
pub mod figures;
pub mod flows;
mod layout;
mod objects;
pub mod patterns;
mod policies;
pub mod random;

use layout::Layout;
use namewall_cluster::{Document, Lowered, Settings, lower};
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

/// What to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cluster {
    pub pods: usize,
    pub namespaces: usize,
    pub policies: usize,
    pub nodes: usize,
    /// Pods an application; those have the same labels, as under one Deployment.
    pub replicas: usize,
    /// Deployments in place of pods: nobody has an address yet.
    pub templates: bool,
}

impl Default for Cluster {
    /// The size the goals speak of.
    fn default() -> Self {
        Self { pods: 10_000, namespaces: 200, policies: 1_000, nodes: 100, replicas: 4, templates: false }
    }
}

/// A manifest.
#[derive(Clone, Debug)]
pub struct File {
    pub name: String,
    pub text: String,
}

impl Cluster {
    /// As many workloads, no two of the same labels: the worst case for a matrix.
    pub fn of_workloads(workloads: usize) -> Self {
        Self { pods: workloads, replicas: 1, ..Self::default() }
    }

    /// The same applications, each with twice as many pods, on the same nodes.
    #[must_use]
    pub fn with_twice_the_pods(self) -> Self {
        Self { pods: self.pods * 2, replicas: self.replicas * 2, ..self }
    }

    pub fn files(&self) -> Vec<File> {
        let layout = Layout::new(self);
        [objects::files(&layout), policies::files(&layout)].concat()
    }

    /// Writes the manifests into a folder, which is made if it is missing.
    pub fn write_to(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        self.files().iter().try_for_each(|file| fs::write(folder.join(&file.name), &file.text))
    }

    /// Read, not lowered. What cannot be read is a fault of this crate.
    pub fn documents(&self) -> Vec<Document> {
        let mut all = Vec::new();
        for file in self.files() {
            let (documents, findings) = Document::read_all(&Arc::from(file.name), &file.text);
            assert!(findings.is_empty(), "{}", findings[0]);
            all.extend(documents);
        }
        all
    }

    pub fn lowered(&self) -> Lowered {
        lower(&self.documents(), &Settings::default())
    }

    /// Two workloads to ask about, the second with a port: `(from, to)`.
    pub fn question(&self) -> (String, String) {
        Layout::new(self).question()
    }
}
