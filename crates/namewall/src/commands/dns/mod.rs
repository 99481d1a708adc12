//! `namewall dns`: serves a Corefile, and goes on until it is told to end.
//! `question` is what --explain asks, `explained` what it prints, `identities` who clients are, `cluster` what the API
//! server says of names and is told, `encrypted` the sockets of TLS and HTTPS, `objects` what `kubernetes` answers from, `sources` what the Corefile was read from.

mod cluster;
mod encrypted;
mod explained;
mod identities;
mod objects;
mod question;
mod sources;

use super::signals::SystemSignals;
use crate::cli::{Dns, Format};
use crate::output;
use anyhow::{Context, Result, bail};
use cluster::Clients;
use namewall_agent::{Signal, Signals};
use namewall_corefile::{self as corefile, Corefile, Files, ServerBlock};
use namewall_dns::{Chain, LearnNothing, Listen, Route, Server, Settings, Sockets};
use namewall_dns_firewall::{Built, Endpoints, Surroundings, Teller, build, count_panics, lameduck};
use nix::ifaddrs::getifaddrs;
use objects::{Unasked, Watched};
use question::Question;
use sources::{Noting, Sources};
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

const TICK: Duration = Duration::from_millis(250);
/// How long an address is waited for that was left a moment ago.
const LEAVING: Duration = Duration::from_secs(2);
/// How long questions that are under way have when it ends.
const RETIREMENT: Duration = Duration::from_secs(1);
/// How long a start or a reload waits for policy zones of servers.
const POLICY_PATIENCE: Duration = Duration::from_secs(5);
/// How long a start waits for the pods of a cluster.
const CLIENTS_PATIENCE: Duration = Duration::from_secs(5);
/// How long who is told things has to take them in the end.
const LAST_WORDS: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &Dns) -> Result<ExitCode> {
    args.logging.start()?;
    namewall_dns::allow_more_files();
    count_panics();
    let signals = SystemSignals::take()?;
    let pods = identities::read(&args.manifests)?;
    let mut around = Surroundings {
        teller: Arc::new(Teller::start(std::io::stdout())?),
        identities: pods.clone(),
        addresses: addresses()?,
        names: None,
        clusters: None,
    };
    let (read, mut sources) = read_with_sources(&args.conf);
    let read = match read {
        Ok(read) => read,
        Err(error) if args.check => {
            writeln!(anstream::stderr(), "{error:#}")?;
            return Ok(ExitCode::FAILURE);
        }
        Err(error) => return Err(error),
    };
    let clusters = Arc::new(Watched::new(args.server.target()));
    let reads_files = args.check && args.manifests.is_empty();
    if args.check || args.explain.is_some() {
        around.clusters = Some(Arc::new(Unasked { target: args.server.target(), reads_files }));
    } else if args.manifests.is_empty() {
        around.clusters = Some(clusters.clone());
    }
    // What manifests say of pods counts more.
    let asks_nobody = args.check || args.explain.is_some();
    let mut clients = Clients::new(pods, args.server.target(), asks_nobody || !args.manifests.is_empty());
    let is_wanted = !asks_nobody && cluster::is_wanted(&read, &args.server);
    if is_wanted {
        around.names = Some(cluster::keep_names(&args.server)?);
    }
    clients.follow_for(&read, is_wanted)?;
    let built = match build_all(&read, &around) {
        Ok(built) => built,
        Err(error) if args.check => {
            writeln!(anstream::stderr(), "{error:#}")?;
            return Ok(ExitCode::FAILURE);
        }
        Err(error) => return Err(error),
    };
    print_warnings(&read, &built)?;
    if args.check {
        output::note(&format!("{} can be served", args.conf.display()));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(asked) = &args.explain {
        if let Some(fact) = read.servers.iter().find_map(ServerBlock::client_fact).filter(|_| args.manifests.is_empty())
        {
            output::note(&format!("{}: no pod is known here for `{}`: pass --manifests", fact.place, fact.name));
        }
        built.service.wait_for_policies(POLICY_PATIENCE);
        return explain(&built, &asked.parse()?, args.output);
    }
    clusters.wait(&read);
    clients.wait(CLIENTS_PATIENCE);
    let mut running = Running::start(built, &around)?;
    around.teller.set_version(sources.hash().to_owned());
    loop {
        around.teller.set_upstreams(running.server.upstreams());
        running.endpoints.set_ready(clusters.are_known() && clients.are_known());
        let is_asked = match signals.wait(TICK) {
            Some(Signal::Reload) => true,
            Some(Signal::Stop) => break,
            None => false,
        };
        if !is_asked {
            if !sources.have_changed(Instant::now()) {
                continue;
            }
            // Who writes a file may not be done: half of a Corefile can be one that denies less.
            sources.settle(|| std::thread::sleep(TICK));
        }
        let (read, read_from) = read_with_sources(&args.conf);
        let taken = read.and_then(|read| {
            let needs_server = read.servers.iter().any(|server| server.dns_name_resolver.is_some());
            if needs_server && around.names.is_none() {
                bail!("`dnsnameresolver` counts from the next start on");
            }
            clients.follow_for(&read, false)?;
            clients.wait(CLIENTS_PATIENCE);
            running.take(&read, &around)
        });
        match taken {
            Ok(()) => {
                sources = read_from;
                around.teller.set_version(sources.hash().to_owned());
                info!(file = %args.conf.display(), "the Corefile was read again");
            }
            Err(error) => {
                sources = read_from.or_else(&sources);
                around.teller.reload_failed();
                error!("{error:#}");
                warn!("the Corefile cannot be served; it is served as it was before");
            }
        }
    }
    running.end(&signals);
    around.teller.finish(LAST_WORDS);
    info!("ended");
    Ok(ExitCode::SUCCESS)
}

/// Tells what is probably not meant.
fn print_warnings(corefile: &Corefile, built: &Built) -> Result<()> {
    for warning in corefile.warnings.iter().map(ToString::to_string).chain(built.warnings.iter().cloned()) {
        writeln!(anstream::stderr(), "{warning}")?;
    }
    Ok(())
}

/// Reads it, and says what it was read from, whether it could be or not.
fn read_with_sources(path: &Path) -> (Result<Corefile>, Sources) {
    let noting = Noting::default();
    let corefile = read(path, &noting);
    let sources = Sources::of(noting, corefile.as_ref().ok());
    (corefile, sources)
}

fn read(path: &Path, noting: &Noting) -> Result<Corefile> {
    let text = noting.read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let name = path.display().to_string();
    let read = corefile::read(&name, &text, noting, &|name| std::env::var(name).ok());
    read.map_err(|errors| anyhow::anyhow!("{} cannot be served\n{errors}", path.display()))
}

fn build_all(corefile: &Corefile, around: &Surroundings) -> Result<Built> {
    build(corefile, around).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("the Corefile cannot be served\n{}", lines.join("\n"))
    })
}

/// This machine's addresses, by interface. Link-local ones are nobody's to ask at.
fn addresses() -> Result<Vec<(String, IpAddr)>> {
    let mut all = Vec::new();
    for interface in getifaddrs().context("cannot list this machine's addresses")? {
        let Some(address) = interface.address else { continue };
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        let v6 = address.as_sockaddr_in6().map(|v6| v6.ip()).filter(|v6| !v6.is_unicast_link_local());
        if let Some(ip) = v4.or(v6.map(IpAddr::V6)) {
            all.push((interface.interface_name, ip));
        }
    }
    Ok(all)
}

fn explain(built: &Built, question: &Question, format: Format) -> Result<ExitCode> {
    let (query, answer) = (question.message(), question.answer());
    let server = question.server.unwrap_or_else(|| {
        let encrypted = built.encrypted.iter().find(|listen| listen.transport == question.transport);
        let first = encrypted.map(|listen| listen.address).or(built.listen.first().copied());
        let first = first.or(built.encrypted.first().map(|listen| listen.address));
        first.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 53)))
    });
    let asked = namewall_dns::Asked { query: &query, client: question.client, server, transport: question.transport };
    let explanation = built.service.explain(&asked, answer.as_deref());
    output::unless_closed(explained::print(&explanation, format))?;
    Ok(if explanation.passes() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A server that serves a Corefile.
struct Running {
    server: Server<LearnNothing>,
    listen: Vec<SocketAddr>,
    encrypted: Vec<SocketAddr>,
    /// Addresses it has left: the last answers may still go out there.
    left: Vec<SocketAddr>,
    endpoints: Endpoints,
    /// How long it is served on after we are told to end.
    lameduck: Duration,
}

impl Running {
    fn start(built: Built, around: &Surroundings) -> Result<Self> {
        check_listen(&built)?;
        let sockets = bind(&built.listen, &[])?;
        let encrypted = encrypted::bind(&encrypted::addresses(&built.encrypted), &[])?;
        let mut served = Endpoints::new(around.teller.clone());
        served.set(&built.endpoints)?;
        let Built { service, routes, listen, encrypted: over_tls, endpoints, idle_timeout, .. } = built;
        // Until they are known, questions get SERVFAIL.
        service.wait_for_policies(POLICY_PATIENCE);
        let chain: Arc<dyn Chain> = Arc::new(service);
        let settings = settings(&listen, routes, idle_timeout);
        settings.check(&encrypted::addresses(&over_tls))?;
        let mut server = Server::start_judged(settings, Some(chain), sockets, Arc::new(LearnNothing))?;
        around.teller.watch_connections(server.encrypted_counters());
        for address in &listen {
            info!(%address, "serving DNS");
        }
        encrypted::log(&over_tls, &[]);
        let at = encrypted::addresses(&over_tls);
        let encrypted = server.prepare_encrypted(encrypted)?;
        server.serve_encrypted(over_tls, encrypted);
        let lameduck = lameduck(&endpoints);
        Ok(Self { server, listen, encrypted: at, left: Vec::new(), endpoints: served, lameduck })
    }

    /// Goes on with what the file says now; if it cannot be served nothing has changed.
    fn take(&mut self, corefile: &Corefile, around: &Surroundings) -> Result<()> {
        let around = Surroundings { addresses: addresses()?, ..around.clone() };
        let built = build_all(corefile, &around)?;
        print_warnings(corefile, &built)?;
        check_listen(&built)?;
        let Built { service, routes, listen, encrypted: over_tls, endpoints, idle_timeout, .. } = built;
        let encrypted = encrypted::addresses(&over_tls);
        let without = |all: &[SocketAddr], some: &[SocketAddr]| -> Vec<SocketAddr> {
            all.iter().copied().filter(|address| !some.contains(address)).collect()
        };
        let (new, mut left) = (without(&listen, &self.listen), without(&self.listen, &listen));
        let new_encrypted = without(&encrypted, &self.encrypted);
        // First what can fail: sockets that are not needed in the end are gone with the error.
        let sockets = bind(&new, &self.left)?;
        let encrypted_sockets = encrypted::bind(&new_encrypted, &self.left)?;
        let settings = settings(&listen, routes, idle_timeout);
        settings.check(&listen)?;
        settings.check(&encrypted)?;
        let sockets = self.server.prepare(sockets)?;
        let encrypted_sockets = self.server.prepare_encrypted(encrypted_sockets)?;
        // The last step that can fail: it changes all endpoints or none.
        self.endpoints.set(&endpoints)?;
        self.lameduck = lameduck(&endpoints);
        service.wait_for_policies(POLICY_PATIENCE);
        self.server.move_to(settings, Arc::new(service), sockets)?;
        left.iter().for_each(|address| info!(%address, "no longer serving DNS"));
        new.iter().for_each(|address| info!(%address, "serving DNS"));
        encrypted::log(&over_tls, &self.encrypted);
        self.server.serve_encrypted(over_tls, encrypted_sockets);
        left.extend(without(&self.encrypted, &encrypted));
        (self.listen, self.encrypted, self.left) = (listen, encrypted, left);
        Ok(())
    }

    /// Serves on for a while if it is to, so that who sends clients here can send them elsewhere; then
    /// finishes what is under way. To be told again to end cuts the while short.
    fn end(self, signals: &SystemSignals) {
        self.endpoints.set_ready(false);
        let until = Instant::now() + self.lameduck;
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            if signals.wait(left.min(TICK)) == Some(Signal::Stop) {
                break;
            }
        }
        self.server.retire(RETIREMENT);
    }
}

fn check_listen(built: &Built) -> Result<()> {
    if built.listen.is_empty() && built.encrypted.is_empty() {
        bail!("there is no address to listen at");
    }
    Ok(())
}

fn settings(listen: &[SocketAddr], routes: Vec<Route>, idle_timeout: Option<Duration>) -> Settings {
    let usual = Settings::default();
    Settings {
        listen: listen.iter().copied().map(Listen::from).collect(),
        routes,
        idle_timeout: idle_timeout.unwrap_or(usual.idle_timeout),
        ..usual
    }
}

/// Why an address cannot be listened at, and what to do about it.
fn cannot_listen(address: SocketAddr, why: ErrorKind) -> String {
    let hint = match why {
        ErrorKind::PermissionDenied => "; a port below 1024 needs the capability NET_BIND_SERVICE",
        ErrorKind::AddrNotAvailable => "; no interface of this machine has the address",
        ErrorKind::AddrInUse => "; is another DNS server running there?",
        _ => "",
    };
    format!("cannot listen at {address}{hint}")
}

/// Sockets at all these addresses, or at none. Those that were left a moment ago are waited for.
fn bind(listen: &[SocketAddr], left: &[SocketAddr]) -> Result<Vec<(Sockets, Listen)>> {
    let until = Instant::now() + LEAVING;
    let bind = |address: &SocketAddr| {
        let sockets = loop {
            match Sockets::bind(*address) {
                Err(_) if left.contains(address) && Instant::now() < until => std::thread::sleep(TICK / 50),
                bound => break bound,
            }
        };
        let told = sockets.as_ref().err().map(|error| cannot_listen(*address, error.kind()));
        Ok((sockets.with_context(|| told.unwrap_or_default())?, Listen::from(*address)))
    };
    listen.iter().map(bind).collect()
}
