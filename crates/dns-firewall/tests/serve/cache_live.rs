//! The cache behind a server with real sockets.

use crate::stub::{Upstream, eventually, read_message, write_message};
use crate::support::{Ask, Live, answer, upstream};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

#[test]
fn an_upstream_is_asked_once() {
    let upstream = upstream(&["@ 300 A 192.0.2.1"]);
    let live = Live::start(&format!(".:PORT0 {{\n cache\n forward . {}\n}}", upstream.address));
    for question in
        ["A a.example", "A A.Example id 9", "A a.example tcp", "A a.example from ::1", "A a.example from ::1 tcp"]
    {
        assert_eq!(live.ask(question), "NOERROR; a.example. 300 A 192.0.2.1", "{question}");
    }
    assert_eq!(upstream.asked(), 1);
}

#[test]
fn what_was_long_is_cut_for_clients_whose_datagrams_are_short() {
    let lines: Vec<String> = (0..60).map(|at| format!("@ 300 A 192.0.2.{at}")).collect();
    let upstream =
        Upstream::new(move |query| vec![answer(query, &lines.iter().map(String::as_str).collect::<Vec<_>>())]);
    let live = Live::start(&format!(".:PORT0 {{\n cache\n forward . {}\n}}", upstream.address));
    assert_eq!(live.ask("A a.example tcp").matches(" A ").count(), 60);
    assert_eq!(live.ask("A b.example size 4096").matches(" A ").count(), 60);
    assert_eq!(upstream.asked(), 2);
    assert_eq!(live.ask("A a.example"), "NOERROR tc");
    assert_eq!(live.ask("A b.example size 512"), "NOERROR tc");
    assert_eq!(live.ask("A b.example size 4096").matches(" A ").count(), 60);
    assert_eq!(upstream.asked(), 2, "all from the cache");
}

#[test]
fn who_may_not_ask_gets_nothing() {
    let upstream = upstream(&["@ 300 A 192.0.2.1"]);
    let live = Live::start(&format!(
        ".:PORT0 {{
            cache
            forward . {}
            firewall query {{
                refuse client_ip == '127.0.0.2'
                default allow
            }}
            firewall response {{
                block client_ip == '127.0.0.3' and response_ip == '192.0.2.1'
                default allow
            }}
        }}",
        upstream.address
    ));
    assert_eq!(live.ask("A a.example"), "NOERROR; a.example. 300 A 192.0.2.1");
    assert_eq!(live.ask("A a.example from 127.0.0.2"), "REFUSED");
    assert_eq!(live.ask("A a.example from 127.0.0.3"), "NXDOMAIN; authority . 60 SOA 60");
    assert_eq!(live.ask("A a.example from 127.0.0.4"), "NOERROR; a.example. 300 A 192.0.2.1");
    assert_eq!(upstream.asked(), 1);
}

#[test]
fn the_answer_for_a_client_that_is_gone_is_kept_where_it_asked() {
    // Two views of the same names. A client of the second leaves before its answer comes; it must not be
    // told to clients of the first.
    let slow: Arc<Mutex<()>> = Arc::default();
    let gate = slow.clone();
    let inner = Upstream::new(move |query| {
        if query[13].eq_ignore_ascii_case(&b's') {
            drop(gate.lock().unwrap());
        }
        vec![answer(query, &["@ 300 A 10.0.0.1"])]
    });
    let outer = upstream(&["@ 300 A 192.0.2.1"]);
    let live = Live::start(&format!(
        ".:PORT0 {{\n cache\n forward . {}\n}}\n.:PORT1 {{\n cache\n forward . {}\n}}",
        outer.address, inner.address
    ));
    let held = slow.lock().unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", live.ports[1])).unwrap();
    write_message(&mut stream, &Ask::from("A first.example").query).unwrap();
    // Its answer is there and not read, so that the connection is reset, not closed.
    stream.peek(&mut [0; 1]).unwrap();
    write_message(&mut stream, &Ask::from("A secret.example").query).unwrap();
    eventually(|| inner.asked() == 2);
    drop(stream);
    // The reset is there when the next question is answered, which goes by another connection.
    std::thread::sleep(std::time::Duration::from_millis(50));
    drop(held);
    eventually(|| live.server.counters().under_way == 0);
    assert_eq!(live.ask_at("A secret.example tcp", 0), "NOERROR; secret.example. 300 A 192.0.2.1");
    let mut stream = TcpStream::connect(("127.0.0.1", live.ports[1])).unwrap();
    write_message(&mut stream, &Ask::from("A secret.example").query).unwrap();
    assert!(read_message(&mut stream).is_some());
    assert_eq!(inner.asked(), 2, "it is kept where it was asked");
}
