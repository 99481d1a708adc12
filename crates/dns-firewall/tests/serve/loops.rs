//! `loop`: questions that come back are noticed, and not forwarded any more.

use crate::stub::{Over, Upstream, eventually};
use crate::support::{Live, answer, upstream};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A server that forwards what it is asked to an address that is known later, and counts.
struct Mirror {
    upstream: Upstream,
    forwarded: Arc<AtomicUsize>,
    to: Arc<std::sync::OnceLock<SocketAddr>>,
}

fn mirror() -> Mirror {
    let (forwarded, to) = (Arc::new(AtomicUsize::new(0)), Arc::new(std::sync::OnceLock::<SocketAddr>::new()));
    let (counted, known) = (forwarded.clone(), to.clone());
    let upstream = Upstream::with(move |query, _: Over| {
        counted.fetch_add(1, Ordering::SeqCst);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut buffer = [0; 4_096];
        let mut ask = || {
            socket.send_to(query, *known.get()?).ok()?;
            socket.recv(&mut buffer).ok()
        };
        match ask() {
            Some(length) => vec![buffer[..length].to_vec()],
            None => vec![answer(query, &["SERVFAIL"])],
        }
    });
    Mirror { upstream, forwarded, to }
}

#[test]
fn a_question_that_comes_back_is_not_forwarded_again() {
    let mirror = mirror();
    let live = Live::start(&format!(
        ".:PORT0 {{
            loop
            forward . {}
            firewall query {{
                block type == 'HINFO'
                default allow
            }}
        }}",
        mirror.upstream.address
    ));
    mirror.to.set(SocketAddr::from(([127, 0, 0, 1], live.ports[0]))).unwrap();
    // The first question begins the search; once the loop is known, nothing goes to the other server.
    eventually(|| {
        live.ask("A a.example") == "SERVFAIL" && {
            let before = mirror.forwarded.load(Ordering::SeqCst);
            let said = live.ask("A b.example");
            said == "SERVFAIL" && mirror.forwarded.load(Ordering::SeqCst) == before
        }
    });
    let told = live.told.lines(1).join("\n");
    assert!(told.contains("[ERROR] loop: what is forwarded for . comes back"), "{told}");
}

#[test]
fn without_a_loop_every_question_is_forwarded_and_the_probe_once() {
    let upstream = upstream(&["@ 30 A 192.0.2.1"]);
    let live = Live::start(&format!(".:PORT0 {{\n loop\n forward . {}\n}}", upstream.address));
    for at in 0..20 {
        assert_eq!(live.ask(&format!("A n{at}.example")), format!("NOERROR; n{at}.example. 30 A 192.0.2.1"));
    }
}
