//! Small promises about Corefiles, one test each.

use super::{only_server, read_alone, told};
use namewall_corefile::Encoding;

/// The findings about a server block with these lines.
fn of(lines: &str) -> String {
    told(&read_alone(&format!(". {{\n{lines}\n}}\n")))
}

#[test]
fn a_file_without_a_server_block_is_refused() {
    for text in ["", "\n\n", "# only a comment\n", "(snippet) {\n errors\n}\n"] {
        let told = told(&read_alone(text));
        assert!(told.contains("error: nothing is served"), "{text:?}: {told}");
    }
}

#[test]
fn only_response_rules_let_every_question_pass_and_that_is_said() {
    let response = "firewall response {\nblock response_ip == '192.0.2.1'\ndefault allow\n}";
    let only = of(response);
    assert!(only.contains("every question passes"), "{only}");
    assert_eq!(of(&format!("firewall query {{\ndefault allow\n}}\n{response}")), "");
}

#[test]
fn lists_of_one_point_without_zones_are_one_list() {
    let server = only_server(
        ". {
            firewall query {
                allow type == 'A'
            }
            firewall response {
                default allow
            }
            firewall query {
                refuse type == 'MX'
                default allow
            }
        }",
    );
    assert_eq!(server.firewalls.len(), 2, "a list of queries and one of responses");
    assert_eq!(server.firewalls[0].rules.len(), 2);
    assert_eq!(server.firewalls[0].at_end().to_string(), "allow");
}

#[test]
fn lists_that_cannot_be_one_list_are_refused() {
    let two =
        |first: &str, second: &str| of(&format!("firewall query {{\n{first}\n}}\nfirewall query {{\n{second}\n}}"));
    let told = two("default allow", "default block");
    assert!(told.contains("error: a list has one default"), "{told}");
    let told = two("passthrough example.com\ndefault block", "refuse type == 'MX'");
    assert!(told.contains("error: `passthrough` is for one list"), "{told}");
}

#[test]
fn an_engine_takes_nothing_after_its_name() {
    let told = of("opa d {\nendpoint http://127.0.0.1:8181/\n}\nfirewall query {\nopa d under\ndefault block\n}");
    assert!(told.contains("error: `opa d` takes no arguments"), "{told}");
}

#[test]
fn a_field_without_a_type_is_what_its_rules_compare_it_with() {
    let encoding = |rule: &str| {
        let server = only_server(&format!(
            ". {{\nrequest {{\nedns0 0xffed client_id\n}}\nfirewall query {{\n{rule}\ndefault block\n}}\n}}"
        ));
        server.edns0[0].encoding
    };
    let hex = Encoding::Hex { length: None, start: 0, end: None };
    assert_eq!(encoding("allow request/client_id ~= 'infoblox'"), Encoding::Bytes);
    assert_eq!(encoding("allow request/client_id == 'tenant-7'"), Encoding::Bytes);
    assert_eq!(encoding("allow request/client_id in ('tenant-7', 'tenant-8')"), Encoding::Bytes);
    assert_eq!(encoding("allow request/client_id == '0a0b'"), hex);
    assert_eq!(encoding(r"allow request/client_id =~ '^0a\w+$'"), hex);
    assert_eq!(encoding("allow true"), hex);
}

#[test]
fn a_field_without_a_type_that_is_both_is_refused() {
    let told = of("request {\nedns0 0xffed client_id\n}\nfirewall query {\nallow request/client_id == 'x-7'\n\
         allow request/client_id == '0a0b'\ndefault block\n}");
    assert!(told.contains("write `bytes` or `hex`"), "{told}");
}

#[test]
fn a_rule_may_have_a_name() {
    let server = only_server(
        ". {
            opa o {
                endpoint http://127.0.0.1:8181/
            }
            firewall query {
                rule ads refuse under(name, 'ads.example')
                rule by-opa opa o
                allow type == 'A'
                default block
            }
        }",
    );
    let names: Vec<Option<&str>> = server.firewalls[0].rules.iter().map(|rule| rule.name.as_deref()).collect();
    assert_eq!(names, [Some("ads"), Some("by-opa"), None]);
    assert_eq!(&*server.firewalls[0].rules[0].text, "rule ads refuse under(name, 'ads.example')");
}

#[test]
fn names_of_rules_are_checked() {
    let rules = |rules: &str| of(&format!("firewall query {{\n{rules}\ndefault block\n}}"));
    for (written, expected) in [
        ("rule", "`rule` needs a name and a rule"),
        ("rule ads", "`rule` needs a name and a rule"),
        ("rule permit true", "`permit` is no name of a rule"),
        ("rule a/b permit true", "`a/b` is no name of a rule"),
        ("rule ads default allow", "`default` begins no rule"),
        ("rule ads log", "`log` begins no rule"),
        ("rule ads permit true\nrule ads deny true", "the rule `ads` is there already"),
        ("rule ads permit type == 'BOGUS'", "`BOGUS` is no type of record"),
    ] {
        let told = rules(written);
        assert!(told.contains(expected), "{written}: {told}");
    }
    // An engine of this name is meant where there is one.
    assert!(!of("expression rule\nfirewall query {\nrule permit true\n}").contains("error"));
}

#[test]
fn a_cluster_that_answers_for_all_names_is_warned_of() {
    for all in ["kubernetes", "kubernetes ."] {
        let told = of(&format!("{all}\nforward . 192.0.2.53"));
        assert!(told.contains("none is forwarded") && told.contains("cluster.local"), "{told}");
    }
    assert_eq!(of("kubernetes"), "", "nothing is forwarded anyway");
    for some in ["kubernetes cluster.local", "kubernetes . {\nfallthrough\n}"] {
        assert_eq!(of(&format!("{some}\nforward . 192.0.2.53")), "");
    }
}

#[test]
fn directives_that_would_do_nothing_are_refused() {
    for lines in ["header", "header {\n}", "timeouts", "timeouts {\n}"] {
        let told = of(lines);
        assert!(told.contains("error: ") && told.contains("needs an option"), "{lines}: {told}");
    }
    let told = of("minimal {\n}");
    assert!(told.contains("error: `minimal` has no block"), "{told}");
    assert_eq!(of("minimal"), "");
}

#[test]
fn names_of_rewrite_have_no_empty_label() {
    let wrong = ["a..test b.test", "a.test b..test", "exact a..test b.test answer auto", "suffix .a..test .b.test"];
    for names in wrong {
        let told = of(&format!("rewrite name {names}"));
        assert!(told.contains("has an empty label"), "{names}: {told}");
    }
    for names in ["a.test b.test", "suffix .a.test .b.test", "regex (.*)..test {1}.b", "prefix a. b."] {
        assert_eq!(of(&format!("rewrite name {names}")), "", "{names}");
    }
}

#[test]
fn operators_of_coredns_are_functions_here_between_a_fact_and_a_text() {
    for (operator, instead) in
        [("startsWith", "has_prefix(name, 'a')"), ("endsWith", "has_suffix(name, 'a')"), ("contains", "name =~ 'a'")]
    {
        assert_eq!(of(&format!("view a {{\n expr name() {operator} 'a' && type() == 'A'\n}}\nwhoami")), "");
        let told = of(&format!("view a {{\n expr 'a' {operator} name()\n}}\nwhoami"));
        assert!(told.contains(&format!("there is no operator `{operator}`")), "{told}");
        assert!(told.contains(instead), "{told}");
    }
}

#[test]
fn keys_have_a_scheme_and_its_usual_port() {
    let server = only_server("tls://example.org https://. TLS://a.example:8853 b.example {\n tls cert.pem key.pem\n}");
    let keys: Vec<String> =
        server.keys.iter().map(|key| format!("{}://{}:{}", key.scheme.word(), key.zone, key.port)).collect();
    assert_eq!(keys, ["tls://example.org.:853", "https://.:443", "tls://a.example.:8853", "dns://b.example.:53"]);
}

#[test]
fn encrypted_keys_need_a_certificate_and_a_certificate_needs_them() {
    let without = told(&read_alone("https://. {\n whoami\n}\n"));
    assert!(without.contains("1:1: error: `https://` needs a certificate"), "{without}");
    assert!(of("tls cert.pem key.pem").contains("`tls` has no effect"));
    let of_tls = |line: &str| told(&read_alone(&format!("tls://. {{\n{line}\n}}\n")));
    assert_eq!(of_tls("tls cert.pem key.pem"), "");
    assert_eq!(of_tls("tls cert.pem key.pem ca.pem {\n client_auth require_and_verify\n}"), "");
    for (line, why) in [
        ("tls", "error: `tls` needs a certificate and its key"),
        ("tls cert.pem", "error: `tls` needs a certificate and its key"),
        ("tls {\n acme dns.example\n}", "error: `acme` is not served here"),
        ("tls cert.pem key.pem {\n keylog /tmp/keys\n}", "error: `keylog` is not served here"),
        ("tls cert.pem key.pem {\n client_auth require\n}", "error: `client_auth require` proves nothing"),
        ("tls cert.pem key.pem ca.pem", "the CA has no effect"),
        ("tls a b\ntls c d", "`tls` stands once in a server block"),
    ] {
        assert!(of_tls(line).contains(why), "{line}: {}", of_tls(line));
    }
}

#[test]
fn upstreams_over_https_are_addresses_with_a_path() {
    let server = only_server(
        ". {\n forward . https://192.0.2.1 https://192.0.2.2%dns.example:8443/q https://[2001:db8::1]:444/dns-query\n}",
    );
    let shown: Vec<String> = server.forwards[0].to.iter().map(|one| format!("{one:?}")).collect();
    assert_eq!(
        shown,
        [
            r#"Https { address: 192.0.2.1:443, name: None, path: "/dns-query" }"#,
            r#"Https { address: 192.0.2.2:8443, name: Some(dns.example), path: "/q" }"#,
            r#"Https { address: [2001:db8::1]:444, name: None, path: "/dns-query" }"#,
        ]
    );
    for (to, why) in [
        ("https://dns.example/dns-query", "the address of `dns.example` is not looked up"),
        ("https://dns.example:443", "the address of `dns.example:443` is not looked up"),
        ("https://192.0.2.1/dns-query?x", "`/dns-query?x` is not a path"),
        ("quic://192.0.2.1", "`quic://` is not asked"),
    ] {
        let told = of(&format!("forward . {to}"));
        assert!(told.contains(why), "{to}: {told}");
    }
}
