//! Manifests in files, which may change at any moment and be wrong for a while.
//!
//! A file that cannot be read, is empty or was cut off keeps its last good
//! version, across restarts too, until the file itself is removed (S10.3).

use super::look::{Seen, look};
use super::storage::{Storage, StorageSettings, StorageStatus};
use super::{Event, Source, TICK};
use crate::signals::Signals;
use namewall_cluster::{self as cluster, Document, Key, LastGood, LoadError, Manifests, PodAddresses, Read, Settings};
use namewall_cluster::{StoredEntry, Survey, is_blank};
use namewall_policy::addr::Cidr;
use namewall_policy::model::WorkloadId;
use namewall_policy::{Finding, Severity, Snapshot, Source as Place};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub struct FileSettings {
    pub cluster: Settings,
    /// Whether pods may talk that no file tells of. If not, who has an address of the node's blocks or of the pod
    /// networks in the settings, and is not known, is closed.
    pub opens_unknown: bool,
    /// Where good versions outlive the process. None: nowhere.
    pub storage: Option<StorageSettings>,
}

/// Files and folders, and the last good version of each file.
#[derive(Debug)]
pub struct Files {
    paths: Vec<PathBuf>,
    settings: FileSettings,
    /// The blocks of each Node.
    pod_blocks: BTreeMap<Arc<str>, Vec<Cidr>>,
    last_good: LastGood<Arc<Document>>,
    /// The texts of the last good versions.
    good_texts: BTreeMap<Arc<str>, Arc<str>>,
    storage: Storage,
    is_loaded: bool,
    gap: Option<String>,
    /// The files as they were when they were last read.
    seen: BTreeSet<Seen>,
    /// Addresses that this machine's runtime has given pods, and the pods that have them.
    given: Vec<PodAddresses>,
    attached: BTreeSet<Key>,
}

impl Files {
    pub fn new(paths: &[PathBuf], settings: FileSettings) -> Self {
        let storage = settings.storage.as_ref().map(|storage| Storage::new(storage, source_of(paths)));
        Self {
            paths: paths.to_vec(),
            settings,
            pod_blocks: BTreeMap::new(),
            last_good: LastGood::default(),
            good_texts: BTreeMap::new(),
            storage: storage.unwrap_or_default(),
            is_loaded: false,
            gap: None,
            seen: BTreeSet::new(),
            given: Vec::new(),
            attached: BTreeSet::new(),
        }
    }

    fn look(&self) -> BTreeSet<Seen> {
        self.paths.iter().flat_map(|path| look(path)).collect()
    }

    /// Takes the good versions that an earlier process has stored, once.
    fn adopt(&mut self) {
        if std::mem::replace(&mut self.is_loaded, true) {
            return;
        }
        for StoredEntry { name, text, .. } in self.storage.load().into_iter().flat_map(|stored| stored.entries) {
            let (mut documents, _) = Document::read_all(&name, &text);
            documents.iter_mut().for_each(|document| _ = cluster::give_addresses(document, &self.given));
            self.last_good.adopt(documents.into_iter().map(Arc::new));
            self.good_texts.insert(name, text);
        }
    }

    /// The files with a good version at or below a path.
    fn known_below<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Arc<str>> {
        self.good_texts.keys().filter(move |file| Path::new(&***file).starts_with(path))
    }

    /// Findings about what cannot be read: one for each file that keeps its last good version, or one for the path.
    /// An error for a path that the user names and of which nothing is known.
    fn about_unread(&self, unread: &[LoadError], all: &mut Vec<Finding>) -> Result<(), usize> {
        for (at, error) in unread.iter().enumerate() {
            let (path, finding) = (error.path(), error.finding());
            let mut known = self.known_below(&path).peekable();
            let is_named = self.paths.iter().any(|named| named.display().to_string() == *path);
            match known.peek() {
                None if is_named => return Err(at),
                None => all.push(finding),
                Some(_) => all.extend(known.map(|file| finding.clone().from_source(Some(start_of(file))))),
            }
        }
        Ok(())
    }

    /// Findings about files that have lost objects in a way that no editor writes.
    fn about_cut(&self, texts: &[(Arc<str>, Arc<str>)], documents: &[Document]) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (file, text) in texts {
            let Some(good) = self.last_good.of(file).filter(|good| !good.is_empty()) else { continue };
            let known = self.good_texts.get(file);
            let is_cut = known.is_some_and(|known| is_cut_within_a_line(known, text));
            let has_all = || has_all(good, documents.iter().filter(|document| document.file == *file));
            let stays = "Its objects stay in force; remove the file to delete them, or mend it";
            let why = match () {
                () if is_blank(text) => {
                    let message = format!("there is no object in it any more. {stays}");
                    findings.push(Finding::error("empty-file", "", message).from_source(Some(start_of(file))));
                    continue;
                }
                () if is_cut => "it ends in the middle of a line of its last good version",
                () if ends_with_separator(text) && !has_all() => {
                    "it ends with `---`, and objects behind it are missing"
                }
                () => continue,
            };
            let message = format!("{why}. {stays}");
            findings.push(Finding::error("truncated-file", "", message).from_source(Some(start_of(file))));
        }
        findings
    }

    /// Findings about files that are gone while a new file cannot be read: it may have their objects now, as after a
    /// rename. An error must not make the set of enforced policies smaller.
    fn about_gone(&self, texts: &[(Arc<str>, Arc<str>)], findings: &[Finding]) -> Vec<Finding> {
        let errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
        let mut files = errors.filter_map(|finding| finding.source.as_ref().map(|place| &place.file));
        let is_there = |file: &Arc<str>| texts.iter().any(|(there, _)| there == file);
        let is_new = |file: &&Arc<str>| is_there(file) && self.last_good.of(file).is_none();
        let Some(new) = files.find(is_new) else { return Vec::new() };
        let gone = self.good_texts.keys().filter(|file| !is_there(file));
        let message = format!(
            "it is gone, and {new}, which is new, cannot be read: its objects may be there now. They stay in force until \
             {new} can be read"
        );
        gone.map(|file| Finding::error("gone-file", "", message.clone()).from_source(Some(start_of(file)))).collect()
    }

    /// Which files may have had objects that nobody knows any more.
    fn find_gap(&self, texts: &[(Arc<str>, Arc<str>)], findings: &[Finding]) -> Option<String> {
        if self.storage.has_state() {
            return None;
        }
        let errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
        let errors =
            errors.filter_map(|finding| Some((finding.source.as_ref()?.file.clone(), finding.message.clone())));
        // A file without a byte was written by nobody on purpose.
        let empty = texts.iter().filter(|(_, text)| text.trim().is_empty());
        let empty = empty.map(|(file, _)| (file.clone(), "it is empty".to_owned()));
        let (file, why) = errors.chain(empty).find(|(file, _)| self.last_good.of(file).is_none())?;
        Some(format!("{file} cannot be read ({why}), and no version of it is stored"))
    }
}

/// Which source this is, for the stored state.
fn source_of(paths: &[PathBuf]) -> String {
    let name = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string();
    let names: BTreeSet<String> = paths.iter().map(name).collect();
    format!("files {}", names.into_iter().collect::<Vec<_>>().join(" "))
}

fn start_of(file: &Arc<str>) -> Place {
    Place { file: file.clone(), line: 1, column: 1 }
}

/// True if a text is the beginning of another, cut off before the end of a line.
fn is_cut_within_a_line(before: &str, now: &str) -> bool {
    now.len() < before.len()
        && !now.ends_with('\n')
        && before.starts_with(now)
        && !before[now.len()..].starts_with('\n')
}

/// True if nothing but comments stands behind the last separator.
fn ends_with_separator(text: &str) -> bool {
    let mut lines = text.lines().rev().map(str::trim_end);
    lines.find(|line| !line.is_empty() && !line.trim_start().starts_with('#')) == Some("---")
}

/// True if every object of the good version is among the documents.
fn has_all<'d>(good: &[Arc<Document>], now: impl Iterator<Item = &'d Document>) -> bool {
    let key = |document: &Document| {
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        (text(document.kind()), text(document.namespace()), text(document.name()))
    };
    let now: BTreeSet<_> = now.map(key).collect();
    good.iter().all(|document| now.contains(&key(document)))
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
        let Survey { manifests: Manifests { mut documents, mut findings }, texts, mut unread } =
            cluster::survey(&self.paths);
        self.adopt();
        if let Err(at) = self.about_unread(&unread, &mut findings) {
            return Err(unread.swap_remove(at));
        }
        self.seen = seen;
        findings.extend(self.about_cut(&texts, &documents));
        let gone = self.about_gone(&texts, &findings);
        findings.extend(gone);
        let given = |document| cluster::give_addresses(document, &self.given);
        self.attached = documents.iter_mut().filter_map(given).collect();
        let documents = documents.into_iter().map(Arc::new);
        let mut read = self.last_good.lower(documents, findings, &self.settings.cluster);
        self.gap = self.find_gap(&texts, &read.findings);
        let mut known = std::mem::take(&mut self.good_texts);
        let kept = read.kept.iter().filter_map(|file| known.remove_entry(file)).collect::<Vec<_>>();
        let good = texts.into_iter().filter(|(file, _)| self.last_good.of(file).is_some());
        self.good_texts = good.chain(kept).collect();
        self.pod_blocks = std::mem::take(&mut read.lowered.pod_blocks);
        Ok(read)
    }

    fn gap(&self) -> Option<String> {
        self.gap.clone()
    }

    fn keep(&mut self) {
        let entry = |(name, text): (&Arc<str>, &Arc<str>)| StoredEntry {
            name: name.clone(),
            text: text.clone(),
            is_good: true,
        };
        self.storage.save(self.good_texts.iter().map(entry).collect());
    }

    fn storage(&self) -> StorageStatus {
        self.storage.status()
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

    fn about_pod_network(&self, node: Option<&str>, snapshot: &Snapshot) -> Option<Finding> {
        if self.settings.opens_unknown {
            return None;
        }
        let blocks = self.pod_blocks(node);
        let here = node.and_then(|node| snapshot.node_named(node));
        let is_here = |pod: &WorkloadId| {
            let pod = snapshot.workload(*pod);
            !pod.host_network && (pod.node.is_none() || here.is_none() || pod.node == here)
        };
        let is_inside = |address: &IpAddr| blocks.iter().any(|block| block.contains(*address));
        let (pod, address) = snapshot.workload_ids().filter(is_here).find_map(|pod| {
            let address = snapshot.workload(pod).addresses.iter().copied().find(|address| !is_inside(address))?;
            Some((pod, address))
        })?;
        let message = format!(
            "{address} of {} is in no pod network that is known. So an address there that no manifest gives to a pod \
             is open, like one of a container that has started again. Name the network with --pod-network \
             (`podNetwork` in a file of settings), or in `spec.podCIDRs` of the Node",
            snapshot.workload_name(pod)
        );
        let object = node.map(|node| format!("Node {node}")).unwrap_or_default();
        Some(Finding::warning("no-pod-network", object, message))
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
    fn s10_3_a_file_that_is_renamed_and_broken_at_once_keeps_its_objects() {
        let folder = Folder::new("renamed");
        folder.write(POLICY);
        std::fs::write(folder.0.join("c.yaml"), POLICY.replace("closed", "third")).expect("a file");
        let mut files = Files::new(std::slice::from_ref(&folder.0), FileSettings::default());
        files.read().expect("it is read");
        let (old, new) = (folder.0.join("a.yaml"), folder.0.join("b.yaml"));
        std::fs::remove_file(old).expect("it is there");
        for _ in 0..2 {
            std::fs::write(&new, format!("x: [\n---\n{POLICY}")).expect("a file");
            let read = files.read().expect("it is read");
            assert_eq!((read.lowered.snapshot.policies.len(), read.kept.len()), (2, 1));
        }
        std::fs::write(&new, POLICY.replace("closed", "other")).expect("a file");
        let read = files.read().expect("it is read");
        assert_eq!((read.lowered.snapshot.policies.len(), read.kept.len()), (2, 0), "it can be read now");
        std::fs::remove_file(new).expect("it is there");
        assert_eq!(files.read().expect("it is read").lowered.snapshot.policies.len(), 1, "a file that is removed");
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

    #[test]
    fn s1_9_pods_whose_network_is_not_known_are_a_finding_that_names_the_setting() {
        let folder = Folder::new("no-network");
        let pod = |name: &str, more: &str, address: &str| {
            format!(
                "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: shop}}, \
                 spec: {{nodeName: n1{more}}}, status: {{podIPs: [{{ip: '{address}'}}]}}}}\n"
            )
        };
        let node = "{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {}}\n";
        let web = pod("web", "", "10.244.1.10");
        let told = |text: &str, settings: &FileSettings, node: Option<&str>| {
            folder.write(text);
            let mut files = Files::new(std::slice::from_ref(&folder.0), settings.clone());
            let read = files.read().expect("it is read");
            files.about_pod_network(node, &read.lowered.snapshot).map(|finding| finding.to_string())
        };
        let unset = FileSettings::default();
        for this in [Some("n1"), None] {
            let text = told(&format!("{node}{web}"), &unset, this).expect("a finding");
            assert!(text.starts_with("warning[no-pod-network]"), "{text}");
            for part in ["10.244.1.10 of shop/web", "--pod-network", "podNetwork", "spec.podCIDRs"] {
                assert!(text.contains(part), "`{part}` is not in {text}");
            }
        }
        // A network of the one family says nothing about the other.
        let with = |block: &str| {
            let pod_networks = vec![block.parse().expect("a block")];
            FileSettings { cluster: Settings { pod_networks, ..Settings::default() }, ..Default::default() }
        };
        let both = format!("{node}{web}{}", pod("six", "", "fd00:244::6"));
        assert!(told(&both, &with("10.244.0.0/16"), Some("n1")).is_some_and(|text| text.contains("fd00:244::6")));
        // Nothing is missing where the network is known, no pod needs it, or all is open by a setting.
        let known = node.replace("spec: {}", "spec: {podCIDRs: [10.244.1.0/24]}");
        let none: [(String, FileSettings, &str); 5] = [
            (format!("{node}{web}"), with("10.244.0.0/16"), "n1"),
            (format!("{known}{web}"), unset.clone(), "n1"),
            (format!("{node}{}", pod("own", ", hostNetwork: true", "192.0.2.1")), unset.clone(), "n1"),
            (format!("{node}---\n{}{web}", node.replace("n1", "n2")), unset.clone(), "n2"),
            (format!("{node}{web}"), FileSettings { opens_unknown: true, ..Default::default() }, "n1"),
        ];
        for (text, settings, this) in none {
            assert_eq!(told(&text, &settings, Some(this)), None, "{text}");
        }
    }
}
