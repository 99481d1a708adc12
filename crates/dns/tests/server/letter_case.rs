//! Random letter case in questions to upstreams (0x20), and replies that do not match (S6.1).

use crate::stub::{
    Client, Over, Recorder, TEST_TIMEOUT, Upstream, answer, eventually, id, plain, query, serve, settings,
};
use namewall_dns::Settings;
use namewall_dns::wire::{Header, Rcode};
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const EVIL: [u8; 4] = [203, 0, 113, 66];
const GOOD: [u8; 4] = [192, 0, 2, 1];
const NAME: &str = "www.a-name-with-many-letters.example";

#[test]
fn s6_1_questions_go_out_in_random_letter_case() {
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let spelled = seen.clone();
    let upstream = Upstream::new(move |asked| {
        spelled.lock().unwrap().insert(asked[12..].to_vec());
        vec![answer(asked, &[GOOD], 30)]
    });
    let server = serve(settings(&[&upstream]), plain());
    let client = Client::of(&server);
    for id in 0..50 {
        let asked = query(id, NAME);
        assert_eq!(client.ask(&asked).unwrap(), answer(&asked, &[GOOD], 30));
    }
    assert!(seen.lock().unwrap().len() >= 49, "{} spellings", seen.lock().unwrap().len());
    assert_eq!(server.counters().recased, 0);
}

/// The forger has guessed everything but the letter case.
#[test]
fn s6_1_a_reply_in_another_letter_case_is_asked_for_again_over_tcp() {
    let upstream = Upstream::with(|asked, over| match over {
        Over::Udp => vec![answer(&query(id(asked), NAME), &[EVIL], 30), answer(asked, &[EVIL], 30)],
        Over::Tcp => vec![answer(asked, &[GOOD], 30)],
    });
    let recorder = Arc::new(Recorder::default());
    let server = serve(settings(&[&upstream]), recorder.clone());
    let asked = query(7, NAME);
    assert_eq!(Client::of(&server).ask(&asked).unwrap(), answer(&asked, &[GOOD], 30));
    assert_eq!(recorder.addresses(), [IpAddr::from(GOOD)]);
    let counters = server.counters();
    assert_eq!((counters.recased, counters.distrusted, counters.caseless), (1, 1, 0));
}

/// Over TCP nobody can forge: there an upstream shows that it does not keep the case, and is then asked without it.
#[test]
fn s6_1_an_upstream_that_does_not_keep_the_case_must_show_it_over_tcp() {
    let by_tcp = Arc::new(AtomicUsize::new(0));
    let count = by_tcp.clone();
    let upstream = Upstream::with(move |asked, over| {
        count.fetch_add(usize::from(over == Over::Tcp), Ordering::SeqCst);
        vec![answer(&query(id(asked), NAME), &[GOOD], 30)]
    });
    let server = serve(settings(&[&upstream]), plain());
    let client = Client::of(&server);
    for number in 0..5 {
        let asked = query(number, NAME);
        assert_eq!(client.ask(&asked).unwrap(), answer(&asked, &[GOOD], 30));
    }
    assert_eq!(by_tcp.load(Ordering::SeqCst), 1);
    eventually(|| server.counters().caseless == 1);
    assert_eq!(server.counters().distrusted, 1);
}

#[test]
fn s6_1_without_tcp_nothing_is_believed_of_an_upstream_that_does_not_keep_the_case() {
    let upstream = Upstream::with(|asked, over| match over {
        Over::Udp => vec![answer(&query(id(asked), NAME), &[EVIL], 30)],
        Over::Tcp => Vec::new(),
    });
    let recorder = Arc::new(Recorder::default());
    let server = serve(Settings { tries: 2, ..settings(&[&upstream]) }, recorder.clone());
    let reply = Client::of(&server).ask(&query(7, NAME)).unwrap();
    assert_eq!(Header::read(&reply).unwrap().rcode, Rcode::SERV_FAIL);
    assert!(recorder.addresses().is_empty());
}

#[test]
fn s6_1_a_reply_with_another_opcode_or_without_qr_is_dropped() {
    let upstream = Upstream::new(|asked| {
        let forged = |bits: u8, mask: u8| {
            let mut forged = answer(asked, &[EVIL], 30);
            forged[2] = forged[2] & mask | bits;
            forged
        };
        let opcodes = (1..8).map(|opcode| forged(opcode << 3, 0x87));
        opcodes.chain([forged(0, 0x7f), answer(asked, &[GOOD], 30)]).collect()
    });
    let recorder = Arc::new(Recorder::default());
    let server = serve(settings(&[&upstream]), recorder.clone());
    let asked = query(7, NAME);
    assert_eq!(Client::of(&server).ask(&asked).unwrap(), answer(&asked, &[GOOD], 30));
    assert_eq!(recorder.addresses(), [IpAddr::from(GOOD)]);
    eventually(|| server.counters().unasked == 8);
}

#[test]
fn s6_1_after_too_many_wrong_replies_a_question_is_asked_over_tcp() {
    let upstream = Upstream::with(|asked, over| match over {
        Over::Udp => {
            let guess = |wrong: u16| {
                let mut guess = answer(asked, &[EVIL], 30);
                guess[..2].copy_from_slice(&(id(asked) ^ wrong).to_be_bytes());
                guess
            };
            // The last one is right in everything, and too late.
            (1..=16).chain([0]).map(guess).collect()
        }
        Over::Tcp => vec![answer(asked, &[GOOD], 30)],
    });
    let recorder = Arc::new(Recorder::default());
    let server = serve(Settings { try_timeout: TEST_TIMEOUT, ..settings(&[&upstream]) }, recorder.clone());
    let asked = query(7, NAME);
    assert_eq!(Client::of(&server).ask(&asked).unwrap(), answer(&asked, &[GOOD], 30));
    assert_eq!(recorder.addresses(), [IpAddr::from(GOOD)]);
    eventually(|| server.counters().distrusted == 1);
}

/// An upstream may answer twice, or after another was asked: its answers are no guesses.
#[test]
fn replies_that_come_twice_are_no_guesses() {
    let upstream = Upstream::new(|asked| vec![answer(asked, &[GOOD], 30), answer(asked, &[GOOD], 30)]);
    let server = serve(settings(&[&upstream]), plain());
    let client = Client::of(&server);
    for number in 0..100_u16 {
        for name in 0..20 {
            client.0.send(&query(number * 20 + name, &format!("n{name}.example"))).unwrap();
        }
        (0..20).for_each(|_| assert!(client.receive().is_some()));
    }
    assert_eq!(server.counters().distrusted, 0);
}

#[test]
fn s6_1_questions_leave_by_hundreds_of_ports() {
    let upstream = Upstream::giving(GOOD);
    let server = serve(settings(&[&upstream]), plain());
    let client = Client::of(&server);
    for number in 0..600 {
        client.ask(&query(number, NAME)).unwrap();
    }
    let ports: HashSet<u16> = upstream.ports.lock().unwrap().iter().map(|(port, _)| *port).collect();
    // A quarter of the files that a process may open: 256 where that is least. A few ports are chosen twice.
    assert!(ports.len() >= 240, "{} ports", ports.len());
}
