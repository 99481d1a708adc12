//! One file for each attachment, in a folder that outlives the agent and not the
//! node. An agent that starts reads them all.

use crate::attachment::{Attachment, AttachmentId};
use crate::environment::{is_container, is_interface};
use namewall_runtime::files::open_regular;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const EXTENSION: &str = ".json";
/// The longest record, in bytes. One that is longer is cut off, and cannot be read.
const LONGEST: u64 = 1 << 20;

/// The folder of records.
#[derive(Clone, Debug)]
pub struct Records {
    folder: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("cannot make the folder of records {}", .folder.display())]
    Folder {
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write the record {}", .path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot remove the record {}", .path.display())]
    Remove {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot list the records in {}", .folder.display())]
    List {
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A record that says nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cannot read the record {}: {why}; its pod is known when the API server has its addresses", .path.display())]
pub struct Unreadable {
    pub path: PathBuf,
    pub why: String,
}

impl Records {
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a record, in one step: a reader sees either the old record or the new one.
    pub fn write(&self, attachment: &Attachment) -> Result<(), RecordError> {
        let folder = |source| RecordError::Folder { folder: self.folder.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).map_err(folder)?;
        let path = self.path(&attachment.id);
        let new = self.folder.join(format!(".{}-{}", std::process::id(), file_name(&attachment.id)));
        let written = write_new(&new, attachment).and_then(|()| fs::rename(&new, &path));
        written.map_err(|source| {
            let _ = fs::remove_file(&new);
            RecordError::Write { path, source }
        })
    }

    /// Removes a record. False if there is none.
    pub fn remove(&self, id: &AttachmentId) -> Result<bool, RecordError> {
        let path = self.path(id);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(RecordError::Remove { path, source }),
        }
    }

    /// A record. None if there is none.
    pub fn get(&self, id: &AttachmentId) -> Option<Result<Attachment, Unreadable>> {
        let path = self.path(id);
        path.exists().then(|| read(&path, id))
    }

    /// All records, the oldest first, and those that cannot be read.
    pub fn load(&self) -> Result<(Vec<Attachment>, Vec<Unreadable>), RecordError> {
        let (mut attachments, mut unreadable) = (Vec::new(), Vec::new());
        for (path, id) in self.files()? {
            let Some(id) = id else {
                unreadable.push(Unreadable { path, why: "its name is no record's".to_owned() });
                continue;
            };
            match read(&path, &id) {
                Ok(attachment) => attachments.push((written_at(&path), attachment)),
                Err(error) => unreadable.push(error),
            }
        }
        attachments.sort_by(|(a, one), (b, other)| (a, &one.id).cmp(&(b, &other.id)));
        Ok((attachments.into_iter().map(|(_, attachment)| attachment).collect(), unreadable))
    }

    fn path(&self, id: &AttachmentId) -> PathBuf {
        self.folder.join(file_name(id))
    }

    /// Files, and the attachment that each is for.
    fn files(&self) -> Result<Vec<(PathBuf, Option<AttachmentId>)>, RecordError> {
        let failed = |source| RecordError::List { folder: self.folder.clone(), source };
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // What is being written.
            if !name.starts_with('.') {
                files.push((entry.path(), id_of(&name)));
            }
        }
        files.sort();
        Ok(files)
    }
}

/// Identifiers of containers have no `@`.
fn file_name(id: &AttachmentId) -> String {
    format!("{}@{}{EXTENSION}", id.container, id.interface)
}

fn id_of(name: &str) -> Option<AttachmentId> {
    let (container, interface) = name.strip_suffix(EXTENSION)?.split_once('@')?;
    let is_good = is_container(container) && is_interface(interface);
    is_good.then(|| AttachmentId { container: container.to_owned(), interface: interface.to_owned() })
}

fn write_new(path: &Path, attachment: &Attachment) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    serde_json::to_writer(&mut file, attachment)?;
    file.write_all(b"\n")?;
    file.sync_all()
}

fn read(path: &Path, id: &AttachmentId) -> Result<Attachment, Unreadable> {
    let unreadable = |why: String| Unreadable { path: path.to_owned(), why };
    let file = open_regular(path).map_err(|error| unreadable(error.to_string()))?;
    let attachment: Attachment = serde_json::from_reader(io::BufReader::new(file.take(LONGEST)))
        .map_err(|error| unreadable(error.to_string()))?;
    if attachment.id == *id { Ok(attachment) } else { Err(unreadable("it is of another attachment".to_owned())) }
}

fn written_at(path: &Path) -> SystemTime {
    fs::metadata(path).and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::tests::attachment;

    struct Folder(Records);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("namewall-records-{name}-{}", std::process::id()));
            Self(Records::new(path))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.0.folder());
        }
    }

    #[test]
    fn a_record_is_written_read_and_removed() {
        let folder = Folder::new("whole");
        let (records, one) = (&folder.0, attachment());
        assert!(records.load().expect("a folder that is not there has no records").0.is_empty());
        records.write(&one).expect("it is written");
        let mut again = one.clone();
        again.addresses = vec![[10, 244, 1, 6].into()];
        records.write(&again).expect("it is replaced");
        assert_eq!(records.load().expect("they are listed"), (vec![again.clone()], Vec::new()));
        assert_eq!(records.get(&one.id), Some(Ok(again)));
        assert!(records.remove(&one.id).expect("it is removed"));
        assert!(!records.remove(&one.id).expect("it is gone"));
        assert_eq!(records.get(&one.id), None);
    }

    #[test]
    fn s10_1_a_record_that_is_no_regular_file_is_refused_and_nobody_waits_for_it() {
        let folder = Folder::new("pipe");
        let (records, one) = (folder.0.clone(), attachment());
        records.write(&one).expect("it is written");
        let at = |name: &str| records.folder().join(name);
        nix::unistd::mkfifo(&at("b@eth0.json"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        std::os::unix::fs::symlink("/dev/zero", at("c@eth0.json")).expect("a link");
        let (heard, hears) = std::sync::mpsc::channel();
        std::thread::spawn(move || heard.send(records.load().expect("they are listed")));
        let (loaded, unreadable) = hears.recv_timeout(std::time::Duration::from_secs(60)).expect("nobody waits");
        assert_eq!(loaded, [one]);
        let said: Vec<String> = unreadable.iter().map(ToString::to_string).collect();
        assert!(said[0].contains("it is a pipe") && said[1].contains("it is a device"), "{said:?}");
    }

    #[test]
    fn what_cannot_be_read_is_named_and_the_rest_is_loaded() {
        let folder = Folder::new("broken");
        let (records, one) = (&folder.0, attachment());
        records.write(&one).expect("it is written");
        for (name, text) in [("b@eth0.json", "{"), ("note.txt", ""), (".1-c@eth0.json", "{")] {
            fs::write(records.folder().join(name), text).expect("a file");
        }
        let moved = records.folder().join("d@eth0.json");
        fs::copy(records.path(&one.id), moved).expect("a copy");
        let (loaded, unreadable) = records.load().expect("they are listed");
        assert_eq!(loaded, [one]);
        let said: Vec<String> = unreadable.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].contains("b@eth0.json: EOF") && said[1].contains("of another"), "{said:?}");
        assert!(said[2].contains("note.txt: its name is no record's"), "{said:?}");
    }
}
