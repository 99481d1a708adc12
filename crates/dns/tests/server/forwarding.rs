//! Queries to upstreams and answers back, over UDP.

use crate::stub::{Client, TEST_TIMEOUT, Upstream, answer, eventually, id, plain, query, serve, settings};
use namewall_dns::wire::{Header, Rcode};
use namewall_dns::{Listen, Settings};
use std::collections::HashSet;
use std::time::{Duration, Instant};

fn rcode(answer: &[u8]) -> Rcode {
    Header::read(answer).unwrap().rcode
}

#[test]
fn s6_6_an_answer_is_passed_on_byte_for_byte() {
    // Odd bytes that nobody should touch: mixed case, flags, trailing records.
    let upstream = Upstream::new(|query| {
        let mut answer = answer(query, &[[192, 0, 2, 1]], 30);
        answer[3] |= 0x30;
        answer.extend_from_slice(b"\0\0\x29\x04\xd0\0\0\0\0\0\0");
        vec![answer]
    });
    let server = serve(settings(&[&upstream]), plain());
    let asked = query(0x1234, "wWw.ExAmPlE.com");
    let mut expected = answer(&asked, &[[192, 0, 2, 1]], 30);
    expected[3] |= 0x30;
    expected.extend_from_slice(b"\0\0\x29\x04\xd0\0\0\0\0\0\0");
    assert_eq!(Client::of(&server).ask(&asked).unwrap(), expected);
}

#[test]
fn s6_1_ids_and_ports_cannot_be_guessed() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = serve(settings(&[&upstream]), plain());
    let client = Client::of(&server);
    for number in 0..200 {
        let reply = client.ask(&query(number, "example.com")).unwrap();
        assert_eq!(id(&reply), number, "the client's own id comes back");
    }
    let seen = upstream.ports.lock().unwrap();
    let ports: HashSet<u16> = seen.iter().map(|(port, _)| *port).collect();
    let ids: HashSet<u16> = seen.iter().map(|(_, id)| *id).collect();
    assert!(ports.len() > 8, "{} ports", ports.len());
    assert!(ids.len() > 190, "{} ids", ids.len());
}

#[test]
fn s6_1_a_reply_with_a_wrong_id_or_question_is_not_passed_on() {
    let upstream = Upstream::new(|asked| {
        let mut wrong_id = answer(asked, &[[203, 0, 113, 66]], 30);
        wrong_id[0] ^= 0xff;
        let mut wrong_question = answer(&query(id(asked), "evil.example.com"), &[[203, 0, 113, 66]], 30);
        wrong_question[..2].copy_from_slice(&asked[..2]);
        let mut wrong_type = answer(asked, &[[203, 0, 113, 66]], 30);
        let at = asked.len() - 3;
        wrong_type[at] = 28;
        let query_again = asked.to_vec();
        vec![wrong_id, wrong_question, wrong_type, query_again, vec![1, 2, 3], answer(asked, &[[192, 0, 2, 1]], 30)]
    });
    let server = serve(settings(&[&upstream]), plain());
    let asked = query(7, "www.example.com");
    assert_eq!(Client::of(&server).ask(&asked).unwrap(), answer(&asked, &[[192, 0, 2, 1]], 30));
    eventually(|| server.counters().unasked == 5);
}

#[test]
fn rfc9619_a_query_has_one_question() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = serve(settings(&[&upstream]), plain());
    let client = Client::of(&server);
    let mut none = query(1, "");
    none[5] = 0;
    assert_eq!(rcode(&client.ask(&none).unwrap()), Rcode::FORM_ERR);
    let mut two = query(2, "example.com");
    two[5] = 2;
    assert_eq!(rcode(&client.ask(&two).unwrap()), Rcode::FORM_ERR);
    let mut update = query(3, "example.com");
    update[2] |= 5 << 3;
    assert_eq!(rcode(&client.ask(&update).unwrap()), Rcode::NOT_IMP);
    // What is an answer, or no message, gets none.
    let mut reflected = query(4, "example.com");
    reflected[2] |= 0x80;
    client.0.send(&reflected).unwrap();
    client.0.send(b"hello").unwrap();
    assert_eq!(id(&client.ask(&query(5, "example.com")).unwrap()), 5);
    assert_eq!(upstream.asked(), 1);
}

#[test]
fn the_next_upstream_is_asked_where_one_is_silent_gone_or_failing() {
    let silent = Upstream::new(|_| Vec::new());
    let failing = Upstream::new(|query| {
        let mut failure = query.to_vec();
        failure[2] |= 0x80;
        failure[3] = 2;
        vec![failure]
    });
    let good = Upstream::giving([192, 0, 2, 1]);
    let gone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut settings = settings(&[&silent, &failing, &good]);
    settings.upstreams.insert(1, gone);
    let server = serve(settings, plain());
    let client = Client::of(&server);
    let asked = query(9, "example.com");
    assert_eq!(client.ask(&asked).unwrap(), answer(&asked, &[[192, 0, 2, 1]], 30));
    // One that never answers is left alone after a while, and asked only whether it is back.
    for _ in 0..4 {
        client.ask(&asked).unwrap();
    }
    let before = silent.asked();
    let began = Instant::now();
    for _ in 0..5 {
        assert_eq!(client.ask(&asked).unwrap(), answer(&asked, &[[192, 0, 2, 1]], 30));
    }
    // On a busy machine there may be time for more than one such question.
    assert!(silent.asked() <= before + 1 + began.elapsed().as_secs() as usize);
}

#[test]
fn an_upstream_that_comes_back_is_asked_again() {
    let alive = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let lives = alive.clone();
    let first = Upstream::new(move |query| match lives.load(std::sync::atomic::Ordering::SeqCst) {
        true => vec![answer(query, &[[192, 0, 2, 1]], 30)],
        false => Vec::new(),
    });
    let second = Upstream::giving([192, 0, 2, 2]);
    let server = serve(settings(&[&first, &second]), plain());
    let client = Client::of(&server);
    let asked = query(9, "example.com");
    for _ in 0..4 {
        assert_eq!(client.ask(&asked).unwrap(), answer(&asked, &[[192, 0, 2, 2]], 30));
    }
    alive.store(true, std::sync::atomic::Ordering::SeqCst);
    eventually(|| client.ask(&asked).unwrap() == answer(&asked, &[[192, 0, 2, 1]], 30));
}

#[test]
fn an_answer_that_takes_longer_than_a_try_is_still_one() {
    let slow = Upstream::new(|query| {
        std::thread::sleep(Duration::from_millis(400));
        vec![answer(query, &[[192, 0, 2, 1]], 30)]
    });
    let server = serve(settings(&[&slow]), plain());
    let asked = query(9, "example.com");
    assert_eq!(Client::of(&server).ask(&asked).unwrap(), answer(&asked, &[[192, 0, 2, 1]], 30));
}

#[test]
fn nobody_answers() {
    let silent = Upstream::new(|_| Vec::new());
    let server = serve(Settings { tries: 2, ..settings(&[&silent]) }, plain());
    let reply = Client::of(&server).ask(&query(9, "example.com")).unwrap();
    assert_eq!((id(&reply), rcode(&reply)), (9, Rcode::SERV_FAIL));
    assert_eq!(silent.asked(), 2);
}

#[test]
fn a_query_goes_to_the_server_it_was_meant_for() {
    let (usual, meant) = (Upstream::giving([192, 0, 2, 1]), Upstream::giving([192, 0, 2, 2]));
    let mut settings = settings(&[&usual]);
    let address = settings.listen[0].address;
    settings.listen.insert(0, Listen { address, meant: Some(meant.address), is_open: true });
    let server = serve(settings, plain());
    let asked = query(9, "example.com");
    assert_eq!(Client::of(&server).ask(&asked).unwrap(), answer(&asked, &[[192, 0, 2, 2]], 30));
    assert_eq!(usual.asked(), 0);
}

#[test]
fn s6_1_a_server_that_is_not_trusted_any_more_is_not_asked_what_is_meant_for_it() {
    let (usual, meant) = (Upstream::giving([192, 0, 2, 1]), Upstream::giving([192, 0, 2, 2]));
    let mut settings = settings(&[&usual]);
    let address = settings.listen[0].address;
    settings.listen.insert(0, Listen { address, meant: Some(meant.address), is_open: true });
    let server = serve(settings.clone(), plain());
    let asked = query(9, "example.com");
    // Settings count from the loop's next turn on.
    let becomes = |expected: [u8; 4]| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Client::of(&server).ask(&asked).unwrap() != answer(&asked, &[expected], 30) {
            assert!(Instant::now() < deadline, "the settings do not count");
        }
    };
    server.set(&Settings { distrusted: vec![meant.address], ..settings.clone() });
    becomes([192, 0, 2, 1]);
    let before = meant.asked();
    becomes([192, 0, 2, 1]);
    assert_eq!(meant.asked(), before);
    // It is trusted again.
    server.set(&settings);
    becomes([192, 0, 2, 2]);
}

#[test]
fn one_clients_flood_leaves_room_for_others() {
    let silent = Upstream::new(|query| match query[12] {
        4 => Vec::new(),
        _ => vec![answer(query, &[[192, 0, 2, 1]], 30)],
    });
    let limits = Settings { most_queries_of_client: 100, most_queries: 1_000, ..settings(&[&silent]) };
    let server = serve(limits, plain());
    let flood = Client::of(&server);
    for number in 0..500 {
        flood.0.send(&query(number, "slow.example.com")).unwrap();
    }
    // Clients are told apart by their addresses: this one has another.
    let socket = std::net::UdpSocket::bind("127.0.0.2:0").unwrap();
    socket.connect(server.addresses()[0]).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    assert!(Client(socket).ask(&query(1, "example.com")).is_some());
    eventually(|| server.counters().over_limit == 400);
}

#[test]
fn ten_thousand_queries_in_bursts_are_all_answered() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = serve(settings(&[&upstream]), plain());
    let client = Client::of(&server);
    for burst in 0..100_u16 {
        for number in 0..100 {
            client.0.send(&query(burst * 100 + number, "example.com")).unwrap();
        }
        let ids: HashSet<u16> = (0..100).map(|_| id(&client.receive().unwrap())).collect();
        assert_eq!(ids, (burst * 100..burst * 100 + 100).collect());
    }
    eventually(|| server.counters().answers == 10_000);
}

/// Knows nobody.
struct Shy;

impl namewall_dns::Learn for Shy {
    type Batch = ();

    fn knows(&self, _: std::net::IpAddr) -> bool {
        false
    }

    fn learn(&self, _: &namewall_dns::Answer<'_>, (): &mut ()) -> namewall_dns::Opens {
        namewall_dns::Opens::Nothing
    }

    fn commit(&self, (): &mut ()) -> Result<(), namewall_dns::LearnError> {
        Ok(())
    }
}

#[test]
fn strangers_get_no_answer_where_only_pods_may_ask() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let mut settings = settings(&[&upstream]);
    let open = settings.listen[0];
    settings.listen.push(Listen { is_open: false, ..open });
    let server = serve(settings, std::sync::Arc::new(Shy));
    let shut = server.addresses()[1];
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.connect(shut).unwrap();
    stranger.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(Client(stranger).ask(&query(1, "example.com")).is_none());
    let mut stream = std::net::TcpStream::connect(shut).unwrap();
    crate::stub::write_message(&mut stream, &query(2, "example.com")).ok();
    assert!(crate::stub::read_message(&mut stream).is_none());
    assert!(Client::of(&server).ask(&query(3, "example.com")).is_some(), "but anybody where everybody may");
    assert_eq!(upstream.asked(), 1);
    eventually(|| server.counters().strangers == 2);
}

#[test]
fn answers_are_counted_by_their_code() {
    let upstream = Upstream::new(|query| {
        let mut answer = answer(query, &[[192, 0, 2, 1]], 30);
        // The first label says the code.
        answer[3] |= query[13] - b'0';
        vec![answer]
    });
    let server = serve(settings(&[&upstream]), plain());
    let client = Client::of(&server);
    for (number, name) in (0..).zip(["0.example", "0.example", "3.example", "5.example"]) {
        client.ask(&query(number, name)).unwrap();
    }
    eventually(|| server.counters().answers == 4);
    let mut expected = [0; 16];
    (expected[0], expected[3], expected[5]) = (2, 1, 1);
    assert_eq!(server.counters().answers_by_rcode, expected);
}
