//! Answers that are over and given all the same, answers that are asked for again before they are over, and
//! failures. Whoever gets one of them, the rules are asked.

use crate::stub::{Upstream, eventually, on_schedule};
use crate::support::{Engines, Fake, Firewall, Live, RULES_BY_CLIENT, answer};
use namewall_expression::Outcome;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// An upstream that says what it is set to: a number of the last address, failure, or nothing.
#[derive(Clone)]
struct Says(Arc<AtomicUsize>);

const MUTE: usize = 1_000;
const FAILURE: usize = 1_001;
const NOBODY: usize = 1_002;

impl Says {
    /// The TTL is what a second is to others.
    fn start(first: usize) -> (Self, Upstream) {
        let says = Self(Arc::new(AtomicUsize::new(first)));
        let own = says.clone();
        let upstream = Upstream::new(move |query| match own.0.load(Ordering::SeqCst) {
            MUTE => Vec::new(),
            FAILURE => vec![answer(query, &["SERVFAIL"])],
            NOBODY => vec![answer(query, &["NXDOMAIN", "authority example 300 SOA 300"])],
            number => vec![answer(query, &[&*format!("@ 1 A 192.0.2.{number}")])],
        });
        (says, upstream)
    }

    fn set(&self, says: usize) {
        self.0.store(says, Ordering::SeqCst);
    }
}

fn serve(upstream: &Upstream, options: &str) -> Live {
    Live::start(&format!(
        ".:PORT0 {{\n cache {{\n success 100 3600 0\n denial 100 3600 0\n {options}\n }}\n forward . {} {{\n max_fails 0\n }}\n{RULES_BY_CLIENT}\n}}",
        upstream.address
    ))
}

fn is(number: usize, ttl: usize) -> String {
    format!("NOERROR; a.example. {ttl} A 192.0.2.{number}")
}

const OVER: Duration = Duration::from_millis(1_050);

#[test]
fn what_is_over_is_given_at_once_and_asked_for_behind_the_clients_back() {
    on_schedule(Duration::from_millis(1500), || {
        let (says, upstream) = Says::start(1);
        let live = serve(&upstream, "serve_stale");
        assert_eq!(live.ask("A a.example"), is(1, 1));
        sleep(OVER);
        says.set(7);
        assert_eq!(live.ask("A a.example"), is(1, 0), "over, and its TTL none");
        eventually(|| live.ask("A a.example") == is(7, 1));
        assert_eq!(upstream.asked(), 2);
    });
}

#[test]
fn what_is_over_is_for_whom_the_rules_let_have_it() {
    on_schedule(Duration::from_millis(3200), || {
        for options in ["serve_stale", "serve_stale 1h verify"] {
            let (says, upstream) = Says::start(1);
            let live = serve(&upstream, options);
            assert_eq!(live.ask("A a.example"), is(1, 1));
            sleep(OVER);
            says.set(FAILURE);
            assert_eq!(live.ask("A a.example from 127.0.0.2"), "REFUSED", "{options}");
            assert_eq!(live.ask("A a.example from 127.0.0.3"), "NXDOMAIN; authority . 60 SOA 60", "{options}");
            assert_eq!(live.ask("A a.example from 127.0.0.4"), is(1, 0), "{options}");
            // What is new is judged as what was old.
            says.set(1);
            eventually(|| {
                sleep(Duration::from_millis(100));
                live.ask("A a.example") == is(1, 1) || options == "serve_stale"
            });
            assert_eq!(live.ask("A a.example from 127.0.0.3"), "NXDOMAIN; authority . 60 SOA 60", "{options}");
        }
    });
}

#[test]
fn an_engine_that_has_to_be_waited_for_is_asked_of_what_is_over_too() {
    on_schedule(Duration::from_millis(2700), || {
        let (says, upstream) = Says::start(1);
        let engine = Fake::later(|| Ok(Outcome::Refuse.into()));
        for options in ["serve_stale", "serve_stale 1h verify"] {
            says.set(1);
            // The engine is asked of this client's answers alone.
            let live = Live::with_engines(
                &format!(
                    ".:PORT0 {{
                    cache {{
                        success 100 3600 0
                        {options}
                    }}
                    forward . {}
                    opa engine {{
                        endpoint http://192.0.2.53
                    }}
                    firewall response {{
                        allow client_ip != '127.0.0.2'
                        opa engine
                    }}
                }}",
                    upstream.address
                ),
                &Engines::of([("engine", &engine)]),
            );
            assert_eq!(live.ask("A a.example"), is(1, 1));
            sleep(OVER);
            says.set(FAILURE);
            let before = engine.asked();
            assert_eq!(live.ask("A a.example from 127.0.0.2"), "REFUSED", "{options}");
            assert!(engine.asked() > before);
            assert_eq!(live.ask("A a.example"), is(1, 0), "{options}");
        }
    });
}

#[test]
fn the_upstream_can_be_asked_first() {
    on_schedule(Duration::from_millis(4000), || {
        let (says, upstream) = Says::start(1);
        let live = serve(&upstream, "serve_stale 1h verify");
        assert_eq!(live.ask("A a.example"), is(1, 1));
        sleep(OVER);
        for failure in [FAILURE, MUTE] {
            says.set(failure);
            let before = upstream.asked();
            assert_eq!(live.ask("A a.example"), is(1, 0), "{failure}");
            assert!(upstream.asked() > before);
        }
        says.set(NOBODY);
        assert_eq!(live.ask("A a.example"), "NXDOMAIN; authority example. 300 SOA 300", "that is an answer");
        says.set(FAILURE);
        assert_eq!(live.ask("A a.example"), "NXDOMAIN; authority example. 300 SOA 300");
    });
}

#[test]
fn nothing_is_given_for_longer_than_is_set() {
    on_schedule(Duration::from_millis(4500), || {
        let (says, upstream) = Says::start(1);
        let live = serve(&upstream, "serve_stale 500ms");
        assert_eq!(live.ask("A a.example"), is(1, 1));
        says.set(MUTE);
        sleep(OVER);
        assert_eq!(live.ask("A a.example"), is(1, 0));
        sleep(Duration::from_millis(500));
        assert_eq!(live.ask("A a.example"), "SERVFAIL");
        // Without it, nothing at all.
        let live = serve(&upstream, "");
        says.set(1);
        assert_eq!(live.ask("A a.example"), is(1, 1));
        says.set(MUTE);
        sleep(OVER);
        assert_eq!(live.ask("A a.example"), "SERVFAIL");
    });
}

/// After so long an answer for a second is soon over.
const SOON: Duration = Duration::from_millis(600);

#[test]
fn what_is_asked_often_is_asked_for_again_before_it_is_over() {
    on_schedule(Duration::from_millis(900), || {
        let (says, upstream) = Says::start(1);
        let live = serve(&upstream, "prefetch 3 1m 10%");
        assert_eq!(live.ask("A a.example"), is(1, 1));
        says.set(7);
        assert_eq!(live.ask("A a.example"), is(1, 1));
        sleep(SOON);
        assert_eq!(live.ask("A a.example"), is(1, 1));
        assert_eq!(live.ask("A a.example from 127.0.0.2"), "REFUSED", "who gets nothing does not count");
        sleep(Duration::from_millis(50));
        assert_eq!(upstream.asked(), 1, "not often enough yet");
        assert_eq!(live.ask("A a.example"), is(1, 1));
        eventually(|| live.ask("A a.example") == is(7, 1));
        assert_eq!(upstream.asked(), 2, "one asks for all");
        for _ in 0..5 {
            assert_eq!(live.ask("A a.example"), is(7, 1));
        }
        assert_eq!(upstream.asked(), 2, "there is time until the next");
    });
}

#[test]
fn what_was_asked_for_again_is_judged_for_each_client() {
    on_schedule(Duration::from_millis(900), || {
        let (says, upstream) = Says::start(7);
        let live = serve(&upstream, "prefetch 1");
        assert_eq!(live.ask("A a.example from 127.0.0.3"), is(7, 1));
        // Now it is an address that this client may not have.
        says.set(1);
        sleep(SOON);
        assert_eq!(live.ask("A a.example from 127.0.0.3"), is(7, 1));
        eventually(|| live.ask("A a.example") == is(1, 1));
        assert_eq!(live.ask("A a.example from 127.0.0.3"), "NXDOMAIN; authority . 60 SOA 60");
        assert_eq!(live.ask("A a.example from 127.0.0.2"), "REFUSED");
        assert_eq!(upstream.asked(), 2);
    });
}

#[test]
fn what_is_asked_with_pauses_is_not_asked_often() {
    on_schedule(Duration::from_millis(500), || {
        let (_, upstream) = Says::start(1);
        let live = serve(&upstream, "prefetch 2 50ms 90%");
        for _ in 0..3 {
            assert_eq!(live.ask("A a.example").matches("192.0.2.1").count(), 1);
            sleep(Duration::from_millis(80));
        }
        assert_eq!(upstream.asked(), 1);
    });
}

#[test]
fn what_is_asked_for_again_goes_to_the_next_forward_as_before() {
    on_schedule(Duration::from_millis(1500), || {
        let (_, first) = Says::start(NOBODY);
        let (says, second) = Says::start(1);
        let live = Live::start(&format!(
            ".:PORT0 {{
            cache {{
                success 100 3600 0
                serve_stale
            }}
            forward . {} {{
                next NXDOMAIN
            }}
            forward . {}
        }}",
            first.address, second.address
        ));
        assert_eq!(live.ask("A a.example"), is(1, 1));
        sleep(OVER);
        says.set(7);
        assert_eq!(live.ask("A a.example"), is(1, 0));
        eventually(|| live.ask("A a.example") == is(7, 1));
        assert_eq!((first.asked(), second.asked()), (2, 2));
    });
}

#[test]
fn failures_are_kept_for_as_long_as_is_set() {
    on_schedule(Duration::from_millis(1500), || {
        let (says, upstream) = Says::start(FAILURE);
        let live = serve(&upstream, "servfail 1s");
        assert_eq!(live.ask("A a.example"), "SERVFAIL");
        says.set(1);
        assert_eq!(live.ask("A a.example"), "SERVFAIL", "it is kept");
        assert_eq!(
            live.ask("A a.example from 127.0.0.2"),
            "REFUSED",
            "from whom nothing is kept back but the rules' word"
        );
        assert_eq!(upstream.asked(), 1);
        sleep(OVER);
        assert_eq!(live.ask("A a.example"), is(1, 1));
        // Nothing is kept of one that does not answer at all, nor if none is to be kept.
        says.set(FAILURE);
        let live = serve(&upstream, "servfail 0s");
        assert_eq!(live.ask("A a.example"), "SERVFAIL");
        says.set(1);
        assert_eq!(live.ask("A a.example"), is(1, 1));
    });
}

#[test]
fn no_more_answers_are_kept_than_is_set() {
    let firewall = Firewall::new(".:53 {\n cache {\n success 2\n denial 1\n }\n forward . 192.0.2.53\n}");
    for name in ["a", "b", "c", "d"] {
        assert_eq!(firewall.exchange(&format!("A {name}.example"), &["@ 300 A 192.0.2.1"]), "pass");
        assert_eq!(firewall.exchange(&format!("AAAA {name}.example"), &["authority example 300 SOA 300"]), "pass");
    }
    let kept = |kind: &str| {
        let is_kept = |name: &&str| firewall.ask(&format!("{kind} {name}.example")).starts_with("answer");
        ["a", "b", "c", "d"].iter().filter(|name| is_kept(name)).count()
    };
    assert_eq!((kept("A"), kept("AAAA")), (2, 1));
}
