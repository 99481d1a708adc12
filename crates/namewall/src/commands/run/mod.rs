//! `namewall run` and `namewall agent`: the firewall of one machine, by itself or
//! as a node of a cluster. Reads manifests, or watches the API server; enforces
//! what they say in the kernel, serves DNS and learns what names open; goes on
//! until it is told to end. `options` is what can be set, `source` where what is
//! enforced comes from, `attempts` when what failed is tried again, and `complaint`
//! when users are told of it; `control` answers those who ask, `client` asks,
//! `report` prints.

mod addresses;
mod attempts;
mod client;
mod complaint;
mod control;
mod handover;
mod manifests;
mod options;
mod report;
mod sharing;
mod source;

pub(crate) use client::Running;
pub(crate) use control::rules_of;
pub(crate) use options::{Options, Server as DnsServer};
pub(crate) use report::{leases, print_leases, status};

use super::own_namespace;
use super::signals::take_signals;
use crate::cli::{self, Agent, Run};
use crate::output;
use anyhow::{Context, Result, bail};
use attempts::Attempts;
use manifests::Manifests;
use namewall_agent::{DnsSettings, Heard, Node, NodeSettings, Refused};
use namewall_cluster::{self as cluster, Read};
use namewall_dataplane::nflog::DenialLog;
use namewall_dataplane::nft::Settings as NftSettings;
use namewall_dataplane::render::Scope;
use namewall_dns::{Listen, Sockets};
use namewall_kubernetes::{Connection, Publisher, Trouble};
use namewall_policy::addr::Cidr;
use namewall_policy::domain::DomainName;
use namewall_policy::{Finding, Severity, Snapshot, compile, compile_next};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use sharing::{Others, Telling};
use source::{Cluster, Next, Source};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const LOG_GROUP: u16 = 53;
/// What is not in force for so long is told to users: before, it may be in force with the next attempt.
const TELL_AFTER: Duration = Duration::from_secs(3);

/// All there is to know of a namewall that runs.
pub(super) struct Firewall {
    node: Node,
    node_name: Option<String>,
    snapshot: Snapshot,
    dns: DnsSettings,
    cluster_domain: DomainName,
    findings: Vec<Finding>,
    /// Files that are wrong and whose last good version counts.
    kept: Vec<Arc<str>>,
    last_error: Option<String>,
    /// What stands between it and the API server.
    trouble: Vec<Trouble>,
    /// Who tells other nodes what is learned here.
    publisher: Option<Arc<Publisher>>,
    started: Instant,
    changes: u64,
    denials: Arc<AtomicU64>,
}

/// What both commands are told.
struct Told<'a> {
    firewall: &'a cli::Firewall,
    /// Who is asked for names if nobody says who.
    upstreams: Vec<SocketAddr>,
}

impl<'a> Told<'a> {
    fn new(firewall: &'a cli::Firewall) -> Self {
        Self { firewall, upstreams: Vec::new() }
    }

    /// The options, with what the file says where the command line says nothing.
    fn options(&self) -> Result<Options> {
        let cli::Firewall { options, config, .. } = self.firewall;
        let mut options = match config {
            Some(path) => options.with_file(path)?,
            None => options.clone(),
        };
        if options.upstream.is_empty() {
            options.upstream = self.upstreams.iter().copied().map(DnsServer).collect();
        }
        Ok(options)
    }

    fn cluster(&self) -> cluster::Settings {
        self.firewall.settings.cluster()
    }

    /// Asks the cluster's DNS Service where it is now. While there is none, where it was: it may come back, and
    /// who else would be asked knows less.
    fn follow_dns(&mut self, source: &Source, firewall: &Mutex<Firewall>) {
        let servers = source.dns_servers();
        if servers.is_empty() || servers == self.upstreams {
            return;
        }
        self.upstreams = servers;
        let mut firewall = lock(firewall);
        match take_options(self, &mut firewall) {
            Ok(taken) if taken.asks_others => {
                let servers: Vec<String> = firewall.dns.server.upstreams.iter().map(ToString::to_string).collect();
                output::note(&format!("the cluster's DNS Service is at {} now", servers.join(", ")));
            }
            Ok(_) => {}
            Err(error) => output::note(&format!("{error:#}; the settings stay as they were")),
        }
    }
}

/// The firewall of a machine by itself.
pub(crate) fn run(args: &Run) -> Result<ExitCode> {
    // Before the first thread, so that every thread leaves them to us.
    let signals = take_signals()?;
    let told = Told::new(&args.firewall);
    let source = Source::Files(Manifests::new(&args.manifests, told.cluster()));
    go_on(told, source, &signals)
}

/// The firewall of a node.
pub(crate) fn agent(args: &Agent) -> Result<ExitCode> {
    let signals = take_signals()?;
    let mut told = Told::new(&args.firewall);
    told.options()?;
    let connection = Connection::open(&args.server.target())?;
    output::note(&format!("watching {}", connection.server()));
    let mut cluster = Cluster::new(&connection, told.cluster());
    cluster.opens_unknown = args.open_until_known;
    cluster.namespaces = match args.names_namespace.is_empty() {
        true => vec![own_namespace()],
        false => args.names_namespace.clone(),
    };
    if cluster.wait_until_known(&signals).is_some() {
        return Ok(ExitCode::SUCCESS);
    }
    cluster.dns_service = args.dns_service.clone();
    let source = Source::Cluster(Box::new(cluster));
    told.upstreams = source.dns_servers();
    go_on(told, source, &signals)
}

/// Until it is told to end, or another takes over.
fn go_on(mut told: Told<'_>, mut source: Source, signals: &SignalFd) -> Result<ExitCode> {
    let options = told.options()?;
    let read = source.read()?;
    let left = match (Running::find(), told.firewall.take_over) {
        (Ok(_), true) => handover::take_over()?,
        (Ok(_), false) => bail!("a namewall runs here already; end it first, or start this one with --take-over"),
        (Err(_), _) => Vec::new(),
    };
    let closed = closed_blocks(&source, &options, &read);
    let firewall = start(&told, &options, (read, left, &closed))
        .inspect_err(|error| source.tell(options.node.as_deref(), Some(&format!("{error:#}"))))?;
    source.is_enforced();
    let socket = client::socket_path()?;
    std::fs::remove_file(&socket).ok();
    let listener = UnixListener::bind(&socket).with_context(|| format!("cannot listen at {}", socket.display()))?;
    say_what_runs(&firewall);
    tell_denials(&options, &firewall.denials)?;
    let firewall = Arc::new(Mutex::new(firewall));
    let successor: Arc<Mutex<Option<UnixStream>>> = Arc::default();
    let (shared, asks) = (firewall.clone(), successor.clone());
    let control = move || control::serve(&listener, &shared, &asks);
    std::thread::Builder::new().name("control".to_owned()).spawn(control)?;
    let publisher = source.publisher().map(Arc::new);
    if let Some(publisher) = &publisher {
        let telling = Telling::new(publisher.clone());
        let mut firewall = lock(&firewall);
        firewall.publisher = Some(publisher.clone());
        firewall.node.learner().share_with(Arc::new(telling));
    }
    let (mut others, mut attempts) = (Others::default(), Attempts::default());
    loop {
        let is_new = match source.next(signals) {
            Next::Signal(Signal::SIGHUP) => reread_options(&told, &firewall),
            Next::Signal(_) => break,
            Next::Changed => {
                told.follow_dns(&source, &firewall);
                true
            }
            Next::Names(changed) => {
                hear(&others.take(changed), &firewall);
                false
            }
            Next::Nothing => false,
        };
        if is_new || attempts.are_due(Instant::now()) {
            let changed = reload(&mut source, &firewall);
            attempts.ended(changed.is_some(), Instant::now());
            if changed == Some(Changed::Rules) {
                hear(&others.heard(), &firewall);
            }
        }
        let lasts = attempts.undone_for(Instant::now()).is_some_and(|time| time >= TELL_AFTER);
        let (node, error) = {
            let mut firewall = lock(&firewall);
            firewall.trouble = source.trouble();
            (firewall.node_name.clone(), firewall.last_error.clone().filter(|_| lasts))
        };
        source.publish(node.as_deref());
        source.tell(node.as_deref(), error.as_deref());
        if let Some(stream) = successor.lock().unwrap_or_else(PoisonError::into_inner).take() {
            std::fs::remove_file(&socket).ok();
            let sockets = lock(&firewall).node.retire();
            handover::hand_over(&stream, &sockets).context("cannot hand over")?;
            output::note("another namewall has taken over");
            return Ok(ExitCode::SUCCESS);
        }
        for refused in lock(&firewall).node.learner().take_refused() {
            let Refused { client, name, address, why } = refused;
            output::note(&format!("{client} asked for {name}, which points at {address}: {why}"));
        }
    }
    std::fs::remove_file(&socket).ok();
    lock(&firewall).node.stop_serving().context("cannot let DNS go its usual way")?;
    output::note("ended; what is in the kernel stays in force (`namewall uninstall` removes it)");
    Ok(ExitCode::SUCCESS)
}

/// Blocks of this node whose addresses are closed while nobody is known to have them.
fn closed_blocks(source: &Source, options: &Options, read: &Read) -> Vec<Cidr> {
    match find_node(&read.lowered.snapshot, options) {
        Ok(Some((node, _))) => source.blocks_of(&node),
        _ => Vec::new(),
    }
}

/// Opens what others have learned.
fn hear(heard: &[Heard], firewall: &Mutex<Firewall>) {
    if let Err(error) = lock(firewall).node.learner().hear(heard) {
        output::note(&format!("cannot open what other nodes have learned: {}", error.0));
    }
}

fn lock(firewall: &Mutex<Firewall>) -> MutexGuard<'_, Firewall> {
    firewall.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which Node this machine is, and its addresses.
fn find_node(snapshot: &Snapshot, options: &Options) -> Result<Option<(String, Vec<IpAddr>)>> {
    let known = || snapshot.nodes.iter().map(|node| node.name.to_string()).collect::<Vec<_>>();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned());
    let name = match (&options.node, &host) {
        (Some(name), _) => {
            if snapshot.node_named(name).is_none() {
                bail!("there is no Node {name}; there are {}", known().join(", "));
            }
            name.clone()
        }
        (None, Some(host)) if snapshot.node_named(host).is_some() => host.clone(),
        (None, _) => match known().as_slice() {
            [only] => only.clone(),
            [] => return Ok(None),
            several => bail!("which Node is this machine? Say --node, one of {}", several.join(", ")),
        },
    };
    let node = snapshot.nodes.iter().find(|node| *node.name == name);
    Ok(node.map(|node| (name, node.addresses.clone())))
}

type Begin<'a> = (Read, Vec<(Sockets, Listen)>, &'a [Cidr]);

fn start(told: &Told<'_>, options: &Options, (read, left, closed): Begin<'_>) -> Result<Firewall> {
    let Read { lowered, mut findings, kept } = read;
    let snapshot = lowered.snapshot;
    let (program, more) = compile(&snapshot);
    findings.extend(more);
    let found = find_node(&snapshot, options)?;
    let (node_name, addresses) = match found {
        Some((name, addresses)) => (Some(name), addresses),
        None => (None, Vec::new()),
    };
    let dns = options.dns(&addresses)?;
    let scope = Scope {
        node: node_name.as_deref().and_then(|name| snapshot.node_named(name)),
        log_group: options.log_group.unwrap_or(LOG_GROUP),
        dns: None,
        closed: closed.to_vec(),
    };
    let usual = NftSettings::default();
    let table = options.table.clone().unwrap_or(usual.table);
    let mut node = Node::open(NodeSettings {
        nft: NftSettings { table, scope, cut: options.cut(), bounds: options.bounds(), patience: usual.patience },
        learning: options.learning(),
        cluster_domain: told.firewall.settings.cluster_domain.clone(),
    })?;
    node.serve_at(dns.clone(), left)?;
    node.enforce(&program)?;
    Ok(Firewall {
        node,
        node_name,
        snapshot,
        dns,
        cluster_domain: told.firewall.settings.cluster_domain.clone(),
        findings,
        kept,
        last_error: None,
        trouble: Vec::new(),
        publisher: None,
        started: Instant::now(),
        changes: 0,
        denials: Arc::default(),
    })
}

fn say_what_runs(firewall: &Firewall) {
    say_findings(&firewall.findings, &firewall.kept);
    let on = firewall.node_name.as_deref().unwrap_or("this machine");
    let (policies, pods) = (firewall.snapshot.policies.len(), firewall.snapshot.pod_count());
    let listens = firewall.node.dns().map_or(&[][..], |server| server.addresses());
    let listens: Vec<String> = listens.iter().map(ToString::to_string).collect();
    output::note(&format!("running on {on}: {policies} policies for {pods} pods; DNS at {}", listens.join(", ")));
}

fn say_findings(findings: &[Finding], kept: &[Arc<str>]) {
    for finding in findings.iter().filter(|finding| finding.severity == Severity::Error) {
        output::print_finding(&mut anstream::stderr(), finding).ok();
    }
    for file in kept {
        output::note(&format!("{file} is wrong; its last good version counts"));
    }
}

/// What was another than before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Changed {
    /// What is allowed, or to whom by name.
    Rules,
    /// Only who is there: that happens all the time in a cluster, and is counted, but not told.
    Pods,
}

/// Enforces what is meant now. What cannot be done is said, and what was in force stays so.
fn reload(source: &mut Source, firewall: &Mutex<Firewall>) -> Option<Changed> {
    let read = source.read();
    let mut firewall = lock(firewall);
    let closed = firewall.node_name.as_deref().map(|node| source.blocks_of(node)).unwrap_or_default();
    firewall.node.with_kernel(|nft| nft.settings_mut().scope.closed = closed);
    let done = read.and_then(|read| enforce(&mut firewall, read));
    match done {
        Ok((changed, said)) => {
            source.is_enforced();
            firewall.last_error = None;
            firewall.changes += 1;
            if changed == Changed::Rules || !source.is_cluster() {
                output::note(&said);
            }
            Some(changed)
        }
        Err(error) => {
            let text = format!("{error:#}; what was in force stays so");
            if firewall.last_error.as_ref() != Some(&text) {
                output::note(&text);
            }
            firewall.last_error = Some(text);
            None
        }
    }
}

fn enforce(firewall: &mut Firewall, read: Read) -> Result<(Changed, String)> {
    let Read { lowered, mut findings, kept } = read;
    let began = Instant::now();
    let snapshot = lowered.snapshot;
    // First: it is tried again and again, and to compile all of a cluster takes long.
    let known = firewall.node_name.as_deref();
    let node = known.and_then(|name| snapshot.node_named(name));
    if let (Some(name), None) = (known, node) {
        bail!("there is no Node {name} any more, which this machine is");
    }
    let (program, more) = match &firewall.last_error {
        None => compile_next((&firewall.snapshot, firewall.node.program()), &snapshot),
        // What failed may be in force in part: then the Program there is not the Snapshot's.
        Some(_) => compile(&snapshot),
    };
    findings.extend(more);
    // Each once, for as long as it stays wrong.
    if findings != firewall.findings {
        let is_new = |finding: &&Finding| !firewall.findings.contains(finding);
        let news: Vec<Finding> = findings.iter().filter(is_new).cloned().collect();
        let newly_kept: Vec<Arc<str>> = kept.iter().filter(|file| !firewall.kept.contains(file)).cloned().collect();
        say_findings(&news, &newly_kept);
    }
    firewall.node.with_kernel(|nft| nft.settings_mut().scope.node = node);
    let is_same = Arc::ptr_eq(&program.policies, &firewall.node.program().policies);
    let changed = if is_same { Changed::Pods } else { Changed::Rules };
    let (applied, cut) = firewall.node.enforce(&program)?;
    let (policies, pods) = (snapshot.policies.len(), snapshot.pod_count());
    (firewall.snapshot, firewall.findings, firewall.kept) = (snapshot, findings, kept);
    let took = began.elapsed().as_secs_f64() * 1e3;
    let operations = applied.operations;
    let cut = if cut.connections == 0 { String::new() } else { format!(", {} connections cut", cut.connections) };
    let said = format!("changed: {policies} policies for {pods} pods, {operations} operations in {took:.1} ms{cut}");
    Ok((changed, said))
}

/// What settings that were read again lead to.
struct Taken {
    /// The next change has to tell the kernel who is asked.
    asks_others: bool,
    /// Some are others, and cannot change while it runs.
    some_stay: bool,
}

/// Takes the settings that can change while it runs.
fn take_options(told: &Told<'_>, firewall: &mut Firewall) -> Result<Taken> {
    let options = told.options()?;
    let dns = options.dns(&firewall.dns.take_to)?;
    firewall.node.learner().set(options.learning());
    firewall.node.with_kernel(|nft| nft.settings_mut().cut = options.cut());
    let asks_others = dns.server.upstreams != firewall.dns.server.upstreams;
    let some_stay = (&dns.trusted, &dns.server.listen) != (&firewall.dns.trusted, &firewall.dns.server.listen);
    if asks_others {
        firewall.node.ask(dns.server.clone(), &firewall.dns.trusted);
    } else if let Some(server) = firewall.node.dns() {
        server.set(dns.server.clone());
    }
    firewall.dns.server = dns.server;
    Ok(Taken { asks_others, some_stay })
}

/// Whether the kernel has to be told.
fn reread_options(told: &Told<'_>, firewall: &Mutex<Firewall>) -> bool {
    match take_options(told, &mut lock(firewall)) {
        Ok(taken) => {
            if taken.some_stay {
                output::note("which servers are trusted, and where DNS is served, changes with the next start");
            }
            output::note("settings were read again");
            taken.asks_others
        }
        Err(error) => {
            output::note(&format!("{error:#}; the settings stay as they were"));
            false
        }
    }
}

/// Says what was denied, as far as the kernel tells of it.
fn tell_denials(options: &Options, count: &Arc<AtomicU64>) -> Result<()> {
    let mut log = DenialLog::open(options.log_group.unwrap_or(LOG_GROUP)).context("cannot hear of denials")?;
    let count = count.clone();
    let tell = move || {
        while let Ok(denials) = log.wait() {
            for denied in denials {
                count.fetch_add(1, Ordering::Relaxed);
                let what = if denied.enforced { "denied" } else { "would deny" };
                let port = if denied.port == 0 { String::new() } else { format!(":{}", denied.port) };
                let (from, to) = (denied.source, denied.destination);
                output::note(&format!("{what} {from} -> {to}{port}/{} by {}", denied.protocol, denied.rule));
            }
        }
    };
    std::thread::Builder::new().name("denials".to_owned()).spawn(tell)?;
    Ok(())
}
