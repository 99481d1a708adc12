//! Knot's kdig.

use crate::program::{ALIKE, Fixture, of_www, only_v4, run};
use crate::zone::MANY;

fn kdig(fixture: &Fixture, arguments: &[&str]) -> String {
    let port = fixture.port();
    run("kdig", &[&["@127.0.0.1", "-p", &port, "+retry=0", "+time=5"], arguments].concat())
}

#[test]
fn addresses_by_udp_and_tcp_with_and_without_edns() {
    let fixture = Fixture::new();
    let own: [&[&str]; 4] = [&["+edns"], &["+dnssec", "+tcp"], &["+cookie"], &["+padding=64"]];
    for options in ALIKE.into_iter().chain(own) {
        let said = kdig(&fixture, &[options, &["+short", "www.shop.example", "A"]].concat());
        assert_eq!(fixture.addresses(&said), only_v4(of_www()), "{options:?}");
        let said = kdig(&fixture, &[options, &["+short", "alias.shop.example", "AAAA"]].concat());
        assert_eq!(said, "www.shop.example.\n2001:db8::1\n", "{options:?}");
        fixture.addresses(&said);
    }
}

#[test]
fn a_truncated_answer_is_asked_for_again_over_tcp() {
    let fixture = Fixture::new();
    let said = kdig(&fixture, &["+short", "large.shop.example", "A"]);
    assert_eq!(fixture.addresses(&said).len(), MANY as usize);
}

#[test]
fn several_questions_over_one_connection() {
    let fixture = Fixture::new();
    let said = kdig(&fixture, &["+tcp", "+keepopen", "+short", "www.shop.example", "alias.shop.example"]);
    assert_eq!(fixture.addresses(&said), only_v4(of_www()));
}

#[test]
fn nothing_is_to_be_warned_of() {
    let fixture = Fixture::new();
    for options in [&["www.shop.example"][..], &["+tcp", "alias.shop.example"], &["+dnssec", "missing.shop.example"]] {
        let said = kdig(&fixture, options);
        assert!(!said.contains("WARNING"), "{said}");
        assert!(said.contains("status: NOERROR") || said.contains("status: NXDOMAIN"), "{said}");
    }
}
