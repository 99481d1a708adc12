//! RFC 7766 §8: a message and its length may come in any pieces.

use crate::stub::{Upstream, answer, connect, plain, query, read_message, serve, settings};
use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

#[test]
fn a_query_in_two_segments_cut_anywhere() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = serve(settings(&[&upstream]), plain());
    let mut stream = connect(&server);
    let asked = query(7, "www.example");
    let framed = [&(asked.len() as u16).to_be_bytes()[..], &asked].concat();
    for cut in 1..framed.len() {
        stream.write_all(&framed[..cut]).unwrap();
        sleep(Duration::from_millis(2));
        stream.write_all(&framed[cut..]).unwrap();
        let reply = read_message(&mut stream).unwrap();
        assert_eq!(reply, answer(&asked, &[[192, 0, 2, 1]], 30), "cut at {cut}");
    }
}

#[test]
fn byte_by_byte_and_the_next_with_the_last_byte() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = serve(settings(&[&upstream]), plain());
    let mut stream = connect(&server);
    let (first, second) = (query(1, "one.example"), query(2, "other.example"));
    let framed = |asked: &[u8]| [&(asked.len() as u16).to_be_bytes()[..], asked].concat();
    let bytes = framed(&first);
    for byte in &bytes[..bytes.len() - 1] {
        stream.write_all(&[*byte]).unwrap();
        sleep(Duration::from_micros(500));
    }
    let last = [&bytes[bytes.len() - 1..], &framed(&second)].concat();
    stream.write_all(&last).unwrap();
    let mut replies = [read_message(&mut stream).unwrap(), read_message(&mut stream).unwrap()];
    replies.sort();
    assert_eq!(replies, [answer(&first, &[[192, 0, 2, 1]], 30), answer(&second, &[[192, 0, 2, 1]], 30)]);
}
