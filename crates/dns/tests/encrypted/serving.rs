//! Clients that behave.

use crate::http::{Http2, base64url};
use crate::pki::{Authority, Encrypted, handshake, listen};
use crate::stub::{Client, Recorder, TEST_TIMEOUT, Upstream, answer, eventually, id, on_schedule, query, settings};
use namewall_dns::Settings;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn giving() -> Upstream {
    Upstream::giving([192, 0, 2, 1])
}

#[test]
fn questions_over_tls_are_pipelined_and_answered_in_any_order() {
    // The first question is answered after the last one.
    let held: Mutex<Option<Vec<u8>>> = Mutex::default();
    let upstream = Upstream::new(move |query| {
        let mut held = held.lock().unwrap();
        match query[12] {
            5 => {
                *held = Some(query.to_vec());
                Vec::new()
            }
            4 => [Some(query.to_vec()), held.take()]
                .into_iter()
                .flatten()
                .map(|one| answer(&one, &[[192, 0, 2, 2]], 30))
                .collect(),
            _ => vec![answer(query, &[[192, 0, 2, 1]], 30)],
        }
    });
    let encrypted = Encrypted::start(settings(&[&upstream]));
    let mut dot = encrypted.dot();
    dot.send(&query(1, "first.example"));
    for number in 2..60 {
        dot.send(&query(number, &format!("n{number}.example")));
    }
    dot.send(&query(60, "last.example"));
    let mut ids: Vec<u16> = (0..60).map(|_| id(&dot.receive().unwrap())).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=60).collect::<Vec<u16>>());
}

#[test]
fn one_server_answers_over_udp_tls_and_https() {
    let upstream = giving();
    for loops in [1, 3] {
        let encrypted = Encrypted::start(Settings { loops, ..settings(&[&upstream]) });
        let asked = query(9, "www.example");
        let over_udp = Client::of(&encrypted.server).ask(&asked).unwrap();
        let mut dot = encrypted.dot();
        dot.send(&asked);
        assert_eq!(dot.receive().unwrap(), over_udp);
        let mut http1 = encrypted.http1_from(1);
        let (status, headers, body) = http1.get(&asked);
        assert_eq!((status, body), (200, over_udp.clone()));
        assert_eq!(headers["content-type"], "application/dns-message");
        assert_eq!(headers["cache-control"], "max-age=30");
        assert_eq!(http1.post(&asked).2, over_udp, "by the same connection");
        let mut http2 = Http2::connect(&encrypted);
        for _ in 0..3 {
            assert_eq!(http2.post(&asked), (hyper::StatusCode::OK, over_udp.clone()));
        }
    }
}

#[test]
fn requests_without_a_dns_query_are_refused_with_a_status() {
    let upstream = giving();
    let encrypted = Encrypted::start(settings(&[&upstream]));
    let whole = base64url(&query(0, "a.example"));
    let post = "POST /dns-query HTTP/1.1\r\ncontent-length: 4\r\ncontent-type: ";
    for (head, body, status) in [
        (format!("GET /?dns={whole} HTTP/1.1"), &b""[..], 404),
        (format!("GET /dns-query/?dns={whole} HTTP/1.1"), b"", 404),
        ("GET /dns-query HTTP/1.1".to_owned(), b"", 400),
        (format!("GET /dns-query?dns={whole}= HTTP/1.1"), b"", 400),
        ("GET /dns-query?dns=AAAA HTTP/1.1".to_owned(), b"", 400),
        (format!("PUT /dns-query?dns={whole} HTTP/1.1"), b"", 405),
        (format!("{post}text/plain"), b"text", 415),
        (format!("{post}application/dns-message"), b"text", 400),
        (format!("GET /dns-query?ct=x&dns={whole} HTTP/1.1"), b"", 200),
    ] {
        let mut http = encrypted.http1_from(1);
        assert_eq!(http.send(&head, body).0, status, "{head}");
    }
    assert_eq!(encrypted.server.encrypted_counters().bad_requests.get(), 8);
    assert_eq!(upstream.asked(), 1);
}

/// The hold is that of UDP: the address is open before the client has it.
#[test]
fn s6_6_what_an_answer_over_tls_or_https_says_is_open_before_it_goes_out() {
    let upstream = giving();
    let learner = Arc::new(Recorder::default());
    let encrypted = Encrypted::learning(settings(&[&upstream]), learner.clone());
    let mut dot = encrypted.dot();
    dot.send(&query(1, "a.example"));
    dot.receive().unwrap();
    assert_eq!(learner.addresses().len(), 1);
    assert_eq!(encrypted.http1_from(1).get(&query(0, "b.example")).0, 200);
    assert_eq!(learner.addresses().len(), 2);
    eventually(|| encrypted.server.counters().held == 2);
}

#[test]
fn a_new_certificate_is_shown_to_who_connects_next_and_connections_go_on() {
    let upstream = giving();
    let mut encrypted = Encrypted::start(settings(&[&upstream]));
    let mut before = encrypted.dot();
    let other = Authority::new();
    let next = listen(&other, encrypted.tls, encrypted.https);
    let none = encrypted.server.prepare_encrypted(Vec::new()).unwrap();
    encrypted.server.serve_encrypted(next, none);
    before.send(&query(1, "a.example"));
    assert!(before.receive().is_some(), "a connection goes on with its certificate");
    let tcp = crate::pki::connection(encrypted.tls, 1);
    assert!(handshake(tcp, encrypted.authority.client(&["dot"])).is_err(), "the certificate is another one");
    encrypted.authority = other;
    assert!(encrypted.serves(1));
}

#[test]
fn an_address_that_is_left_accepts_nobody_and_another_is_taken_up() {
    let upstream = giving();
    let mut encrypted = Encrypted::start(settings(&[&upstream]));
    let mut before = encrypted.dot();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let (left, new) = (encrypted.tls, socket.local_addr().unwrap());
    let next = listen(&encrypted.authority, new, encrypted.https);
    let sockets = encrypted.server.prepare_encrypted(vec![socket]).unwrap();
    encrypted.server.serve_encrypted(next, sockets);
    encrypted.tls = new;
    assert!(encrypted.serves(1));
    before.send(&query(1, "a.example"));
    assert!(before.receive().is_some(), "who came before is served");
    eventually(|| std::net::TcpStream::connect(left).is_err());
}

#[test]
fn a_socket_that_cannot_be_served_changes_nothing() {
    let upstream = giving();
    let encrypted = Encrypted::start(settings(&[&upstream]));
    let no_socket = TcpListener::from(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
    // No other test listens at this address: its port stays free.
    let sockets = vec![TcpListener::bind("127.0.77.1:0").unwrap(), no_socket];
    let new = sockets[0].local_addr().unwrap();
    assert!(encrypted.server.prepare_encrypted(sockets).is_err());
    assert!(std::net::TcpStream::connect(new).is_err(), "nobody listens there");
    assert!(encrypted.serves(1));
}

#[test]
fn answers_that_are_under_way_go_out_when_a_server_retires() {
    // What is under way has a second.
    on_schedule(Duration::from_millis(800), || {
        let upstream = Upstream::new(|query| {
            std::thread::sleep(Duration::from_millis(100));
            vec![answer(query, &[[192, 0, 2, 1]], 30)]
        });
        let encrypted = Encrypted::start(Settings { try_timeout: TEST_TIMEOUT, ..settings(&[&upstream]) });
        let mut dot = encrypted.dot();
        dot.send(&query(1, "a.example"));
        eventually(|| upstream.asked() == 1);
        encrypted.server.retire(Duration::from_secs(1));
        assert!(dot.receive().is_some());
        assert!(dot.is_ended());
    });
}
