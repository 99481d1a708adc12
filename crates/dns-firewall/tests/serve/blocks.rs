//! Server blocks: which one a question is for, and where they listen.

use crate::support::{Firewall, Live, check, refused, upstream};

fn listens(text: &str) -> Vec<String> {
    Firewall::new(text).listen.iter().map(ToString::to_string).collect()
}

#[test]
fn the_longest_zone_wins_wherever_it_stands() {
    let block = |zone: &str, rule: &str| {
        format!("{zone} {{\n firewall query {{\n {rule} true\n }}\n forward . 192.0.2.53\n}}\n")
    };
    let blocks = [
        block("example.com:53", "refuse"),
        block(".:53", "allow"),
        block("deep.example.com:53", "drop"),
        block("example.org:53 example.net:53", "block"),
    ];
    let cases = [
        ("A a.test", "route"),
        ("NS .", "route"),
        ("A example.com", "REFUSED"),
        ("A www.EXAMPLE.com", "REFUSED"),
        ("A a.deep.example.com", "silence"),
        ("A a.example.net", "NXDOMAIN; authority example.net. 60 SOA 60"),
        ("A notexample.com", "route"),
        (r"A www\.example.com", "route"),
    ];
    let (forth, back) = (blocks.concat(), blocks.iter().rev().cloned().collect::<String>());
    for text in [forth, back] {
        let firewall = Firewall::new(&text);
        for (question, becomes) in cases {
            let got = firewall.ask(question);
            assert_eq!(if got.starts_with("route") { "route" } else { &got }, becomes, "{question}");
        }
    }
}

#[test]
fn what_no_block_is_for_is_refused() {
    check(
        "example.com:53 {\n forward . 192.0.2.53\n}",
        &[("A example.com", "route 0"), ("A example.org", "REFUSED"), ("NS .", "REFUSED")],
    );
}

#[test]
fn blocks_are_told_apart_by_port_and_address() {
    let text = "\
.:53 {
    bind 127.0.0.1
    firewall query {
        refuse true
    }
}
.:53 {
    bind ::1
    firewall query {
        block true
    }
}
.:5300 {
    bind lo
    firewall query {
        drop true
    }
}
";
    check(
        text,
        &[
            ("A a.example at 127.0.0.1:53", "REFUSED"),
            ("A a.example at [::1]:53", "NXDOMAIN; authority . 60 SOA 60"),
            ("A a.example at 127.0.0.1:5300", "silence"),
            ("A a.example at [::1]:5300", "silence"),
        ],
    );
    assert_eq!(listens(text), ["127.0.0.1:53", "[::1]:53", "127.0.0.1:5300", "[::1]:5300"]);
}

#[test]
fn a_block_listens_where_it_is_bound() {
    assert_eq!(listens(".:53 {\n}"), ["127.0.0.1:53", "[::1]:53", "192.0.2.1:53"]);
    assert_eq!(listens(".:53 {\n bind eth0\n}"), ["192.0.2.1:53"]);
    assert_eq!(listens(".:53 {\n bind 0.0.0.0\n}"), ["127.0.0.1:53", "192.0.2.1:53"]);
    assert_eq!(listens(".:53 {\n bind ::\n}"), ["[::1]:53"]);
    assert_eq!(listens(".:53 {\n bind 0.0.0.0 {\n except lo\n }\n}"), ["192.0.2.1:53"]);
    assert_eq!(listens(".:53 {\n bind lo {\n except ::1\n }\n}"), ["127.0.0.1:53"]);
    // Several blocks at one address share its sockets.
    assert_eq!(listens("a.example:53 b.example:53 {\n bind ::1\n}\nc.example:53 {\n bind ::1\n}"), ["[::1]:53"]);
    assert_eq!(
        refused(".:53 {\n bind eth7\n}"),
        "Corefile:1:1: error: the interface eth7 has no address on this machine"
    );
}

#[test]
fn twins_are_refused() {
    let why = refused(".:53 {\n}\n.:53 {\n}");
    assert!(why.contains("Corefile:3:1: error: `.` at port 53 is served already"), "{why}");
    // Only who knows this machine's addresses can tell that these are.
    let why = refused(".:53 {\n bind lo\n}\n.:53 {\n bind 127.0.0.1\n}");
    assert_eq!(why, "Corefile:4:1: error: . is served at 127.0.0.1:53 by Corefile:1:1 already");
    let why = refused(".:53 {\n}\n.:53 {\n bind ::1\n}");
    assert_eq!(why, "Corefile:3:1: error: . is served at [::1]:53 by Corefile:1:1 already");
    assert_eq!(refused(".:53 {\n bind ::1\n}\n.:53 {\n bind 127.0.0.1\n}"), "it is served");
}

#[test]
fn over_sockets_each_port_has_its_block() {
    let (one, other) = (upstream(&["@ 30 A 192.0.2.1"]), upstream(&["@ 30 A 192.0.2.2"]));
    let live = Live::start(&format!(
        ".:PORT0 {{\n forward . {}\n}}\nexample.com:PORT0 {{\n firewall query {{\n refuse true\n }}\n}}\n.:PORT1 {{\n forward . {}\n}}",
        one.address, other.address
    ));
    for from in ["127.0.0.1", "::1"] {
        for over in ["", "tcp"] {
            let ask = |name: &str, port| live.ask_at(&format!("A {name} from {from} {over}"), port);
            assert_eq!(ask("a.test", 0), "NOERROR; a.test. 30 A 192.0.2.1");
            assert_eq!(ask("a.test", 1), "NOERROR; a.test. 30 A 192.0.2.2");
            assert_eq!(ask("a.example.com", 0), "REFUSED");
            assert_eq!(ask("a.example.com", 1), "NOERROR; a.example.com. 30 A 192.0.2.2");
        }
    }
}
