//! Whether files have changed since they were last compared.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file, and what changes with its content: inode, length and time of the last change.
pub type Seen = (PathBuf, u64, u64, i64, i64);

/// The files at a path: none, the file itself, or those of the folder.
pub fn look(path: &Path) -> BTreeSet<Seen> {
    let mut seen = BTreeSet::new();
    look_at(path, &mut seen);
    seen
}

fn look_at(path: &Path, seen: &mut BTreeSet<Seen>) {
    // Links are followed: a mounted ConfigMap changes by a link to another folder.
    let Ok(found) = std::fs::metadata(path) else { return };
    if found.is_dir() {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.for_each(|entry| look_at(&entry.path(), seen));
    } else {
        seen.insert((path.to_owned(), found.ino(), found.len(), found.mtime(), found.mtime_nsec()));
    }
}
