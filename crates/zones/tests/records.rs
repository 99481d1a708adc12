//! Records of every kind of data: their text gives the bytes that the type's RFC says, and bad text an error that
//! shows what is expected.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use namewall_zones::{Zone, parse_one};

fn data(text: &str) -> Vec<u8> {
    parse_one(&format!("www.example. 60 IN {text}")).unwrap_or_else(|error| panic!("{text}: {error}")).data
}

fn error(text: &str) -> String {
    parse_one(&format!("www.example. 60 IN {text}")).expect_err(text)
}

#[test]
fn types_that_dns_firewalls_care_about_are_read() {
    assert_eq!(data("DS 60485 5 1 2BB183AF5F22588179A53B0A98631FAD1A292118")[..4], [0xec, 0x45, 5, 1]);
    assert_eq!(data("SSHFP 4 2 0123456789abcdef"), [4, 2, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
    assert_eq!(data("TLSA 3 1 1 00ff"), [3, 1, 1, 0, 0xff]);
    assert_eq!(data("HINFO amd64 \"Linux 6\""), b"\x05amd64\x07Linux 6");
    assert_eq!(data("CAA 0 issue \"ca.example\""), b"\x00\x05issueca.example");
    assert_eq!(data("DNAME other.example."), b"\x05other\x07example\0");
    assert_eq!(
        data("NAPTR 10 20 \"u\" \"E2U+sip\" \"!^.*$!sip:a@b.example!\" ."),
        b"\x00\x0a\x00\x14\x01u\x07E2U+sip\x16!^.*$!sip:a@b.example!\0"
    );
    // RFC 9460: priority, target, then `alpn` (1) and `port` (3).
    assert_eq!(
        data("HTTPS 1 . alpn=h2 port=8443"),
        [&[0, 1, 0][..], &[0, 1, 0, 3, 2, b'h', b'2'], &[0, 3, 0, 2, 0x20, 0xfb]].concat()
    );
    assert_eq!(data("TYPE65280 \\# 2 00ff"), [0, 0xff]);
    assert_eq!(data("A \\# 4 C0000201"), [192, 0, 2, 1]);
}

#[test]
fn texts_keep_their_bytes() {
    assert_eq!(data("TXT \"a b\" c"), b"\x03a b\x01c");
    assert_eq!(data("TXT \"ä\" \\228 \"\\\"\" a\\;b"), [&[2, 0xc3, 0xa4, 1, 228, 1, b'"'][..], b"\x03a;b"].concat());
    let longest = "x".repeat(255);
    assert_eq!(data(&format!("TXT {longest}")).len(), 256);
    assert!(error(&format!("TXT {longest}x")).contains("TEXT…"));
}

/// A `\` at the end of a line would join two words.
#[test]
fn a_word_does_not_end_within_an_escape() {
    assert_eq!(error("TXT ( a\\\nb )"), "`a\\` ends within an escape");
    assert_eq!(error("TXT a\\"), "`a\\` ends within an escape");
    assert_eq!(data("TXT a\\\\ b"), b"\x02a\\\x01b");
}

#[test]
fn an_soa_has_times_with_units() {
    let times = data("SOA ns.example. mail.example. 7 1h 30m 2w1d 90");
    let numbers: Vec<u32> =
        times[times.len() - 20..].chunks(4).map(|n| u32::from_be_bytes(n.try_into().unwrap())).collect();
    assert_eq!(numbers, [7, 3_600, 1_800, 1_296_000, 90]);
}

#[test]
fn relative_names_in_data_are_under_the_origin() {
    let text =
        "$ORIGIN example.\n@ 60 IN SOA ns mail 1 2 3 4 5\n@ IN MX 10 mail\n$ORIGIN sub.example.\n@ IN MX 20 mail\n";
    let zone = Zone::read("example.", text).unwrap();
    let ask = |name: &[u8]| {
        let name = namewall_dns::wire::Name::read(name, 0).unwrap().0;
        zone.answer(&name, namewall_dns::wire::RecordType(15)).unwrap().answer[0].data.clone()
    };
    assert_eq!(ask(b"\x07example\0"), b"\x00\x0a\x04mail\x07example\0");
    assert_eq!(ask(b"\x03sub\x07example\0"), b"\x00\x14\x04mail\x03sub\x07example\0");
}

#[test]
fn an_error_shows_the_form_that_is_read() {
    assert!(error("MX mail").starts_with("MX takes `PREFERENCE NAME`, not `mail`"));
    assert!(error("A 192.0.2.1 192.0.2.2").starts_with("A takes `IPV4-ADDRESS`, not `192.0.2.1 192.0.2.2`"));
    assert!(error("A 192.0.2").starts_with("A takes `IPV4-ADDRESS`, not `192.0.2`"));
    assert!(error("TXT").starts_with("TXT takes `TEXT…`, and nothing follows it"));
    assert!(error("TYPE65280 00ff").contains("`\\# LENGTH HEXADECIMAL…`"));
    assert!(error("TYPE65280 \\# 3 00ff").contains("as many pairs of hexadecimal digits"));
    assert!(error("BOGUS x").starts_with("`BOGUS` is no type of record"));
    assert!(error("AXFR x").starts_with("`AXFR` is no type that a record in a zone has"));
    assert!(error("SOA ns mail 1 2 3 4 never").starts_with("`never` is no TTL"));
}
