//! S8.7 on two nodes with real processes and packets, under faults: what any agent
//! has opened for a name stays open on all nodes while DNS returns it, and closes
//! on all within TTL and grace when DNS no longer does.
//!
//! A seed is a round with one fault or two. `make faults SEEDS=20 FIRST_SEED=1`
//! runs many; `SEEDS=1 FIRST_SEED=7` is seed 7 again. CI runs the seeds of `CI`.

// All of it is a test, which cannot be seen where there is no harness.
#![allow(clippy::unwrap_used)]

mod closing;
mod dns;
mod fault;
mod heartbeat;
mod invariant;
mod openshift;
mod stage;
#[path = "../world/mod.rs"]
mod world;

use fault::Fault;
use invariant::Invariant;
use namewall_sandbox::ensure_rights;
use namewall_testbed::{give_up, program};
use stage::Stage;
use std::time::Instant;

/// How many names `ManyNames` adds, unless `NAMES` says otherwise. `make faults` has 10,000.
const FEW_NAMES: usize = 500;
/// The seeds that CI runs.
const CI: [u64; 2] = [2, 10];

fn main() {
    // Before the first thread: without root it takes a user namespace.
    ensure_rights().unwrap_or_else(|error| give_up(error));
    program("nft");
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("it is a number"));
    let names = number("NAMES").map_or(FEW_NAMES, |names| names as usize);
    let seeds: Vec<u64> = match number("SEEDS") {
        Some(count) => (number("FIRST_SEED").unwrap_or(1)..).take(count as usize).collect(),
        None => CI.to_vec(),
    };
    let began = Instant::now();
    let mut stage = Stage::build();
    let mut invariant = Invariant::begin(&stage);
    println!("{:.0} s: two nodes share names", began.elapsed().as_secs_f64());
    for seed in &seeds {
        let faults = Fault::of_seed(*seed, names);
        println!("{:.0} s: seed {seed}: {faults:?}", began.elapsed().as_secs_f64());
        invariant.round(&mut stage, *seed, &faults);
    }
    println!("{} seeds, {} probes: {}", seeds.len(), invariant.probes, invariant.summary());
    stage.openshift().into_iter().for_each(|said| println!("{said}"));
    println!("test faults ... ok, {:.0} s", began.elapsed().as_secs_f64());
}
