//! `log`: lines as CoreDNS writes them.

use crate::support::Firewall;

fn logging(log: &str) -> Firewall {
    Firewall::new(&format!(
        ".:53 {{
            {log}
            forward . 192.0.2.53
            request {{
                edns0 0xffed id bytes
            }}
            firewall query {{
                refuse label(name, 0) == 'bad'
                block label(name, 0) == 'no'
                drop label(name, 0) == 'drop'
                default allow
            }}
        }}"
    ))
}

/// The line without how long it took, which must be a time.
fn untimed(line: &str) -> &str {
    let (rest, took) = line.rsplit_once(' ').unwrap();
    let seconds: f64 = took.strip_suffix('s').unwrap().parse().unwrap();
    assert!((0.0..10.0).contains(&seconds), "{line}");
    rest
}

#[test]
fn the_common_format_is_coredns() {
    let firewall = logging("log");
    assert_eq!(firewall.exchange("A www.Example.com from 10.0.0.1 do size 4096", &["@ 30 A 192.0.2.1"]), "pass");
    assert_eq!(firewall.ask("AAAA bad.example from [2001:db8::1]:5000 tcp"), "REFUSED");
    let lines = firewall.told.lines(2);
    assert_eq!(
        untimed(&lines[0]),
        "[INFO] 10.0.0.1:40000 - 4660 \"A IN www.example.com. udp 44 true 4096\" NOERROR qr,rd,ra 49"
    );
    assert_eq!(
        untimed(&lines[1]),
        "[INFO] [2001:db8::1]:5000 - 4660 \"AAAA IN bad.example. tcp 29 false 512\" REFUSED qr,rd,ra 29"
    );
}

#[test]
fn a_format_of_ones_own_has_facts_and_labels() {
    let firewall = logging("log . \"{remote} {type} {name} {/id} {rcode} {/no/such} {local}\"");
    assert_eq!(firewall.exchange("A a.example 0xffed=me from fd00::1 at [::1]:53", &["@ 30 A 192.0.2.1"]), "pass");
    assert_eq!(firewall.told.lines(1), ["[INFO] [fd00::1] A a.example. me NOERROR - [::1]"]);
}

#[test]
fn classes_say_what_is_logged() {
    for (class, expected) in [
        ("all", "good empty none broken bad no"),
        ("success", "good"),
        ("denial", "empty none no"),
        ("error", "broken bad"),
        ("denial error", "empty none broken bad no"),
    ] {
        let firewall = logging(&format!("log . \"{{name}}\" {{\n class {class}\n }}"));
        let soa = "authority example 30 SOA 30";
        firewall.exchange("A good.example", &["@ 30 A 192.0.2.1"]);
        firewall.exchange("A empty.example", &[soa]);
        firewall.exchange("A none.example", &["NXDOMAIN", soa]);
        firewall.exchange("A broken.example", &["SERVFAIL"]);
        firewall.ask("A bad.example");
        firewall.ask("A no.example");
        assert_eq!(firewall.ask("A drop.example"), "silence");
        let words: Vec<String> = expected.split(' ').map(|name| format!("[INFO] {name}.example.")).collect();
        assert_eq!(firewall.told.lines(words.len()), words, "class {class}");
    }
}

#[test]
fn zones_say_what_is_logged_too() {
    let firewall = logging("log example.com example.org \"{name}\"\n log example.com \"again {name}\"");
    for name in ["a.example.com", "notexample.com", "a.example.org", "a.test"] {
        assert_eq!(firewall.exchange(&format!("A {name}"), &["@ 30 A 192.0.2.1"]), "pass");
    }
    assert_eq!(
        firewall.told.lines(3),
        ["[INFO] a.example.com.", "[INFO] again a.example.com.", "[INFO] a.example.org."]
    );
}

#[test]
fn answers_of_our_own_are_logged_as_well() {
    let firewall = Firewall::new(
        ".:53 {
            log . \"{name} {rcode}\"
            hosts /no/such/file {
                192.0.2.1 here.example
                fallthrough
            }
        }",
    );
    assert_eq!(firewall.ask("A here.example"), "answer NOERROR aa; here.example. 3600 A 192.0.2.1");
    assert_eq!(firewall.ask("A there.example"), "REFUSED", "there is nobody to ask");
    assert_eq!(firewall.told.lines(2), ["[INFO] here.example. NOERROR", "[INFO] there.example. REFUSED"]);
}

#[test]
fn a_list_with_log_tells_every_result() {
    let firewall = Firewall::new(
        ".:53 {
            forward . 192.0.2.53
            firewall query {
                log
                refuse type == 'TXT'
                default allow
            }
        }",
    );
    assert_eq!(firewall.ask("TXT a.example from 10.0.0.1"), "REFUSED");
    assert_eq!(firewall.ask("A a.example from 10.0.0.1"), "route 0");
    assert_eq!(
        firewall.told.lines(2),
        [
            "Corefile:5:17: refuse: TXT a.example. from 10.0.0.1:40000",
            "Corefile:3:13: allow: A a.example. from 10.0.0.1:40000",
        ]
    );
}

#[test]
fn a_rule_is_logged_by_its_name_if_it_has_one() {
    let firewall = Firewall::new(
        ".:53 {
            forward . 192.0.2.53
            log . \"{name} {/firewall/decision} {/firewall/rule}\"
            firewall query {
                rule ads refuse under(name, 'ads.example')
                rule seen log type == 'TXT'
                refuse under(name, 'bad.example')
                default allow
            }
        }",
    );
    assert_eq!(firewall.ask("A www.ads.example"), "REFUSED");
    assert_eq!(firewall.ask("A bad.example"), "REFUSED");
    assert_eq!(firewall.ask("TXT a.example"), "route 0");
    let told = firewall.told.lines(3);
    assert_eq!(told[0], "[INFO] www.ads.example. refuse ads");
    assert_eq!(told[1], "[INFO] bad.example. refuse Corefile:7:17");
    assert_eq!(told[2], "seen: log: TXT a.example. from 127.0.0.1:40000");
}
