//! Which files of a folder are manifests, and which may be meant to be.

use super::LoadError;
use super::texts::{decode, unreadable};
use namewall_policy::{Finding, Source};
use std::collections::HashSet;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A folder while it is gone through.
#[derive(Default)]
pub(super) struct Folder {
    pub(super) files: Vec<PathBuf>,
    pub(super) skipped: Vec<Finding>,
    /// Folders below that cannot be listed.
    pub(super) unread: Vec<LoadError>,
    seen: HashSet<PathBuf>,
    hidden: Vec<PathBuf>,
}

impl Folder {
    pub(super) fn collect(&mut self, folder: &Path) {
        let listed = match self.list(folder) {
            Ok(listed) => listed,
            Err(source) => return self.unread.push(unreadable(folder, source)),
        };
        for path in listed {
            let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            let extension = path.extension().map(|ext| ext.to_string_lossy().to_ascii_lowercase());
            let is_manifest = matches!(extension.as_deref(), Some("yaml" | "yml" | "json"));
            match (path.is_dir(), is_hidden) {
                (true, false) => self.collect(&path),
                (true, true) => self.hidden.push(path),
                (false, false) if is_manifest => self.files.push(path),
                (false, true) => self.skip(&path, "hidden files are not read"),
                (false, false) => self.skip(&path, "only .yaml, .yml and .json are read in folders"),
            }
        }
    }

    /// The entries of a folder, sorted. Links may lead round in circles: a folder that was listed has none.
    fn list(&mut self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        if !self.seen.insert(fs::canonicalize(folder)?) {
            return Ok(Vec::new());
        }
        let mut paths: Vec<PathBuf> =
            fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
        paths.sort();
        Ok(paths)
    }

    /// Names the first file with objects of each hidden folder. In a mounted ConfigMap these are read through links.
    pub(super) fn look_into_hidden(&mut self) {
        let read: HashSet<PathBuf> = self.files.iter().filter_map(|file| fs::canonicalize(file).ok()).collect();
        for folder in std::mem::take(&mut self.hidden) {
            let is_lost = |file: &Path| {
                has_objects(file) && fs::canonicalize(file).is_ok_and(|canonical| !read.contains(&canonical))
            };
            let lost = first_file(&folder, &is_lost, &mut HashSet::new());
            self.skip(&lost.unwrap_or(folder), "hidden folders are not read");
        }
    }

    /// Objects in a file that is not read may be meant: that is a warning. The rest is a hint, if it could be meant.
    fn skip(&mut self, path: &Path, why: &str) {
        let source = Source { file: path.display().to_string().into(), line: 1, column: 1 };
        let is_text = path.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("txt"));
        if has_objects(path) {
            let message = format!("Kubernetes objects in this file have no effect: {why}. Name the file, or rename it");
            self.skipped.push(Finding::warning("skipped-objects", "", message).from_source(Some(source)));
        } else if is_text || why.starts_with("hidden") {
            self.skipped.push(Finding::hint("skipped-file", "", why).from_source(Some(source)));
        }
    }
}

/// The first file below a folder for which `wanted` is true. What cannot be read has none.
fn first_file(folder: &Path, wanted: &dyn Fn(&Path) -> bool, seen: &mut HashSet<PathBuf>) -> Option<PathBuf> {
    // A repository holds no manifests, and many files.
    if folder.file_name().is_some_and(|name| name == ".git") || !seen.insert(fs::canonicalize(folder).ok()?) {
        return None;
    }
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.into_iter().find_map(|path| match path.is_dir() {
        true => first_file(&path, wanted, seen),
        false => wanted(&path).then_some(path),
    })
}

/// True if the start of a file looks like a manifest.
fn has_objects(path: &Path) -> bool {
    const START: u64 = 64 * 1024;
    let mut start = Vec::new();
    let read = fs::metadata(path)
        .and_then(|it| if it.is_file() { fs::File::open(path) } else { Err(std::io::ErrorKind::Unsupported.into()) })
        .and_then(|file| file.take(START).read_to_end(&mut start));
    let text = decode(start);
    let has = |key: &str| {
        text.lines().any(|line| line.starts_with(key)) || text.contains(&format!("\"{}\":", &key[..key.len() - 1]))
    };
    read.is_ok() && has("apiVersion:") && has("kind:")
}
