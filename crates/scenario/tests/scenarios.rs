//! Every scenario in the repository, played through the policy core.

use namewall_scenario::{Scenario, run};
use std::path::Path;

fn check(folder: &str, at_least: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let files = Scenario::find(&root).unwrap_or_else(|error| panic!("{error}"));
    let (mut probes, mut failures) = (0, Vec::new());
    for file in files {
        let scenario = Scenario::load(&file).unwrap_or_else(|error| panic!("{error}"));
        let outcome = run(&scenario);
        probes += outcome.probes.len();
        failures.extend(outcome.broken.map(|message| format!("{}: {message}", scenario.file)));
        for probe in outcome.probes.into_iter().filter(|probe| !probe.passed) {
            let (source, expect) = (&probe.probe.source, &probe.probe.expect);
            failures.push(format!("{source}: {}\n  expected {expect}\n  got {}", probe.probe.text, probe.got));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    assert!(probes >= at_least, "only {probes} probes in {folder}: have files gone missing?");
}

#[test]
fn the_conformance_suite_of_the_network_policy_api() {
    check("tests/scenarios/conformance", 780);
}

#[test]
fn the_examples_of_the_design_documents() {
    check("tests/scenarios/seeds", 140);
}

#[test]
fn the_examples_we_ship() {
    check("examples", 10);
}
