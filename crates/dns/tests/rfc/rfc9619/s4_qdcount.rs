//! RFC 9619 §4: a query has one question; with more it is FORMERR. (None is for cookies, which a forwarder has not.)

use crate::message::{Packing, written};
use crate::stub::{
    Client, Recorder, Upstream, answer, connect, eventually, plain, query, read_message, serve, settings, write_message,
};
use namewall_dns::wire::{Header, Question, Rcode, WireError};
use std::sync::Arc;

fn with_questions(count: u16) -> Vec<u8> {
    let mut asked = query(7, "www.example");
    let question = asked[12..].to_vec();
    asked[4..6].copy_from_slice(&count.to_be_bytes());
    for _ in 1..count.min(4) {
        asked.extend_from_slice(&question);
    }
    asked
}

#[test]
fn queries_with_another_number_of_questions_are_formerr_over_udp_and_tcp() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = serve(settings(&[&upstream]), plain());
    let client = Client::of(&server);
    let mut stream = connect(&server);
    for count in [0, 2, 3, 0xffff] {
        let asked = with_questions(count);
        assert_eq!(Question::end(&asked), Err(WireError::Questions(count)));
        write_message(&mut stream, &asked).unwrap();
        for reply in [client.ask(&asked).unwrap(), read_message(&mut stream).unwrap()] {
            let header = Header::read(&reply).unwrap();
            assert_eq!((header.rcode, header.questions, header.id), (Rcode::FORM_ERR, 0, 7));
        }
    }
    assert_eq!(upstream.asked(), 0);
}

#[test]
fn nothing_is_learned_from_an_answer_to_two_questions() {
    let mut message = written("www.example A", &["www.example 60 A 192.0.2.1"], Packing::Plain);
    for count in [0, 2] {
        message[5] = count;
        let said = format!("refused: it is malformed: it has {count} questions; one is asked at a time");
        assert_eq!(crate::check::says(&message), said);
    }
}

#[test]
fn an_answer_without_the_question_is_none_but_a_refusal_may_be() {
    let recorder = Arc::new(Recorder::default());
    let upstream = Upstream::new(|asked| {
        let mut bare = answer(asked, &[[203, 0, 113, 66]], 30);
        bare[5] = 0;
        // Of no question, and so of no use: but it says that nothing better will come.
        let refusal = [&asked[..2], &[0x80, 0x05, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
        vec![bare, refusal]
    });
    let server = serve(settings(&[&upstream]), recorder.clone());
    let reply = Client::of(&server).ask(&query(7, "www.example")).unwrap();
    assert_eq!(Header::read(&reply).unwrap().rcode, Rcode::SERV_FAIL);
    assert!(recorder.addresses().is_empty());
    eventually(|| server.counters().unasked == 1);
}
