//! Any bytes as a scenario file: it is read and played, without a look at the
//! files it may name.

use namewall_cluster::yaml::{self, Node, Value};
use namewall_scenario::{Scenario, run};
use std::path::Path;

pub fn scenarios(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let trees: Vec<Node> =
        yaml::split_documents(&text).into_iter().filter_map(|document| yaml::parse(document).ok().flatten()).collect();
    if trees.iter().any(names_files) {
        return;
    }
    let Ok(scenario) = Scenario::parse(&text, "fuzz.yaml", Path::new("/nonexistent")) else { return };
    let (once, again) = (run(&scenario), run(&scenario));
    let told = |outcome: &namewall_scenario::Outcome| {
        let probes = outcome.probes.iter().map(|probe| (probe.passed, probe.got.clone()));
        let connections = outcome.connections.iter().map(|connection| (connection.passed, connection.got.clone()));
        let lookups = outcome.lookups.iter().map(|lookup| (lookup.passed, lookup.got.clone()));
        probes.chain(connections).chain(lookups).collect::<Vec<_>>()
    };
    assert_eq!(told(&once), told(&again), "a scenario plays the same way twice");
}

fn names_files(node: &Node) -> bool {
    let within = |entry: &yaml::Entry| match (&*entry.key, &entry.node.value) {
        ("manifests", _) | ("apply", Value::String(_)) => true,
        _ => names_files(&entry.node),
    };
    match &node.value {
        Value::Seq(items) => items.iter().any(names_files),
        Value::Map(entries) => entries.iter().any(within),
        _ => false,
    }
}
