//! Clients that do not behave: others still get answers.

use crate::http::Http2;
use crate::pki::{Encrypted, Stream, connection};
use crate::stub::{TEST_TIMEOUT, Upstream, answer, eventually, query, settings};
use namewall_dns::Settings;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Names that begin with a label of nine letters are never answered.
fn upstream() -> Upstream {
    Upstream::new(|query| match query[12] {
        9 => Vec::new(),
        _ => vec![answer(query, &[[192, 0, 2, 1]], 30)],
    })
}

fn patient(upstream: &Upstream) -> Settings {
    Settings { try_timeout: TEST_TIMEOUT, ..settings(&[upstream]) }
}

/// Waits until the other end has closed.
fn is_closed(mut stream: &TcpStream) -> bool {
    let mut buffer = [0; 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => {
                return !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
            }
        }
    }
}

#[test]
fn encrypted_connections_of_one_client_give_way_to_those_of_others() {
    let upstream = upstream();
    let settings = Settings { most_encrypted_connections: 40, idle_timeout: TEST_TIMEOUT * 10, ..patient(&upstream) };
    let encrypted = Encrypted::start(settings);
    // Handshakes are done: only an eviction ends these connections before the test does.
    let mut all: Vec<Stream> = (0..40).map(|_| encrypted.dot_from(1)).collect();
    let mut last = all.pop().unwrap();
    last.send(&query(2, "a.example"));
    assert!(last.receive().is_some());
    let counters = encrypted.server.encrypted_counters();
    assert_eq!((counters.connections.get(), counters.evicted.get()), (40, 0));
    // A handshake that never begins takes a place too.
    let _half_open = connection(encrypted.tls, 2);
    eventually(|| counters.evicted.get() == 1);
    for number in 3..13 {
        assert!(encrypted.serves(number), "client {number}");
    }
    all.iter().for_each(|one| one.0.sock.set_read_timeout(Some(Duration::from_millis(1))).unwrap());
    eventually(|| all.iter().any(|one| is_closed(&one.0.sock)));
    last.send(&query(3, "a.example"));
    assert!(last.receive().is_some(), "the connection that was used last is open");
}

#[test]
fn a_client_has_no_more_connections_than_its_share() {
    let upstream = upstream();
    let settings = Settings { most_connections_of_client: 20, idle_timeout: TEST_TIMEOUT * 10, ..patient(&upstream) };
    let encrypted = Encrypted::start(settings);
    let all: Vec<_> = (0..20).map(|_| encrypted.http1_from(1)).collect();
    let over: Vec<TcpStream> = (0..30).map(|_| connection(encrypted.https, 1)).collect();
    let counters = encrypted.server.encrypted_counters();
    eventually(|| counters.refused.get() == 30);
    assert_eq!(encrypted.server.encrypted_connections(), 20);
    assert!(encrypted.serves(2));
    drop((all, over));
    // Places are free again when connections end.
    eventually(|| encrypted.server.encrypted_connections() == 0);
    assert!(encrypted.serves(1));
}

#[test]
fn garbage_ends_its_own_connection_and_no_other() {
    let upstream = upstream();
    let encrypted = Encrypted::start(patient(&upstream));
    let mut good = encrypted.dot_from(2);
    for at in [encrypted.tls, encrypted.https] {
        let mut bad = connection(at, 1);
        bad.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(is_closed(&bad), "no handshake");
    }
    eventually(|| encrypted.server.encrypted_counters().handshakes_failed.get() == 2);
    // After the handshake.
    let mut bad = encrypted.http1_from(1).0;
    bad.0.write_all(&[0xff; 4096]).unwrap();
    assert!(bad.is_ended());
    let mut bad = encrypted.dot_from(1);
    bad.0.write_all(&[0x80; 40_000]).unwrap();
    drop(bad);
    // An answer is no question: it gets silence, and the connection goes on.
    let mut reply = query(1, "a.example");
    reply[2] |= 0x80;
    good.send(&reply);
    good.send(&query(2, "a.example"));
    assert_eq!(good.receive().unwrap()[..2], [0, 2]);
    assert!(encrypted.serves(3));
}

#[test]
fn connections_that_say_nothing_whole_are_ended() {
    let upstream = upstream();
    let encrypted = Encrypted::start(Settings { idle_timeout: Duration::from_secs(1), ..patient(&upstream) });
    let mut silent = encrypted.dot_from(1);
    let mut slow = encrypted.dot_from(1);
    slow.0.write_all(&[0]).unwrap();
    let mut head = encrypted.http1_from(1).0;
    head.0.write_all(b"POST /dns-query HTTP/1.1\r\nhost: x\r\n").unwrap();
    let mut body = encrypted.http1_from(1).0;
    let start =
        "POST /dns-query HTTP/1.1\r\nhost: x\r\ncontent-type: application/dns-message\r\ncontent-length: 100\r\n\r\n12";
    body.0.write_all(start.as_bytes()).unwrap();
    for stream in [&mut silent, &mut slow, &mut head, &mut body] {
        stream.0.flush().unwrap();
        assert!(stream.is_ended());
    }
    eventually(|| encrypted.server.encrypted_connections() == 0);
}

#[test]
fn bytes_that_trickle_in_do_not_keep_a_connection() {
    let upstream = upstream();
    let encrypted = Encrypted::start(Settings { idle_timeout: Duration::from_secs(1), ..patient(&upstream) });
    let mut slow = encrypted.dot_from(1);
    slow.0.write_all(&[0xff, 0xff]).unwrap();
    // The server closes before the message is whole.
    for _ in 0..60_000 {
        if slow.0.write_all(&[0]).and_then(|()| slow.0.flush()).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(slow.is_ended());
    eventually(|| encrypted.server.encrypted_connections() == 0);
    assert_eq!(upstream.asked(), 0);
}

/// A query whose EDNS padding (RFC 7830) makes it so long.
fn padded(length: usize) -> Vec<u8> {
    let mut message = query(0, "a.example");
    message[11] = 1;
    message.extend_from_slice(&[0, 0, 41, 0x10, 0, 0, 0, 0, 0]);
    let options = length - message.len() - 2;
    message.extend_from_slice(&(options as u16).to_be_bytes());
    message.extend_from_slice(&[0, 12]);
    message.extend_from_slice(&(options as u16 - 4).to_be_bytes());
    message.resize(length, 0);
    message
}

#[test]
fn a_body_that_is_too_long_is_refused() {
    let upstream = upstream();
    let encrypted = Encrypted::start(patient(&upstream));
    for (length, status) in [(4_096, 200), (4_097, 413)] {
        assert_eq!(encrypted.http1_from(1).post(&padded(length)).0, status, "{length}");
        assert_eq!(Http2::connect(&encrypted).post(&padded(length)).0, status, "{length}");
    }
    assert_eq!(Http2::connect(&encrypted).post(&padded(65_535)).0, 413);
    // It is refused before the rest has come: no more of it is held.
    let head = "POST /dns-query HTTP/1.1\r\ncontent-type: application/dns-message\r\ncontent-length: 65535";
    assert_eq!(encrypted.http1_from(1).send(head, &padded(4_097)).0, 413);
    let (status, ..) =
        encrypted.http1_from(1).send(&format!("GET /dns-query?dns={} HTTP/1.1", "A".repeat(40_000)), b"");
    assert!((400..500).contains(&status), "{status}");
    assert!(encrypted.serves(2));
}

#[test]
fn ten_thousand_streams_of_one_client_leave_room_for_others() {
    let upstream = upstream();
    let encrypted = Encrypted::start(patient(&upstream));
    let mut http2 = Http2::connect(&encrypted);
    // No more than the server allows are under way; the others wait at the client.
    let waiting: Vec<_> = (0..10_000)
        .map(|number| {
            let message = query(0, &format!("unanswerd.n{number}.example"));
            http2.runtime.spawn(http2.requests.send_request(Http2::request(&message)))
        })
        .collect();
    eventually(|| encrypted.server.counters().under_way == 100);
    assert!(encrypted.serves(2));
    // Counters are published after the answer has gone out.
    eventually(|| encrypted.server.counters().under_way == 100);
    waiting.iter().for_each(|one| one.abort());
}

#[test]
fn who_does_not_read_its_answers_is_cut_off() {
    // Answers of 40 kB.
    let upstream = Upstream::new(|query| vec![answer(query, &[[192, 0, 2, 1]; 2_500], 30)]);
    let encrypted = Encrypted::start(Settings { idle_timeout: Duration::from_secs(1), ..patient(&upstream) });
    let mut dot = encrypted.dot_from(1);
    let mut sent = 0;
    while sent < 100_000 && dot.try_to_send(&query(1, &format!("n{sent}.example"))).is_ok() {
        sent += 1;
    }
    assert!(sent < 100_000, "it is still read");
    eventually(|| encrypted.server.encrypted_connections() == 0);
    assert!(encrypted.serves(2));
}
