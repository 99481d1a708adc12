//! RFC 2181 §10.1: a name has one CNAME, and nothing else beside it.

use crate::check::check;

#[test]
fn s6_1_a_name_with_two_aliases_has_no_addresses() {
    let two = "refused: a name in it has two CNAMEs";
    let records = [
        "a.example 60 CNAME b.example",
        "a.example 60 CNAME c.example",
        "b.example 60 A 192.0.2.1",
        "c.example 60 A 192.0.2.2",
    ];
    check("a.example A", &records, two);
    // Wherever on the way it is; elsewhere it is nobody's matter.
    check("0.example A", &[&["0.example 60 CNAME a.example"], &records[..]].concat(), two);
    check("b.example A", &records, "192.0.2.1 60s, 1 foreign");
}

#[test]
fn the_same_alias_twice_is_one_with_the_lower_ttl() {
    let records = ["a.example 60 CNAME b.example", "A.example 30 CNAME B.Example", "b.example 90 A 192.0.2.1"];
    check("a.example A", &records, "192.0.2.1 30s via b.example");
}

/// No zone has it, but some load balancers do. Resolvers take both, so both are open.
#[test]
fn an_address_beside_an_alias_is_the_names_own() {
    let records = ["a.example 60 CNAME b.example", "a.example 90 A 192.0.2.1", "b.example 90 A 192.0.2.2"];
    check("a.example A", &records, "192.0.2.1 90s, 192.0.2.2 60s via b.example");
}
