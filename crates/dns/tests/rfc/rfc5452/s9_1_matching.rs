//! RFC 5452 §9.1: an answer must have the question, the id, and come from and to where the query went.

use crate::message::{Packing, written};
use crate::stub::{Client, Recorder, Upstream, answer, eventually, id, query, serve, settings};
use namewall_dns::wire::Question;
use namewall_dns::{Server, Settings};
use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const EVIL: [u8; 4] = [203, 0, 113, 66];
const GOOD: [u8; 4] = [192, 0, 2, 1];

fn recording(upstream: &Upstream) -> (Server<Recorder>, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    (serve(settings(&[upstream]), recorder.clone()), recorder)
}

#[test]
fn every_part_of_the_question_must_be_repeated() {
    let mut asked = written("www.example A", &[], Packing::Plain);
    asked[2] = 0x01;
    let same = written("www.example A", &["www.example 60 A 192.0.2.1"], Packing::Plain);
    assert!(Question::is_repeated(&asked, &same));
    for other in ["www.exampl A", "www.examples A", "www.example AAAA", "www.example A CH", "a.www.example A", ". A"] {
        let other = written(other, &["www.example 60 A 192.0.2.1"], Packing::Plain);
        assert!(!Question::is_repeated(&asked, &other));
    }
    for change in [|m: &mut Vec<u8>| m[2] &= 0x7f, |m: &mut Vec<u8>| m[5] = 2, |m: &mut Vec<u8>| m.truncate(20)] {
        let mut other = same.clone();
        change(&mut other);
        assert!(!Question::is_repeated(&asked, &other));
    }
}

#[test]
fn s6_1_what_does_not_match_is_neither_passed_on_nor_learned() {
    let upstream = Upstream::new(|asked| {
        let forged = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut forged = answer(asked, &[EVIL], 30);
            change(&mut forged);
            forged
        };
        let at = asked.len();
        let other = answer(&query(id(asked), "www.exampla"), &[EVIL], 30);
        vec![
            forged(&|m| m[1] ^= 1),
            forged(&|m| m[at - 1] = 3),
            forged(&|m| m[at - 3] = 28),
            forged(&|m| m[5] = 0),
            forged(&|m| m[2] &= 0x7f),
            other,
            answer(asked, &[GOOD], 30),
            // And what comes after the answer is too late.
            answer(asked, &[EVIL], 30),
        ]
    });
    let (server, recorder) = recording(&upstream);
    let asked = query(7, "www.example");
    assert_eq!(Client::of(&server).ask(&asked).unwrap(), answer(&asked, &[GOOD], 30));
    assert_eq!(recorder.addresses(), [IpAddr::from(GOOD)]);
    eventually(|| server.counters().unasked == 7);
}

/// It knows the id, the question and the port: only its address is not the upstream's.
#[test]
fn s6_1_an_answer_from_elsewhere_is_not_heard() {
    let (tell, told) = mpsc::channel::<Vec<u8>>();
    let upstream = Upstream::new(move |asked| {
        tell.send(asked.to_vec()).unwrap();
        std::thread::sleep(Duration::from_millis(60));
        vec![answer(asked, &[GOOD], 30)]
    });
    let ports = upstream.ports.clone();
    let (server, recorder) = recording(&upstream);
    let client = Client::of(&server);
    let asked = query(7, "www.example");
    client.0.send(&asked).unwrap();
    let forwarded = told.recv_timeout(Duration::from_secs(2)).unwrap();
    let port = ports.lock().unwrap()[0].0;
    for from in ["127.0.0.1:0", "127.0.0.2:0"] {
        let elsewhere = UdpSocket::bind(from).unwrap();
        // Sent or refused at once: either will do.
        let _ = elsewhere.send_to(&answer(&forwarded, &[EVIL], 30), ("127.0.0.1", port));
    }
    assert_eq!(client.receive().unwrap(), answer(&asked, &[GOOD], 30));
    assert_eq!(recorder.addresses(), [IpAddr::from(GOOD)]);
}

/// It is right in everything but that it comes to another port of ours than the query left by.
#[test]
fn s6_1_an_answer_to_another_port_is_not_heard() {
    let mut first: Option<Vec<u8>> = None;
    let upstream = Upstream::new(move |asked| match first.take() {
        None => {
            first = Some(answer(asked, &[EVIL], 30));
            Vec::new()
        }
        Some(first) => vec![first, answer(asked, &[GOOD], 30)],
    });
    let recorder = Arc::new(Recorder::default());
    let patient = Settings { try_timeout: Duration::from_secs(1), ..settings(&[&upstream]) };
    let server = serve(patient, recorder.clone());
    let (one, other) = (Client::of(&server), Client::of(&server));
    one.0.send(&query(7, "one.example")).unwrap();
    while upstream.asked() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // This one leaves by a socket of its own: there are not yet as many as there may be.
    let asked = query(7, "other.example");
    assert_eq!(other.ask(&asked).unwrap(), answer(&asked, &[GOOD], 30));
    assert_eq!(recorder.addresses(), [IpAddr::from(GOOD)]);
    one.0.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(one.receive().is_none());
    eventually(|| server.counters().unasked == 1);
}
