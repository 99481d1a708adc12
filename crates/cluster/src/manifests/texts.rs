//! Files as texts. Only regular files of a bounded size are read: a pipe would be waited for, and a device has no end.

use super::LoadError;
use super::folder::Folder;
use crate::document::unified_line_ends;
use namewall_policy::{Finding, Source};
use namewall_runtime::files::{self, Pipes};
use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// The largest file that is read, in bytes.
pub const MAX_FILE: u64 = 256 << 20;

/// What standard input is called in findings.
pub(super) const STDIN: &str = "<stdin>";

/// Files as they are read, before anything is made of them.
#[derive(Default)]
pub(super) struct Texts {
    pub(super) texts: Vec<(Arc<str>, String)>,
    /// Findings about files that are not read, and about texts without an object.
    pub(super) findings: Vec<Finding>,
    pub(super) unread: Vec<LoadError>,
}

impl Texts {
    pub(super) fn read<P: AsRef<Path>>(paths: &[P], pipes: Pipes) -> Self {
        let mut texts = Self::default();
        for path in paths {
            texts.add(path.as_ref(), pipes);
        }
        for (file, text) in &texts.texts {
            texts.findings.extend(about(file, text));
        }
        texts
    }

    fn add(&mut self, path: &Path, pipes: Pipes) {
        if path == Path::new("-") {
            return self.add_stdin();
        }
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => self.add_folder(path),
            Ok(_) => self.add_file(path, pipes),
            Err(source) => self.unread.push(unreadable(path, source)),
        }
    }

    fn add_folder(&mut self, path: &Path) {
        let mut folder = Folder::default();
        folder.collect(path);
        folder.look_into_hidden();
        if folder.files.is_empty() && folder.unread.is_empty() {
            self.unread.push(LoadError::EmptyFolder(name_of(path)));
        }
        self.unread.append(&mut folder.unread);
        self.findings.append(&mut folder.skipped);
        for file in folder.files {
            // The order of names in a folder must not decide whether a pipe is waited for.
            self.add_file(&file, Pipes::Refuse);
        }
    }

    fn add_stdin(&mut self) {
        let mut bytes = Vec::new();
        let read = io::stdin().take(MAX_FILE + 1).read_to_end(&mut bytes);
        match read.and_then(|_| bounded(bytes)) {
            Err(source) => self.unread.push(LoadError::Stdin(source)),
            Ok(bytes) => {
                let text = decode(bytes);
                match text.trim().is_empty() {
                    true => self.unread.push(LoadError::EmptyStdin),
                    false => self.texts.push((STDIN.into(), text)),
                }
            }
        }
    }

    fn add_file(&mut self, path: &Path, pipes: Pipes) {
        match read_file(path, pipes) {
            Ok(Ok(bytes)) => self.texts.push((name_of(path), decode(bytes))),
            Ok(Err(refused)) => {
                let finding = |object: &str| Finding::error("unreadable-file", object, refused);
                self.findings.push(self::finding(&name_of(path), finding));
            }
            Err(source) => self.unread.push(unreadable(path, source)),
        }
    }
}

/// The bytes of a file, or why it is none that is read.
fn read_file(path: &Path, pipes: Pipes) -> io::Result<Result<Vec<u8>, String>> {
    let file = match files::open(path, pipes)? {
        Ok(file) => file,
        Err(refused) => return Ok(Err(refused.to_string())),
    };
    Ok(read_bounded(file)?.map_err(|_| format!("the file is larger than {} MB; split it", MAX_FILE >> 20)))
}

/// The text of a file that is not a manifest. A pipe, a device or a file that is too large is an error: to read it may
/// never end.
pub fn read_text(path: &Path) -> io::Result<String> {
    let bytes = read_file(path, Pipes::Refuse)?.map_err(io::Error::other)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8 text"))
}

struct TooLarge;

fn read_bounded(file: File) -> io::Result<Result<Vec<u8>, TooLarge>> {
    let mut bytes = Vec::new();
    if file.metadata()?.len() > MAX_FILE {
        return Ok(Err(TooLarge));
    }
    // It may grow meanwhile.
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    Ok(if bytes.len() as u64 > MAX_FILE { Err(TooLarge) } else { Ok(bytes) })
}

fn bounded(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let is_good = bytes.len() as u64 <= MAX_FILE;
    if is_good { Ok(bytes) } else { Err(io::Error::other(format!("it is larger than {} MB", MAX_FILE >> 20))) }
}

fn name_of(path: &Path) -> Arc<str> {
    path.display().to_string().into()
}

pub(super) fn unreadable(path: &Path, source: io::Error) -> LoadError {
    LoadError::Read { path: name_of(path), source }
}

/// A finding about a file as a whole.
pub(super) fn finding(file: &Arc<str>, make: impl FnOnce(&str) -> Finding) -> Finding {
    make("").from_source(Some(Source { file: file.clone(), line: 1, column: 1 }))
}

/// True if a text has no object: only blank lines, comments and separators.
pub fn is_blank(text: &str) -> bool {
    text.trim_start_matches('\u{feff}').lines().all(|line| {
        let line = line.trim();
        line.is_empty() || line.starts_with('#') || matches!(line, "---" | "...")
    })
}

/// What there is to say about a text that can be read. Whether objects are missing only a caller can tell that knows
/// the text of before.
fn about(file: &Arc<str>, text: &str) -> Vec<Finding> {
    let empty = "there is no object in this file. If it was emptied to delete its objects, remove the file instead";
    let empty = is_blank(text).then(|| finding(file, |object| Finding::warning("empty-file", object, empty)));
    // A character that nobody writes: `decode` puts it in the place of such bytes.
    let at = text.find(char::REPLACEMENT_CHARACTER);
    let not_text = at.map(|at| {
        let line = text[..at].matches('\n').count() as u32 + 1;
        let message =
            "there are bytes that are not UTF-8 text; an API server refuses them. They are read as `\u{fffd}`";
        let source = Source { file: file.clone(), line, column: 1 };
        Finding::warning("not-utf8", "", message).from_source(Some(source))
    });
    empty.into_iter().chain(not_text).collect()
}

/// UTF-8, or UTF-16 with its mark, as some shells write it. A stray byte spoils its document, not the run: it cannot
/// be a name or a number.
pub(super) fn decode(bytes: Vec<u8>) -> String {
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
