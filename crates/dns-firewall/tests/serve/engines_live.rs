//! Engines behind a server with real sockets: nobody waits for somebody else's engine.

use crate::stub::{TEST_TIMEOUT, Upstream, eventually};
use crate::support::{Ask, Engines, Fake, Live, shown, upstream};
use namewall_engines::{EngineError, Judged};
use namewall_expression::{Fact, Facts, Outcome};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// A gate that engines wait at.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// An engine that allows everything once the gate is open.
    fn engine(&self) -> Fake {
        let gate = self.clone();
        Fake::later(move || {
            gate.wait();
            Ok(Outcome::Allow.into())
        })
    }

    fn wait(&self) {
        let is_open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_timeout_while(is_open, TEST_TIMEOUT, |is_open| !*is_open).unwrap());
    }
}

/// Names under `slow` are asked of an engine at either point.
fn served(upstream: &Upstream, engine: &Fake) -> Live {
    let text = format!(
        ".:PORT0 {{
            errors
            forward . {}
            themis fake {{
                endpoint 127.0.0.1:1
            }}
            firewall slow query {{
                themis fake
                default allow
            }}
            firewall late response {{
                themis fake
                default allow
            }}
        }}",
        upstream.address
    );
    Live::with_engines(&text, &Engines::of([("fake", engine)]))
}

#[test]
fn two_hundred_questions_wait_for_an_engine_while_others_go_on() {
    let (gate, upstream) = (Gate::default(), upstream(&["@ 30 A 192.0.2.1"]));
    let engine = gate.engine();
    let live = served(&upstream, &engine);
    let socket = live.socket(&Ask::from("A a.slow"), 0);
    for id in 0..200 {
        let zone = if id % 2 == 0 { "slow" } else { "late" };
        socket.send(&Ask::from(&*format!("A n{id}.{zone} id {id}")).query).unwrap();
    }
    // As many at once as there are threads for them, which are fewer than the questions.
    eventually(|| engine.asked() >= 100);
    // Nobody waits behind them, neither by UDP nor by TCP.
    for at in 0..50 {
        let over = if at % 2 == 0 { "" } else { "tcp" };
        assert_eq!(live.ask(&format!("A n{at}.quick {over}")), format!("NOERROR; n{at}.quick. 30 A 192.0.2.1"));
    }
    gate.open();
    let mut answered = [false; 200];
    for _ in 0..200 {
        let reply = super::support::receive(&socket).expect("each gets its answer");
        assert!(shown(&reply).starts_with("NOERROR; n"), "{}", shown(&reply));
        let id = usize::from(u16::from_be_bytes([reply[0], reply[1]]));
        assert!(!std::mem::replace(&mut answered[id], true), "and only one");
    }
}

#[test]
fn an_engine_that_panics_leaves_a_server_that_goes_on() {
    let upstream = upstream(&["@ 30 A 192.0.2.1"]);
    let engine = Fake::new(|facts: &dyn Facts| {
        let name = facts.get(&Fact::Name).to_string();
        if name.starts_with("now") {
            panic!("a bug in it");
        }
        Judged::Later(Box::new(|| panic!("a bug in it")))
    });
    let live = served(&upstream, &engine);
    for round in 0..3 {
        for over in ["", "tcp"] {
            for name in ["now.slow", "later.slow", "now.late", "later.late"] {
                assert_eq!(live.ask(&format!("A {name} {over}")), "SERVFAIL", "{name} {over} {round}");
            }
            assert_eq!(live.ask(&format!("A a.quick {over}")), "NOERROR; a.quick. 30 A 192.0.2.1");
        }
    }
    // Nothing is left behind; an answer is there a moment before it is counted.
    eventually(|| live.server.counters().under_way == 0);
}

#[test]
fn threads_survive_engines_that_panic() {
    // More than there are threads: if each took one along, nobody would be left.
    let upstream = upstream(&["@ 30 A 192.0.2.1"]);
    let engine = Fake::later(|| panic!("a bug in it"));
    let live = served(&upstream, &engine);
    let socket = live.socket(&Ask::from("A a.slow"), 0);
    for id in 0..300 {
        socket.send(&Ask::from(&*format!("A n{id}.slow id {id}")).query).unwrap();
        let reply = super::support::receive(&socket).expect("there is a reply");
        assert_eq!(shown(&reply), "SERVFAIL", "{id}");
    }
}

#[test]
fn an_engine_that_is_out_of_time_is_servfail() {
    let upstream = upstream(&["@ 30 A 192.0.2.1"]);
    let engine = Fake::later(|| {
        std::thread::sleep(Duration::from_millis(200));
        Err(EngineError("it did not answer within 200ms".to_owned()))
    });
    let live = served(&upstream, &engine);
    let began = Instant::now();
    assert_eq!(live.ask("A a.slow"), "SERVFAIL");
    assert_eq!(live.ask("A a.late"), "SERVFAIL");
    assert!(began.elapsed() >= Duration::from_millis(400));
    let told = live.told.lines(2);
    assert!(told.iter().all(|line| line.contains("it did not answer within 200ms: themis fake")), "{told:?}");
}

#[test]
fn a_client_that_is_gone_is_not_waited_for() {
    let (gate, upstream) = (Gate::default(), upstream(&["@ 30 A 192.0.2.1"]));
    let engine = gate.engine();
    let live = served(&upstream, &engine);
    let mut stream = std::net::TcpStream::connect(live.server.addresses()[0]).unwrap();
    crate::stub::write_message(&mut stream, &Ask::from("A a.slow").query).unwrap();
    crate::stub::eventually(|| engine.asked() > 0);
    drop(stream);
    gate.open();
    crate::stub::eventually(|| live.server.counters().under_way == 0);
    assert_eq!(live.ask("A b.slow"), "NOERROR; b.slow. 30 A 192.0.2.1");
}

/// A block whose engine hangs, and one whose engine answers at once.
fn beside_a_hanging_engine(upstream: &Upstream, engines: &Engines) -> Live {
    let block = |port: &str, engine: &str, decision: &str| {
        format!(
            ".:{port} {{
                forward . {}
                themis {engine} {{
                    endpoint 127.0.0.1:1
                    {decision}
                }}
                firewall query {{
                    themis {engine}
                    default block
                }}
            }}\n",
            upstream.address
        )
    };
    let text = block("PORT0", "hanging", "default_decision refuse") + &block("PORT1", "healthy", "");
    Live::with_engines(&text, engines)
}

#[test]
fn an_engine_that_hangs_holds_up_no_other_engine() {
    let (gate, upstream) = (Gate::default(), upstream(&["@ 30 A 192.0.2.1"]));
    let hanging = gate.engine();
    let healthy = Fake::later(|| Ok(Outcome::Allow.into()));
    let live = beside_a_hanging_engine(&upstream, &Engines::of([("hanging", &hanging), ("healthy", &healthy)]));
    // More questions than the hanging engine has threads and places in its queue.
    let socket = live.socket(&Ask::from("A a.example"), 0);
    for id in 0..1_400 {
        socket.send(&Ask::from(&*format!("A n{id}.example id {id}")).query).unwrap();
        // Not faster than they are taken in, or the socket's buffer is what is tested.
        if id % 50 == 49 {
            eventually(|| hanging.asked() > id);
        }
    }
    // Those for which there is no place get its default decision, and not SERVFAIL.
    let refused = super::support::receive(&socket).expect("somebody found no place");
    assert!(shown(&refused).starts_with("REFUSED"), "{}", shown(&refused));
    let mut took: Vec<Duration> = Vec::new();
    for at in 0..200 {
        let begun = Instant::now();
        assert_eq!(live.ask_at(&format!("A n{at}.example"), 1), format!("NOERROR; n{at}.example. 30 A 192.0.2.1"));
        took.push(begun.elapsed());
    }
    took.sort();
    // A question that waited for the engine that hangs would wait for a minute. `make bench` has the figure.
    assert!(took[197] < Duration::from_secs(5), "{:?}", took[197]);
    gate.open();
}

#[test]
fn two_engines_of_one_list_wait_each_on_its_own_threads() {
    let (gate, upstream) = (Gate::default(), upstream(&["@ 30 A 192.0.2.1"]));
    let hanging = gate.engine();
    let first = Fake::later(|| Ok(Outcome::Undefined.into()));
    let text = format!(
        ".:PORT0 {{
            forward . {0}
            themis first {{
                endpoint 127.0.0.1:1
            }}
            themis hanging {{
                endpoint 127.0.0.1:1
            }}
            firewall slow query {{
                themis first
                themis hanging
                default allow
            }}
            firewall quick query {{
                themis first
                default allow
            }}
        }}",
        upstream.address
    );
    let live = Live::with_engines(&text, &Engines::of([("first", &first), ("hanging", &hanging)]));
    let socket = live.socket(&Ask::from("A a.slow"), 0);
    for id in 0..300 {
        socket.send(&Ask::from(&*format!("A n{id}.slow id {id}")).query).unwrap();
        if id % 50 == 49 {
            eventually(|| hanging.asked() > id);
        }
    }
    // The threads of the first engine are free: all questions wait on those of the second, for a minute.
    let begun = Instant::now();
    for at in 0..50 {
        assert_eq!(live.ask(&format!("A n{at}.quick")), format!("NOERROR; n{at}.quick. 30 A 192.0.2.1"));
    }
    assert!(begun.elapsed() < TEST_TIMEOUT / 2, "nobody waits for the engine that hangs");
    assert_eq!(first.asked(), 350, "an engine that has answered is not asked again when the walk goes on");
    gate.open();
}
