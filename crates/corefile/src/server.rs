//! A server block: its keys and what its directives say.

use crate::directives::firewall::NamedEngines;
use crate::directives::*;
use crate::facts;
use crate::form::all_of;
use crate::key::{self, Key};
use crate::lexer::Token;
use crate::parse::{Line, Server};
use crate::problem::Report;
use crate::suggest::nearest;
use crate::{FileSpan, ListenAt};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// What is served for some zones at some ports.
#[derive(Clone, PartialEq, Debug)]
pub struct ServerBlock {
    pub keys: Vec<Key>,
    /// Every address, if it is empty.
    pub bind: Vec<Bind>,
    pub metadata: Option<Metadata>,
    /// Whether `request` is there.
    pub has_request: bool,
    pub edns0: Vec<Edns0>,
    /// In the order in which they are asked.
    pub firewalls: Vec<Firewall>,
    pub engines: Vec<EngineSettings>,
    pub kubernetes: Option<Kubernetes>,
    pub geoip: Vec<GeoIp>,
    pub forwards: Vec<Forward>,
    pub cache: Option<Cache>,
    pub hosts: Option<Hosts>,
    pub files: Vec<ZoneFile>,
    pub templates: Vec<Template>,
    pub acls: Vec<Acl>,
    /// In the order in which they are tried.
    pub rewrites: Vec<Rewrite>,
    /// In the order in which they count.
    pub rpzs: Vec<Rpz>,
    pub dns64: Option<Dns64>,
    pub header: Option<HeaderFlags>,
    /// The longest datagram that is sent to clients that speak EDNS0.
    pub bufsize: Option<u16>,
    /// Whether answers have only what was asked for.
    pub minimal: bool,
    /// What the server calls itself; empty is the host's name.
    pub nsid: Option<Arc<str>>,
    /// How long TCP connections may be idle.
    pub idle_timeout: Option<Duration>,
    /// What clients over TLS and HTTPS are shown.
    pub tls: Option<ServerTls>,
    pub view: Option<View>,
    /// Whether questions for all types of a name get an answer of their own.
    pub any: bool,
    pub chaos: Option<Chaos>,
    pub local: Option<LocalNames>,
    pub dns_name_resolver: Option<DnsNameResolver>,
    pub logs: Vec<Log>,
    pub errors: Option<Errors>,
    pub dnstaps: Vec<Dnstap>,
    pub health: Option<Health>,
    pub ready: Option<ListenAt>,
    pub prometheus: Option<ListenAt>,
    pub reload: Option<Reload>,
    /// Whether addresses in answers change places.
    pub loadbalance: bool,
    /// Whether a loop of forwards is looked for.
    pub detects_loops: bool,
    pub debug: bool,
    pub whoami: bool,
    /// The names of the directives that stand in it, each once, in order of the alphabet.
    pub directives: Vec<&'static str>,
    pub place: FileSpan,
}

/// An engine that rules can name.
#[derive(Clone, PartialEq, Debug)]
pub struct EngineSettings {
    pub name: Arc<str>,
    pub engine: ConfiguredEngine,
    pub place: FileSpan,
}

#[derive(Clone, PartialEq, Debug)]
pub enum ConfiguredEngine {
    /// The language of rules itself, under a name.
    Expression,
    Opa(Box<Opa>),
    Themis(Box<Themis>),
}

impl ConfiguredEngine {
    /// The word of a Corefile.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Expression => "expression",
            Self::Opa(_) => "opa",
            Self::Themis(_) => "themis",
        }
    }
}

pub(crate) fn read(server: Server, report: &mut Report) -> ServerBlock {
    let keys = server.keys.iter().flat_map(|key| key::read(key, report)).collect();
    let mut block = ServerBlock::empty(keys, server.place);
    let mut lists = Vec::new();
    let mut seen: HashMap<&'static str, FileSpan> = HashMap::new();
    for line in server.lines {
        let Some((directive, form)) = DIRECTIVES.find(&line.name.text) else {
            if !report.is_placeholder(&line) {
                unknown(&line, report);
            }
            continue;
        };
        if let Some(first) = seen.get(form.name)
            && !form.may_repeat()
        {
            report
                .error("set-twice", line.place(), format!("`{}` stands once in a server block", form.name))
                .help(format!("it is on line {} already", first.line));
        }
        seen.insert(form.name, line.place().clone());
        if form.fits(&line, report) {
            lists.extend(block.take(directive, line, report));
        }
    }
    check_encryption(&block, seen.get("tls"), report);
    block.directives = seen.keys().copied().collect();
    block.directives.sort_unstable();
    let known = block.known();
    let read: Vec<Firewall> = lists.iter().filter_map(|line| firewall::read(line, &known, report)).collect();
    block.firewalls.extend(firewall::merge(read, report));
    facts::choose_encodings(&mut block, report);
    block
}

/// Keys that are served encrypted need a certificate, and a certificate needs them.
fn check_encryption(block: &ServerBlock, tls: Option<&FileSpan>, report: &mut Report) {
    let encrypted = block.keys.iter().find(|key| key.scheme.is_encrypted());
    match (encrypted, tls) {
        (Some(key), None) => {
            report
                .error("missing-tls", &key.place, format!("`{}://` needs a certificate", key.scheme.word()))
                .help("write `tls CERT KEY` in the server block");
        }
        (None, Some(place)) => {
            report
                .hint("no-effect", place, "`tls` has no effect: clients of this server block use plain DNS")
                .help("write `tls://` or `https://` before the zone; for upstreams write `tls` in `forward`");
        }
        _ => {}
    }
}

fn unknown(line: &Line, report: &mut Report) {
    let word = &*line.name.text;
    if let Some(instead) = DIRECTIVES.instead_of(word) {
        report.error("not-served", line.place(), format!("`{word}` is CoreDNS', and not served here")).help(instead);
        return;
    }
    let problem = report.error("unknown-directive", line.place(), format!("unknown directive `{word}`"));
    let not_served = DIRECTIVES.not_served.iter().map(|(name, _)| *name);
    if let Some(near) = nearest(word, DIRECTIVES.names().chain(not_served)) {
        problem.help(format!("did you mean `{near}`?"));
    } else if word.contains(['.', ':']) {
        problem.help("a server block without braces goes to the end of the file: write braces");
    } else {
        problem.help(format!("there are {}", all_of(DIRECTIVES.names())));
    }
}

impl ServerBlock {
    fn empty(keys: Vec<Key>, place: FileSpan) -> Self {
        Self {
            keys,
            bind: Vec::new(),
            metadata: None,
            has_request: false,
            edns0: Vec::new(),
            firewalls: Vec::new(),
            engines: Vec::new(),
            kubernetes: None,
            geoip: Vec::new(),
            forwards: Vec::new(),
            cache: None,
            hosts: None,
            files: Vec::new(),
            templates: Vec::new(),
            acls: Vec::new(),
            rewrites: Vec::new(),
            rpzs: Vec::new(),
            dns64: None,
            header: None,
            bufsize: None,
            minimal: false,
            nsid: None,
            idle_timeout: None,
            tls: None,
            view: None,
            any: false,
            chaos: None,
            local: None,
            dns_name_resolver: None,
            logs: Vec::new(),
            errors: None,
            dnstaps: Vec::new(),
            health: None,
            ready: None,
            prometheus: None,
            reload: None,
            loadbalance: false,
            detects_loops: false,
            debug: false,
            whoami: false,
            directives: Vec::new(),
            place,
        }
    }

    /// Takes a directive. Gives a list of rules back: engines may stand after the lists that name them.
    fn take(&mut self, directive: Directive, line: Line, report: &mut Report) -> Option<Line> {
        match directive {
            Directive::Acl => self.acls.push(acl::read(&line, report)),
            Directive::Bufsize => self.bufsize = Some(shaping::bufsize(&line, report)),
            Directive::Dns64 => self.dns64 = Some(dns64::read(&line, report)),
            Directive::Header => self.header = Some(shaping::header(&line, report)),
            Directive::Minimal => self.minimal = shaping::minimal(&line, report),
            Directive::Nsid => self.nsid = Some(shaping::nsid(&line, report)),
            Directive::Rewrite => self.rewrites.extend(rewrite::read(&line, report)),
            Directive::Rpz => self.rpzs.extend(rpz::read(&line, report)),
            Directive::Timeouts => self.idle_timeout = shaping::timeouts(&line, report),
            Directive::Tls => self.tls = tls::read(&line, report),
            Directive::View => self.view = Some(view::read(&line, report)),
            Directive::Any => self.any = is_flag(&line, report),
            Directive::Chaos => self.chaos = Some(fixed::chaos(&line, report)),
            Directive::Local => self.local = Some(fixed::local(&line, report)),
            Directive::Trace => fixed::trace(&line, report),
            Directive::Bind => self.bind.push(process::bind(&line, report)),
            Directive::Cache => self.cache = Some(cache::read(&line, report)),
            Directive::Dnstap => self.dnstaps.extend(telling::dnstap(&line, report)),
            Directive::DnsNameResolver | Directive::OcpDnsNameResolver => {
                self.dns_name_resolver = Some(resolver::read(&line, report));
            }
            Directive::Errors => self.errors = Some(telling::errors(&line, report)),
            Directive::Expression => {
                report.no_options(&line);
                let name = &line.args[0];
                if firewall::is_reserved(&name.text) {
                    report
                        .error("bad-name", &name.place, format!("a rule that begins with `{}` is another", name.text))
                        .help("call the engine otherwise");
                }
                self.add_engine(&line, ConfiguredEngine::Expression);
            }
            Directive::File => self.files.push(hosts::file(&line, report)),
            Directive::Forward => self.forwards.extend(forward::read(&line, report)),
            Directive::GeoIp => self.geoip.push(geoip::read(&line, report)),
            Directive::Health => self.health = Some(process::health(&line, report)),
            Directive::Hosts => self.hosts = Some(hosts::hosts(line, report)),
            Directive::Kubernetes => self.kubernetes = Some(kubernetes::read(&line, report)),
            Directive::Log => self.logs.push(telling::log(&line, report)),
            Directive::Metadata => {
                let (metadata, fields) = edns0::metadata(&line, report);
                self.metadata = Some(metadata);
                self.edns0.extend(fields);
            }
            Directive::MetadataEdns0 => self.edns0.extend(edns0::read(&line, "metadata_edns0/", report)),
            Directive::Request => {
                self.has_request = true;
                self.edns0.extend(edns0::read(&line, "request/", report));
            }
            Directive::Opa => {
                let opa = ConfiguredEngine::Opa(Box::new(opa::read(&line, report)));
                self.add_engine(&line, opa);
            }
            Directive::Themis => {
                let themis = ConfiguredEngine::Themis(Box::new(themis::read(&line, report)));
                self.add_engine(&line, themis);
            }
            Directive::Policy => self.take_policy(line, report),
            Directive::Prometheus => self.prometheus = Some(process::prometheus(&line, report)),
            Directive::Ready => self.ready = Some(process::ready(&line, report)),
            Directive::Reload => self.reload = Some(process::reload(&line, report)),
            Directive::Template => self.templates.extend(template::read(&line, report)),
            Directive::Firewall => return Some(line),
            Directive::Debug => self.debug = is_flag(&line, report),
            Directive::Loop => self.detects_loops = is_flag(&line, report),
            Directive::Whoami => self.whoami = is_flag(&line, report),
            Directive::LoadBalancer => {
                report.hint("other-name", line.place(), "`load-balancer` is read as CoreDNS' `loadbalance`");
                self.loadbalance = is_flag(&line, report);
            }
            Directive::Loadbalance => {
                self.loadbalance = is_flag(&line, report);
                check_balance(&line.args, report);
            }
        }
        None
    }

    fn take_policy(&mut self, line: Line, report: &mut Report) {
        let place = line.place().clone();
        let read = policy::read(line, report);
        let engine = ConfiguredEngine::Themis(Box::new(read.themis));
        self.engines.push(EngineSettings { name: read.name, engine, place });
        self.edns0.extend(read.fields);
        self.firewalls.extend(read.firewalls);
    }

    fn add_engine(&mut self, line: &Line, engine: ConfiguredEngine) {
        let name = &line.args[0];
        self.engines.push(EngineSettings { name: name.text.clone(), engine, place: name.place.clone() });
    }

    fn known(&self) -> NamedEngines {
        let mut known =
            NamedEngines { expressions: Vec::new(), engines: Vec::new(), has_kubernetes: self.kubernetes.is_some() };
        for settings in &self.engines {
            match settings.engine {
                ConfiguredEngine::Expression => known.expressions.push(settings.name.clone()),
                ConfiguredEngine::Opa(_) => known.engines.push((EngineKind::Opa, settings.name.clone())),
                ConfiguredEngine::Themis(_) => known.engines.push((EngineKind::Themis, settings.name.clone())),
            }
        }
        known
    }
}

/// Takes a directive without options, which is on where it stands.
fn is_flag(line: &Line, report: &mut Report) -> bool {
    report.no_options(line);
    true
}

/// The arguments of `loadbalance`.
fn check_balance(args: &[Token], report: &mut Report) {
    match args.first() {
        Some(word) if &*word.text == "weighted" => {
            report.error("not-served", &word.place, "addresses have no weights here").help("write `loadbalance`");
        }
        Some(word) => {
            report.word(word, &[("round_robin", ())]);
            if let Some(extra) = args.get(1) {
                report
                    .error("extra-argument", &extra.place, "`round_robin` takes no arguments")
                    .help("write `loadbalance`");
            }
        }
        None => {}
    }
}
