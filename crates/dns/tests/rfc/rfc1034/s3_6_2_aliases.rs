//! RFC 1034 §3.6.2: a CNAME says that its owner is another name's alias. An
//! address is the question's only over aliases of the same answer (S6.1).

use crate::check::check;

const LONG: &str = "refused: its CNAMEs are a loop, or a chain of more than 16 links";

/// `0.example CNAME 1.example`, and so on, and an address at the end.
fn chain(links: usize) -> Vec<String> {
    let aliases = (0..links).map(|at| format!("{at}.example {} CNAME {}.example", 1000 - at, at + 1));
    aliases.chain([format!("{links}.example 2000 A 192.0.2.1")]).collect()
}

fn lines(records: &[String]) -> Vec<&str> {
    records.iter().map(String::as_str).collect()
}

#[test]
fn s6_1_an_address_of_the_question_itself() {
    check("www.example A", &["www.example 60 A 192.0.2.1"], "192.0.2.1 60s");
    check("www.example AAAA", &["www.example 60 AAAA 2001:db8::1"], "2001:db8::1 60s");
    check(". A", &[". 60 A 192.0.2.1"], "192.0.2.1 60s");
    check("www.example A", &[], "nothing");
}

#[test]
fn s6_1_a_chain_in_any_order() {
    let mut records = [
        "www.shop.example 300 CNAME shop.cdn.example",
        "shop.cdn.example 300 CNAME edge.cdn.example",
        "edge.cdn.example 60 A 192.0.2.1",
        "edge.cdn.example 60 A 192.0.2.2",
    ];
    let all = "192.0.2.1 60s, 192.0.2.2 60s via shop.cdn.example via edge.cdn.example";
    check("www.shop.example A", &records, all);
    records.swap(0, 1);
    check("www.shop.example A", &records, all);
    records.reverse();
    let reversed = "192.0.2.2 60s, 192.0.2.1 60s via shop.cdn.example via edge.cdn.example";
    check("www.shop.example A", &records, reversed);
}

#[test]
fn s6_1_another_owners_address_is_foreign() {
    check("www.example A", &["evil.example 60 A 203.0.113.66"], "nothing, 1 foreign");
    let beside = ["www.example 60 A 192.0.2.1", "evil.example 60 A 203.0.113.66", "www.example 60 A 192.0.2.2"];
    check("www.example A", &beside, "192.0.2.1 60s, 192.0.2.2 60s, 1 foreign");
    // Neither a parent nor a child is the name itself.
    check("www.example A", &["example 60 A 192.0.2.1", "a.www.example 60 A 192.0.2.2"], "nothing, 2 foreign");
    // An alias that nothing leads to, and one that leads past the address.
    let unreached = ["other.example 60 CNAME www.example", "far.example 60 A 203.0.113.66"];
    check("www.example A", &unreached, "nothing, 1 foreign");
    let past = ["www.example 60 CNAME b.example", "c.example 60 A 203.0.113.66"];
    check("www.example A", &past, "nothing via b.example, 1 foreign");
}

#[test]
fn s6_1_sixteen_links_are_followed_and_seventeen_are_not() {
    for links in [1, 15, 16] {
        let aliases: String = (1..=links).map(|at| format!(" via {at}.example")).collect();
        let lowest = 1000 - (links - 1);
        check("0.example A", &lines(&chain(links)), &format!("192.0.2.1 {lowest}s{aliases}"));
        let mut backwards = chain(links);
        backwards.reverse();
        check("0.example A", &lines(&backwards), &format!("192.0.2.1 {lowest}s{aliases}"));
    }
    check("0.example A", &lines(&chain(17)), LONG);
    check("0.example A", &lines(&chain(200)), LONG);
}

#[test]
fn s6_1_a_loop_leases_nothing_not_even_what_is_on_it() {
    check("a.example A", &["a.example 60 CNAME a.example"], LONG);
    let two = ["a.example 60 CNAME b.example", "b.example 60 CNAME a.example", "b.example 60 A 192.0.2.1"];
    check("a.example A", &two, LONG);
    // One that does not lead through the question.
    let behind = ["a.example 60 CNAME b.example", "b.example 60 CNAME c.example", "c.example 60 CNAME b.example"];
    check("a.example A", &behind, LONG);
}

#[test]
fn addresses_of_the_other_family_are_not_what_was_asked_for() {
    let both = ["www.example 60 A 192.0.2.1", "www.example 60 AAAA 2001:db8::1"];
    check("www.example A", &both, "192.0.2.1 60s");
    check("www.example AAAA", &both, "2001:db8::1 60s");
    check("www.example TXT", &both, "nothing");
    check("www.example CNAME", &["www.example 60 CNAME b.example", "b.example 60 A 192.0.2.1"], "nothing");
}

/// RFC 6672 §3.1: a server that knows DNAME also gives the CNAME that follows from it.
#[test]
fn a_dname_leads_nowhere_but_its_cname_does() {
    let with =
        ["old.example 60 DNAME new.example", "w.old.example 0 CNAME w.new.example", "w.new.example 60 A 192.0.2.1"];
    check("w.old.example A", &with, "192.0.2.1 0s via w.new.example");
    check("w.old.example A", &[with[0], with[2]], "nothing, 1 foreign");
}
