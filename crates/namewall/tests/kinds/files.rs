//! Files of the repository, and what of them is made from the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Lines that a failure shows.
const MOST_LINES: usize = 20;

fn full(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(full(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A file as it should be.
pub(crate) struct Made<'p> {
    pub(crate) path: &'p str,
    pub(crate) text: String,
}

impl<'p> Made<'p> {
    /// The file as it is, with other lines between a header and the next empty line.
    pub(crate) fn section(path: &'p str, header: &str, lines: &str) -> Self {
        let text = read(path);
        let start = text.find(header).unwrap_or_else(|| panic!("{path} has no table that begins with {header}"));
        let start = start + header.len();
        let end = text[start..].find("\n\n").map_or(text.len(), |at| start + at + 1);
        Self { path, text: [&text[..start], lines, &text[end..]].concat() }
    }

    /// The file as it is, with another line in place of the one that begins so.
    pub(crate) fn line(path: &'p str, beginning: &str, line: &str) -> Self {
        let text = read(path);
        let is_it = |one: &&str| one.starts_with(beginning);
        let old = text.split_inclusive('\n').find(is_it).unwrap_or_else(|| panic!("{path} has no row {beginning}"));
        Self { path, text: text.replacen(old, line, 1) }
    }

    /// Fails with the lines in which the file differs, or writes it if that is asked for.
    pub(crate) fn check(&self) {
        let Self { path, text } = self;
        let is = fs::read_to_string(full(path)).unwrap_or_default();
        if is == *text {
            return;
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(full(path), text).unwrap();
            return;
        }
        let (old, new): (BTreeSet<&str>, BTreeSet<&str>) = (is.lines().collect(), text.lines().collect());
        let missing = text.lines().filter(|line| !old.contains(line)).map(|line| format!("  lacks {line}"));
        let stale = is.lines().filter(|line| !new.contains(line)).map(|line| format!("  has   {line}"));
        let lines: Vec<String> = missing.chain(stale).take(MOST_LINES).collect();
        panic!(
            "{path} does not agree with the code:\n{}\nUPDATE_EXPECT=1 cargo test -p namewall --test {} writes it",
            lines.join("\n"),
            env!("CARGO_CRATE_NAME")
        );
    }
}
