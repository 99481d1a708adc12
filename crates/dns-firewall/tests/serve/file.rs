//! Zones of files: what is there, what is not, and who is asked of it.

use crate::stub::eventually;
use crate::support::{Firewall, Live, refused};
use std::path::PathBuf;

/// A file that is there as long as the test.
struct File(PathBuf);

impl File {
    fn new(test: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("namewall-zone-{}-{test}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    /// Replaces the file at once: the server would read a half-written one, and log an error.
    fn replace(&self, text: &str) {
        let next = self.0.with_extension("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, &self.0).unwrap();
    }

    fn served(&self, options: &str) -> String {
        format!(".:53 {{\n file {} example.org {{\n {options}\n }}\n forward . 192.0.2.53\n}}", self.0.display())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const ZONE: &str = r#"
$ORIGIN example.org.
$TTL 1h
@       IN  SOA ns1 hostmaster (
            2026010101 ; serial
            7200 3600 1209600
            300 )      ; minimum
        IN  NS  ns1
            NS  ns2.example.net.
        MX  10 mail
        5m TXT "one \"piece\"; (of text)" two
ns1     A   192.0.2.53
        AAAA 2001:db8::53
mail    300 IN A 192.0.2.25
WWW     IN 60 A 192.0.2.1
www     A   192.0.2.2
www     A   192.0.2.1
alias   CNAME www
chain   CNAME alias
away    CNAME www.example.com.
dead    CNAME nothing
loop    CNAME pool
pool    CNAME loop
*.wild  A   192.0.2.9
        TXT wildcard
here.wild TXT here
deep.a.b A  192.0.2.7
_sip._tcp SRV 1 2 5060 mail
sub     NS  ns.sub
ns.sub  A   192.0.2.99
dotted\.label A 192.0.2.8
odd     TYPE65280 \# 3 00 ff01
1.2     PTR www
$ORIGIN more.example.org.
www     A   192.0.2.10
absolute.example.org. A 192.0.2.11
"#;

const SOA: &str = "authority example.org. 300 SOA 300";

#[test]
fn names_are_answered_as_they_are_written() {
    let file = File::new("answers", ZONE);
    let firewall = Firewall::new(&file.served(""));
    for (question, answer) in [
        ("A www.example.org", "NOERROR aa; www.example.org. 60 A 192.0.2.1; www.example.org. 3600 A 192.0.2.2"),
        ("A ns1.example.org", "NOERROR aa; ns1.example.org. 3600 A 192.0.2.53"),
        ("AAAA NS1.Example.ORG", "NOERROR aa; ns1.example.org. 3600 AAAA 2001:db8::53"),
        ("SOA example.org", "NOERROR aa; example.org. 3600 SOA 300"),
        (
            "MX example.org",
            "NOERROR aa; example.org. 3600 MX 10 mail.example.org.; additional mail.example.org. 300 A 192.0.2.25",
        ),
        (
            "NS example.org",
            "NOERROR aa; example.org. 3600 NS ns1.example.org.; example.org. 3600 NS ns2.example.net.; additional ns1.example.org. 3600 A 192.0.2.53; additional ns1.example.org. 3600 AAAA 2001:db8::53",
        ),
        ("TXT example.org", r#"NOERROR aa; example.org. 300 TXT one "piece"; (of text)two"#),
        (
            "SRV _sip._tcp.example.org",
            "NOERROR aa; _sip._tcp.example.org. 3600 SRV 1 2 5060 mail.example.org; additional mail.example.org. 300 A 192.0.2.25",
        ),
        (r"A dotted\.label.example.org", r"NOERROR aa; dotted\.label.example.org. 3600 A 192.0.2.8"),
        ("TYPE65280 odd.example.org", "NOERROR aa; odd.example.org. 3600 TYPE65280 of 3 bytes"),
        ("PTR 1.2.example.org", "NOERROR aa; 1.2.example.org. 3600 PTR www.example.org."),
        ("A www.more.example.org", "NOERROR aa; www.more.example.org. 3600 A 192.0.2.10"),
        ("A absolute.example.org", "NOERROR aa; absolute.example.org. 3600 A 192.0.2.11"),
    ] {
        assert_eq!(firewall.ask(question), format!("answer {answer}"), "{question}");
    }
}

#[test]
fn aliases_are_followed_within_the_zone() {
    let file = File::new("aliases", ZONE);
    let firewall = Firewall::new(&file.served(""));
    let www = "www.example.org. 60 A 192.0.2.1; www.example.org. 3600 A 192.0.2.2";
    for (question, answer) in [
        ("A alias.example.org", format!("NOERROR aa; alias.example.org. 3600 CNAME www.example.org.; {www}")),
        (
            "A chain.example.org",
            format!(
                "NOERROR aa; chain.example.org. 3600 CNAME alias.example.org.; alias.example.org. 3600 CNAME www.example.org.; {www}"
            ),
        ),
        ("CNAME alias.example.org", "NOERROR aa; alias.example.org. 3600 CNAME www.example.org.".to_owned()),
        ("AAAA alias.example.org", format!("NOERROR aa; alias.example.org. 3600 CNAME www.example.org.; {SOA}")),
        ("A away.example.org", "NOERROR aa; away.example.org. 3600 CNAME www.example.com.".to_owned()),
        ("A dead.example.org", format!("NXDOMAIN aa; dead.example.org. 3600 CNAME nothing.example.org.; {SOA}")),
    ] {
        assert_eq!(firewall.ask(question), format!("answer {answer}"), "{question}");
    }
    let looped = firewall.ask("A loop.example.org");
    assert!(looped.starts_with("answer NOERROR aa; loop.example.org. 3600 CNAME pool.example.org."), "{looped}");
}

#[test]
fn wildcards_stand_for_what_is_not_there() {
    let file = File::new("wildcards", ZONE);
    let firewall = Firewall::new(&file.served(""));
    for (question, answer) in [
        ("A x.wild.example.org", "NOERROR aa; x.wild.example.org. 3600 A 192.0.2.9".to_owned()),
        ("A x.y.wild.example.org", "NOERROR aa; x.y.wild.example.org. 3600 A 192.0.2.9".to_owned()),
        ("TXT x.wild.example.org", "NOERROR aa; x.wild.example.org. 3600 TXT wildcard".to_owned()),
        ("AAAA x.wild.example.org", format!("NOERROR aa; {SOA}")),
        ("A *.wild.example.org", "NOERROR aa; *.wild.example.org. 3600 A 192.0.2.9".to_owned()),
        // RFC 4592 §2.2.1: not for a name that is there, nor for one below it.
        ("A here.wild.example.org", format!("NOERROR aa; {SOA}")),
        ("A x.here.wild.example.org", format!("NXDOMAIN aa; {SOA}")),
        ("A wild.example.org", format!("NOERROR aa; {SOA}")),
    ] {
        assert_eq!(firewall.ask(question), format!("answer {answer}"), "{question}");
    }
}

#[test]
fn what_is_not_there_is_denied_with_the_soa() {
    let file = File::new("denials", ZONE);
    let firewall = Firewall::new(&file.served(""));
    for (question, answer) in [
        ("A nothing.example.org", format!("NXDOMAIN aa; {SOA}")),
        ("AAAA www.example.org", format!("NOERROR aa; {SOA}")),
        // Names between are there, though they have nothing.
        ("A b.example.org", format!("NOERROR aa; {SOA}")),
        ("A a.b.example.org", format!("NOERROR aa; {SOA}")),
        ("A x.b.example.org", format!("NXDOMAIN aa; {SOA}")),
        ("A nothing.example.org edns", format!("NXDOMAIN aa; {SOA}; edns")),
        (
            "A www.sub.example.org",
            "NOERROR; authority sub.example.org. 3600 NS ns.sub.example.org.; additional ns.sub.example.org. 3600 A 192.0.2.99".to_owned(),
        ),
        (
            "A ns.sub.example.org",
            "NOERROR; authority sub.example.org. 3600 NS ns.sub.example.org.; additional ns.sub.example.org. 3600 A 192.0.2.99".to_owned(),
        ),
        ("AXFR example.org", "REFUSED".to_owned()),
    ] {
        assert_eq!(firewall.ask(question), format!("answer {answer}"), "{question}");
    }
    for elsewhere in ["A example.com", "A badexample.org", "A www.example.org CH"] {
        assert_eq!(firewall.ask(elsewhere), "route 0", "{elsewhere}");
    }
}

#[test]
fn what_is_not_there_is_asked_elsewhere_where_it_says_so() {
    let file = File::new("fallthrough", ZONE);
    let firewall = Firewall::new(&file.served("fallthrough b.example.org"));
    assert_eq!(firewall.ask("A x.b.example.org"), "route 0");
    assert_eq!(firewall.ask("A x.example.org"), format!("answer NXDOMAIN aa; {SOA}"));
    assert_eq!(firewall.ask("A a.b.example.org"), format!("answer NOERROR aa; {SOA}"), "it is there");
}

#[test]
fn a_file_can_be_for_several_zones() {
    let text = "@ 60 IN SOA ns hostmaster 1 2 3 4 5\nwww 60 IN A 192.0.2.1\n";
    let file = File::new("several", text);
    let firewall = Firewall::new(&format!("example.org:53 example.net:53 {{\n file {}\n}}", file.0.display()));
    for name in ["www.example.org", "www.example.net"] {
        assert_eq!(firewall.ask(&format!("A {name}")), format!("answer NOERROR aa; {name}. 60 A 192.0.2.1"));
    }
}

#[test]
fn what_a_file_says_is_for_whom_the_rules_let_have_it() {
    let file = File::new("live", ZONE);
    let live = Live::start(&format!(
        ".:PORT0 {{
            file {} example.org
            firewall query {{
                refuse client_ip == '127.0.0.2'
                default allow
            }}
            firewall response {{
                block client_ip == '127.0.0.3' and response_ip == '192.0.2.2'
                default allow
            }}
        }}",
        file.0.display()
    ));
    let www = "NOERROR aa; www.example.org. 60 A 192.0.2.1; www.example.org. 3600 A 192.0.2.2";
    assert_eq!(live.ask("A www.example.org"), www);
    assert_eq!(live.ask("A www.example.org tcp"), www);
    assert_eq!(live.ask("A www.example.org from 127.0.0.2"), "REFUSED");
    assert_eq!(live.ask("A www.example.org from 127.0.0.3"), "NXDOMAIN; authority . 60 SOA 60");
    assert_eq!(live.ask("A example.com"), "REFUSED", "nobody is there to be asked");
}

#[test]
fn a_file_that_changes_is_read_again_and_a_bad_one_is_not_served() {
    let file = File::new("reload", "@ 60 IN SOA ns hostmaster 1 2 3 4 5\nwww 60 IN A 192.0.2.1\n");
    let live = Live::start(&format!(".:PORT0 {{\n file {} example.org {{\n reload 50ms\n }}\n}}", file.0.display()));
    assert_eq!(live.ask("A www.example.org"), "NOERROR aa; www.example.org. 60 A 192.0.2.1");
    file.replace("@ 60 IN SOA ns hostmaster 2 2 3 4 5\nwww 60 IN A 192.0.2.22\n");
    eventually(|| live.ask("A www.example.org") == "NOERROR aa; www.example.org. 60 A 192.0.2.22");
    file.replace("@ 60 IN SOA ns hostmaster 2 2 3 4 5\nwww 60 IN A nonsense\n");
    let told = live.told.lines(1);
    assert_eq!(
        told,
        [format!(
            "[ERROR] {}: line 2: A takes `IPV4-ADDRESS`, not `nonsense` (expected IPv4 address); it stays as it was",
            file.0.display()
        )]
    );
    assert_eq!(live.ask("A www.example.org"), "NOERROR aa; www.example.org. 60 A 192.0.2.22");
}

#[test]
fn what_is_wrong_with_a_file_is_said_at_the_start() {
    let soa = "@ 60 IN SOA ns hostmaster 1 2 3 4 5\n";
    for (rest, why) in [
        ("www 60 IN A 192.0.2.256", "line 2: A takes `IPV4-ADDRESS`, not `192.0.2.256` (expected IPv4 address)"),
        (
            "www 60 IN A 192.0.2.1 192.0.2.2",
            "line 2: A takes `IPV4-ADDRESS`, not `192.0.2.1 192.0.2.2` (trailing tokens)",
        ),
        ("www 60 IN MX mail", "line 2: MX takes `PREFERENCE NAME`, not `mail` (expected decimal number)"),
        (
            "www 60 IN HINF a b",
            "line 2: `HINF` is no type of record; write its name, like `AAAA`, or `TYPE` and its number (RFC 3597)",
        ),
        ("www.example.com. 60 IN A 192.0.2.1", "line 2: www.example.com. is not in example.org."),
        (
            "www 60 IN CNAME a\nwww 60 IN A 192.0.2.1",
            "line 3: www.example.org. has an alias: there can be no other record of it",
        ),
        (
            "www 60 IN A 192.0.2.1\nwww 60 IN CNAME a",
            "line 3: www.example.org. has an alias: there can be no other record of it",
        ),
        ("www 60 CH A 192.0.2.1", "line 2: records of other classes than IN are not served"),
        ("@ 60 IN SOA ns hostmaster 1 2 3 4 5", "line 2: a zone has one SOA"),
        ("www 60 IN SOA ns hostmaster 1 2 3 4 5", "line 2: an SOA is of the zone itself, example.org."),
        ("www 60 IN TXT \"never", "line 2: a quote is never closed"),
        ("\nwww 60 IN TXT (never", "line 3: a parenthesis is never closed"),
        ("www 60 IN TXT never)", "line 2: a parenthesis is closed that none opens"),
        ("$INCLUDE other", "line 2: `$INCLUDE` is not read; there are `$ORIGIN NAME` and `$TTL TIME`"),
        ("a..b 60 IN A 192.0.2.1", "line 2: `a..b` is no name: empty label"),
        ("www 99999999999 IN A 192.0.2.1", "line 2: `99999999999` is no TTL: write seconds, or times like `1h30m`"),
        (
            "www 60 IN TYPE1234 \\# 3 00",
            "line 2: what follows `\\#` is the number of bytes, and as many pairs of hexadecimal digits",
        ),
    ] {
        let file = File::new("wrong", &format!("{soa}{rest}\n"));
        let told = refused(&file.served(""));
        assert_eq!(told, format!("Corefile:2:2: error: file: {}: {why}", file.0.display()), "{rest}");
    }
    let file = File::new("without", "www 60 IN A 192.0.2.1\n");
    assert!(refused(&file.served("")).ends_with(": line 1: there is no SOA of example.org."));
    let told = refused(".:53 {\n file /no/such/zone\n}");
    assert_eq!(told, "Corefile:2:2: error: file: /no/such/zone: No such file or directory (os error 2)");
}
