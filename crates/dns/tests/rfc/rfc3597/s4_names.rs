//! RFC 3597 §4: names in data of unknown types are not compressed, and not looked for.

use crate::check::check;

#[test]
fn what_looks_like_a_name_in_unknown_data_is_not_followed() {
    // Pointers that lead to themselves, labels without end: nobody reads them.
    for data in ["2 c0ff", "4 3f616161", "1 40", "2 ffff"] {
        let odd = format!("www.example 60 TYPE65280 \\# {data}");
        check("www.example A", &[&odd, "www.example 60 A 192.0.2.1"], "192.0.2.1 60s");
    }
}

#[test]
fn a_dnames_data_is_not_read_either() {
    check("www.example A", &["example 60 DNAME \\# 2 c0ff", "www.example 60 A 192.0.2.1"], "192.0.2.1 60s");
}
