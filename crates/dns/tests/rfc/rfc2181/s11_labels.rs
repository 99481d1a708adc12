//! RFC 2181 §11: any bytes may be a label. Few of them are a name a policy can write (S5.2).

use crate::check::check;
use crate::message::{Packing, name, written};
use crate::stub::{Client, Upstream, plain, serve, settings};
use namewall_dns::wire::{Name, addresses};

fn domain(text: &str) -> Option<String> {
    let (read, _) = Name::read(&name(text), 0).unwrap();
    read.to_domain().map(|domain| domain.to_string())
}

#[test]
fn a_dot_in_a_label_never_looks_like_two_labels() {
    check("www\\.shop.example A", &["www\\.shop.example 60 A 192.0.2.1"], "192.0.2.1 60s");
    check("www\\.shop.example A", &["www.shop.example 60 A 192.0.2.1"], "nothing, 1 foreign");
    check("www.shop.example A", &["www\\.shop.example 60 A 192.0.2.1"], "nothing, 1 foreign");
    let alias = ["a.example 60 CNAME b\\.c.example", "b.c.example 60 A 192.0.2.1"];
    check("a.example A", &alias, "nothing via b\\.c.example, 1 foreign");
    assert_eq!(domain("www\\.shop.example"), None);
    assert_eq!(domain("www.shop.example"), Some("www.shop.example".to_owned()));
}

#[test]
fn a_nul_ends_no_name() {
    check("www\\000.example A", &["www\\000.example 60 A 192.0.2.1"], "192.0.2.1 60s");
    check("www.example A", &["www\\000.example 60 A 192.0.2.1"], "nothing, 1 foreign");
    check("www.example A", &["www\\000evil.example 60 A 192.0.2.1"], "nothing, 1 foreign");
    assert_eq!(domain("www\\000.example"), None);
    assert_eq!(domain("www.example\\000.evil"), None);
}

#[test]
fn only_what_a_policy_can_write_is_a_domain() {
    assert_eq!(domain("WWW.Example"), Some("www.example".to_owned()));
    assert_eq!(domain("_dmarc.a-b.example"), Some("_dmarc.a-b.example".to_owned()));
    for odd in [".", "*.example", "a\\032b.example", "a\\@b.example", "\\195\\169.example", "-a.example", "a-.example"]
    {
        assert_eq!(domain(odd), None, "{odd}");
    }
    // Four labels that read as an address are no name.
    assert_eq!(domain("192.0.2.1"), None);
    assert_eq!(domain("192\\.0\\.2\\.1"), None);
}

#[test]
fn every_byte_may_be_asked_for_and_comes_back() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = serve(settings(&[&upstream]), plain());
    let client = Client::of(&server);
    for byte in 0..=255_u8 {
        let label = format!("\\{byte:03}.example");
        let mut asked = written(&format!("{label} A"), &[], Packing::Plain);
        asked[2] &= 0x7f;
        let reply = client.ask(&asked).unwrap();
        let read = addresses(&reply).unwrap();
        assert_eq!(read.addresses.len(), 1, "{byte}");
        let labels: Vec<&[u8]> = read.question.name.labels().collect();
        assert_eq!(labels, [&[byte.to_ascii_lowercase()][..], b"example"]);
    }
}

/// A name is shown as a zone file would have it, so two never look alike.
#[test]
fn names_are_shown_with_their_odd_bytes() {
    let shown = |text: &str| Name::read(&name(text), 0).unwrap().0.to_string();
    assert_eq!(shown("Www.Example"), "www.example");
    assert_eq!(shown("a\\.b\\\\c.d\\000\\032\\255"), "a\\.b\\\\c.d\\000\\032\\255");
    assert_eq!(shown("."), ".");
}
