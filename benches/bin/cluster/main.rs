//! What a cluster asks of namewall, against a real API server: how soon a name
//! that was looked up on one node is open on another (`nodes`), how soon a node's
//! new address is denied on all (`addresses`), how soon what is written is in a
//! node's kernel (`events`), how long a new pod waits for its policies (`attach`),
//! what a controller with many names takes, and how late it is (`names`), how soon
//! another replica leads (`failover`), and how fast the simulator is (`simulation`). `rig`
//! is nodes with agents, `stub` answers for the world's DNS, `process` is a namewall
//! that is measured.

mod addresses;
mod attach;
mod events;
mod failover;
mod names;
mod nodes;
mod process;
mod rig;
mod simulation;
mod stub;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use namewall_bench::figures::figure;
use namewall_kubernetes::crds::{definitions, to_yaml};
use namewall_testbed::ControlPlane;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Measures namewall in a cluster; says `figure NAME VALUE` lines
#[derive(Parser)]
struct Args {
    /// Only these parts
    #[arg(long, value_delimiter = ',')]
    parts: Vec<Part>,
    /// Names that are looked up on one node, 1,000 a minute
    #[arg(long, default_value_t = 1_000)]
    lookups: usize,
    /// New addresses of a node
    #[arg(long, default_value_t = 30)]
    addresses: usize,
    /// Changes of pods, at most 480: half of them new addresses, half other labels
    #[arg(long, default_value_t = 300)]
    events: usize,
    /// New pods, at most 240
    #[arg(long, default_value_t = 200)]
    pods: usize,
    /// Names that the controller keeps
    #[arg(long, default_value_t = 10_000)]
    names: usize,
    /// How long it is measured once all of them are known
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// How often the leader is killed
    #[arg(long, default_value_t = 5)]
    kills: usize,
    /// Schedules of faults that are simulated
    #[arg(long, default_value_t = 8)]
    schedules: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Part {
    /// From an answer on one node to a lease on another
    Nodes,
    /// From a new address of a node to its denial on all
    Addresses,
    /// From what the API server was told of a pod to the kernel of its node
    Events,
    /// From ADD of a container runtime to policies that are enforced
    Attach,
    /// A controller with many names
    Names,
    /// From the leader's death to another one
    Failover,
    /// The simulator itself
    Simulation,
}

fn main() -> Result<()> {
    let args = Args::parse();
    // Before the first thread: without root it takes a user namespace.
    namewall_sandbox::ensure_rights()?;
    let does = |part| args.parts.is_empty() || args.parts.contains(&part);
    if does(Part::Nodes) {
        nodes::measure(args.lookups)?;
    }
    if does(Part::Addresses) {
        addresses::measure(args.addresses)?;
    }
    if does(Part::Events) {
        events::measure(args.events)?;
    }
    if does(Part::Attach) {
        attach::measure(args.pods)?;
    }
    if does(Part::Names) {
        names::measure(args.names, Duration::from_secs(args.seconds))?;
    }
    if does(Part::Failover) {
        failover::measure(args.kills)?;
    }
    if does(Part::Simulation) {
        simulation::measure(args.schedules);
    }
    figure("cluster_done", 1.0);
    Ok(())
}

/// A control plane that has all kinds, and the namespace of our own.
fn control_plane() -> Result<ControlPlane> {
    let plane = ControlPlane::start()?;
    plane.apply(&to_yaml(&definitions())?)?;
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all"])?;
    plane.kubectl(&["create", "namespace", "namewall"])?;
    Ok(plane)
}

/// The namewall that was built with this.
fn namewall() -> Result<PathBuf> {
    Ok(std::env::current_exe()?.parent().context("it is in a folder")?.join("namewall"))
}

/// A folder that goes with whoever holds it.
struct Folder(PathBuf);

impl Folder {
    fn create(name: &str) -> Result<Self> {
        Self::create_in(&std::env::temp_dir(), name)
    }

    /// In memory, as a node's /run is; on disk where there is no such place.
    fn create_in_memory(name: &str) -> Result<Self> {
        let memory = PathBuf::from("/dev/shm");
        Self::create_in(&if memory.is_dir() { memory } else { std::env::temp_dir() }, name)
    }

    fn create_in(parent: &Path, name: &str) -> Result<Self> {
        let path = parent.join(format!("namewall-bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // At worst a small file stays.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
