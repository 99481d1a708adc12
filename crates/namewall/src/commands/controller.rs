//! `namewall controller`: one for a cluster. Keeps the names of policies
//! resolved for all nodes.

use super::http::{Http, HttpAddress};
use super::own_namespace;
use super::run::clock;
use super::signals::SystemSignals;
use crate::cli::Controller as Args;
use anyhow::Result;
use namewall_agent::{Signal, Signals};
use namewall_cluster::kinds::Component;
use namewall_cluster::resolver::Settings as ResolverSettings;
use namewall_controller::{Controller, ControllerMetrics, Settings, Whose};
use namewall_dns::lookup::LookupThreads;
use namewall_kubernetes::{Candidate, Connection, Leadership, Watch};
use namewall_telemetry::Export;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a turn waits for something to do.
const TURN: Duration = Duration::from_millis(100);
/// Names that are asked for at the same time.
const LOOKUPS_AT_ONCE: usize = 64;
/// What replicas lead by.
const LEADERSHIP: &str = "namewall-controller";

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    args.logging.start()?;
    let signals = SystemSignals::take()?;
    let namespace = args.namespace.clone().unwrap_or_else(own_namespace);
    let connection = Connection::open(&args.server.target())?.with_clock(clock());
    let identity = args.identity.clone().unwrap_or_else(own_identity);
    info!(server = %connection.server(), identity, "watching");
    let addresses = args.metrics_address.into_iter().chain(args.health_port.map(HttpAddress::everywhere));
    let mut http = Http::new(addresses, "the cluster is not known yet\n")?;
    let health = http.health().clone();
    let watch = Watch::start(&connection, Component::Controller);
    let metrics = ControllerMetrics::default();
    http.serve([Arc::new(watch.metrics()) as Arc<dyn Export>, Arc::new(metrics.clone())])?;
    let mut said = Vec::new();
    while let Err(trouble) = watch.wait_until_known(LOOK_EVERY) {
        health.turn();
        if signals.wait(Duration::ZERO).is_some() {
            return Ok(ExitCode::SUCCESS);
        }
        for one in &trouble {
            let text = format!("cannot watch {}: {}", one.kind, one.what);
            if !said.contains(&text) {
                warn!("{text}");
                said.push(text);
            }
        }
    }
    let settings = Settings {
        namespace: namespace.clone(),
        other_namespaces: args.names_namespace.iter().filter(|name| **name != namespace).cloned().collect(),
        whose: if args.all_names { Whose::All } else { Whose::EgressFirewalls },
        resolvers: args.resolver.iter().map(|server| server.0).collect(),
        service: args.dns_service.clone(),
        resolver: ResolverSettings::default(),
    };
    let candidate = Candidate { namespace, name: LEADERSHIP.to_owned(), identity };
    let leadership = Leadership::seek(connection.environment(), candidate);
    let lookups = Box::new(LookupThreads::new(LOOKUPS_AT_ONCE));
    let mut controller = Controller::new(connection.environment().clone(), watch, lookups, settings);
    info!("ready");
    health.set_ready(true);
    loop {
        health.turn();
        controller.watch().wait(TURN);
        connection.block_on(controller.turn(leadership.is_held()));
        metrics.set(controller.counts());
        if signals.wait(Duration::ZERO) == Some(Signal::Stop) {
            break;
        }
    }
    connection.block_on(leadership.give_up());
    info!("ended; the names stay as they are");
    Ok(ExitCode::SUCCESS)
}

fn own_identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{}", host.trim(), std::process::id())
}
