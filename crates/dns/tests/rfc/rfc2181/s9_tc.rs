//! RFC 2181 §9: TC says that something required is missing; the client asks again over TCP.

use crate::message::{Packing, written};
use crate::stub::{
    Client, Recorder, Upstream, answer, connect, id, plain, query, read_message, serve, settings, write_message,
};
use namewall_dns::wire::{Header, addresses, reply};
use std::net::IpAddr;
use std::sync::Arc;

/// Some clients use what they have (musl before 1.2.4 knows no TCP): it must be open for them.
#[test]
fn what_a_truncated_answer_holds_is_read() {
    let mut message = written("a.example A", &["a.example 60 A 192.0.2.1"], Packing::Compressed);
    message[2] |= 0x02;
    assert_eq!(crate::check::says(&message), "192.0.2.1 60s");
}

#[test]
fn a_truncated_answer_is_passed_on_as_it_is_and_its_addresses_are_open() {
    let upstream = Upstream::new(|asked| {
        let mut answer = answer(asked, &[[192, 0, 2, 1]], 30);
        answer[2] |= 0x02;
        vec![answer]
    });
    let recorder = Arc::new(Recorder::default());
    let server = serve(settings(&[&upstream]), recorder.clone());
    let asked = query(7, "a.example");
    let mut expected = answer(&asked, &[[192, 0, 2, 1]], 30);
    expected[2] |= 0x02;
    assert_eq!(Client::of(&server).ask(&asked).unwrap(), expected);
    assert_eq!(recorder.addresses(), [IpAddr::from([192, 0, 2, 1])]);
}

/// What is learned over TCP is all of it, and not the beginning that came before.
#[test]
fn s6_12_truncation_then_tcp_and_every_address_is_open() {
    let many: Vec<[u8; 4]> = (0..1_000_u32).map(|n| (n | 0xc633_0000).to_be_bytes()).collect();
    let addresses = many.clone();
    // The first time it is asked by UDP, the second by TCP.
    let mut is_udp = true;
    let upstream = Upstream::new(move |asked| {
        let truncated = reply::truncated(&answer(asked, &[], 30));
        let whole = answer(asked, &addresses, 30);
        vec![if std::mem::take(&mut is_udp) { truncated } else { whole }]
    });
    let recorder = Arc::new(Recorder::default());
    let server = serve(settings(&[&upstream]), recorder.clone());
    let asked = query(7, "a.example");
    assert!(Header::read(&Client::of(&server).ask(&asked).unwrap()).unwrap().is_truncated);
    assert!(recorder.addresses().is_empty());
    let mut stream = connect(&server);
    write_message(&mut stream, &asked).unwrap();
    assert_eq!(read_message(&mut stream).unwrap(), answer(&asked, &many, 30));
    assert_eq!(recorder.addresses(), many.into_iter().map(IpAddr::from).collect::<Vec<_>>());
}

#[test]
fn what_we_cut_ourselves_is_header_and_question() {
    let whole = written("a.example A", &["a.example 60 A 192.0.2.1"], Packing::Plain);
    let cut = reply::truncated(&whole);
    let header = Header::read(&cut).unwrap();
    assert!(header.is_truncated && header.is_answer);
    assert_eq!((header.questions, header.answers, id(&cut)), (1, 0, id(&whole)));
    assert_eq!(addresses(&cut).unwrap().question, addresses(&whole).unwrap().question);
    assert!(whole.starts_with(&cut[12..]) || whole[12..].starts_with(&cut[12..]));
}

#[test]
fn an_answer_longer_than_any_datagram_we_take_is_truncated_for_udp_only() {
    let many: Vec<[u8; 4]> = (0..400_u32).map(|n| (n | 0xc633_0000).to_be_bytes()).collect();
    let given = many.clone();
    let upstream = Upstream::new(move |asked| vec![answer(asked, &given, 30)]);
    let server = serve(settings(&[&upstream]), plain());
    let asked = query(7, "a.example");
    let cut = Client::of(&server).ask(&asked).unwrap();
    assert_eq!(cut, reply::truncated(&answer(&asked, &many, 30)));
}
