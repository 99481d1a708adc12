//! The loop of an agent, with a source of the test's own and a data plane in
//! memory.

pub(super) mod cuts;
mod metrics;

pub(super) use self::metrics::assert_samples;
use super::*;
use crate::config::{DnsConfig, FixedSettings};
use crate::learner::{Batch, Learning};
use crate::metrics::METRICS;
use crate::settle::Settle;
use crate::signals::tests::NoSignals;
use crate::testing::{DB, FakeMachine, NoLookups, UPSTREAM, WEB, answer, ip, names_of_web, read};
use namewall_cluster::{Key, LoadError, PodAddresses, Read};
use namewall_cni::sandboxes::{FILE, Sandboxes};
use namewall_dataplane::memory::Memory;
use namewall_dataplane::{Connection, CutEstablished, Denied};
use namewall_dns::{Answer, Learn, OnLearnTimeout};
use namewall_kubernetes::NodeTopic;
use namewall_policy::domain::{DomainPattern, RulePattern};
use namewall_policy::lease::Bounds;
use namewall_policy::port::Protocol;
use namewall_policy::{Instant, Lease, LeaseStore, LeaseTable};
use namewall_runtime::ManualClock;
use namewall_telemetry::{Format, Metrics};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;

/// What happens next, and what the test does before it.
pub(super) type Step = (Event, Box<dyn FnOnce()>);

/// What users are warned of, and how.
type Warned = (NodeTopic, Option<String>);

/// Goes through its steps, and stops.
pub(super) struct Script {
    steps: VecDeque<Step>,
    policies: Rc<RefCell<Vec<String>>>,
    kept: Rc<RefCell<Vec<Arc<str>>>>,
    warnings: Rc<RefCell<Vec<Warned>>>,
    attached: BTreeSet<Key>,
    api: Rc<RefCell<Api>>,
}

/// Where the source publishes.
#[derive(Default)]
struct Api {
    is_away: bool,
    published: Option<BTreeSet<IpAddr>>,
}

impl Source for Script {
    fn next(&mut self, _: &dyn Signals) -> Event {
        let Some((event, act)) = self.steps.pop_front() else { return Event::Stop };
        act();
        event
    }

    fn read(&mut self) -> Result<Read, LoadError> {
        Ok(Read { kept: self.kept.borrow().clone(), ..read(&self.policies.borrow()) })
    }

    fn attach(&mut self, pods: &[PodAddresses]) {
        self.attached = pods.iter().map(|one| one.pod.clone()).collect();
    }

    fn attached(&self) -> BTreeSet<Key> {
        self.attached.clone()
    }

    fn publish(&mut self, _node: &str, addresses: &BTreeSet<IpAddr>) -> bool {
        let mut api = self.api.borrow_mut();
        if !api.is_away {
            api.published = Some(addresses.clone());
        }
        api.published.is_some()
    }

    fn warn_users(&mut self, _node: &str, topic: NodeTopic, error: Option<&str>) {
        self.warnings.borrow_mut().push((topic, error.map(str::to_owned)));
    }
}

/// An agent that is to be started.
pub(super) struct Trial {
    pub(super) memory: Memory,
    pub(super) clock: Arc<ManualClock>,
    pub(super) policies: Rc<RefCell<Vec<String>>>,
    /// The objects that cannot be read, and whose last good version is in force.
    kept: Rc<RefCell<Vec<Arc<str>>>>,
    warnings: Rc<RefCell<Vec<Warned>>>,
    api: Rc<RefCell<Api>>,
    machine: FakeMachine,
    health: Health,
    pub(super) control: PathBuf,
    /// Where it is stored what is known of leases.
    pub(super) history: Option<PathBuf>,
    pub(super) config: Rc<RefCell<Config>>,
}

impl Trial {
    pub(super) fn new(name: &str) -> Self {
        let control = std::env::temp_dir().join(format!("namewall-agent-{name}-{}.sock", std::process::id()));
        let (memory, clock) = (Memory::default(), Arc::new(ManualClock::default()));
        let (machine, health) = (FakeMachine::new(&["192.0.2.1"]), Health::new("not yet"));
        let (policies, kept, warnings, api) = (Rc::default(), Rc::default(), Rc::default(), Rc::default());
        Self {
            memory,
            clock,
            policies,
            kept,
            warnings,
            api,
            machine,
            health,
            control,
            history: None,
            config: Rc::new(RefCell::new(config())),
        }
    }

    pub(super) fn start(&self, steps: Vec<Step>) -> Result<Agent<'static, Script, Memory>, AgentError> {
        let (memory, policies, warnings) = (self.memory.clone(), self.policies.clone(), self.warnings.clone());
        let settings = self.config.clone();
        Agent::start(Start {
            source: Script {
                steps: steps.into(),
                policies,
                kept: self.kept.clone(),
                warnings,
                attached: BTreeSet::new(),
                api: self.api.clone(),
            },
            open: Box::new(move |_| Ok(memory)),
            clock: self.clock.clone(),
            machine: Box::new(self.machine.clone()),
            read_config: Box::new(move || Ok(settings.borrow().clone())),
            cluster_domain: "cluster.local".parse().expect("a name"),
            control: self.control.clone(),
            records: self.control.with_extension("records"),
            history: self.history.clone(),
            take_over: false,
            explain: Box::new(|_, _| Err("nobody explains".to_owned())),
            health: self.health.clone(),
            lookups: Box::new(NoLookups),
            signals: &NoSignals,
        })
    }

    pub(super) fn run(&self, steps: Vec<Step>) {
        let ended = self.start(steps).and_then(|agent| agent.run(&NoSignals)).expect("it runs");
        assert_eq!(ended, Ended::Stopped);
    }

    /// A step in which the policies become these.
    fn apply(&self, policies: Vec<String>) -> Step {
        let all = self.policies.clone();
        (Event::Changed, Box::new(move || *all.borrow_mut() = policies))
    }

    /// A step in which only this is done.
    pub(super) fn then(&self, act: impl FnOnce(&Memory) + 'static) -> Step {
        let memory = self.memory.clone();
        (Event::Nothing, Box::new(move || act(&memory)))
    }

    /// A step before which time passes.
    pub(super) fn after(&self, time: Duration) -> Step {
        let clock = self.clock.clone();
        (Event::Nothing, Box::new(move || clock.advance(time)))
    }

    pub(super) fn status(control: &Path) -> Value {
        Running::find(control).expect("it runs").ask(&serde_json::json!({"status": true})).expect("it answers")
    }
}

pub(super) fn config() -> Config {
    Config {
        node: Some("n1".to_owned()),
        table: "namewall".to_owned(),
        log_group: 53,
        cut: CutEstablished::default(),
        settle: Settle::default(),
        bounds: Bounds::default(),
        learning: Learning::default(),
        allowed_sources: Vec::new(),
        never_lease: Vec::new(),
        nat64_prefixes: Vec::new(),
        dns: DnsConfig {
            upstreams: vec!["127.0.0.1:9".parse().expect("an address")],
            trusted: Vec::new(),
            listen: vec!["127.0.0.1:0".parse().expect("an address")],
            addresses: Vec::new(),
            first_port: 1053,
            intercept: false,
            hold_limit: Duration::from_millis(100),
            on_learn_timeout: OnLearnTimeout::Fail,
            loops: 2,
        },
        fixed: FixedSettings(vec![("table", "namewall".to_owned()), ("stateDir", "/var/lib/namewall".to_owned())]),
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
    assert!(
        matches!(warned.as_slice(), [(NodeTopic::Enforcement, Some(text))] if text.contains("refuse")),
        "{warned:?}"
    );
    assert!(!trial.control.exists());
}

#[test]
fn s10_3_users_are_told_of_objects_whose_last_good_version_is_in_force() {
    let trial = Trial::new("kept");
    let keep = |kept: &'static [&'static str]| {
        let all = trial.kept.clone();
        let set = move || *all.borrow_mut() = kept.iter().map(|&one| one.into()).collect();
        (Event::Changed, Box::new(set) as Box<dyn FnOnce()>)
    };
    let mut agent = trial.start(vec![keep(&["NetworkPolicy shop/db"]), keep(&[])]).expect("it starts");
    let metrics = Metrics::new(vec![Box::new(agent.metrics())]);
    trial.kept.borrow_mut().push("NetworkPolicy shop/web".into());
    agent.change();
    assert_samples(&metrics.text(Format::Prometheus), &["namewall_objects_kept 1"]);
    agent.run(&NoSignals).expect("it ends");
    assert_samples(&metrics.text(Format::Prometheus), &["namewall_objects_kept 0"]);
    let about_policies = |(topic, error): &Warned| (*topic == NodeTopic::Enforcement).then(|| error.clone());
    let mut told: Vec<Option<String>> = trial.warnings.borrow().iter().filter_map(about_policies).collect();
    told.dedup();
    let [Some(error), None] = told.as_slice() else { panic!("{told:?}") };
    assert!(error.contains("NetworkPolicy shop/db"), "{error}");
}

#[test]
fn a_container_runtime_that_is_silent_is_told_of_until_it_answers() {
    let folder = std::env::temp_dir().join(format!("namewall-agent-runtime-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let trial = Trial { control: folder.join("agent.sock"), ..Trial::new("runtime") };
    let say = |error: Option<&str>| {
        let said = Sandboxes { error: error.map(str::to_owned), ..Sandboxes::default() };
        let file = folder.join(FILE);
        trial.then(move |_| said.write(&file).expect("it is written"))
    };
    let metrics: Rc<RefCell<Option<Metrics>>> = Rc::default();
    let sees = |error: Option<&'static str>, sample: &'static str| {
        let (control, metrics) = (trial.control.clone(), metrics.clone());
        trial.then(move |_| {
            let runtime = &Trial::status(&control)["guard"]["runtime"];
            assert_eq!(runtime["error"].as_str(), error);
            let text = metrics.borrow().as_ref().map(|metrics| metrics.text(Format::Prometheus));
            assert_samples(&text.expect("they are read"), &[sample]);
        })
    };
    let second = || trial.after(Duration::from_secs(1));
    let agent = trial.start(vec![
        say(Some("cannot reach the socket")),
        second(),
        sees(Some("cannot reach the socket"), "namewall_runtime_silent 1"),
        say(None),
        second(),
        sees(None, "namewall_runtime_silent 0"),
    ]);
    let agent = agent.expect("it starts");
    *metrics.borrow_mut() = Some(Metrics::new(vec![Box::new(agent.metrics())]));
    agent.run(&NoSignals).expect("it ends");
    let about_runtime = |(topic, error): &Warned| (*topic == NodeTopic::Runtime).then(|| error.clone());
    let mut told: Vec<Option<String>> = trial.warnings.borrow().iter().filter_map(about_runtime).collect();
    told.dedup();
    assert_eq!(told, [None, Some("cannot reach the socket".to_owned()), None]);
    std::fs::remove_dir_all(&folder).expect("it is there");
}

/// What the CNI plugin asks, in a thread: the answer comes when the loop has turned.
fn ask_to_attach(control: &Path) -> thread::JoinHandle<Result<Value, crate::AskError>> {
    let attachment = serde_json::json!({
        "container": "c1", "interface": "eth0", "network": "pods", "namespace": "shop", "name": "web", "uid": "u1",
        "netns": "/run/netns/a", "host": {"name": "veth1", "index": 7}, "mac": null, "addresses": [WEB],
    });
    let question = serde_json::json!({"attach": attachment, "milliseconds": 60_000});
    let running = Running::find(control).expect("it runs");
    thread::spawn(move || running.ask(&question))
}

#[test]
fn s1_9_attach_is_answered_when_the_kernel_has_the_change_and_only_for_root() {
    let trial = Trial::new("attach");
    let is_root = nix::unistd::geteuid().is_root();
    let control = trial.control.clone();
    let asked: Rc<RefCell<Option<thread::JoinHandle<_>>>> = Rc::default();
    let (asks, ends) = (asked.clone(), asked);
    trial.run(vec![
        trial.then(move |memory| {
            let thread = ask_to_attach(&control);
            while is_root && Trial::status(&control)["attachments"]["known"] != 1 {
                thread::yield_now();
            }
            assert!(!is_root || !thread.is_finished(), "it is not enforced yet");
            assert_eq!(memory.replaced(), 1);
            *asks.borrow_mut() = Some(thread);
        }),
        trial.then(move |memory| {
            let answer = ends.borrow_mut().take().expect("it was asked").join().expect("it ends well");
            match (is_root, answer) {
                (true, Ok(answer)) => assert_eq!((&answer["enforced"], memory.replaced()), (&true.into(), 2)),
                (false, Err(error)) => assert!(error.to_string().contains("only root may attach"), "{error}"),
                (_, answer) => panic!("{answer:?}"),
            }
        }),
    ]);
}

/// A pod whose network namespace is reached, one from before the CNI plugin, and somebody who changes tables.
#[test]
fn s1_9_tampering_inside_a_pod_is_an_event_and_pods_that_are_not_reached_are_named() {
    let trial = Trial::new("tampering");
    let (control, looks) = (trial.control.clone(), || trial.after(Duration::from_secs(1)));
    let attached: Rc<RefCell<Option<Arc<Attachments>>>> = Rc::default();
    let (all, waits) = (attached.clone(), Rc::new(RefCell::new(None)));
    let ends = waits.clone();
    let agent = trial.start(vec![
        trial.then(move |_| {
            let attachment: namewall_cni::Attachment = serde_json::from_value(serde_json::json!({
                "container": "c1", "interface": "eth0", "network": "pods", "namespace": "shop", "name": "web",
                "uid": "u1", "netns": "/run/netns/a", "host": null, "mac": null, "addresses": [WEB],
            }))
            .expect("an attachment");
            let sockets = namewall_dataplane::netlink::PodSockets::open().expect("sockets");
            let all = all.borrow().clone().expect("the agent has started");
            let known = all.clone();
            let wait = move || all.attach(attachment, Some(sockets), Duration::from_secs(60));
            *waits.borrow_mut() = Some(thread::spawn(wait));
            while !known.has_changed() {
                thread::yield_now();
            }
        }),
        looks(),
        trial.then(move |memory| {
            ends.borrow_mut().take().expect("it waits").join().expect("it ends").expect("it is enforced");
            let second = Trial::status(&control)["second"].clone();
            assert_eq!(second["unreachedPods"], serde_json::json!(["shop/db"]), "{second}");
            assert_eq!((&second["reached"], &second["lastRepaired"]), (&1.into(), &Value::Null), "{second}");
            memory.tamper();
        }),
        looks(),
    ]);
    let agent = agent.expect("it starts");
    *attached.borrow_mut() = Some(agent.attachments.clone());
    let metrics = Metrics::new(vec![Box::new(agent.metrics())]);
    agent.run(&NoSignals).expect("it ends");
    let warnings = trial.warnings.borrow();
    let told: Vec<&str> = warnings
        .iter()
        .filter_map(|(topic, error)| error.as_deref().filter(|_| *topic == NodeTopic::Tampering))
        .collect();
    assert!(told.iter().any(|text| text.contains("last in pod shop/web")), "{warnings:?}");
    assert_samples(&metrics.text(Format::Prometheus), &["namewall_second_unenforced_pods 1"]);
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

#[test]
fn denials_are_counted_after_the_log_of_them_has_failed() {
    let trial = Trial::new("denial-log");
    *trial.policies.borrow_mut() = vec![names_of_web(&["*.example.com"])];
    let control = trial.control.clone();
    trial.run(vec![trial.then(move |memory| {
        let log = |control: &_| Trial::status(control)["denialLog"].clone();
        assert_eq!(log(&control), serde_json::json!({"failures": 0, "error": null}));
        memory.break_denial_logs();
        let (source, destination) = (ip(WEB), ip("198.51.100.7"));
        let (rule, protocol) = ("NetworkPolicy/shop/web".to_owned(), Protocol::Tcp);
        let denied = Denied { enforced: true, rule, source, destination, protocol, port: 443 };
        let began = std::time::Instant::now();
        while memory.denial_followers() == 0 {
            assert!(began.elapsed() < Duration::from_secs(60), "the log is not opened again");
            thread::sleep(Duration::from_millis(5));
        }
        memory.deny(&denied);
        while Trial::status(&control)["denials"] != 1 {
            assert!(began.elapsed() < Duration::from_secs(60), "the denial is not counted");
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(log(&control), serde_json::json!({"failures": 1, "error": null}));
    })]);
}

fn deny_nodes() -> String {
    "{apiVersion: namewall.dev/v1alpha1, kind: ClusterEgressFirewall, metadata: {name: nodes}, \
      spec: {priority: 0, rules: [{action: Deny, to: [{nodes: {}}]}]}}"
        .to_owned()
}

/// Whether web may open a connection there.
fn is_open(memory: &Memory, to: &str) -> bool {
    memory.connects(ip(WEB), SocketAddr::new(ip(to), 22))
}

#[test]
fn s7_2_the_machines_own_addresses_are_enforced_as_they_change_and_published() {
    let trial = Trial::new("own");
    *trial.policies.borrow_mut() = vec![deny_nodes()];
    trial.machine.set(&["192.0.2.1", "172.17.0.1"]);
    let (machine, api) = (trial.machine.clone(), trial.api.clone());
    let published = move || api.borrow().published.clone().unwrap_or_default();
    let later = published.clone();
    trial.run(vec![
        trial.then(move |memory| {
            assert!(!is_open(memory, "192.0.2.1") && !is_open(memory, "172.17.0.1"));
            assert!(!is_open(memory, "127.0.0.1") && is_open(memory, "198.51.100.9"));
            assert_eq!(published(), [ip("192.0.2.1"), ip("172.17.0.1")].into());
            machine.set(&["192.0.2.1", "172.17.0.1", "198.51.100.9"]);
        }),
        // The turn before this one has noticed it, though nothing happened in the cluster.
        trial.then(move |memory| {
            assert!(!is_open(memory, "198.51.100.9"));
            assert!(later().contains(&ip("198.51.100.9")));
        }),
    ]);
}

#[test]
fn s6_8_an_address_of_the_machine_that_no_object_tells_of_is_never_leased() {
    let trial = Trial::new("own-lease");
    *trial.policies.borrow_mut() = vec![names_of_web(&["*.example.com"])];
    trial.machine.set(&["192.0.2.1", "198.51.100.9"]);
    let agent = trial.start(Vec::new()).expect("it starts");
    let addresses = [Ipv4Addr::new(198, 51, 100, 9), Ipv4Addr::new(198, 51, 100, 7)];
    {
        let state = lock(&agent.state);
        let (mut batch, bytes) = (Batch::default(), answer("api.example.com", &addresses, 60));
        state.node.learner().learn(&Answer { client: ip(WEB), upstream: Some(UPSTREAM), bytes: &bytes }, &mut batch);
        state.node.learner().commit(&mut batch).expect("memory takes it");
    }
    let leased: Vec<IpAddr> = trial.memory.leases().iter().map(|lease| lease.address).collect();
    assert_eq!(leased, [ip("198.51.100.7")]);
    agent.run(&NoSignals).expect("it ends");
}

#[test]
fn it_is_ready_when_other_nodes_can_know_its_addresses() {
    let trial = Trial::new("ready");
    trial.api.borrow_mut().is_away = true;
    let agent = trial.start(vec![trial.then(|_| {})]).expect("it starts");
    assert!(!trial.health.is_ready(), "pods could reach what no other node knows yet");
    trial.api.borrow_mut().is_away = false;
    agent.run(&NoSignals).expect("it ends");
    assert!(trial.health.is_ready());
}

#[test]
fn a_pod_with_an_address_of_the_machine_is_not_counted_as_enforced() {
    let trial = Trial::new("own-pod");
    *trial.policies.borrow_mut() = vec![isolate_db()];
    trial.machine.set(&["192.0.2.1", DB]);
    let control = trial.control.clone();
    trial.run(vec![trial.then(move |_| {
        let status = Trial::status(&control);
        assert_eq!(status["notEnforced"], serde_json::json!(["shop/db"]));
        let findings: Vec<&str> =
            status["findings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        assert!(
            matches!(findings[..], [one] if one.contains("not-enforced") && one.contains("shop/db")),
            "{findings:?}"
        );
    })]);
}

#[test]
fn s1_9_a_guard_that_finds_no_interface_is_tried_again_when_links_change_and_by_and_by() {
    let trial = Trial::new("guards");
    trial.machine.route("cali1", 7, WEB);
    trial.memory.set_missing(&["cali1"]);
    let names = |memory: &Memory| memory.guarded().into_iter().map(|one| one.name).collect::<Vec<_>>();
    let none = move |memory: &Memory| assert_eq!(names(memory), Vec::<String>::new());
    let (first, second) = (trial.machine.clone(), trial.control.clone());
    trial.run(vec![
        trial.then(move |memory| {
            none(memory);
            assert_eq!(Trial::status(&second)["guard"]["missing"][0], "cali1");
            memory.set_missing(&[]);
        }),
        trial.then(none),
        // The kernel tells of an interface.
        trial.then(move |_| first.link("cali1", 7)),
        trial.then(move |memory| {
            assert_eq!(names(memory), ["cali1"]);
            assert_eq!(memory.replaced(), 1, "nothing else had to be changed");
        }),
    ]);
    let trial = Trial::new("guards-later");
    trial.machine.route("cali1", 7, WEB);
    trial.memory.set_missing(&["cali1"]);
    trial.run(vec![
        trial.after(Duration::from_secs(1)),
        trial.then(move |memory| {
            none(memory);
            memory.set_missing(&[]);
        }),
        trial.after(Duration::from_millis(1_900)),
        trial.then(none),
        trial.after(Duration::from_millis(200)),
        trial.then(move |memory| assert_eq!(names(memory), ["cali1"], "nobody told of it")),
    ]);
}

/// Somebody may turn the flags of a bridge off, of which the kernel tells as of every change of a link.
#[test]
fn bridges_are_looked_at_when_links_change_and_not_with_every_turn() {
    let trial = Trial::new("bridges");
    trial.machine.route("cali1", 7, WEB);
    let machine = trial.machine.clone();
    trial.run(vec![
        trial.then(|_| {}),
        trial.then(move |memory| {
            assert_eq!(memory.filtered(), 0);
            machine.link("other1", 9);
        }),
        trial.then(|memory| assert_eq!(memory.filtered(), 1)),
        trial.then(|memory| assert_eq!(memory.filtered(), 1)),
    ]);
}

#[test]
fn s7_2_large_networks_of_local_routes_are_a_finding() {
    let trial = Trial::new("networks");
    trial.machine.set_unlisted(&["198.18.0.0/15"]);
    let (machine, first, second) = (trial.machine.clone(), trial.control.clone(), trial.control.clone());
    let has = |control: &Path| Trial::status(control)["findings"].to_string().contains("local-network");
    trial.run(vec![
        trial.then(move |_| {
            assert!(has(&first), "{}", Trial::status(&first));
            machine.set_unlisted(&[]);
        }),
        trial.then(move |_| assert!(!has(&second))),
    ]);
}
