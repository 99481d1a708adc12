//! RFC 1035 §4.2.2: over TCP every message has its length before it, in two bytes.

use crate::stub::{
    Upstream, answer, connect, eventually, id, plain, query, read_message, serve, settings, write_message,
};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::thread::sleep;
use std::time::Duration;

#[test]
fn a_message_of_no_bytes_is_passed_over() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = serve(settings(&[&upstream]), plain());
    let mut stream = connect(&server);
    stream.write_all(&[0, 0, 0, 0, 0, 1, 9]).unwrap();
    write_message(&mut stream, &query(7, "www.example")).unwrap();
    assert_eq!(id(&read_message(&mut stream).unwrap()), 7);
    eventually(|| server.counters().malformed == 3);
}

#[test]
fn a_length_without_its_message_is_no_query() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = serve(settings(&[&upstream]), plain());
    let mut stream = connect(&server);
    stream.write_all(&[0, 29, 0, 7, 1]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
    assert_eq!(upstream.asked(), 0);
}

/// A query may be as long as its length can say.
#[test]
fn a_query_of_64_kib_is_forwarded_whole() {
    let upstream = Upstream::new(|asked| {
        assert_eq!(asked.len(), 65_535);
        vec![answer(&asked[..asked.len()], &[], 30)]
    });
    let server = serve(settings(&[&upstream]), plain());
    let mut asked = query(7, "www.example");
    // A padding option fills it up (RFC 7830).
    let padding = 65_535 - asked.len() - 11 - 4;
    asked[11] = 1;
    asked.extend_from_slice(b"\0\0\x29\x04\xd0\0\0\0\0");
    asked.extend_from_slice(&(padding as u16 + 4).to_be_bytes());
    asked.extend_from_slice(&[0, 12]);
    asked.extend_from_slice(&(padding as u16).to_be_bytes());
    asked.resize(65_535, 0);
    let mut stream = connect(&server);
    write_message(&mut stream, &asked).unwrap();
    assert_eq!(read_message(&mut stream).unwrap(), answer(&asked, &[], 30));
}

#[test]
fn an_upstream_may_send_a_message_byte_by_byte() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        while let Some(asked) = read_message(&mut stream) {
            let answer = answer(&asked, &[[192, 0, 2, 1]], 30);
            let length = (answer.len() as u16).to_be_bytes();
            for byte in length.into_iter().chain(answer) {
                stream.write_all(&[byte]).unwrap();
                sleep(Duration::from_micros(300));
            }
        }
    });
    let mut settings = settings(&[]);
    settings.upstreams = vec![address];
    let server = serve(settings, plain());
    let mut stream = connect(&server);
    for number in 0..3 {
        let asked = query(number, "www.example");
        write_message(&mut stream, &asked).unwrap();
        assert_eq!(read_message(&mut stream).unwrap(), answer(&asked, &[[192, 0, 2, 1]], 30));
    }
}
