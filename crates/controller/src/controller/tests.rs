//! A controller at an API server and DNS in memory, in virtual time.

use super::*;
use crate::testing::{Asked, FakeDns};
use namewall_cluster::kinds::{
    self, Component, DNS_NAME_RESOLVER, EGRESS_FIREWALL, ENDPOINT_SLICE, NODE_ADDRESSES, POD, SERVICE,
};
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
    /// Whom it asks. Empty: the pods of the cluster's DNS Service.
    resolvers: Vec<SocketAddr>,
}

impl World {
    /// A controller that leads, and an EgressFirewall with rules for these names.
    fn new(names: &[&str]) -> Self {
        let mut simulation = Simulation::new(1);
        let server = FakeServer::start(&mut simulation);
        let dns = FakeDns::new(simulation.clock(), simulation.random());
        let process = simulation.process();
        let (leads, counts) = (Arc::new(AtomicBool::new(true)), Arc::default());
        let resolvers = vec![([192, 0, 2, 53], 53).into()];
        let world = Self { simulation, process, server, dns, leads, counts, resolvers };
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
            other_namespaces: vec!["openshift-ovn-kubernetes".to_owned()],
            whose: Whose::EgressFirewalls,
            resolvers: self.resolvers.clone(),
            service: None,
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
fn the_dns_service_of_openshift_is_found_and_a_missing_one_is_counted() {
    let mut world = World::new(&["a.example.com"]);
    world.resolvers.clear();
    world.dns.set("a.example.com.", &[(address(1), 30)]);
    let mut world = world.start();
    world.simulation.run_for(SECOND);
    assert_eq!((world.names(), world.counts().servers), (vec!["a.example.com. ".to_owned()], Some(0)));
    let metadata = json!({"namespace": "openshift-dns", "name": "dns-default"});
    world.server.put(&SERVICE, json!({"metadata": metadata, "spec": {"clusterIP": "172.30.0.10"}}));
    let labels = json!({"kubernetes.io/service-name": "dns-default"});
    let metadata = json!({"namespace": "openshift-dns", "name": "dns-default-x", "labels": labels});
    let ports = json!([{"name": "dns", "port": 5353, "protocol": "UDP"}]);
    let slice = json!({"metadata": metadata, "endpoints": [{"addresses": ["10.128.0.5"]}], "ports": ports});
    world.server.put(&ENDPOINT_SLICE, slice);
    world.simulation.run_for(60 * SECOND);
    assert_eq!((world.names(), world.counts().servers), (vec!["a.example.com. 192.0.2.1".to_owned()], Some(1)));
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
    assert_eq!(pauses, [10, 20, 30, 30, 30, 30, 30], "{asked:?}");
    assert_eq!(world.counts().failures, 8);
    world.dns.set("a.example.com.", &[(address(1), 30)]);
    world.simulation.run_for(31 * SECOND);
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
fn s8_7_a_name_that_is_denied_keeps_its_addresses_until_dns_answers() {
    let world = World::new(&[]);
    let rule = json!({"type": "Deny", "to": {"dnsName": "a.example.com"}});
    let metadata = json!({"name": "default", "namespace": "shop"});
    world.server.put(&EGRESS_FIREWALL, json!({"metadata": metadata, "spec": {"egress": [rule]}}));
    world.dns.set("a.example.com.", &[(address(1), 30)]);
    let mut world = world.start();
    world.simulation.run_for(10 * SECOND);
    for failure in ["SERVFAIL", "Timeout", "NXDOMAIN"] {
        world.dns.fail("a.example.com.", failure);
        for _ in 0..600 {
            world.simulation.run_for(SECOND);
            assert_eq!(world.names(), ["a.example.com. 192.0.2.1"], "{failure}");
        }
    }
    world.dns.set("a.example.com.", &[(address(2), 30)]);
    world.simulation.run_for(40 * SECOND);
    assert_eq!(world.names(), ["a.example.com. 192.0.2.2"]);
}

#[test]
fn s8_7_a_name_keeps_its_addresses_for_five_more_tries() {
    let world = World::new(&["a.example.com"]);
    world.dns.set("a.example.com.", &[(address(1), 30)]);
    let mut world = world.start();
    world.simulation.run_for(10 * SECOND);
    world.dns.take_asked();
    world.dns.fail("a.example.com.", "Timeout");
    while world.names() == ["a.example.com. 192.0.2.1"] {
        world.simulation.run_for(SECOND);
    }
    let tries = world.dns.take_asked().len();
    assert!(tries >= 5, "it went after {tries} tries");
}

#[test]
fn s8_7_lookups_that_wait_for_their_turn_close_nothing() {
    let world = World::new(&["a.example.com"]);
    world.dns.set("a.example.com.", &[(address(1), 30)]);
    let mut world = world.start();
    world.simulation.run_for(10 * SECOND);
    world.dns.set_delay(200 * SECOND);
    for second in 0..900 {
        world.simulation.run_for(SECOND);
        assert_eq!(world.names(), ["a.example.com. 192.0.2.1"], "after {second} s");
    }
    assert_eq!(world.counts().failures, 0);
}

#[test]
fn s8_7_a_lookup_that_never_ends_opens_nothing_for_ever() {
    let world = World::new(&["a.example.com"]);
    world.dns.set("a.example.com.", &[(address(1), 30)]);
    let mut world = world.start();
    world.simulation.run_for(10 * SECOND);
    world.dns.set_delay(1_000_000 * SECOND);
    world.simulation.run_for(300 * SECOND);
    assert_eq!(world.names(), ["a.example.com. 192.0.2.1"]);
    world.simulation.run_for(3_600 * SECOND);
    assert_eq!(world.names(), ["a.example.com. "]);
    assert!(world.counts().failures > 0);
}

#[test]
fn s8_7_a_name_comes_back_soon_after_dns_does() {
    let world = World::new(&["a.example.com", "*.example.org"]);
    world.dns.set("a.example.com.", &[(address(1), 30)]);
    world.dns.set("b.example.org.", &[(address(2), 30)]);
    let mut world = world.start();
    world.simulation.run_for(SECOND);
    // As a node writes it after a client has asked.
    let mut wildcard = world
        .server
        .all(&DNS_NAME_RESOLVER)
        .into_iter()
        .find(|one| one["spec"]["name"] == "*.example.org.")
        .expect("it is there");
    let now = namewall_runtime::Clock::wall(&world.simulation.clock()).to_string();
    wildcard["status"] = json!({"resolvedNames": [{
        "dnsName": "b.example.org.", "resolvedAddresses": [{"ip": "192.0.2.2", "ttlSeconds": 30, "lastLookupTime": now}],
    }]});
    world.server.put(&DNS_NAME_RESOLVER, wildcard);
    world.simulation.run_for(40 * SECOND);
    let both = ["a.example.com. 192.0.2.1", "*.example.org. 192.0.2.2"];
    let has_both = |world: &World| both.iter().all(|one| world.names().contains(&(*one).to_owned()));
    assert!(has_both(&world), "{:?}", world.names());
    world.dns.fail("a.example.com.", "SERVFAIL");
    world.dns.fail("b.example.org.", "SERVFAIL");
    world.simulation.run_for(120 * SECOND);
    assert!(world.names().iter().all(|one| !one.contains("192.0.2.")), "{:?}", world.names());
    world.dns.set("a.example.com.", &[(address(1), 30)]);
    world.dns.set("b.example.org.", &[(address(2), 30)]);
    world.simulation.run_for(31 * SECOND);
    assert!(has_both(&world), "{:?}", world.names());
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

/// OpenShift's operator makes an object for a name, and another writer's in a third namespace does not count.
#[test]
fn s8_2_a_name_that_has_an_object_in_a_named_namespace_gets_no_second_one() {
    let world = World::new(&["a.example.com", "b.example.com"]);
    let put = |world: &World, namespace: &str, name: &str| {
        let metadata = json!({"name": object_name(name, 0), "namespace": namespace});
        world.server.put(&DNS_NAME_RESOLVER, json!({"metadata": metadata, "spec": {"name": name}}));
    };
    world.dns.set("a.example.com.", &[(address(1), 300)]);
    world.dns.set("b.example.com.", &[(address(2), 300)]);
    put(&world, "openshift-ovn-kubernetes", "a.example.com.");
    put(&world, "elsewhere", "b.example.com.");
    let objects = |world: &World| {
        let tell = |object: Value| {
            let addresses = object["status"]["resolvedNames"][0]["resolvedAddresses"].as_array().map_or(0, Vec::len);
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            format!("{namespace} {} {addresses}", object["spec"]["name"].as_str().unwrap_or_default())
        };
        let mut all: Vec<String> = world.server.all(&DNS_NAME_RESOLVER).into_iter().map(tell).collect();
        all.sort();
        all
    };
    let mut world = world.start();
    world.simulation.run_for(2 * SECOND);
    let expected =
        ["elsewhere b.example.com. 0", "namewall b.example.com. 1", "openshift-ovn-kubernetes a.example.com. 1"];
    assert_eq!(objects(&world), expected);
    // One that comes later takes the place of ours.
    put(&world, "openshift-ovn-kubernetes", "b.example.com.");
    world.simulation.run_for(10 * SECOND);
    let later = [expected[0], "openshift-ovn-kubernetes a.example.com. 1", "openshift-ovn-kubernetes b.example.com. 1"];
    assert_eq!(objects(&world), later);
    // Another's object is not ours to delete, also when no rule has the name any more.
    world.firewall(&["c.example.com"]);
    world.simulation.run_for(10 * SECOND);
    assert_eq!(objects(&world).len(), 4);
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
    assert!(object["status"]["status"].as_str().is_some_and(|text| text.contains("not correctly applied")), "{object}");
    let events = world.server.take_requests();
    assert_eq!(events.iter().filter(|request| request.resource.kind == "Event").count(), 1);
}

/// A firewall with its status and its Events.
fn shut() -> Key {
    Key { namespace: "".into(), name: "shut".into() }
}

impl World {
    fn put_firewall(&self, network: &str) {
        let rules = json!([{"action": "Deny", "to": [{"networks": [network]}]}]);
        let object = json!({"metadata": {"name": "shut"}, "spec": {"priority": 5, "rules": rules}});
        self.server.put(&CLUSTER_EGRESS_FIREWALL, object);
    }

    /// A node with an agent that enforces what there is.
    fn put_node(&self, name: &str, enforces: &str) {
        self.server.put(&NODE, json!({"metadata": {"name": name}}));
        self.server.put(
            &NODE_ADDRESSES,
            json!({"metadata": {"name": name}, "addresses": [], "status": {"enforces": enforces}}),
        );
    }

    /// A Service with endpoints written by hand.
    fn put_service(&self, name: &str, address: &str) {
        let metadata = json!({"name": name, "namespace": "shop"});
        let ports = json!([{"port": 80, "protocol": "TCP"}]);
        self.server.put(&SERVICE, json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.9", "ports": ports}}));
        let labels = json!({"kubernetes.io/service-name": name});
        self.server.put(
            &ENDPOINT_SLICE,
            json!({
                "metadata": {"name": name, "namespace": "shop", "labels": labels},
                "addressType": "IPv4",
                "ports": ports,
                "endpoints": [{"addresses": [address]}],
            }),
        );
    }

    /// The digest of the firewalls as they are.
    fn digest(&self) -> String {
        digest_of(&self.server.all(&CLUSTER_EGRESS_FIREWALL))
    }

    fn condition(&self, kind: &str) -> Value {
        let object = self.server.get(&CLUSTER_EGRESS_FIREWALL, &shut()).expect("it is there");
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|one| one["type"] == kind).unwrap_or_default()
    }

    /// The Events of firewalls since this was last asked, as `REASON MESSAGE`.
    fn events(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let tell = |request: Request| match request.verb {
            Verb::Create(event) if request.resource.kind == "Event" => {
                Some(format!("{} {} {}", text(&event["type"]), text(&event["reason"]), text(&event["message"])))
            }
            _ => None,
        };
        self.server.take_requests().into_iter().filter_map(tell).collect()
    }
}

/// The digest of these firewalls.
fn digest_of(firewalls: &[Value]) -> String {
    let mut store = namewall_cluster::Store::default();
    let kind = CLUSTER_EGRESS_FIREWALL.preferred();
    firewalls.iter().for_each(|object| _ = store.apply(kind, object));
    store.digest(&CLUSTER_EGRESS_FIREWALL)
}

/// An attack: a firewall is deleted and made anew under its name, with other rules. Its generation is 1 again, and a
/// node that still has the old one must not count.
#[test]
fn s7_5_a_node_that_enforces_an_older_firewall_of_the_same_name_does_not_count() {
    let world = World::new(&[]);
    world.put_firewall("192.0.2.0/24");
    let mut older = world.server.get(&CLUSTER_EGRESS_FIREWALL, &shut()).expect("it is there");
    assert_eq!(older["metadata"]["generation"], 1);
    older["metadata"]["uid"] = json!("uid-of-one-that-is-deleted");
    world.put_node("node-1", &digest_of(&[older]));
    let mut world = world.start();
    world.simulation.run_for(5 * SECOND);
    assert_eq!(world.condition("Enforced")["message"], "1 of 1 nodes do not enforce it yet: node-1");
    world.put_node("node-1", &world.digest());
    world.simulation.run_for(5 * SECOND);
    assert_eq!(world.condition("Enforced")["status"], "True");
}

#[test]
fn s7_5_a_firewall_says_which_nodes_do_not_enforce_it() {
    let world = World::new(&[]);
    world.put_firewall("192.0.2.0/24");
    world.put_node("node-1", "something older");
    world.server.put(&NODE, json!({"metadata": {"name": "node-2"}}));
    let mut world = world.start();
    world.simulation.run_for(5 * SECOND);
    let enforced = world.condition("Enforced");
    assert_eq!((&enforced["status"], &enforced["observedGeneration"]), (&json!("False"), &json!(1)));
    assert_eq!(enforced["message"], "2 of 2 nodes do not enforce it yet: node-1, node-2");
    assert_eq!(world.condition("Accepted")["status"], "True", "what another manager says stays");

    world.put_node("node-1", &world.digest());
    world.simulation.run_for(5 * SECOND);
    let later = world.condition("Enforced");
    assert_eq!(later["message"], "1 of 2 nodes do not enforce it yet: node-2");
    assert_eq!(later["lastTransitionTime"], enforced["lastTransitionTime"], "its status is the same");

    world.put_node("node-2", &world.digest());
    world.simulation.run_for(5 * SECOND);
    let all = world.condition("Enforced");
    assert_eq!((&all["status"], &all["message"]), (&json!("True"), &json!("all 2 nodes it is for enforce it")));
    assert_ne!(all["lastTransitionTime"], enforced["lastTransitionTime"]);

    // A change of the firewall has to reach the nodes again.
    world.put_firewall("198.51.100.0/24");
    world.simulation.run_for(5 * SECOND);
    let changed = world.condition("Enforced");
    assert_eq!((&changed["status"], &changed["observedGeneration"]), (&json!("False"), &json!(2)));
}

#[test]
fn s7_5_users_are_told_of_services_that_point_at_what_is_denied() {
    let world = World::new(&[]);
    world.put_firewall("192.0.2.0/24");
    world.put_service("tunnel", "192.0.2.66");
    let mut world = world.start();
    world.simulation.run_for(5 * SECOND);
    let words = "Services that point at a denied destination: shop/tunnel (to 192.0.2.66, denied by rule 0); \
                 connections through them are denied too";
    let exposed = world.condition("Exposed");
    assert_eq!((&exposed["status"], &exposed["message"]), (&json!("True"), &json!(words)));
    assert_eq!(world.events(), [format!("Warning Exposed {words}")]);

    // Not again, also by who leads next.
    world.leads.store(false, Ordering::Relaxed);
    world.simulation.run_for(SECOND);
    world.leads.store(true, Ordering::Relaxed);
    world.simulation.run_for(120 * SECOND);
    assert_eq!(world.events(), Vec::<String>::new());
    assert_eq!(world.condition("Exposed")["lastTransitionTime"], exposed["lastTransitionTime"]);

    world.put_service("tunnel", "203.0.113.1");
    world.simulation.run_for(5 * SECOND);
    assert_eq!(world.condition("Exposed")["status"], "False");
    let gone = "Normal NotExposed Services that no longer point at a denied destination: shop/tunnel";
    assert_eq!(world.events(), [gone]);
}

/// An attack: somebody who may patch pods writes the denied address into an annotation of a pod. If it counted as the pod's,
/// the Service would point at a pod.
#[test]
fn s7_5_a_pods_annotation_takes_no_service_off_the_list() {
    let status = |networks: Value| {
        let world = World::new(&[]);
        world.put_firewall("192.0.2.0/24");
        world.put_service("tunnel", "192.0.2.66");
        let annotations = json!({"k8s.v1.cni.cncf.io/network-status": networks.to_string()});
        let metadata = json!({"name": "claimant", "namespace": "shop", "annotations": annotations});
        let addresses = json!({"phase": "Running", "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]});
        let spec = json!({"nodeName": "node-1", "containers": []});
        world.server.put(&POD, json!({"metadata": metadata, "spec": spec, "status": addresses}));
        let mut world = world.start();
        world.simulation.run_for(5 * SECOND);
        assert_eq!(world.condition("Exposed")["status"], "True", "{networks}");
        let mut told = world.server.get(&CLUSTER_EGRESS_FIREWALL, &shut()).expect("it is there")["status"].take();
        ["offendingServices", "offendingServicesCount", "concreteRules"].map(|key| told[key].take())
    };
    let honest = status(json!([{"name": "cbr0", "ips": ["10.0.0.9"], "default": true}]));
    let tunnel = json!([{"namespace": "shop", "name": "tunnel", "rule": 0, "address": "192.0.2.66"}]);
    assert_eq!((&honest[0], &honest[1]), (&tunnel, &json!(1)));
    for hostile in [
        json!([{"name": "cbr0", "ips": ["10.0.0.9", "192.0.2.66"], "default": true}]),
        json!([{"name": "cbr0", "ips": ["192.0.2.66"], "default": true}]),
        json!([{"name": "shop/second", "interface": "net1", "ips": ["192.0.2.66"]}]),
    ] {
        assert_eq!(status(hostile.clone()), honest, "{hostile}");
    }
}

#[test]
fn s7_5_an_event_that_could_not_be_written_is_written_later() {
    let world = World::new(&[]);
    world.put_firewall("192.0.2.0/24");
    world.put_service("tunnel", "192.0.2.66");
    let mut refused = 2;
    world.server.refuse(move |request: &Request| {
        let is_refused = refused > 0 && request.resource.kind == "Event";
        refused -= u32::from(is_refused);
        is_refused.then(|| ApiError::Unreachable("connection refused".to_owned()))
    });
    let mut world = world.start();
    world.simulation.run_for(5 * SECOND);
    assert_eq!(world.condition("Exposed")["status"], "True", "the status does not wait for it");
    world.simulation.run_for(60 * SECOND);
    assert_eq!(world.events().len(), 3, "two are refused, and one is taken");
}

/// The nodes of a world whose agents enforce the EgressFirewalls as they are.
fn enforce_egress_firewalls(world: &World, nodes: &[&str]) {
    let mut store = namewall_cluster::Store::default();
    for object in world.server.all(&EGRESS_FIREWALL) {
        store.apply(EGRESS_FIREWALL.preferred(), &object);
    }
    let digest = store.digest(&EGRESS_FIREWALL);
    for name in nodes {
        let status = json!({"enforcesEgressFirewalls": digest});
        world.server.put(&NODE, json!({"metadata": {"name": name}}));
        world.server.put(&NODE_ADDRESSES, json!({"metadata": {"name": name}, "addresses": [], "status": status}));
    }
}

/// What OVN-Kubernetes writes, so that scripts which wait for it go on.
#[test]
fn s8_1_an_egress_firewall_is_applied_when_all_nodes_enforce_it() {
    let world = World::new(&["a.example.com"]);
    let status = |world: &World| {
        let key = Key { namespace: "shop".into(), name: "default".into() };
        world.server.get(&EGRESS_FIREWALL, &key).expect("it is there")["status"].take()
    };
    for name in ["one", "two"] {
        world.server.put(&NODE, json!({"metadata": {"name": name}}));
        world.server.put(&NODE_ADDRESSES, json!({"metadata": {"name": name}, "addresses": []}));
    }
    // A node without an agent does not count.
    world.server.put(&NODE, json!({"metadata": {"name": "three"}}));
    let mut world = world.start();
    world.simulation.run_for(5 * SECOND);
    assert_eq!(status(&world), json!({"status": "", "messages": []}));
    enforce_egress_firewalls(&world, &["one"]);
    world.simulation.run_for(5 * SECOND);
    assert_eq!(status(&world), json!({"status": "", "messages": ["one: EgressFirewall Rules applied"]}));
    enforce_egress_firewalls(&world, &["two"]);
    world.simulation.run_for(5 * SECOND);
    let all = json!(["one: EgressFirewall Rules applied", "two: EgressFirewall Rules applied"]);
    assert_eq!(status(&world), json!({"status": "EgressFirewall Rules applied", "messages": all}));
    // It is written once.
    world.server.take_requests();
    world.simulation.run_for(60 * SECOND);
    let is_status = |request: &Request| matches!(request.verb, Verb::ApplyStatus(_));
    assert_eq!(world.server.take_requests().into_iter().filter(is_status).count(), 0);
    // Another generation has to be enforced again.
    world.firewall(&["b.example.com"]);
    world.simulation.run_for(5 * SECOND);
    assert_eq!(status(&world)["status"], "");
    enforce_egress_firewalls(&world, &["one", "two"]);
    world.simulation.run_for(5 * SECOND);
    assert_eq!(status(&world)["status"], "EgressFirewall Rules applied");
}

#[test]
fn s8_7_a_name_that_never_resolved_has_a_condition() {
    let world = World::new(&["a.example.com", "*.example.org"]);
    let mut world = world.start();
    world.simulation.run_for(5 * SECOND);
    let degraded = |world: &World| {
        let objects = world.server.all(&DNS_NAME_RESOLVER).into_iter();
        let names =
            objects.flat_map(|object| object["status"]["resolvedNames"].as_array().cloned().unwrap_or_default());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let tell = |name: Value| {
            let condition = &name["conditions"][0];
            let said = [&name["dnsName"], &condition["type"], &condition["status"], &condition["reason"]].map(text);
            format!("{}, {} addresses", said.join(" "), name["resolvedAddresses"].as_array().map_or(0, Vec::len))
        };
        names.map(tell).collect::<Vec<_>>()
    };
    // A wildcard need not resolve.
    assert_eq!(degraded(&world), ["a.example.com. Degraded True NXDOMAIN, 0 addresses"]);
    world.server.take_requests();
    world.simulation.run_for(1_800 * SECOND);
    let is_write = |request: &Request| matches!(request.verb, Verb::ReplaceStatus(_));
    assert_eq!(world.server.take_requests().into_iter().filter(is_write).count(), 0, "it is said once");
    world.dns.set("a.example.com.", &[]);
    world.simulation.run_for(1_800 * SECOND);
    assert_eq!(degraded(&world), ["a.example.com. Degraded True NoAddress, 0 addresses"]);
    world.dns.set("a.example.com.", &[(address(1), 30)]);
    world.simulation.run_for(1_800 * SECOND);
    assert_eq!(degraded(&world), ["a.example.com. Degraded False NOERROR, 1 addresses"]);
    // Known before, and gone for good.
    world.dns.fail("a.example.com.", "NXDOMAIN");
    world.simulation.run_for(600 * SECOND);
    assert_eq!(degraded(&world), ["a.example.com. Degraded True NXDOMAIN, 0 addresses"]);
}
