//! namewall on two real nodes: kubelet, containerd, runc, a bridge CNI and
//! kube-proxy in namespaces of this machine, with a control plane, DNS and an
//! internet beside them. namewall is installed by its own chart, and then every
//! step is tried by real pods with real packets, until it is removed again.
//!
//! `scripts/e2e` builds what this needs, and starts it as the first process of
//! namespaces of its own, so that nothing of it can be left behind. `stage` is
//! the cluster and the world, `report` what is said; the others are the story.

mod families;
mod init;
mod names;
mod policies;
mod removal;
mod report;
mod setup;
mod stage;
mod trouble;

use anyhow::Result;
use clap::Parser;
use stage::Stage;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// What scripts/e2e says.
#[derive(Parser, Debug)]
#[command(name = "namewall-e2e", about = "Start it by `make e2e`.")]
pub(crate) struct Settings {
    /// Nodes, installation, one policy and one name
    #[arg(long)]
    short: bool,
    /// A folder for what is written; `logs` in it is for who looks afterwards
    #[arg(long)]
    folder: PathBuf,
    /// A folder with an archive of every image
    #[arg(long)]
    images: PathBuf,
    /// namewall as it runs here
    #[arg(long)]
    namewall: PathBuf,
    /// The probe as it runs here
    #[arg(long)]
    probe: PathBuf,
    #[arg(long)]
    helm: PathBuf,
    #[arg(long)]
    chart: PathBuf,
    /// A cgroup that has one for each node
    #[arg(long)]
    cgroup: String,
}

fn main() -> ExitCode {
    if std::process::id() == 1 {
        return init::run();
    }
    let settings = Settings::parse();
    let began = Instant::now();
    match play(&settings) {
        Ok(()) => {
            println!("\nall as expected, in {:.0} s", began.elapsed().as_secs_f64());
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("\n{error:#}\n\nlogs: {}", settings.folder.join("logs").display());
            ExitCode::FAILURE
        }
    }
}

fn play(settings: &Settings) -> Result<()> {
    let mut stage = setup::build(settings)?;
    let played = act(&mut stage);
    if played.is_err() {
        stage.write_down();
    }
    played
}

fn act(stage: &mut Stage) -> Result<()> {
    setup::install(stage)?;
    policies::between_pods(stage)?;
    policies::no_first_packet_is_lost(stage)?;
    if !stage.is_short {
        families::policies_hold(stage)?;
    }
    names::of_an_egress_firewall(stage)?;
    setup::nothing_is_complained_of(stage)?;
    if stage.is_short {
        return Ok(());
    }
    policies::new_pods_are_closed(stage)?;
    names::of_a_cluster_network_policy(stage)?;
    trouble::the_leading_controller_hangs(stage)?;
    trouble::an_agent_is_killed(stage)?;
    trouble::agents_are_updated(stage)?;
    trouble::the_api_server_is_away(stage)?;
    // Kubelets and controllers of Kubernetes look for a server that was away ever more seldom, and are deaf for up to
    // a minute after. What needs none of them comes first; a removal that needs them takes seconds otherwise.
    families::names_open(stage)?;
    setup::nothing_is_complained_of(stage)?;
    trouble::runtime_and_node_restart(stage)?;
    removal::leaves_nothing(stage)
}
