//! RFC 8482 §4: a server answers ANY with what it likes. What it gives is learned, of both families.

use crate::check::check;

#[test]
fn addresses_of_both_families_are_what_any_asks_for() {
    let all = ["www.example 60 A 192.0.2.1", "www.example 60 TXT text", "www.example 60 AAAA 2001:db8::1"];
    check("www.example ANY", &all, "192.0.2.1 60s, 2001:db8::1 60s");
    let aliased = ["www.example 60 CNAME b.example", "b.example 60 AAAA 2001:db8::1", "c.example 60 A 192.0.2.1"];
    check("www.example ANY", &aliased, "2001:db8::1 60s via b.example, 1 foreign");
}

#[test]
fn the_synthesised_hinfo_opens_nothing() {
    check("www.example ANY", &["www.example 3789 HINFO \\# 9 075246433834383200"], "nothing");
}

#[test]
fn a_subset_is_enough() {
    check("www.example ANY", &["www.example 60 A 192.0.2.1"], "192.0.2.1 60s");
}
