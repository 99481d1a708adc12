//! Who asks.

use crate::support::{Ask, Firewall, Live, check, receive, shown};

#[test]
fn clients_are_told_their_address_and_port() {
    let live = Live::start(".:PORT0 {\n whoami\n}");
    for (question, kind, client) in [("A a.example", "A", "127.0.0.1"), ("TXT a.example from ::1", "AAAA", "::1")] {
        let ask = Ask::from(question);
        let socket = live.socket(&ask, 0);
        socket.send(&ask.query).unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(
            shown(&receive(&socket).unwrap()),
            format!(
                "NOERROR aa; additional a.example. 0 {kind} {client}; additional _udp.a.example. 0 SRV 0 0 {port} ."
            )
        );
    }
    let by_tcp = live.ask("A a.example tcp");
    assert!(by_tcp.contains("; additional _tcp.a.example. 0 SRV 0 0 "), "{by_tcp}");
}

/// As with CoreDNS: an address is of no other class.
#[test]
fn other_classes_are_refused() {
    check(".:53 {\n whoami\n}", &[("TXT version.bind CH", "REFUSED"), ("A a.example ANYCLASS", "REFUSED")]);
}

#[test]
fn rules_come_first_and_who_can_be_asked_is() {
    check(
        ".:53 {
            whoami
            forward example.com 192.0.2.53
            firewall query {
                refuse client_ip == '10.0.0.2'
                default allow
            }
        }",
        &[
            ("A a.example from 10.0.0.2", "REFUSED"),
            ("A a.example.com from 10.0.0.3", "route 0"),
            (
                "A a.example from 10.0.0.3:999",
                "answer NOERROR aa; additional a.example. 0 A 10.0.0.3; additional _udp.a.example. 0 SRV 0 0 999 .",
            ),
        ],
    );
}

#[test]
fn the_longest_name_has_no_room_for_a_port() {
    let firewall = Firewall::new(".:53 {\n whoami\n}");
    let label = "x".repeat(49);
    let name = [&*label; 5].join(".");
    assert_eq!(
        firewall.ask(&format!("A {name}.ab from 10.0.0.3")),
        format!("answer NOERROR aa; additional {name}.ab. 0 A 10.0.0.3")
    );
}
