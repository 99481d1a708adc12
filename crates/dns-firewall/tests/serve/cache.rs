//! What is answered again, to whom, and for how long.

use crate::stub::on_schedule;
use crate::support::{Ask, Firewall, answer, shown};
use namewall_dns::{Chain, Step};
use std::time::Duration;

fn caching(options: &str) -> Firewall {
    Firewall::new(&format!(".:53 {{\n cache {options}\n forward . 192.0.2.53\n}}"))
}

const ONE: &[&str] = &["@ 300 A 192.0.2.1"];

#[test]
fn an_answer_is_given_again() {
    let firewall = caching("");
    assert_eq!(firewall.exchange("A a.example", ONE), "pass");
    let again = "answer NOERROR; a.example. 300 A 192.0.2.1";
    assert_eq!(firewall.ask("A a.example id 7 from 10.0.0.9"), again);
    assert_eq!(firewall.ask("A a.example tcp"), again);
    // Not to other questions.
    for other in ["AAAA a.example", "A b.example", "A a.example CH", "A a.example cd", r"A a\.example"] {
        assert_eq!(firewall.ask(other), "route 0", "{other}");
    }
}

#[test]
fn who_may_not_ask_gets_nothing_from_the_cache() {
    let firewall = Firewall::new(
        ".:53 {
            cache
            forward . 192.0.2.53
            firewall query {
                refuse client_ip == '10.0.0.2'
                drop client_ip == '10.0.0.3'
                default allow
            }
        }",
    );
    assert_eq!(firewall.exchange("A a.example from 10.0.0.1", ONE), "pass");
    assert_eq!(firewall.ask("A a.example from 10.0.0.1"), "answer NOERROR; a.example. 300 A 192.0.2.1");
    assert_eq!(firewall.ask("A a.example from 10.0.0.2"), "REFUSED");
    assert_eq!(firewall.ask("A a.example from 10.0.0.3"), "silence");
}

#[test]
fn who_may_not_have_an_answer_does_not_get_it_from_the_cache() {
    let firewall = Firewall::new(
        ".:53 {
            cache
            forward . 192.0.2.53
            firewall response {
                refuse client_ip == '10.0.0.2' and in-cidr(response_ip, 192.0.2.0/24)
                drop client_ip == '10.0.0.3'
                default allow
            }
        }",
    );
    assert_eq!(firewall.exchange("A a.example from 10.0.0.1", ONE), "pass");
    assert_eq!(firewall.ask("A a.example from 10.0.0.2"), "REFUSED");
    assert_eq!(firewall.ask("A a.example from 10.0.0.3"), "silence");
    // And the other way round: what was denied to one is there for another.
    assert_eq!(firewall.exchange("A b.example from 10.0.0.2", ONE), "REFUSED");
    assert_eq!(firewall.ask("A b.example from 10.0.0.1"), "answer NOERROR; b.example. 300 A 192.0.2.1");
}

#[test]
fn letters_are_as_they_were_asked() {
    let firewall = caching("");
    assert_eq!(firewall.exchange("A www.example", ONE), "pass");
    let ask = Ask::from("A wWw.eXaMpLe id 99");
    let Step::Answer(again) = firewall.service.query(&ask.asked()) else { panic!("it is in the cache") };
    assert_eq!(again[..2], ask.query[..2], "the id is its client's");
    assert_eq!(again[12..ask.query.len()], ask.query[12..], "the question is as it was asked, letter by letter");
}

#[test]
fn ttls_count_down_and_end() {
    on_schedule(Duration::from_millis(3500), || {
        let firewall = caching("3");
        let lines = ["@ 300 CNAME b.example", "b.example 2 A 192.0.2.1", "additional c.example 9 A 192.0.2.2"];
        assert_eq!(
            firewall.exchange("A a.example", &lines),
            "answer NOERROR; a.example. 3 CNAME b.example.; b.example. 2 A 192.0.2.1; additional c.example. 3 A 192.0.2.2"
        );
        let kept = caching("3 {\n keepttl\n }");
        assert_eq!(kept.exchange("A a.example", &lines), "pass");
        std::thread::sleep(Duration::from_millis(1_100));
        assert_eq!(
            firewall.ask("A a.example"),
            "answer NOERROR; a.example. 2 CNAME b.example.; b.example. 1 A 192.0.2.1; additional c.example. 2 A 192.0.2.2"
        );
        assert!(kept.ask("A a.example").starts_with("answer NOERROR; a.example. 300 CNAME b.example.; b.example. 2 A"));
        std::thread::sleep(Duration::from_millis(2_000));
        assert_eq!(firewall.ask("A a.example"), "route 0", "it lasted three seconds");
        assert_eq!(kept.ask("A a.example"), "route 0");
    });
}

#[test]
fn a_ttl_with_the_highest_bit_set_is_none() {
    // RFC 2181 §8. What may not be kept at all is kept for the least time that is set.
    let firewall = caching("{\n success 100 3600 0\n }");
    assert_eq!(firewall.exchange("A a.example", &["@ 4294967295 A 192.0.2.1"]), "pass");
    assert_eq!(firewall.ask("A a.example"), "route 0");
    assert_eq!(firewall.exchange("A a.example", &["@ 0 A 192.0.2.1"]), "pass");
    assert_eq!(firewall.ask("A a.example"), "route 0");
}

#[test]
fn clients_with_and_without_edns_are_answered_apart() {
    let firewall = caching("");
    assert_eq!(firewall.exchange("A a.example edns", &["@ 300 A 192.0.2.1", "edns"]), "pass");
    assert_eq!(firewall.ask("A a.example edns"), "answer NOERROR; a.example. 300 A 192.0.2.1; edns");
    // RFC 6891 §7: who does not speak it is not answered with it.
    assert_eq!(firewall.ask("A a.example"), "route 0");
    // Signatures are for whom asked for them.
    assert_eq!(firewall.ask("A a.example do"), "route 0");
    let signed = ["@ 300 A 192.0.2.1", "@ 300 RRSIG \\# 00", "edns"];
    assert_eq!(firewall.exchange("A a.example do", &signed), "pass");
    assert_eq!(
        firewall.ask("A a.example do"),
        "answer NOERROR; a.example. 300 A 192.0.2.1; a.example. 300 RRSIG of 1 bytes; edns"
    );
    assert_eq!(firewall.ask("A a.example edns"), "answer NOERROR; a.example. 300 A 192.0.2.1; edns");
}

#[test]
fn answers_for_one_client_are_not_for_others() {
    let firewall = caching("");
    // RFC 7871: the answer is for a subnet.
    assert_eq!(firewall.exchange("A a.example 0x0008=x:00011800c00002", &["@ 300 A 192.0.2.1", "edns"]), "pass");
    assert_eq!(firewall.ask("A a.example edns"), "route 0");
    assert_eq!(firewall.exchange("A a.example edns", &["@ 300 A 192.0.2.2", "edns"]), "pass");
    assert_eq!(firewall.ask("A a.example 0x0008=x:00011800c00002"), "route 0");
    // RFC 7873: so is a cookie.
    assert_eq!(firewall.exchange("A b.example 0x000a=x:0102030405060708", &["@ 300 A 192.0.2.1", "cookie"]), "pass");
    assert_eq!(firewall.ask("A b.example edns"), "route 0");
}

#[test]
fn denials_last_as_long_as_their_soa_says() {
    on_schedule(Duration::from_millis(1500), || {
        let soa = "authority example 1 SOA 300";
        let minimum = "authority example 300 SOA 1";
        let kept = [
            ("NXDOMAIN, by its TTL", vec!["NXDOMAIN", soa]),
            ("NXDOMAIN, by its minimum", vec!["NXDOMAIN", minimum]),
            ("no data, by its TTL", vec![soa]),
            ("no data, by its minimum", vec![minimum]),
            // Behind an alias, which itself lasts longer.
            ("NXDOMAIN behind an alias", vec!["@ 300 CNAME b.example", "NXDOMAIN", minimum]),
            ("no data behind an alias", vec!["@ 300 CNAME b.example", minimum]),
        ]
        .map(|(what, lines)| {
            let firewall = caching("{\n success 100 3600 0\n denial 100 3600 0\n }");
            let given = firewall.exchange("AAAA a.example", &lines);
            assert!(given == "pass" || given.contains(" 1 SOA "), "{what}: {given}");
            assert!(firewall.ask("AAAA a.example").starts_with("answer N"), "{what} is kept");
            (what, firewall)
        });
        std::thread::sleep(Duration::from_millis(1_050));
        for (what, firewall) in kept {
            assert_eq!(firewall.ask("AAAA a.example"), "route 0", "{what} for a second");
        }
    });
}

#[test]
fn what_is_no_answer_is_not_kept() {
    for lines in [
        vec!["NXDOMAIN"],
        vec![],
        vec!["REFUSED"],
        vec!["tc"],
        vec!["tc", "@ 300 A 192.0.2.1"],
        vec!["authority example 300 NS ns.example"],
    ] {
        let firewall = caching("");
        assert_eq!(firewall.exchange("A a.example", &lines), "pass");
        assert_eq!(firewall.ask("A a.example"), "route 0", "{lines:?}");
    }
    // What is malformed is nobody's answer.
    let (firewall, ask) = (caching(""), Ask::from("A a.example"));
    let whole = answer(&ask.query, ONE);
    firewall.exchange_bytes(&ask, &whole[..whole.len() - 1]);
    assert_eq!(firewall.ask("A a.example"), "route 0");
}

#[test]
fn zones_say_what_is_kept() {
    let firewall =
        caching("60 example.com {\n disable success no.example.com\n disable denial nothing.example.com\n }");
    let keeps = |question: &str, lines: &[&str]| {
        let given = firewall.exchange(question, lines);
        let is_kept = firewall.ask(question) != "route 0";
        // What is kept for a minute is given for a minute from the first time on.
        assert_eq!(given.starts_with("answer NOERROR; "), is_kept, "{given}");
        is_kept
    };
    let soa = "authority example.com 300 SOA 300";
    assert!(keeps("A a.example.com", ONE));
    assert!(!keeps("A a.example.org", ONE) && !keeps("A notexample.com", ONE));
    assert!(!keeps("A a.no.example.com", ONE));
    // With the SOA of its zone it is no denial.
    assert!(!keeps("A b.no.example.com", &["@ 300 A 192.0.2.1", soa]));
    assert!(keeps("AAAA a.no.example.com", &[soa]));
    assert!(!keeps("AAAA a.nothing.example.com", &[soa]) && keeps("A a.nothing.example.com", ONE));
}

#[test]
fn no_more_is_kept_than_was_said() {
    for capacity in [0usize, 1, 10] {
        let firewall = caching(&format!("{{\n success {capacity}\n }}"));
        for at in 0..50 {
            assert_eq!(firewall.exchange(&format!("A n{at}.example"), ONE), "pass");
        }
        let kept = (0..50).filter(|at| firewall.ask(&format!("A n{at}.example")) != "route 0").count();
        assert_eq!(kept, capacity);
        assert!(capacity == 0 || firewall.ask("A n49.example") != "route 0", "the last is among them");
    }
}

#[test]
fn the_least_and_the_longest_time_are_kept_to() {
    let firewall = caching("{\n success 100 7 5\n }");
    let seven = "answer NOERROR; a.example. 7 A 192.0.2.1";
    assert_eq!(firewall.exchange("A a.example", &["@ 300 A 192.0.2.1"]), seven);
    assert_eq!(firewall.ask("A a.example"), seven);
    // Kept for five seconds, but nobody is told that it lasts longer than it does.
    assert_eq!(firewall.exchange("A b.example", &["@ 1 A 192.0.2.1"]), "pass");
    assert_eq!(firewall.ask("A b.example"), "answer NOERROR; b.example. 1 A 192.0.2.1");
}

#[test]
fn an_answer_is_kept_byte_for_byte_but_for_what_must_differ() {
    let (firewall, ask) = (caching(""), Ask::from("A a.example edns"));
    let whole = answer(&ask.query, &["@ 300 A 192.0.2.1", "authority example 300 NS ns.example", "edns"]);
    assert_eq!(firewall.exchange_bytes(&ask, &whole), "pass");
    let Step::Answer(again) = firewall.service.query(&ask.asked()) else { panic!("it is in the cache") };
    assert_eq!(again, whole, "{}", shown(&again));
}
