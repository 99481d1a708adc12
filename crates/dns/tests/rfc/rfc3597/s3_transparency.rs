//! RFC 3597 §3: what a type nobody knows holds is bytes, and passes untouched.

use crate::check::{check, says};
use crate::message::{Packing, written};
use crate::stub::Recorder;
use crate::stub::{Client, Upstream, query, serve, settings};
use std::sync::Arc;

#[test]
fn records_of_unknown_types_are_passed_over() {
    let records = [
        "www.example 60 TYPE65280 \\# 4 c0000263",
        "www.example 60 A 192.0.2.1",
        "www.example 60 TYPE46 \\# 0",
        "www.example 60 TYPE65535 \\# 3 c0ffee",
        "www.example 60 A 192.0.2.2",
        "other.example 60 TYPE99 \\# 1 00",
    ];
    check("www.example A", &records, "192.0.2.1 60s, 192.0.2.2 60s");
    check("www.example TYPE65280", &records, "nothing");
}

#[test]
fn an_unknown_class_is_not_the_internet() {
    check("www.example A", &["www.example 60 CLASS32 A 192.0.2.1"], "nothing");
}

#[test]
fn the_server_passes_every_type_and_class_both_ways() {
    let unknown = "www.example 60 CLASS32 TYPE731 \\# 6 abcdef012345";
    let upstream = Upstream::new(move |asked| {
        let mut answer = written("www.example TYPE731 CLASS32", &[unknown], Packing::Plain);
        answer[..2].copy_from_slice(&asked[..2]);
        vec![answer]
    });
    let server = serve(settings(&[&upstream]), Arc::new(Recorder::default()));
    let mut asked = query(0x1234, "www.example");
    let end = asked.len();
    asked[end - 4..].copy_from_slice(&[731_u16.to_be_bytes(), 32_u16.to_be_bytes()].concat());
    let expected = written("www.example TYPE731 CLASS32", &[unknown], Packing::Plain);
    assert_eq!(Client::of(&server).ask(&asked).unwrap(), expected);
    assert_eq!(server.counters().unreadable, 0);
}

/// HTTPS and SVCB (RFC 9460) hint at addresses. A client may connect to them before it has asked for
/// any; they are not learned, for no A or AAAA says them.
#[test]
fn hints_are_no_addresses() {
    let hint = "www.example 60 TYPE65 \\# 11 0001000004000 4c0000201";
    let message = written("www.example TYPE65", &[&hint.replace(" 4c", "4c")], Packing::Plain);
    assert_eq!(says(&message), "nothing");
}
