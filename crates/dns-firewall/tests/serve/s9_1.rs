//! S9.1: which lists are asked, in which order, and what counts at their end.

use crate::support::{Firewall, check};

const NO: &str = "NXDOMAIN; authority . 60 SOA 60";

#[test]
fn s9_1_rules_are_asked_in_order_and_the_first_defined_result_ends_the_list() {
    check(
        ".:53 {
            forward . 192.0.2.53
            firewall . query {
                refuse name == 'a.example'
                allow under(name, 'example')
                refuse type == 'TXT'
                block true
            }
        }",
        &[("A a.example", "REFUSED"), ("TXT b.example", "route 0"), ("TXT b.test", "REFUSED"), ("A b.test", NO)],
    );
    // The same rules the other way round.
    check(
        ".:53 {
            forward . 192.0.2.53
            firewall query {
                allow under(name, 'example')
                refuse name == 'a.example'
                default allow
            }
        }",
        &[("A a.example", "route 0"), ("A a.test", "route 0")],
    );
}

#[test]
fn s9_1_a_rule_after_the_first_defined_result_is_not_evaluated() {
    // To calculate with what is not set would be an error.
    check(
        ".:53 {
            forward . 192.0.2.53
            firewall query {
                allow type == 'A'
                block atoi([kubernetes/client-label/none]) > 1
            }
        }",
        &[("A a.example", "route 0"), ("AAAA a.example", "SERVFAIL")],
    );
}

/// A list with a rule that never holds, for either point.
fn ending(form: &str, default: &str) -> [Firewall; 2] {
    ["query", "response"].map(|point| {
        Firewall::new(&format!(
            ".:53 {{\n forward . 192.0.2.53\n firewall {form} {point} {{\n refuse false\n {default}\n }}\n}}"
        ))
    })
}

#[test]
fn s9_1_at_the_end_of_a_list_counts_what_its_form_says() {
    for (form, query, response) in [(".", NO, NO), ("", NO, "pass")] {
        let [at_query, at_response] = ending(form, "");
        assert_eq!(at_query.ask("A a.example"), query, "firewall {form} query");
        assert_eq!(at_response.exchange("A a.example", &["@ 30 A 192.0.2.1"]), response, "firewall {form} response");
        assert_eq!(at_response.exchange("AAAA a.example", &["@ 30 AAAA 2001:db8::1"]), response);
        assert_eq!(at_response.exchange("TXT a.example", &["@ 30 TXT hello"]), response);
        assert_eq!(at_response.exchange("A a.example", &[]), response);
    }
}

#[test]
fn s9_1_a_default_is_said_openly_in_either_form() {
    for form in [".", ""] {
        for (default, becomes) in [("allow", None), ("block", Some(NO)), ("refuse", Some("REFUSED"))] {
            let [at_query, at_response] = ending(form, &format!("default {default}"));
            assert_eq!(at_query.ask("A a.example"), becomes.unwrap_or("route 0"), "{form} {default}");
            let passed = at_response.exchange("A a.example", &["@ 30 A 192.0.2.1"]);
            assert_eq!(passed, becomes.unwrap_or("pass"), "{form} {default}");
        }
    }
    let dropped = |form| ending(form, "default drop").map(|one| one.exchange("A a.example", &["@ 30 A 192.0.2.1"]));
    assert_eq!(dropped(""), ["silence", "silence"]);
    assert_eq!(dropped("."), ["NOERROR; authority . 60 SOA 60"; 2]);
}

#[test]
fn s9_1_an_empty_list_is_at_its_end_at_once() {
    check(".:53 {\n forward . 192.0.2.53\n firewall query {\n }\n}", &[("A a.example", NO)]);
    check(".:53 {\n forward . 192.0.2.53\n firewall . query {\n default allow\n }\n}", &[("A a.example", "route 0")]);
    check(".:53 {\n forward . 192.0.2.53\n}", &[("A a.example", "route 0")]);
}

#[test]
fn s9_1_every_list_must_let_a_question_pass() {
    let lists = ".:53 {
        forward . 192.0.2.53
        firewall query {
            refuse type == 'TXT'
            default allow
        }
        firewall example.com query {
            allow label(name, 0) == 'www'
        }
        firewall deep.example.com query {
            drop type == 'A'
            default allow
        }
    }";
    check(
        lists,
        &[
            ("A a.test", "route 0"),
            ("TXT www.example.com", "REFUSED"),
            ("A www.example.com", "route 0"),
            ("A mail.example.com", NO),
            ("A www.deep.example.com", "NOERROR; authority . 60 SOA 60"),
            ("AAAA www.deep.example.com", "route 0"),
            ("AAAA mail.deep.example.com", NO),
        ],
    );
}

#[test]
fn s9_1_a_list_may_have_several_zones() {
    check(
        ".:53 {
            forward . 192.0.2.53
            firewall example.com example.org 10.0.0.0/8 query {
                block true
            }
        }",
        &[
            ("A example.com", NO),
            ("A a.b.example.org", NO),
            ("PTR 1.2.3.10.in-addr.arpa", NO),
            ("PTR 1.2.3.11.in-addr.arpa", "route 0"),
            ("A example.net", "route 0"),
            ("NS .", "route 0"),
        ],
    );
}

#[test]
fn s9_1_zones_are_matched_by_labels() {
    let lists = ".:53 {
        forward . 192.0.2.53
        firewall example.com query {
            block true
        }
    }";
    check(
        lists,
        &[
            ("A example.com", NO),
            ("A EXAMPLE.Com", NO),
            ("A www.eXample.com", NO),
            ("A notexample.com", "route 0"),
            ("A example.com.test", "route 0"),
            ("A com", "route 0"),
            // One label `www.example`, and one `example.com`.
            (r"A www\.example.com", "route 0"),
            (r"A example\.com", "route 0"),
            (r"A a\.b.example.com", NO),
            (r"A \000\255.example.com", NO),
            (r"A www.example\000.com", "route 0"),
        ],
    );
}

#[test]
fn s9_1_names_that_pass_through_meet_no_rule_of_the_list() {
    let lists = ".:53 {
        forward . 192.0.2.53
        firewall . query {
            passthrough example.com example.org
            passthrough test.
            block atoi([kubernetes/client-label/none]) > 1
        }
        firewall . query {
            refuse label(name, 0) == 'bad'
            default allow
        }
    }";
    check(
        lists,
        &[
            ("A www.example.com", "route 0"),
            ("A example.org", "route 0"),
            ("A a.test", "route 0"),
            // It is the list they pass, not the others.
            ("A bad.example.com", "REFUSED"),
            ("A notexample.com", "SERVFAIL"),
            (r"A www\.example.com", "SERVFAIL"),
        ],
    );
    let answers = Firewall::new(
        ".:53 {
            forward . 192.0.2.53
            firewall . response {
                passthrough example.com
                block true
            }
        }",
    );
    assert_eq!(answers.exchange("A a.example.com", &["@ 30 A 192.0.2.1"]), "pass");
    assert_eq!(answers.exchange("A a.example.net", &["@ 30 A 192.0.2.1"]), NO);
}

#[test]
fn s9_1_a_list_without_a_default_is_linted() {
    let read = |text: &str| {
        let read = namewall_corefile::read("Corefile", text, &namewall_corefile::NoFiles, &|_| None);
        read.unwrap().warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let warned = read(".:53 {\n firewall . query {\n allow type == 'A'\n }\n}");
    assert!(warned.contains("Corefile:2:2: warning: it is not said what counts at the end of this list"), "{warned}");
    assert!(warned.contains("write `default block`"), "{warned}");
    assert_eq!(read(".:53 {\n firewall . query {\n allow type == 'A'\n default block\n }\n}"), "");
}

#[test]
fn s9_1_a_response_list_is_for_the_names_that_were_asked() {
    let firewall = Firewall::new(
        ".:53 {
            forward . 192.0.2.53
            firewall example.com response {
                block true
            }
        }",
    );
    // Not for those a chain of aliases leads to.
    assert_eq!(
        firewall.exchange("A www.test", &["@ 30 CNAME www.example.com", "www.example.com 30 A 192.0.2.1"]),
        "pass"
    );
    assert_eq!(firewall.exchange("A www.example.com", &["@ 30 A 192.0.2.1"]), NO);
}
