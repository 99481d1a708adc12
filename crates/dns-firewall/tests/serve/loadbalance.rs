//! `loadbalance`: the addresses of an answer change places, and nothing else does.

use crate::support::{Ask, Firewall, answer};
use namewall_dns::wire::{Section, records};
use namewall_dns::{Chain, Heard, Passing, Step, Transport};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Instant;

const BALANCED: &str = ".:53 {
    forward . 192.0.2.53
    loadbalance
}";

/// The bytes that the client gets.
fn given(firewall: &Firewall, ask: &Ask, lines: &[&str]) -> Vec<u8> {
    let upstream = SocketAddr::from(([192, 0, 2, 53], 53));
    let bytes = answer(&ask.query, lines);
    match firewall.service.query(&ask.asked()) {
        Step::Forward(_, continuation) => {
            let heard = Heard { upstream, since: Instant::now(), transport: Transport::Udp, answer: &bytes };
            match continuation.answer(&heard) {
                Passing::Pass => bytes,
                Passing::Answer(answer) => answer,
                other => panic!("it passes, not {other:?}"),
            }
        }
        Step::Answer(answer) => answer,
        other => panic!("it is answered, not {other:?}"),
    }
}

fn addresses(message: &[u8]) -> Vec<String> {
    let all = records(message).unwrap();
    all.iter().filter_map(|record| record.address()).map(|address| address.to_string()).collect()
}

#[test]
fn every_address_comes_first_sometimes() {
    let lines =
        ["@ 30 CNAME b.example", "b.example 30 A 192.0.2.1", "b.example 30 A 192.0.2.2", "b.example 30 A 192.0.2.3"];
    let firewall = Firewall::new(BALANCED);
    let ask = Ask::from("A a.example");
    let mut first = BTreeSet::new();
    // The chance that one of three never comes first in 200 shuffles is below 1 in 10^34.
    for _ in 0..200 {
        let message = given(&firewall, &ask, &lines);
        let all = addresses(&message);
        assert_eq!(all.iter().cloned().collect::<BTreeSet<_>>().len(), 3, "none is lost or doubled: {all:?}");
        assert_eq!(records(&message).unwrap()[0].kind.to_string(), "CNAME", "the alias stays where it is");
        first.insert(all[0].clone());
    }
    assert_eq!(first.len(), 3);
}

#[test]
fn addresses_keep_their_ttl_and_their_owner() {
    let lines =
        ["a.example 10 A 192.0.2.1", "a.example 20 A 192.0.2.2", "c.example 30 A 192.0.2.3", "@ 40 AAAA 2001:db8::1"];
    let firewall = Firewall::new(BALANCED);
    let ask = Ask::from("ANY a.example");
    let all = |message: &[u8]| -> BTreeSet<(u32, String)> {
        let records = records(message).unwrap();
        let answers = records.iter().filter(|record| record.section == Section::Answer);
        answers.map(|record| (record.ttl, record.address().unwrap().to_string())).collect()
    };
    let before = all(&answer(&ask.query, &lines));
    for _ in 0..50 {
        let message = given(&firewall, &ask, &lines);
        assert_eq!(all(&message), before);
        assert_eq!(
            addresses(&message)[2..],
            ["192.0.2.3", "2001:db8::1"],
            "of other names and types there is one each"
        );
    }
}

#[test]
fn answers_of_hosts_and_of_the_cache_change_places_too() {
    let firewall = Firewall::new(
        ".:53 {
            hosts /dev/null {
                192.0.2.1 a.example
                192.0.2.2 a.example
                fallthrough
            }
            cache
            forward . 192.0.2.53
            loadbalance
        }",
    );
    for name in ["A a.example", "A b.example"] {
        let ask = Ask::from(name);
        let lines = ["@ 300 A 192.0.2.3", "@ 300 A 192.0.2.4"];
        let first: BTreeSet<String> = (0..200).map(|_| addresses(&given(&firewall, &ask, &lines))[0].clone()).collect();
        assert_eq!(first.len(), 2, "{name}");
    }
}

#[test]
fn without_it_an_answer_stays_as_it_is() {
    let firewall = Firewall::new(".:53 {\n forward . 192.0.2.53\n}");
    let answer = firewall.exchange("A a.example", &["@ 30 A 192.0.2.1", "@ 30 A 192.0.2.2"]);
    assert_eq!(answer, "pass");
}
