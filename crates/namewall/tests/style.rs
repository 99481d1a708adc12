//! No parameter of a function is a tuple (CONTRIBUTING.md): a tuple hides a
//! struct without a name. Plain arguments do, or a struct that says what it is.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders with code of the project.
const CODE: [&str; 3] = ["crates", "benches", "fuzz"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A Rust file, by its path from the root.
struct Source {
    path: String,
    text: String,
}

fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    let mut folders: Vec<PathBuf> = CODE.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder can be listed") {
            let path = entry.expect("the entry can be read").path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if path.is_dir() && name != "target" {
                folders.push(path);
            } else if name.ends_with(".rs") {
                let text = fs::read_to_string(&path).expect("the source can be read");
                let path = path.strip_prefix(root()).expect("it is below the root").display().to_string();
                sources.push(Source { path, text });
            }
        }
    }
    sources
}

/// The parts between commas of what opens at the start of a text, up to where that closes; and how long it is.
fn parts(text: &str) -> Option<(Vec<&str>, usize)> {
    let (mut parts, mut depth, mut start, mut before) = (Vec::new(), 0, 1, ' ');
    for (at, character) in text.char_indices() {
        match character {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            // An arrow closes nothing.
            '>' if before != '-' && before != '=' => depth -= 1,
            ',' if depth == 1 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        before = character;
        if depth == 0 {
            parts.push(&text[start..at]);
            return Some((parts, at + 1));
        }
    }
    None
}

/// The parameters of a function, from behind its name.
fn parameters(rest: &str) -> Vec<&str> {
    let generics = if rest.starts_with('<') { parts(rest).map_or(0, |(_, length)| length) } else { 0 };
    let rest = &rest[generics..];
    if !rest.starts_with('(') {
        return Vec::new();
    }
    parts(rest).map(|(parts, _)| parts).unwrap_or_default().into_iter().map(str::trim).collect()
}

/// Whether it is a pattern or a type of several parts, or a reference to one.
fn is_tuple(text: &str) -> bool {
    let text = text.trim().trim_start_matches('&');
    let text = if text.starts_with('\'') { text.split_once(' ').map_or("", |(_, rest)| rest) } else { text };
    let text = text.trim_start_matches("mut ");
    text.starts_with('(') && parts(text).is_some_and(|(parts, _)| parts.len() > 1)
}

/// The tuples among the parameters of the functions of a file, each with the line of its function.
fn tuple_parameters(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("fn ") {
        let is_word = text[..at].chars().next_back().is_none_or(|before| !before.is_alphanumeric() && before != '_');
        let rest = &text[at + 3..];
        let name = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(0);
        if !is_word || name == 0 {
            continue;
        }
        for parameter in parameters(&rest[name..]) {
            let type_of = parameter.split_once(':').map(|(_, of)| of).unwrap_or_default();
            // What `proptest!` draws values from stands behind `in`.
            if parameter.contains(':') && (is_tuple(parameter) || is_tuple(type_of)) && !parameter.contains(" in ") {
                let line = text[..at].lines().count().max(1);
                found.push(format!("{line}: fn {}: `{parameter}`", &rest[..name]));
            }
        }
    }
    found
}

#[test]
fn tuples_are_found_wherever_a_parameter_may_have_one() {
    let count = |text: &str| tuple_parameters(text).len();
    assert_eq!(count("fn f((a, b): (u8, u8)) {}"), 1);
    assert_eq!(count("fn f<T: Fn() -> u8>(&self, &(a, b): &(u8, T), c: (u8, u8)) {}"), 2);
    assert_eq!(count("fn f(\n    a: u8,\n    pair: &'a mut (u8, u8),\n) {}"), 1);
    assert_eq!(count("fn f((a, b): Pair) {}"), 1);
    assert_eq!(count("fn f(a: &[(u8, u8)], (): (), b: &mut (impl Read + Write), c: impl Fn(u8, u8)) {}"), 0);
    assert_eq!(count("fn f(a: Option<(u8, u8)>) -> (u8, u8) { let (a, b): (u8, u8) = c; }"), 0);
}

#[test]
fn no_parameter_is_a_tuple() {
    let mut found = Vec::new();
    for Source { path, text } in sources() {
        // The texts of its own test.
        if path.ends_with("namewall/tests/style.rs") {
            continue;
        }
        found.extend(tuple_parameters(&text).into_iter().map(|one| format!("{path}:{one}")));
    }
    assert!(
        found.is_empty(),
        "{} parameters are tuples. Use plain arguments or a struct:\n{}",
        found.len(),
        found.join("\n")
    );
}
