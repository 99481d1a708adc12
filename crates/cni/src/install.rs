//! Puts the plugin where the runtime finds it, and takes it away again.

use crate::chain::{self, ChainError, FILES};
use crate::sandboxes::FILE as SANDBOXES;
use crate::{NAME, RECORDS};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The runtime's folders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Folders {
    /// Where it finds plugins.
    pub plugins: PathBuf,
    /// Where it finds configurations.
    pub configurations: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("cannot list {}", .folder.display())]
    List {
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot read {}", .path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write {}", .path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot remove {}", .path.display())]
    Remove {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot chain {}", .path.display())]
    Chain {
        path: PathBuf,
        #[source]
        source: ChainError,
    },
}

/// What the runtime's configuration is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Chained {
    /// There is none yet.
    Nothing,
    /// Somebody else has put the plugin into this one.
    ByHand(PathBuf),
    /// Ours is in place.
    Kept { original: PathBuf, file: PathBuf },
    /// Ours was written.
    Written { original: PathBuf, file: PathBuf },
}

impl Folders {
    /// Where runtimes look unless they are told otherwise, below a root.
    pub fn usual(root: &Path) -> Self {
        Self { plugins: root.join("opt/cni/bin"), configurations: root.join("etc/cni/net.d") }
    }

    /// Copies a binary to where the runtime runs it.
    pub fn copy_plugin(&self, binary: &Path) -> Result<(), InstallError> {
        let path = self.plugins.join(NAME);
        replace(&path, 0o755, |file| io::copy(&mut File::open(binary)?, file).map(drop))
            .map_err(|source| InstallError::Write { path, source })
    }

    /// Whether a plugin of this length is there: somebody may have emptied the folder.
    pub fn has_plugin(&self, length: u64) -> bool {
        fs::metadata(self.plugins.join(NAME)).is_ok_and(|found| found.len() == length)
    }

    /// Writes the first configuration with this plugin appended, under a name that comes before it.
    pub fn chain(&self, plugin: &Value) -> Result<Chained, InstallError> {
        let Some(original) = self.original()? else {
            // A network that was taken away must not live on in a copy.
            self.remove_except(None)?;
            return Ok(Chained::Nothing);
        };
        let path = self.configurations.join(&original);
        let text = fs::read_to_string(&path).map_err(|source| InstallError::Read { path: path.clone(), source })?;
        let failed = |source| InstallError::Chain { path: path.clone(), source };
        let chained = match chain::chained(&text, plugin) {
            Err(ChainError::Chained) => {
                self.remove_except(None)?;
                return Ok(Chained::ByHand(path));
            }
            chained => chained.map_err(failed)?,
        };
        let name = chain::file_before(&original).map_err(failed)?;
        let file = self.configurations.join(name);
        let is_kept = fs::read_to_string(&file).is_ok_and(|known| known == chained);
        if !is_kept {
            // By a rename: runtimes read what appears at once, and a file that grows would be read too early.
            replace(&file, 0o600, |new| new.write_all(chained.as_bytes()))
                .map_err(|source| InstallError::Write { path: file.clone(), source })?;
        }
        self.remove_except(Some(name))?;
        Ok(match is_kept {
            true => Chained::Kept { original: path, file },
            false => Chained::Written { original: path, file },
        })
    }

    /// The configuration that the runtime uses: the first by name.
    pub fn used(&self) -> Result<Option<PathBuf>, InstallError> {
        let names =
            self.names()?.into_iter().find(|name| chain::is_configuration(name) || FILES.contains(&name.as_str()));
        Ok(names.map(|name| self.configurations.join(name)))
    }

    /// Takes configuration and plugin away. Returns what was removed. The runtime then uses the configuration that ours
    /// was made from.
    pub fn remove(&self) -> Result<Vec<PathBuf>, InstallError> {
        let mut removed = self.remove_except(None)?;
        removed.extend(remove(&self.plugins.join(NAME))?);
        Ok(removed)
    }

    fn names(&self) -> Result<Vec<String>, InstallError> {
        let failed = |source| InstallError::List { folder: self.configurations.clone(), source };
        let entries = match fs::read_dir(&self.configurations) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            if !entry.path().is_dir() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// The first configuration that is not ours.
    fn original(&self) -> Result<Option<String>, InstallError> {
        Ok(self.names()?.into_iter().find(|name| chain::is_configuration(name)))
    }

    fn remove_except(&self, kept: Option<&str>) -> Result<Vec<PathBuf>, InstallError> {
        let mut removed = Vec::new();
        for name in FILES.into_iter().filter(|name| Some(*name) != kept) {
            removed.extend(remove(&self.configurations.join(name))?);
        }
        Ok(removed)
    }
}

/// Removes the records of attachments, below a root.
pub fn remove_records(root: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let path = root.join(RECORDS.trim_start_matches('/'));
    let mut removed = Vec::from_iter(remove(&path.with_file_name(SANDBOXES))?);
    match fs::remove_dir_all(&path) {
        Ok(()) => removed.push(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(InstallError::Remove { path, source }),
    }
    Ok(removed)
}

fn remove(path: &Path) -> Result<Option<PathBuf>, InstallError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(Some(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(InstallError::Remove { path: path.to_owned(), source }),
    }
}

/// Replaces a file in one step.
fn replace(path: &Path, mode: u32, fill: impl Fn(&mut File) -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // No name that runtimes read.
    let new = folder.join(format!(".{name}.new"));
    let write = || {
        fs::remove_file(&new).ok();
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        fill(&mut file)?;
        file.sync_all()?;
        drop(file);
        fs::rename(&new, path)?;
        File::open(folder)?.sync_all()
    };
    write().inspect_err(|_| _ = fs::remove_file(&new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Node(PathBuf, Folders);

    impl Node {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("namewall-install-{name}-{}", std::process::id()));
            let folders = Folders::usual(&root);
            fs::create_dir_all(&folders.plugins)
                .and_then(|()| fs::create_dir_all(&folders.configurations))
                .expect("folders");
            Self(root, folders)
        }

        fn write(&self, name: &str, kind: &str) {
            let text = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": kind}]}).to_string();
            fs::write(self.1.configurations.join(name), text).expect("a file");
        }

        fn chain(&self) -> Result<Chained, InstallError> {
            self.1.chain(&json!({"type": NAME}))
        }

        /// The plugins of what the runtime uses.
        fn used(&self) -> String {
            let path = self.1.used().expect("it is listed").expect("there is one");
            let text = fs::read_to_string(path).expect("it is read");
            let list: Value = serde_json::from_str(&text).expect("it is JSON");
            let types = list["plugins"].as_array().expect("a list").iter().filter_map(|one| one["type"].as_str());
            types.collect::<Vec<_>>().join(" ")
        }
    }

    impl Drop for Node {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_first_configuration_is_chained_followed_and_restored() {
        let node = Node::new("whole");
        assert_eq!(node.chain().expect("it looks"), Chained::Nothing);
        node.write("10-pods.conflist", "bridge");
        node.write("20-other.conflist", "ptp");
        assert!(
            matches!(node.chain(), Ok(Chained::Written { original, .. }) if original.ends_with("10-pods.conflist"))
        );
        assert_eq!(node.used(), "bridge namewall");
        assert!(matches!(node.chain(), Ok(Chained::Kept { .. })));
        node.write("10-pods.conflist", "calico");
        assert!(matches!(node.chain(), Ok(Chained::Written { .. })));
        assert_eq!(node.used(), "calico namewall");
        // One comes that would be before ours.
        node.write("00-first.conflist", "cilium");
        node.chain().expect("it is chained");
        assert_eq!(node.used(), "cilium namewall");
        fs::remove_file(node.1.configurations.join("00-first.conflist")).expect("it is removed");
        node.chain().expect("it is chained");
        assert_eq!(node.used(), "calico namewall");
        let before: Vec<String> = node.1.names().expect("they are listed");
        assert_eq!(before, ["00-namewall.conflist", "10-pods.conflist", "20-other.conflist"]);

        let own = Path::new("/proc/self/exe");
        let length = fs::metadata(own).expect("it is there").len();
        assert!(!node.1.has_plugin(length));
        node.1.copy_plugin(own).expect("it is copied");
        assert!(node.1.has_plugin(length));
        assert_eq!(node.1.remove().expect("it is removed").len(), 2);
        assert_eq!(node.used(), "calico");
        assert!(!node.1.plugins.join(NAME).exists());
        assert!(node.1.remove().expect("it is gone").is_empty());
    }

    #[test]
    fn a_network_that_goes_does_not_live_on_in_a_copy() {
        let node = Node::new("gone");
        node.write("10-pods.conflist", "bridge");
        node.chain().expect("it is chained");
        fs::remove_file(node.1.configurations.join("10-pods.conflist")).expect("it is removed");
        assert_eq!(node.chain().expect("it looks"), Chained::Nothing);
        assert_eq!(node.1.used().expect("it is listed"), None);
    }

    #[test]
    fn what_cannot_be_chained_is_an_error_and_the_last_good_copy_stays() {
        let node = Node::new("broken");
        node.write("10-pods.conflist", "bridge");
        node.chain().expect("it is chained");
        fs::write(node.1.configurations.join("10-pods.conflist"), "{").expect("a file");
        let error = node.chain().expect_err("it is no JSON");
        assert!(matches!(error, InstallError::Chain { source: ChainError::NotAnObject, .. }), "{error}");
        assert_eq!(node.used(), "bridge namewall");
    }

    #[test]
    fn who_has_chained_it_by_hand_keeps_it() {
        let node = Node::new("hand");
        let text = r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "bridge"}, {"type": "namewall"}]}"#;
        fs::write(node.1.configurations.join("10-pods.conflist"), text).expect("a file");
        assert!(matches!(node.chain(), Ok(Chained::ByHand(_))));
        assert_eq!(node.1.names().expect("they are listed"), ["10-pods.conflist"]);
    }
}
