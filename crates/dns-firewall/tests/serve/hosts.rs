//! Names of a file, and of the Corefile itself.

use crate::stub::eventually;
use crate::support::{Firewall, Live, check, refused};
use std::path::PathBuf;

/// A file that is there as long as the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("namewall-serve-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const INLINE: &str = ".:53 {
    forward . 192.0.2.53
    hosts /no/such/file {
        192.0.2.10 www.example.com web.example.com
        192.0.2.11 www.example.com
        2001:db8::10 www.example.com
        2001:db8::20 six.example.com
        ttl 77
        fallthrough
    }
}";

#[test]
fn addresses_of_either_version_are_answered() {
    check(
        INLINE,
        &[
            (
                "A www.example.com",
                "answer NOERROR aa; www.example.com. 77 A 192.0.2.10; www.example.com. 77 A 192.0.2.11",
            ),
            (
                "A WWW.example.COM",
                "answer NOERROR aa; www.example.com. 77 A 192.0.2.10; www.example.com. 77 A 192.0.2.11",
            ),
            ("AAAA www.example.com", "answer NOERROR aa; www.example.com. 77 AAAA 2001:db8::10"),
            ("A web.example.com edns", "answer NOERROR aa; web.example.com. 77 A 192.0.2.10; edns"),
            // The name is there, and has nothing of the kind.
            ("A six.example.com", "answer NOERROR; authority six.example.com. 60 SOA 60"),
            ("TXT six.example.com", "answer NOERROR; authority six.example.com. 60 SOA 60"),
            ("A other.example.com", "route 0"),
        ],
    );
}

#[test]
fn addresses_have_their_names_too() {
    let reverse = "0.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa";
    check(
        INLINE,
        &[
            (
                "PTR 10.2.0.192.in-addr.arpa",
                "answer NOERROR aa; 10.2.0.192.in-addr.arpa. 77 PTR www.example.com.; 10.2.0.192.in-addr.arpa. 77 PTR web.example.com.",
            ),
            (&format!("PTR {reverse}"), &format!("answer NOERROR aa; {reverse}. 77 PTR www.example.com.")),
            ("PTR 99.2.0.192.in-addr.arpa", "route 0"),
        ],
    );
    let without = INLINE.replace("ttl 77", "no_reverse");
    check(&without, &[("PTR 10.2.0.192.in-addr.arpa", "route 0")]);
}

#[test]
fn without_fallthrough_nobody_else_is_asked() {
    let text = INLINE.replace("        fallthrough\n", "");
    check(
        &text,
        &[
            (
                "A www.example.com",
                "answer NOERROR aa; www.example.com. 77 A 192.0.2.10; www.example.com. 77 A 192.0.2.11",
            ),
            ("A other.example.com", "answer SERVFAIL"),
            // A name no file can hold is known as little.
            (r"A a\.b.example.com", "answer SERVFAIL"),
            // Names of addresses are anybody's, as with CoreDNS.
            ("PTR 99.2.0.192.in-addr.arpa", "route 0"),
        ],
    );
}

#[test]
fn names_fall_through_by_zone() {
    let text = INLINE.replace("fallthrough", "fallthrough example.com test");
    check(
        &text,
        &[("A other.example.com", "route 0"), ("A a.test", "route 0"), ("A notexample.com", "answer SERVFAIL")],
    );
}

#[test]
fn zones_say_which_names_are_looked_for() {
    let text = INLINE.replace("/no/such/file", "/no/such/file example.com example.org").replace("fallthrough", "");
    check(
        &text,
        &[
            ("A six.example.com", "answer NOERROR; authority six.example.com. 60 SOA 60"),
            ("A other.example.com", "answer SERVFAIL"),
            ("A a.b.example.org", "answer SERVFAIL"),
            ("A a.example.net", "route 0"),
            ("A notexample.com", "route 0"),
            // Names of addresses need no zone, as with CoreDNS.
            ("PTR 11.2.0.192.in-addr.arpa", "answer NOERROR aa; 11.2.0.192.in-addr.arpa. 77 PTR www.example.com."),
        ],
    );
}

#[test]
fn without_zones_they_are_the_servers() {
    let text = INLINE.replace(".:53", "example.com:53 example.org:53").replace("fallthrough", "");
    check(&text, &[("A a.example.org", "answer SERVFAIL")]);
}

#[test]
fn other_classes_are_not_answered_with_addresses_of_the_internet() {
    check(INLINE, &[("A www.example.com CH", "route 0")]);
}

#[test]
fn a_file_is_read_as_hosts_files_are() {
    let file = File::new(
        "hosts",
        "# a comment\n127.0.0.1 localhost\n::1\tlocalhost ip6-localhost\n\n192.0.2.7  seven.example SEVEN # comment\nnonsense here\n192.0.2.8\n192.0.2.9 bad..name nine.example\n",
    );
    let text = format!(".:53 {{\n hosts {} {{\n 192.0.2.70 seven.example\n }}\n}}", file.0.display());
    check(
        &text,
        &[
            ("A localhost", "answer NOERROR aa; localhost. 3600 A 127.0.0.1"),
            ("AAAA ip6-localhost", "answer NOERROR aa; ip6-localhost. 3600 AAAA ::1"),
            ("A seven.example", "answer NOERROR aa; seven.example. 3600 A 192.0.2.70; seven.example. 3600 A 192.0.2.7"),
            ("A seven", "answer NOERROR aa; seven. 3600 A 192.0.2.7"),
            ("A nine.example", "answer NOERROR aa; nine.example. 3600 A 192.0.2.9"),
            ("A here", "answer SERVFAIL"),
        ],
    );
}

#[test]
fn a_file_that_is_not_there_stops_the_start() {
    assert_eq!(
        refused(".:53 {\n hosts /no/such/file\n}"),
        "Corefile:1:1: error: hosts: /no/such/file: No such file or directory (os error 2)"
    );
}

#[test]
fn rules_count_for_names_of_hosts_as_well() {
    let firewall = Firewall::new(
        ".:53 {
            hosts /no/such/file {
                192.0.2.10 www.example.com
                10.0.0.1 inside.example.com
                192.0.2.11 secret.example.com
            }
            firewall query {
                refuse label(name, 0) == 'secret'
                default allow
            }
            firewall response {
                block in-cidr(response_ip, 10.0.0.0/8)
                default allow
            }
        }",
    );
    assert_eq!(firewall.ask("A www.example.com"), "answer NOERROR aa; www.example.com. 3600 A 192.0.2.10");
    assert_eq!(firewall.ask("A secret.example.com"), "REFUSED");
    assert_eq!(firewall.ask("A inside.example.com"), "NXDOMAIN; authority . 60 SOA 60");
}

#[test]
fn a_file_that_changes_is_read_again() {
    let file = File::new("changes", "192.0.2.1 www.example.com\n");
    let live = Live::start(&format!(".:PORT0 {{\n hosts {} {{\n reload 50ms\n }}\n}}", file.0.display()));
    assert_eq!(live.ask("A www.example.com"), "NOERROR aa; www.example.com. 3600 A 192.0.2.1");
    std::fs::write(&file.0, "192.0.2.22 www.example.com\n").unwrap();
    eventually(|| live.ask("A www.example.com") == "NOERROR aa; www.example.com. 3600 A 192.0.2.22");
    std::fs::remove_file(&file.0).unwrap();
    let told = live.told.lines(1);
    assert!(told[0].starts_with(&format!("[ERROR] {}: No such file", file.0.display())), "{told:?}");
    assert_eq!(live.ask("A www.example.com"), "NOERROR aa; www.example.com. 3600 A 192.0.2.22", "it stays as it was");
}
