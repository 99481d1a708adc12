//! A controller at an API server and DNS in memory, in virtual time.

use super::*;
use crate::testing::{Asked, FakeDns};
use namewall_cluster::kinds::{self, Component, DNS_NAME_RESOLVER, EGRESS_FIREWALL};
use namewall_kubernetes::api::{ApiError, Request, Verb};
use namewall_kubernetes::testing::FakeServer;
use namewall_runtime::Tasks;
use namewall_runtime::testing::{Process, Simulation};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const SECOND: Duration = Duration::from_secs(1);
const TURN: Duration = Duration::from_millis(100);

struct World {
    simulation: Simulation,
    process: Arc<Process>,
    server: FakeServer,
    dns: FakeDns,
    leads: Arc<AtomicBool>,
    counts: Arc<Mutex<Counts>>,
}

impl World {
    /// A controller that leads, and an EgressFirewall with rules for these names.
    fn new(names: &[&str]) -> Self {
        let mut simulation = Simulation::new(1);
        let server = FakeServer::start(&mut simulation);
        let dns = FakeDns::new(simulation.clock(), simulation.random());
        let process = simulation.process();
        let (leads, counts) = (Arc::new(AtomicBool::new(true)), Arc::default());
        let world = Self { simulation, process, server, dns, leads, counts };
        world.firewall(names);
        world
    }

    fn firewall(&self, names: &[&str]) {
        let rules: Vec<Value> = names.iter().map(|name| json!({"type": "Allow", "to": {"dnsName": name}})).collect();
        let metadata = json!({"name": "default", "namespace": "shop"});
        self.server.put(&EGRESS_FIREWALL, json!({"metadata": metadata, "spec": {"egress": rules}}));
    }

    fn start(mut self) -> Self {
        let environment = self.server.environment(&self.process, self.simulation.clock());
        let watch = Watch::start_in(&environment, kinds::watched(Component::Controller));
        assert!(self.simulation.run_until(60 * SECOND, || watch.is_known()), "{:?}", watch.trouble());
        let settings = Settings {
            namespace: "namewall".to_owned(),
            whose: Whose::EgressFirewalls,
            resolvers: vec![([192, 0, 2, 53], 53).into()],
            service: ("kube-system".to_owned(), "kube-dns".to_owned()),
            resolver: ResolverSettings::default(),
        };
        let mut controller = Controller::new(environment, watch, Box::new(self.dns.lookups()), settings);
        let (tasks, leads, counts) = (self.process.clone(), self.leads.clone(), self.counts.clone());
        self.process.spawn(Box::pin(async move {
            loop {
                controller.turn(leads.load(Ordering::Relaxed)).await;
                *counts.lock().expect("no task panics") = controller.counts();
                tasks.sleep(TURN).await;
            }
        }));
        self
    }

    /// The objects there are, as `NAME ADDRESS,…`.
    fn names(&self) -> Vec<String> {
        let tell = |object: Value| {
            let names = object["status"]["resolvedNames"].as_array().cloned().unwrap_or_default();
            let addresses =
                names.iter().flat_map(|one| one["resolvedAddresses"].as_array().cloned().unwrap_or_default());
            let addresses: Vec<String> = addresses.filter_map(|one| one["ip"].as_str().map(str::to_owned)).collect();
            format!("{} {}", object["spec"]["name"].as_str().unwrap_or_default(), addresses.join(","))
        };
        self.server.all(&DNS_NAME_RESOLVER).into_iter().map(tell).collect()
    }

    fn counts(&self) -> Counts {
        *self.counts.lock().expect("no task panics")
    }
}

fn address(last: u8) -> IpAddr {
    [192, 0, 2, last].into()
}

#[test]
fn the_names_of_a_policy_are_resolved_followed_and_let_go() {
    let world = World::new(&["a.example.com"]);
    world.dns.set("a.example.com.", &[(address(1), 30)]);
    let mut world = world.start();
    world.simulation.run_for(SECOND);
    assert_eq!(world.names(), ["a.example.com. 192.0.2.1"]);
    world.dns.set("a.example.com.", &[(address(2), 30)]);
    world.simulation.run_for(31 * SECOND);
    assert_eq!(world.names(), ["a.example.com. 192.0.2.1,192.0.2.2"]);
    world.simulation.run_for(6 * SECOND);
    assert_eq!(world.names(), ["a.example.com. 192.0.2.2"], "its grace is over");
    world.firewall(&["b.example.com"]);
    world.simulation.run_for(SECOND);
    assert_eq!(world.names(), ["b.example.com. "]);
    let Counts { created, deleted, .. } = world.counts();
    assert_eq!((created, deleted), (2, 1));
}

#[test]
fn a_conflict_is_tried_again() {
    let world = World::new(&["a.example.com"]);
    world.dns.set("a.example.com.", &[(address(1), 30)]);
    let mut conflicts = 3;
    world.server.refuse(move |request: &Request| {
        let is_refused = conflicts > 0 && matches!(request.verb, Verb::ReplaceStatus(_));
        conflicts -= u32::from(is_refused);
        is_refused.then(|| ApiError::Refused { code: 409, message: "the object has been modified".to_owned() })
    });
    let mut world = world.start();
    world.simulation.run_for(SECOND);
    assert_eq!(world.names(), ["a.example.com. 192.0.2.1"]);
    let statuses = world.counts().statuses;
    assert_eq!(statuses, Published { written: 1, conflicts: 3, ..Published::default() });
}

#[test]
fn a_dns_server_that_fails_is_asked_ever_less() {
    let world = World::new(&["a.example.com"]);
    world.dns.fail("a.example.com.", "SERVFAIL");
    let mut world = world.start();
    world.simulation.run_for(200 * SECOND);
    let asked = world.dns.take_asked();
    let pauses: Vec<u64> = asked.windows(2).map(|pair| pair[1].at.since(pair[0].at).as_secs()).collect();
    assert_eq!(pauses, [10, 20, 40, 80], "{asked:?}");
    assert_eq!(world.counts().failures, 5);
    world.dns.set("a.example.com.", &[(address(1), 30)]);
    world.simulation.run_for(200 * SECOND);
    assert_eq!(world.names(), ["a.example.com. 192.0.2.1"]);
}

#[test]
fn a_name_that_fails_after_it_was_known_keeps_its_addresses_for_a_while() {
    let world = World::new(&["a.example.com"]);
    world.dns.set("a.example.com.", &[(address(1), 30)]);
    let mut world = world.start();
    world.simulation.run_for(10 * SECOND);
    world.dns.fail("a.example.com.", "SERVFAIL");
    world.simulation.run_for(25 * SECOND);
    assert_eq!(world.names(), ["a.example.com. 192.0.2.1"]);
    world.simulation.run_for(300 * SECOND);
    assert_eq!(world.names(), ["a.example.com. "]);
}

#[test]
fn one_that_no_longer_leads_writes_and_asks_nothing() {
    let world = World::new(&["a.example.com"]);
    world.dns.set("a.example.com.", &[(address(1), 30)]);
    let mut world = world.start();
    world.simulation.run_for(SECOND);
    world.leads.store(false, Ordering::Relaxed);
    world.firewall(&["b.example.com"]);
    world.server.take_requests();
    world.dns.take_asked();
    world.simulation.run_for(120 * SECOND);
    assert_eq!((world.server.take_requests(), world.dns.take_asked()), (Vec::<Request>::new(), Vec::<Asked>::new()));
    world.leads.store(true, Ordering::Relaxed);
    world.simulation.run_for(SECOND);
    assert_eq!(world.names(), ["b.example.com. "]);
}

#[test]
fn an_object_that_could_not_be_made_is_made_later() {
    let world = World::new(&["a.example.com"]);
    world.dns.set("a.example.com.", &[(address(1), 300)]);
    let clock = world.simulation.clock();
    let ready_at = namewall_runtime::Clock::now(&clock) + 5 * SECOND;
    world.server.refuse(move |request: &Request| {
        let is_early = namewall_runtime::Clock::now(&clock) < ready_at && matches!(request.verb, Verb::Create(_));
        is_early.then(|| ApiError::Unreachable("connection refused".to_owned()))
    });
    let mut world = world.start();
    world.simulation.run_for(9 * SECOND);
    assert_eq!(world.names().len(), 0);
    world.simulation.run_for(2 * SECOND);
    assert_eq!(world.names(), ["a.example.com. 192.0.2.1"]);
}

#[test]
fn users_are_told_of_a_policy_that_cannot_be_read() {
    let world = World::new(&["a.example.com"]);
    let metadata = json!({"name": "default", "namespace": "office"});
    let rule = json!({"type": "Allow", "to": {"cidrSelector": "192.0.2.0/240"}});
    world.server.put(&EGRESS_FIREWALL, json!({"metadata": metadata, "spec": {"egress": [rule]}}));
    let mut world = world.start();
    world.simulation.run_for(SECOND);
    let key = Key { namespace: "office".into(), name: "default".into() };
    let object = world.server.get(&EGRESS_FIREWALL, &key).expect("it is there");
    assert!(object["status"]["status"].as_str().is_some_and(|text| text.starts_with("not accepted")), "{object}");
    let events = world.server.take_requests();
    assert_eq!(events.iter().filter(|request| request.resource.kind == "Event").count(), 1);
}
