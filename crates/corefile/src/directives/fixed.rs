//! Directives whose answers are the same everywhere: `chaos` and `local`; and `trace`, which does nothing here.

use crate::form::{ANY, Form, Words, once};
use crate::parse::Line;
use crate::problem::Report;
use std::sync::Arc;

pub(crate) const CHAOS: Form = once("chaos", "[VERSION [AUTHOR…]]", 0, ANY);
pub(crate) const LOCAL: Form = once("local", "{ localhost_prefix on|off }", 0, 0);
pub(crate) const TRACE: Form = once("trace", "[TYPE] [ENDPOINT]", 0, 2);

/// An option of `local`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LocalOption {
    Prefix,
}

const LOCAL_OPTIONS: Words<LocalOption> =
    Words { served: &[(LocalOption::Prefix, once("localhost_prefix", "on|off", 1, 1))], not_served: &[] };

/// Who serves, for questions of the class CH.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chaos {
    /// The server's own, if there is none.
    pub version: Option<Arc<str>>,
    pub authors: Vec<Arc<str>>,
}

/// Names of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalNames {
    /// Whether `localhost.example.org` is this machine, too.
    pub has_prefix: bool,
}

pub(crate) fn chaos(line: &Line, report: &mut Report) -> Chaos {
    report.no_options(line);
    for word in line.args.iter().filter(|word| word.text.len() > 255) {
        report.error("bad-word", &word.place, "a text of an answer has up to 255 bytes").help("write less");
    }
    let mut authors: Vec<Arc<str>> = line.args.iter().skip(1).map(|author| author.text.clone()).collect();
    authors.sort();
    authors.dedup();
    Chaos { version: line.args.first().map(|version| version.text.clone()), authors }
}

pub(crate) fn local(line: &Line, report: &mut Report) -> LocalNames {
    let mut local = LocalNames { has_prefix: true };
    for (LocalOption::Prefix, option) in report.options(line, &LOCAL_OPTIONS) {
        local.has_prefix = report.word(&option.args[0], &[("on", true), ("off", false)]).unwrap_or(true);
    }
    local
}

/// Read, whatever its options are, and warned of.
pub(crate) fn trace(line: &Line, report: &mut Report) {
    report.warning("no-effect", line.place(), "`trace` does nothing here").help("use `dnstap` or `log`");
}
