//! Every scenario in the repository, played through the policy core.

use namewall_scenario::{Scenario, run};
use std::path::{Path, PathBuf};

/// Scenario files below a folder; manifests that lie beside them have no probes.
fn scenarios(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            scenarios(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "yaml")
            && std::fs::read_to_string(&path).unwrap().lines().any(|line| line.starts_with("probes:"))
        {
            found.push(path);
        }
    }
}

fn check(folder: &str, at_least: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let mut files = Vec::new();
    scenarios(&root, &mut files);
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
    check("tests/scenarios/conformance", 850);
}

#[test]
fn the_examples_of_the_design_documents() {
    check("tests/scenarios/seeds", 60);
}

#[test]
fn the_examples_we_ship() {
    check("examples", 10);
}
