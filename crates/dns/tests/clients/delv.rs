//! BIND's delv, which resolves as a validating resolver would: with DO and CD, and a cache of its own.

use crate::program::{Fixture, of_www, only_v4, run};

/// Nothing here is signed, so nothing is validated.
fn delv(fixture: &Fixture, arguments: &[&str]) -> String {
    let port = fixture.port();
    run("delv", &[&["@127.0.0.1", "-p", &port, "-i", "+short"], arguments].concat())
}

#[test]
fn addresses_over_udp_and_tcp() {
    let fixture = Fixture::new();
    for options in [&[][..], &["+tcp"], &["+nodnssec"], &["+cdflag"]] {
        let said = delv(&fixture, &[&["www.shop.example", "A"], options].concat());
        assert_eq!(fixture.addresses(&said), only_v4(of_www()), "{options:?}");
    }
}

#[test]
fn an_alias_and_a_large_answer() {
    let fixture = Fixture::new();
    let said = delv(&fixture, &["alias.shop.example", "AAAA"]);
    assert_eq!(fixture.addresses(&said).len(), 1, "{said}");
    let said = delv(&fixture, &["large.shop.example", "A"]);
    assert_eq!(fixture.addresses(&said).len(), crate::zone::MANY as usize);
}
