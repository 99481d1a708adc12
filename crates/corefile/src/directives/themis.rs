//! `themis NAME { … }`: Infoblox' policy engine, asked over gRPC, or its policies evaluated here.

use super::decision::{self, Decision};
use crate::form::{ANY, Form, Words, many, once};
use crate::lexer::Token;
use crate::parse::Line;
use crate::problem::Report;
use crate::values::{path, signed_duration};
use crate::{Host, HostPort, Zone};
use namewall_expression::Fact;
use namewall_policy::domain::DomainName;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const THEMIS: Form = many("themis", "NAME { … }", 1, 1);

/// An option of `themis`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ThemisOption {
    Pdp,
    File,
    Endpoint,
    Attribute,
    Streams,
    Transfer,
    Metrics,
    ConnectionTimeout,
    Log,
    MaxRequestSize,
    MaxResponseAttributes,
    Cache,
    DebugQuerySuffix,
    DebugId,
    Passthrough,
    Timeout,
    DefaultDecision,
}

pub(super) const OPTIONS: Words<ThemisOption> = Words {
    served: &[
        (ThemisOption::Pdp, once("pdp", "POLICY [CONTENT…]", 1, ANY)),
        (ThemisOption::File, once("file", "POLICY [CONTENT…]", 1, ANY)),
        (ThemisOption::Endpoint, once("endpoint", "HOST:PORT…", 1, ANY)),
        (ThemisOption::Attribute, many("attr", "NAME LABEL [string|domain|address]", 2, 3)),
        (ThemisOption::Streams, once("streams", "COUNT [round-robin|hot-spot]", 1, 2)),
        (ThemisOption::Transfer, many("transfer", "ATTRIBUTE…", 1, ANY)),
        (ThemisOption::Metrics, many("metrics", "ATTRIBUTE…", 1, ANY)),
        (ThemisOption::ConnectionTimeout, once("connection_timeout", "DURATION|no", 1, 1)),
        (ThemisOption::Log, once("log", "", 0, 0)),
        (ThemisOption::MaxRequestSize, once("max_request_size", "[auto] BYTES", 1, 2)),
        (ThemisOption::MaxResponseAttributes, once("max_response_attributes", "auto|COUNT", 1, 1)),
        (ThemisOption::Cache, once("cache", "[TTL [MEGABYTES]]", 0, 2)),
        (ThemisOption::DebugQuerySuffix, once("debug_query_suffix", "SUFFIX.", 1, 1)),
        (ThemisOption::DebugId, once("debug_id", "ID", 1, 1)),
        (ThemisOption::Passthrough, once("passthrough", "SUFFIX…", 1, ANY)),
        (ThemisOption::Timeout, once("timeout", "DURATION", 1, 1)),
        (ThemisOption::DefaultDecision, decision::FORM),
    ],
    not_served: &[
        ("dnstap", "use the directive `dnstap`: what Themis says is in its extra field"),
        ("validation1", "what a query is told is `attr`, and `domain_name`, `dns_qtype`, `source_ip` always"),
        ("validation2", "what an answer is told is `attr` and `transfer`, and `address` always"),
    ],
};

/// Themis' own port.
const PORT: u16 = 5555;

#[derive(Clone, PartialEq, Debug)]
pub struct Themis {
    pub at: ThemisAt,
    pub attributes: Vec<Attribute>,
    /// How many questions may be under way at once, and on which connection the next goes.
    pub streams: Option<u32>,
    pub balance: Balance,
    /// Attributes of the answer for a query that are sent with the question for its answer.
    pub transfer: Vec<Arc<str>>,
    /// Attributes that are counted by value.
    pub metrics: Vec<Arc<str>>,
    /// How long a question waits for a server to come up.
    pub connection_timeout: Patience,
    pub log: bool,
    /// Bytes of a question; none is as many as it takes.
    pub max_request_size: Option<u32>,
    /// Attributes of an answer; none is as many as it has.
    pub max_response_attributes: Option<u32>,
    pub cache: Option<DecisionCache>,
    pub debug: Debugging,
    /// What counts if it fails.
    pub default_decision: Option<Decision>,
    /// Names that it is not asked about, and allows.
    pub passthrough: Vec<Zone>,
    pub timeout: Option<Duration>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ThemisAt {
    /// Over gRPC.
    Remote(Vec<HostPort>),
    /// In this process.
    Here { policy: PathBuf, content: Vec<PathBuf> },
}

/// A fact that is sent, under the name and the type the policy knows it by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attribute {
    pub name: Arc<str>,
    pub fact: Fact,
    pub kind: AttributeKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttributeKind {
    String,
    Domain,
    Address,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Balance {
    #[default]
    RoundRobin,
    /// The next connection only if this one is busy.
    HotSpot,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Patience {
    #[default]
    Forever,
    For(Duration),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecisionCache {
    pub ttl: Duration,
    pub megabytes: Option<u32>,
}

/// Queries for `NAME.SUFFIX CH TXT` say how NAME is judged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Debugging {
    pub suffix: Option<DomainName>,
    /// Who says it.
    pub id: Option<Arc<str>>,
}

pub(super) const KINDS: [(&str, AttributeKind); 3] =
    [("string", AttributeKind::String), ("domain", AttributeKind::Domain), ("address", AttributeKind::Address)];

impl Default for Themis {
    fn default() -> Self {
        let here = HostPort { host: Host::Address(Ipv4Addr::LOCALHOST.into()), port: PORT };
        Self {
            at: ThemisAt::Remote(vec![here]),
            attributes: Vec::new(),
            streams: None,
            balance: Balance::default(),
            transfer: Vec::new(),
            metrics: Vec::new(),
            connection_timeout: Patience::default(),
            log: false,
            max_request_size: None,
            max_response_attributes: None,
            cache: None,
            debug: Debugging::default(),
            default_decision: None,
            passthrough: Vec::new(),
            timeout: None,
        }
    }
}

pub(crate) fn read(line: &Line, report: &mut Report) -> Themis {
    let mut themis = Themis::default();
    let options = report.options(line, &OPTIONS);
    let mut wheres = options.iter().filter(|(key, _)| key.is_where()).map(|(_, option)| option);
    let (first, second) = (wheres.next(), wheres.next());
    if let (Some(first), Some(second)) = (first, second)
        && first.name.text != second.name.text
    {
        report
            .error("two-engines", second.place(), "a Themis is asked over gRPC or evaluated here, from one policy")
            .help(format!("remove `{}` or `{}`", first.name.text, second.name.text));
    }
    if first.is_none() {
        report
            .warning("no-endpoint", line.place(), format!("`{}` has neither endpoint nor policy", line.args[0].text))
            .help(format!("Themis' own port is asked: 127.0.0.1:{PORT}"));
    }
    for (key, option) in options {
        themis.set(key, option, report);
    }
    themis
}

impl ThemisOption {
    /// Whether it says where the engine is.
    pub(super) fn is_where(self) -> bool {
        matches!(self, Self::Pdp | Self::File | Self::Endpoint)
    }
}

impl Themis {
    /// Takes one of [`OPTIONS`].
    pub(super) fn set(&mut self, key: ThemisOption, option: &Line, report: &mut Report) {
        let args = &option.args;
        match key {
            ThemisOption::Pdp | ThemisOption::File => {
                self.at = ThemisAt::Here { policy: path(&args[0]), content: args[1..].iter().map(path).collect() };
            }
            ThemisOption::Endpoint => self.at = ThemisAt::Remote(endpoints(args, report)),
            ThemisOption::Attribute => self.attributes.extend(attribute(args, report)),
            ThemisOption::Streams => {
                self.streams = report.number(&args[0], 1..=65_535);
                let balances = [("round-robin", Balance::RoundRobin), ("hot-spot", Balance::HotSpot)];
                self.balance = args.get(1).and_then(|word| report.word(word, &balances)).unwrap_or_default();
            }
            ThemisOption::Transfer => self.transfer.extend(args.iter().map(|word| word.text.clone())),
            ThemisOption::Metrics => self.metrics.extend(args.iter().map(|word| word.text.clone())),
            ThemisOption::ConnectionTimeout => self.connection_timeout = patience(&args[0], report),
            ThemisOption::Log => self.log = true,
            ThemisOption::MaxRequestSize => self.max_request_size = request_size(args, report),
            ThemisOption::MaxResponseAttributes if is_auto(&args[0]) => self.max_response_attributes = None,
            ThemisOption::MaxResponseAttributes => {
                self.max_response_attributes = report.number(&args[0], 0..=i32::MAX as u32)
            }
            ThemisOption::Cache => self.cache = cache(args, report),
            ThemisOption::DebugQuerySuffix => self.debug.suffix = report.name(&args[0]),
            ThemisOption::DebugId => self.debug.id = Some(args[0].text.clone()),
            ThemisOption::Passthrough => self.passthrough = report.zones(args),
            ThemisOption::Timeout => self.timeout = report.duration(&args[0]),
            ThemisOption::DefaultDecision => self.default_decision = decision::read(option, report),
        }
    }
}

fn is_auto(word: &Token) -> bool {
    word.text.eq_ignore_ascii_case("auto")
}

/// Separated by white space, commas or both.
fn endpoints(args: &[Token], report: &mut Report) -> Vec<HostPort> {
    let mut endpoints = Vec::new();
    for word in args {
        for part in word.text.split(',').filter(|part| !part.is_empty()) {
            endpoints.extend(report.host_port(part, word, PORT));
        }
    }
    endpoints
}

/// `NAME LABEL [TYPE]`, or `NAME TYPE LABEL` in the original form (docs/semantics.md, S9).
fn attribute(args: &[Token], report: &mut Report) -> Option<Attribute> {
    let is_kind = |word: &Token| KINDS.iter().any(|(kind, _)| word.text.eq_ignore_ascii_case(kind));
    let (name, label, kind) = match args {
        [name, kind, label] if is_kind(kind) && !is_kind(label) => (name, label, Some(kind)),
        [name, label, kind] => (name, label, Some(kind)),
        [name, label] => (name, label, None),
        _ => return None,
    };
    let kind = match kind {
        Some(kind) => report.word(kind, &KINDS)?,
        None => AttributeKind::String,
    };
    Some(Attribute { name: name.text.clone(), fact: Fact::named(&label.text), kind })
}

fn patience(word: &Token, report: &mut Report) -> Patience {
    if word.text.eq_ignore_ascii_case("no") {
        return Patience::Forever;
    }
    match signed_duration(&word.text) {
        // Less than nothing is without end, as the plugin has it.
        Some((true, _)) => Patience::Forever,
        Some((false, duration)) => Patience::For(duration),
        None => {
            report.bad_duration(word);
            Patience::Forever
        }
    }
}

/// With `auto` a size is only a guess, and limits nothing.
fn request_size(args: &[Token], report: &mut Report) -> Option<u32> {
    match args {
        [auto] if is_auto(auto) => None,
        [auto, size] if is_auto(auto) => {
            report.number(size, 0..=i32::MAX as u32);
            None
        }
        [size] => report.number(size, 0..=i32::MAX as u32),
        [size, ..] => {
            report.error("bad-word", &size.place, "two sizes").help("write `max_request_size [auto] BYTES`");
            None
        }
        [] => None,
    }
}

fn cache(args: &[Token], report: &mut Report) -> Option<DecisionCache> {
    let ttl = match args.first() {
        Some(word) => report.duration(word)?,
        None => Duration::from_secs(600),
    };
    if let (true, Some(word)) = (ttl.is_zero(), args.first()) {
        report.error("bad-duration", &word.place, "nothing can be kept for no time").help("write `cache`: it is 10m");
    }
    let megabytes = args.get(1).and_then(|word| report.number(word, 1..=i32::MAX as u32));
    Some(DecisionCache { ttl, megabytes })
}
