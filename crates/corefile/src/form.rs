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
}

/// The directives of a server block, or the options of a directive. Each has a key, which is what is matched once
/// its name is read: the compiler sees to it that nothing in this table is taken for something else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'a, K: 'a> {
    pub(crate) served: &'a [(K, Form)],
    /// Names that CoreDNS knows and that are not served here, and what to do instead.
    pub(crate) not_served: &'a [(&'static str, &'static str)],
}

impl<K: Copy> Words<'_, K> {
    pub(crate) fn find(&self, name: &str) -> Option<(K, Form)> {
        self.served.iter().find(|(_, form)| form.name == name).copied()
    }

    pub(crate) fn instead_of(&self, name: &str) -> Option<&'static str> {
        self.not_served.iter().find(|(own, _)| *own == name).map(|(_, instead)| *instead)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.served.iter().map(|(_, form)| form.name)
    }
}

/// An option that stands once.
pub(crate) const fn once(name: &'static str, usage: &'static str, least: usize, most: usize) -> Form {
    Form { name, usage, least, most, again: Again::Replaces }
}

/// An option that may stand several times.
pub(crate) const fn many(name: &'static str, usage: &'static str, least: usize, most: usize) -> Form {
    Form { name, usage, least, most, again: Again::Adds }
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
    /// The options of a directive with their keys, those that fit their forms.
    pub(crate) fn options<'l, K: Copy>(&mut self, directive: &'l Line, words: &Words<'_, K>) -> Vec<(K, &'l Line)> {
        let mut seen = HashSet::new();
        let mut fitting = Vec::new();
        for line in directive.lines() {
            let Some((key, form)) = words.find(&line.name.text) else {
                if !self.is_placeholder(line) {
                    self.unknown_option(directive, line, words);
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
            fitting.push((key, line));
        }
        fitting
    }

    /// Reports the options of a directive that has none.
    pub(crate) fn no_options(&mut self, directive: &Line) {
        let none: Words<'_, ()> = Words { served: &[], not_served: &[] };
        self.options(directive, &none);
    }

    fn unknown_option<K: Copy>(&mut self, directive: &Line, line: &Line, words: &Words<'_, K>) {
        let (name, word) = (&directive.name.text, &line.name.text);
        if let Some(instead) = words.instead_of(word) {
            self.error("not-served", line.place(), format!("`{word}` is not served here")).help(instead);
            return;
        }
        let problem = self.error("unknown-option", line.place(), format!("`{name}` has no option `{word}`"));
        if let Some(near) = nearest(word, words.names()) {
            problem.help(format!("did you mean `{near}`?"));
        } else if words.names().next().is_some() {
            problem.help(format!("it has {}", all_of(words.names())));
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
