//! Names, kinds and functions, one table each.

use super::support::{TestFacts, address, check, holds, query, read, response};
use namewall_expression::{Fact, Value};

#[test]
fn names_are_told_from_operators_by_spaces() {
    let facts = |text: &str| read(text).facts().iter().map(Fact::to_string).collect::<Vec<_>>();
    assert_eq!(facts("a - b"), ["a", "b"]);
    assert_eq!(facts("a -b"), ["a", "b"]);
    assert_eq!(facts("a- b"), ["a", "b"]);
    assert_eq!(facts("a-b"), ["a-b"]);
    assert_eq!(facts("a / b"), ["a", "b"]);
    assert_eq!(facts("a/b"), ["a/b"]);
    assert_eq!(facts("a--b"), ["a", "b"]);
    assert_eq!(
        facts("client-id == kubernetes/client-label/app.kubernetes.io/name"),
        ["client-id", "kubernetes/client-label/app.kubernetes.io/name"]
    );
    assert_eq!(facts("[a - b: c] == [ d ]"), ["a - b: c", "d"]);
    assert_eq!(facts(r"[a\]b] == a\ b"), ["a]b", "a b"]);
    assert_eq!(facts(">bufsize > >id"), [">bufsize", ">id"]);
    assert_eq!(facts("1 >size"), ["size"]);
    assert_eq!(facts("4 >>size"), ["size"]);
    assert_eq!(facts("(>do)"), [">do"]);
    assert_eq!(facts("x?a:b"), ["x", "a", "b"]);
    assert_eq!(facts("grün == _x"), ["grün", "_x"]);
    assert_eq!(facts("[in] == [not]"), ["in", "not"]);
    assert_eq!(facts("k8s/clientpod.security > level4"), ["kubernetes/client-label/security", "level4"]);
    assert_eq!(facts("fe80 == beef"), ["fe80", "beef"]);
}

#[test]
fn facts_go_by_several_names() {
    for (names, fact) in [
        (vec!["name", "qname", "request/qname", "[request/name]"], Fact::Name),
        (vec!["type", "request/qtype"], Fact::Type),
        (vec!["client_ip", "request/client_ip"], Fact::ClientIp),
        (vec!["port", "client_port", "request/client_port"], Fact::ClientPort),
        (vec!["proto", "request/protocol"], Fact::Protocol),
        (vec!["response_ip", "response/ip", "request/returned_ip"], Fact::ResponseIp),
        (vec![">do", "[>do]"], Fact::Do),
    ] {
        for name in names {
            assert_eq!(read(name).facts(), std::slice::from_ref(&fact), "{name}");
        }
    }
}

#[test]
fn a_name_is_a_name_in_any_case_and_with_or_without_its_dot() {
    holds(
        &query(),
        &[
            ("name == 'www.example.com.'", true),
            ("name == 'WWW.Example.COM'", true),
            ("'www.example.com' == name", true),
            ("name != 'www.example.com'", false),
            ("name == 'ww.example.com'", false),
            ("name == ''", false),
            ("name == '.'", false),
            ("name in ('a.example', 'Www.Example.Com')", true),
            ("name not in ('a.example', 'www.example.com.')", false),
            ("lower(name) == 'www.example.com'", true),
            ("has_suffix(name, 'EXAMPLE.com')", true),
            ("has_suffix(name, '.example.com.')", true),
            ("has_suffix(name, 'ample.com')", true),
            ("has_suffix(name, 'org', 'net')", false),
            ("has_suffix(name, ('org', 'com'))", true),
            ("has_suffix(name, '.')", true),
            ("has_prefix(name, 'WWW.')", true),
            ("has_prefix(name, 'w.', 'x')", false),
            ("name =~ 'EXAMPLE'", true),
        ],
    );
    holds(
        &query(),
        &[
            (r"name =~ '\.com$'", true),
            (r"name =~ '\.com\.$'", true),
            (r"name =~ ('^www\.example\.com$', 'x')", true),
            (r"name !~ 'example\.com$'", false),
            (r"name =~ '^example'", false),
        ],
    );
    holds(
        &TestFacts::default().text("name", "xn--bcher-kva.example."),
        &[("name == 'bücher.example'", true), ("under(name, 'BÜCHER.example')", true)],
    );
}

#[test]
fn types_protocols_and_codes_are_words_in_any_case() {
    holds(
        &response(),
        &[
            ("type == 'a'", true),
            ("type in ('aaaa', 'a')", true),
            ("type not in ('AAAA', 'TXT')", true),
            ("proto == 'UDP'", true),
            ("rcode == 'noerror'", true),
            ("class =~ '^in$'", true),
            ("label(name, 0) == 'WWW'", true),
            ("[kubernetes/client-label/app] == 'WEB'", false),
        ],
    );
}

#[test]
fn numbers_addresses_and_truth_values_are_compared_with_what_text_spells() {
    holds(
        &query(),
        &[
            ("client_ip == '172.23.4.5'", true),
            ("client_ip == '172.23.004.005'", true),
            ("client_ip in ('172.23.4.5', '10.0.0.0/8')", true),
            ("client_ip in ('10.0.0.1')", false),
            ("client_ip in '172.16.0.0/12'", true),
            ("client_ip in (10.0.0.0/8, 172.16.0.0/12, 192.168.1.1)", true),
            ("client_ip not in 172.16.0.0/12", false),
            ("client_ip =~ '^172[.]'", true),
            ("client_ip >= 172.23.4.0 and client_ip <= '172.23.4.9'", true),
            ("port == '40000'", true),
            ("port in ('53', 40000)", true),
            ("port > '1024'", true),
            ("port =~ '0000$'", true),
            ("atoi(port) < 1024", false),
            ("atoi('-5') == -5", true),
            (">do == 'true'", true),
            (">do == 'FALSE'", false),
            (">do != false", true),
            ("k8s/clientpod.security >= 5", true),
            ("k8s/clientpod.security == 5.0", true),
            ("k8s/clientpod.security in (4, 5)", true),
            ("k8s/clientpod.security > '40'", true),
            ("atoi(k8s/clientpod.security) > 40", false),
            ("k8s/clientpod.security * 2 == 10", true),
            ("[kubernetes/client-label/trusted] == false", true),
            ("[kubernetes/client-namespace] == 5", false),
        ],
    );
    check(
        &query(),
        &[
            ("port + 1", "40001"),
            ("'client ' + client_ip", "'client 172.23.4.5'"),
            ("k8s/clientpod.security + 1", "'51'"),
            ("rsize + 1", "'1'"),
        ],
    );
}

#[test]
fn in_cidr_takes_addresses_and_networks_in_every_form() {
    holds(
        &response().text("net", "172.16.0.0/12").text("host", "172.23.4.5"),
        &[
            ("incidr(client_ip, '172.16.0.0/12')", true),
            ("in-cidr(client_ip, 172.23.4.5)", true),
            ("in-cidr(client_ip, '172.23.4.5')", true),
            ("in-cidr(client_ip, 172.23.4.5/16)", true),
            ("in-cidr(client_ip, (10.0.0.0/8, '172.16.0.0/12'))", true),
            ("in-cidr(client_ip, 10.0.0.0/8, 11.0.0.0/8)", false),
            ("in-cidr('10.0.0.1', 10.0.0.0/8)", true),
            ("in-cidr(10.0.0.1, 10.0.0.0/8)", true),
            ("in-cidr(host, 172.16.0.0/12)", true),
            ("in-cidr(client_ip, net)", true),
            ("in-cidr(client_ip, host)", true),
            ("in-cidr(client_ip, unset)", false),
            ("in-cidr(client_ip, 10.0.0.0/8, net)", true),
            ("in-cidr(response_ip, response/ips)", true),
            ("in-cidr(client_ip, response/ips)", false),
            ("client_ip in (10.0.0.1, response/ips)", false),
            ("response_ip in (10.0.0.1, response/ips)", true),
            ("'192.0.2.1' in response/ips", true),
            ("192.0.2.1 in (response/ips)", true),
        ],
    );
    check(
        &query().text("net", "10.0.0.0/33"),
        &[(
            "in-cidr(client_ip, net)",
            "error: in `in-cidr(client_ip, net)`: `10.0.0.0/33` has a prefix longer than its address (32 bits)",
        )],
    );
}

#[test]
fn functions_of_names_count_labels() {
    check(
        &response().text("odd", r"a\.b.example.").text("root", "."),
        &[
            ("under(name, 'example.com')", "true"),
            ("under(name, 'Example.COM.')", "true"),
            ("under(name, 'www.example.com')", "true"),
            ("under(name, 'w.example.com')", "false"),
            ("under(name, 'org', 'com')", "true"),
            ("under(name, ('org', 'net'))", "false"),
            ("under(name, '.')", "true"),
            ("under(name, label(name, 2))", "true"),
            ("under('evilexample.com', 'example.com')", "false"),
            (r"under('evil\.example.com', 'example.com')", "false"),
            ("under(name, unset)", "false"),
            ("label(name, 0)", "'www'"),
            ("label(name, 2)", "'com'"),
            ("label(name, 3)", "''"),
            ("label(name, -1)", "'com'"),
            ("label(name, -3)", "'www'"),
            ("label(name, -4)", "''"),
            ("label(name, -9999999999999)", "''"),
            ("label(odd, 0)", r"'a\.b'"),
            ("label(lower('A.B'), 0)", "'a'"),
            ("count(name)", "3"),
            ("count(odd)", "2"),
            ("count(root)", "0"),
            ("count(unset)", "0"),
            ("count(response/ips)", "2"),
            ("count((1, 2, 3))", "3"),
            ("len(name)", "16"),
            ("len('grün')", "4"),
            ("len(response/ips)", "2"),
            ("len(port)", "5"),
            ("lower('AbC')", "'abc'"),
            ("response/ips", "(192.0.2.1, 10.9.8.7)"),
        ],
    );
}

#[test]
fn random_numbers_are_below_what_is_asked_for() {
    let facts = TestFacts::default();
    holds(&facts, &[("random() < 1 and random() >= 0", true), ("random(1) == 0", true)]);
    let expression = read("random(4)");
    let mut seen = [false; 4];
    for _ in 0..1000 {
        let value = expression.evaluate(&facts).map(|value| value.to_string());
        let number: usize = value.ok().and_then(|value| value.parse().ok()).expect("a whole number");
        seen[number] = true;
    }
    assert_eq!(seen, [true; 4]);
}

#[test]
fn text_is_written_in_either_quote() {
    check(
        &TestFacts::default(),
        &[
            ("'a\"b'", "'a\"b'"),
            ("\"a'b\"", "'a'b'"),
            (r#"'a\'b\\c'"#, r"'a'b\c'"),
            (r#""a\"b""#, "'a\"b'"),
            (r"'\n'", r"'\n'"),
            ("'grün ≠ 緑'", "'grün ≠ 緑'"),
            ("''", "''"),
        ],
    );
}

#[test]
fn a_long_list_is_looked_up_like_a_short_one() {
    let names: Vec<String> = (0..2000).map(|at| format!("'host{at}.example'")).collect();
    let hosts: Vec<String> = (0..2000).map(|at| format!("10.1.{}.{}", at / 256, at % 256)).collect();
    let facts = |at: u32| {
        let ip = format!("10.1.{}.{}", at / 256, at % 256);
        TestFacts::default().text("name", &format!("www.host{at}.example.")).with("client_ip", address(&ip))
    };
    let under = read(&format!("under(name, {})", names.join(",")));
    let among = read(&format!("client_ip in ({})", hosts.join(",")));
    for (at, is) in [(0, true), (999, true), (1999, true), (2000, false)] {
        assert_eq!(under.is_true(&facts(at)), Ok(is), "{at}");
        assert_eq!(among.is_true(&facts(at)), Ok(is), "{at}");
    }
    let all = vec!["type == 'A'"; 4000].join(" and ");
    assert_eq!(read(&all).is_true(&query()), Ok(true));
    let any = vec!["type == 'NS'"; 4000].join(" or ");
    assert_eq!(read(&any).is_true(&query()), Ok(false));
}

#[test]
fn kinds_of_labels_depend_on_who_sets_them() {
    let facts = TestFacts::default().with("n", Value::Number(u64::MAX)).with("b", Value::Bool(false));
    holds(&facts, &[("n > 1", true), ("b", false), ("b == 'false'", true), ("n == '18446744073709551615'", true)]);
}

#[test]
fn addresses_of_the_own_network_are_private() {
    let of = |text: &str| response().with("response_ip", address(text));
    for (answer, is) in [("10.0.0.1", true), ("::ffff:127.0.0.1", true), ("fd00::1", true), ("203.0.113.9", false)] {
        holds(
            &of(answer),
            &[("is-private(response_ip)", is), ("is_private(response/ip)", is), ("not is-private(response_ip)", !is)],
        );
    }
    holds(
        &query(),
        &[
            ("is-private(client_ip)", true),
            ("is-private('192.0.2.1')", false),
            ("is-private('fe80::1')", true),
            // A query has none.
            ("is-private(response_ip)", false),
            ("is-private(kubernetes/client-label/none)", false),
        ],
    );
}

#[test]
fn entropy_is_of_text_and_facts_of_tunnels_are_numbers() {
    let facts = query()
        .with("label_length", Value::Number(40))
        .with("label_entropy", Value::Fraction(3.75))
        .with("client_rate", Value::Fraction(12.5))
        .with("client_subdomains", Value::Number(300));
    holds(
        &facts,
        &[
            ("entropy('abab') == 1", true),
            ("entropy(label(name, 1)) > 2 && entropy(label(name, 1)) < 3", true),
            ("entropy('') == 0", true),
            ("label_entropy > 3.7 and label_length >= 40", true),
            ("label_entropy > 3.8", false),
            ("client_rate > 12 && client_rate < 13", true),
            ("client_subdomains > 300", false),
            ("request/client_subdomains == 300", true),
        ],
    );
    // Where nothing is known of a client, it asks neither much nor little.
    holds(&query(), &[("client_rate > 0", false), ("client_subdomains < 10", false)]);
}
