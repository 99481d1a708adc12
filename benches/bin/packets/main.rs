//! What a packet pays on its way through a node, with many policies and with
//! few, against the least that a stateful firewall pays.
//!
//! Every filter has a node of its own, and all are measured in turn, in short
//! slices: what disturbs the machine disturbs them alike. A figure is the
//! median, over all rounds, of the ratio within a round: of the ways that were
//! tried it brings a filter and its double nearest to each other, run after run.

mod rig;
mod tables;
mod traffic;

use anyhow::{Context, Result};
use clap::Parser;
use namewall_bench::figures::{figure, median, quantile};
use rig::Rig;
use tables::Filter;
use traffic::Load;

/// Measures what packets pay for policies; says `figure NAME VALUE` lines
#[derive(Parser)]
struct Args {
    /// How often each filter is measured with each load; with noisy ones more often
    #[arg(long, default_value_t = 30)]
    rounds: usize,
    /// Leave out all that takes long to set up
    #[arg(long)]
    small: bool,
}

const FILTERS: [Filter; 13] = [
    Filter::Tracked,
    Filter::TrackedAgain,
    Filter::Nothing,
    Filter::Namewall(10),
    Filter::Namewall(100),
    Filter::Namewall(1_000),
    Filter::Guarded { policies: 1_000, interfaces: 10 },
    Filter::Guarded { policies: 1_000, interfaces: 1_000 },
    Filter::DeniedNetworks(10_000),
    Filter::DeniedNodes(5_000),
    Filter::Linear(1_000),
    Filter::Namewall(10_000),
    Filter::Linear(10_000),
];
const SMALL: usize = 11;

fn main() -> Result<()> {
    let args = Args::parse();
    namewall_sandbox::ensure_rights()?;
    let filters = if args.small { &FILTERS[..SMALL] } else { &FILTERS[..] };
    let mut rigs = Vec::new();
    for &filter in filters {
        rigs.push(Rig::build(filter).with_context(|| format!("cannot set up {filter}"))?);
    }
    for load in Load::ALL {
        let measured = measure(&mut rigs, load, args.rounds * load.patience())?;
        let base = &measured[0];
        figure(&format!("{load}_tracked_us"), median(base) * 1e6);
        for (rig, seconds) in rigs.iter().zip(&measured).skip(1) {
            let ratios: Vec<f64> = base.iter().zip(seconds).map(|(base, seconds)| base / seconds).collect();
            figure(&format!("{load}_{}", rig.filter), median(&ratios));
            figure(&format!("{load}_{}_low", rig.filter), quantile(&ratios, 0.25));
            figure(&format!("{load}_{}_high", rig.filter), quantile(&ratios, 0.75));
        }
    }
    Ok(())
}

/// Seconds of CPU an operation, by rig, by round.
fn measure(rigs: &mut [Rig], load: Load, rounds: usize) -> Result<Vec<Vec<f64>>> {
    let mut measured = vec![Vec::new(); rigs.len()];
    for round in 0..rounds {
        for at in 0..rigs.len() {
            // Everyone comes after everyone, sooner or later.
            let at = (at + round) % rigs.len();
            measured[at].push(load.run(&rigs[at]).with_context(|| format!("{load} through {}", rigs[at].filter))?);
        }
        rigs.iter_mut().try_for_each(Rig::forget_connections)?;
    }
    Ok(measured)
}
