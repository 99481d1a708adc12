//! Every promise that is cited is defined in docs/semantics.md, and every
//! promise has a test that is named after it, but for those listed here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Promises that no test is named after yet. A promise that loses its last test fails
/// [`promises_without_a_test_are_listed`]; one that gains a test must be removed here.
const WITHOUT_A_TEST: &[&str] = &["S12.1", "S12.2", "S12.3"];

/// Test names here carry the section numbers of RFCs.
const RFC_TESTS: &str = "crates/dns/tests/rfc";

/// Folders that are not part of the project's text.
const SKIPPED: [&str; 3] = ["target", "artifacts", "node_modules"];

/// A section, or a numbered item of one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Promise {
    section: u32,
    item: Option<u32>,
}

impl Promise {
    fn text(self) -> String {
        match self.item {
            Some(item) => format!("S{}.{item}", self.section),
            None => format!("S{}", self.section),
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

struct File {
    /// From the root of the project.
    path: String,
    text: String,
}

impl File {
    fn extension(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }
}

/// Every `.rs`, `.md` and `.yaml` file of the project.
fn files() -> Vec<File> {
    let (mut files, mut folders) = (Vec::new(), vec![root()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder can be listed") {
            let path = entry.expect("the entry can be read").path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if name.starts_with('.') || path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                if !SKIPPED.contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if ["rs", "md", "yaml"].iter().any(|wanted| path.extension().is_some_and(|it| it == *wanted)) {
                let bytes = fs::read(&path).expect("the file can be read");
                let path = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
                files.push(File { path, text: String::from_utf8_lossy(&bytes).into_owned() });
            }
        }
    }
    assert!(files.len() > 200, "the files were found");
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// Headings `## S1 …`, and numbered items below them.
fn defined() -> BTreeSet<Promise> {
    let text = fs::read_to_string(root().join("docs/semantics.md")).expect("docs/semantics.md is there");
    let (mut promises, mut section) = (BTreeSet::new(), None);
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading.strip_prefix('S').and_then(|rest| leading_number(rest)).map(|(number, _)| number);
            promises.extend(section.map(|section| Promise { section, item: None }));
        } else if let (Some(section), Some((item, rest))) = (section, leading_number(line))
            && rest.starts_with(". ")
        {
            assert!(promises.insert(Promise { section, item: Some(item) }), "S{section}.{item} is defined twice");
        }
    }
    promises
}

fn leading_number(text: &str) -> Option<(u32, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    // Longer numbers are something else, such as a size or an address.
    if digits == 0 || digits > 2 {
        return None;
    }
    Some((text[..digits].parse().ok()?, &text[digits..]))
}

/// Whether this may come before or after a citation: no letter, digit or underscore.
fn is_border(letter: Option<char>) -> bool {
    letter.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_')
}

/// Citations as `S2` and `S2.4`.
fn cited(line: &str) -> Vec<Promise> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices('S') {
        let Some((section, rest)) = leading_number(&line[at + 1..]) else { continue };
        let item = rest.strip_prefix('.').and_then(leading_number);
        let rest = item.map_or(rest, |(_, rest)| rest);
        if is_border(line[..at].chars().next_back()) && is_border(rest.chars().next()) {
            found.push(Promise { section, item: item.map(|(item, _)| item) });
        }
    }
    found
}

/// The promise that a test or a file is named after: `s2_4_…`, `s2_4`, `s2_…`.
fn named_after(name: &str) -> Option<Promise> {
    let (section, rest) = leading_number(name.strip_prefix('s')?)?;
    if !rest.is_empty() && !rest.starts_with('_') {
        return None;
    }
    let item = rest.strip_prefix('_').and_then(leading_number);
    Some(Promise { section, item: item.filter(|(_, rest)| is_word_end(rest)).map(|(item, _)| item) })
}

fn is_word_end(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('_')
}

/// Promises that tests are named after, each with its place: functions, and files of scenarios.
fn tested(files: &[File]) -> BTreeMap<Promise, String> {
    let mut tested = BTreeMap::new();
    for file in files.iter().filter(|file| !file.path.starts_with(RFC_TESTS)) {
        if file.extension() == "yaml" && file.path.starts_with("tests/scenarios") {
            let stem = Path::new(&file.path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
            if let Some(promise) = stem.as_deref().and_then(named_after) {
                tested.entry(promise).or_insert_with(|| file.path.clone());
            }
        }
        if file.extension() != "rs" {
            continue;
        }
        for (at, line) in file.text.lines().enumerate() {
            let name = line.trim_start().trim_start_matches("async ").strip_prefix("fn ");
            if let Some(promise) = name.and_then(|name| named_after(name.split('(').next().unwrap_or_default())) {
                tested.entry(promise).or_insert_with(|| format!("{}:{}", file.path, at + 1));
            }
        }
    }
    tested
}

#[test]
fn every_cited_promise_is_defined() {
    let (defined, files) = (defined(), files());
    let mut complaints = Vec::new();
    for file in &files {
        for (at, line) in file.text.lines().enumerate() {
            let unknown = cited(line).into_iter().filter(|promise| !defined.contains(promise));
            complaints.extend(unknown.map(|promise| format!("{}:{}: {}", file.path, at + 1, promise.text())));
        }
    }
    let unknown = tested(&files).into_iter().filter(|(promise, _)| !defined.contains(promise));
    complaints.extend(unknown.map(|(promise, place)| format!("{place}: a test of {}", promise.text())));
    assert!(complaints.is_empty(), "docs/semantics.md does not define:\n{}", complaints.join("\n"));
}

#[test]
fn promises_without_a_test_are_listed() {
    let tested = tested(&files());
    let items = defined().into_iter().filter(|promise| promise.item.is_some());
    let missing: Vec<String> =
        items.filter(|promise| !tested.contains_key(promise)).map(|promise| promise.text()).collect();
    let listed: Vec<String> = WITHOUT_A_TEST.iter().map(|text| (*text).to_owned()).collect();
    assert_eq!(missing, listed, "promises without a test (left) are not those that WITHOUT_A_TEST lists (right)");
}

#[test]
fn citations_are_read_as_they_are_written() {
    let text = |line: &str| cited(line).into_iter().map(Promise::text).collect::<Vec<_>>();
    assert_eq!(text("(S2.4, S10.1) as in S3, and S6.12."), ["S2.4", "S10.1", "S3", "S6.12"]);
    assert_eq!(text("`S1`. AS1 S1a S2x HTTPS2 S100 S_1"), ["S1"]);
    let name = |name: &str| named_after(name).map(Promise::text);
    assert_eq!(name("s2_4_host_bits"), Some("S2.4".to_owned()));
    assert_eq!(name("s9_1"), Some("S9.1".to_owned()));
    assert_eq!(name("s1_two_pods"), Some("S1".to_owned()));
    assert_eq!(name("settle"), None);
}

/// The numbers of lines that begin like `12. **`.
fn lines_of_the_security_model(text: &str) -> BTreeSet<u32> {
    text.lines().filter_map(|line| line.split_once(". **")?.0.parse().ok()).collect()
}

#[test]
fn every_line_of_the_security_model_is_named_by_a_test() {
    let files = files();
    let text_of = |path: &str| files.iter().find(|file| file.path == path).map(|file| file.text.as_str());
    let model = text_of("SECURITY-MODEL.md").expect("it is there");
    let attacks = text_of("docs/attacks.md").expect("it is there");
    let is_a_test = |name: &str| {
        let declared = format!("fn {name}(");
        files.iter().any(|file| file.path == name || (file.extension() == "rs" && file.text.contains(&declared)))
    };
    let mut shown = BTreeSet::new();
    for line in attacks.lines() {
        let Some((number, tests)) = line.strip_prefix("| ").and_then(|line| line.split_once(" | ")) else { continue };
        let Ok(number) = number.parse::<u32>() else { continue };
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        for name in &names {
            assert!(is_a_test(name), "docs/attacks.md, line {number} of the security model: there is no {name}");
        }
        shown.extend((!names.is_empty()).then_some(number));
    }
    assert_eq!(shown, lines_of_the_security_model(model), "the lines of SECURITY-MODEL.md, and those with a test");
}
