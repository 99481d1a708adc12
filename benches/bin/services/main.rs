//! What a question about a cluster's own names costs through `namewall dns` and through CoreDNS, with Kubernetes' default
//! Corefile and one real API server: CPU time and memory, with many Services.
//!
//! `objects` are the cluster and the questions about it, `load` asks them, `servers` are the two that are measured.
//! Figures are held against goals by `scripts/bench`.

mod load;
mod objects;
#[path = "../cluster/process.rs"]
mod process;
mod servers;

use anyhow::{Result, bail, ensure};
use clap::Parser;
use load::{Load, Outcome};
use namewall_bench::figures::{figure, median};
use namewall_testbed::ControlPlane;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use objects::Cluster;
use servers::{Programs, Server};
use std::time::Duration;

/// Measures DNS servers of a cluster; says `figure NAME VALUE` lines
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    programs: Programs,
    /// Services, a fifth of them without an address of their own
    #[arg(long, default_value_t = 10_000)]
    services: usize,
    /// Rounds in which both are asked
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of a round
    #[arg(long, default_value_t = 4)]
    seconds: u64,
}

/// As many as are answered on a core, and few enough at once for a socket's buffer as the kernel makes it.
const FULL: Load = Load { rate: None, most_open: 192, lasts: Duration::ZERO };
const LIGHT: Load = Load { rate: Some(10_000), most_open: 4_096, lasts: Duration::ZERO };

fn main() -> Result<()> {
    let args = Args::parse();
    let [own, others] = cores()?;
    let plane = ControlPlane::start()?;
    let cluster = Cluster::make(&plane, args.services)?;
    let upstream = servers::upstream()?;
    sched_setaffinity(Pid::from_raw(0), &others)?;
    let started = servers::start(&args.programs, &plane, upstream);
    sched_setaffinity(Pid::from_raw(0), &own)?;
    let mut servers: Vec<Server> = started?;
    for server in &mut servers {
        server.wait_until_ready(&cluster)?;
    }
    for (what, load) in [("cpu", FULL), ("cpu_light", LIGHT)] {
        let load = Load { lasts: Duration::from_secs(args.seconds), ..load };
        measure(&mut servers, &cluster, Measurement { what, load, rounds: args.rounds })?;
    }
    for server in &servers {
        let [now, most] = server.memory();
        figure(&format!("services_memory_{}", server.name), now);
        figure(&format!("services_peak_{}", server.name), most);
    }
    figure("services_count", args.services as f64);
    Ok(())
}

struct Measurement {
    what: &'static str,
    load: Load,
    rounds: usize,
}

/// All take turns, and a ratio is taken within a round: what disturbs the machine disturbs neighbours alike.
fn measure(servers: &mut [Server], cluster: &Cluster, of: Measurement) -> Result<()> {
    let mut costs: Vec<Vec<f64>> = servers.iter().map(|_| Vec::new()).collect();
    for round in 0..of.rounds {
        for at in 0..servers.len() {
            let at = (at + round) % servers.len();
            let server = &servers[at];
            let before = server.cpu_time()?;
            let Outcome { answered, lost, wrong } = of.load.run(server.address, cluster, round)?;
            let used = server.cpu_time()?.saturating_sub(before);
            ensure!(wrong == 0, "{}: {wrong} of {answered} answers are wrong", server.name);
            ensure!(answered > 0, "{} answers nothing", server.name);
            if lost > 0 {
                eprintln!("{}: {lost} questions were lost", server.name);
            }
            costs[at].push(used.as_secs_f64() * 1e6 / answered as f64);
        }
    }
    for (server, costs) in servers.iter().zip(&costs) {
        figure(&format!("services_{}_{}", of.what, server.name), median(costs));
    }
    if let [ours, theirs] = &costs[..] {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        figure(&format!("services_{}_of_coredns", of.what), median(&ratios));
    }
    Ok(())
}

/// A core for who asks, and one for who is asked.
fn cores() -> Result<[CpuSet; 2]> {
    let allowed = sched_getaffinity(Pid::this())?;
    let all: Vec<usize> = (0..CpuSet::count()).filter(|&core| allowed.is_set(core) == Ok(true)).collect();
    let [own, .., others] = all[..] else { bail!("two cores are needed: one for servers, one for the load") };
    let only = |core| -> Result<CpuSet> {
        let mut set = CpuSet::new();
        set.set(core)?;
        Ok(set)
    };
    Ok([only(own)?, only(others)?])
}
