//! What a process that starts again makes of the connections and leases that it
//! finds, on a data plane in memory.

use super::tests::cuts::web_to;
use super::tests::{Script, Step, Trial};
use super::*;
use crate::learner::Batch;
use crate::signals::tests::NoSignals;
use crate::testing::{DB, UPSTREAM, WEB, answer, ip, names_of_web};
use namewall_dataplane::memory::Memory;
use namewall_dns::{Answer, Learn};
use std::net::Ipv4Addr;

const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const SETTLED: Duration = Duration::from_secs(1);

/// Web may talk to these networks, whatever their names.
fn networks_of_web(networks: &str) -> String {
    format!(
        "{{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {{name: networks}},
           spec: {{tier: Admin, priority: 0, subject: {{pods: {{podSelector: {{matchLabels: {{app: web}}}}}}}}, egress: [
             {{action: Accept, to: [{{networks: [{networks}]}}]}}]}}}}"
    )
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

impl Trial {
    /// Stores what is known of leases.
    fn storing(mut self) -> (Self, Folder) {
        let folder = std::env::temp_dir().join(format!("namewall-leases-{}", std::process::id()));
        let folder = folder.join(self.control.file_name().expect("it has a name"));
        self.history = Some(folder.join("leases"));
        (self, Folder(folder))
    }

    /// An agent with these policies, which has answered web's question for `api.example.org`.
    fn with_lease(&self, policies: &[String], ttl: u32) -> Agent<'static, Script, Memory> {
        self.with_lease_before(policies, ttl, Vec::new())
    }

    /// The same, with steps that are still to come.
    fn with_lease_before(&self, policies: &[String], ttl: u32, steps: Vec<Step>) -> Agent<'static, Script, Memory> {
        *self.policies.borrow_mut() = policies.to_vec();
        let agent = self.start(steps).expect("it starts");
        let state = lock(&agent.state);
        let (learner, mut batch) = (state.node.learner(), Batch::default());
        let bytes = answer("api.example.org", &[OUTSIDE], ttl);
        learner.learn(&Answer { client: ip(WEB), upstream: Some(UPSTREAM), bytes: &bytes }, &mut batch);
        learner.commit(&mut batch).expect("memory takes it");
        drop(state);
        agent
    }

    /// Starts with these policies, lets them settle, and ends.
    fn start_with(&self, policies: &[String]) {
        *self.policies.borrow_mut() = policies.to_vec();
        self.run(vec![self.after(SETTLED), self.then(|_| {})]);
    }
}

fn names() -> String {
    names_of_web(&["*.example.org"])
}

#[test]
fn s3_4_a_policy_that_changed_while_no_process_ran_cuts_connections_of_pods_with_a_rule_by_name() {
    let (stores, _folder) = Trial::new("edited-while-away").storing();
    // With what the process before has stored, and without it.
    for trial in [stores, Trial::new("edited-while-away-unstored")] {
        let by_name = web_to(&OUTSIDE.to_string());
        let agent = trial.with_lease(&[networks_of_web("10.0.0.2/32"), names()], 600);
        trial.memory.connect(vec![web_to(DB), by_name.clone()]);
        agent.run(&NoSignals).expect("it ends");
        trial.start_with(&[names()]);
        assert_eq!(trial.memory.connected(), [by_name], "the rule for db's network is gone, that for the name is not");
    }
}

#[test]
fn s3_4_a_cut_that_is_owed_for_a_pod_with_a_rule_by_name_is_made_by_the_next_process() {
    let (trial, _folder) = Trial::new("owed-with-names").storing();
    let agent = trial.with_lease(&[networks_of_web("10.0.0.2/32"), names()], 600);
    trial.memory.connect(vec![web_to(DB)]);
    agent.run(&NoSignals).expect("it ends");
    // It ends before policies have settled, and the rules that the next one finds are its own.
    *trial.policies.borrow_mut() = vec![names()];
    trial.run(Vec::new());
    assert_eq!(trial.memory.connected().len(), 1);
    trial.start_with(&[names()]);
    assert_eq!(trial.memory.connected(), []);
}

#[test]
fn s6_4_a_lease_that_ends_while_no_process_runs_cuts_nothing() {
    let (trial, _folder) = Trial::new("ended-while-away").storing();
    let by_name = web_to(&OUTSIDE.to_string());
    let agent = trial.with_lease(&[networks_of_web("10.0.0.2/32"), names()], 60);
    trial.memory.connect(vec![web_to(DB), by_name.clone()]);
    agent.run(&NoSignals).expect("it ends");
    trial.clock.advance(Duration::from_secs(3_600));
    trial.start_with(&[names()]);
    let stays = [by_name];
    assert_eq!(trial.memory.connected(), stays, "the name allows it, and its lease only ended");
    assert!(!trial.memory.connects(ip(WEB), SocketAddr::new(OUTSIDE.into(), 443)), "it opens no new one");
    // Nor does the process after that one cut it, until no rule allows the name.
    trial.start_with(&[networks_of_web("10.0.0.0/8"), names()]);
    assert_eq!(trial.memory.connected(), stays);
    trial.start_with(&[names_of_web(&["*.example.net"])]);
    assert_eq!(trial.memory.connected(), []);
}

#[test]
fn a_restart_keeps_the_question_the_answer_the_server_and_the_client_of_a_lease() {
    let (trial, _folder) = Trial::new("provenance").storing();
    let ask = |agent: &Agent<'static, Script, Memory>| {
        let asked = Running::find(&agent.control).expect("it runs").ask(&serde_json::json!({"leases": {}}));
        asked.expect("it answers")["leases"].clone()
    };
    let agent = trial.with_lease(&[names()], 60);
    let before = ask(&agent);
    assert_eq!(before[0]["name"], "api.example.org");
    assert_eq!(before[0]["askedBy"], "shop/web");
    let answer = serde_json::json!({"upstream": "203.0.113.53:53", "ttl": 60, "owners": []});
    assert_eq!(before[0]["answer"], answer);
    agent.run(&NoSignals).expect("it ends");
    let agent = trial.start(Vec::new()).expect("it starts");
    assert_eq!(ask(&agent), before);
    agent.run(&NoSignals).expect("it ends");
    // A file that is damaged is not used: then the kernel's word is all there is.
    let file = trial.history.clone().expect("it stores leases");
    let text = std::fs::read_to_string(&file).expect("it is stored");
    std::fs::write(&file, text.replace("203.0.113.53", "203.0.113.99")).expect("it is written");
    let agent = trial.start(Vec::new()).expect("it starts");
    assert_eq!(ask(&agent)[0]["answer"], serde_json::Value::Null);
    assert_eq!(ask(&agent)[0]["askedBy"], "shop/web");
    agent.run(&NoSignals).expect("it ends");
}

#[test]
fn a_changed_setting_that_counts_from_the_next_start_is_told() {
    let trial = Trial::new("fixed-settings");
    let (config, first, second) = (trial.config.clone(), trial.control.clone(), trial.control.clone());
    trial.run(vec![
        (
            Event::Reload,
            Box::new(move || {
                assert_eq!(Trial::status(&first)["atNextStart"], serde_json::json!([]));
                config.borrow_mut().fixed.0[1].1 = "/elsewhere".to_owned();
                config.borrow_mut().dns.trusted = vec![([192, 0, 2, 99], 53).into()];
            }),
        ),
        trial.then(move |_| {
            assert_eq!(Trial::status(&second)["atNextStart"], serde_json::json!(["stateDir", "trust"]));
        }),
    ]);
}

#[test]
fn s6_8_a_network_that_settings_name_from_now_on_closes_its_leases_at_once() {
    let trial = Trial::new("never-lease");
    let (config, before, after) = (trial.config.clone(), trial.memory.clone(), trial.memory.clone());
    let steps: Vec<Step> = vec![
        (
            Event::Reload,
            Box::new(move || {
                assert_eq!(before.leases().len(), 1);
                config.borrow_mut().never_lease = vec!["198.51.100.0/24".parse().expect("a network")];
            }),
        ),
        trial.then(move |_| assert_eq!(after.leases(), Vec::new())),
    ];
    let agent = trial.with_lease_before(&[names_of_web(&["api.example.org"])], 300, steps);
    agent.run(&NoSignals).expect("it ends");
}

#[test]
fn s6_1_a_server_that_settings_name_no_longer_is_not_trusted_any_more() {
    let trial = Trial::new("distrusted");
    let [old, trusted, new] = [9, 10, 11].map(|last| SocketAddr::from(([127, 0, 0, last], 9)));
    trial.config.borrow_mut().dns.upstreams = vec![old];
    trial.config.borrow_mut().dns.trusted = vec![trusted];
    let (config, control) = (trial.config.clone(), trial.control.clone());
    let told = move || Trial::status(&control)["dns"]["trusted"].clone();
    let before = told.clone();
    trial.run(vec![
        (
            Event::Reload,
            Box::new(move || {
                assert_eq!(before(), serde_json::json!(["127.0.0.9:9", "127.0.0.10:9"]));
                config.borrow_mut().dns.upstreams = vec![new];
                config.borrow_mut().dns.trusted = Vec::new();
            }),
        ),
        trial.then(move |_| assert_eq!(told(), serde_json::json!(["127.0.0.11:9"]))),
    ]);
}
