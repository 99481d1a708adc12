//! `acl`, `rewrite`, `dns64`, `view`, `minimal`, `header`, `nsid` and `bufsize`. The comparison with CoreDNS
//! (`crates/namewall/tests/coredns`) has the many cases.

use crate::support::{Ask, Firewall, check, refused};

const HOSTS: &str = "hosts /no/such/file {
        192.0.2.1 www.example
        192.0.2.2 new.example
        fallthrough
    }
    forward . 192.0.2.53";

fn block(directives: &str) -> String {
    format!(".:53 {{\n    {directives}\n    {HOSTS}\n}}")
}

#[test]
fn acl_says_who_may_ask_for_what() {
    let acl = "acl example {
        allow type A net 10.0.0.0/8
        filter type TXT
        drop net 192.0.2.77
        block type A AAAA
    }";
    check(
        &block(acl),
        &[
            ("A www.example from 10.1.2.3", "answer NOERROR aa; www.example. 3600 A 192.0.2.1"),
            ("A www.example from 192.0.2.9", "REFUSED"),
            ("TXT www.example from 192.0.2.9", "NOERROR"),
            ("A www.example from 192.0.2.77", "silence"),
            ("MX www.example.org from 192.0.2.9", "route 0"),
        ],
    );
    let firewall = Firewall::new(&block(acl));
    let explained = |question: &str| {
        let ask = Ask::from(question);
        firewall.service.explain(&ask.asked(), None).client_gets()
    };
    assert_eq!(explained("A www.example from 192.0.2.9"), "REFUSED");
    assert_eq!(explained("TXT www.example from 192.0.2.9"), "NOERROR without data");
    assert_eq!(explained("A www.example from 10.1.2.3"), "the answer");
    assert!(refused(&block("acl {\n block type NONSENSE\n }")).contains("NONSENSE"));
    assert!(refused(&block("acl {\n block net 10.0.0.0/33\n }")).contains("10.0.0.0/33"));
    assert!(refused(&block("acl {\n block net\n }")).contains("nothing follows `net`"));
}

/// Rules see what the client asks for; the answer is that of another name.
#[test]
fn rewritten_questions_are_answered_as_others() {
    let rules = "firewall query {
        block name == 'blocked.example.'
        default allow
    }";
    let rewrite = "rewrite name old.example new.example
    rewrite name blocked.example new.example";
    check(
        &block(&format!("{rewrite}\n{rules}")),
        &[
            ("A old.example", "answer NOERROR aa; old.example. 3600 A 192.0.2.2"),
            ("A OLD.example", "answer NOERROR aa; old.example. 3600 A 192.0.2.2"),
            ("A new.example", "answer NOERROR aa; new.example. 3600 A 192.0.2.2"),
        ],
    );
    let firewall = Firewall::new(&block(&format!("{rewrite}\n{rules}")));
    assert!(firewall.ask("A blocked.example").starts_with("NXDOMAIN"));
    assert!(refused(&block("rewrite name regex (a {1}.b")).contains("no regular expression"));
    assert!(refused(&block("rewrite name regex (a) {2}.b")).contains("no group 2"));
}

/// A name that nobody can ask for is not sent to anybody.
#[test]
fn a_rewritten_name_that_is_none_gets_servfail() {
    let long = "x".repeat(64);
    let text = block(&format!("rewrite name regex (.*)[.]old[.]example[.] {{1}}.{long}.example"));
    assert_eq!(Firewall::new(&text).ask("A a.old.example"), "answer SERVFAIL");
}

#[test]
fn dns64_makes_addresses_where_there_are_none() {
    let firewall = Firewall::new(&block("dns64 {\n allow_ipv4\n }"));
    assert_eq!(firewall.ask("AAAA www.example"), "answer NOERROR; www.example. 60 AAAA 64:ff9b::c000:201");
    let only_six = Firewall::new(&block("dns64"));
    assert!(only_six.ask("AAAA www.example from 10.0.0.1").starts_with("answer NOERROR; authority"));
    assert!(only_six.ask("AAAA www.example from 2001:db8::1").contains("64:ff9b::c000:201"));
    assert!(refused(&block("dns64 64:ff9b::/95")).contains("no prefix"));
}

/// The address that is embedded is judged, too: an address in another form is no way around a rule.
#[test]
fn s9_3_dns64_does_not_hide_an_address_from_rules() {
    let rules = "firewall response {
        block in-cidr(response_ip, 192.0.2.1/32)
        default allow
    }";
    let firewall = Firewall::new(&block(&format!("dns64 {{\n allow_ipv4\n }}\n{rules}")));
    assert!(!firewall.ask("AAAA www.example").contains("64:ff9b"), "{}", firewall.ask("AAAA www.example"));
    assert!(firewall.ask("AAAA new.example").contains("64:ff9b::c000:202"));
}

#[test]
fn views_share_a_zone() {
    let text = ".:53 {
        view inside {
            expr incidr(client_ip(), '10.0.0.0/8') && type() in ['A', 'AAAA']
        }
        hosts /no/such/file {
            192.0.2.1 www.example
        }
    }
    .:53 {
        forward . 192.0.2.53
    }";
    check(
        text,
        &[
            ("A www.example from 10.1.2.3", "answer NOERROR aa; www.example. 3600 A 192.0.2.1"),
            ("MX www.example from 10.1.2.3", "route 0"),
            ("A www.example from 192.0.2.9", "route 0"),
        ],
    );
    assert!(refused(".:53 {\n view a {\n expr nonsense(\n }\n whoami\n}").contains("error"));
    assert!(refused(".:53 {\n view a {\n expr metadata('geoip/city') == 'x'\n }\n whoami\n}").contains("geoip/city"));
    assert!(refused(".:53 {\n whoami\n}\n.:53 {\n view a {\n expr true\n }\n whoami\n}").contains("served already"));
}

#[test]
fn answers_are_shaped_on_their_way_out() {
    let answer =
        ["@ 300 A 192.0.2.1", "authority example. 300 NS ns.example.", "additional ns.example. 300 A 192.0.2.2"];
    let asked = |directive: &str, question: &str| Firewall::new(&block(directive)).exchange(question, &answer);
    assert_eq!(asked("", "A a.example"), "pass");
    assert_eq!(asked("minimal", "A a.example"), "answer NOERROR; a.example. 300 A 192.0.2.1");
    assert!(asked("header {\n response set aa\n }", "A a.example").starts_with("answer NOERROR aa; "));
    assert!(asked("bufsize 512", "A a.example").starts_with("pass"), "it is short enough");
    assert!(refused(&block("bufsize 100")).contains("512"));
    // `local` stands before it, as with CoreDNS.
    let local = asked("local\n header {\n response set aa\n }", "A localhost");
    assert_eq!(local, asked("local", "A localhost"));
    assert!(refused(&block("header {\n response set xx\n }")).contains("xx"));
    assert!(refused(&block("header {\n set aa\n }")).contains("response set"));
    assert!(refused(&block("timeouts {\n idle 25h\n }")).contains("24 hours"));
}
