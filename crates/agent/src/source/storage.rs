//! Where a source keeps its last good objects between two processes (S10.3): one
//! file, written as a whole under another name and renamed, so that a reader
//! finds the old state or the new one.
//!
//! A thread writes the file. The agent's loop waits for that thread for a short
//! time only: a disk that hangs must not keep policies from being enforced. The
//! thread tries again what it could not write, so that the state is stored as
//! soon as the disk has room.

use crate::error::with_causes;
use namewall_cluster::{MAX_STORED, Stored, StoredEntry, StoredError, digest};
use nix::fcntl::OFlag;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How long a change waits to be stored before it is enforced.
const PATIENCE: Duration = Duration::from_millis(250);
/// A write that failed is tried again after this time, if no newer state was given.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// How long the end of the process waits for what is being stored.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// The folders below the state directory. They are this user's alone; the state directory itself may be shared.
const FOLDER: &str = "last-good";
const LEASES_FOLDER: &str = "leases";

/// Which state is meant.
#[derive(Clone, Debug)]
pub struct StorageSettings {
    /// The state directory.
    pub folder: PathBuf,
    /// The kernel's table that the objects are enforced in: two agents of one machine have two.
    pub table: String,
}

impl StorageSettings {
    /// The file with the last good objects.
    pub fn file(&self) -> PathBuf {
        self.folder.join(FOLDER).join(self.file_name())
    }

    /// The file with what is known of leases.
    pub fn leases_file(&self) -> PathBuf {
        self.folder.join(LEASES_FOLDER).join(self.file_name())
    }

    /// Everything that is stored for the table.
    pub fn files(&self) -> [PathBuf; 4] {
        [self.file(), set_aside(&self.file()), self.leases_file(), second_file(&self.leases_file())]
    }

    /// The file in a process' runtime folder that says which state directory it uses.
    pub fn note(&self, runtime: &Path) -> PathBuf {
        runtime.join(format!("state-of-{}", self.file_name()))
    }

    fn file_name(&self) -> String {
        // A table may be called anything, a file may not.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        match self.table.chars().all(is_plain) && (1..=64).contains(&self.table.len()) {
            true => self.table.clone(),
            false => digest(self.table.as_bytes()),
        }
    }
}

/// The file with what is known of changes inside pods' network namespaces, beside the file of leases.
pub(crate) fn second_file(leases: &Path) -> PathBuf {
    leases.with_extension("second")
}

/// What became of the state, for `status` and metrics.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct StorageStatus {
    /// None if nothing is stored.
    pub file: Option<PathBuf>,
    /// Whether there was a state of an earlier process.
    pub is_adopted: bool,
    /// Why the state of an earlier process could not be used.
    pub lost: Option<String>,
    /// Why the objects are not stored now.
    pub failure: Option<String>,
    /// Which objects are not stored, and what follows from that. The others are.
    pub left_out: Option<String>,
    /// Why what is enforced comes from the state alone.
    pub stands_in: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum StorageError {
    #[error("cannot make {}", .0.display())]
    Folder(PathBuf, #[source] io::Error),
    #[error("{} is no regular file; remove it, or set another --state-dir", .0.display())]
    NotAFile(PathBuf),
    #[error("{} is not this user's alone; remove it, or set another --state-dir", .0.display())]
    Foreign(PathBuf),
    #[error("cannot read {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("cannot use {}", .0.display())]
    Unusable(PathBuf, #[source] StoredError),
    #[error("{} is of another source ({found}); this is {own}", .path.display())]
    OtherSource { path: PathBuf, found: String, own: String },
    #[error("cannot write {}", .0.display())]
    Write(PathBuf, #[source] io::Error),
    #[error("cannot store the last good objects")]
    Encode(#[source] StoredError),
}

/// The state of one source. Without settings nothing is stored.
#[derive(Debug, Default)]
pub(crate) struct Storage {
    source: String,
    file: Option<PathBuf>,
    writer: Option<Writer>,
    status: StorageStatus,
    /// What was stored last, as far as this process knows.
    stored: Option<Vec<StoredEntry>>,
}

impl Storage {
    pub(crate) fn new(settings: &StorageSettings, source: String) -> Self {
        let file = settings.file();
        let status = StorageStatus { file: Some(file.clone()), ..StorageStatus::default() };
        Self { source, file: Some(file), writer: None, status, stored: None }
    }

    /// What an earlier process has stored of the same source. The state of another source is set aside, for when that
    /// one is enforced again; of several others, that of the last one.
    pub(crate) fn load(&mut self) -> Option<Stored> {
        let file = self.file.as_ref()?;
        let mut found = read(file, &self.source);
        if matches!(found, Err(StorageError::OtherSource { .. })) {
            let aside = set_aside(file);
            let own = read(&aside, &self.source).ok().flatten();
            match exchange(file, &aside, own.is_some()) {
                Ok(()) if own.is_some() => found = Ok(own),
                Ok(()) => {}
                Err(error) => warn!(%error, "cannot set {} aside", file.display()),
            }
        }
        match found {
            Ok(found) => {
                self.status.is_adopted = found.is_some();
                self.stored = found.as_ref().map(|found| found.entries.clone());
                found
            }
            Err(error) => {
                let text = with_causes(&error);
                warn!("{text}; what an earlier process knew to be good is lost");
                self.status.lost = Some(text);
                None
            }
        }
    }

    /// Stores these objects in place of those before.
    pub(crate) fn save(&mut self, entries: Vec<StoredEntry>) {
        self.give(entries, PATIENCE);
    }

    /// The same, for objects that nothing waits for.
    pub(crate) fn save_later(&mut self, entries: Vec<StoredEntry>) {
        self.give(entries, Duration::ZERO);
    }

    fn give(&mut self, entries: Vec<StoredEntry>, patience: Duration) {
        let Some(file) = &self.file else { return };
        let has_failed = self.writer.as_ref().is_some_and(|writer| writer.failure().is_some());
        if self.stored.as_ref() == Some(&entries) && !has_failed {
            return;
        }
        self.stored = Some(entries.clone());
        // The state that was lost is replaced.
        self.status.lost = None;
        let writer = self.writer.get_or_insert_with(|| Writer::start(file.clone()));
        writer.give(Stored { source: self.source.clone(), entries }, patience);
    }

    /// True if there is a state of this source: an earlier process has stored it, or this one has.
    pub(crate) fn has_state(&self) -> bool {
        self.stored.is_some()
    }

    pub(crate) fn status(&self) -> StorageStatus {
        let failure = self.writer.as_ref().and_then(Writer::failure);
        StorageStatus { failure, ..self.status.clone() }
    }
}

/// The bytes of a file that only this user can have written, at most one more than `most`. None if there is no file.
pub(crate) fn read_file(path: &Path, most: usize) -> Result<Option<Vec<u8>>, StorageError> {
    let unread = |error| StorageError::Read(path.to_owned(), error);
    let mut bytes = Vec::new();
    // To open a pipe would wait for a writer.
    match OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unread(error)),
        Ok(file) => {
            let found = file.metadata().map_err(unread)?;
            if !found.is_file() {
                return Err(StorageError::NotAFile(path.to_owned()));
            }
            if !is_own(&found) {
                return Err(StorageError::Foreign(path.to_owned()));
            }
            file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(unread)?;
        }
    }
    Ok(Some(bytes))
}

/// The state in a file. None if there is no file.
fn read(path: &Path, source: &str) -> Result<Option<Stored>, StorageError> {
    let Some(bytes) = read_file(path, MAX_STORED)? else { return Ok(None) };
    let stored = Stored::decode(&bytes).map_err(|error| StorageError::Unusable(path.to_owned(), error))?;
    match stored.source == source {
        true => Ok(Some(stored)),
        false => {
            let (path, own) = (path.to_owned(), source.to_owned());
            Err(StorageError::OtherSource { path, found: stored.source, own })
        }
    }
}

/// Where the state of another source is.
fn set_aside(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".other");
    file.with_file_name(name)
}

/// Sets a state aside, and puts the one that was set aside in its place if it is wanted.
fn exchange(file: &Path, aside: &Path, is_wanted: bool) -> io::Result<()> {
    if !is_wanted {
        return fs::rename(file, aside);
    }
    let third = file.with_extension("third");
    fs::rename(aside, &third)?;
    fs::rename(file, aside)?;
    fs::rename(third, file)
}

/// True if this user owns the file and no other user may write it.
fn is_own(found: &fs::Metadata) -> bool {
    found.uid() == nix::unistd::geteuid().as_raw() && found.mode() & 0o022 == 0
}

fn write(path: &Path, stored: &Stored) -> Result<(), StorageError> {
    write_file(path, &stored.encode().map_err(StorageError::Encode)?, WriteHow::Synced)
}

/// What a file that was written outlives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteHow {
    /// The process, and the machine: it is on the disk before it has its name.
    Synced,
    /// The process.
    Unsynced,
}

/// Writes a file under another name, and renames it when it is whole.
pub(crate) fn write_file(path: &Path, bytes: &[u8], how: WriteHow) -> Result<(), StorageError> {
    let folder = path.parent().unwrap_or(path);
    let unmade = |error| StorageError::Folder(folder.to_owned(), error);
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unmade)?;
    let found = fs::symlink_metadata(folder).map_err(unmade)?;
    if !found.is_dir() || !is_own(&found) {
        return Err(StorageError::Foreign(folder.to_owned()));
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).map_err(unmade)?;
    // While one process takes over from another, both may write: without the lock one could rename the other's half.
    let held = File::open(folder).map_err(unmade)?;
    held.lock().map_err(unmade)?;
    let new = path.with_extension("new");
    let sync = |file: &File| if how == WriteHow::Synced { file.sync_all() } else { Ok(()) };
    let written = write_new(&new, bytes).and_then(|file| sync(&file)).and_then(|()| fs::rename(&new, path));
    written.and_then(|()| sync(&held)).map_err(|error| {
        // Half a state takes room that the next one needs.
        fs::remove_file(&new).ok();
        StorageError::Write(path.to_owned(), error)
    })
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<File> {
    // One that an earlier process has left may be somebody's link.
    fs::remove_file(path).ok();
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    Ok(file)
}

/// The thread that writes, and what it is given.
#[derive(Debug)]
struct Writer(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    slot: Mutex<Slot>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Slot {
    /// What is to be written next. Only the latest is.
    next: Option<Stored>,
    /// How many were given, and how many of them are done with.
    given: u64,
    done: u64,
    failure: Option<String>,
    is_over: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all that was given is done with, or the time is over.
    fn wait(&self, patience: Duration) {
        let (mut slot, deadline) = (self.lock(), Instant::now() + patience);
        while slot.done != slot.given {
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
                return;
            };
            slot = self.changed.wait_timeout(slot, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes what is given, until it is over.
    fn serve(&self, path: &Path) {
        let mut slot = self.lock();
        let mut unwritten: Option<Stored> = None;
        loop {
            let next = match slot.next.take() {
                Some(next) => next,
                None if slot.is_over => return,
                None => {
                    let (woken, is_time) = self.sleep(slot, unwritten.is_some());
                    slot = woken;
                    match unwritten.take_if(|_| is_time && slot.next.is_none()) {
                        Some(again) => again,
                        None => continue,
                    }
                }
            };
            let upto = slot.given;
            drop(slot);
            let failure = write(path, &next).err().map(|error| with_causes(&error));
            unwritten = failure.is_some().then_some(next);
            slot = self.lock();
            match (&failure, &slot.failure) {
                (Some(text), known) if known.as_ref() != Some(text) => {
                    warn!("{text}; policies are enforced, and a restart cannot fall back to them");
                }
                (None, Some(_)) => info!("the last good objects are stored again"),
                _ => {}
            }
            (slot.failure, slot.done) = (failure, upto);
            self.changed.notify_all();
        }
    }
}

impl Shared {
    /// Waits until something changes. True if the time to try a failed write again has come before that.
    fn sleep<'a>(&self, slot: MutexGuard<'a, Slot>, is_owing: bool) -> (MutexGuard<'a, Slot>, bool) {
        if !is_owing {
            return (self.changed.wait(slot).unwrap_or_else(PoisonError::into_inner), false);
        }
        let (slot, woken) = self.changed.wait_timeout(slot, RETRY_EVERY).unwrap_or_else(PoisonError::into_inner);
        (slot, woken.timed_out())
    }
}

impl Writer {
    fn start(path: PathBuf) -> Self {
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        let started = thread::Builder::new().name("storage".to_owned()).spawn(move || own.serve(&path));
        if let Err(error) = started {
            shared.lock().failure = Some(format!("cannot start the thread that stores the last good objects: {error}"));
        }
        Self(shared)
    }

    fn give(&self, stored: Stored, patience: Duration) {
        let mut slot = self.0.lock();
        slot.next = Some(stored);
        slot.given += 1;
        drop(slot);
        self.0.changed.notify_all();
        self.0.wait(patience);
    }

    fn failure(&self) -> Option<String> {
        self.0.lock().failure.clone()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.wait(LAST_PATIENCE);
        self.0.lock().is_over = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("namewall-storage-{name}-{}", std::process::id()));
            fs::remove_dir_all(&path).ok();
            fs::create_dir_all(&path).expect("a folder");
            Self(path)
        }

        fn storage(&self, source: &str) -> Storage {
            let settings = StorageSettings { folder: self.0.clone(), table: "namewall".to_owned() };
            Storage::new(&settings, source.to_owned())
        }

        fn file(&self) -> PathBuf {
            self.0.join(FOLDER).join("namewall")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    fn entries(text: &str) -> Vec<StoredEntry> {
        vec![StoredEntry { name: "a.yaml".into(), text: text.into(), is_good: true }]
    }

    /// Stores, and waits until it is done.
    fn store(folder: &Folder, text: &str) {
        let mut storage = folder.storage("files");
        storage.save(entries(text));
        drop(storage);
    }

    #[test]
    fn s10_3_what_is_saved_is_loaded_by_the_next_process_alone_for_its_source() {
        let folder = Folder::new("again");
        store(&folder, "one");
        let mut next = folder.storage("files");
        assert_eq!(next.load().map(|stored| stored.entries), Some(entries("one")));
        assert!(next.has_state() && next.status().is_adopted && next.status().lost.is_none());
        let mut other = folder.storage("files /elsewhere");
        assert_eq!(other.load(), None);
        assert!(other.status().lost.is_some_and(|text| text.contains("is of another source")), "{other:?}");
        assert!(!other.has_state());
    }

    #[test]
    fn s10_3_the_state_of_other_manifests_is_not_overwritten() {
        let folder = Folder::new("aside");
        let load = |source: &str| folder.storage(source).load().map(|stored| stored.entries);
        store(&folder, "one");
        let mut other = folder.storage("files /elsewhere");
        assert_eq!(other.load(), None);
        other.save(entries("two"));
        drop(other);
        for _ in 0..3 {
            assert_eq!(load("files"), Some(entries("one")), "the first manifests are enforced again");
            assert_eq!(load("files /elsewhere"), Some(entries("two")));
        }
        let mut back = folder.storage("files");
        assert!(back.load().is_some() && back.status().is_adopted && back.status().lost.is_none(), "{back:?}");
    }

    #[test]
    fn the_state_is_its_users_alone() {
        let folder = Folder::new("modes");
        store(&folder, "one");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o777;
        assert_eq!((mode(&folder.file()), mode(&folder.0.join(FOLDER))), (0o600, 0o700));
        fs::set_permissions(folder.file(), fs::Permissions::from_mode(0o666)).expect("it is ours");
        let mut next = folder.storage("files");
        assert_eq!((next.load(), next.status().lost.is_some()), (None, true), "others may have written it");
    }

    #[test]
    fn s10_3_a_state_that_is_missing_is_not_lost_and_one_that_is_damaged_is() {
        let folder = Folder::new("damaged");
        let mut first = folder.storage("files");
        assert_eq!((first.load(), first.status().lost), (None, None));
        store(&folder, "one");
        let whole = fs::read(folder.file()).expect("it is there");
        for damaged in [&whole[..whole.len() / 2], b"", &[&whole[..], b"x"].concat()] {
            fs::write(folder.file(), damaged).expect("it is ours");
            let mut next = folder.storage("files");
            assert_eq!((next.load(), next.status().lost.is_some(), next.has_state()), (None, true, false));
        }
    }

    #[test]
    fn s10_3_a_state_that_cannot_be_written_is_reported_and_tried_again() {
        let folder = Folder::new("unwritable");
        // A file stands where the folder should be.
        fs::write(folder.0.join(FOLDER), "").expect("a file");
        let mut storage = folder.storage("files");
        storage.save(entries("one"));
        let deadline = Instant::now() + Duration::from_secs(60);
        while storage.status().failure.is_none() {
            assert!(Instant::now() < deadline, "nobody tells of it");
            thread::sleep(Duration::from_millis(5));
        }
        fs::remove_file(folder.0.join(FOLDER)).expect("it is ours");
        storage.save(entries("one"));
        while storage.status().failure.is_some() {
            assert!(Instant::now() < deadline, "it is not stored");
            thread::sleep(Duration::from_millis(5));
        }
        drop(storage);
        assert_eq!(folder.storage("files").load().map(|stored| stored.entries), Some(entries("one")));
    }

    #[test]
    fn s10_3_a_state_that_could_not_be_written_is_written_when_it_can_be_without_another_change() {
        let folder = Folder::new("unasked");
        fs::write(folder.0.join(FOLDER), "").expect("a file");
        let mut storage = folder.storage("files");
        storage.save(entries("one"));
        let deadline = Instant::now() + Duration::from_secs(60);
        while storage.status().failure.is_none() {
            assert!(Instant::now() < deadline, "nobody tells of it");
            thread::sleep(Duration::from_millis(5));
        }
        fs::remove_file(folder.0.join(FOLDER)).expect("it is ours");
        while storage.status().failure.is_some() {
            assert!(Instant::now() < deadline, "it is not stored");
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(folder.storage("files").load().map(|stored| stored.entries), Some(entries("one")));
    }

    #[test]
    fn s10_3_a_process_that_was_killed_while_it_wrote_leaves_the_state_of_before() {
        let folder = Folder::new("killed");
        store(&folder, "one");
        fs::write(folder.file().with_extension("new"), "half a st").expect("it is ours");
        assert_eq!(folder.storage("files").load().map(|stored| stored.entries), Some(entries("one")));
        // What it left is somebody's link: nothing is written through it.
        let victim = folder.0.join("victim");
        fs::write(&victim, "precious").expect("a file");
        fs::remove_file(folder.file().with_extension("new")).expect("it is ours");
        symlink(&victim, folder.file().with_extension("new")).expect("a link");
        store(&folder, "two");
        assert_eq!(folder.storage("files").load().map(|stored| stored.entries), Some(entries("two")));
        assert_eq!(fs::read_to_string(victim).expect("it is there"), "precious");
    }

    #[test]
    fn s10_1_a_state_that_is_no_regular_file_is_refused_and_nobody_waits_for_it() {
        let folder = Folder::new("pipe");
        store(&folder, "one");
        fs::remove_file(folder.file()).expect("it is ours");
        nix::unistd::mkfifo(&folder.file(), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        let (heard, hears) = std::sync::mpsc::channel();
        let mut storage = folder.storage("files");
        thread::spawn(move || heard.send((storage.load().is_none(), storage.status().lost)));
        let (is_none, lost) = hears.recv_timeout(Duration::from_secs(60)).expect("nobody waits for a writer");
        assert!(is_none && lost.is_some_and(|lost| lost.contains("is no regular file")));
        fs::remove_file(folder.file()).expect("it is ours");
        symlink("/dev/zero", folder.file()).expect("a link");
        assert!(folder.storage("files").load().is_none());
    }

    #[test]
    fn s10_3_two_processes_that_write_at_once_leave_a_whole_state() {
        let folder = Folder::new("two-writers");
        thread::scope(|scope| {
            for text in ["one", "two"] {
                let (file, stored) = (folder.file(), Stored { source: "files".to_owned(), entries: entries(text) });
                scope.spawn(move || (0..100).for_each(|_| write(&file, &stored).expect("it is written")));
            }
        });
        assert!(folder.storage("files").load().is_some());
    }
}
