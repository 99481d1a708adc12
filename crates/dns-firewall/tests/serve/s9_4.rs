//! S9.4: what is not set, what counts as true, and what becomes of errors.

use crate::support::{Firewall, check};

#[test]
fn s9_4_what_is_not_set_is_the_empty_text() {
    for (expression, holds) in [
        ("[kubernetes/client-label/none] == ''", true),
        ("no_such == ''", true),
        ("no_such", false),
        ("!no_such", true),
        ("no_such == 'a'", false),
        ("no_such != 'a'", true),
        ("no_such =~ '^$'", true),
        ("no_such < 5", false),
        ("in-cidr(no_such, 0.0.0.0/0)", false),
        ("under(no_such, '.')", false),
        ("(no_such ?? 'other') == 'other'", true),
        ("no_such in ('a', '')", true),
        ("[kubernetes/client-namespace] == ''", true),
    ] {
        check(
            &format!(
                ".:53 {{\n forward . 192.0.2.53\n request {{\n edns0 0xffed no_such bytes\n }}\n firewall query {{\n allow {expression}\n refuse true\n }}\n}}"
            ),
            &[("A a.example", if holds { "route 0" } else { "REFUSED" })],
        );
    }
}

#[test]
fn s9_4_an_answer_without_addresses_has_the_empty_text_for_its_address() {
    for (expression, becomes) in
        [("response_ip == ''", "pass"), ("len(response_ips) == 0", "pass"), ("response_ips", "REFUSED")]
    {
        let text = format!(
            ".:53 {{\n forward . 192.0.2.53\n firewall response {{\n allow {expression}\n refuse true\n }}\n}}"
        );
        assert_eq!(Firewall::new(&text).exchange("A a.example", &[]), becomes, "{expression}");
    }
}

#[test]
fn s9_4_empty_zero_and_false_are_false() {
    for (expression, holds) in [
        ("''", false),
        ("0", false),
        ("false", false),
        ("'a'", true),
        ("1", true),
        ("true", true),
        ("name", true),
        ("port", true),
        ("client_ip", true),
        ("[>do]", false),
        // What spells no is no.
        ("'0'", false),
        ("'false'", false),
    ] {
        check(
            &format!(".:53 {{\n forward . 192.0.2.53\n firewall query {{\n allow {expression}\n refuse true\n }}\n}}"),
            &[("A a.example", if holds { "route 0" } else { "REFUSED" })],
        );
    }
}

#[test]
fn s9_4_an_error_of_evaluation_is_servfail_and_logged_with_its_rule() {
    let firewall = Firewall::new(
        ".:53 {
            errors
            forward . 192.0.2.53
            firewall query {
                allow atoi([kubernetes/client-label/none]) > 1
                default allow
            }
        }",
    );
    assert_eq!(firewall.ask("A a.example from 10.0.0.1"), "SERVFAIL");
    let told = firewall.told.lines(1);
    assert!(told[0].starts_with("[ERROR] 2 a.example. A: Corefile:5:17: "), "{told:?}");
    assert!(told[0].ends_with(": allow atoi([kubernetes/client-label/none]) > 1"), "{told:?}");
}

#[test]
fn s9_4_an_error_is_never_the_end_of_the_list() {
    // Neither the rules after it nor the default count.
    for (rule, rest) in [("allow", "refuse true"), ("refuse", "allow true"), ("log", "allow true")] {
        check(
            &format!(
                ".:53 {{\n forward . 192.0.2.53\n firewall . query {{\n {rule} 1 / atoi([kubernetes/client-label/none]) > 0\n {rest}\n default allow\n }}\n}}"
            ),
            &[("A a.example", "SERVFAIL")],
        );
    }
}

#[test]
fn s9_4_an_error_about_an_answer_is_servfail_too() {
    let firewall = Firewall::new(
        ".:53 {
            errors
            forward . 192.0.2.53
            firewall response {
                allow response_ip == '192.0.2.1'
                block atoi([kubernetes/client-label/none]) == 1
            }
        }",
    );
    assert_eq!(firewall.exchange("A a.example", &["@ 30 A 192.0.2.1"]), "pass");
    assert_eq!(firewall.exchange("A a.example", &["@ 30 A 192.0.2.1", "@ 30 A 192.0.2.2"]), "SERVFAIL");
    assert!(firewall.told.lines(1)[0].starts_with("[ERROR] 2 a.example. A: Corefile:6:17: "));
}
