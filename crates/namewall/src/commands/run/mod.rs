//! `namewall run` and `namewall agent`: the firewall of one machine, by itself or
//! as a node of a cluster. The work is done by `namewall-agent`; here are its
//! settings (`options`), and what asks a running one (`report`).

mod options;
mod report;

pub(crate) use options::{Block, Nat64Prefix, Options, Server as DnsServer, Time, state_folder};
pub(crate) use report::{leases, print_leases, status, time};

use super::explain::{Answer, ConnectionQuestion};
use super::http::{Http, is_taken};
use super::own_namespace;
use super::sandbox::runtime_folder;
use super::signals::SystemSignals;
use crate::cli::{self, Agent as AgentArgs, Run};
use anyhow::Result;
use namewall_agent::{
    Agent, AgentError, ClusterSettings, ClusterSource, FileSettings, Files, LiveQuestion, Running, Source, Start,
    StorageSettings, ThisMachine, WaitForCluster,
};
use namewall_dataplane::Dataplane as _;
use namewall_dataplane::nft::{Nft, Settings as NftSettings};
use namewall_dns::lookup::LookupThreads;
use namewall_kubernetes::Connection;
use namewall_policy::ask::World;
use namewall_runtime::{Clock, SystemClock};
use namewall_telemetry::Export;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tracing::{info, warn};

/// The firewall of a machine by itself.
pub(crate) fn run(args: &Run) -> Result<ExitCode> {
    args.firewall.logging.start()?;
    namewall_dns::allow_more_files();
    let signals = SystemSignals::take()?;
    let options = args.firewall.options()?;
    let cluster = options.cluster(&args.firewall.settings);
    let (opens_unknown, storage) = (options.open_until_known, Some(options.storage()?));
    let source = Files::new(&args.manifests, FileSettings { cluster, opens_unknown, storage });
    let http = start_http(&args.firewall, &source)?;
    enforce(&args.firewall, source, http, &signals)
}

/// The firewall of a node.
pub(crate) fn agent(args: &AgentArgs) -> Result<ExitCode> {
    args.firewall.logging.start()?;
    namewall_dns::allow_more_files();
    let signals = SystemSignals::take()?;
    // Settings that are wrong are an error before anything is asked of a server.
    let options = args.firewall.options()?;
    let connection = Connection::open(&args.server.target())?.with_clock(clock());
    info!(server = %connection.server(), "watching");
    let mut source = ClusterSource::new(
        &connection,
        ClusterSettings {
            cluster: options.cluster(&args.firewall.settings),
            opens_unknown: options.open_until_known,
            namespaces: match args.names_namespace.is_empty() {
                true => vec![own_namespace()],
                false => args.names_namespace.clone(),
            },
            storage: Some(options.storage()?),
            dns_service: args.dns_service.clone(),
            asks_dns_service: options.upstream.is_empty(),
        },
    );
    // Probes are answered while the cluster is not known yet, and a scraper learns what is in the way.
    // A node is better off with a firewall that nobody can probe than without one.
    let http = start_http(&args.firewall, &source).or_else(|error| {
        warn!("{error:#}; it goes on without metrics and probes");
        Http::new([], NOT_READY)
    })?;
    let table = options.config().table;
    // The kernel's answer is kept: no other process makes or removes these rules while the agent waits. While it does
    // not answer, its rules are left as they are, and it is asked again.
    let answer = std::cell::OnceCell::new();
    let has_rules = || {
        let settings = NftSettings { table: table.clone(), ..NftSettings::default() };
        let ask = || Nft::open(settings).and_then(|mut nft| nft.is_enforcing());
        answer.get().copied().or_else(|| ask().ok().map(|has_rules| *answer.get_or_init(|| has_rules))).unwrap_or(true)
    };
    let wait = WaitForCluster {
        signals: &signals,
        health: http.health(),
        node: options.node.as_deref(),
        has_rules: &has_rules,
    };
    if !source.wait_until_known(&wait) {
        return Ok(ExitCode::SUCCESS);
    }
    enforce(&args.firewall, source, http, &signals)
}

/// Names that the agent itself asks for at the same time. Threads start when they are needed.
const LOOKUPS_AT_ONCE: usize = 32;

/// What readiness probes are told before policies are in the kernel.
const NOT_READY: &str = "nothing is enforced yet\n";

/// Serves HTTP if that is asked for, with the metrics there are before the agent starts. Whom we take over from has the
/// address for now.
fn start_http(args: &cli::Firewall, source: &impl Source) -> Result<Http> {
    let mut http = Http::new(args.options()?.metrics_address, NOT_READY)?;
    match http.serve(source.metrics()) {
        Err(error) if !(args.take_over && is_taken(&error)) => Err(error.into()),
        _ => Ok(http),
    }
}

/// Until a signal ends it, or another agent takes over.
fn enforce(args: &cli::Firewall, source: impl Source, mut http: Http, signals: &SystemSignals) -> Result<ExitCode> {
    let watched = source.metrics();
    let started = Agent::start(Start {
        source,
        open: Box::new(|config| Nft::open(NftSettings { table: config.table.clone(), ..NftSettings::default() })),
        clock: clock(),
        machine: Box::new(ThisMachine::open().map_err(AgentError::from)?),
        read_config: Box::new(|| Ok(args.options()?.config())),
        cluster_domain: args.options()?.cluster_domain(&args.settings),
        control: control_socket()?,
        records: runtime_folder()?.join("attachments"),
        history: Some(args.options()?.storage()?.leases_file()),
        take_over: args.take_over,
        explain: Box::new(|world, question| explain(world, question).map_err(|error| format!("{error:#}"))),
        health: http.health().clone(),
        lookups: Box::new(LookupThreads::new(LOOKUPS_AT_ONCE)),
        signals,
    });
    note_state(&args.options()?.storage()?);
    let agent = match started {
        Err(AgentError::Ended) => return Ok(ExitCode::SUCCESS),
        started => started?,
    };
    let parts: Vec<Arc<dyn Export>> = watched.into_iter().chain([agent.metrics()]).collect();
    if let Err(error) = http.serve_after_another(&parts) {
        // The firewall is more important than its metrics.
        warn!("{:#}; it goes on without metrics", anyhow::Error::from(error));
    }
    agent.run(signals)?;
    Ok(ExitCode::SUCCESS)
}

/// Notes where the state is, for `uninstall`, which need not be told.
fn note_state(storage: &StorageSettings) {
    let folder = std::path::absolute(&storage.folder).unwrap_or_else(|_| storage.folder.clone());
    let written = runtime_folder().and_then(|runtime| {
        std::fs::write(storage.note(&runtime), folder.as_os_str().as_encoded_bytes()).map_err(Into::into)
    });
    if let Err(error) = written {
        warn!("{error:#}; `namewall uninstall` will not find the state in {}", folder.display());
    }
}

/// The system's clock. A build for tests takes one that jumps when a file says so.
pub(super) fn clock() -> Arc<dyn Clock> {
    #[cfg(feature = "system")]
    if let Some(file) = std::env::var_os("NAMEWALL_TEST_CLOCK") {
        return Arc::new(namewall_runtime::ShiftedClock::start(file.into()));
    }
    Arc::new(SystemClock::start())
}

impl cli::Firewall {
    /// The options, with what the file says where the command line says nothing.
    fn options(&self) -> Result<Options> {
        let options = match &self.config {
            Some(path) => self.options.with_file(path)?,
            None => self.options.clone(),
        };
        Ok(options.with_settings(&self.settings))
    }
}

fn explain(world: World<'_>, question: &LiveQuestion) -> Result<Value> {
    let asked = ConnectionQuestion { from: &question.from, to: &question.to };
    let answer = Answer::new(world, &asked)?;
    let answer = if question.is_leased { answer } else { answer.without_lease(&asked)? };
    let answer =
        answer.with_closed(&question.closed).with_dns_ports(&question.dns_ports).with_tunnels(&question.tunnels);
    let cuts = answer.cuts(&question.cuts);
    let mut text = Vec::new();
    if question.as_json {
        let mut value = answer.json();
        value["cut"] = json!({"connections": cuts.connections, "secondsAgo": cuts.seconds_ago});
        serde_json::to_writer_pretty(&mut text, &value)?;
        text.push(b'\n');
    } else {
        answer.print(&mut text)?;
        cuts.print(&mut text)?;
    }
    Ok(json!({"verdict": answer.verdict.to_string(), "text": String::from_utf8_lossy(&text)}))
}

fn control_socket() -> Result<PathBuf> {
    Ok(runtime_folder()?.join("run.sock"))
}

/// The namewall that runs here.
pub(crate) fn running() -> Result<Running> {
    Ok(Running::find(&control_socket()?)?)
}
