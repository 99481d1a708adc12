//! What is told of what happens: `log`, `errors`, `dnstap`.

use crate::form::{ANY, Form, Words, many, once};
use crate::lexer::Token;
use crate::parse::Line;
use crate::problem::Report;
use crate::values::path;
use crate::{HostPort, Text, Zone};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const LOG: Form = many("log", "[NAME…] [FORMAT] { class CLASS… }", 0, ANY);
pub(crate) const ERRORS: Form = once("errors", "{ … }", 0, 0);
pub(crate) const DNSTAP: Form = many("dnstap", "SOCKET [full] { … }", 1, 2);

/// An option of `log`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LogOption {
    Class,
}

const LOG_OPTIONS: Words<LogOption> =
    Words { served: &[(LogOption::Class, many("class", "all|success|denial|error…", 1, ANY))], not_served: &[] };
/// An option of `errors`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ErrorsOption {
    StackTrace,
    Consolidate,
}

const ERRORS_OPTIONS: Words<ErrorsOption> = Words {
    served: &[
        (ErrorsOption::StackTrace, once("stacktrace", "", 0, 0)),
        (ErrorsOption::Consolidate, many("consolidate", "DURATION REGEXP [LEVEL] [show_first]", 2, 4)),
    ],
    not_served: &[],
};
/// An option of `dnstap`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DnstapOption {
    Identity,
    Version,
    Extra,
    SkipVerify,
}

const DNSTAP_OPTIONS: Words<DnstapOption> = Words {
    served: &[
        (DnstapOption::Identity, once("identity", "IDENTITY", 1, 1)),
        (DnstapOption::Version, once("version", "VERSION", 1, 1)),
        (DnstapOption::Extra, once("extra", "FORMAT", 1, 1)),
        (DnstapOption::SkipVerify, once("skipverify", "", 0, 0)),
    ],
    not_served: &[],
};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Log {
    pub zones: Vec<Zone>,
    /// With `{type}` and the like in it; the common one, if there is none.
    pub format: Option<Text>,
    pub classes: Vec<Class>,
}

/// Which answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    All,
    Success,
    Denial,
    Error,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Errors {
    pub consolidate: Vec<Consolidate>,
    pub stacktrace: bool,
}

/// Errors alike are told once in a while.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Consolidate {
    pub every: Duration,
    /// A regular expression.
    pub like: Text,
    pub level: Level,
    /// Whether the first is told at once.
    pub show_first: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Error,
    Warning,
    Info,
    Debug,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dnstap {
    pub to: TapAt,
    /// Whether messages are told whole.
    pub full: bool,
    pub identity: Option<Arc<str>>,
    pub version: Option<Arc<str>>,
    /// With `{type}` and the like in it.
    pub extra: Option<Text>,
    pub skip_verify: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TapAt {
    Unix(PathBuf),
    Tcp(HostPort),
    Tls(HostPort),
}

pub(crate) fn log(line: &Line, report: &mut Report) -> Log {
    let (format, names) = match line.args.split_last() {
        Some((last, names)) if last.text.contains('{') => (Some(last.content()), names),
        _ => (None, &line.args[..]),
    };
    let classes =
        [("all", Class::All), ("success", Class::Success), ("denial", Class::Denial), ("error", Class::Error)];
    let mut log = Log { zones: report.fallthrough(names), format, classes: Vec::new() };
    for (LogOption::Class, option) in report.options(line, &LOG_OPTIONS) {
        log.classes.extend(option.args.iter().filter_map(|word| report.word(word, &classes)));
    }
    if log.classes.is_empty() {
        log.classes.push(Class::All);
    }
    log
}

pub(crate) fn errors(line: &Line, report: &mut Report) -> Errors {
    let mut errors = Errors::default();
    for (key, option) in report.options(line, &ERRORS_OPTIONS) {
        match key {
            ErrorsOption::StackTrace => errors.stacktrace = true,
            ErrorsOption::Consolidate => errors.consolidate.extend(consolidate(&option.args, report)),
        }
    }
    errors
}

fn consolidate(args: &[Token], report: &mut Report) -> Option<Consolidate> {
    let every = report.duration(&args[0])?;
    let mut read = Consolidate { every, like: args[1].content(), level: Level::Error, show_first: false };
    for word in &args[2..] {
        if &*word.text == "show_first" {
            read.show_first = true;
            continue;
        }
        let levels =
            [("error", Level::Error), ("warning", Level::Warning), ("info", Level::Info), ("debug", Level::Debug)];
        read.level = report.word(word, &levels)?;
    }
    Some(read)
}

pub(crate) fn dnstap(line: &Line, report: &mut Report) -> Option<Dnstap> {
    let socket = &line.args[0];
    let full = line.args.get(1).is_some_and(|word| report.word(word, &[("full", ())]).is_some());
    let to = match socket.text.split_once("://") {
        Some(("tcp", at)) => TapAt::Tcp(report.host_port(at, socket, 6000)?),
        Some(("tls", at)) => TapAt::Tls(report.host_port(at, socket, 6000)?),
        Some(("unix", at)) => TapAt::Unix(at.into()),
        Some((scheme, _)) => {
            report
                .error("bad-address", &socket.place, format!("nothing is told over `{scheme}://`"))
                .help("write the path of a socket, `tcp://HOST:PORT` or `tls://HOST:PORT`");
            return None;
        }
        None => TapAt::Unix(path(socket)),
    };
    let mut dnstap = Dnstap { to, full, identity: None, version: None, extra: None, skip_verify: false };
    for (key, option) in report.options(line, &DNSTAP_OPTIONS) {
        let first = option.args.first();
        match key {
            DnstapOption::Identity => dnstap.identity = first.map(|word| word.text.clone()),
            DnstapOption::Version => dnstap.version = first.map(|word| word.text.clone()),
            DnstapOption::Extra => dnstap.extra = first.map(Token::content),
            DnstapOption::SkipVerify => dnstap.skip_verify = true,
        }
    }
    Some(dnstap)
}
