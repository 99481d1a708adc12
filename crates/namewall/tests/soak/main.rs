//! The soak: a node under random changes and faults for a long time, with a model
//! that says what every connection must show (`make soak`).
//!
//! Policies, labels and names change; files break; the process is killed, paused,
//! restarted and taken over; the upstream falls silent, fails, is late and has forged
//! replies before its own; disk, table of connections and memory are full; clocks
//! jump. Each of these happens in every run. All of it follows from one seed: `SEED=7 SECONDS=1800 cargo test -p namewall --features system --test soak`
//! repeats a run. While the state changes from one to the next, a connection that
//! both allow must be open, and one that both deny must be silent.

// All of it is a test, which cannot be seen where there is no harness.
#![allow(clippy::unwrap_used)]

mod action;
mod faults;
mod model;
mod node;
mod policy;
mod resources;
#[path = "../world/mod.rs"]
mod world;

use action::{Action, KINDS};
use namewall_sandbox::ensure_rights;
use namewall_testbed::{Dice, give_up};
use node::Node;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// How long it runs if `SECONDS` is not set, and the fewest steps. A slow machine takes longer for these.
const SECONDS: u64 = 300;
const STEPS: usize = 60;
/// The last actions, which a failure shows.
const SHOWN: usize = 12;

fn main() {
    ensure_rights().unwrap_or_else(|error| give_up(error));
    world::disk::own_mounts();
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("it is a number"));
    let seconds = Duration::from_secs(number("SECONDS").unwrap_or(SECONDS));
    let seed = number("SEED").unwrap_or(1);
    let mut node = Node::start();
    let mut dice = Dice::new(seed);
    let mut done: Vec<Action> = Vec::new();
    let began = Instant::now();
    let mut reported = began;
    let mut kinds = BTreeMap::from(KINDS.map(|kind| (kind, 0)));
    loop {
        let is_missing = |kind: &str| kinds[kind] == 0;
        let action = if began.elapsed() < seconds || done.len() < STEPS {
            Action::random(&mut dice, &node.model)
        } else if KINDS.into_iter().any(is_missing) {
            Action::wanted(&mut dice, &node.model, is_missing)
        } else {
            break;
        };
        done.push(action.clone());
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| node.step(&action))) {
            eprintln!("step {} of seed {seed} failed; the last actions:", done.len());
            done.iter().rev().take(SHOWN).rev().for_each(|action| eprintln!("  {action:?}"));
            // Denials are most of the log, and say no more than the probes.
            let log = node.log();
            let lines: Vec<&str> = log.lines().filter(|line| !line.contains("denials: denied")).collect();
            eprintln!("the log:\n{}", lines[lines.len().saturating_sub(4 * SHOWN)..].join("\n"));
            resume_unwind(panic);
        }
        *kinds.entry(action.kind()).or_default() += 1;
        if reported.elapsed() > Duration::from_secs(60) {
            println!("{} s, {} steps; {}", began.elapsed().as_secs(), done.len(), node.resources);
            reported = Instant::now();
        }
    }
    println!(
        "{} s, seed {seed}, {} steps: {:?}; {}",
        began.elapsed().as_secs(),
        done.len(),
        node.tally,
        node.resources
    );
    println!("{kinds:?}");
    assert_eq!(kinds.len(), KINDS.len(), "a kind of action is not listed");
    node.resources.check();
    let tally = &node.tally;
    assert!(tally.open > 100 && tally.silent > 100 && tally.kept > 0 && tally.cut > 0, "too little was seen");
    assert!(tally.in_parts * 1000 <= tally.silent, "too many packets met two Programs");
    println!("test soak ... ok");
}
