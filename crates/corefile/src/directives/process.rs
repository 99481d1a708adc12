//! What concerns the process more than its answers: `bind`, `health`, `ready`, `prometheus`, `reload`.

use crate::ListenAt;
use crate::form::{ANY, Form, Words, many, once};
use crate::lexer::Token;
use crate::parse::Line;
use crate::problem::Report;
use namewall_policy::addr::parse_address;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const BIND: Form = many("bind", "ADDRESS|INTERFACE… { except ADDRESS|INTERFACE… }", 1, ANY);
pub(crate) const HEALTH: Form = once("health", "[ADDRESS] { lameduck DURATION }", 0, 1);
pub(crate) const READY: Form = once("ready", "[ADDRESS]", 0, 1);
pub(crate) const PROMETHEUS: Form = once("prometheus", "[ADDRESS]", 0, 1);
pub(crate) const RELOAD: Form = once("reload", "[INTERVAL [JITTER]]|off", 0, 2);

/// An option of `bind`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BindOption {
    Except,
}

const BIND_OPTIONS: Words<BindOption> =
    Words { served: &[(BindOption::Except, many("except", "ADDRESS|INTERFACE…", 1, ANY))], not_served: &[] };

/// An option of `health`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HealthOption {
    Lameduck,
}

const HEALTH_OPTIONS: Words<HealthOption> =
    Words { served: &[(HealthOption::Lameduck, once("lameduck", "DURATION", 1, 1))], not_served: &[] };

/// Where queries come in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bind {
    pub at: Vec<BindAt>,
    pub except: Vec<BindAt>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BindAt {
    Address(IpAddr),
    /// All addresses of an interface.
    Interface(Arc<str>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    pub at: ListenAt,
    /// How long queries are answered after it is told to end.
    pub lameduck: Duration,
}

/// How often the Corefile is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reload {
    Off,
    Every { interval: Duration, jitter: Duration },
}

pub(crate) fn bind(line: &Line, report: &mut Report) -> Bind {
    let mut bind = Bind { at: bind_at(&line.args, report), except: Vec::new() };
    for (BindOption::Except, option) in report.options(line, &BIND_OPTIONS) {
        bind.except.extend(bind_at(&option.args, report));
    }
    bind
}

fn bind_at(words: &[Token], report: &mut Report) -> Vec<BindAt> {
    let mut read = Vec::new();
    for word in words {
        let bare = word.text.trim_start_matches('[').trim_end_matches(']');
        // What the kernel takes for the name of an interface.
        let is_interface =
            (1..16).contains(&word.text.len()) && !word.text.contains(['/', ':']) && word.text.is_ascii();
        if let Some(address) = parse_address(bare) {
            read.push(BindAt::Address(address));
        } else if is_interface {
            read.push(BindAt::Interface(word.text.clone()));
        } else {
            report
                .error("bad-address", &word.place, format!("`{}` is neither an address nor an interface", word.text))
                .help("the port stands in the key of the server block, like `.:1053`");
        }
    }
    read
}

pub(crate) fn health(line: &Line, report: &mut Report) -> Health {
    let mut health = Health { at: listen(line, None, 8080, report), lameduck: Duration::ZERO };
    for (HealthOption::Lameduck, option) in report.options(line, &HEALTH_OPTIONS) {
        health.lameduck = report.duration(&option.args[0]).unwrap_or_default();
    }
    health
}

pub(crate) fn ready(line: &Line, report: &mut Report) -> ListenAt {
    report.no_options(line);
    listen(line, None, 8181, report)
}

pub(crate) fn prometheus(line: &Line, report: &mut Report) -> ListenAt {
    report.no_options(line);
    listen(line, Some("localhost"), 9153, report)
}

fn listen(line: &Line, host: Option<&str>, port: u16, report: &mut Report) -> ListenAt {
    let written = line.args.first().and_then(|word| report.listen(word));
    let name = || host.and_then(|host| host.parse().ok()).map(crate::Host::Name);
    written.unwrap_or_else(|| ListenAt { host: name(), port })
}

pub(crate) fn reload(line: &Line, report: &mut Report) -> Reload {
    report.no_options(line);
    let second = Duration::from_secs(1);
    if let [off] = &line.args[..]
        && &*off.text == "off"
    {
        return Reload::Off;
    }
    let interval = line.args.first().and_then(|word| report.duration(word)).unwrap_or(30 * second);
    let jitter = line.args.get(1).and_then(|word| report.duration(word)).unwrap_or(interval / 2);
    if let (Some(word), true) = (line.args.first(), interval < 2 * second) {
        report.error("bad-duration", &word.place, "the interval is less than 2s").help("or write `reload off`");
    }
    if let (Some(word), true) = (line.args.get(1), jitter < second && !jitter.is_zero()) {
        report.error("bad-duration", &word.place, "the jitter is less than 1s").help("0s is none");
    }
    // More would be before it is time at all.
    Reload::Every { interval, jitter: jitter.min(interval / 2) }
}
