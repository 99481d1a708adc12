//! Small promises about answers, one test each.

use crate::support::{Engines, Firewall, Live, LoggedText, around, built, check, upstream};
use std::time::Duration;

/// Whether the reply says that recursion is available.
fn says_recursion(live: &Live, question: &str) -> bool {
    live.bytes(question, 0).unwrap()[3] & 0x80 != 0
}

#[test]
fn recursion_is_available_only_where_questions_are_forwarded() {
    let up = upstream(&["@ 30 A 192.0.2.1"]);
    let live = Live::start(&format!(
        ".:PORT0 {{
            hosts /dev/null {{
                192.0.2.1 a.example
                192.0.2.2 a.forwarded
                fallthrough
            }}
            forward forwarded {}
        }}
        refusing.example:PORT0 {{
            firewall query {{
                refuse true
            }}
        }}",
        up.address
    ));
    assert!(!says_recursion(&live, "A a.example"));
    assert!(!says_recursion(&live, "A other.example"), "nobody answers it");
    assert!(!says_recursion(&live, "A refusing.example"));
    assert!(says_recursion(&live, "A a.forwarded"));
    assert!(says_recursion(&live, "A b.forwarded"));
}

#[test]
fn a_name_that_hosts_does_not_have_is_servfail_as_with_coredns() {
    check(
        ".:53 {
            hosts /dev/null {
                192.0.2.1 a.example
            }
            forward . 192.0.2.53
        }",
        &[
            ("A a.example", "answer NOERROR aa; a.example. 3600 A 192.0.2.1"),
            ("A b.example", "answer SERVFAIL"),
            ("AAAA a.example", "answer NOERROR; authority a.example. 60 SOA 60"),
        ],
    );
}

#[test]
fn the_first_answer_through_a_cache_has_the_ttl_of_the_next() {
    let firewall = Firewall::new(".:53 {\n cache 30\n forward . 192.0.2.53\n}");
    let lines = &["@ 300 A 192.0.2.1", "@ 20 A 192.0.2.2"];
    let capped = "answer NOERROR; a.example. 20 A 192.0.2.1; a.example. 20 A 192.0.2.2";
    assert_eq!(firewall.exchange("A a.example", lines), capped);
    assert_eq!(firewall.exchange("A a.example", lines), capped);
    let one = firewall.exchange("A b.example", &["@ 300 A 192.0.2.1"]);
    assert_eq!(one, "answer NOERROR; b.example. 30 A 192.0.2.1");
    assert_eq!(firewall.exchange("A c.example", &["@ 25 A 192.0.2.1"]), "pass", "nothing is changed without need");
    let kept = Firewall::new(".:53 {\n cache 30 {\n keepttl\n}\n forward . 192.0.2.53\n}");
    assert_eq!(kept.exchange("A b.example", &["@ 300 A 192.0.2.1"]), "pass");
}

#[test]
fn lines_of_a_hosts_file_that_cannot_be_read_are_told() {
    let path = std::env::temp_dir().join(format!("namewall-hosts-{}", std::process::id()));
    std::fs::write(
        &path,
        "192.0.2.1 a.example\n192.0.2 b.example\n# fine\n\n192.0.2.3 c..example d.example\n192.0.2.4\n",
    )
    .unwrap();
    let firewall = Firewall::new(&format!(".:53 {{\n hosts {}\n}}", path.display()));
    let _ = std::fs::remove_file(&path);
    let told = firewall.warnings.join("\n");
    for (line, what) in [(2, "`192.0.2` is not an address"), (5, "`c..example` is not a name"), (6, "no name")] {
        let place = format!("{}:{line}: ", path.display());
        assert!(told.lines().any(|told| told.contains(&place) && told.contains(what)), "{line} {what}: {told}");
    }
    assert_eq!(firewall.warnings.len(), 3, "{told}");
    assert_eq!(firewall.ask("A d.example"), "answer NOERROR aa; d.example. 3600 A 192.0.2.3");
}

#[test]
fn an_ipv6_address_may_be_in_brackets_as_the_plugins_readme_writes_it() {
    check(
        ".:53 {
            forward . 192.0.2.53
            firewall query {
                refuse client_ip == '[2001:db8::1]'
                refuse client_ip in ('[2001:db8::2]', '192.0.2.7')
                default allow
            }
        }",
        &[
            ("A a.example from 2001:db8::1", "REFUSED"),
            ("A a.example from 2001:db8::2", "REFUSED"),
            ("A a.example from 192.0.2.7", "REFUSED"),
            ("A a.example from 2001:db8::3", "route 0"),
        ],
    );
}

#[test]
fn two_lists_without_zones_are_asked_as_one() {
    // As with CoreDNS, whose rules are added to one list for each point.
    check(
        ".:53 {
            forward . 192.0.2.53
            firewall query {
                allow type == 'A'
            }
            firewall query {
                refuse type == 'MX'
                refuse type == 'A'
                default allow
            }
        }",
        &[("A a.example", "route 0"), ("MX a.example", "REFUSED"), ("TXT a.example", "route 0")],
    );
}

#[test]
fn the_longest_idle_timeout_counts_and_without_one_it_is_ten_seconds() {
    let of = |text: &str| built(text, &around(&LoggedText::default()), &Engines::none()).unwrap().idle_timeout;
    let (short, long) = ("timeouts {\n idle 2s\n }", "timeouts {\n idle 30s\n }");
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let two =
        |one: &str, other: &str| of(&format!("a.test:53 {{\n {one}\n whoami\n}}\nb.test:53 {{\n {other}\n whoami\n}}"));
    assert_eq!(two(short, ""), seconds(10), "the other block has the usual one");
    assert_eq!(two(short, long), seconds(30));
    assert_eq!(two(long, ""), seconds(30));
    assert_eq!(two(short, short), seconds(2));
    assert_eq!(two("", ""), None);
}
