//! `local`, `any` and `chaos`: the expected answers are those of CoreDNS 1.15 with the same Corefile.

use crate::support::{Firewall, check, refused};

const FIXED: &str = ".:53 {
    any
    chaos my-version alice bob
    local
    forward . 192.0.2.53
}";

#[test]
fn names_of_this_machine_are_answered_as_coredns_answers_them() {
    check(
        FIXED,
        &[
            ("A localhost", "answer NOERROR; localhost. 604800 A 127.0.0.1"),
            ("AAAA a.localhost", "answer NOERROR; a.localhost. 604800 AAAA ::1"),
            ("MX a.localhost", "answer NOERROR; authority a.localhost. 604800 SOA 604800"),
            ("A localhost.example", "answer NOERROR; localhost.example. 604800 A 127.0.0.1"),
            ("PTR 1.0.0.127.in-addr.arpa", "answer NOERROR; 1.0.0.127.in-addr.arpa. 604800 PTR localhost."),
            ("A 1.0.0.127.in-addr.arpa", "answer NOERROR; authority 127.in-addr.arpa. 604800 SOA 604800"),
            ("PTR 2.0.0.127.in-addr.arpa", "answer NXDOMAIN; authority 127.in-addr.arpa. 604800 SOA 604800"),
            ("SOA localhost", "answer NOERROR; localhost. 604800 SOA 604800"),
            ("NS 127.in-addr.arpa", "answer NOERROR; 127.in-addr.arpa. 604800 NS localhost."),
            ("MX localhost", "answer NOERROR; authority localhost. 604800 SOA 604800"),
            ("A x.255.in-addr.arpa", "answer NXDOMAIN; authority 255.in-addr.arpa. 604800 SOA 604800"),
            ("A notlocalhost", "route 0"),
            ("A localhostess.example", "route 0"),
            ("A 7127.in-addr.arpa", "route 0"),
        ],
    );
    let without = FIXED.replace("local\n", "local {\n localhost_prefix off\n}\n");
    check(
        &without,
        &[("A localhost.example", "route 0"), ("A a.localhost", "answer NOERROR; a.localhost. 604800 A 127.0.0.1")],
    );
}

#[test]
fn questions_for_any_type_get_the_answer_of_rfc_8482() {
    check(
        FIXED,
        &[("ANY a.example", "answer NOERROR; a.example. 8482 TYPE13 of 27 bytes"), ("A a.example", "route 0")],
    );
}

#[test]
fn who_serves_is_told_in_the_class_chaos() {
    check(
        FIXED,
        &[
            ("TXT version.bind CH", "answer NOERROR; version.bind. 0 TXT my-version"),
            ("TXT Version.Server CH", "answer NOERROR; version.server. 0 TXT my-version"),
            ("TXT authors.bind CH", "answer NOERROR; authors.bind. 0 TXT alice; authors.bind. 0 TXT bob"),
            ("TXT other.bind CH", "route 0"),
            ("TXT version.bind", "route 0"),
        ],
    );
    let bare = Firewall::new(".:53 {\n chaos\n forward . 192.0.2.53\n}");
    assert!(bare.ask("TXT version.bind CH").starts_with("answer NOERROR; version.bind. 0 TXT namewall-"));
    assert_eq!(bare.ask("TXT authors.bind CH"), "route 0", "nobody is named");
}

#[test]
fn rules_come_first() {
    let firewall = Firewall::new(
        ".:53 {
            any
            local
            firewall query {
                refuse type == 'ANY'
                default allow
            }
            firewall response {
                block in-cidr(response_ip, 127.0.0.0/8)
                default allow
            }
        }",
    );
    assert_eq!(firewall.ask("ANY a.example"), "REFUSED");
    assert_eq!(firewall.ask("A localhost"), "NXDOMAIN; authority . 60 SOA 60");
}

#[test]
fn trace_is_read_and_says_that_it_does_nothing() {
    let firewall = Firewall::new(".:53 {\n trace zipkin localhost:9411 {\n every 100\n }\n forward . 192.0.2.53\n}");
    assert_eq!(firewall.ask("A a.example"), "route 0");
    let told = refused(".:53 {\n trace a b c\n}");
    assert!(told.contains("takes no more than 2 arguments"), "{told}");
}
