//! Directives that change what goes out: `bufsize`, `header`, `minimal` and `nsid`; and `timeouts`.

use crate::form::{ANY, Form, Words, many, once};
use crate::parse::Line;
use crate::problem::Report;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const BUFSIZE: Form = once("bufsize", "[BYTES]", 0, 1);
pub(crate) const HEADER: Form = once("header", "{ query|response set|clear FLAG… }", 0, 0);
pub(crate) const NSID: Form = once("nsid", "[DATA…]", 0, ANY);
pub(crate) const TIMEOUTS: Form = once("timeouts", "{ read, write, idle DURATION }", 0, 0);

/// As much as passes everywhere in one piece, as CoreDNS has it.
const USUAL_SIZE: u32 = 1_232;

/// The longest datagram that is sent to who speaks EDNS0.
pub(crate) fn bufsize(line: &Line, report: &mut Report) -> u16 {
    report.no_options(line);
    let read = line.args.first().and_then(|word| report.number(word, 512..=4096));
    read.unwrap_or(USUAL_SIZE) as u16
}

/// Flags of messages.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HeaderFlags {
    /// Changes of queries, before they are answered.
    pub query: Vec<FlagChange>,
    /// Changes of answers.
    pub response: Vec<FlagChange>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlagChange {
    pub flag: HeaderFlag,
    pub is_set: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderFlag {
    Authoritative,
    RecursionAvailable,
    RecursionDesired,
}

/// An option of `header`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HeaderOption {
    Query,
    Response,
}

const HEADER_OPTIONS: Words<HeaderOption> = Words {
    served: &[
        (HeaderOption::Query, many("query", "set|clear FLAG…", 2, ANY)),
        (HeaderOption::Response, many("response", "set|clear FLAG…", 2, ANY)),
    ],
    not_served: &[
        ("set", "write `response set FLAG…`, as CoreDNS does since 1.12"),
        ("clear", "write `response clear FLAG…`, as CoreDNS does since 1.12"),
    ],
};

const FLAGS: [(&str, HeaderFlag); 3] =
    [("aa", HeaderFlag::Authoritative), ("ra", HeaderFlag::RecursionAvailable), ("rd", HeaderFlag::RecursionDesired)];

pub(crate) fn header(line: &Line, report: &mut Report) -> HeaderFlags {
    let mut flags = HeaderFlags::default();
    needs_option(line, "write `response set|clear FLAG…` or `query set|clear FLAG…` in its block", report);
    for (option, line) in report.options(line, &HEADER_OPTIONS) {
        let Some(is_set) = report.word(&line.args[0], &[("set", true), ("clear", false)]) else { continue };
        let changes = match option {
            HeaderOption::Query => &mut flags.query,
            HeaderOption::Response => &mut flags.response,
        };
        let read = line.args[1..].iter().filter_map(|word| report.word(word, &FLAGS));
        changes.extend(read.map(|flag| FlagChange { flag, is_set }));
    }
    flags
}

/// A directive that does nothing without options is not meant so; CoreDNS refuses it, too.
fn needs_option(line: &Line, help: &str, report: &mut Report) {
    if line.lines().is_empty() {
        let what = format!("`{}` needs an option", line.name.text);
        report.error("missing-argument", line.place(), what).help(help);
    }
}

/// Answers have only what was asked for. CoreDNS refuses a block here, also an empty one.
pub(crate) fn minimal(line: &Line, report: &mut Report) -> bool {
    if let Some(block) = line.block.as_ref().filter(|block| block.lines.is_empty()) {
        report.error("extra-argument", &block.open, "`minimal` has no block").help("remove `{` and `}`");
    }
    report.no_options(line);
    true
}

/// What the server calls itself, to clients that ask for it (RFC 5001). Empty is the host's name.
pub(crate) fn nsid(line: &Line, report: &mut Report) -> Arc<str> {
    report.no_options(line);
    let words: Vec<&str> = line.args.iter().map(|word| &*word.text).collect();
    words.join(" ").into()
}

/// An option of `timeouts`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TimeoutOption {
    Read,
    Write,
    Idle,
}

const TIMEOUT_OPTIONS: Words<TimeoutOption> = Words {
    served: &[
        (TimeoutOption::Read, once("read", "DURATION", 1, 1)),
        (TimeoutOption::Write, once("write", "DURATION", 1, 1)),
        (TimeoutOption::Idle, once("idle", "DURATION", 1, 1)),
    ],
    not_served: &[("maxtcpqueries", "remove it: the number of queries of a client is bounded by the server")],
};

const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a TCP connection may be idle, if that is written.
pub(crate) fn timeouts(line: &Line, report: &mut Report) -> Option<Duration> {
    let mut idle = None;
    needs_option(line, "write `idle DURATION` in its block", report);
    for (option, line) in report.options(line, &TIMEOUT_OPTIONS) {
        let word = &line.args[0];
        // As with CoreDNS, a number is of seconds.
        let seconds = word.text.parse().ok().map(Duration::from_secs);
        let Some(duration) = seconds.or_else(|| report.duration(word)) else { continue };
        if duration < Duration::from_secs(1) || duration > LONGEST_TIMEOUT {
            report.error("bad-word", &word.place, "a timeout is from a second to 24 hours").help("write `10s`");
        }
        match option {
            TimeoutOption::Idle => idle = Some(duration),
            TimeoutOption::Read | TimeoutOption::Write => {
                let why = "it has no effect: a connection that is neither read nor written is idle";
                report.hint("no-effect", &word.place, why).help("write `idle DURATION`");
            }
        }
    }
    idle
}
