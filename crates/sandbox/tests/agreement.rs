//! Every scenario that packets can show, played through the core and with
//! packets: both must agree with each other and with what the file expects.

use namewall_sandbox::{Packets, ensure_rights};
use namewall_scenario::{Scenario, run_in};
use namewall_testbed::give_up;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Most of a scenario is waiting for answers that do not come.
const AT_ONCE: usize = 6;

#[test]
fn every_scenario_is_the_same_with_packets() {
    check("tests/scenarios/packets");
}

#[test]
fn every_scenario_about_names_is_the_same_with_packets() {
    check("tests/scenarios/names");
}

#[test]
fn the_examples_are_the_same_with_packets() {
    check("examples/names");
    check("examples/cluster-egress-firewall");
}

fn check(folder: &str) {
    ensure_rights().unwrap_or_else(|error| give_up(error));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let files = Scenario::find(&root).unwrap_or_else(|error| panic!("{error}"));
    let only = std::env::var("SCENARIO").unwrap_or_default();
    let files: Vec<_> = files.into_iter().filter(|file| file.to_string_lossy().contains(&only)).collect();
    let (next, failed, probes) = (AtomicUsize::new(0), Mutex::new(Vec::new()), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let scenario = Scenario::load(file).unwrap_or_else(|error| panic!("{error}"));
                    let outcome = run_in(&mut Packets::for_scenario(&scenario), &scenario);
                    probes.fetch_add(outcome.probes.len(), Ordering::Relaxed);
                    failed.lock().expect("nobody panics with it").extend(outcome.failures(&scenario));
                }
            });
        }
    });
    let failed = failed.into_inner().expect("nobody panicked with it");
    assert!(failed.is_empty(), "{} of {} probes:\n{}", failed.len(), probes.into_inner(), failed.join("\n"));
}
