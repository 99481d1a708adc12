//! Every scenario in the repository, played through the policy core.

use namewall_cluster::{Settings, lower};
use namewall_policy::addr::AddrSet;
use namewall_scenario::zones::{Leasable, Message, ReadsAnswers};
use namewall_scenario::{Means, Scenario, Step, play, run};
use std::path::Path;
use std::time::Duration;

#[derive(Default)]
struct Tally {
    files: usize,
    probes: usize,
    connections: usize,
    lookups: usize,
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
        tally.lookups += outcome.lookups.len();
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
    at_least(70, check("examples").probes);
}

#[test]
fn the_promises_that_packets_can_show() {
    let tally = check("tests/scenarios/packets");
    at_least(215, tally.files);
    at_least(945, tally.probes);
    at_least(75, tally.connections);
}

#[test]
fn the_promises_about_names() {
    let tally = check("tests/scenarios/names");
    at_least(115, tally.files);
    at_least(220, tally.probes);
    at_least(160, tally.lookups);
}

/// What a run in network namespaces needs to know, or has no time for.
#[test]
fn packets_can_play_them() {
    let mut complaints = Vec::new();
    for scenario in ["packets", "names"].iter().flat_map(|folder| scenarios(&format!("tests/scenarios/{folder}"))) {
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
        if waits.sum::<Duration>() > Duration::from_secs(24) {
            complain("it waits for more than 24 s".to_owned());
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// One who believes whatever comes.
struct Gullible;

impl ReadsAnswers for Gullible {
    fn leasable(&self, query: &[u8], answer: &[u8]) -> Option<Leasable> {
        let (query, answer) = (Message::read(query).ok()?, Message::read(answer).ok()?);
        let name = query.question?.name.as_domain()?;
        let records = answer.answer.iter().chain(&answer.additional);
        let addresses = records.filter_map(|record| Some((record.data.address()?, Duration::from_secs(300))));
        Some(Leasable { name, addresses: addresses.collect() })
    }
}

/// A promise whose file passes with such a reader is not tested by it.
#[test]
fn the_promises_about_answers_tell_a_bad_reader() {
    const ABOUT_ANSWERS: [&str; 19] = [
        "s6_1_a_forged_answer_with_the_wrong_id",
        "s6_1_a_forged_answer_with_the_wrong_question",
        "s6_1_forged_answers_of_every_kind_ipv6",
        "s6_1_forged_answers_over_tcp",
        "s6_1_foreign_owners_are_not_opened",
        "s6_1_foreign_names_may_have_rules_of_their_own",
        "s6_1_an_alias_that_leads_elsewhere",
        "s6_1_an_alias_round_in_a_circle",
        "s6_1_an_alias_of_itself",
        "s6_1_seventeen_aliases_are_too_many",
        "s6_1_what_is_additional_opens_nothing",
        "s6_1_servfail_with_addresses_opens_nothing",
        "s6_1_nxdomain_with_addresses_opens_nothing",
        "s6_1_refused_with_addresses_opens_nothing",
        "s6_3_ttl_zero_counts_as_the_minimum",
        "s6_3_the_lowest_ttl_is_the_aliass",
        "s6_3_the_lowest_ttl_is_the_addresss",
        "s6_3_each_address_has_its_own_ttl",
        "s6_4_an_expired_lease_cuts_nothing",
    ];
    let mut passed = Vec::new();
    for scenario in scenarios("tests/scenarios/names") {
        if play(&scenario, Means { reality: None, reads: Some(&Gullible) }).passed() {
            passed.push(scenario.file);
        }
    }
    for promise in ABOUT_ANSWERS {
        assert!(!passed.iter().any(|file| file.contains(&format!("{promise}.yaml"))), "{promise} passed");
    }
}
