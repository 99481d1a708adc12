//! Engines behind rules: at once, later, failing, panicking; and what they say besides.

use crate::support::{Engines, Fake, Firewall};
use namewall_engines::{EngineError, Judged, Judgement};
use namewall_expression::{Fact, Facts, Outcome, Phase};
use std::sync::{Arc, Mutex};

const BOTH: &str = ".:53 {
    errors
    forward . 192.0.2.53
    themis first {
        endpoint 127.0.0.1:1
    }
    opa second {
        endpoint http://127.0.0.1:1/
    }
    firewall query {
        themis first
        opa second
        default refuse
    }
}";

fn both(first: &Fake, second: &Fake) -> Firewall {
    Firewall::with_engines(BOTH, &Engines::of([("first", first), ("second", second)]))
}

fn fails() -> Result<Judgement, EngineError> {
    Err(EngineError("nobody is there".to_owned()))
}

#[test]
fn an_engines_result_counts_like_a_rules() {
    let redirect = Outcome::Redirect("192.0.2.99:53".parse().unwrap());
    for (outcome, becomes) in [
        (Outcome::Allow, "route 0"),
        (Outcome::Refuse, "REFUSED"),
        (Outcome::Block, "NXDOMAIN; authority . 60 SOA 60"),
        (Outcome::Drop, "silence"),
        (redirect, "asked of 192.0.2.99:53"),
        // Nothing, or a line: the next is asked.
        (Outcome::Undefined, "asked of 192.0.2.100:53"),
        (Outcome::Log, "asked of 192.0.2.100:53"),
    ] {
        let second = Outcome::Redirect("192.0.2.100:53".parse().unwrap());
        for first in [Fake::now(outcome), Fake::later(move || Ok(outcome.into()))] {
            for second in [Fake::now(second), Fake::later(move || Ok(second.into()))] {
                assert_eq!(both(&first, &second).ask("A a.example"), becomes, "{outcome}");
            }
        }
    }
}

#[test]
fn an_engine_after_a_defined_result_is_not_asked() {
    let (first, second) = (Fake::now(Outcome::Allow), Fake::now(Outcome::Refuse));
    assert_eq!(both(&first, &second).ask("A a.example"), "route 0");
    assert_eq!((first.asked(), second.asked()), (1, 0));
    let undefined = Fake::now(Outcome::Undefined);
    assert_eq!(both(&undefined, &Fake::later(|| Ok(Outcome::Undefined.into()))).ask("A a.example"), "REFUSED");
}

#[test]
fn s9_4_an_engine_that_fails_is_servfail() {
    for first in [Fake::new(|_| Judged::Now(fails())), Fake::later(fails)] {
        let second = Fake::now(Outcome::Allow);
        let firewall = both(&first, &second);
        assert_eq!(firewall.ask("A a.example"), "SERVFAIL");
        assert_eq!(second.asked(), 0, "nobody else is asked in its place");
        assert_eq!(firewall.told.lines(1), ["[ERROR] 2 a.example. A: Corefile:11:9: nobody is there: themis first"]);
    }
}

#[test]
fn s9_4_an_engine_that_panics_is_servfail() {
    // Asked directly, the panic must not come out of the service: a server that is none any more answers nobody.
    for first in [Fake::new(|_| panic!("a bug in it")), Fake::later(|| panic!("a bug in it"))] {
        let firewall = both(&first, &Fake::now(Outcome::Allow));
        assert_eq!(firewall.ask("A a.example"), "SERVFAIL");
        let told = firewall.told.lines(1);
        assert!(told[0].contains("Corefile:11:9: it panicked") && told[0].ends_with("themis first"), "{told:?}");
    }
}

#[test]
fn an_engine_is_told_both_phases() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = seen.clone();
    let engine = Fake::new(move |facts: &dyn Facts| {
        let get = |name: &str| facts.get(&Fact::named(name)).to_string();
        let phase = if facts.phase() == Phase::Query { "query" } else { "response" };
        let line = ["name", "type", "client_ip", "rcode", "response_ip", "rsize"].map(get).join(" ");
        told.lock().unwrap().push(format!("{phase} {line}"));
        Judged::Now(Ok(Outcome::Allow.into()))
    });
    let firewall = Firewall::with_engines(
        ".:53 {
            forward . 192.0.2.53
            themis both {
                endpoint 127.0.0.1:1
            }
            firewall query {
                themis both
            }
            firewall response {
                themis both
            }
        }",
        &Engines::of([("both", &engine)]),
    );
    assert_eq!(firewall.exchange("AAAA WWW.example from fd00::1", &["@ 30 AAAA 2001:db8::1"]), "pass");
    assert_eq!(
        *seen.lock().unwrap(),
        ["query www.example. AAAA fd00::1   ", "response www.example. AAAA fd00::1 NOERROR 2001:db8::1 57"]
    );
}

#[test]
fn what_an_engine_says_besides_is_there_for_later_rules_and_for_the_answer() {
    let said =
        Judgement { outcome: Outcome::Undefined, trace: Vec::new(), labels: vec![("gid".to_owned(), "42".to_owned())] };
    for engine in [Fake::now(said.clone()), Fake::later(move || Ok(said.clone()))] {
        let firewall = Firewall::with_engines(
            ".:53 {
                forward . 192.0.2.53
                themis said {
                    endpoint 127.0.0.1:1
                }
                firewall query {
                    refuse gid == 42
                    themis said
                    allow gid == 42
                    block true
                }
                firewall response {
                    refuse gid == 42 and response_ip == '192.0.2.2'
                    default allow
                }
            }",
            &Engines::of([("said", &engine)]),
        );
        assert_eq!(firewall.exchange("A a.example", &["@ 30 A 192.0.2.1"]), "pass");
        assert_eq!(firewall.exchange("A a.example", &["@ 30 A 192.0.2.2"]), "REFUSED");
    }
}

#[test]
fn an_engine_cannot_redirect_an_answer() {
    let engine = Fake::now(Outcome::Redirect("192.0.2.99:53".parse().unwrap()));
    let firewall = Firewall::with_engines(
        ".:53 {
            forward . 192.0.2.53
            themis sends {
                endpoint 127.0.0.1:1
            }
            firewall response {
                themis sends
            }
        }",
        &Engines::of([("sends", &engine)]),
    );
    assert_eq!(firewall.exchange("A a.example", &["@ 30 A 192.0.2.1"]), "SERVFAIL");
}

#[test]
fn an_engine_is_not_asked_about_what_passes_it() {
    let engine = Fake::now(Outcome::Refuse);
    let firewall = Firewall::with_engines(
        ".:53 {
            forward . 192.0.2.53
            themis strict {
                endpoint 127.0.0.1:1
                passthrough example.com
            }
            firewall query {
                themis strict
            }
        }",
        &Engines::of([("strict", &engine)]),
    );
    assert_eq!(firewall.ask("A www.example.com"), "route 0");
    assert_eq!(engine.asked(), 0);
    assert_eq!(firewall.ask("A notexample.com"), "REFUSED");
}
