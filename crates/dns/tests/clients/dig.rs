//! BIND's dig.

use crate::program::{ALIKE, Fixture, of_www, only_v4, run};
use crate::zone::MANY;

fn dig(fixture: &Fixture, arguments: &[&str]) -> String {
    let port = fixture.port();
    run("dig", &[&["@127.0.0.1", "-p", &port, "+tries=1", "+time=5"], arguments].concat())
}

#[test]
fn addresses_by_udp_and_tcp_with_and_without_edns() {
    let fixture = Fixture::new();
    let own: [&[&str]; 7] = [
        &["+tcp", "+noedns"],
        &["+dnssec", "+cdflag", "+adflag"],
        &["+nocookie"],
        &["+subnet=198.51.100.0/24"],
        &["+padding=128"],
        &["+nsid"],
        &["+tcp", "+keepalive"],
    ];
    for options in ALIKE.into_iter().chain(own) {
        let said = dig(&fixture, &[&["+short", "www.shop.example", "A"], options].concat());
        assert_eq!(fixture.addresses(&said), only_v4(of_www()), "{options:?}");
        let said = dig(&fixture, &[&["+short", "alias.shop.example", "AAAA"], options].concat());
        assert_eq!(said, "www.shop.example.\n2001:db8::1\n", "{options:?}");
        fixture.addresses(&said);
    }
}

#[test]
fn a_truncated_answer_is_asked_for_again_over_tcp() {
    let fixture = Fixture::new();
    for options in [&[][..], &["+noedns"], &["+bufsize=1232"]] {
        let said = dig(&fixture, &[&["large.shop.example", "A"], options].concat());
        assert!(said.contains("Truncated, retrying in TCP mode"), "{said}");
        assert_eq!(fixture.addresses(&said).len(), MANY as usize);
    }
    // Who ignores it has what fitted, and that is open.
    let said = dig(&fixture, &["+short", "+ignore", "+noedns", "large.shop.example", "A"]);
    assert!((1..MANY as usize).contains(&fixture.addresses(&said).len()));
}

#[test]
fn the_case_of_a_name_comes_back() {
    let fixture = Fixture::new();
    let said = dig(&fixture, &["wWw.ShOp.ExAmPlE", "A"]);
    assert!(said.contains(";wWw.ShOp.ExAmPlE.\t"), "{said}");
    assert_eq!(said.matches("wWw.ShOp.ExAmPlE.").count(), 3, "as asked, in the question and both answers: {said}");
    assert!(said.contains("ANSWER: 2"), "{said}");
}

#[test]
fn what_there_is_not() {
    let fixture = Fixture::new();
    let said = dig(&fixture, &["missing.shop.example", "A"]);
    assert!(said.contains("status: NXDOMAIN") && said.contains("SOA"), "{said}");
    let said = dig(&fixture, &["www.shop.example", "TYPE65280"]);
    assert!(said.contains("status: NOERROR") && said.contains("ANSWER: 0"), "{said}");
    let said = dig(&fixture, &["+opcode=update", "www.shop.example", "SOA"]);
    assert!(said.contains("status: NOTIMP"), "{said}");
}

/// dig complains in words where a message is not as it should be; ours gives it no reason.
#[test]
fn nothing_is_to_be_warned_of() {
    let fixture = Fixture::new();
    for options in [&["www.shop.example"][..], &["+tcp", "alias.shop.example"], &["+dnssec", "missing.shop.example"]] {
        let said = dig(&fixture, options);
        assert!(!said.contains("WARNING") && !said.contains("Warning") && !said.contains("malformed"), "{said}");
    }
}

#[test]
fn many_questions_over_one_connection() {
    let fixture = Fixture::new();
    let said =
        dig(&fixture, &["+tcp", "+keepopen", "+short", "www.shop.example", "alias.shop.example", "www.shop.example"]);
    assert_eq!(fixture.addresses(&said), only_v4(of_www()));
    assert_eq!(fixture.server.counters().connections, 1);
}
