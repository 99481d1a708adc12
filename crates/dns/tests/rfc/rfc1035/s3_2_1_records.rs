//! RFC 1035 §3.2.1 and §3.4.1: a record's class and the length of its data; RFC 3596 §2.2 for AAAA.

use crate::check::{check, says};
use crate::message::{Packing, written};

const DATA: &str = "refused: it is malformed: the data of a record do not fit its type";

#[test]
fn only_the_class_in_counts() {
    check("www.example A", &["www.example 60 CH A 192.0.2.1", "www.example 60 A 192.0.2.2"], "192.0.2.2 60s");
    check("www.example A", &["www.example 60 NONE A 192.0.2.1", "www.example 60 CLASS255 A 192.0.2.1"], "nothing");
    check("www.example A", &["www.example 60 CH CNAME b.example", "b.example 60 A 192.0.2.1"], "nothing, 1 foreign");
    check("www.example A CH", &["www.example 60 CH A 192.0.2.1", "www.example 60 A 192.0.2.1"], "nothing");
}

#[test]
fn s6_1_an_address_has_the_length_of_its_type() {
    for (asked, record) in [
        ("A", "A \\# 0"),
        ("A", "A \\# 3 c00002"),
        ("A", "A \\# 5 c000020100"),
        ("A", "A \\# 16 20010db8000000000000000000000001"),
        ("AAAA", "AAAA \\# 4 c0000201"),
        ("AAAA", "AAAA \\# 15 20010db80000000000000000000000"),
        ("AAAA", "AAAA \\# 17 20010db800000000000000000000000100"),
    ] {
        check(&format!("www.example {asked}"), &[&format!("www.example 60 {record}")], DATA);
    }
    // One bad record spoils the answer: who sends such is not to be believed.
    check("www.example A", &["www.example 60 A 192.0.2.1", "www.example 60 A \\# 3 c00002"], DATA);
}

#[test]
fn a_cname_is_one_name_and_nothing_else() {
    for data in ["\\# 0", "\\# 4 01620000", "\\# 2 0162", "\\# 3 016200", "\\# 1 00"] {
        let records = [&*format!("www.example 60 CNAME {data}"), "b 60 A 192.0.2.1", ". 60 A 192.0.2.2"];
        let said = match data {
            "\\# 3 016200" => "192.0.2.1 60s via b, 1 foreign",
            "\\# 1 00" => "192.0.2.2 60s via ., 1 foreign",
            // The name goes on behind the record's data.
            _ => DATA,
        };
        let message = written("www.example A", &records, Packing::Plain);
        let read = says(&message);
        assert!(read == said || (said == DATA && read.starts_with("refused")), "{data}: {read}");
    }
}

#[test]
fn data_that_end_behind_the_message() {
    let mut message = written("www.example A", &["www.example 60 A 192.0.2.1"], Packing::Plain);
    let length = message.len() - 5;
    message[length] = 5;
    assert_eq!(says(&message), "refused: it is malformed: the message ends too early");
}

#[test]
fn an_ipv4_address_in_ipv6_is_what_it_is() {
    check("www.example AAAA", &["www.example 60 AAAA ::ffff:192.0.2.1"], "::ffff:192.0.2.1 60s");
}
