//! The lines of S9 that expressions keep.

use super::support::{TestFacts, address, addresses, check, holds, query, read, response};
use namewall_expression::{Expression, Fact, Value};

#[test]
fn s9_1_the_samples_of_the_first_design_are_read_as_they_are() {
    holds(
        &query(),
        &[
            ("in-cidr([request/client_ip], 172.23.0.0/16) and ([request/qtype] == 'A')", true),
            ("in-cidr([request/client_ip], 172.23.0.0/16) and (request/qtype == 'A')", true),
            ("request/qtype == 'TXT'", false),
            ("request/client_id ~= 'infoblox'", true),
            ("request/client_id ~= '^7'", false),
            ("[request/qtype] == \"A\"", true),
            ("client_ip in-cidr(172.28.0.0/24)", false),
            ("name == 'www.example.com' and client_ip in-cidr(172.23.0.0/24, 172.23.4.0/24)", true),
            ("k8s/clientpod.security > level4", true),
            ("true", true),
        ],
    );
    holds(&response(), &[("inc-cidr(request/returned_ip, 10.0.0.0/8)", true)]);
}

#[test]
fn s9_3_an_expression_tells_whether_it_looks_at_an_address_of_the_answer() {
    for (text, is) in [
        ("in-cidr(response_ip, 10.0.0.0/8)", true),
        ("in-cidr(request/returned_ip, 10.0.0.0/8)", true),
        ("[response/ip] == 10.0.0.1", true),
        ("type == 'A' and (true ? response_ip : '') == 10.0.0.1", true),
        ("10.0.0.1 in response/ips", false),
        ("rcode == 'NOERROR' and in-cidr(client_ip, 10.0.0.0/8)", false),
    ] {
        assert_eq!(read(text).is_of_response_address(), is, "{text}");
    }
    let facts = [Fact::Type, Fact::Label("a".into()), Fact::ClientIp];
    assert_eq!(read("type in ('A', a) or in-cidr(client_ip, 10.0.0.0/8) or type == a").facts(), facts);
}

#[test]
fn s9_4_an_unset_variable_is_the_empty_string() {
    check(&query(), &[("level4", "''"), ("[never/heard of: it]", "''"), ("response_ip", "''"), ("rsize", "''")]);
    holds(
        &query(),
        &[
            ("level4 == ''", true),
            ("level4 != 'x'", true),
            ("level4 == other", true),
            ("response_ip == ''", true),
            ("client_ip == ''", false),
            ("response_ip == 10.0.0.1", false),
            ("response_ip != 10.0.0.1", true),
            ("response_ip in (10.0.0.1, 10.0.0.2)", false),
            ("response_ip in ('', 10.0.0.2)", true),
            ("in-cidr(response_ip, 0.0.0.0/0)", false),
            ("rsize == 0", false),
            ("rsize < 10", false),
            ("rsize >= 10", false),
            ("response_ip < 10.0.0.1", false),
            ("level4 < 10", false),
            ("under(level4, '.')", false),
            ("level4 =~ '^$'", true),
            ("(rsize ?? 512) >= 512", true),
            ("count(response/ips) == 0", true),
            ("10.0.0.1 in response/ips", false),
        ],
    );
}

#[test]
fn s9_4_empty_zero_and_false_are_false() {
    holds(
        &query().with("response/ips", addresses(&[])),
        &[
            ("''", false),
            ("0", false),
            ("-0", false),
            ("false", false),
            ("response/ips", false),
            ("level4", false),
            ("'x'", true),
            ("' '", true),
            ("0.1", true),
            ("true", true),
            ("('', 0)", true),
            ("client_ip", true),
            ("10.0.0.0/8", true),
            ("name", true),
            (">do", true),
            // A label spells what it means.
            ("[kubernetes/client-label/trusted]", false),
            ("not [kubernetes/client-label/trusted]", true),
            ("'0'", false),
            ("'False'", false),
            ("'no'", true),
        ],
    );
}

#[test]
fn s9_4_an_evaluation_error_says_where_and_why() {
    check(
        &query().text("label", "high"),
        &[
            ("true and atoi('x') > 1", "error: in `atoi('x')`: `x` is no whole number"),
            ("atoi('')", "error: in `atoi('')`: what is not set is no whole number"),
            ("atoi('1.5')", "error: in `atoi('1.5')`: `1.5` is no whole number"),
            ("label > 4", "error: in `label > 4`: `high` is not a number"),
            ("label < 10.0.0.1", "error: in `label < 10.0.0.1`: `high` is not an address"),
            ("in-cidr(label, 10.0.0.0/8)", "error: in `in-cidr(label, 10.0.0.0/8)`: `high` is not an address"),
            ("2 * label", "error: in `2 * label`: `high` is not a number"),
            ("2 * unset", "error: in `2 * unset`: what is not set is not a number"),
            ("-label", "error: in `-label`: `high` is not a number"),
            ("size / (size - 44)", "error: in `size / (size - 44)`: it divides by zero"),
            ("(true ? 1 : 'a') + true", "error: in `(true ? 1 : 'a') + true`: `1` and `true` have no sum"),
            ("random(0)", "error: in `random(0)`: there is no whole number from 0 and below 0"),
        ],
    );
    let error = read("size > 1 and atoi([client_id])").is_true(&query().text("client_id", "x")).expect_err("x is none");
    assert_eq!((error.span(), error.message()), (13..30, "`x` is no whole number"));
}

#[test]
fn s9_4_what_is_not_asked_has_no_errors() {
    holds(
        &query(),
        &[
            ("false and atoi('x')", false),
            ("true or atoi('x')", true),
            ("true ? 1 : atoi('x')", true),
            ("1 ?? atoi('x')", true),
            ("'a' in ('a', atoi('x'))", true),
        ],
    );
}

#[test]
fn s9_5_ipv6_works_wherever_ipv4_does() {
    let facts = query().with("client_ip", address("2001:db8::53")).with("response_ip", address("fd00::1"));
    holds(
        &facts,
        &[
            ("in-cidr(client_ip, 2001:db8::/32)", true),
            ("in-cidr(client_ip, '2001:db8::/32')", true),
            ("in-cidr(client_ip, 10.0.0.0/8, 2001:DB8::/32)", true),
            ("in-cidr(client_ip, 10.0.0.0/8)", false),
            ("in-cidr(client_ip, ::/0)", true),
            ("in-cidr(client_ip, 0.0.0.0/0)", false),
            ("client_ip == 2001:db8::53", true),
            ("client_ip == '2001:0db8:0::0053'", true),
            ("client_ip in (::1, 2001:db8::53)", true),
            ("client_ip in (fe80::/10, 2001:db8::/64)", true),
            ("client_ip in 2001:db8::/32", true),
            ("client_ip =~ '^2001:db8:'", true),
            ("true ? client_ip == 2001:db8::53 : false", true),
            ("(true ? fd00::1 : ::1) == response_ip", true),
            ("(true?fd00::1: ::1) == response_ip", true),
            ("client_ip > 2001:db8::1", true),
            ("client_ip > 10.0.0.1", false),
            ("client_ip < 10.0.0.1", false),
        ],
    );
}

#[test]
fn s9_5_an_ipv4_address_in_ipv6_clothes_is_that_ipv4_address() {
    let facts = TestFacts::default()
        .with("response_ip", address("::ffff:10.0.0.1"))
        .with("response/ips", addresses(&["::ffff:10.0.0.1"]));
    holds(
        &facts,
        &[
            ("in-cidr(response_ip, 10.0.0.0/8)", true),
            ("response_ip == 10.0.0.1", true),
            ("response_ip == ::ffff:10.0.0.1", true),
            ("10.0.0.1 in response/ips", true),
        ],
    );
}

#[test]
fn s9_5_a_malformed_rule_is_found_when_it_is_read() {
    for text in ["type =", "in-cidr(client_ip, 10.0.0.0/33)", "name =~ '('", "client_ip == 'foo'", "nosuch(1)", "(", ""]
    {
        assert!(Expression::parse(text).is_err(), "{text}");
    }
}

#[test]
fn what_was_looked_at_is_shown() {
    let shown = read("type == 'A' or rcode == 'SERVFAIL'").shown(&query());
    assert_eq!(shown, [("type".to_owned(), "A".to_owned())]);
    let shown = read("(label ?? client_ip) == 10.0.0.1 and true").shown(&query());
    assert_eq!(shown, [("label", ""), ("client_ip", "172.23.4.5")].map(|(a, b)| (a.to_owned(), b.to_owned())));
}

#[test]
fn facts_that_come_as_text_are_what_they_spell() {
    let facts = TestFacts::default()
        .text("client_ip", "10.0.0.1")
        .text("port", "53")
        .text(">do", "true")
        .text("name", "A.Example");
    holds(
        &facts,
        &[
            ("client_ip == 10.0.0.1", true),
            ("client_ip in (10.0.0.0/8, 11.0.0.0/8)", true),
            ("in-cidr(client_ip, 10.0.0.0/8)", true),
            ("port == 53 and port < 100 and port + 1 == 54", true),
            (">do == true and >do", true),
            ("name == 'a.example.'", true),
        ],
    );
    let labels = TestFacts::default().with("edns/ip", address("10.0.0.1")).with("edns/n", Value::Number(5));
    holds(
        &labels,
        &[
            ("[edns/ip] == '10.0.0.1'", true),
            ("edns/ip in ('10.0.0.1', 'x')", true),
            ("edns/ip in (10.0.0.0/8, 11.0.0.0/8)", true),
            ("edns/n in ('5')", true),
            ("edns/n > 4", true),
            ("edns/n == '5'", true),
        ],
    );
}
