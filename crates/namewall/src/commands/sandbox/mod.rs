//! `namewall sandbox`: a cluster in network namespaces, that stays up between
//! commands.
//!
//! A process, the **keeper**, holds the namespaces and answers on a socket;
//! `up` starts it, the others ask it. Nothing else holds anything: when the
//! keeper ends, by `down` or by a signal, the kernel takes all of it away.

mod client;
mod keeper;
mod probe;

pub(crate) use client::runtime_folder;
pub(crate) use keeper::{Completed, complete, hosts_outside};

use crate::cli::{Sandbox, SandboxCommand, SandboxExec};
use crate::output::{self, STRONG};
use anyhow::{Context, Result, bail};
use client::Keeper;
use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

pub(crate) fn run(args: &Sandbox) -> Result<ExitCode> {
    match &args.command {
        SandboxCommand::Up(up) => {
            let ready = client::up(up)?;
            let mut out = output::stdout();
            let count = |what: &str| ready[what].as_u64().unwrap_or(0);
            let pods = if count("pods") == 1 { "pod" } else { "pods" };
            writeln!(
                out,
                "{STRONG}up{STRONG:#}: {} {pods} on {}, in {:.1} s",
                count("pods"),
                texts(&ready["nodes"]),
                ready["seconds"].as_f64().unwrap_or(0.0)
            )?;
            if let Some(count) = ready["assigned"]["workloads"].as_u64().filter(|count| *count > 0) {
                let networks = texts(&ready["assigned"]["networks"]);
                writeln!(
                    out,
                    "No pod has an address, so {count} workloads have a pod each, with addresses from {networks}; --pod-network chooses another network."
                )?;
            }
            if let Some(text) = made_up(&ready["assigned"]) {
                writeln!(out, "{text}")?;
            }
            for left_out in ready["leftOut"].as_array().into_iter().flatten() {
                output::note(left_out.as_str().unwrap_or_default());
            }
            writeln!(out, "Outside are {}.", texts(&ready["outside"]))?;
            writeln!(out, "Try: namewall sandbox probe; namewall sandbox exec NS/POD -- ping -c1 ADDRESS")?;
            out.flush()?;
            Ok(ExitCode::SUCCESS)
        }
        SandboxCommand::Probe(args) => probe::run(args),
        SandboxCommand::Exec(args) => exec(args),
        SandboxCommand::Down => {
            let mut out = output::stdout();
            match Keeper::find()? {
                Some(keeper) => {
                    keeper.stop()?;
                    writeln!(out, "{STRONG}down{STRONG:#}")?;
                }
                None => writeln!(out, "no sandbox is up")?,
            }
            out.flush()?;
            Ok(ExitCode::SUCCESS)
        }
        SandboxCommand::Keep(args) => keeper::run(args),
    }
}

/// What Services and nodes got, if anything: `1 Service has an address from 10.96.0.0/16 and the node has 192.0.2.1.`
fn made_up(assigned: &Value) -> Option<String> {
    let services = match assigned["services"].as_u64()? {
        0 => None,
        1 => Some(format!("1 Service has an address from {}", texts(&assigned["serviceNetworks"]))),
        count => Some(format!("{count} Services have an address each from {}", texts(&assigned["serviceNetworks"]))),
    };
    let nodes = assigned["nodes"].as_array().filter(|nodes| !nodes.is_empty()).map(|nodes| match nodes.len() {
        1 => format!("the node has {}", texts(&assigned["nodes"])),
        _ => format!("nodes have {}", texts(&assigned["nodes"])),
    });
    let parts: Vec<String> = services.into_iter().chain(nodes).collect();
    (!parts.is_empty()).then(|| format!("{}.", parts.join(" and ")))
}

fn texts(list: &Value) -> String {
    let items: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    items.join(", ")
}

/// Becomes the command, in the pod's network.
fn exec(args: &SandboxExec) -> Result<ExitCode> {
    let place = args.place()?;
    let keeper = Keeper::find()?.context(NOT_UP)?;
    let answer = keeper.ask(&json!({"namespace": place}))?;
    let (Some(user), Some(network)) = (answer["user"].as_str(), answer["network"].as_str()) else {
        bail!("the sandbox does not say where {place} is");
    };
    let network =
        File::open(network).with_context(|| format!("cannot open {network}; run this as the user who said `up`"))?;
    let user = File::open(user).context("cannot open the sandbox's user namespace")?;
    if !same_namespace(&user)? {
        setns(&user, CloneFlags::CLONE_NEWUSER).context("cannot enter the sandbox's user namespace")?;
    }
    setns(&network, CloneFlags::CLONE_NEWNET)
        .context("cannot enter the network namespace; run as root, or as the user who said `up`")?;
    let Some((program, arguments)) = args.command.split_first() else { bail!("there is no command to run") };
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", program.to_string_lossy()))
}

fn same_namespace(user: &File) -> Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let own = std::fs::metadata("/proc/self/ns/user")?;
    let theirs = user.metadata()?;
    Ok((own.dev(), own.ino()) == (theirs.dev(), theirs.ino()))
}

const NOT_UP: &str = "no sandbox is up; start one with: namewall sandbox up PATH…";
