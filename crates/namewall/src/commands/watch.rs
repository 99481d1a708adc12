//! Files as they were when they were last looked at: whoever goes on until it is told to end sees by that
//! which of them have changed.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file, and what changes with what is in it: where it is, its length and when it was written.
pub(super) type Seen = (PathBuf, u64, u64, i64, i64);

/// What is at a path now: nothing, a file, or the files of a folder.
pub(super) fn look(path: &Path) -> BTreeSet<Seen> {
    let mut seen = BTreeSet::new();
    look_at(path, &mut seen);
    seen
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
