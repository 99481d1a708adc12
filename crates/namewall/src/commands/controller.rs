//! `namewall controller`: one for a cluster. Keeps the names of policies
//! resolved for all nodes.

use super::health::Health;
use super::own_namespace;
use super::signals::{next_signal, take_signals};
use crate::cli::Controller as Args;
use crate::output;
use anyhow::{Context, Result};
use namewall_cluster::resolver::Settings as ResolverSettings;
use namewall_controller::{Controller, Settings, Whose};
use namewall_kubernetes::{Candidate, Connection, Leadership, Watch};
use nix::sys::signal::Signal;
use std::process::ExitCode;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(250);
/// What replicas lead by.
const LEADERSHIP: &str = "namewall-controller";

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // Before the first thread, so that every thread leaves them to us.
    let signals = take_signals()?;
    let namespace = args.namespace.clone().unwrap_or_else(own_namespace);
    let connection = Connection::open(&args.server.target())?;
    let identity = args.identity.clone().unwrap_or_else(own_identity);
    output::note(&format!("watching {} as {identity}", connection.server()));
    let health = Health::new();
    if let Some(port) = args.health_port {
        health.serve(port)?;
    }
    let watch = Watch::start(&connection);
    let mut said = Vec::new();
    while let Err(trouble) = watch.wait_until_known(LOOK_EVERY) {
        health.turn();
        if next_signal(&signals, Duration::ZERO).is_some() {
            return Ok(ExitCode::SUCCESS);
        }
        for one in &trouble {
            let text = format!("cannot watch {}: {}", one.kind, one.what);
            if !said.contains(&text) {
                output::note(&text);
                said.push(text);
            }
        }
    }
    let settings = Settings {
        namespace: namespace.clone(),
        whose: if args.all_names { Whose::All } else { Whose::EgressFirewalls },
        resolvers: args.resolver.iter().map(|server| server.0).collect(),
        service: args.dns_service.clone(),
        resolver: ResolverSettings::default(),
    };
    let candidate = Candidate { namespace, name: LEADERSHIP.to_owned(), identity };
    let leadership = Leadership::seek(&connection, candidate);
    let mut controller = Controller::new(&connection, watch, settings).context("cannot start threads")?;
    output::note("ready");
    health.set_ready();
    loop {
        health.turn();
        for line in controller.turn(&leadership) {
            output::note(&line);
        }
        match next_signal(&signals, Duration::ZERO) {
            Some(Signal::SIGHUP) | None => {}
            Some(_) => break,
        }
    }
    leadership.give_up();
    output::note("ended; the names stay as they are");
    Ok(ExitCode::SUCCESS)
}

fn own_identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{}", host.trim(), std::process::id())
}
