//! RFC 7766 §7: answers come in any order, and are told apart by their ids and questions.

use crate::stub::{Upstream, answer, connect, id, plain, query, read_message, serve, settings, write_message};
use namewall_dns::wire::Question;
use std::net::TcpListener;

#[test]
fn a_slow_answer_does_not_keep_others_waiting() {
    // The first question is answered last of all.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let asked: Vec<Vec<u8>> = (0..20).map(|_| read_message(&mut stream).unwrap()).collect();
        for query in asked.iter().rev() {
            write_message(&mut stream, &answer(query, &[[192, 0, 2, 1]], 30)).unwrap();
        }
        // Kept open until the other end closes it.
        read_message(&mut stream);
    });
    let mut settings = settings(&[]);
    settings.upstreams = vec![address];
    settings.try_timeout = std::time::Duration::from_secs(5);
    let server = serve(settings, plain());
    let mut stream = connect(&server);
    for number in 0..20 {
        write_message(&mut stream, &query(number, &format!("n{number}.example"))).unwrap();
    }
    for number in (0..20).rev() {
        let reply = read_message(&mut stream).unwrap();
        assert_eq!(id(&reply), number);
        assert_eq!(Question::of_answer(&reply).unwrap().name.to_string(), format!("n{number}.example"));
    }
}

/// An id twice at once over one connection: ours are never the same, so both are answered.
#[test]
fn one_id_for_two_questions() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = serve(settings(&[&upstream]), plain());
    let mut stream = connect(&server);
    let names = ["one.example", "other.example"];
    for name in names {
        write_message(&mut stream, &query(7, name)).unwrap();
    }
    let mut answered: Vec<String> = names
        .iter()
        .map(|_| Question::of_answer(&read_message(&mut stream).unwrap()).unwrap().name.to_string())
        .collect();
    answered.sort();
    assert_eq!(answered, names);
}
