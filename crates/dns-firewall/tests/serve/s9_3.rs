//! S9.3: every address of an answer is judged; one denied address denies the answer.

use crate::support::{Ask, Engines, Fake, Firewall, Live, PATIENCE, answer, upstream};
use namewall_engines::{EngineError, Judged, Judgement};
use namewall_expression::{Fact, Facts, Outcome, Value};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DENIED: &str = "NXDOMAIN; authority . 60 SOA 60";

/// Addresses of two networks are denied; all else passes.
const DENIES: &str = ".:53 {
    forward . 192.0.2.53
    firewall response {
        block in-cidr(response_ip, 10.0.0.0/8, fd00::/8)
        default allow
    }
}";

/// Only addresses of two networks are allowed.
const PERMITS: &str = ".:53 {
    forward . 192.0.2.53
    firewall . response {
        permit in-cidr(response_ip, 192.0.2.0/24, 2001:db8::/32)
        deny true
    }
}";

fn each(corefile: &str, cases: &[(&str, &[&str], &str)]) {
    let firewall = Firewall::new(corefile);
    for (question, records, becomes) in cases {
        assert_eq!(firewall.exchange(question, records), *becomes, "{question} {records:?}");
    }
}

#[test]
fn s9_3_one_denied_address_denies_the_answer_wherever_it_stands() {
    let (good, bad) = ("@ 30 A 192.0.2.1", "@ 30 A 10.0.0.1");
    each(
        DENIES,
        &[
            ("A a.example", &[good], "pass"),
            ("A a.example", &[good, good, good], "pass"),
            ("A a.example", &[bad], DENIED),
            ("A a.example", &[bad, good, good], DENIED),
            ("A a.example", &[good, bad, good], DENIED),
            ("A a.example", &[good, good, bad], DENIED),
            ("A a.example", &[], "pass"),
            ("AAAA a.example", &["@ 30 AAAA 2001:db8::1", "@ 30 AAAA fd00::1"], DENIED),
            ("AAAA a.example", &["@ 30 AAAA 2001:db8::1"], "pass"),
        ],
    );
}

#[test]
fn s9_3_all_addresses_of_an_answer_have_one_time_to_be_judged_in() {
    let text = ".:53 {
    forward . 192.0.2.53
    opa hangs {
        endpoint http://127.0.0.1:1/
        default_decision allow
    }
    firewall response {
        opa hangs
        default block
    }
}";
    const TAKES: Duration = Duration::from_millis(5);
    let hangs = Fake::later(|| {
        std::thread::sleep(TAKES);
        Err(EngineError("no answer in time".to_owned()))
    });
    let firewall = Firewall::with_engines(text, &Engines::of([("hangs", &hangs)]));
    let records: Vec<String> = (1..=20).map(|last| format!("@ 30 A 192.0.2.{last}")).collect();
    let records: Vec<&str> = records.iter().map(String::as_str).collect();
    assert_eq!(firewall.exchange("A a.example", &records), "pass");
    let waited_for = hangs.waited_for();
    assert_eq!(waited_for.len(), 20);
    for (before, left) in (0..).zip(waited_for) {
        assert!(left <= PATIENCE - TAKES * before, "{left:?} for the address after {before} others");
    }
    // The next answer has its own.
    assert_eq!(firewall.exchange("A a.example", &records[..1]), "pass");
    assert!(hangs.waited_for()[20] > PATIENCE - TAKES);
}

#[test]
fn s9_3_every_address_has_to_be_permitted() {
    each(
        PERMITS,
        &[
            ("A a.example", &["@ 30 A 192.0.2.1"], "pass"),
            ("A a.example", &["@ 30 A 192.0.2.1", "@ 30 A 192.0.2.2"], "pass"),
            ("A a.example", &["@ 30 A 192.0.2.1", "@ 30 A 198.51.100.1"], DENIED),
            ("AAAA a.example", &["@ 30 AAAA 2001:db8::1"], "pass"),
            ("AAAA a.example", &["@ 30 AAAA 2001:db9::1"], DENIED),
            // What has no address has none that is permitted.
            ("A a.example", &[], DENIED),
            ("TXT a.example", &["@ 30 TXT hello"], DENIED),
        ],
    );
}

#[test]
fn s9_3_addresses_are_judged_whatever_leads_to_them() {
    each(
        DENIES,
        &[
            ("A a.example", &["@ 30 CNAME b.example", "b.example 30 A 10.0.0.1"], DENIED),
            ("A a.example", &["b.example 30 A 10.0.0.1", "@ 30 CNAME b.example"], DENIED),
            ("A a.example", &["@ 30 CNAME b.example", "b.example 30 A 192.0.2.1"], "pass"),
            // A stranger's, to which nothing leads; and of another type than was asked for.
            ("A a.example", &["@ 30 A 192.0.2.1", "other.example 30 A 10.0.0.1"], DENIED),
            ("A a.example", &["@ 30 A 192.0.2.1", "@ 30 AAAA fd00::1"], DENIED),
            ("TXT a.example", &["@ 30 TXT hello", "@ 30 A 10.0.0.1"], DENIED),
            ("ANY a.example", &["@ 30 TXT hello", "@ 30 A 192.0.2.1", "@ 30 AAAA fd00::1"], DENIED),
            ("ANY a.example", &["@ 30 TXT hello", "@ 30 A 192.0.2.1", "@ 30 AAAA 2001:db8::1"], "pass"),
        ],
    );
}

#[test]
fn s9_3_addresses_of_all_sections_are_judged() {
    each(
        DENIES,
        &[
            ("A a.example", &["@ 30 A 192.0.2.1", "additional ns.example 30 A 10.0.0.1"], DENIED),
            ("NS example", &["@ 30 NS ns.example", "additional ns.example 30 AAAA fd00::1"], DENIED),
            ("A a.example", &["authority example 30 NS ns.example", "authority ns.example 30 A 10.0.0.1"], DENIED),
            ("NS example", &["@ 30 NS ns.example", "additional ns.example 30 AAAA 2001:db8::1", "edns"], "pass"),
        ],
    );
}

#[test]
fn s9_3_address_hints_of_services_are_judged() {
    let firewall = Firewall::new(DENIES);
    // Priority 1 and the target `.`, then parameters.
    let becomes = |parameters: &str| {
        let line = format!(r"@ 30 HTTPS \# 000100{}", parameters.replace(' ', ""));
        firewall.exchange("HTTPS a.example", &[&line])
    };
    // ALPN h2; two addresses as ipv4hint (4), the second of which is denied; one as ipv6hint (6).
    let (alpn, v4) = ("0001 0003 026832", "0004 0008 c0000201 0a000001");
    let v6 = "0006 0010 fd000000000000000000000000000001";
    assert_eq!(becomes("0004 0004 c0000201"), "pass");
    assert_eq!(becomes(alpn), "pass");
    assert_eq!(becomes(&format!("{alpn} {v4}")), DENIED);
    assert_eq!(becomes(v6), DENIED);
    // What cannot be read cannot be judged.
    for broken in ["0004 0005 c000020101", "0004 0008 c0000201", "0006 000f fd0000000000000000000000000000", "00"] {
        assert_eq!(becomes(broken), "SERVFAIL", "{broken}");
    }
    // The same in SVCB records, in any section, and behind a target of some labels.
    let line = r"additional _dns.example 30 TYPE64 \# 0001026e7300000400040a000001";
    assert_eq!(firewall.exchange("A a.example", &["@ 30 A 192.0.2.1", line]), DENIED);
}

#[test]
fn s9_3_a_hundred_addresses_are_judged_to_the_last() {
    let mut lines: Vec<String> = (1..=100).map(|at| format!("@ 30 A 192.0.2.{at}")).collect();
    let firewall = Firewall::new(DENIES);
    let all: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(firewall.exchange("A a.example", &all), "pass");
    lines[99] = "@ 30 A 10.0.0.1".to_owned();
    let all: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(firewall.exchange("A a.example", &all), DENIED);
}

#[test]
fn s9_3_lists_that_look_at_no_address_are_asked_once() {
    let firewall = Firewall::new(
        ".:53 {
            forward . 192.0.2.53
            firewall response {
                log rcode == 'NOERROR'
                refuse len([response/ips]) > 2
                default allow
            }
        }",
    );
    assert_eq!(firewall.exchange("A a.example", &["@ 30 A 192.0.2.1", "@ 30 A 192.0.2.2"]), "pass");
    firewall.told.lines(1);
    assert_eq!(
        firewall.exchange("A a.example", &["@ 30 A 192.0.2.1", "@ 30 A 192.0.2.2", "@ 30 A 192.0.2.3"]),
        "REFUSED"
    );
}

#[test]
fn s9_3_an_engine_is_told_each_address() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = seen.clone();
    let engine = Fake::new(move |facts: &dyn Facts| {
        let address = facts.get(&Fact::ResponseIp);
        told.lock().unwrap().push(address.to_string());
        let is_bad = address == Value::Address("2001:db8::bad".parse().unwrap());
        Judged::Now(Ok(Judgement::from(if is_bad { Outcome::Refuse } else { Outcome::Undefined })))
    });
    let firewall = Firewall::with_engines(
        ".:53 {
            forward . 192.0.2.53
            themis fake {
                endpoint 127.0.0.1:1
            }
            firewall response {
                themis fake
                default allow
            }
        }",
        &Engines::of([("fake", &engine)]),
    );
    assert_eq!(firewall.exchange("A a.example", &["@ 30 A 192.0.2.1", "@ 30 A 192.0.2.2"]), "pass");
    assert_eq!(
        firewall.exchange("AAAA a.example", &["@ 30 AAAA ::1", "@ 30 AAAA 2001:db8::bad", "@ 30 AAAA ::2"]),
        "REFUSED"
    );
    assert_eq!(firewall.exchange("A a.example", &[]), "pass");
    let expected = ["192.0.2.1", "192.0.2.2", "::1", "2001:db8::bad", ""];
    assert_eq!(*seen.lock().unwrap(), expected, "each is judged, up to the first that is denied");
}

#[test]
fn s9_3_what_cannot_be_read_cannot_be_judged() {
    let firewall = Firewall::new(DENIES);
    let ask = Ask::from("A a.example");
    let whole = answer(&ask.query, &["@ 30 A 192.0.2.1", "@ 30 A 192.0.2.2"]);
    assert_eq!(firewall.exchange_bytes(&ask, &whole), "pass");
    // Cut short anywhere behind the question, with a wrong count, or with addresses of another length.
    for length in ask.query.len()..whole.len() {
        assert_eq!(firewall.exchange_bytes(&ask, &whole[..length]), "SERVFAIL", "{length} bytes");
    }
    let mut counted = whole.clone();
    counted[7] = 3;
    assert_eq!(firewall.exchange_bytes(&ask, &counted), "SERVFAIL");
    for record in ["@ 30 A \\# c00002", "@ 30 A \\# c000020101", "@ 30 AAAA \\# c0000201", "@ 30 A \\# "] {
        let record = if record.ends_with(' ') { "@ 30 AAAA \\# 00" } else { record };
        assert_eq!(firewall.exchange("A a.example", &[record]), "SERVFAIL", "{record}");
    }
    // Where nothing is judged, what comes is passed on as it is.
    let plain = Firewall::new(".:53 {\n forward . 192.0.2.53\n}");
    assert_eq!(plain.exchange_bytes(&ask, &counted), "pass");
}

#[test]
fn s9_3_over_sockets_an_answer_with_a_denied_address_never_arrives() {
    let mixed = upstream(&["@ 30 A 192.0.2.1", "@ 30 A 10.0.0.1"]);
    let broken = upstream(&["@ 30 A \\# c00002"]);
    let live = Live::start(&format!(
        ".:PORT0 {{
            forward good.example {}
            forward broken.example {}
            firewall response {{
                block in-cidr(response_ip, 10.0.0.0/8)
                default allow
            }}
        }}",
        mixed.address, broken.address
    ));
    for question in ["A good.example", "A good.example tcp", "A good.example from ::1", "A good.example from ::1 tcp"] {
        assert_eq!(live.ask(question), DENIED, "{question}");
        assert_eq!(live.ask(&question.replace("good", "broken")), "SERVFAIL", "{question}");
    }
}
