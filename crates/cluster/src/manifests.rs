//! Files, folders and standard input → Documents.

use crate::document::Document;
use namewall_policy::Finding;
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
    let mut texts: Vec<(Arc<str>, String)> = Vec::new();
    for path in paths {
        let path = path.as_ref();
        if path == Path::new("-") {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(LoadError::Stdin)?;
            texts.push(("<stdin>".into(), text));
            continue;
        }
        let mut files = Vec::new();
        if fs::metadata(path).map_err(|source| unreadable(path, source))?.is_dir() {
            collect(path, &mut files, &mut HashSet::new())?;
            if files.is_empty() {
                return Err(LoadError::EmptyFolder(path.display().to_string()));
            }
        } else {
            files.push(path.to_owned());
        }
        for file in files {
            let bytes = fs::read(&file).map_err(|source| unreadable(&file, source))?;
            // A stray byte spoils its document, not the run: it cannot be a name or a number.
            let text = String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
            texts.push((file.display().to_string().into(), text));
        }
    }
    Ok(parse_all(&texts))
}

fn unreadable(path: &Path, source: std::io::Error) -> LoadError {
    LoadError::Read { path: path.display().to_string(), source }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>, seen: &mut HashSet<PathBuf>) -> Result<(), LoadError> {
    // Links may lead round in circles; a folder is read once.
    if !seen.insert(fs::canonicalize(folder).map_err(|source| unreadable(folder, source))?) {
        return Ok(());
    }
    let entries = fs::read_dir(folder).map_err(|source| unreadable(folder, source))?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(|source| unreadable(folder, source))?;
    paths.sort();
    for path in paths {
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if hidden {
            continue;
        }
        if path.is_dir() {
            collect(&path, files, seen)?;
        } else if path.extension().is_some_and(|ext| ext == "yaml" || ext == "yml" || ext == "json") {
            files.push(path);
        }
    }
    Ok(())
}

/// Parses on all cores: large texts are cut between documents.
fn parse_all(texts: &[(Arc<str>, String)]) -> Manifests {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let total: usize = texts.iter().map(|(_, text)| text.len()).sum();
    let share = (total / workers).max(64 * 1024) + 1;
    let mut chunks: Vec<Vec<Chunk<'_>>> = vec![Vec::new()];
    let mut room = share;
    for (file, text) in texts {
        let mut rest = Chunk { file, text, first_line: 0 };
        loop {
            let (head, tail) = rest.cut(room);
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
    let mut manifests = Manifests::default();
    thread::scope(|scope| {
        let handles: Vec<_> = chunks.into_iter().map(|chunk| scope.spawn(move || parse_chunk(&chunk))).collect();
        for handle in handles {
            let done = handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            manifests.documents.extend(done.documents);
            manifests.findings.extend(done.findings);
        }
    });
    manifests
}

#[derive(Clone, Copy)]
struct Chunk<'t> {
    file: &'t Arc<str>,
    text: &'t str,
    first_line: u32,
}

impl<'t> Chunk<'t> {
    /// Cuts after about `size` bytes, before a `---` line.
    fn cut(self, size: usize) -> (Self, Option<Self>) {
        let from = (size..self.text.len()).find(|&at| self.text.is_char_boundary(at));
        let cut = from.and_then(|from| self.text[from..].find("\n---\n").map(|at| from + at + 1));
        let Some(cut) = cut else { return (self, None) };
        let (head, tail) = self.text.split_at(cut);
        let lines = head.bytes().filter(|&byte| byte == b'\n').count() as u32;
        let tail = Self { text: tail, first_line: self.first_line + lines, ..self };
        (Self { text: head, ..self }, Some(tail))
    }
}

fn parse_chunk(chunk: &[Chunk<'_>]) -> Manifests {
    let mut manifests = Manifests::default();
    for part in chunk {
        let (documents, findings) = Document::read_part(part.file, part.text, part.first_line);
        manifests.documents.extend(documents);
        manifests.findings.extend(findings);
    }
    manifests
}
