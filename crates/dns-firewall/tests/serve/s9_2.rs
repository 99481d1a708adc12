//! S9.2: what clients get.

use crate::support::{Firewall, Live, check, upstream};

const RESULTS: &str = "
    allow label(name, 0) == 'allow'
    permit label(name, 0) == 'permit'
    refuse label(name, 0) == 'refuse'
    block label(name, 0) == 'block'
    deny label(name, 0) == 'deny'
    drop label(name, 0) == 'drop'
    log label(name, 0) == 'log'
    redirect 192.0.2.99 label(name, 0) == 'redirect'
    redirect 192.0.2.99:5353 label(name, 0) == 'port'
    redirect [2001:db8::53] label(name, 0) == 'six'
    default allow
";

fn lists(form: &str) -> String {
    format!("example.com:53 {{\n forward . 192.0.2.53\n firewall {form} query {{{RESULTS}}}\n}}")
}

#[test]
fn s9_2_each_result_is_what_it_should_be() {
    let denial = "NXDOMAIN; authority example.com. 60 SOA 60";
    let shared = [
        ("A allow.example.com", "route 0"),
        ("A permit.example.com", "route 0"),
        ("A refuse.example.com", "REFUSED"),
        ("A refuse.example.com edns", "REFUSED; edns ede 18"),
        ("A block.example.com", denial),
        ("A deny.example.com", denial),
        ("AAAA deny.example.com do", "NXDOMAIN; authority example.com. 60 SOA 60; edns do ede 15"),
        ("A log.example.com", "route 0"),
        ("A redirect.example.com", "asked of 192.0.2.99:53"),
        ("A port.example.com", "asked of 192.0.2.99:5353"),
        ("A six.example.com", "asked of [2001:db8::53]:53"),
        ("A other.example.com", "route 0"),
    ];
    check(&lists("."), &shared);
    check(&lists(""), &shared);
}

#[test]
fn s9_2_drop_is_an_answer_without_data_in_the_original_form_and_silence_in_the_shipped_one() {
    check(
        &lists("."),
        &[
            ("A drop.example.com", "NOERROR; authority example.com. 60 SOA 60"),
            ("A drop.example.com edns", "NOERROR; authority example.com. 60 SOA 60; edns ede 15"),
        ],
    );
    check(&lists(""), &[("A drop.example.com", "silence"), ("A drop.example.com tcp", "silence")]);
}

#[test]
fn s9_2_log_writes_a_line_and_goes_on() {
    let firewall = Firewall::new(
        ".:53 {
            forward . 192.0.2.53
            firewall query {
                log type == 'A'
                log in-cidr(client_ip, 10.0.0.0/8)
                refuse type == 'A'
                default allow
            }
        }",
    );
    assert_eq!(firewall.ask("A a.example from 10.0.0.1"), "REFUSED");
    assert_eq!(firewall.ask("AAAA a.example from 192.0.2.1"), "route 0");
    assert_eq!(firewall.ask("AAAA a.example from 10.0.0.1"), "route 0");
    assert_eq!(
        firewall.told.lines(3),
        [
            "Corefile:4:17: log: A a.example. from 10.0.0.1:40000",
            "Corefile:5:17: log: A a.example. from 10.0.0.1:40000",
            "Corefile:5:17: log: AAAA a.example. from 10.0.0.1:40000",
        ]
    );
}

#[test]
fn s9_2_results_for_answers_are_the_same() {
    let answers = |form: &str| {
        Firewall::new(&format!(
            ".:53 {{
                forward . 192.0.2.53
                firewall {form} response {{
                    refuse response_ip == '192.0.2.1'
                    block response_ip == '192.0.2.2'
                    drop response_ip == '192.0.2.3'
                    log response_ip == '192.0.2.4'
                    default allow
                }}
            }}"
        ))
    };
    for (form, dropped) in [(".", "NOERROR; authority . 60 SOA 60"), ("", "silence")] {
        let firewall = answers(form);
        let becomes = |record: &str| firewall.exchange("A a.example", &[record]);
        assert_eq!(becomes("@ 30 A 192.0.2.1"), "REFUSED");
        assert_eq!(becomes("@ 30 A 192.0.2.2"), "NXDOMAIN; authority . 60 SOA 60");
        assert_eq!(becomes("@ 30 A 192.0.2.3"), dropped);
        assert_eq!(becomes("@ 30 A 192.0.2.4"), "pass");
        let logged = firewall.told.lines(1);
        assert!(logged[0].ends_with(": log: A a.example. (192.0.2.4) from 127.0.0.1:40000"), "{logged:?}");
    }
}

#[test]
fn s9_2_a_redirect_stands_until_a_later_list_stops_it() {
    check(
        ".:53 {
            forward . 192.0.2.53
            firewall . query {
                redirect 192.0.2.99 true
            }
            firewall . query {
                refuse type == 'TXT'
                redirect 192.0.2.100 type == 'MX'
                default allow
            }
        }",
        &[
            ("A a.example", "asked of 192.0.2.99:53"),
            ("TXT a.example", "REFUSED"),
            ("MX a.example", "asked of 192.0.2.100:53"),
        ],
    );
}

#[test]
fn s9_2_an_answer_cannot_be_redirected() {
    let why = crate::support::refused(
        ".:53 {\n forward . 192.0.2.53\n firewall response {\n redirect 192.0.2.99 true\n }\n}",
    );
    assert_eq!(why, "Corefile:4:2: error: an answer cannot be redirected; `redirect` is for queries");
}

#[test]
fn s9_2_over_sockets_each_client_gets_its_result() {
    let (usual, other) = (upstream(&["@ 30 A 192.0.2.1"]), upstream(&["@ 30 A 192.0.2.2"]));
    let live = Live::start(&format!(
        ".:PORT0 {{
            forward . {}
            firewall query {{
                refuse label(name, 0) == 'refuse'
                block label(name, 0) == 'block'
                drop label(name, 0) == 'drop'
                redirect {} label(name, 0) == 'redirect'
                default allow
            }}
        }}",
        usual.address, other.address
    ));
    for over in ["", "tcp"] {
        assert_eq!(live.ask(&format!("A refuse.example {over}")), "REFUSED");
        assert_eq!(live.ask(&format!("A block.example {over}")), "NXDOMAIN; authority . 60 SOA 60");
    }
    assert!(live.is_silent("A drop.example"));
    assert_eq!((usual.asked(), other.asked()), (0, 0), "nobody is asked what does not pass");
    assert_eq!(live.ask("A redirect.example"), "NOERROR; redirect.example. 30 A 192.0.2.2");
    assert_eq!((usual.asked(), other.asked()), (0, 1), "the other is asked and nobody else");
    assert_eq!(live.ask("A redirect.example tcp"), "NOERROR; redirect.example. 30 A 192.0.2.2");
    assert_eq!(live.ask("A plain.example"), "NOERROR; plain.example. 30 A 192.0.2.1");
    assert_eq!((usual.asked(), other.asked()), (1, 2));
}

#[test]
fn s9_2_a_redirect_to_nobody_is_servfail_and_never_the_usual_upstream() {
    let usual = upstream(&["@ 30 A 192.0.2.1"]);
    // Bound, so that nobody else has the port, and closed to questions.
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let live = Live::start(&format!(
        ".:PORT0 {{\n forward . {}\n firewall query {{\n redirect {nobody} true\n }}\n}}",
        usual.address
    ));
    assert_eq!(live.ask("A redirect.example"), "SERVFAIL");
    assert_eq!(usual.asked(), 0);
}

#[test]
fn s9_2_a_redirect_to_ourselves_is_servfail_and_no_circle() {
    let live = Live::start(".:PORT0 {\n firewall query {\n redirect 127.0.0.1:PORT0 true\n }\n}");
    assert_eq!(live.ask("A redirect.example"), "SERVFAIL");
    assert_eq!(live.ask("A redirect.example tcp"), "SERVFAIL");
    // Each was asked once, by its client.
    crate::stub::eventually(|| live.server.counters().queries == 2);
}

#[test]
fn s9_2_what_a_redirect_answers_is_for_whom_it_redirects_alone() {
    let firewall = Firewall::new(
        ".:53 {
            cache
            forward . 192.0.2.53
            firewall query {
                redirect 192.0.2.99 client_ip == '10.0.0.1'
                default allow
            }
        }",
    );
    assert_eq!(firewall.exchange("A a.example from 10.0.0.1", &["@ 30 A 192.0.2.66"]), "pass");
    assert_eq!(firewall.ask("A a.example from 10.0.0.2"), "route 0", "nothing of it is remembered for others");
    assert_eq!(firewall.exchange("A a.example from 10.0.0.2", &["@ 30 A 192.0.2.1"]), "pass");
    assert_eq!(firewall.ask("A a.example from 10.0.0.2"), "answer NOERROR; a.example. 30 A 192.0.2.1");
    assert_eq!(firewall.ask("A a.example from 10.0.0.1"), "asked of 192.0.2.99:53", "nor of others for it");
}
