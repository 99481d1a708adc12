//! What metrics tell.

use super::*;

/// What a scraper reads now.
fn scrape(agent: &Agent<'_, Script, Memory>) -> String {
    Metrics::new(vec![Box::new(agent.metrics())]).text(Format::Prometheus)
}

pub(in crate::agent) fn assert_samples(text: &str, samples: &[&str]) {
    for sample in samples {
        assert!(text.lines().any(|line| line == *sample), "{sample} is missing:\n{text}");
    }
}

#[test]
fn the_table_has_every_metric_with_its_type() {
    let trial = Trial::new("table");
    let agent = trial.start(Vec::new()).expect("it starts");
    let text = scrape(&agent);
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let exported: BTreeSet<String> = types.map(str::to_owned).filter(|line| !line.contains("build_info")).collect();
    let declared = METRICS.iter().map(|metric| format!("{} {}", metric.name, metric.kind.word())).collect();
    assert_eq!(exported, declared);
    agent.run(&NoSignals).expect("it ends");
}

#[test]
fn metrics_tell_of_changes_that_succeed_and_that_fail() {
    let trial = Trial::new("change-metrics");
    let mut agent = trial.start(Vec::new()).expect("it starts");
    assert_samples(
        &scrape(&agent),
        &[
            "namewall_policies 0",
            "namewall_pods 2",
            "namewall_kernel_rule_changes_total{way=\"rebuild\"} 1",
            "namewall_compile_duration_seconds_count 1",
        ],
    );
    *trial.policies.borrow_mut() = vec![isolate_db()];
    trial.memory.refuse(true);
    agent.change();
    assert_samples(
        &scrape(&agent),
        &[
            "namewall_policies 0",
            "namewall_change_failing 1",
            "namewall_changes_total{result=\"failed\"} 1",
            "namewall_kernel_commit_failures_total{what=\"program\"} 1",
        ],
    );
    trial.memory.refuse(false);
    agent.change();
    assert_samples(
        &scrape(&agent),
        &[
            "namewall_policies 1",
            "namewall_change_failing 0",
            "namewall_changes_total{result=\"ok\"} 1",
            "namewall_kernel_rule_changes_total{way=\"whole\"} 1",
            "namewall_kernel_commit_duration_seconds_count{what=\"program\"} 2",
            "namewall_compile_duration_seconds_count 3",
        ],
    );
    agent.run(&NoSignals).expect("it ends");
}

#[test]
fn s1_9_metrics_tell_of_pods_whose_interface_is_not_known() {
    let trial = Trial::new("guard-metrics");
    let machine = trial.machine.clone();
    let mut agent = trial.start(Vec::new()).expect("it starts");
    let of_guard = |unguarded: usize, guarded: usize| {
        [format!("namewall_unguarded_pod_addresses {unguarded}"), format!("namewall_guarded_interfaces {guarded}")]
    };
    let assert_guard = |agent: &Agent<'_, Script, Memory>, unguarded, guarded| {
        let samples = of_guard(unguarded, guarded);
        assert_samples(&scrape(agent), &samples.each_ref().map(String::as_str));
    };
    assert_guard(&agent, 2, 0);
    for (unguarded, (name, index, address)) in [(1, ("cali1", 7, WEB)), (0, ("cali2", 8, DB))] {
        machine.route(name, index, address);
        machine.link(name, index);
        agent.change();
        assert_guard(&agent, unguarded, 2 - unguarded);
    }
    agent.run(&NoSignals).expect("it ends");
}

#[test]
fn metrics_tell_of_leases_and_of_what_is_never_leased() {
    let trial = Trial::new("lease-metrics");
    *trial.policies.borrow_mut() = vec![names_of_web(&["*.example.com"])];
    let agent = trial.start(Vec::new()).expect("it starts");
    let learn = |addresses: &[Ipv4Addr]| {
        let state = lock(&agent.state);
        let (learner, bytes) = (state.node.learner(), answer("api.example.com", addresses, 60));
        let mut batch = Batch::default();
        learner.learn(&Answer { client: ip(WEB), upstream: Some(UPSTREAM), bytes: &bytes }, &mut batch);
        learner.commit(&mut batch).is_ok()
    };
    let outside = Ipv4Addr::new(198, 51, 100, 7);
    assert!(learn(&[outside, Ipv4Addr::LOCALHOST, Ipv4Addr::new(10, 0, 0, 2)]));
    trial.memory.refuse(true);
    assert!(!learn(&[Ipv4Addr::new(198, 51, 100, 8)]), "the kernel refuses");
    assert_samples(
        &scrape(&agent),
        &[
            "namewall_leases 1",
            "namewall_leases_granted_total 1",
            "namewall_answers_learned_total 2",
            "namewall_addresses_refused_total{reason=\"loopback\"} 1",
            "namewall_addresses_refused_total{reason=\"pod\"} 1",
            "namewall_addresses_refused_total{reason=\"node\"} 0",
            "namewall_kernel_commit_failures_total{what=\"leases\"} 1",
            "namewall_kernel_commit_duration_seconds_count{what=\"leases\"} 1",
        ],
    );
    trial.memory.refuse(false);
    agent.run(&NoSignals).expect("it ends");
}
