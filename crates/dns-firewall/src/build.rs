//! From a Corefile to what serves it. What it asks for and is not served is an
//! error: nothing is passed over.

use crate::cache::Cache;
use crate::certificates::{server_config, transport};
use crate::cluster::{ClusterNames, ClusterZones, Clusters};
use crate::dnstap::Tapping;
use crate::endpoints::{self, Endpoint};
use crate::engines::{opa, rbac, themis};
use crate::errors::Errors;
use crate::fixed::{Fixed, host_name};
use crate::forward::{self, Findings, Forwarding};
use crate::geoip::GeoDatabase;
use crate::hosts::{BadLines, Hosts};
use crate::lane::Lane;
use crate::list_files::Lists;
use crate::local::{Local, ZoneFile};
use crate::log::{Format, Log};
use crate::loops::LoopGuard;
use crate::message::Identities;
use crate::metrics::Meters;
use crate::names::Names;
use crate::report::Observers;
use crate::rewrite::Rewrite;
use crate::rpz::Policy;
use crate::rules::{Judge, List, Rule};
use crate::service::{Block, Inside, Service};
use crate::shape::Shape;
use crate::tell::Teller;
use crate::template::Template;
use crate::watch::Watched;
use namewall_corefile::{
    self as corefile, BindAt, ConfiguredEngine, Corefile, Decision, EngineKind, EngineSettings, FileSpan, Forward, Key,
    Point, RuleKind, ServerBlock, ServerTls, Text, Written, Zone,
};
use namewall_dns::wire::RecordType;
use namewall_dns::{EncryptedListen, Route};
use namewall_engines::Engine;
use namewall_expression::{Fact, Outcome};
use namewall_zones::{self as zone, ZoneError};
use rustc_hash::FxHashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Why a Corefile cannot be served.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: error: {message}")]
pub struct BuildError {
    pub place: FileSpan,
    pub message: String,
}

/// What serves a Corefile, and what the DNS server has to be told.
#[derive(Debug)]
pub struct Built {
    pub service: Service,
    /// By the numbers it forwards to.
    pub routes: Vec<Route>,
    /// Where it is to listen.
    pub listen: Vec<SocketAddr>,
    /// Where it is to listen for clients over TLS and HTTPS.
    pub encrypted: Vec<EncryptedListen>,
    /// What is to be served beside DNS.
    pub endpoints: Vec<Endpoint>,
    /// How long TCP connections may be idle, if the Corefile says so.
    pub idle_timeout: Option<Duration>,
    /// What is probably not meant.
    pub warnings: Vec<String>,
}

/// What a service needs that no Corefile says.
#[derive(Clone, Debug)]
pub struct Surroundings {
    pub teller: Arc<Teller>,
    pub identities: Arc<dyn Identities>,
    /// The addresses of this machine, by the names of its interfaces.
    pub addresses: Vec<(String, IpAddr)>,
    /// Who keeps what names were found at, for `dnsnameresolver`.
    pub names: Option<Arc<dyn Names>>,
    /// Where the objects of clusters come from, for `kubernetes`. Without it, names of clusters are not answered.
    pub clusters: Option<Arc<dyn Clusters>>,
}

pub fn build(corefile: &Corefile, around: &Surroundings) -> Result<Built, Vec<BuildError>> {
    build_with(corefile, around, &|_| None)
}

/// The same with engines of one's own instead of those that a Corefile configures.
pub fn build_with(
    corefile: &Corefile,
    around: &Surroundings,
    own: &dyn Fn(&EngineSettings) -> Option<Arc<dyn Engine>>,
) -> Result<Built, Vec<BuildError>> {
    let mut builder = Builder {
        around,
        own,
        routes: Vec::new(),
        listen: Vec::new(),
        encrypted: Vec::new(),
        errors: Vec::new(),
        warnings: Vec::new(),
    };
    let blocks: Vec<Block> = corefile.servers.iter().map(|server| builder.block(server)).collect();
    builder.look_for_twins(corefile, &blocks);
    let lists = builder.lists(corefile);
    let Builder { routes, listen, encrypted, errors, warnings, .. } = builder;
    let encrypted = encrypted.into_iter().map(|(listen, _)| listen).collect();
    if !errors.is_empty() {
        return Err(errors);
    }
    let inside = Inside { blocks, lists, teller: around.teller.clone(), identities: around.identities.clone() };
    let endpoints = corefile.servers.iter().flat_map(endpoints::of_block).collect();
    // The longest counts. A block without one has the usual one.
    let is_set = corefile.servers.iter().any(|server| server.idle_timeout.is_some());
    let usual = namewall_dns::Settings::default().idle_timeout;
    let all = corefile.servers.iter().map(|server| server.idle_timeout.unwrap_or(usual));
    let idle_timeout = all.max().filter(|_| is_set);
    Ok(Built { service: Service(Arc::new(inside)), routes, listen, encrypted, endpoints, idle_timeout, warnings })
}

struct Builder<'a> {
    around: &'a Surroundings,
    own: &'a dyn Fn(&EngineSettings) -> Option<Arc<dyn Engine>>,
    routes: Vec<Route>,
    listen: Vec<SocketAddr>,
    /// With the settings that each was made of.
    encrypted: Vec<(EncryptedListen, ServerTls)>,
    errors: Vec<BuildError>,
    warnings: Vec<String>,
}

/// Engines by what rules call them, with how they are set.
type Engines<'a> = FxHashMap<(EngineKind, Arc<str>), (Arc<Lane>, Option<&'a EngineSettings>)>;

impl Builder<'_> {
    fn error(&mut self, place: &FileSpan, message: impl Into<String>) {
        self.errors.push(BuildError { place: place.clone(), message: message.into() });
    }

    fn block(&mut self, server: &ServerBlock) -> Block {
        let addresses = self.bound(server);
        let everywhere: Vec<IpAddr> = self.around.addresses.iter().map(|(_, address)| *address).collect();
        for key in &server.keys {
            self.listen_for(key, server.tls.as_ref(), if addresses.is_empty() { &everywhere } else { &addresses });
        }
        let mut engines = Engines::default();
        for settings in &server.engines {
            if let Some((kind, engine)) = self.engine(settings) {
                let label = format!("{} {}", kind.word(), settings.name);
                let lane = Arc::new(Lane::new(label, engine, default_decision(settings)));
                engines.insert((kind, settings.name.clone()), (lane, Some(settings)));
            }
        }
        if let Some(rbac) = self.rbac(server) {
            engines.insert(
                (EngineKind::Kubernetes, "rbac".into()),
                (Arc::new(Lane::new("kubernetes rbac".to_owned(), rbac, None)), None),
            );
        }
        let debug_suffixes = server.firewalls.iter().filter_map(|list| list.debug_query_suffix.clone());
        let of_engines = server.engines.iter().filter_map(|settings| match &settings.engine {
            ConfiguredEngine::Themis(themis) => themis.debug.suffix.clone(),
            _ => None,
        });
        let mut local = self.local(server);
        local.cluster = self.cluster(server, if addresses.is_empty() { &everywhere } else { &addresses });
        let mut block = Block {
            keys: server.keys.iter().map(|key| (key.zone.clone(), key.port)).collect(),
            encrypted: server
                .keys
                .iter()
                .filter(|key| key.scheme.is_encrypted())
                .map(|key| (key.port, key.scheme))
                .collect(),
            addresses,
            fields: server.edns0.clone(),
            debug_suffixes: debug_suffixes.chain(of_engines).collect(),
            lists: server.firewalls.iter().map(|list| self.list(list, &engines)).collect(),
            local,
            cache: server.cache.clone().map(|settings| Arc::new(Cache::new(settings))),
            acls: server.acls.iter().map(|acl| acl_for(acl, server)).collect(),
            policies: server.rpzs.iter().filter_map(|rpz| self.policy(rpz)).collect(),
            rewrites: server.rewrites.iter().filter_map(|rewrite| self.rewrite(rewrite)).collect(),
            query_flags: server.header.iter().flat_map(|header| header.query.clone()).collect(),
            dns64: server.dns64.clone(),
            shape: Shape {
                is_minimal: server.minimal,
                flags: server.header.iter().flat_map(|header| header.response.clone()).collect(),
                server_id: server.nsid.as_ref().map(|id| if id.is_empty() { host_name().into() } else { id.clone() }),
                most_bytes: server.bufsize,
            },
            view: server.view.clone(),
            balances: server.loadbalance,
            loops: match server.detects_loops {
                true => {
                    server.keys.iter().map(|key| LoopGuard::new(key.zone.clone(), self.around.teller.clone())).collect()
                }
                false => Vec::new(),
            },
            forwards: server.forwards.iter().map(|forward| self.forward(forward)).collect(),
            cluster: server.kubernetes.as_ref().map(|kubernetes| ClusterNames::new(cluster_zones(kubernetes, server))),
            geoip: self.geoip(server),
            counts_clients: counts_clients(server),
            looks_at_clients: server.client_fact().is_some(),
            observers: Observers::default(),
            names: server.dns_name_resolver.clone().zip(self.around.names.clone()),
        };
        self.observe(server, &mut block);
        block
    }

    /// Listens at all of these addresses for a key of a server block. A port has one scheme and one certificate.
    fn listen_for(&mut self, key: &Key, tls: Option<&ServerTls>, addresses: &[IpAddr]) {
        let mut config = None;
        for at in addresses.iter().map(|&address| SocketAddr::new(address, key.port)) {
            let known = self.encrypted.iter().find(|(listen, _)| listen.address == at);
            let other = match known {
                Some((listen, _)) if listen.transport != transport(key.scheme) => Some(listen.transport.scheme()),
                None if key.scheme.is_encrypted() && self.listen.contains(&at) => Some("dns"),
                _ => None,
            };
            if let Some(other) = other {
                let message = format!("port {} is served as `{other}://` already; choose another port", key.port);
                return self.error(&key.place, message);
            }
            if !key.scheme.is_encrypted() {
                if !self.listen.contains(&at) {
                    self.listen.push(at);
                }
                continue;
            }
            // A key without a certificate is an error of the Corefile.
            let Some(tls) = tls else { return };
            if let Some((_, first)) = known {
                if !is_same_tls(first, tls) {
                    let message = format!("port {} shows another certificate already: see {}", key.port, first.place);
                    return self.error(&tls.place, message);
                }
                continue;
            }
            if config.is_none() {
                match server_config(tls, key.scheme) {
                    Ok(read) => config = Some(read),
                    Err(error) => return self.error(&tls.place, error.to_string()),
                }
            }
            if let Some(config) = config.clone() {
                let listen = EncryptedListen { address: at, transport: transport(key.scheme), config };
                self.encrypted.push((listen, tls.clone()));
            }
        }
    }

    /// Who answers without asking anybody.
    fn local(&mut self, server: &ServerBlock) -> Local {
        let zones = || -> Vec<Zone> { server.keys.iter().map(|key| key.zone.clone()).collect() };
        let teller = &self.around.teller;
        let fixed = Fixed { local: server.local, any: server.any, chaos: server.chaos.clone() };
        let mut local = Local { fixed, says_who_asks: server.whoami, ..Local::default() };
        let mut wrong = Vec::new();
        for settings in &server.templates {
            let is_alias = |text: &Text| text.text.split_whitespace().any(|word| word.eq_ignore_ascii_case("CNAME"));
            let are_aliases = !settings.answer.is_empty() && settings.answer.iter().all(is_alias);
            if are_aliases && settings.kind != Some(RecordType::CNAME.0) {
                let why = "an alias is not followed here; clients that do not follow it either want its records too";
                self.warnings.push(format!("{}: {why}", settings.place));
            }
            match Template::new(settings, zones) {
                Ok(template) => local.templates.push(template),
                Err(error) => wrong.push(error),
            }
        }
        if let Some(settings) = server.hosts.clone() {
            let (file, every, zones) = (settings.file.clone(), settings.reload, zones());
            // What is wrong at the start is a warning of the start, and later a line of the log.
            let (is_later, told) = (AtomicBool::new(false), teller.clone());
            let path = file.clone();
            let read = move || {
                let hosts = Hosts::read(&settings, &zones).map_err(|error| error.to_string())?;
                if is_later.swap(true, Ordering::Relaxed) {
                    bad_lines(&path, &hosts).for_each(|line| told.tell(format!("[WARNING] {line}")));
                }
                Ok(hosts)
            };
            match Watched::start(&file, every, read, teller) {
                Ok(hosts) => {
                    self.warnings.extend(bad_lines(&file, &hosts.now()));
                    local.hosts = Some(hosts);
                }
                Err(error) => wrong.push((server.place.clone(), format!("hosts: {}: {error}", file.display()))),
            }
        }
        for settings in &server.files {
            let zones = if settings.zones.is_empty() { zones() } else { settings.zones.clone() };
            let file = settings.file.clone();
            let read = move || zone_file(&file, &zones);
            match Watched::start(&settings.file, settings.reload, read, teller) {
                Ok(zones) => local.files.push(ZoneFile { zones, fallthrough: settings.fallthrough.clone() }),
                Err(error) => {
                    wrong.push((settings.place.clone(), format!("file: {}: {error}", settings.file.display())));
                }
            }
        }
        wrong.into_iter().for_each(|(place, message)| self.error(&place, message));
        local
    }

    /// The lists that expressions ask. They are looked at as often as the Corefile is.
    fn lists(&mut self, corefile: &Corefile) -> Lists {
        let mut lists = Lists::default();
        let every = corefile.looked_at_every();
        for Text { text: file, place } in corefile.lists() {
            if lists.0.iter().any(|(known, _)| *known == file) {
                continue;
            }
            let teller = &self.around.teller;
            match teller.lists().open(&file, every, teller) {
                Ok(list) => lists.0.push((file, list)),
                Err(error) => self.error(&place, format!("in-list: {file}: {error}")),
            }
        }
        lists
    }

    /// Who is told of a block's questions.
    fn observe(&mut self, server: &ServerBlock, block: &mut Block) {
        let around = self.around;
        block.observers.logs = server.logs.iter().map(Log::new).collect();
        if let Some(settings) = &server.errors {
            match Errors::new(settings, server.debug) {
                Ok(errors) => block.observers.errors = Some(errors),
                Err((place, message)) => self.error(&place, message),
            }
        }
        for settings in &server.dnstaps {
            match Tapping::new(settings, around.teller.taps()) {
                Ok(tapping) => block.observers.taps.push(tapping),
                Err(message) => self.error(&server.place, message),
            }
        }
        if server.prometheus.is_some() {
            block.observers.meters = Some(Meters::new(around.teller.metrics(), block, &server.directives));
        }
    }

    /// One question must not have two blocks.
    fn look_for_twins(&mut self, corefile: &Corefile, blocks: &[Block]) {
        let mut seen: FxHashMap<(SocketAddr, Zone), FileSpan> = FxHashMap::default();
        for (server, block) in corefile.servers.iter().zip(blocks) {
            let everywhere: Vec<IpAddr> = self.around.addresses.iter().map(|(_, address)| *address).collect();
            let addresses = if block.addresses.is_empty() { &everywhere } else { &block.addresses };
            for (zone, port) in &block.keys {
                for &address in addresses {
                    let at = SocketAddr::new(address, *port);
                    // Views share a zone. The last block of the zone may be for all other questions.
                    if block.view.is_some() {
                        continue;
                    }
                    if let Some(first) = seen.insert((at, zone.clone()), server.place.clone()) {
                        self.error(&server.place, format!("{zone} is served at {at} by {first} already"));
                        break;
                    }
                }
            }
        }
    }

    fn bound(&mut self, server: &ServerBlock) -> Vec<IpAddr> {
        let mut all = Vec::new();
        let on = |at: &BindAt| -> Vec<IpAddr> {
            let is_meant = |(name, one): &&(String, IpAddr)| match at {
                BindAt::Address(address) => one.is_ipv4() == address.is_ipv4(),
                BindAt::Interface(interface) => *name == **interface,
            };
            match at {
                BindAt::Address(address) if !address.is_unspecified() => vec![*address],
                _ => self.around.addresses.iter().filter(is_meant).map(|(_, one)| *one).collect(),
            }
        };
        let mut empty = Vec::new();
        for bind in &server.bind {
            let except: Vec<IpAddr> = bind.except.iter().flat_map(on).collect();
            for at in &bind.at {
                let found = on(at);
                match at {
                    BindAt::Interface(name) if found.is_empty() => {
                        empty.push(format!("the interface {name} has no address on this machine"));
                    }
                    BindAt::Address(address) if found.is_empty() => {
                        empty.push(format!("there is no address like {address} on this machine"));
                    }
                    _ => {}
                }
                all.extend(found.into_iter().filter(|address| !except.contains(address)));
            }
        }
        for message in empty {
            self.error(&server.place, message);
        }
        all
    }

    fn list(&mut self, list: &corefile::Firewall, engines: &Engines<'_>) -> List {
        let (mut rules, mut log) = (Vec::new(), list.log);
        for rule in &list.rules {
            let (judge, action) = match &rule.kind {
                RuleKind::Expression { outcome, action, expression, .. } => {
                    if let (Outcome::Redirect(_), Point::Response) = (outcome, list.point) {
                        self.error(&rule.place, "an answer cannot be redirected; `redirect` is for queries");
                    }
                    (Judge::Expression(expression.clone(), *outcome), Some(action.clone()))
                }
                RuleKind::Engine { kind, name, .. } => {
                    // Why it could not start has been said.
                    let Some((lane, settings)) = engines.get(&(*kind, name.clone())) else { continue };
                    let mut passing = Vec::new();
                    if let Some(ConfiguredEngine::Themis(themis)) = settings.map(|settings| &settings.engine) {
                        passing.clone_from(&themis.passthrough);
                        log |= themis.log;
                    }
                    (Judge::Engine(lane.clone(), passing), None)
                }
            };
            rules.push(Rule {
                judge,
                name: rule.name.clone(),
                action,
                text: rule.text.clone(),
                place: rule.place.clone(),
                meter: None,
            });
        }
        List {
            point: list.point,
            zones: match &list.written {
                Written::Seed(zones) => zones.clone(),
                Written::Shipped => Vec::new(),
            },
            passthrough: list.passthrough.clone(),
            looks_at_addresses: rules.iter().any(Rule::looks_at_addresses),
            rules,
            at_end: list.at_end(),
            drops_silently: list.drops_silently(),
            log,
            text: list.text.clone(),
            default_text: list.default_text.clone(),
            place: list.place.clone(),
        }
    }

    fn engine(&mut self, settings: &EngineSettings) -> Option<(EngineKind, Arc<dyn Engine>)> {
        if let Some(own) = (self.own)(settings) {
            let is_opa = matches!(settings.engine, ConfiguredEngine::Opa(_));
            return Some((if is_opa { EngineKind::Opa } else { EngineKind::Themis }, own));
        }
        match &settings.engine {
            ConfiguredEngine::Expression => None,
            ConfiguredEngine::Themis(settings_of) => match themis(&settings.name, settings_of) {
                Ok(engine) => Some((EngineKind::Themis, engine)),
                Err(error) => {
                    self.error(&settings.place, format!("themis {}: {error}", settings.name));
                    None
                }
            },
            ConfiguredEngine::Opa(settings_of) => match opa(settings_of) {
                Ok(engine) => Some((EngineKind::Opa, engine)),
                Err(error) => {
                    self.error(&settings.place, format!("opa {}: {error}", settings.name));
                    None
                }
            },
        }
    }

    /// `kubernetes rbac`, if a rule names it.
    fn rbac(&mut self, server: &ServerBlock) -> Option<Arc<dyn Engine>> {
        let is_kubernetes = |rule: &&corefile::Rule| match &rule.kind {
            RuleKind::Engine { kind, .. } => *kind == EngineKind::Kubernetes,
            RuleKind::Expression { .. } => false,
        };
        let rule = server.firewalls.iter().flat_map(|list| &list.rules).find(is_kubernetes)?;
        let kubernetes = server.kubernetes.as_ref()?;
        match rbac(kubernetes, &|name| std::env::var(name).ok()) {
            Ok(engine) => Some(engine),
            Err(error) => {
                self.error(&rule.place, format!("kubernetes rbac: {error}"));
                None
            }
        }
    }

    fn forward(&mut self, forward: &Forward) -> Forwarding {
        let mut findings = Findings::default();
        self.routes.push(forward::route(forward, &mut findings));
        findings.errors.into_iter().for_each(|error| self.error(&forward.place, error));
        self.warnings.extend(findings.warnings.into_iter().map(|warning| format!("{}: {warning}", forward.place)));
        let upstreams = self.routes.last().map(|route| route.upstreams.clone()).unwrap_or_default();
        Forwarding::new(forward, self.routes.len() - 1, upstreams)
    }

    fn policy(&mut self, settings: &corefile::Rpz) -> Option<Policy> {
        match Policy::open(settings, &self.around.teller) {
            Ok((policy, warning)) => {
                self.warnings.extend(warning.map(|warning| format!("{}: {warning}", settings.place)));
                Some(policy)
            }
            Err(error) => {
                self.error(&settings.place, format!("rpz: {error}"));
                None
            }
        }
    }

    /// Databases of where clients are. A fact that none of them has is an error where a rule names it.
    fn geoip(&mut self, server: &ServerBlock) -> Vec<GeoDatabase> {
        let mut databases = Vec::new();
        for settings in &server.geoip {
            match GeoDatabase::read(settings) {
                Ok(database) => databases.push(database),
                Err(error) => self.error(&settings.place, format!("geoip: {}: {error}", settings.file.display())),
            }
        }
        if databases.len() < server.geoip.len() {
            return databases;
        }
        let rules = server.firewalls.iter().flat_map(|list| &list.rules);
        let of_rules = rules.filter_map(|rule| match &rule.kind {
            RuleKind::Expression { expression, .. } => Some((&rule.place, expression)),
            RuleKind::Engine { .. } => None,
        });
        let of_views = server.view.iter().flat_map(|view| view.conditions.iter().map(|one| (&view.place, one)));
        for (place, fact) in
            of_rules.chain(of_views).flat_map(|(place, one)| one.facts().iter().map(move |fact| (place, fact)))
        {
            if let Fact::Label(label) = fact
                && label.starts_with("geoip/")
                && !databases.iter().any(|database| database.has(label))
            {
                self.error(place, format!("`{label}` is never set: no database of `geoip` here has it"));
            }
        }
        databases
    }

    fn rewrite(&mut self, settings: &corefile::Rewrite) -> Option<Rewrite> {
        match Rewrite::new(settings) {
            Ok(rewrite) => Some(rewrite),
            Err((place, message)) => {
                self.error(&place, message);
                None
            }
        }
    }

    /// Who answers names of the cluster, if an API server is watched.
    fn cluster(&mut self, server: &ServerBlock, at: &[IpAddr]) -> Option<ClusterZones> {
        let kubernetes = server.kubernetes.as_ref()?;
        let Some(clusters) = &self.around.clusters else {
            self.warnings.push(format!(
                "{}: names of the cluster are not answered here, they are forwarded; it says who clients are",
                kubernetes.place
            ));
            return None;
        };
        let index = match clusters.open(kubernetes) {
            Ok(index) => index,
            Err(error) => {
                self.error(&kubernetes.place, format!("kubernetes: {error}"));
                return None;
            }
        };
        let own = at.iter().copied().filter(|address| !address.is_loopback()).collect();
        let zones = ClusterZones::new(kubernetes, cluster_zones(kubernetes, server), index, own);
        if zones.is_none() {
            let why = "kubernetes: names of addresses lead to names of a zone, and none is named";
            self.error(&kubernetes.place, why);
        }
        zones
    }
}

/// True if two server blocks show the same certificate and accept the same clients.
fn is_same_tls(one: &ServerTls, other: &ServerTls) -> bool {
    ServerTls { place: one.place.clone(), ..other.clone() } == *one
}

/// Whether rules, engines or logs of a block look at what clients asked before.
fn counts_clients(server: &ServerBlock) -> bool {
    let of_rules = server.firewalls.iter().flat_map(|list| &list.rules).any(|rule| match &rule.kind {
        RuleKind::Expression { expression, .. } => expression.facts().iter().any(Fact::is_of_client_history),
        RuleKind::Engine { .. } => false,
    });
    let of_engines = server.engines.iter().any(|settings| match &settings.engine {
        ConfiguredEngine::Expression => false,
        ConfiguredEngine::Opa(opa) => opa.fields.iter().any(|field| field.fact.is_of_client_history()),
        ConfiguredEngine::Themis(themis) => themis.attributes.iter().any(|one| one.fact.is_of_client_history()),
    });
    let formats = server.logs.iter().filter_map(|log| log.format.as_ref().map(|format| &*format.text));
    let mut formats =
        formats.chain(server.dnstaps.iter().filter_map(|tap| tap.extra.as_ref().map(|extra| &*extra.text)));
    of_rules || of_engines || formats.any(|format| Format::new(format).is_of_client_history())
}

/// A list of who may ask, for the zones of its server block if it has none of its own.
fn acl_for(acl: &corefile::Acl, server: &ServerBlock) -> corefile::Acl {
    let mut acl = acl.clone();
    if acl.zones.is_empty() {
        acl.zones = server.keys.iter().map(|key| key.zone.clone()).collect();
    }
    acl
}

/// The zones of the cluster: those of the directive, or of its server block.
fn cluster_zones(kubernetes: &corefile::Kubernetes, server: &ServerBlock) -> Vec<Zone> {
    match kubernetes.zones.is_empty() {
        true => server.keys.iter().map(|key| key.zone.clone()).collect(),
        false => kubernetes.zones.clone(),
    }
}

/// What is wrong with lines of a hosts file.
fn bad_lines(path: &Path, hosts: &Hosts) -> impl Iterator<Item = String> {
    let BadLines { first, more } = &hosts.bad_lines;
    let first = first.iter().map(move |(line, problem)| {
        format!("{}:{line}: {problem}: what cannot be read there is left out", path.display())
    });
    let more = (*more > 0).then(|| format!("{}: {more} lines more cannot be read, and are left out", path.display()));
    first.chain(more)
}

/// What counts where an engine fails, if that is written.
fn default_decision(settings: &EngineSettings) -> Option<Decision> {
    match &settings.engine {
        ConfiguredEngine::Expression => None,
        ConfiguredEngine::Opa(opa) => opa.default_decision.clone(),
        ConfiguredEngine::Themis(themis) => themis.default_decision.clone(),
    }
}

/// A file, read as each of the zones.
fn zone_file(path: &Path, zones: &[Zone]) -> Result<Vec<(Zone, zone::Zone)>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let read = |one: &Zone| Ok((one.clone(), zone::Zone::read(&one.to_string(), &text)?));
    zones.iter().map(read).collect::<Result<_, ZoneError>>().map_err(|error| error.to_string())
}
