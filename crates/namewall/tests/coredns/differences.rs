//! Intended differences: rows of docs/coredns.md, and what makes a difference one of them.

use crate::ask::{Answer, Question};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

/// A question that was answered differently.
pub(crate) struct Difference<'a> {
    pub(crate) question: &'a Question,
    pub(crate) theirs: &'a Answer,
    pub(crate) ours: &'a Answer,
}

/// The name of an intended difference in the document, and which differences it explains.
pub(crate) type Intended = (&'static str, fn(&Difference<'_>) -> bool);

/// The differences of a test, and how often each was seen.
pub(crate) struct Ledger {
    intended: &'static [Intended],
    seen: BTreeMap<&'static str, usize>,
    unexplained: Vec<String>,
    pub(crate) asked: usize,
    /// When the caches that are compared were empty.
    since: Instant,
}

impl Ledger {
    pub(crate) fn new(intended: &'static [Intended]) -> Self {
        Self { intended, seen: BTreeMap::new(), unexplained: Vec::new(), asked: 0, since: Instant::now() }
    }

    /// From now on answers are those of new servers.
    pub(crate) fn begin(&mut self) {
        self.since = Instant::now();
    }

    /// The same for answers from caches, whose TTLs have run since then.
    pub(crate) fn compare_aged(&mut self, place: &str, question: &Question, answers: [&Answer; 2]) {
        let [theirs, ours] = answers;
        if theirs.is_aged(ours, self.since.elapsed()) {
            self.asked += 1;
        } else {
            self.compare(place, question, answers);
        }
    }

    pub(crate) fn compare(&mut self, place: &str, question: &Question, [theirs, ours]: [&Answer; 2]) {
        self.asked += 1;
        if theirs == ours {
            return;
        }
        let difference = Difference { question, theirs, ours };
        match self.intended.iter().find(|(_, explains)| explains(&difference)) {
            Some((name, _)) => *self.seen.entry(name).or_default() += 1,
            None => self.unexplained.push(format!("{place}: {question}\n   CoreDNS: {theirs}\n   ours: {ours}")),
        }
    }

    /// Fails if a difference is not intended, or an intended one was never seen.
    pub(crate) fn finish(self, section: &str) {
        println!("{} questions, intended differences: {:?}", self.asked, self.seen);
        let count = self.unexplained.len();
        let first: Vec<String> = self.unexplained.into_iter().take(25).collect();
        assert!(first.is_empty(), "{count} of {} answers differ:\n{}", self.asked, first.join("\n"));
        let known: BTreeSet<&str> = self.intended.iter().map(|(name, _)| *name).collect();
        let documented = documented(section);
        assert_eq!(known, documented.iter().map(String::as_str).collect(), "docs/coredns.md, {section}");
        let never: Vec<&&str> = known.iter().filter(|name| !self.seen.contains_key(**name)).collect();
        assert!(never.is_empty(), "nothing differs by {never:?} any more");
    }
}

/// The names in the first column of the table below a heading.
fn documented(section: &str) -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/coredns.md");
    let text = std::fs::read_to_string(page).unwrap();
    let body = text.split("\n## ").find(|part| part.starts_with(section)).unwrap_or_else(|| panic!("no {section}"));
    let rows = body.lines().filter(|line| line.starts_with("| `"));
    // A row may be about several.
    let first = rows.filter_map(|row| row.split('|').nth(1));
    first.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}
