//! Facts from a query's EDNS0, and from who its client is.

use crate::support::{Ask, Engines, Firewall, check};
use namewall_dns_firewall::Identities;
use std::net::IpAddr;
use std::sync::Arc;

/// A list that allows if an expression holds, with fields of EDNS0.
fn list(fields: &str, expression: &str) -> String {
    format!(
        ".:53 {{\n forward . 192.0.2.53\n request {{\n{fields}\n }}\n firewall query {{\n allow {expression}\n refuse true\n }}\n}}"
    )
}

/// Whether a question's options make an expression hold.
fn holds(fields: &str, expression: &str, options: &str) -> bool {
    let firewall = Firewall::new(&list(fields, expression));
    match &*firewall.ask(&format!("A a.example {options}")) {
        "route 0" => true,
        "REFUSED" | "REFUSED; edns ede 18" => false,
        other => panic!("{other}"),
    }
}

#[test]
fn labels_are_read_in_every_encoding() {
    for (field, options, value) in [
        // Hexadecimal, which is also what counts if nothing is said.
        ("edns0 0xffed id", "0xffed=abc", "616263"),
        ("edns0 0xffed id hex", "0xffed=x:00ff", "00ff"),
        ("edns0 65517 id hex", "0xffed=x:0a", "0a"),
        ("edns0 0xffed id bytes", "0xffed=abc", "abc"),
        ("edns0 0xffed id bytes", "0xffed=x:ff", "\u{fffd}"),
        ("edns0 0xffed id ip", "0xffed=x:c0000201", "192.0.2.1"),
        ("edns0 0xffed id address", "0xffed=x:20010db8000000000000000000000001", "2001:db8::1"),
        // A piece of it: of so many bytes, from the first on up to the second.
        ("edns0 0xffed id hex 4 0 4", "0xffed=x:01020304", "01020304"),
        ("edns0 0xffed id hex 4 1 3", "0xffed=x:01020304", "0203"),
        ("edns0 0xffed id hex 0 2 0", "0xffed=x:01020304", "0304"),
        // The right one among others.
        ("edns0 0xffed id bytes", "0xffec=no 0xffed=yes 0xffee=no", "yes"),
    ] {
        assert!(holds(field, &format!("request/id == '{value}'"), options), "{field} of {options} is {value}");
        assert!(holds(field, &format!("id == '{value}'"), options), "{field} without its prefix");
    }
}

#[test]
fn a_label_of_a_wrong_length_is_not_set() {
    for (field, options) in [
        ("edns0 0xffed id", ""),
        ("edns0 0xffed id", "edns"),
        ("edns0 0xffed id", "0xffee=abc"),
        ("edns0 0xffed id hex 4 0 4", "0xffed=x:010203"),
        ("edns0 0xffed id hex 4 0 4", "0xffed=x:0102030405"),
        ("edns0 0xffed id hex 0 2 4", "0xffed=x:010203"),
        ("edns0 0xffed id hex 0 5 0", "0xffed=x:010203"),
        ("edns0 0xffed id ip", "0xffed=x:c00002"),
        ("edns0 0xffed id ip", "0xffed=x:c000020100"),
        ("edns0 0xffed id ip", "0xffed=192.0.2.1"),
    ] {
        assert!(holds(field, "request/id == ''", options), "{field} of {options}");
    }
}

#[test]
fn a_query_with_an_option_cut_short_is_refused_as_unreadable() {
    let firewall = Firewall::new(&list("edns0 0xffed id bytes", "id == 'abc'"));
    let whole = Ask::from("A a.example 0xffed=abc");
    assert_eq!(firewall.exchange_bytes(&whole, &[]), "pass");
    // The option says that it is longer than what is there, or the record does.
    let length = whole.query.len();
    for (at, value) in [(length - 4, 4), (length - 4, 200), (length - 8, 6), (length - 8, 200)] {
        let mut ask = whole.clone();
        ask.query[at] = value;
        let becomes = firewall.exchange_bytes(&ask, &[]);
        assert!(becomes.starts_with("FORMERR"), "{at} {value}: {becomes}");
    }
}

#[test]
fn a_label_that_is_an_address_is_within_networks() {
    let field = "edns0 0xffed client bytes\n edns0 0xffea source ip";
    assert!(holds(field, "in-cidr(source, 10.0.0.0/8, 2001:db8::/32)", "0xffea=x:0a000001"));
    assert!(holds(field, "in-cidr(source, 10.0.0.0/8, 2001:db8::/32)", "0xffea=x:20010db8000000000000000000000001"));
    assert!(!holds(field, "in-cidr(source, 10.0.0.0/8)", "0xffea=x:0b000001"));
    assert!(!holds(field, "in-cidr(source, 10.0.0.0/8)", "0xffea=x:0b0000"));
}

#[test]
fn the_present_plugins_fields_have_their_own_prefix() {
    check(
        ".:53 {
            forward . 192.0.2.53
            metadata_edns0 {
                client_id 0xffed bytes
                group_id 0xffee hex 4 1 3
            }
            firewall query {
                allow [metadata_edns0/client_id] == 'abc' && [metadata_edns0/group_id] == '0203'
                block true
            }
        }",
        &[
            ("A a.example 0xffed=abc 0xffee=x:01020304", "route 0"),
            ("A a.example 0xffed=abc 0xffee=x:010203", "NXDOMAIN; authority . 60 SOA 60; edns ede 15"),
        ],
    );
}

#[test]
fn labels_of_the_question_are_there_for_its_answer() {
    let firewall = Firewall::new(
        ".:53 {
            forward . 192.0.2.53
            request {
                edns0 0xffed id bytes
            }
            firewall response {
                refuse id == 'bad'
                default allow
            }
        }",
    );
    assert_eq!(firewall.exchange("A a.example 0xffed=bad", &["@ 30 A 192.0.2.1"]), "REFUSED; edns ede 18");
    assert_eq!(firewall.exchange("A a.example 0xffed=good", &["@ 30 A 192.0.2.1"]), "pass");
}

/// Two pods, by an address of either version.
#[derive(Debug)]
struct Pods;

impl Identities for Pods {
    fn label(&self, client: IpAddr, label: &str) -> Option<String> {
        let is_web = client == IpAddr::from([10, 244, 1, 2]) || client == "fd00::2".parse::<IpAddr>().unwrap();
        let known = [
            ("kubernetes/client-namespace", "shop"),
            ("kubernetes/client-pod-name", "web"),
            ("kubernetes/client-label/security", "3"),
            ("kubernetes/client-label/app.kubernetes.io/name", "web"),
        ];
        known.iter().find(|(name, _)| is_web && *name == label).map(|(_, value)| (*value).to_owned())
    }
}

fn of_pods(expression: &str) -> Firewall {
    let text =
        format!(".:53 {{\n forward . 192.0.2.53\n firewall query {{\n allow {expression}\n refuse true\n }}\n}}");
    Firewall::with(&text, &Engines::none(), Arc::new(Pods))
}

#[test]
fn a_pods_labels_are_its_clients() {
    for expression in [
        "[kubernetes/client-namespace] == 'shop'",
        "kubernetes/client-namespace == 'shop'",
        "[kubernetes/client-pod-name] =~ '^we'",
        "[kubernetes/client-label/security] == 3",
        "[kubernetes/client-label/app.kubernetes.io/name] == 'web'",
        // The name of a pod's label in the original form.
        "k8s/clientpod.security > 2",
        "[k8s/clientpod.app.kubernetes.io/name] == 'web'",
    ] {
        let firewall = of_pods(expression);
        for client in ["10.244.1.2", "::ffff:10.244.1.2", "fd00::2"] {
            assert_eq!(firewall.ask(&format!("A a.example from {client}")), "route 0", "{expression} {client}");
        }
        for client in ["10.244.1.3", "fd00::3"] {
            assert_eq!(firewall.ask(&format!("A a.example from {client}")), "REFUSED", "{expression} {client}");
        }
    }
}

#[test]
fn a_label_no_pod_has_is_not_set() {
    for expression in
        ["k8s/clientpod.none > 2", "[kubernetes/client-label/none]", "[kubernetes/client-namespace] == 'other'"]
    {
        assert_eq!(of_pods(expression).ask("A a.example from 10.244.1.2"), "REFUSED", "{expression}");
    }
}

/// Servers behind us might take another option than the rules have seen.
#[test]
fn what_a_query_says_twice_is_not_known() {
    let text = |fields: &str| {
        format!(
            ".:53 {{
                {fields}
                firewall query {{
                    refuse size > 400
                    default allow
                }}
                forward . 192.0.2.53
            }}"
        )
    };
    let firewall = Firewall::new(&text("request {\n edns0 0xffed id bytes\n }"));
    for (question, expected) in [
        ("A a.example 0xffed=good 0xffed=bad", "SERVFAIL"),
        ("A a.example 0xffed=good 0xffed=good", "SERVFAIL"),
        ("A a.example 0xffed=good", "route 0"),
        ("A a.example 0xffee=one 0xffee=two 0xffed=good", "route 0"),
    ] {
        assert!(firewall.ask(question).starts_with(expected), "{question}: {}", firewall.ask(question));
    }
    // Nobody looks at it.
    assert_eq!(Firewall::new(&text("")).ask("A a.example 0xffed=good 0xffed=bad"), "route 0");
    // Two OPT records, and an option that is cut short.
    let ask = Ask::from("A a.example 0xffed=good");
    let opt = ask.query.windows(3).position(|bytes| bytes == [0, 0, 41]).unwrap();
    let mut twice = ask.query.clone();
    twice.extend_from_slice(&ask.query[opt..]);
    twice[11] = 2;
    let mut short = ask.query.clone();
    *short.last_mut().unwrap() = 0;
    short[opt + 14] += 1;
    for query in [twice, short] {
        assert!(firewall.exchange_bytes(&Ask { query, ..Ask::from("A a.example") }, &[]).starts_with("FORMERR"));
    }
}
