//! Every scenario in the repository, played through the policy core.

use namewall_cluster::{Settings, lower};
use namewall_policy::addr::AddrSet;
use namewall_scenario::{Scenario, Step, run};
use std::path::Path;
use std::time::Duration;

#[derive(Default)]
struct Tally {
    files: usize,
    probes: usize,
    connections: usize,
    failures: Vec<String>,
}

fn scenarios(folder: &str) -> Vec<Scenario> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let files = Scenario::find(&root).unwrap_or_else(|error| panic!("{error}"));
    files.iter().map(|file| Scenario::load(file).unwrap_or_else(|error| panic!("{error}"))).collect()
}

fn check(folder: &str) -> Tally {
    let mut tally = Tally::default();
    for scenario in scenarios(folder) {
        let outcome = run(&scenario);
        tally.files += 1;
        tally.probes += outcome.probes.len();
        tally.connections += outcome.connections.len();
        tally.failures.extend(outcome.failures(&scenario));
    }
    assert!(tally.failures.is_empty(), "\n{}", tally.failures.join("\n"));
    tally
}

#[track_caller]
fn at_least(wanted: usize, counted: usize) {
    assert!(counted >= wanted, "only {counted}, of {wanted} there were: have files gone missing?");
}

#[test]
fn the_conformance_suite_of_the_network_policy_api() {
    at_least(780, check("tests/scenarios/conformance").probes);
}

#[test]
fn the_examples_of_the_design_documents() {
    at_least(140, check("tests/scenarios/seeds").probes);
}

#[test]
fn the_examples_we_ship() {
    at_least(10, check("examples").probes);
}

#[test]
fn the_promises_that_packets_can_show() {
    let tally = check("tests/scenarios/packets");
    at_least(215, tally.files);
    at_least(945, tally.probes);
    at_least(75, tally.connections);
}

/// What a run in network namespaces needs to know, or has no time for.
#[test]
fn packets_can_play_them() {
    let mut complaints = Vec::new();
    for scenario in scenarios("tests/scenarios/packets") {
        let snapshot = lower(&scenario.objects, &Settings::default()).snapshot;
        let mut blocks = AddrSet::default();
        snapshot.pod_networks.iter().for_each(|&block| blocks.insert(block));
        let mut complain = |message: String| complaints.push(format!("{}: {message}", scenario.file));
        if snapshot.nodes.len() > 3 || snapshot.workloads.len() > 8 {
            complain("at most three nodes and eight pods".to_owned());
        }
        for node in snapshot.nodes.iter().filter(|node| node.addresses.is_empty()) {
            complain(format!("node {} has no address", node.name));
        }
        for pod in &snapshot.workloads {
            // A hostNetwork pod may tell of an address that its node does not.
            let at = |address: &_| pod.host_network || blocks.contains(*address);
            if pod.addresses.is_empty() || !pod.addresses.iter().all(at) {
                complain(format!("pod {} needs an address of the pods' blocks", pod.name));
            }
        }
        let waits = scenario.steps.iter().map(|step| match step {
            Step::Advance(time) => *time,
            _ => Duration::ZERO,
        });
        if waits.sum::<Duration>() > Duration::from_secs(12) {
            complain("it waits for more than 12 s".to_owned());
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}
