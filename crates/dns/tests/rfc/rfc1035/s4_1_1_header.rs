//! RFC 1035 §4.1.1: the header, and messages that are less than they say.

use crate::check::says;
use crate::message::{Packing, written};
use crate::stub::{Client, Upstream, id, plain, query, serve, settings};
use namewall_dns::wire::{Header, Question, Rcode, addresses, reply};

const TYPICAL: [&str; 4] = [
    "www.shop.example 300 CNAME shop.cdn.example",
    "shop.cdn.example 60 A 192.0.2.1",
    "shop.cdn.example 60 TXT more",
    "shop.cdn.example 60 A 192.0.2.2",
];

#[test]
fn a_message_cut_anywhere_is_refused_and_nothing_panics() {
    for packing in [Packing::Plain, Packing::Compressed] {
        let whole = written("www.shop.example A", &TYPICAL, packing);
        assert_eq!(says(&whole), "192.0.2.1 60s, 192.0.2.2 60s via shop.cdn.example");
        for length in 0..whole.len() {
            let cut = &whole[..length];
            assert!(says(cut).starts_with("refused"), "at {length}");
            let mut asked = cut.to_vec();
            asked.get_mut(2).into_iter().for_each(|flags| *flags &= 0x7f);
            let question = Question::end(&asked);
            assert!(!Question::is_repeated(&asked, &whole) || question.is_ok(), "at {length}");
            let failure = reply::failure(&asked, Rcode::SERV_FAIL);
            assert!(Header::read(&failure).is_ok_and(|header| header.is_answer || length < 12), "at {length}");
            let truncated = reply::truncated(cut);
            assert!(Header::read(&truncated).is_ok_and(|header| header.is_truncated), "at {length}");
        }
    }
}

#[test]
fn counts_that_lie() {
    let mut message = written("www.shop.example A", &TYPICAL, Packing::Compressed);
    message[6..8].copy_from_slice(&[0xff, 0xff]);
    assert_eq!(says(&message), "refused: it is malformed: the message ends too early");
    // What is behind the answers is none, whatever it looks like.
    message[6..8].copy_from_slice(&[0, 2]);
    assert_eq!(says(&message), "192.0.2.1 60s via shop.cdn.example");
    message[6..8].copy_from_slice(&[0, 0]);
    assert_eq!(says(&message), "nothing");
}

#[test]
fn s6_1_only_noerror_has_addresses() {
    for rcode in 0..16 {
        let mut message = written("www.shop.example A", &TYPICAL, Packing::Compressed);
        message[3] |= rcode;
        let expected = if rcode == 0 { "192.0.2.1 60s, 192.0.2.2 60s via shop.cdn.example" } else { "nothing" };
        assert_eq!(says(&message), expected, "rcode {rcode}");
    }
}

#[test]
fn s6_1_only_a_standard_query_has_addresses() {
    for opcode in 0..16_u8 {
        let mut message = written("www.shop.example A", &TYPICAL, Packing::Compressed);
        message[2] |= opcode << 3;
        let expected = if opcode == 0 { "192.0.2.1 60s, 192.0.2.2 60s via shop.cdn.example" } else { "nothing" };
        assert_eq!(says(&message), expected, "opcode {opcode}");
    }
}

#[test]
fn a_query_is_no_answer() {
    let mut message = written("www.shop.example A", &TYPICAL, Packing::Compressed);
    message[2] &= 0x7f;
    assert!(addresses(&message).is_err());
    assert!(Question::of_answer(&message).is_err());
}

#[test]
fn opcodes_other_than_query_are_not_implemented() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = serve(settings(&[&upstream]), plain());
    let client = Client::of(&server);
    for opcode in 1..16 {
        let mut asked = query(opcode.into(), "www.example");
        asked[2] |= opcode << 3;
        let reply = client.ask(&asked).unwrap();
        let header = Header::read(&reply).unwrap();
        assert_eq!((header.id, header.opcode, header.rcode), (opcode.into(), opcode, Rcode::NOT_IMP));
        assert!(header.is_answer);
    }
    assert_eq!(upstream.asked(), 0);
}

/// Recursion desired is copied, and available is set: an upstream is there for it.
#[test]
fn a_failure_of_our_own_repeats_id_question_and_the_wish_for_recursion() {
    let silent = Upstream::new(|_| Vec::new());
    let mut settings = settings(&[&silent]);
    settings.tries = 1;
    let server = serve(settings, plain());
    for flags in [0x00, 0x01] {
        let mut asked = query(0xabcd, "www.example");
        asked[2] = flags;
        let mut expected = asked.clone();
        (expected[2], expected[3]) = (0x80 | flags, 0x82);
        assert_eq!(Client::of(&server).ask(&asked).unwrap(), expected);
    }
}

/// Bits nobody knows yet (Z) and those of DNSSEC (AD, CD) pass both ways (RFC 4035 §4.6).
#[test]
fn flags_are_passed_on() {
    let upstream = Upstream::new(|asked| {
        assert_eq!((asked[2], asked[3]), (0x01, 0x70));
        let mut answer = crate::stub::answer(asked, &[[192, 0, 2, 1]], 30);
        answer[2] |= 0x04;
        vec![answer]
    });
    let server = serve(settings(&[&upstream]), plain());
    let mut asked = query(5, "www.example");
    asked[3] = 0x70;
    let reply = Client::of(&server).ask(&asked).unwrap();
    assert_eq!((id(&reply), reply[2], reply[3]), (5, 0x85, 0xf0));
}
