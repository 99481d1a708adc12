//! The API server in memory itself, and what follows it.

use super::*;
use crate::api::{CONFLICT, NOT_FOUND, Verb};
use crate::watch::Watch;
use namewall_cluster::kinds::DNS_NAME_RESOLVER;
use serde_json::json;

fn name(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "namewall"}, "spec": {"name": format!("{name}.example.com.")}})
}

fn key(name: &str) -> Key {
    Key { namespace: "namewall".into(), name: name.into() }
}

/// Runs a request to its end.
fn ask(simulation: &mut Simulation, server: &FakeServer, name: &str, verb: Verb) -> Result<Value, u16> {
    let answer = Arc::new(Mutex::new(None));
    let request = Request { resource: DNS_NAME_RESOLVER.preferred().into(), key: key(name), verb };
    let (asked, told) = (server.ask(request), answer.clone());
    let process = simulation.process();
    process.spawn(Box::pin(async move { *told.lock().expect("no task panics") = Some(asked.await) }));
    simulation.run_for(Duration::from_secs(10));
    let answer = answer.lock().expect("no task panics").take();
    answer.expect("it is answered").map_err(|error| error.code().expect("the server answers"))
}

#[test]
fn an_object_is_replaced_only_in_the_version_that_was_read() {
    let mut simulation = Simulation::new(1);
    let server = FakeServer::start(&mut simulation);
    assert_eq!(ask(&mut simulation, &server, "a", Verb::Get), Err(NOT_FOUND));
    let mut made = ask(&mut simulation, &server, "a", Verb::Create(name("a"))).expect("it is made");
    assert_eq!(ask(&mut simulation, &server, "a", Verb::Create(name("a"))), Err(CONFLICT));
    made["status"] = json!({"resolvedNames": []});
    made["spec"] = json!({"name": "other."});
    let written = ask(&mut simulation, &server, "a", Verb::ReplaceStatus(made.clone())).expect("it is written");
    assert_eq!((&written["spec"]["name"], &written["status"]), (&json!("a.example.com."), &made["status"]));
    assert_eq!((&written["metadata"]["generation"], &written["metadata"]["resourceVersion"]), (&json!(1), &json!("2")));
    assert_eq!(ask(&mut simulation, &server, "a", Verb::ReplaceStatus(made.clone())), Err(CONFLICT));
    made["metadata"]["resourceVersion"] = json!("2");
    let replaced = ask(&mut simulation, &server, "a", Verb::Replace(made)).expect("it is replaced");
    assert_eq!((&replaced["spec"]["name"], &replaced["metadata"]["generation"]), (&json!("other."), &json!(2)));
    assert_eq!(replaced["status"], written["status"]);
}

/// The names that a watch knows of.
fn known(watch: &Watch) -> Vec<String> {
    watch.with_store(|store| store.keys(&DNS_NAME_RESOLVER).map(|key| key.name.to_string()).collect())
}

#[test]
fn a_watch_catches_up_whatever_goes_wrong() {
    for seed in 0..20 {
        let mut simulation = Simulation::new(seed);
        let server = FakeServer::start(&mut simulation);
        let process = simulation.process();
        let watch = Watch::start_in(&server.environment(&process, simulation.clock()), [&DNS_NAME_RESOLVER]);
        let delay = Duration::from_millis(300);
        let faults = Faults { delay, repeated_events: 20, ended_watches: 20, lost_requests: 20, ..Faults::default() };
        server.set_faults(faults);
        server.put(&DNS_NAME_RESOLVER, name("a"));
        let minute = Duration::from_secs(60);
        assert!(simulation.run_until(minute, || known(&watch) == ["a"]), "seed {seed}: {:?}", watch.trouble());
        server.set_faults(Faults { is_away: true, ..faults });
        server.put(&DNS_NAME_RESOLVER, name("b"));
        simulation.run_for(minute);
        assert_eq!((known(&watch), watch.trouble().len()), (vec!["a".to_owned()], 1), "seed {seed}");
        let resource = DNS_NAME_RESOLVER.preferred().into();
        let gone = Request { resource, key: key("a"), verb: Verb::Delete };
        server.effect(&gone).expect("it is there");
        server.forget_history();
        server.set_faults(faults);
        assert!(simulation.run_until(minute, || known(&watch) == ["b"]), "seed {seed}: {:?}", watch.trouble());
    }
}

#[test]
fn a_silent_watch_is_given_up_and_begun_anew() {
    let mut simulation = Simulation::new(1);
    let server = FakeServer::start(&mut simulation);
    let process = simulation.process();
    let watch = Watch::start_in(&server.environment(&process, simulation.clock()), [&DNS_NAME_RESOLVER]);
    simulation.run_for(Duration::from_secs(600));
    server.put(&DNS_NAME_RESOLVER, name("a"));
    assert!(simulation.run_until(Duration::from_secs(1), || known(&watch) == ["a"]));
}
