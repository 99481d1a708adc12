//! The process that holds a sandbox, and answers for it.

use super::client::{PARENT, socket_path};
use super::probe::measure;
use crate::cli::SandboxUp;
use crate::input::{Loaded, NOW};
use anyhow::{Context, Result, bail};
use namewall_dataplane::CutEstablished;
use namewall_policy::addr::Cidr;
use namewall_policy::model::{BackendTarget, WorkloadId};
use namewall_policy::{Lease, LeaseRef, compile};
use namewall_sandbox::{Cluster, Namespace, Progress, Wanted, assign_addresses, ensure_rights};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, getppid, setsid};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;

/// A host outside, where nobody names one.
const OUTSIDE: [&str; 2] = ["203.0.113.10", "2001:db8:ffff::10"];

pub(crate) struct Kept {
    pub(crate) loaded: Loaded,
    pub(crate) cluster: Cluster,
    pub(crate) outside: Vec<IpAddr>,
}

pub(crate) fn run(args: &SandboxUp) -> Result<ExitCode> {
    // The terminal's signals are not for it.
    setsid().ok();
    // In a user namespace this user is root, and its folder would be another.
    let path = socket_path()?;
    // Before the first thread.
    ensure_rights().context("the sandbox needs network namespaces")?;
    end_with_parent()?;
    let start = std::time::Instant::now();
    let mut loaded = Loaded::read(&args.input)?;
    loaded.report_errors();
    let Completed { made_up, left_out: without } = complete(&mut loaded);
    loaded.learn(&args.dns, None);
    let outside = hosts_outside(&loaded, &args.outside);
    let wanted = Wanted {
        snapshot: &loaded.snapshot,
        program: &loaded.program,
        outside: &outside,
        cut: CutEstablished::Always,
        dns: None,
    };
    let mut cluster = Cluster::build(&wanted, &mut |progress: Progress| {
        say(&json!({"done": progress.done, "total": progress.total}));
    })
    .context("cannot build the sandbox")?;
    let leases: Vec<Lease> = loaded.leases.iter().map(LeaseRef::to_lease).collect();
    cluster.grant(&leases, NOW).context("cannot grant leases")?;
    let topology = cluster.sandbox.topology();
    if topology.pods.is_empty() {
        bail!("the input has no pod and no workload to make one of, so there is nothing to build");
    }
    let listener = UnixListener::bind(&path).with_context(|| format!("cannot listen at {}", path.display()))?;
    // Who waits ends when it is told.
    set_pdeathsig(None).context("cannot stay without the process that waited")?;
    say(&json!({
        "ready": true,
        "pods": topology.pods.len(),
        "nodes": topology.nodes.keys().map(|name| name.to_string()).collect::<Vec<_>>(),
        "outside": topology.outside.iter().map(IpAddr::to_string).collect::<Vec<_>>(),
        "leftOut": topology.left_out.iter().map(ToString::to_string).chain(without).collect::<Vec<_>>(),
        "assigned": made_up,
        "seconds": start.elapsed().as_secs_f64(),
    }));
    detach().context("cannot leave the terminal")?;
    let mut kept = Kept { loaded, cluster, outside };
    for stream in listener.incoming() {
        if answer(&mut kept, stream?)? {
            break;
        }
    }
    drop(listener);
    std::fs::remove_file(&path).ok();
    Ok(ExitCode::SUCCESS)
}

/// Until the sandbox is up, somebody waits for it. If they give up, nobody could end a keeper that still reads a pipe:
/// the terminal's signals do not reach it.
fn end_with_parent() -> Result<()> {
    set_pdeathsig(Signal::SIGTERM).context("cannot follow the process that waits for the sandbox")?;
    // It may have ended before.
    let parent = std::env::var(PARENT).ok();
    if parent.is_some_and(|parent| parent != getppid().to_string()) {
        bail!("the process that waits for the sandbox has ended");
    }
    Ok(())
}

/// What it took to make a cluster of manifests.
pub(crate) struct Completed {
    /// Addresses that were made up; null if none were.
    pub(crate) made_up: Value,
    /// The workloads that stay without an address, each with a note.
    pub(crate) left_out: Vec<String>,
}

/// Where no pod has an address, as in manifests from Git, workloads get one each.
pub(crate) fn complete(loaded: &mut Loaded) -> Completed {
    let snapshot = &loaded.snapshot;
    let is_placed = |id: &WorkloadId| !snapshot.workload(*id).addresses.is_empty();
    if snapshot.workload_ids().any(|id| is_placed(&id)) {
        let lost = snapshot.workload_ids().filter(|id| !is_placed(id) && !snapshot.workload(*id).host_network);
        let lost = lost.map(|id| format!("{} has no address and is left out", snapshot.workload_name(id)));
        return Completed { made_up: Value::Null, left_out: lost.collect() };
    }
    let assigned = assign_addresses(&mut loaded.snapshot);
    loaded.program = compile(&loaded.snapshot).0;
    let texts = |networks: &[Cidr]| networks.iter().map(ToString::to_string).collect::<Vec<_>>();
    let lost = assigned.left_out.iter().map(|name| format!("{name} is left out: the pod network is full"));
    let made_up = json!({
        "workloads": assigned.workloads.len(),
        "networks": texts(&assigned.networks),
        "services": assigned.services,
        "serviceNetworks": texts(&assigned.service_networks),
        "nodes": assigned.nodes.iter().map(IpAddr::to_string).collect::<Vec<_>>(),
    });
    Completed { made_up, left_out: lost.collect() }
}

/// Whoever reads what `up` says must not wait for us to end.
fn detach() -> Result<()> {
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    dup2_stderr(&nothing)?;
    Ok(())
}

/// A line for whoever started us; nobody may be listening any more.
fn say(what: &Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{what}").and_then(|()| out.flush()).ok();
}

/// The hosts outside: those that are named, or a usual one, and all that names and endpoints lead to.
pub(crate) fn hosts_outside(loaded: &Loaded, named: &[IpAddr]) -> Vec<IpAddr> {
    let mut outside: BTreeSet<IpAddr> = named.iter().copied().collect();
    if outside.is_empty() {
        // Of the families that are spoken in the cluster.
        let known: Vec<&IpAddr> = loaded.program.by_address.iter().map(|(address, _)| address).collect();
        let spoken = |host: &IpAddr| known.iter().any(|address| address.is_ipv4() == host.is_ipv4());
        outside.extend(OUTSIDE.iter().filter_map(|text| text.parse().ok()).filter(spoken));
    }
    outside.extend(loaded.names.values().flatten());
    let backends = loaded.snapshot.services.iter().flat_map(|service| &service.ports).flat_map(|port| &port.backends);
    outside.extend(backends.filter_map(|backend| match backend.target {
        BackendTarget::Address(address) => Some(address).filter(|&at| loaded.program.pod_at(at).is_none()),
        BackendTarget::Workload(_) => None,
    }));
    outside.into_iter().collect()
}

/// Answers one question; true if it was the last.
fn answer(kept: &mut Kept, stream: UnixStream) -> Result<bool> {
    let mut question = String::new();
    let mut reader = BufReader::new(stream);
    // Whoever only looks whether we are here says nothing.
    if reader.read_line(&mut question).unwrap_or(0) == 0 {
        return Ok(false);
    }
    let question: Value = serde_json::from_str(&question).unwrap_or_default();
    let answer = if question["down"].as_bool() == Some(true) {
        Ok(json!({"down": true}))
    } else if let Some(place) = question["namespace"].as_str() {
        namespace(kept, place)
    } else if !question["probe"].is_null() {
        measure(kept, &question["probe"])
    } else {
        Err(anyhow::anyhow!("the sandbox does not know what to do with this; is it another version of namewall?"))
    };
    let answer = answer.unwrap_or_else(|error| json!({"error": format!("{error:#}")}));
    writeln!(reader.get_mut(), "{answer}").ok();
    Ok(answer["down"].as_bool() == Some(true))
}

/// Where a pod, a node (`node:NAME`) or the outside (`outside:`) is.
fn namespace(kept: &Kept, place: &str) -> Result<Value> {
    let sandbox = &kept.cluster.sandbox;
    let found = match place.split_once(':') {
        Some(("node", name)) => sandbox.node(name).context("there is no such node in the sandbox"),
        Some(("outside", _)) => Ok(sandbox.outside()),
        _ => sandbox.pod(place).with_context(|| {
            let names: Vec<&str> = sandbox.topology().pods.keys().map(|name| &**name).take(20).collect();
            format!("there is no pod {place} in the sandbox; there are {}", names.join(", "))
        }),
    }?;
    let network = Namespace::path(found);
    Ok(json!({"user": format!("/proc/{}/ns/user", std::process::id()), "network": network.to_string_lossy()}))
}
