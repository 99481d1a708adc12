//! The loop of an agent, with a source of the test's own and a data plane in
//! memory.

use super::*;
use crate::config::DnsConfig;
use crate::learner::Learning;
use crate::signals::tests::NoSignals;
use crate::testing::{DB, WEB, ip, names_of_web, read};
use namewall_cluster::{LoadError, Read};
use namewall_dataplane::memory::Memory;
use namewall_dataplane::{Connection, CutEstablished, Denied};
use namewall_dns::OnLearnTimeout;
use namewall_policy::lease::Bounds;
use namewall_policy::port::Protocol;
use namewall_runtime::ManualClock;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;

/// What happens next, and what the test does before it.
type Step = (Event, Box<dyn FnOnce()>);

/// Goes through its steps, and stops.
struct Script {
    steps: VecDeque<Step>,
    policies: Rc<RefCell<Vec<String>>>,
    warnings: Rc<RefCell<Vec<Option<String>>>>,
}

impl Source for Script {
    fn next(&mut self, _: &dyn Signals) -> Event {
        let Some((event, act)) = self.steps.pop_front() else { return Event::Stop };
        act();
        event
    }

    fn read(&mut self) -> Result<Read, LoadError> {
        Ok(read(&self.policies.borrow()))
    }

    fn warn_users(&mut self, _node: &str, error: Option<&str>) {
        self.warnings.borrow_mut().push(error.map(str::to_owned));
    }
}

/// An agent that is to be started.
struct Trial {
    memory: Memory,
    clock: Arc<ManualClock>,
    policies: Rc<RefCell<Vec<String>>>,
    warnings: Rc<RefCell<Vec<Option<String>>>>,
    control: PathBuf,
}

impl Trial {
    fn new(name: &str) -> Self {
        let control = std::env::temp_dir().join(format!("namewall-agent-{name}-{}.sock", std::process::id()));
        let (memory, clock) = (Memory::default(), Arc::new(ManualClock::default()));
        Self { memory, clock, policies: Rc::default(), warnings: Rc::default(), control }
    }

    fn start(&self, steps: Vec<Step>) -> Result<Agent<'static, Script, Memory>, AgentError> {
        let (memory, policies, warnings) = (self.memory.clone(), self.policies.clone(), self.warnings.clone());
        Agent::start(Start {
            source: Script { steps: steps.into(), policies, warnings },
            open: Box::new(move |_| Ok(memory)),
            clock: self.clock.clone(),
            read_config: Box::new(|| Ok(config())),
            cluster_domain: "cluster.local".parse().expect("a name"),
            control: self.control.clone(),
            take_over: false,
            explain: Box::new(|_, _| Err("nobody explains".to_owned())),
        })
    }

    fn run(&self, steps: Vec<Step>) {
        let ended = self.start(steps).and_then(|agent| agent.run(&NoSignals)).expect("it runs");
        assert_eq!(ended, Ended::Stopped);
    }

    /// A step in which the policies become these.
    fn apply(&self, policies: Vec<String>) -> Step {
        let all = self.policies.clone();
        (Event::Changed, Box::new(move || *all.borrow_mut() = policies))
    }

    /// A step in which only this is done.
    fn then(&self, act: impl FnOnce(&Memory) + 'static) -> Step {
        let memory = self.memory.clone();
        (Event::Nothing, Box::new(move || act(&memory)))
    }

    /// A step before which time passes.
    fn after(&self, time: Duration) -> Step {
        let clock = self.clock.clone();
        (Event::Nothing, Box::new(move || clock.advance(time)))
    }

    fn status(control: &Path) -> Value {
        Running::find(control).expect("it runs").ask(&serde_json::json!({"status": true})).expect("it answers")
    }
}

fn config() -> Config {
    Config {
        node: Some("n1".to_owned()),
        table: "namewall".to_owned(),
        log_group: 53,
        cut: CutEstablished::default(),
        bounds: Bounds::default(),
        learning: Learning::default(),
        dns: DnsConfig {
            upstreams: vec!["127.0.0.1:9".parse().expect("an address")],
            trusted: Vec::new(),
            listen: vec!["127.0.0.1:0".parse().expect("an address")],
            addresses: Vec::new(),
            first_port: 1053,
            intercept: false,
            hold_limit: Duration::from_millis(100),
            on_learn_timeout: OnLearnTimeout::Fail,
        },
    }
}

fn isolate_db() -> String {
    "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: db, namespace: shop}, \
      spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress]}}"
        .to_owned()
}

#[test]
fn what_the_source_has_is_enforced_at_the_start_and_at_each_change() {
    let trial = Trial::new("changes");
    trial.run(vec![
        trial.then(|memory| assert_eq!(memory.replaced(), 1)),
        trial.apply(vec![isolate_db()]),
        trial.then(|memory| assert_eq!(memory.replaced(), 2)),
    ]);
    assert!(!trial.memory.is_alive(), "it does not take DNS to a server that has ended");
    assert!(!trial.control.exists(), "the control socket goes with it");
}

#[test]
fn s3_4_a_change_cuts_what_it_forbids_and_nothing_else() {
    let trial = Trial::new("cuts");
    let to_db = Connection::between(Protocol::Tcp, (ip(WEB), 40_000), (ip(DB), 5432));
    let to_web = Connection::between(Protocol::Tcp, (ip(DB), 40_000), (ip(WEB), 80));
    trial.memory.connect(vec![to_db, to_web.clone()]);
    trial.run(vec![
        trial.then(|memory| assert_eq!(memory.connected().len(), 2)),
        trial.apply(vec![isolate_db()]),
        trial.then(move |memory| assert_eq!(memory.connected(), [to_web])),
    ]);
}

#[test]
fn a_failed_change_is_reported_and_tried_again_until_it_succeeds() {
    let trial = Trial::new("fails");
    let (control, after) = (trial.control.clone(), trial.control.clone());
    trial.run(vec![
        trial.then(|memory| memory.refuse(true)),
        trial.apply(vec![isolate_db()]),
        trial.then(move |memory| {
            assert_eq!(memory.replaced(), 1);
            let error = Trial::status(&control)["lastError"].as_str().map(str::to_owned);
            assert!(error.is_some_and(|text| text.contains("what was in force stays so")));
            memory.refuse(false);
        }),
        trial.after(Duration::from_millis(900)),
        trial.then(|memory| assert_eq!(memory.replaced(), 1, "it is too early")),
        trial.after(Duration::from_millis(100)),
        trial.then(move |memory| {
            assert_eq!(memory.replaced(), 2);
            assert!(Trial::status(&after)["lastError"].is_null());
        }),
    ]);
}

#[test]
fn a_start_that_fails_warns_users_and_leaves_no_control_socket() {
    let trial = Trial::new("refused");
    trial.memory.refuse(true);
    let error = trial.start(Vec::new()).err().expect("the data plane refuses");
    assert!(matches!(error, AgentError::Node(NodeError::Dataplane(_))), "{error}");
    let warned = trial.warnings.borrow();
    assert!(matches!(warned.as_slice(), [Some(text)] if text.contains("refuse")), "{warned:?}");
    assert!(!trial.control.exists());
}

#[test]
fn one_agent_at_a_time() {
    let trial = Trial::new("second");
    let first = trial.start(Vec::new()).expect("it starts");
    let second = trial.start(Vec::new()).err().expect("another runs");
    assert!(matches!(second, AgentError::RunsAlready), "{second}");
    first.run(&NoSignals).expect("it ends");
}

#[test]
fn status_counts_denials_and_leases() {
    let trial = Trial::new("status");
    *trial.policies.borrow_mut() = vec![names_of_web(&["*.example.com"])];
    let control = trial.control.clone();
    trial.run(vec![trial.then(move |memory| {
        let (source, destination) = (ip(WEB), ip("198.51.100.7"));
        let (rule, protocol) = ("NetworkPolicy/shop/web".to_owned(), Protocol::Tcp);
        memory.deny(&Denied { enforced: true, rule, source, destination, protocol, port: 443 });
        let began = std::time::Instant::now();
        while Trial::status(&control)["denials"] != 1 {
            assert!(began.elapsed() < Duration::from_secs(60), "the denial is not counted");
            thread::sleep(Duration::from_millis(5));
        }
        let status = Trial::status(&control);
        assert_eq!((&status["node"], &status["policies"], &status["pods"]), (&"n1".into(), &1.into(), &2.into()));
        assert_eq!(status["names"]["leases"], 0);
    })]);
}
