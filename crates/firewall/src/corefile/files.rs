//! Where imported files come from.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// Files by path. Tests and fuzz targets have theirs in memory.
pub trait Files {
    fn read(&self, path: &Path) -> io::Result<String>;

    /// The names of the files in a folder.
    fn names(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Of those the ones that are like a pattern, in order.
    fn like(&self, folder: &Path, pattern: &str) -> io::Result<Vec<String>> {
        let mut names = self.names(folder)?;
        names.retain(|name| matches(pattern, name));
        names.sort();
        Ok(names)
    }
}

/// The machine's own files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<String> {
        let mut text = String::new();
        // One byte more than is accepted, so that it is seen.
        File::open(path)?.take(super::parse::MOST_BYTES as u64 + 1).read_to_string(&mut text)?;
        Ok(text)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        // Beside a Corefile without a folder is here.
        let here = folder.as_os_str().is_empty();
        let entries = std::fs::read_dir(if here { Path::new(".") } else { folder })?;
        entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned())).collect()
    }
}

/// No files: whatever is imported is not there.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn names(&self, _: &Path) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// A path as seen from the file that names it, without `.` and `..` where that can be told from the text.
pub(super) fn beside(file: &str, path: &str) -> PathBuf {
    let joined = Path::new(file).parent().unwrap_or(Path::new("")).join(path);
    let mut plain = PathBuf::new();
    for component in joined.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if matches!(plain.components().next_back(), Some(Component::Normal(_))) => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

/// Whether a name is one of a pattern with `*` (any characters) and `?` (one).
fn matches(pattern: &str, name: &str) -> bool {
    let mut chars = pattern.chars();
    match chars.next() {
        None => name.is_empty(),
        Some('*') => {
            let rest = chars.as_str();
            name.char_indices().any(|(at, _)| matches(rest, &name[at..])) || matches(rest, "")
        }
        Some(wanted) => {
            let mut rest = name.chars();
            rest.next().is_some_and(|first| wanted == '?' || wanted == first) && matches(chars.as_str(), rest.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_beside_the_file_that_names_them() {
        for (file, path, meant) in [
            ("Corefile", "zones/a", "zones/a"),
            ("/etc/coredns/Corefile", "./custom/../b", "/etc/coredns/b"),
            ("/etc/coredns/Corefile", "../../../b", "/../b"),
            ("a/Corefile", "/b", "/b"),
        ] {
            assert_eq!(beside(file, path), Path::new(meant), "{file} {path}");
        }
    }

    #[test]
    fn the_disk_has_this_crate() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(Disk.read(&folder.join("Cargo.toml")).unwrap().contains("namewall-firewall"));
        for folder in [folder, Path::new("")] {
            assert!(Disk.names(folder).unwrap().iter().any(|name| name == "Cargo.toml"));
        }
        assert_eq!(Disk.like(Path::new(""), "*.toml").unwrap(), ["Cargo.toml"]);
        assert!(Disk.read(folder).is_err() && Disk.read(&folder.join("none")).is_err());
    }

    #[test]
    fn one_star_and_one_question_mark() {
        for (pattern, name, is) in [
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf~", false),
            ("*", "", true),
            ("a*", "b", false),
            ("a?c", "aöc", true),
            ("a?c", "ac", false),
        ] {
            assert_eq!(matches(pattern, name), is, "{pattern} {name}");
        }
    }
}
