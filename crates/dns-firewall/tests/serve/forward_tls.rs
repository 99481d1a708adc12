//! Upstreams over TLS (RFC 7858): whom we trust, who we are, and how long a connection serves.

use crate::stub::{TEST_TIMEOUT, Upstream, eventually, on_schedule};
use crate::support::{Ask, Authority, Live, TlsUpstream, answer, receive, refused, shown};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const GOOD: &str = "NOERROR; a.example. 30 A 192.0.2.1";

fn good(query: &[u8]) -> Vec<Vec<u8>> {
    vec![answer(query, &["@ 30 A 192.0.2.1"])]
}

fn serve(to: &str, options: &str) -> Live {
    Live::start(&format!(".:PORT0 {{\n errors\n forward . {to} {{\n {options}\n }}\n}}"))
}

fn trusting(authority: &Authority, upstream: &TlsUpstream, options: &str) -> Live {
    let options = format!("tls {}\n tls_servername dns.example\n {options}", authority.ca());
    serve(&format!("tls://{}", upstream.address), &options)
}

#[test]
fn one_connection_serves_all() {
    let authority = Authority::new("one");
    let upstream = authority.server("dns.example", false).answers(good);
    let live = trusting(&authority, &upstream, "");
    for _ in 0..5 {
        assert_eq!(live.ask("A a.example"), GOOD);
        assert_eq!(live.ask("A a.example tcp"), GOOD);
    }
    assert_eq!((upstream.connections(), upstream.asked()), (1, 10));
}

#[test]
fn answers_come_in_any_order() {
    let authority = Authority::new("order");
    let first: Mutex<Option<Vec<u8>>> = Mutex::default();
    // The first question is answered after the second one.
    let upstream = authority.server("dns.example", false).answers(move |query| {
        let mut first = first.lock().unwrap();
        match first.take() {
            None => {
                *first = Some(query.to_vec());
                Vec::new()
            }
            Some(earlier) => [query, &earlier].into_iter().flat_map(good).collect(),
        }
    });
    let live = trusting(&authority, &upstream, "");
    let sent = ["A a.example id 1", "A b.example id 2"].map(|question| {
        let ask = Ask::from(question);
        let socket = live.socket(&ask, 0);
        socket.send(&ask.query).unwrap();
        socket
    });
    let got = sent.each_ref().map(|socket| shown(&receive(socket).unwrap()));
    assert_eq!(got, ["NOERROR; a.example. 30 A 192.0.2.1", "NOERROR; b.example. 30 A 192.0.2.1"]);
    assert_eq!((upstream.connections(), upstream.asked()), (1, 2));
}

#[test]
fn long_answers_are_cut_for_clients_whose_datagrams_are_short() {
    let authority = Authority::new("long");
    let lines: Vec<String> = (0..250).map(|at| format!("@ 30 TXT {}", "x".repeat(200 + at % 5))).collect();
    let upstream = authority
        .server("dns.example", false)
        .answers(move |query| vec![answer(query, &lines.iter().map(String::as_str).collect::<Vec<_>>())]);
    let live = trusting(&authority, &upstream, "");
    assert_eq!(live.ask("TXT a.example"), "NOERROR tc");
    // Over more than one record of TLS.
    assert!(live.bytes("TXT a.example tcp", 0).unwrap().len() > 50_000);
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_connection_that_the_server_ends_is_made_anew() {
    let authority = Authority::new("ends");
    let upstream = authority.server("dns.example", false).answers(good);
    let live = trusting(&authority, &upstream, "max_fails 0");
    for round in 1..4 {
        assert_eq!(live.ask("A a.example"), GOOD);
        assert_eq!(upstream.connections(), round);
        upstream.hang_up();
    }
}

#[test]
fn connections_are_used_for_as_long_as_is_set() {
    on_schedule(Duration::from_millis(1500), || {
        let authority = Authority::new("expire");
        for (options, connections) in [("expire 100ms", 2), ("max_age 100ms", 2), ("expire 5s\n max_age 5s", 1)] {
            let upstream = authority.server("dns.example", false).answers(good);
            let live = trusting(&authority, &upstream, options);
            assert_eq!(live.ask("A a.example"), GOOD);
            std::thread::sleep(Duration::from_millis(150));
            assert_eq!(live.ask("A a.example"), GOOD);
            assert_eq!(upstream.connections(), connections, "{options}");
        }
    });
}

#[test]
fn whom_nobody_trusts_is_asked_nothing() {
    let (authority, stranger) = (Authority::new("trust"), Authority::new("stranger"));
    let upstream = authority.server("dns.example", false).answers(good);
    let to = format!("tls://{}", upstream.address);
    for (options, why) in [
        (format!("tls {}\n tls_servername dns.example", stranger.ca()), "invalid peer certificate: UnknownIssuer"),
        (
            format!("tls {}\n tls_servername other.example", authority.ca()),
            "invalid peer certificate: certificate not valid for name",
        ),
        // Without a name it must be signed for the address.
        (format!("tls {}", authority.ca()), "invalid peer certificate: certificate not valid for name"),
    ] {
        let live = serve(&to, &format!("max_fails 0\n {options}"));
        assert_eq!(live.ask("A a.example"), "SERVFAIL", "{options}");
        let told = live.told.lines(1);
        let start = format!("[ERROR] 2 a.example. A: no upstream answered: {}: {why}", upstream.address);
        assert!(told[0].starts_with(&start), "{told:?}\nshould begin with {start}");
    }
    assert_eq!(upstream.asked(), 0);
}

#[test]
fn a_certificate_is_for_the_name_of_all_or_of_one_or_for_the_address() {
    let authority = Authority::new("names");
    let named = authority.server("dns.example", false).answers(good);
    let addressed = authority.server("127.0.0.1", false).answers(good);
    let ca = format!("tls {}", authority.ca());
    let with_name = format!("tls://127.0.0.1%dns.example:{}", named.address.port());
    assert_eq!(serve(&with_name, &ca).ask("A a.example"), GOOD);
    assert_eq!(serve(&format!("tls://{}", addressed.address), &ca).ask("A a.example"), GOOD);
    // Both in one, each by its own.
    let both = serve(&format!("{with_name} tls://{}", addressed.address), &format!("{ca}\n policy round_robin"));
    for _ in 0..4 {
        assert_eq!(both.ask("A a.example"), GOOD);
    }
    assert_eq!((named.asked(), addressed.asked()), (3, 3));
    assert_eq!(
        refused(&format!(".:53 {{\n forward . {with_name} {{\n {ca}\n tls_servername dns.example\n }}\n}}")),
        format!(
            "Corefile:2:2: error: 127.0.0.1:{} has the name dns.example and, by `tls_servername`, dns.example; write one of them",
            named.address.port()
        )
    );
}

#[test]
fn who_wants_to_know_us_is_shown_our_certificate() {
    let authority = Authority::new("client");
    let upstream = authority.server("dns.example", true).answers(good);
    let files = authority.files("namewall.example");
    let to = format!("tls://127.0.0.1%dns.example:{}", upstream.address.port());
    let live = serve(&to, &format!("tls {files} {}", authority.ca()));
    assert_eq!(live.ask("A a.example"), GOOD);
    let live = serve(&to, &format!("tls {}", authority.ca()));
    assert_eq!(live.ask("A a.example"), "SERVFAIL");
    assert_eq!(upstream.asked(), 1);
}

#[test]
fn what_is_wrong_with_certificates_is_said_at_the_start() {
    let authority = Authority::new("files");
    let ca = authority.ca();
    let mine = authority.files("mine.example");
    let other = authority.files("other.example");
    let (certificate, key) = (mine.split(' ').next().unwrap(), other.split(' ').nth(1).unwrap());
    for (tls, why) in [
        ("/no/such/ca.pem".to_owned(), "cannot read /no/such/ca.pem: No such file".to_owned()),
        (key.to_owned(), format!("{key} has no certificate in PEM")),
        (format!("{certificate} {key} {ca}"), format!("{certificate} cannot be used with {key}: ")),
        (format!("{certificate} {certificate} {ca}"), format!("{certificate} has no private key in PEM")),
    ] {
        let told = refused(&format!(".:53 {{\n forward . tls://192.0.2.53 {{\n tls {tls}\n }}\n}}"));
        assert!(told.starts_with(&format!("Corefile:2:2: error: {why}")), "{told}");
    }
}

#[test]
fn over_tls_and_without_can_stand_side_by_side() {
    let authority = Authority::new("mixed");
    let dumb = authority.server("dns.example", false).answers(|_| Vec::new());
    let plain = Upstream::new(|query| vec![answer(query, &["@ 30 A 192.0.2.1"])]);
    let to = format!("tls://127.0.0.1%dns.example:{} {}", dumb.address.port(), plain.address);
    let live = serve(&to, &format!("tls {}\n policy sequential", authority.ca()));
    assert_eq!(live.ask("A a.example"), GOOD, "the other is asked if one is mute");
    assert!(dumb.asked() >= 1);
}

#[test]
fn a_connection_with_nobody_at_its_end_is_given_up() {
    let authority = Authority::new("dead");
    let upstream = authority.server("dns.example", false).answers(good);
    let live = trusting(&authority, &upstream, "max_fails 0");
    assert_eq!(live.ask("A a.example"), GOOD);
    let upstream = upstream.answers(|_| Vec::new());
    let ask = Ask::from("A a.example id 7");
    let socket = live.socket(&ask, 0);
    socket.send(&ask.query).unwrap();
    // It is asked anew, over another connection, and answered there.
    eventually(|| upstream.asked() == 2);
    let upstream = upstream.answers(good);
    assert!(receive(&socket).is_some());
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn a_server_that_hangs_up_all_the_time_loses_nobody_an_answer() {
    let authority = Authority::new("hangs-up");
    let upstream = authority.server("dns.example", false).answers(good);
    let live = trusting(&authority, &upstream, "max_fails 0");
    let got = AtomicUsize::new(0);
    // Questions go on until the upstream has hung up often enough: a busy machine may answer many between two looks.
    let start = Instant::now();
    let is_enough = |asked: usize| asked >= 100 && upstream.connections() > 3 || start.elapsed() > TEST_TIMEOUT;
    let ask = |client: usize| {
        for asked in (0..).take_while(|asked| !is_enough(*asked)) {
            assert_eq!(live.ask(&format!("A a.example id {}", client * 100 + asked % 100)), GOOD);
            got.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let ask = &ask;
        let asking: Vec<_> = (0..4).map(|client| scope.spawn(move || ask(client))).collect();
        let mut before = 0;
        while asking.iter().any(|one| !one.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
            // Every connection is good for something, and then ends amid what else was asked. What arrived is
            // counted and not what was asked: hanging up may take back answers that were not read yet.
            let now = got.load(Ordering::Relaxed);
            if now >= before + 10 {
                before = now;
                upstream.hang_up();
            }
        }
    });
    assert!(upstream.connections() > 3, "{}", upstream.connections());
}

#[test]
fn who_is_asked_over_tls_is_checked_over_tls() {
    let authority = Authority::new("checked");
    let upstream = authority.server("dns.example", false).answers(|_| Vec::new());
    let live = trusting(&authority, &upstream, "health_check 50ms\n max_fails 2");
    let is_up = || live.server.upstreams().first().is_none_or(|one| one.is_up);
    assert_eq!(live.ask("A a.example"), "SERVFAIL");
    eventually(|| !is_up());
    let upstream = upstream.answers(good);
    eventually(is_up);
    assert_eq!(live.ask("A a.example"), GOOD);
    assert!(upstream.connections() >= 1);
}
