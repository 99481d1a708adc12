//! Corefiles: what other people's samples say, what is wrong with wrong ones, and how it is told.

/// A Corefile of the folder tests/corefiles.
macro_rules! sample {
    ($name:literal) => {
        include_str!(concat!("../../../../tests/corefiles/", $name, ".corefile"))
    };
}

mod errors;
mod facts;
mod options;
mod original;
mod readmes;
mod settings;
mod smaller;
mod soup;
mod syntax;

use expect_test::Expect;
use namewall_corefile::{Corefile, CorefileErrors, Files, Firewall, RuleKind, ServerBlock, Written, read};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Files in memory.
#[derive(Debug, Default)]
pub struct Folder(pub BTreeMap<&'static str, &'static str>);

impl Files for Folder {
    fn read(&self, path: &Path) -> io::Result<String> {
        let text = path.to_str().and_then(|path| self.0.get(path)).ok_or(io::ErrorKind::NotFound)?;
        Ok((*text).to_owned())
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let inside = self.0.keys().filter_map(|path| Path::new(path).strip_prefix(folder).ok());
        Ok(inside.filter(|path| path.components().count() == 1).map(|path| path.display().to_string()).collect())
    }
}

pub fn environment(name: &str) -> Option<String> {
    match name {
        "PORT" => Some("1053".to_owned()),
        "UPSTREAM" => Some("192.0.2.53".to_owned()),
        _ => None,
    }
}

pub fn read_alone(text: &str) -> Result<Corefile, CorefileErrors> {
    read("Corefile", text, &Folder::default(), &environment)
}

/// What is refused, or what is warned of.
pub fn told(read: &Result<Corefile, CorefileErrors>) -> String {
    match read {
        Ok(corefile) => corefile.warnings.iter().map(|warning| format!("{warning}\n")).collect(),
        Err(errors) => format!("{errors}\n"),
    }
}

/// A server block with these lines, from line 2 on.
fn within(lines: &str, expected: Expect) {
    check(&format!(". {{\n{lines}\n}}\n"), expected);
}

/// Compares what is told of a Corefile.
pub fn check(text: &str, expected: Expect) {
    expected.assert_eq(&told(&read_alone(text)));
}

/// What was set: settings without those that are not, in few lines.
pub fn shown(settings: &impl std::fmt::Debug) -> String {
    let is_set = |line: &&str| ![": None,", ": [],", ": false,"].iter().any(|unset| line.ends_with(unset));
    let mut lines: Vec<String> = Vec::new();
    for line in format!("{settings:#?}").lines().filter(is_set) {
        lines.push(line.replace("    ", "  "));
        join(&mut lines);
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Puts what is in brackets into one line, if there is room.
fn join(lines: &mut Vec<String>) {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let Some(last) = lines.last().filter(|line| line.trim_start().starts_with([')', ']', '}'])) else { return };
    let Some(open) = lines[..lines.len() - 1].iter().rposition(|line| depth(line) == depth(last)) else { return };
    let inner: Vec<&str> = lines[open + 1..lines.len() - 1].iter().map(|line| line.trim()).collect();
    let joined = format!("{}{}{}", lines[open], inner.join(" ").trim_end_matches(','), last.trim());
    if joined.len() <= 100 {
        lines.truncate(open);
        lines.push(joined);
    }
}

pub fn only_server(text: &str) -> ServerBlock {
    let read = read_alone(text).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(read.servers.len(), 1);
    read.servers.into_iter().next().expect("there is one")
}

/// Lists in few words: their rules, each with the place of its expression.
fn rules(lists: &[Firewall]) -> String {
    let mut out = String::new();
    for list in lists {
        let form = match &list.written {
            Written::Seed(zones) => format!("{zones:?}"),
            Written::Shipped => "shipped".to_owned(),
        };
        out += &format!("{:?} {form}, at its end {}\n", list.point, list.at_end());
        for rule in &list.rules {
            out += &match &rule.kind {
                RuleKind::Expression { outcome, engine, text, .. } => {
                    let engine = engine.as_ref().map_or_else(String::new, |engine| format!(" by {engine}"));
                    format!("  {outcome}{engine} if {} ({})\n", text.text, text.place)
                }
                RuleKind::Engine { kind, name } => format!("  {} {name}\n", kind.word()),
            };
        }
    }
    out
}

/// Compares lists of rules.
pub fn check_rules(text: &str, expected: Expect) {
    expected.assert_eq(&rules(&only_server(text).firewalls));
}
