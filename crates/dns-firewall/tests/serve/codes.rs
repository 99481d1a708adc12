//! Types, classes and codes by name: every one that IANA registers is known to rules, engines and templates alike.

use crate::support::{Ask, Engines, Fake, Firewall, answer, refused};
use namewall_engines::Judged;
use namewall_expression::{Fact, Outcome};
use namewall_policy::dns_codes::{RCODES, TYPES};
use std::sync::{Arc, Mutex};

#[test]
fn a_rule_by_type_matches_the_question_of_every_type() {
    for name in TYPES.names().chain(["TYPE65280", "type65280"]) {
        let number = TYPES.number(name).unwrap();
        let firewall = Firewall::new(&format!(
            ".:53 {{
                forward . 192.0.2.53
                firewall query {{
                    refuse type in ('{name}')
                    block type == '{}'
                    default allow
                }}
            }}",
            if number == 1 { "AAAA" } else { "A" }
        ));
        assert_eq!(firewall.ask(&format!("TYPE{number} a.example")), "REFUSED", "{name}");
        assert_eq!(firewall.ask("TYPE65281 a.example"), "route 0", "{name}");
    }
}

#[test]
fn a_type_may_be_written_by_its_number() {
    let firewall = Firewall::new(
        ".:53 {
            forward . 192.0.2.53
            firewall query {
                refuse type in ('TYPE10', 'TYPE1')
                default allow
            }
        }",
    );
    assert_eq!(firewall.ask("TYPE10 a.example"), "REFUSED");
    assert_eq!(firewall.ask("A a.example"), "REFUSED");
    assert_eq!(firewall.ask("AAAA a.example"), "route 0");
}

#[test]
fn a_rule_by_code_matches_the_answer_of_every_code() {
    for name in RCODES.names() {
        let code = RCODES.number(name).unwrap();
        let firewall = Firewall::new(&format!(
            ".:53 {{
                forward . 192.0.2.53
                firewall response {{
                    refuse rcode == '{name}'
                    default allow
                }}
            }}"
        ));
        let ask = Ask::from("A a.example edns");
        let mut bytes = answer(&ask.query, &["edns"]);
        bytes[3] = bytes[3] & 0xf0 | (code & 0x0f) as u8;
        // The upper bits are in the OPT record, which is the last.
        let at = bytes.len() - 6;
        bytes[at] = (code >> 4) as u8;
        assert_eq!(firewall.exchange_bytes(&ask, &bytes), "REFUSED; edns ede 18", "{name}");
    }
}

#[test]
fn a_name_that_no_message_can_have_is_an_error_with_a_suggestion() {
    let with = |rule: &str| {
        refused(&format!(". {{\n forward . 192.0.2.53\n firewall query {{\n{rule}\ndefault allow\n}}\n}}"))
    };
    for (rule, expected) in [
        ("refuse type == 'BOGUS'", "`BOGUS` is no type of record"),
        ("refuse type in ('A', 'AAAAA')", "did you mean `AAAA`?"),
        ("refuse type == 'TYPE65536'", "`TYPE65536` is no type of record"),
        ("refuse type == '10'", "type 10 is `NULL`"),
        ("refuse class == 'INN'", "did you mean `IN`?"),
        ("refuse proto == 'upd'", "did you mean `udp`?"),
        ("refuse rcode == 'NXDOMIAN'", "did you mean `NXDOMAIN`?"),
        ("refuse >opcode == 'NOTIFI'", "did you mean `NOTIFY`?"),
    ] {
        let told = with(rule);
        assert!(told.contains(expected), "{rule}: {told}");
    }
}

#[test]
fn opa_is_told_the_names_of_all_types() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let fake = {
        let heard = heard.clone();
        Fake::new(move |facts| {
            heard.lock().unwrap().push(facts.get(&Fact::Type).to_string());
            Judged::Now(Ok(Outcome::Allow.into()))
        })
    };
    let engines = Engines::of([("e", &fake)]);
    let firewall = Firewall::with_engines(
        ".:53 {
            forward . 192.0.2.53
            opa e {
                endpoint http://127.0.0.1:1/
            }
            firewall query {
                opa e
            }
        }",
        &engines,
    );
    firewall.ask("TYPE10 a.example");
    firewall.ask("TYPE257 a.example");
    firewall.ask("TYPE65280 a.example");
    assert_eq!(*heard.lock().unwrap(), ["NULL", "CAA", "TYPE65280"]);
}

#[test]
fn a_template_is_for_any_type_by_name() {
    let firewall = Firewall::new(
        ".:53 {
            forward . 192.0.2.53
            template IN NULL example {
                rcode REFUSED
            }
        }",
    );
    assert_eq!(firewall.ask("TYPE10 a.example"), "answer REFUSED aa");
    assert_eq!(firewall.ask("A a.example"), "route 0");
}
