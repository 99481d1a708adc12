//! `health` and `ready`: where they are, and that nobody is in anybody's way there.

use crate::support::{Telling, eventually, get};
use namewall_dns_firewall::{Endpoints, lameduck};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const OK: &str = "HTTP/1.1 200 OK";
const NOT_FOUND: &str = "HTTP/1.1 404 Not Found";
const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable";

fn start(telling: &Telling, text: &str) -> Endpoints {
    let mut endpoints = Endpoints::new(telling.teller.clone());
    endpoints.set(&telling.build(text).unwrap().endpoints).unwrap();
    endpoints
}

/// Ports that were free a moment ago.
fn free<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn at(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn is_open(port: u16) -> bool {
    TcpStream::connect(at(port)).is_ok()
}

#[test]
fn it_is_healthy_as_long_as_it_lives_and_ready_while_it_serves() {
    let telling = Telling::new();
    let [health, ready] = free();
    let endpoints = start(&telling, &format!(".:53 {{\n health 127.0.0.1:{health}\n ready 127.0.0.1:{ready}\n}}"));
    assert_eq!(get(at(health), "/health"), (OK.to_owned(), "OK".to_owned()));
    assert_eq!(get(at(ready), "/ready").0, UNAVAILABLE);
    endpoints.set_ready(true);
    assert_eq!(get(at(ready), "/ready"), (OK.to_owned(), "OK".to_owned()));
    assert_eq!(
        (get(at(health), "/ready").0, get(at(ready), "/health").0),
        (NOT_FOUND.to_owned(), NOT_FOUND.to_owned())
    );
    endpoints.set_ready(false);
    assert_eq!((&*get(at(ready), "/ready").0, &*get(at(health), "/health").0), (UNAVAILABLE, OK));
    drop(endpoints);
    assert!(!is_open(health) && !is_open(ready));
}

#[test]
fn whoever_names_the_same_address_shares_it() {
    let telling = Telling::new();
    let [port] = free();
    let text = format!(
        "a.example:53 {{\n health localhost:{port}\n prometheus 127.0.0.1:{port}\n}}
         b.example:53 {{\n health 127.0.0.1:{port} {{ lameduck 3s }}\n ready localhost:{port}\n}}"
    );
    let endpoints = start(&telling, &text);
    assert_eq!(endpoints.addresses(), [at(port)]);
    for path in ["/health", "/metrics"] {
        assert_eq!(get(at(port), path).0, OK, "{path}");
    }
    assert_eq!(get(at(port), "/ready").0, UNAVAILABLE);
    assert_eq!(lameduck(&telling.build(&text).unwrap().endpoints), Duration::from_secs(3));
}

#[test]
fn a_port_that_is_taken_is_an_error_with_its_place() {
    let telling = Telling::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let built = telling.build(&format!("\n.:53 {{\n prometheus 127.0.0.1:{port}\n}}")).unwrap();
    let error = Endpoints::new(telling.teller.clone()).set(&built.endpoints).unwrap_err();
    let expected =
        format!("Corefile:2:1: error: prometheus: cannot listen at 127.0.0.1:{port}: Address already in use");
    assert!(error.to_string().starts_with(&expected), "{error}");
}

#[test]
fn addresses_come_and_go_and_where_one_cannot_be_had_all_stay() {
    let telling = Telling::new();
    let [first, second, third] = free();
    let corefile = |ports: &[u16]| {
        let lines: Vec<String> = ports
            .iter()
            .zip(["health", "ready", "prometheus"])
            .map(|(port, what)| format!("{what} 127.0.0.1:{port}\n"))
            .collect();
        telling.build(&format!(".:53 {{\n{}}}", lines.concat())).unwrap().endpoints
    };
    let mut endpoints = Endpoints::new(telling.teller.clone());
    endpoints.set(&corefile(&[first, second])).unwrap();
    endpoints.set(&corefile(&[first, third])).unwrap();
    eventually("one has gone", || (!is_open(second)).then_some(()));
    assert!(is_open(first) && is_open(third));
    let taken = TcpListener::bind(at(second)).unwrap();
    assert!(endpoints.set(&corefile(&[first, first, second])).is_err());
    assert_eq!(endpoints.addresses(), [at(first), at(third)]);
    assert_eq!((&*get(at(first), "/health").0, &*get(at(first), "/ready").0), (OK, NOT_FOUND));
    drop(taken);
    endpoints.set(&[]).unwrap();
    eventually("all have gone", || (!is_open(first) && !is_open(third)).then_some(()));
}

#[test]
fn who_is_slow_or_talks_nonsense_is_in_nobodys_way() {
    let telling = Telling::new();
    let [port] = free();
    let _endpoints = start(&telling, &format!(".:53 {{\n health 127.0.0.1:{port}\n}}"));
    // More than are served at a time, and all of them say nothing, or half of something.
    let slow: Vec<TcpStream> = (0..200)
        .map(|number| {
            let mut stream = TcpStream::connect(at(port)).unwrap();
            let words: &[u8] = if number % 2 == 0 { b"" } else { b"GET /health HTTP/1.1\r\nX: " };
            stream.write_all(words).unwrap();
            stream
        })
        .collect();
    assert_eq!(get(at(port), "/health").0, OK);
    drop(slow);
    for (words, status) in [
        (&b"POST /health HTTP/1.1\r\n\r\n"[..], "HTTP/1.1 405 "),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", "HTTP/1.1 400 "),
        (&[b'x'; 9_000], "HTTP/1.1 431 "),
    ] {
        let mut stream = TcpStream::connect(at(port)).unwrap();
        stream.write_all(words).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        assert!(reply.starts_with(status.as_bytes()), "{}", String::from_utf8_lossy(&reply));
    }
}

#[test]
fn who_asks_nothing_is_sent_away_after_a_while() {
    let telling = Telling::new();
    let [port] = free();
    let _endpoints = start(&telling, &format!(".:53 {{\n ready 127.0.0.1:{port}\n}}"));
    let mut stream = TcpStream::connect(at(port)).unwrap();
    stream.write_all(b"GET ").unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(stream.read(&mut [0; 16]).unwrap_or(0), 0);
}
