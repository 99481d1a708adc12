//! Publishers at an API server in memory, in virtual time.

use super::*;
use crate::api::{ApiError, Request, Verb};
use crate::testing::{FakeServer, Faults};
use crate::watch::Watch;
use jiff::SignedDuration;
use namewall_cluster::kinds::DNS_NAME_RESOLVER;
use namewall_runtime::testing::{Process, Simulation};
use serde_json::{Value, json};
use std::net::Ipv4Addr;

const SECOND: Duration = Duration::from_secs(1);

/// A node that publishes.
struct Writer {
    process: Arc<Process>,
    watch: Watch,
    publisher: Publisher,
}

struct World {
    simulation: Simulation,
    server: FakeServer,
}

impl World {
    /// One object, for all names under example.com.
    fn new(seed: u64) -> Self {
        let mut simulation = Simulation::new(seed);
        let server = FakeServer::start(&mut simulation);
        server.put(
            &DNS_NAME_RESOLVER,
            json!({"metadata": {"name": "wildcard", "namespace": "namewall"}, "spec": {"name": "*.example.com."}}),
        );
        Self { simulation, server }
    }

    fn writer(&mut self, skew: i64) -> Writer {
        let clock = self.simulation.clock().skewed_by(SignedDuration::from_secs(skew));
        let process = self.simulation.process();
        let watch = Watch::start_in(&self.server.environment(&process, clock), [&DNS_NAME_RESOLVER]);
        assert!(self.simulation.run_until(60 * SECOND, || watch.is_known()));
        Writer { process, publisher: watch.publisher(Settings::default()), watch }
    }

    fn object(&self) -> Value {
        self.server.get(&DNS_NAME_RESOLVER, &key()).expect("it is there")
    }

    /// The names of the object, sorted.
    fn names(&self) -> Vec<String> {
        let object = self.object();
        let names = object["status"]["resolvedNames"].as_array().into_iter().flatten();
        let mut names: Vec<String> = names.filter_map(|one| one["dnsName"].as_str()).map(str::to_owned).collect();
        names.sort();
        names
    }

    /// The writes that got through.
    fn writes(&self) -> usize {
        let requests = self.server.take_requests();
        requests.iter().filter(|request| matches!(request.verb, Verb::ReplaceStatus(_))).count()
    }
}

fn key() -> Key {
    Key { namespace: "namewall".into(), name: "wildcard".into() }
}

fn found(last: u8, ttl: u32) -> Outcome {
    Outcome::Found(vec![(Ipv4Addr::new(192, 0, 2, last).into(), ttl)])
}

#[test]
fn what_was_looked_up_is_published_once() {
    let mut world = World::new(1);
    let writer = world.writer(0);
    assert!(!writer.publisher.note("www.example.org.", &found(1, 30)), "no object is for it");
    assert!(writer.publisher.note("a.example.com.", &found(1, 30)));
    assert!(world.simulation.run_until(SECOND, || writer.publisher.is_finished()));
    assert_eq!(world.names(), ["a.example.com."]);
    let resolved = &world.object()["status"]["resolvedNames"][0]["resolvedAddresses"];
    let expected = json!([{"ip": "192.0.2.1", "ttlSeconds": 30, "lastLookupTime": "2026-01-01T00:00:01Z"}]);
    assert_eq!(*resolved, expected);
    world.simulation.run_for(SECOND);
    assert!(!writer.publisher.note("a.example.com.", &found(1, 30)), "the object says so already");
    assert_eq!(writer.publisher.counts(), Published { written: 1, ..Published::default() });
}

#[test]
fn writers_that_meet_lose_nothing() {
    for seed in 0..5 {
        let mut world = World::new(seed);
        let (one, other) = (world.writer(0), world.writer(200));
        world.server.set_faults(Faults { delay: SECOND / 20, lost_answers: 10, ..Faults::default() });
        for number in 0..10 {
            one.publisher.note(&format!("a{number}.example.com."), &found(number, 300));
            other.publisher.note(&format!("b{number}.example.com."), &found(number, 300));
            world.simulation.run_for(SECOND / 50);
        }
        let is_done = || one.publisher.is_finished() && other.publisher.is_finished();
        assert!(world.simulation.run_until(60 * SECOND, is_done), "seed {seed}");
        let (ours, theirs) = (one.publisher.counts(), other.publisher.counts());
        assert_eq!((world.names().len(), ours.failed + theirs.failed), (20, 0), "seed {seed}: {ours:?} {theirs:?}");
        assert!(ours.conflicts + theirs.conflicts > 0, "seed {seed}: they never met");
    }
}

#[test]
fn it_backs_off_from_a_server_that_refuses_and_gives_up_when_the_addresses_are_over() {
    let mut world = World::new(1);
    let writer = world.writer(0);
    let overloaded = ApiError::Refused { code: 503, message: "overloaded".to_owned() };
    world
        .server
        .refuse(move |request: &Request| matches!(request.verb, Verb::ReplaceStatus(_)).then(|| overloaded.clone()));
    world.server.take_requests();
    writer.publisher.note("a.example.com.", &found(1, 60));
    world.simulation.run_for(SECOND);
    let first = world.writes();
    assert!((5..=9).contains(&first), "{first} tries in the first second");
    world.simulation.run_for(30 * SECOND);
    let later = world.writes();
    assert!((15..=31).contains(&later), "{later} tries in half a minute");
    assert!(world.simulation.run_until(60 * SECOND, || writer.publisher.is_finished()));
    // What is over needs no write. No other node has heard of it.
    assert_eq!(writer.publisher.counts(), Published { failed: 1, ..Published::default() });
    assert!(writer.publisher.trouble().is_some_and(|trouble| trouble.contains("overloaded")));
    assert_eq!(world.names().len(), 0);
    world.server.take_requests();
    world.simulation.run_for(60 * SECOND);
    assert_eq!(world.writes(), 0);
}

/// A role that lacks a right, a quota, a webhook that is away: the same error again and again, for as long as the TTL.
#[test]
fn s8_6_what_is_in_the_way_of_writes_is_known_long_before_the_addresses_are_over() {
    for error in [
        ApiError::Refused { code: 403, message: "forbidden".to_owned() },
        ApiError::Refused { code: 429, message: "throttled".to_owned() },
        ApiError::Unreachable("connection refused".to_owned()),
    ] {
        let mut world = World::new(1);
        let writer = world.writer(0);
        let text = error.to_string();
        let is_away = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let refuses = is_away.clone();
        world.server.refuse(move |request: &Request| {
            let is_write = matches!(request.verb, Verb::ReplaceStatus(_));
            (is_write && refuses.load(Ordering::Relaxed)).then(|| error.clone())
        });
        writer.publisher.note("a.example.com.", &found(1, 3_600));
        world.simulation.run_for(2 * SECOND);
        assert_eq!(writer.publisher.blocked(), None, "it may pass");
        world.simulation.run_for(8 * SECOND);
        let told = writer.publisher.blocked().expect("it lasts");
        assert!(told.contains("wildcard") && told.contains(&text), "{told}");
        assert_eq!(writer.publisher.counts().waiting, 1);
        is_away.store(false, Ordering::Relaxed);
        assert!(world.simulation.run_until(10 * SECOND, || writer.publisher.is_finished()));
        assert_eq!(writer.publisher.blocked(), None, "{text}");
        assert_eq!(writer.publisher.counts(), Published { written: 1, ..Published::default() });
    }
}

#[test]
fn what_waited_is_written_with_the_time_it_has_left() {
    let mut world = World::new(1);
    let writer = world.writer(0);
    world.server.set_faults(Faults { is_away: true, ..Faults::default() });
    writer.publisher.note("a.example.com.", &found(1, 60));
    writer.publisher.note("b.example.com.", &found(2, 10));
    world.simulation.run_for(20 * SECOND);
    world.server.set_faults(Faults::default());
    assert!(world.simulation.run_until(10 * SECOND, || writer.publisher.is_finished()));
    assert_eq!(world.names(), ["a.example.com."], "the other is over");
    let address = &world.object()["status"]["resolvedNames"][0]["resolvedAddresses"][0];
    let left = address["ttlSeconds"].as_i64().expect("a number");
    assert!((38..=40).contains(&left), "{left}");
}

#[test]
fn an_object_that_is_gone_is_nobodys_failure() {
    let mut world = World::new(1);
    let writer = world.writer(0);
    world.server.refuse(|request: &Request| {
        let gone = ApiError::Refused { code: 404, message: "not found".to_owned() };
        matches!(request.verb, Verb::ReplaceStatus(_)).then_some(gone)
    });
    writer.publisher.note("a.example.com.", &found(1, 30));
    assert!(world.simulation.run_until(SECOND, || writer.publisher.is_finished()));
    assert_eq!(writer.publisher.counts().failed, 0);
}

#[test]
fn what_is_over_is_pruned() {
    let mut world = World::new(1);
    let writer = world.writer(0);
    writer.publisher.note("a.example.com.", &found(1, 30));
    world.simulation.run_for(34 * SECOND);
    writer.publisher.prune(&key(), DeniedNames::default());
    world.simulation.run_for(SECOND);
    assert_eq!(world.names().len(), 1, "its grace is not over");
    world.simulation.run_for(SECOND);
    writer.publisher.prune(&key(), DeniedNames::default());
    world.simulation.run_for(SECOND);
    assert_eq!(world.names().len(), 0);
}

#[test]
fn a_node_that_ends_while_it_writes_loses_only_its_own() {
    let mut world = World::new(3);
    let (one, other) = (world.writer(0), world.writer(0));
    world.server.set_faults(Faults { delay: SECOND, ..Faults::default() });
    one.publisher.note("a.example.com.", &found(1, 300));
    other.publisher.note("b.example.com.", &found(2, 300));
    world.simulation.kill(&one.process);
    assert!(world.simulation.run_until(60 * SECOND, || other.publisher.is_finished()));
    assert!(!one.publisher.is_finished() && one.watch.is_known());
    assert_eq!(world.names(), ["b.example.com."]);
}

/// Refuses a status with such a name in it, as the schema does.
fn refuse_names(world: &World, code: u16, bad: &'static str) {
    world.server.refuse(move |request: &Request| {
        let Verb::ReplaceStatus(object) = &request.verb else { return None };
        let is_bad = object["status"].to_string().contains(bad);
        is_bad.then(|| ApiError::Refused { code, message: format!("{bad} is invalid") })
    });
}

#[test]
fn s8_6_a_name_that_no_object_can_hold_is_counted_and_blocks_nothing() {
    let mut world = World::new(1);
    let writer = world.writer(0);
    assert!(!writer.publisher.note("my_bucket.example.com.", &found(1, 300)));
    assert!(writer.publisher.note("a.example.com.", &found(2, 300)));
    assert!(world.simulation.run_until(SECOND, || writer.publisher.is_finished()));
    assert_eq!(world.names(), ["a.example.com."]);
    assert_eq!(writer.publisher.counts(), Published { written: 1, refused: 1, ..Published::default() });
    let trouble = writer.publisher.trouble().expect("there is some");
    assert!(trouble.contains("my_bucket.example.com."), "{trouble}");
}

#[test]
fn s8_6_a_name_that_the_server_refuses_does_not_block_those_beside_it() {
    for code in [400, 413, 422] {
        let mut world = World::new(1);
        let writer = world.writer(0);
        refuse_names(&world, code, "bad.example.com.");
        for name in ["a.example.com.", "bad.example.com.", "c.example.com."] {
            assert!(writer.publisher.note(name, &found(1, 300)));
        }
        assert!(world.simulation.run_until(SECOND, || writer.publisher.is_finished()), "{code}");
        assert_eq!(world.names(), ["a.example.com.", "c.example.com."], "{code}");
        let counts = writer.publisher.counts();
        assert_eq!((counts.written, counts.failed), (2, 1), "{code}");
        let trouble = writer.publisher.trouble().expect("there is some");
        assert!(trouble.contains("bad.example.com. is invalid"), "{trouble}");
    }
}

#[test]
fn s8_7_a_failure_that_waits_for_the_server_keeps_the_addresses() {
    let mut world = World::new(1);
    let writer = world.writer(0);
    writer.publisher.note("a.example.com.", &found(1, 10));
    assert!(world.simulation.run_until(SECOND, || writer.publisher.is_finished()));
    world.simulation.run_for(9 * SECOND);
    let away = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let is_away = away.clone();
    world.server.refuse(move |_: &Request| {
        is_away.load(Ordering::Relaxed).then(|| ApiError::Unreachable("connection refused".to_owned()))
    });
    writer.publisher.note("a.example.com.", &Outcome::Failed("SERVFAIL".to_owned()));
    writer.publisher.prune(&key(), DeniedNames::default());
    world.simulation.run_for(10 * SECOND);
    away.store(false, Ordering::Relaxed);
    assert!(world.simulation.run_until(30 * SECOND, || writer.publisher.is_finished()));
    assert_eq!(world.names(), ["a.example.com."]);
}

/// One client asks for thousands of names that live long. The names of another client stay, and new ones of it come.
#[test]
fn s6_5_a_flood_of_names_by_one_client_leaves_room_in_objects_to_others() {
    let mut world = World::new(1);
    let writer = world.writer(0);
    let (attacker, other) = (Some([10, 0, 0, 66].into()), Some([10, 0, 0, 1].into()));
    writer.publisher.note_for(other, "before.example.com.", &found(1, 30));
    for number in 0..3_000 {
        writer.publisher.note_for(attacker, &format!("flood-{number}.example.com."), &found(66, 3_600));
    }
    writer.publisher.note_for(other, "after.example.com.", &found(1, 30));
    assert!(world.simulation.run_until(60 * SECOND, || writer.publisher.is_finished()));
    let names = world.names();
    let has = |name: &str| names.iter().any(|known| known == name);
    assert!(has("before.example.com.") && has("after.example.com."));
    assert_eq!(names.len(), shares::MOST_NAMES + 2);
    let counts = writer.publisher.counts();
    assert_eq!((counts.left_out, counts.evicted), (2_000, 0));
}
