//! Where imported files come from.

use std::io;
use std::path::{Component, Path, PathBuf};

/// Files by path. This crate opens none; tests and fuzz targets have theirs in memory.
pub trait Files {
    /// The text of a file.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// The names of the files in a folder.
    fn names(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// The names of the files in a folder that match a pattern, sorted.
    fn like(&self, folder: &Path, pattern: &str) -> io::Result<Vec<String>> {
        let mut names = self.names(folder)?;
        names.retain(|name| matches(pattern, name));
        names.sort();
        Ok(names)
    }
}

/// No files: every import fails.
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
pub(crate) fn beside(file: &str, path: &str) -> PathBuf {
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
