//! Manifests in files, which may change at any moment and be wrong for a while.

use super::look::{Seen, look};
use super::{Event, Source, TICK};
use crate::signals::Signals;
use namewall_cluster::{self as cluster, Document, Key, LastGood, LoadError, PodAddresses, Read, Settings};
use namewall_policy::addr::Cidr;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub struct FileSettings {
    pub cluster: Settings,
    /// Whether pods may talk that no file tells of. If not, who has an address of the node's blocks or of the pod
    /// networks in the settings, and is not known, is closed.
    pub opens_unknown: bool,
}

/// Files and folders, and the last good version of each file.
#[derive(Debug)]
pub struct Files {
    paths: Vec<PathBuf>,
    settings: FileSettings,
    /// The blocks of each Node.
    pod_blocks: BTreeMap<Arc<str>, Vec<Cidr>>,
    last_good: LastGood<Arc<Document>>,
    /// The files as they were when they were last read.
    seen: BTreeSet<Seen>,
    /// Addresses that this machine's runtime has given pods, and the pods that have them.
    given: Vec<PodAddresses>,
    attached: BTreeSet<Key>,
}

impl Files {
    pub fn new(paths: &[PathBuf], settings: FileSettings) -> Self {
        Self {
            paths: paths.to_vec(),
            settings,
            pod_blocks: BTreeMap::new(),
            last_good: LastGood::default(),
            seen: BTreeSet::new(),
            given: Vec::new(),
            attached: BTreeSet::new(),
        }
    }

    fn look(&self) -> BTreeSet<Seen> {
        self.paths.iter().flat_map(|path| look(path)).collect()
    }
}

impl Source for Files {
    fn next(&mut self, signals: &dyn Signals) -> Event {
        match signals.wait(TICK) {
            Some(signal) => signal.into(),
            None if self.look() != self.seen => Event::Changed,
            None => Event::Nothing,
        }
    }

    fn read(&mut self) -> Result<Read, LoadError> {
        // Compared before they are read, so that a change in between is read again.
        let seen = self.look();
        let loaded = cluster::load(&self.paths)?;
        self.seen = seen;
        let mut documents = loaded.documents;
        let given = |document| cluster::give_addresses(document, &self.given);
        self.attached = documents.iter_mut().filter_map(given).collect();
        let documents = documents.into_iter().map(Arc::new);
        let mut read = self.last_good.lower(documents, loaded.findings, &self.settings.cluster);
        self.pod_blocks = std::mem::take(&mut read.lowered.pod_blocks);
        Ok(read)
    }

    fn attach(&mut self, pods: &[PodAddresses]) {
        self.given = pods.to_vec();
    }

    fn attached(&self) -> BTreeSet<Key> {
        self.attached.clone()
    }

    fn pod_blocks(&self, node: Option<&str>) -> Vec<Cidr> {
        if self.settings.opens_unknown {
            return Vec::new();
        }
        let own = node.and_then(|node| self.pod_blocks.get(node)).into_iter().flatten();
        own.chain(&self.settings.cluster.pod_networks).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signals::tests::NoSignals;
    use namewall_policy::Severity;

    const POLICY: &str = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: closed}, \
        spec: {podSelector: {}}}";

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("namewall-files-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).expect("a folder");
            Self(path)
        }

        fn write(&self, text: &str) {
            // A new file each time: two writes may have one time of change.
            let (new, path) = (self.0.join("new"), self.0.join("a.yaml"));
            std::fs::write(&new, text).and_then(|()| std::fs::rename(new, path)).expect("a file");
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).ok();
        }
    }

    #[test]
    fn a_changed_file_is_an_event_until_it_is_read() {
        let folder = Folder::new("changed");
        folder.write(POLICY);
        let mut files = Files::new(std::slice::from_ref(&folder.0), FileSettings::default());
        assert_eq!(files.read().expect("it is read").lowered.snapshot.policies.len(), 1);
        assert!(matches!(files.next(&NoSignals), Event::Nothing));
        folder.write(&format!("{POLICY}\n---\n{}", POLICY.replace("closed", "other")));
        assert!(matches!(files.next(&NoSignals), Event::Changed));
        assert!(matches!(files.next(&NoSignals), Event::Changed));
        assert_eq!(files.read().expect("it is read").lowered.snapshot.policies.len(), 2);
        assert!(matches!(files.next(&NoSignals), Event::Nothing));
    }

    #[test]
    fn the_last_good_version_of_a_broken_file_counts() {
        let folder = Folder::new("broken");
        folder.write(POLICY);
        let mut files = Files::new(std::slice::from_ref(&folder.0), FileSettings::default());
        files.read().expect("it is read");
        folder.write("{");
        let read = files.read().expect("it is read");
        assert_eq!((read.lowered.snapshot.policies.len(), read.kept.len()), (1, 1));
        assert!(read.findings.iter().any(|finding| finding.severity == Severity::Error));
    }

    #[test]
    fn unknown_pods_are_closed_in_the_blocks_of_the_node_and_of_the_settings() {
        let folder = Folder::new("blocks");
        let node = |name: &str, block: &str| {
            format!("{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}, spec: {{podCIDRs: [{block}]}}}}")
        };
        folder.write(&format!("{}\n---\n{}", node("n1", "10.244.1.0/24"), node("n2", "10.244.2.0/24")));
        let blocks = |settings: FileSettings, node: Option<&str>| {
            let mut files = Files::new(std::slice::from_ref(&folder.0), settings);
            files.read().expect("it is read");
            files.pod_blocks(node).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(blocks(FileSettings::default(), Some("n1")), ["10.244.1.0/24"]);
        assert_eq!(blocks(FileSettings::default(), None), [""; 0]);
        let pod_networks = vec!["10.9.0.0/16".parse().expect("a block")];
        let mut settings =
            FileSettings { cluster: Settings { pod_networks, ..Settings::default() }, ..Default::default() };
        assert_eq!(blocks(settings.clone(), Some("n2")), ["10.244.2.0/24", "10.9.0.0/16"]);
        assert_eq!(blocks(settings.clone(), None), ["10.9.0.0/16"]);
        settings.opens_unknown = true;
        assert_eq!(blocks(settings, Some("n2")), [""; 0]);
    }
}
