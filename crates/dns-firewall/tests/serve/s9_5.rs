//! S9.5: IPv6 wherever there is IPv4, and what stops the start.

use crate::stub::Upstream;
use crate::support::{Firewall, Live, answer, check, refused};
use expect_test::expect;

#[test]
fn s9_5_clients_are_told_apart_by_addresses_of_either_version() {
    check(
        ".:53 {
            forward . 192.0.2.53
            firewall query {
                allow in-cidr(client_ip, 10.0.0.0/8, fd00::/8)
                refuse client_ip == '2001:db8::1'
                drop client_ip == 192.0.2.7
                block true
            }
        }",
        &[
            ("A a.example from 10.1.2.3", "route 0"),
            ("A a.example from fd00::1", "route 0"),
            ("A a.example from 2001:db8::1", "REFUSED"),
            ("A a.example from 192.0.2.7", "silence"),
            // The same client by a socket of the other version.
            ("A a.example from ::ffff:10.1.2.3", "route 0"),
            ("A a.example from ::ffff:192.0.2.7", "silence"),
            ("A a.example from ::1", "NXDOMAIN; authority . 60 SOA 60"),
        ],
    );
}

#[test]
fn s9_5_servers_and_ports_are_facts_of_either_version() {
    check(
        ".:53 {
            forward . 192.0.2.53
            firewall query {
                allow server_ip == '::1' and server_port == 53 and port == 4000 and proto == 'tcp'
                refuse server_ip == '127.0.0.1'
                block true
            }
        }",
        &[
            ("A a.example from [fd00::1]:4000 at [::1]:53 tcp", "route 0"),
            ("A a.example from [fd00::1]:4000 at [::1]:53", "NXDOMAIN; authority . 60 SOA 60"),
            ("A a.example from 10.0.0.1 at 127.0.0.1:53", "REFUSED"),
        ],
    );
}

#[test]
fn s9_5_over_sockets_both_versions_are_served() {
    let upstream =
        Upstream::at("[::1]:0", |query, _| vec![answer(query, &["@ 30 AAAA 2001:db8::1", "@ 30 A 192.0.2.1"])]);
    let live = Live::start(&format!(
        ".:PORT0 {{
            forward . {}
            firewall query {{
                refuse client_ip == '::1' and type == 'TXT'
                default allow
            }}
            firewall response {{
                refuse response_ip == '2001:db8::1' and client_ip == '127.0.0.1'
                default allow
            }}
        }}",
        upstream.address
    ));
    let whole = "NOERROR; a.example. 30 AAAA 2001:db8::1; a.example. 30 A 192.0.2.1";
    for over in ["", "tcp"] {
        assert_eq!(live.ask(&format!("AAAA a.example from ::1 {over}")), whole);
        assert_eq!(live.ask(&format!("TXT a.example from ::1 {over}")), "REFUSED");
        assert_eq!(live.ask(&format!("AAAA a.example from 127.0.0.1 {over}")), "REFUSED");
    }
    assert_eq!(live.ask("TXT a.example from 127.0.0.2"), whole);
}

#[test]
fn s9_5_a_malformed_rule_stops_the_start_and_names_its_line() {
    let rule = |rule: &str| refused(&format!(".:53 {{\n firewall . query {{\n  {rule}\n }}\n}}"));
    expect![[r#"
        Corefile:2:2: warning: it is not said what counts at the end of this list
          2 |  firewall . query {
            |  ^^^^^^^^ in a list with a zone it is `block`: write `default block`
        Corefile:3:14: error: `=` means nothing here
          3 |   allow name = 'a'
            |              ^ write `==` to compare
    "#]]
    .assert_eq(&(rule("allow name = 'a'") + "\n"));
    for (wrong, place) in [
        ("allow", "Corefile:3:3: error"),
        ("allow (name == 'a'", "Corefile:3:"),
        ("permt true", "Corefile:3:3: error"),
        ("allow in-cidr(client_ip, 10.0.0.0/33)", "Corefile:3:"),
        ("allow client_ip < true", "Corefile:3:"),
        ("redirect nowhere true", "Corefile:3:12: error"),
        ("default perhaps", "Corefile:3:11: error"),
        ("themis nobody", "Corefile:3:10: error"),
    ] {
        let why = rule(wrong);
        assert!(why.contains(place) && why.contains("error: "), "{wrong}: {why}");
    }
}

#[test]
fn s9_5_all_that_is_wrong_is_told_at_once() {
    let why = refused(
        ".:53 {\n firewall . query {\n  allow name ==\n  permt true\n }\n firewall . response {\n  block )\n }\n}",
    );
    for line in ["Corefile:3:", "Corefile:4:", "Corefile:7:"] {
        assert!(why.contains(line), "{why}");
    }
}

#[test]
fn s9_5_what_no_query_has_is_refused() {
    for fact in ["response_ip", "response_ips", "response/ips", "rcode", "rsize", ">rflags"] {
        let rule = |point| {
            format!(
                ".:53 {{\n forward . 192.0.2.53\n firewall {point} {{\n  block len([{fact}]) == 0\n  default allow\n }}\n}}"
            )
        };
        let why = refused(&rule("query"));
        assert!(why.contains("Corefile:4:") && why.contains("a query has no `"), "{fact}: {why}");
        assert_eq!(Firewall::new(&rule("response")).warnings, [""; 0], "{fact}");
    }
}
