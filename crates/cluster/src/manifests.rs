//! Files, folders and standard input → Documents.

use crate::document::{Document, FilePart, Gather, read_part, unified_line_ends};
use crate::lower::{Lowered, Objects, Settings};
use namewall_policy::{Finding, Source};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot read {path}")]
    Read { path: String, source: std::io::Error },
    #[error("cannot read standard input")]
    Stdin(#[source] std::io::Error),
    #[error("standard input is empty; did the command before it fail?")]
    EmptyStdin,
    #[error("{0} holds no .yaml, .yml or .json file")]
    EmptyFolder(String),
}

/// What was read, in the order of the paths and, within a folder, of names.
#[derive(Debug, Default)]
pub struct Manifests {
    pub documents: Vec<Document>,
    pub findings: Vec<Finding>,
}

/// Reads files, folders (recursively; `.yaml`, `.yml`, `.json`) and `-`.
pub fn load<P: AsRef<Path>>(paths: &[P]) -> Result<Manifests, LoadError> {
    let (documents, findings) = gather(paths)?;
    Ok(Manifests { documents, findings })
}

/// What manifests say, and what there is to say about their texts.
#[derive(Debug)]
pub struct Reading {
    pub lowered: Lowered,
    pub findings: Vec<Finding>,
}

/// Loads and lowers at once. The same as [`load`] and [`lower()`](crate::lower()), in a fraction of the memory: a
/// workload's tree is dropped as soon as the workload is read.
pub fn read<P: AsRef<Path>>(paths: &[P], settings: &Settings) -> Result<Reading, LoadError> {
    let (objects, findings) = gather::<Objects>(paths)?;
    Ok(Reading { lowered: objects.lower(settings), findings })
}

fn gather<G: Gathered>(paths: &[impl AsRef<Path>]) -> Result<(G, Vec<Finding>), LoadError> {
    let Texts { texts, skipped: mut findings } = Texts::read(paths)?;
    let (gathered, more) = parse_all(&texts);
    findings.extend(more);
    Ok((gathered, findings))
}

/// What several threads gather, each its part.
trait Gathered: Gather + Default + Send {
    fn append(&mut self, more: Self);
}

impl Gathered for Vec<Document> {
    fn append(&mut self, more: Self) {
        self.extend(more);
    }
}

impl Gathered for Objects {
    fn append(&mut self, more: Self) {
        self.extend(more);
    }
}

/// Files as they are read, before anything is made of them.
#[derive(Default)]
struct Texts {
    texts: Vec<(Arc<str>, String)>,
    /// Findings about files in folders that are not read.
    skipped: Vec<Finding>,
}

impl Texts {
    fn read<P: AsRef<Path>>(paths: &[P]) -> Result<Self, LoadError> {
        let mut texts = Self::default();
        for path in paths {
            let path = path.as_ref();
            if path == Path::new("-") {
                let mut bytes = Vec::new();
                std::io::stdin().read_to_end(&mut bytes).map_err(LoadError::Stdin)?;
                let text = decode(bytes);
                if text.trim().is_empty() {
                    return Err(LoadError::EmptyStdin);
                }
                texts.texts.push(("<stdin>".into(), text));
                continue;
            }
            let mut folder = Folder::default();
            if fs::metadata(path).map_err(|source| unreadable(path, source))?.is_dir() {
                folder.collect(path)?;
                folder.look_into_hidden();
                if folder.files.is_empty() {
                    return Err(LoadError::EmptyFolder(path.display().to_string()));
                }
            } else {
                folder.files.push(path.to_owned());
            }
            for file in folder.files {
                let bytes = fs::read(&file).map_err(|source| unreadable(&file, source))?;
                texts.texts.push((file.display().to_string().into(), decode(bytes)));
            }
            texts.skipped.extend(folder.skipped);
        }
        Ok(texts)
    }
}

fn unreadable(path: &Path, source: std::io::Error) -> LoadError {
    LoadError::Read { path: path.display().to_string(), source }
}

/// UTF-8, or UTF-16 with its mark, as some shells write it. A stray byte spoils its document, not the run: it cannot
/// be a name or a number.
fn decode(bytes: Vec<u8>) -> String {
    let units = |of: fn([u8; 2]) -> u16| {
        let units = bytes[2..].chunks_exact(2).map(|pair| of([pair[0], pair[1]]));
        char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    };
    let text = match bytes.as_slice() {
        [0xff, 0xfe, ..] => units(u16::from_le_bytes),
        [0xfe, 0xff, ..] => units(u16::from_be_bytes),
        _ => String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()),
    };
    match unified_line_ends(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(unified) => unified,
    }
}

/// A folder while it is gone through.
#[derive(Default)]
struct Folder {
    files: Vec<PathBuf>,
    skipped: Vec<Finding>,
    seen: HashSet<PathBuf>,
    hidden: Vec<PathBuf>,
}

impl Folder {
    fn collect(&mut self, folder: &Path) -> Result<(), LoadError> {
        // Links may lead round in circles; a folder is read once.
        if !self.seen.insert(fs::canonicalize(folder).map_err(|source| unreadable(folder, source))?) {
            return Ok(());
        }
        let entries = fs::read_dir(folder).map_err(|source| unreadable(folder, source))?;
        let mut paths: Vec<PathBuf> = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .map_err(|source| unreadable(folder, source))?;
        paths.sort();
        for path in paths {
            let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            let extension = path.extension().map(|ext| ext.to_string_lossy().to_ascii_lowercase());
            let is_manifest = matches!(extension.as_deref(), Some("yaml" | "yml" | "json"));
            match (path.is_dir(), is_hidden) {
                (true, false) => self.collect(&path)?,
                (true, true) => self.hidden.push(path),
                (false, false) if is_manifest => self.files.push(path),
                (false, true) => self.skip(&path, "hidden files are not read"),
                (false, false) => self.skip(&path, "only .yaml, .yml and .json are read in folders"),
            }
        }
        Ok(())
    }

    /// Names the first file with objects of each hidden folder. In a mounted ConfigMap these are read through links.
    fn look_into_hidden(&mut self) {
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

/// Parses on all cores: large texts are cut between documents.
fn parse_all<G: Gathered>(texts: &[(Arc<str>, String)]) -> (G, Vec<Finding>) {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let total: usize = texts.iter().map(|(_, text)| text.len()).sum();
    let share = (total / workers).max(64 * 1024) + 1;
    let mut chunks: Vec<Vec<FilePart<'_>>> = vec![Vec::new()];
    let mut room = share;
    for (file, text) in texts {
        let mut rest = FilePart { file, text, first_line: 0 };
        loop {
            let (head, tail) = cut(rest, room);
            room = room.saturating_sub(head.text.len());
            if let Some(chunk) = chunks.last_mut() {
                chunk.push(head);
            }
            if room == 0 {
                chunks.push(Vec::new());
                room = share;
            }
            match tail {
                Some(tail) => rest = tail,
                None => break,
            }
        }
    }
    let (mut gathered, mut findings) = (G::default(), Vec::new());
    thread::scope(|scope| {
        let handles: Vec<_> = chunks.into_iter().map(|chunk| scope.spawn(move || parse_chunk::<G>(&chunk))).collect();
        for handle in handles {
            let (part, more) = handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            gathered.append(part);
            findings.extend(more);
        }
    });
    (gathered, findings)
}

/// Cuts after about `size` bytes, before a `---` line.
fn cut(part: FilePart<'_>, size: usize) -> (FilePart<'_>, Option<FilePart<'_>>) {
    let from = (size..part.text.len()).find(|&at| part.text.is_char_boundary(at));
    let cut = from.and_then(|from| part.text[from..].find("\n---\n").map(|at| from + at + 1));
    let Some(cut) = cut else { return (part, None) };
    let (head, tail) = part.text.split_at(cut);
    let lines = head.bytes().filter(|&byte| byte == b'\n').count() as u32;
    let tail = FilePart { text: tail, first_line: part.first_line + lines, ..part };
    (FilePart { text: head, ..part }, Some(tail))
}

fn parse_chunk<G: Gathered>(chunk: &[FilePart<'_>]) -> (G, Vec<Finding>) {
    let (mut gathered, mut findings) = (G::default(), Vec::new());
    for part in chunk {
        read_part(*part, &mut gathered, &mut findings);
    }
    (gathered, findings)
}
