//! RFC 2181 §5.2: the TTLs of one set should be the same; where they are not,
//! every address has its own, and never more than the aliases on the way to it.

use crate::check::check;

#[test]
fn s6_3_the_lowest_ttl_along_the_chain() {
    let aliases = ["a.example 300 CNAME b.example", "b.example 20 CNAME c.example"];
    let said = "192.0.2.1 20s, 192.0.2.2 5s via b.example via c.example";
    check("a.example A", &[aliases[0], aliases[1], "c.example 60 A 192.0.2.1", "c.example 5 A 192.0.2.2"], said);
    let zero = ["a.example 0 CNAME b.example", "b.example 60 A 192.0.2.1"];
    check("a.example A", &zero, "192.0.2.1 0s via b.example");
}

#[test]
fn each_address_of_a_set_has_its_own() {
    check(
        "a.example A",
        &["a.example 300 A 192.0.2.1", "a.example 20 A 192.0.2.2", "a.example 300 A 192.0.2.1"],
        "192.0.2.1 300s, 192.0.2.2 20s, 192.0.2.1 300s",
    );
}
