//! Over TCP (RFC 7766).

use crate::stub::{
    Client, Upstream, answer, eventually, id, plain, query, read_message, serve, settings, write_message,
};
use namewall_dns::Settings;
use std::collections::HashSet;
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn s6_12_answers_up_to_64_kib() {
    // 4,093 addresses are 65,517 bytes with the question.
    let many: Vec<[u8; 4]> = (0..4_090_u32).map(|n| (n | 0xc633_0000).to_be_bytes()).collect();
    let addresses = many.clone();
    let upstream = Upstream::new(move |query| vec![answer(query, &addresses, 30)]);
    let server = serve(settings(&[&upstream]), plain());
    let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
    let asked = query(7, "example.com");
    write_message(&mut stream, &asked).unwrap();
    let expected = answer(&asked, &many, 30);
    assert!(expected.len() > 65_000);
    assert_eq!(read_message(&mut stream).unwrap(), expected);
}

#[test]
fn rfc7766_queries_are_pipelined_and_connections_kept() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = serve(settings(&[&upstream]), plain());
    let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
    for round in 0..3 {
        for number in 0..500 {
            write_message(&mut stream, &query(round * 500 + number, "example.com")).unwrap();
        }
        let ids: HashSet<u16> = (0..500).map(|_| id(&read_message(&mut stream).unwrap())).collect();
        assert_eq!(ids, (round * 500..round * 500 + 500).collect());
    }
    eventually(|| server.counters().connections == 1);
}

#[test]
fn rfc7766_idle_connections_are_closed_and_half_closed_ones_answered() {
    let upstream = Upstream::new(|query| {
        std::thread::sleep(Duration::from_millis(50));
        vec![answer(query, &[[192, 0, 2, 1]], 30)]
    });
    let server = serve(Settings { idle_timeout: Duration::from_secs(1), ..settings(&[&upstream]) }, plain());
    let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
    write_message(&mut stream, &query(1, "example.com")).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(id(&read_message(&mut stream).unwrap()), 1);
    assert!(read_message(&mut stream).is_none(), "closed after its last answer");

    let mut idle = TcpStream::connect(server.addresses()[0]).unwrap();
    idle.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert!(read_message(&mut idle).is_none());
}

#[test]
fn an_upstream_that_closes_its_connections_is_asked_again() {
    // It answers one query a connection and closes it.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            if let Some(query) = read_message(&mut stream) {
                write_message(&mut stream, &answer(&query, &[[192, 0, 2, 1]], 30)).unwrap();
                // In peace: what it was asked besides is read, and left.
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                while read_message(&mut stream).is_some() {}
            }
        }
    });
    let mut settings = settings(&[]);
    settings.upstreams = vec![address];
    settings.try_timeout = Duration::from_secs(1);
    let server = serve(settings, plain());
    let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
    for number in 0..4 {
        write_message(&mut stream, &query(number, "example.com")).unwrap();
        assert_eq!(id(&read_message(&mut stream).unwrap()), number);
    }
    // However many are asked at once, each is answered in the end.
    for number in 0..20 {
        write_message(&mut stream, &query(number, "example.com")).unwrap();
    }
    let answers: Vec<Vec<u8>> = (0..20).map(|_| read_message(&mut stream).unwrap()).collect();
    assert!(answers.iter().all(|answer| answer[3] & 0x0f == 0), "none of them is SERVFAIL");
}

#[test]
fn rfc2181_9_a_truncated_answer_is_passed_on_and_asked_for_again_over_tcp() {
    let long: Vec<[u8; 4]> = (0..600_u32).map(|n| (n | 0xc633_0000).to_be_bytes()).collect();
    let addresses = long.clone();
    // Longer than any datagram we take: what is left of it is marked as truncated.
    let upstream = Upstream::new(move |query| vec![answer(query, &addresses, 30)]);
    let server = serve(settings(&[&upstream]), plain());
    let asked = query(7, "example.com");
    let reply = Client::of(&server).ask(&asked).unwrap();
    assert!(namewall_dns::wire::Header::read(&reply).unwrap().is_truncated);
    assert_eq!(reply.len(), asked.len());
    let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
    write_message(&mut stream, &asked).unwrap();
    assert_eq!(read_message(&mut stream).unwrap(), answer(&asked, &long, 30));
}
