//! What is wrong with a Corefile, or probably not meant, with the line it stands on.

use crate::FileSpan;
use namewall_policy::{Finding, Severity};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// More are counted, not kept: the first few say enough.
const MOST: usize = 100;
/// Characters of a line that are shown.
const WINDOW: usize = 120;
/// Characters of a message.
const MOST_CHARACTERS: usize = 600;

/// One thing to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    pub severity: Severity,
    /// A stable name for this kind of problem, like `unknown-directive`.
    pub code: &'static str,
    pub message: String,
    /// What would be accepted, or what to do.
    pub help: Option<String>,
    pub place: FileSpan,
    /// The line of the file.
    pub line: Arc<str>,
}

impl Problem {
    fn new(severity: Severity, code: &'static str, place: &FileSpan, message: String) -> Self {
        let message = clean(&message);
        Self { severity, code, message, help: None, place: place.clone(), line: Arc::from("") }
    }

    pub(crate) fn help(&mut self, help: impl Into<String>) {
        self.help = Some(clean(&help.into()));
    }
}

impl From<&Problem> for Finding {
    fn from(problem: &Problem) -> Self {
        let message = match &problem.help {
            Some(help) => format!("{}; {help}", problem.message),
            None => problem.message.clone(),
        };
        let finding = match problem.severity {
            Severity::Error => Finding::error(problem.code, "Corefile", message),
            Severity::Warning => Finding::warning(problem.code, "Corefile", message),
            Severity::Hint => Finding::hint(problem.code, "Corefile", message),
        };
        finding.from_source(Some(problem.place.source()))
    }
}

/// ```text
/// Corefile:7:4: error: unknown directive `firewal`
///   7 |    firewal . query {
///     |    ^^^^^^^ did you mean `firewall`?
/// ```
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}: {}", self.place, self.severity, self.message)?;
        let (shown, before) = window(&self.line, (self.place.column as usize).saturating_sub(1));
        let number = self.place.line.to_string();
        let width = number.len().max(3);
        writeln!(f, "{number:>width$} | {shown}")?;
        // A tab is as wide as the tab above it.
        let indent: String = shown.chars().take(before).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let room = shown.chars().count().saturating_sub(before).max(1);
        let carets = "^".repeat((self.place.length as usize).clamp(1, room));
        write!(f, "{:width$} | {indent}{carets}", "")?;
        match &self.help {
            Some(help) => write!(f, " {help}"),
            None => Ok(()),
        }
    }
}

/// A sentence with words of the file in it, as one line that is not too long. Nothing in it moves a
/// terminal.
fn clean(text: &str) -> String {
    let mut shown: String = text.chars().take(MOST_CHARACTERS).map(visible).collect();
    if text.chars().nth(MOST_CHARACTERS).is_some() {
        shown.push('…');
    }
    shown
}

fn visible(c: char) -> char {
    if c.is_control() && c != '\t' { '·' } else { c }
}

/// The part of a line around a column, and where the column is in it.
fn window(line: &str, column: usize) -> (String, usize) {
    let start = if line.chars().nth(WINDOW).is_none() { 0 } else { column.saturating_sub(WINDOW / 3) };
    let shown = line.chars().skip(start).take(WINDOW).map(visible).collect();
    (shown, column - start)
}

/// Why a Corefile is refused: every error in it, and the warnings found on the way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CorefileErrors {
    pub problems: Vec<Problem>,
    /// How many more there were.
    pub left_out: usize,
}

impl fmt::Display for CorefileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            write!(f, "{}{problem}", if at > 0 { "\n" } else { "" })?;
        }
        match self.left_out {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for CorefileErrors {}

/// Where problems are collected while a Corefile is read.
#[derive(Default)]
pub(crate) struct Report {
    problems: Vec<Problem>,
    left_out: usize,
    /// Whether one of those left out was an error.
    is_refused: bool,
    /// By name: the text, and how many files were before.
    texts: HashMap<Arc<str>, (Arc<str>, usize)>,
    /// Stands in for a problem that is left out, so that it can be told its help.
    spare: Option<Problem>,
}

impl Report {
    /// Whether there is an error already.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// A file whose lines may be shown.
    pub(crate) fn add_file(&mut self, name: &Arc<str>, text: &Arc<str>) {
        let before = self.texts.len();
        self.texts.entry(name.clone()).or_insert_with(|| (text.clone(), before));
    }

    pub(crate) fn error(&mut self, code: &'static str, place: &FileSpan, message: impl Into<String>) -> &mut Problem {
        self.is_refused = true;
        self.add(Problem::new(Severity::Error, code, place, message.into()))
    }

    pub(crate) fn warning(&mut self, code: &'static str, place: &FileSpan, message: impl Into<String>) -> &mut Problem {
        self.add(Problem::new(Severity::Warning, code, place, message.into()))
    }

    pub(crate) fn hint(&mut self, code: &'static str, place: &FileSpan, message: impl Into<String>) -> &mut Problem {
        self.add(Problem::new(Severity::Hint, code, place, message.into()))
    }

    fn add(&mut self, mut problem: Problem) -> &mut Problem {
        // A snippet that is imported twice is wrong once.
        let same = |known: &Problem| known.place == problem.place && known.message == problem.message;
        if let Some(at) = self.problems.iter().position(same) {
            return &mut self.problems[at];
        }
        if self.problems.len() >= MOST {
            self.left_out += 1;
            return self.spare.insert(problem);
        }
        let number = (problem.place.line as usize).saturating_sub(1);
        if let Some(line) = self.texts.get(&problem.place.file).and_then(|(text, _)| text.split('\n').nth(number)) {
            problem.line = line.trim_start_matches('\u{feff}').trim_end_matches('\r').into();
        }
        self.problems.push(problem);
        let last = self.problems.len() - 1;
        &mut self.problems[last]
    }

    /// What was read and what to say of it, or why it is refused.
    pub(crate) fn finish<T>(mut self, read: impl FnOnce(Vec<Problem>) -> T) -> Result<T, CorefileErrors> {
        self.problems.sort_by_key(|Problem { place, .. }| {
            (self.texts.get(&place.file).map(|(_, before)| *before), place.line, place.column)
        });
        if self.is_refused {
            return Err(CorefileErrors { problems: self.problems, left_out: self.left_out });
        }
        Ok(read(self.problems))
    }
}
