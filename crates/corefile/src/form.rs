//! How directives and options are written: how many words follow, how often one may stand. Checked here
//! once, so that whoever reads them only has to understand the words.

use crate::parse::Line;
use crate::problem::Report;
use crate::suggest::nearest;
use std::collections::HashSet;

/// For what takes any number of words.
pub(crate) const ANY: usize = usize::MAX;

/// A directive or an option.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) name: &'static str,
    /// What follows the name, as in a reference.
    usage: &'static str,
    least: usize,
    most: usize,
    again: Again,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Again {
    /// It adds.
    Adds,
    /// The later one counts, which is worth a warning.
    Replaces,
    /// CoreDNS knows it, and it is not served here; `usage` says what to do.
    NotServed,
}

/// An option that stands once.
pub(crate) const fn once(name: &'static str, usage: &'static str, least: usize, most: usize) -> Form {
    Form { name, usage, least, most, again: Again::Replaces }
}

/// An option that may stand several times.
pub(crate) const fn many(name: &'static str, usage: &'static str, least: usize, most: usize) -> Form {
    Form { name, usage, least, most, again: Again::Adds }
}

/// An option that is there, and not served.
pub(crate) const fn not_served(name: &'static str, instead: &'static str) -> Form {
    Form { name, usage: instead, least: 0, most: ANY, again: Again::NotServed }
}

impl Form {
    pub(crate) fn usage(&self) -> &'static str {
        self.usage
    }

    pub(crate) fn may_repeat(&self) -> bool {
        self.again == Again::Adds
    }

    /// Whether a line has as many words as it should; reported if not.
    pub(crate) fn fits(&self, line: &Line, report: &mut Report) -> bool {
        let usage = || format!("write `{}{}{}`", self.name, if self.usage.is_empty() { "" } else { " " }, self.usage);
        if self.again == Again::NotServed {
            let name = &line.name.text;
            report.error("not-served", line.place(), format!("`{name}` is not served here")).help(self.usage);
            return false;
        }
        if line.args.len() < self.least {
            let missing = format!("`{}` needs more arguments", self.name);
            report.error("missing-argument", line.place(), missing).help(usage());
            return false;
        }
        if let Some(extra) = line.args.get(self.most) {
            let message = match self.most {
                0 => format!("`{}` takes no arguments", self.name),
                most => {
                    format!("`{}` takes no more than {most} argument{}", self.name, if most == 1 { "" } else { "s" })
                }
            };
            report.error("extra-argument", &extra.place, message).help(usage());
            return false;
        }
        true
    }
}

impl Report {
    /// The options of a directive, those that fit their forms.
    pub(crate) fn options<'l>(&mut self, directive: &'l Line, forms: &[Form]) -> Vec<&'l Line> {
        let mut seen = HashSet::new();
        let mut fitting = Vec::new();
        for line in directive.lines() {
            let Some(form) = forms.iter().find(|form| *form.name == *line.name.text) else {
                if !self.is_placeholder(line) {
                    self.unknown_option(directive, line, forms);
                }
                continue;
            };
            if !form.fits(line, self) {
                continue;
            }
            self.no_block(line);
            if !seen.insert(form.name) && form.again == Again::Replaces {
                self.warning("set-twice", line.place(), format!("`{}` is set twice", form.name))
                    .help("the later one counts");
            }
            fitting.push(line);
        }
        fitting
    }

    fn unknown_option(&mut self, directive: &Line, line: &Line, forms: &[Form]) {
        let (name, word) = (&directive.name.text, &line.name.text);
        let problem = self.error("unknown-option", line.place(), format!("`{name}` has no option `{word}`"));
        let known = || forms.iter().filter(|form| form.again != Again::NotServed).map(|form| form.name);
        if let Some(near) = nearest(word, known()) {
            problem.help(format!("did you mean `{near}`?"));
        } else if known().next().is_some() {
            problem.help(format!("it has {}", all_of(known())));
        } else {
            problem.help("it has no options");
        }
    }

    /// `...`, as documents have it where something is left to the reader.
    pub(crate) fn is_placeholder(&mut self, line: &Line) -> bool {
        let is = matches!(&*line.name.text, "..." | "…") && line.args.is_empty();
        if is {
            self.warning("placeholder", line.place(), "`...` stands for nothing")
                .help("write the options, or remove it");
        }
        is
    }

    /// Reports the block of a line that cannot have one.
    pub(crate) fn no_block(&mut self, line: &Line) {
        if let Some(block) = &line.block {
            self.error("extra-block", &block.open, format!("`{}` has no block", line.name.text))
                .help("remove it, or begin a new line before it");
        }
    }
}

/// `a`, `b` and `c`.
pub(crate) fn all_of<'a>(words: impl Iterator<Item = &'a str>) -> String {
    list(words, "and")
}

/// `a`, `b` or `c`.
pub(crate) fn one_of<'a>(words: impl Iterator<Item = &'a str>) -> String {
    list(words, "or")
}

fn list<'a>(words: impl Iterator<Item = &'a str>, before_last: &str) -> String {
    let words: Vec<String> = words.map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, first)) => format!("{} {before_last} {last}", first.join(", ")),
        None => String::new(),
    }
}
