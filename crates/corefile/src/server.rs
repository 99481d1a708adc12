//! A server block: its keys and what its directives say.

use crate::directives::firewall::Known;
use crate::directives::*;
use crate::form::all_of;
use crate::key::{self, Key};
use crate::parse::{Line, Server};
use crate::problem::Report;
use crate::suggest::nearest;
use crate::{ListenAt, Place};
use std::collections::HashMap;
use std::sync::Arc;

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
    pub forwards: Vec<Forward>,
    pub cache: Option<Cache>,
    pub hosts: Option<Hosts>,
    pub files: Vec<ZoneFile>,
    pub templates: Vec<Template>,
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
    pub place: Place,
}

/// An engine that rules can name.
#[derive(Clone, PartialEq, Debug)]
pub struct EngineSettings {
    pub name: Arc<str>,
    pub engine: ConfiguredEngine,
    pub place: Place,
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
    let mut seen: HashMap<&'static str, Place> = HashMap::new();
    for line in server.lines {
        let Some(form) = DIRECTIVES.iter().find(|form| *form.name == *line.name.text) else {
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
        if !form.fits(&line, report) {
            continue;
        }
        if form.name == firewall::FIREWALL.name {
            lists.push(line);
        } else {
            block.take(line, report);
        }
    }
    // Engines may stand after the lists that name them.
    let known = block.known();
    let read = lists.iter().filter_map(|line| firewall::read(line, &known, report));
    block.firewalls.extend(read.collect::<Vec<_>>());
    block
}

fn unknown(line: &Line, report: &mut Report) {
    let word = &*line.name.text;
    if let Some((_, instead)) = NOT_SERVED.iter().find(|(name, _)| *name == word) {
        report.error("not-served", line.place(), format!("`{word}` is CoreDNS', and not served here")).help(*instead);
        return;
    }
    let problem = report.error("unknown-directive", line.place(), format!("unknown directive `{word}`"));
    let names = || DIRECTIVES.iter().map(|form| form.name);
    if let Some(near) = nearest(word, names().chain(NOT_SERVED.iter().map(|(name, _)| *name))) {
        problem.help(format!("did you mean `{near}`?"));
    } else if word.contains(['.', ':']) {
        problem.help("a server block without braces goes to the end of the file: write braces");
    } else {
        problem.help(format!("there are {}", all_of(names())));
    }
}

impl ServerBlock {
    fn empty(keys: Vec<Key>, place: Place) -> Self {
        Self {
            keys,
            bind: Vec::new(),
            metadata: None,
            has_request: false,
            edns0: Vec::new(),
            firewalls: Vec::new(),
            engines: Vec::new(),
            kubernetes: None,
            forwards: Vec::new(),
            cache: None,
            hosts: None,
            files: Vec::new(),
            templates: Vec::new(),
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
            place,
        }
    }

    /// Takes any directive but a list of rules.
    fn take(&mut self, line: Line, report: &mut Report) {
        match &*line.name.text {
            "bind" => self.bind.push(process::bind(&line, report)),
            "cache" => self.cache = Some(cache::read(&line, report)),
            "dnstap" => self.dnstaps.extend(telling::dnstap(&line, report)),
            "dnsnameresolver" | "ocp_dnsnameresolver" => {
                self.dns_name_resolver = Some(resolver::read(&line, report));
            }
            "errors" => self.errors = Some(telling::errors(&line, report)),
            "expression" => {
                report.options(&line, &[]);
                let name = &line.args[0];
                if firewall::is_reserved(&name.text) {
                    report
                        .error("bad-name", &name.place, format!("a rule that begins with `{}` is another", name.text))
                        .help("call the engine otherwise");
                }
                self.add_engine(&line, ConfiguredEngine::Expression);
            }
            "file" => self.files.push(hosts::file(&line, report)),
            "forward" => self.forwards.extend(forward::read(&line, report)),
            "health" => self.health = Some(process::health(&line, report)),
            "hosts" => self.hosts = Some(hosts::hosts(line, report)),
            "kubernetes" => self.kubernetes = Some(kubernetes::read(&line, report)),
            "log" => self.logs.push(telling::log(&line, report)),
            "metadata" => {
                let (metadata, fields) = edns0::metadata(&line, report);
                self.metadata = Some(metadata);
                self.edns0.extend(fields);
            }
            "metadata_edns0" => self.edns0.extend(edns0::read(&line, "metadata_edns0/", report)),
            "request" => {
                self.has_request = true;
                self.edns0.extend(edns0::read(&line, "request/", report));
            }
            "opa" => {
                let opa = ConfiguredEngine::Opa(Box::new(opa::read(&line, report)));
                self.add_engine(&line, opa);
            }
            "themis" => {
                let themis = ConfiguredEngine::Themis(Box::new(themis::read(&line, report)));
                self.add_engine(&line, themis);
            }
            "policy" => self.take_policy(line, report),
            "prometheus" => self.prometheus = Some(process::prometheus(&line, report)),
            "ready" => self.ready = Some(process::ready(&line, report)),
            "reload" => self.reload = Some(process::reload(&line, report)),
            "template" => self.templates.extend(template::read(&line, report)),
            _ => self.take_flag(&line, report),
        }
    }

    /// Takes a directive without settings.
    fn take_flag(&mut self, line: &Line, report: &mut Report) {
        report.options(line, &[]);
        match &*line.name.text {
            "debug" => self.debug = true,
            "loop" => self.detects_loops = true,
            "whoami" => self.whoami = true,
            "load-balancer" => {
                report.hint("other-name", line.place(), "`load-balancer` is read as CoreDNS' `loadbalance`");
                self.loadbalance = true;
            }
            _ => {
                self.loadbalance = true;
                match line.args.first() {
                    Some(word) if &*word.text == "weighted" => {
                        report
                            .error("not-served", &word.place, "addresses have no weights here")
                            .help("write `loadbalance`");
                    }
                    Some(word) => {
                        report.word(word, &[("round_robin", ())]);
                        if let Some(extra) = line.args.get(1) {
                            report
                                .error("extra-argument", &extra.place, "`round_robin` takes no arguments")
                                .help("write `loadbalance`");
                        }
                    }
                    None => {}
                }
            }
        }
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

    fn known(&self) -> Known {
        let mut known =
            Known { expressions: Vec::new(), engines: Vec::new(), has_kubernetes: self.kubernetes.is_some() };
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
