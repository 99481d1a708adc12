//! Questions for `NAME.SUFFIX CH TXT`: how NAME is judged.

use crate::support::{Engines, Fake, Firewall, Live, upstream};
use namewall_engines::Judgement;
use namewall_expression::Outcome;

const LISTS: &str = ".:53 {
    forward . 192.0.2.53
    request {
        edns0 0xffed id bytes
    }
    firewall query {
        debug_query_suffix debug.
        refuse type == 'TXT'
        allow id == 'friend'
        block under(name, 'example.com')
        default allow
    }
}";

#[test]
fn how_a_name_is_judged_is_told_step_by_step() {
    let firewall = Firewall::new(LISTS);
    let told = firewall.ask("TXT www.example.com.debug CH");
    let lines: Vec<&str> = told.split("; ").collect();
    assert_eq!(lines[0], "NOERROR");
    let own = "www.example.com.debug. 0 TXT ";
    assert_eq!(lines[1], format!("{own}www.example.com.: block by Corefile:10:9"));
    assert_eq!(lines[2], format!("{own}Corefile:6:5: firewall query"));
    assert!(lines[3].starts_with(&format!("{own}  Corefile:8:9: refuse type == 'TXT' → no")), "{told}");
    assert!(lines[5].starts_with(&format!("{own}  Corefile:10:9: block under(name, 'example.com') → block")), "{told}");
    assert_eq!(lines[6], format!("{own}  it ends there: block"));
    assert_eq!(lines.len(), 7, "{told}");
}

#[test]
fn only_texts_of_the_class_chaos_are_told() {
    let firewall = Firewall::new(LISTS);
    // The same name of the Internet is a name like others.
    assert_eq!(firewall.ask("A www.example.com.debug"), "route 0");
    assert_eq!(firewall.ask("TXT www.example.com.debug"), "REFUSED");
    assert_eq!(firewall.ask("A www.example.com.debug CH"), "route 0");
    assert_eq!(firewall.ask("A www.example.com CH"), "NXDOMAIN; authority . 60 SOA 60");
    assert!(firewall.ask("TXT www.example.com.notdebug CH").starts_with("REFUSED"));
}

#[test]
fn a_debugged_name_is_judged_for_who_asks() {
    let firewall = Firewall::new(LISTS);
    let told = firewall.ask("TXT www.example.com.debug CH 0xffed=friend");
    assert!(told.contains("www.example.com.: allow by Corefile:9:9"), "its EDNS0 counts as it would: {told}");
    assert!(told.ends_with("; edns"), "{told}");
}

#[test]
fn engines_tell_how_they_came_to_it() {
    let said = Judgement {
        outcome: Outcome::Refuse,
        trace: vec!["rule 7 of the policy".to_owned()],
        labels: vec![("gid".to_owned(), "42".to_owned())],
    };
    for engine in [Fake::now(said.clone()), Fake::later(move || Ok(said.clone()))] {
        let firewall = Firewall::with_engines(
            ".:53 {
                themis fake {
                    endpoint 127.0.0.1:1
                }
                firewall query {
                    debug_query_suffix debug.
                    themis fake
                    default allow
                }
            }",
            &Engines::of([("fake", &engine)]),
        );
        let told = firewall.ask("TXT a.example.debug CH");
        assert!(told.contains("a.example.: refuse by Corefile:7:21"), "{told}");
        assert!(told.contains("    rule 7 of the policy") && told.contains("    gid = 42"), "{told}");
    }
}

#[test]
fn over_sockets_no_upstream_is_asked() {
    let upstream = upstream(&["@ 30 A 192.0.2.1"]);
    let live = Live::start(&format!(
        ".:PORT0 {{\n forward . {}\n firewall query {{\n  debug_query_suffix debug.\n  default allow\n }}\n}}",
        upstream.address
    ));
    for over in ["", "tcp"] {
        let told = live.ask(&format!("TXT a.example.debug CH {over}"));
        assert!(told.contains("a.example.: allow by Corefile:3:2"), "{told}");
    }
    assert_eq!(upstream.asked(), 0);
}
