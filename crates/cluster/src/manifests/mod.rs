//! Files, folders and standard input → Documents.
//!
//! `texts` reads files, `folder` finds them; here they are parsed.

mod folder;
mod texts;

pub use texts::{MAX_FILE, is_blank, read_text};

use crate::document::{Document, FilePart, Gather, read_part};
use crate::lower::{Lowered, Objects, Settings};
use namewall_policy::Finding;
use namewall_runtime::files::Pipes;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use texts::{Texts, finding};

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot read {path}")]
    Read { path: Arc<str>, source: std::io::Error },
    #[error("cannot read standard input")]
    Stdin(#[source] std::io::Error),
    #[error("standard input is empty; did the command before it fail?")]
    EmptyStdin,
    #[error("{0} holds no .yaml, .yml or .json file")]
    EmptyFolder(Arc<str>),
}

impl LoadError {
    /// The file or folder that it is about.
    pub fn path(&self) -> Arc<str> {
        match self {
            Self::Read { path, .. } | Self::EmptyFolder(path) => path.clone(),
            Self::Stdin(_) | Self::EmptyStdin => texts::STDIN.into(),
        }
    }

    /// The error as a finding, for callers that go on without the file.
    pub fn finding(&self) -> Finding {
        let cause = match self {
            Self::Read { source, .. } | Self::Stdin(source) => format!(": {source}"),
            Self::EmptyStdin | Self::EmptyFolder(_) => String::new(),
        };
        finding(&self.path(), |object| Finding::error("unreadable-file", object, format!("{self}{cause}")))
    }
}

/// What was read, in the order of the paths and, within a folder, of names.
#[derive(Debug, Default)]
pub struct Manifests {
    pub documents: Vec<Document>,
    pub findings: Vec<Finding>,
}

/// Reads files, folders (recursively; `.yaml`, `.yml`, `.json`) and `-`. The first file that cannot be read ends it.
pub fn load<P: AsRef<Path>>(paths: &[P]) -> Result<Manifests, LoadError> {
    let (documents, findings) = gather(paths, Pipes::Read)?;
    Ok(Manifests { documents, findings })
}

/// The same as [`load`] for paths that another file names: pipes are not waited for.
pub fn load_regular<P: AsRef<Path>>(paths: &[P]) -> Result<Manifests, LoadError> {
    let (documents, findings) = gather(paths, Pipes::Refuse)?;
    Ok(Manifests { documents, findings })
}

/// What could be read of files and folders.
#[derive(Debug, Default)]
pub struct Survey {
    pub manifests: Manifests,
    /// The text of each file.
    pub texts: Vec<(Arc<str>, Arc<str>)>,
    /// What could not be read: files, and folders with all that is in them. No finding is about them yet.
    pub unread: Vec<LoadError>,
}

/// The same as [`load`] for callers that read again and again: what cannot be read does not keep the rest from being
/// read, and pipes are not waited for.
pub fn survey<P: AsRef<Path>>(paths: &[P]) -> Survey {
    let Texts { texts, findings: mut all, unread } = Texts::read(paths, Pipes::Refuse);
    let (documents, findings) = parse_all(&texts);
    all.extend(findings);
    let texts = texts.into_iter().map(|(file, text)| (file, text.into())).collect();
    Survey { manifests: Manifests { documents, findings: all }, texts, unread }
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
    let (objects, findings) = gather::<Objects>(paths, Pipes::Read)?;
    Ok(Reading { lowered: objects.lower(settings), findings })
}

fn gather<G: Gathered>(paths: &[impl AsRef<Path>], pipes: Pipes) -> Result<(G, Vec<Finding>), LoadError> {
    let Texts { texts, mut findings, unread } = Texts::read(paths, pipes);
    if let Some(error) = unread.into_iter().next() {
        return Err(error);
    }
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
