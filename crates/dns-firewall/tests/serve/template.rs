//! Answers written by the question: CoreDNS' own examples, and what is refused.

use crate::support::{Firewall, Live, RULES_BY_CLIENT, check, refused};

#[test]
fn everything_is_nothing() {
    check(
        ".:53 {\n template ANY ANY {\n rcode NXDOMAIN\n }\n}",
        &[("A a.example", "answer NXDOMAIN aa"), ("TXT b.example CH", "answer NXDOMAIN aa")],
    );
}

#[test]
fn a_domain_is_nothing_with_an_soa_and_a_reason() {
    check(
        r#".:53 {
            forward . 192.0.2.53
            template ANY ANY invalid {
                rcode NXDOMAIN
                authority "invalid. 60 {{ .Class }} SOA ns.invalid. hostmaster.invalid. (1 60 60 60 60)"
                ederror 21 "Blocked according to RFC2606"
            }
        }"#,
        &[
            ("A a.invalid", "answer NXDOMAIN aa; authority invalid. 60 SOA 60"),
            ("A a.invalid edns", "answer NXDOMAIN aa; authority invalid. 60 SOA 60; edns ede 21"),
            ("A a.invalid CH", "answer NXDOMAIN aa; authority invalid. 60 SOA 60"),
            ("A notinvalid", "route 0"),
        ],
    );
}

const ADDRESSES: &str = r#".:53 {
    forward . 192.0.2.53
    template IN A example {
        match (^|[.])ip-(?P<a>[0-9]*)-(?P<b>[0-9]*)-(?P<c>[0-9]*)-(?P<d>[0-9]*)[.]example[.]$
        answer "{{ .Name }} 60 IN A {{ .Group.a }}.{{ .Group.b }}.{{.Group.c}}.{{ .Group.d }}"
        fallthrough
    }
    template IN MX example {
        match ^ip-10-(?P<b>[0-9]*)-(?P<c>[0-9]*)-(?P<d>[0-9]*)[.]example[.]$
        answer "{{ .Name }} 60 IN MX 10 {{ .Name }}"
        additional "{{ .Name }} 60 IN A 10.{{ .Group.b }}.{{ .Group.c }}.{{ .Group.d }}"
        authority  "example. 60 IN NS ns0.example."
    }
    template IN PTR in-addr.arpa {
        match ^(?P<d>[0-9]*)[.](?P<c>[0-9]*)[.](?P<b>[0-9]*)[.](?P<a>[0-9]*)[.]in-addr[.]arpa[.]$
        answer "{{ .Name }} 60 IN PTR ip-{{ .Group.a }}-{{ .Group.b }}-{{ .Group.c }}-{{ .Group.d }}.example."
    }
    template IN A hex {
        match "^ip0a(?P<b>[a-f0-9]{2})(?P<c>[a-f0-9]{2})(?P<d>[a-f0-9]+)[.]hex[.]$"
        answer "{{ .Name }} 60 IN A 10.{{ parseInt .Group.b 16 8 }}.{{ parseInt .Group.c 16 8 }}.{{ parseInt .Group.d 16 8 }}"
    }
}"#;

#[test]
fn groups_of_the_name_are_filled_in() {
    check(
        ADDRESSES,
        &[
            ("A ip-10-0-0-7.example", "answer NOERROR aa; ip-10-0-0-7.example. 60 A 10.0.0.7"),
            ("A x.IP-10-0-0-7.Example", "answer NOERROR aa; x.ip-10-0-0-7.example. 60 A 10.0.0.7"),
            // What it has nothing to say of, others are asked.
            ("A www.example", "route 0"),
            ("AAAA ip-10-0-0-7.example", "route 0"),
            (
                "MX ip-10-1-2-3.example",
                "answer NOERROR aa; ip-10-1-2-3.example. 60 MX 10 ip-10-1-2-3.example.; authority example. 60 NS ns0.example.; additional ip-10-1-2-3.example. 60 A 10.1.2.3",
            ),
            // Nobody else is asked where it does not say so.
            ("MX www.example", "answer SERVFAIL"),
            ("PTR 7.0.0.10.in-addr.arpa", "answer NOERROR aa; 7.0.0.10.in-addr.arpa. 60 PTR ip-10-0-0-7.example."),
            ("A ip0a7b00ff.hex", "answer NOERROR aa; ip0a7b00ff.hex. 60 A 10.123.0.255"),
            // What comes of it is no address, or no number of eight bits.
            ("A ip-10-0-0-256.example", "answer SERVFAIL"),
            ("A ip-10--0-256.example", "answer SERVFAIL"),
            ("A ip0a7b00fff.hex", "answer SERVFAIL"),
        ],
    );
}

#[test]
fn fields_of_the_question_are_filled_in() {
    check(
        r#"example.org:53 {
            template ANY TXT {
                match ^(.*)[.]example[.]org[.]$
                answer "{{ .Name }} 5 {{ .Class }} TXT {{ .Zone }} {{.Type}} \"{{ .Remote }}\" {{ index .Match 1 }} {{ index .Match 0 }}"
            }
        }"#,
        &[(
            "TXT a.b.example.org from 10.0.0.9",
            "answer NOERROR aa; a.b.example.org. 5 TXT example.org.TXT10.0.0.9a.ba.b.example.org.",
        )],
    );
}

#[test]
fn a_name_is_no_syntax() {
    // Quotes, parentheses, semicolons and blanks of a name stay in its one word.
    let firewall = Firewall::new(
        r#".:53 {
            template IN TXT {
                match ^(?P<first>.*)[.]example[.]$
                answer "{{ .Name }} 5 IN TXT {{ .Group.first }}"
            }
        }"#,
    );
    for first in [r#"a"b"#, "a;b", "a(b", "(", r"a\032b", "@", "$x"] {
        let asked = firewall.ask(&format!("TXT {first}.example"));
        let plain = first.replace(r"\032", " ");
        assert!(asked.ends_with(&format!(" 5 TXT {plain}")), "{first}: {asked}");
    }
    // Half of an escape is refused.
    let firewall = Firewall::new(
        r#".:53 {
            template IN TXT {
                match ^(?P<first>.)
                answer "example. 5 IN TXT {{ .Group.first }} second"
            }
        }"#,
    );
    assert_eq!(firewall.ask(r"TXT \.x.example"), "answer SERVFAIL");
}

#[test]
fn answers_are_for_whom_the_rules_let_have_them() {
    let template = "template IN A example {\n answer \"{{ .Name }} 60 IN A 192.0.2.1\"\n }";
    let live = Live::start(&format!(".:PORT0 {{\n{template}\n{RULES_BY_CLIENT}\n}}"));
    assert_eq!(live.ask("A a.example"), "NOERROR aa; a.example. 60 A 192.0.2.1");
    assert_eq!(live.ask("A a.example from 127.0.0.2"), "REFUSED");
    assert_eq!(live.ask("A a.example from 127.0.0.3"), "NXDOMAIN; authority . 60 SOA 60");
}

#[test]
fn what_cannot_be_filled_in_is_said_at_the_start() {
    let usage = "there are `.Name`, `.Zone`, `.Class`, `.Type`, `.Remote`, `.Group.NAME`, `index .Match NUMBER` and `parseInt .Group.NAME BASE BITS`";
    for (options, why) in [
        ("match (", "Corefile:3:7: error: no regular expression: ".to_owned()),
        (
            "answer \"{{ .Message }} 60 IN A 192.0.2.1\"",
            format!("Corefile:3:9: error: `{{{{ .Message }}}}` is not filled in here; {usage}"),
        ),
        (
            "answer \"{{ range .Match }} 60 IN A 192.0.2.1\"",
            format!("Corefile:3:9: error: `{{{{ range .Match }}}}` is not filled in here; {usage}"),
        ),
        ("answer \"{{ .Name 60 IN A 192.0.2.1\"", "Corefile:3:9: error: `{{` is not closed".to_owned()),
        (
            "answer \"{{ .Group.a }}. 60 IN A 192.0.2.1\"",
            "Corefile:3:9: error: no `match` has the group of `{{ .Group.a }}`".to_owned(),
        ),
        (
            "answer \"{{ index .Match 1 }}. 60 IN A 192.0.2.1\"",
            "Corefile:3:9: error: no `match` has the group of `{{ index .Match 1 }}`".to_owned(),
        ),
        (
            "answer \"a.example. 60 IN A 192.0.2\"",
            "Corefile:3:9: error: A takes `IPV4-ADDRESS`, not `192.0.2`".to_owned(),
        ),
        (
            "answer \"a.example. 60 IN LOC 1 2 3\"",
            "Corefile:3:9: error: LOC takes `\\# LENGTH HEXADECIMAL…`, not `1 2 3`".to_owned(),
        ),
        ("rcode BADVERS", "Corefile:2:2: error: code 16 needs EDNS0; codes up to 15 are served".to_owned()),
    ] {
        let told = refused(&format!(
            ".:53 {{\n template IN A {{\n{options}\nrcode {}\n}}\n}}",
            if options.starts_with("rcode") { "BADVERS" } else { "NOERROR" }
        ));
        assert!(told.starts_with(&why), "{told}\nshould begin with {why}");
    }
}

#[test]
fn an_alias_alone_is_warned_of() {
    let firewall = Firewall::new(
        ".:53 {\n template IN ANY foogle.com {\n match \"^foogle[.]com[.]$\"\n answer \"foogle.com 60 IN CNAME google.com\"\n }\n}",
    );
    assert_eq!(
        firewall.warnings,
        ["Corefile:2:2: an alias is not followed here; clients that do not follow it either want its records too"]
    );
    assert_eq!(firewall.ask("A foogle.com"), "answer NOERROR aa; foogle.com. 60 CNAME google.com.");
}
