//! RFC 4343 §3: A to Z are as a to z in comparisons, and no other byte is as another.

use crate::check::check;

#[test]
fn names_are_the_same_in_any_case() {
    check("wWw.ExAmPlE A", &["WWW.example 60 A 192.0.2.1"], "192.0.2.1 60s");
    let chain = ["WWW.EXAMPLE 60 CNAME Cdn.Example", "cDN.eXAMPLE 60 A 192.0.2.1"];
    check("www.example A", &chain, "192.0.2.1 60s via cdn.example");
    // A loop is one in any case.
    let looped = "refused: its CNAMEs are a loop, or a chain of more than 16 links";
    check("www.example A", &["www.example 60 CNAME WWW.Example"], looped);
}

#[test]
fn only_ascii_letters_have_a_case() {
    // Pairs that differ in the bit that tells upper from lower case, and are no letters.
    for (one, other) in
        [("\\064", "\\096"), ("[", "{"), ("\\]", "}"), ("^", "~"), ("\\196", "\\228"), ("\\000", "\\032")]
    {
        let owner = format!("a{other}.example 60 A 192.0.2.1");
        check(&format!("a{one}.example A"), &[&owner], "nothing, 1 foreign");
    }
}

/// A length that looks like a letter has no case: 63 is the longest, and A is 65.
#[test]
fn lengths_are_not_letters() {
    let long = "a".repeat(63);
    check(&format!("{long}.example A"), &[&format!("{}.example 60 A 192.0.2.1", long.to_uppercase())], "192.0.2.1 60s");
}
