//! The examples of examples/dns do what they say.

use crate::support::{Engines, Firewall, LoggedText, around, built};
use namewall_dns_firewall::{Disk, Identities};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An example, with an upstream that every machine can name.
fn example(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dns").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.replace("/etc/resolv.conf", "192.0.2.53")
}

fn at(question: &str) -> String {
    format!("{question} at 127.0.0.1:5353")
}

const FORWARDED: &str = "route 0";
/// What a question or an answer gets that rules block.
const BLOCKED: &str = "NXDOMAIN; authority . 60 SOA 60";

#[test]
fn every_example_is_served_without_a_warning() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dns");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        // Those need other files beside them: `lists_example`, and the tests of encrypted DNS, have them.
        if entry.file_type().unwrap().is_dir() || name == "encrypted.Corefile" {
            continue;
        }
        let read = namewall_corefile::read(&name, &example(&name), &Disk, &|_| None);
        let read = read.unwrap_or_else(|errors| panic!("{errors}"));
        assert!(read.warnings.is_empty(), "{name}: {:?}", read.warnings);
        let built = built(&example(&name), &around(&LoggedText::default()), &Engines::none());
        let built = built.unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(built.warnings, Vec::<String>::new(), "{name}");
        count += 1;
    }
    assert!(count >= 5, "{count}");
}

/// 40 letters of base32 for each number.
fn encoded(number: u64) -> String {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let letters = b"abcdefghijklmnopqrstuvwxyz234567";
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(letters[(state >> 40) as usize % letters.len()])
    };
    (0..40).map(next).collect()
}

#[test]
fn tunnels_are_refused_and_others_are_not() {
    let firewall = Firewall::new(&example("tunnels.Corefile"));
    let ask = |question: &str| firewall.ask(&at(question));
    assert_eq!(ask("TYPE10 www.example.com"), "REFUSED");
    // Content networks have such names: one alone is none of a tunnel.
    assert_eq!(ask(&format!("A {}.cdn.example.net from 10.0.0.9", encoded(7))), FORWARDED);
    let tunnel: Vec<String> = (0..200).map(|number| ask(&format!("TXT {}.t.example.com", encoded(number)))).collect();
    assert_eq!(tunnel[0], FORWARDED);
    assert!(tunnel[60..].iter().all(|told| told == "REFUSED"), "{tunnel:?}");
    // The domain is refused for long names alone, the client is served, and so is another that asks for the domain.
    assert_eq!(ask("A www.example.com"), FORWARDED);
    assert_eq!(ask("A www.example.net"), FORWARDED);
    assert_eq!(ask(&format!("A {}.t.example.com from 10.0.0.9", encoded(1))), FORWARDED);
    // Short labels: many more of them.
    let short: Vec<String> =
        (0..1_500).map(|number| ask(&format!("A x{number}.t.example.org from 10.0.0.8"))).collect();
    assert!(short[..200].iter().all(|told| told == FORWARDED));
    assert!(short[1_000..].iter().all(|told| told == "REFUSED"));
    // A domain of the attacker's own needs no label between.
    let own: Vec<String> = (0..1_500).map(|number| ask(&format!("A x{number}.example.org from 10.0.0.5"))).collect();
    assert!(own[1_000..].iter().all(|told| told == "REFUSED"));
    assert_eq!(ask("A example.org from 10.0.0.5"), FORWARDED, "the domain itself carries nothing");
    // Labels that are short enough each, and long together.
    let together = |number: u64| {
        let data = encoded(number) + &encoded(number + 1_000) + &encoded(number + 2_000);
        format!("A {}.{}.{}.{}.example.org from 10.0.0.4", &data[..28], &data[28..56], &data[56..84], &data[84..112])
    };
    let together: Vec<String> = (0..200).map(|number| ask(&together(number))).collect();
    assert!(together[60..].iter().all(|told| told == "REFUSED"), "{together:?}");
}

#[test]
fn a_client_that_asks_too_fast_is_refused_for_that_alone() {
    let firewall = Firewall::new(&example("tunnels.Corefile"));
    let ask = |client: &str| firewall.ask(&at(&format!("A www.example.com from {client}")));
    assert_eq!(ask("10.0.0.7"), FORWARDED);
    let began = Instant::now();
    while ask("10.0.0.7") != "REFUSED" {
        assert!(began.elapsed() < Duration::from_secs(60), "it is never refused");
    }
    assert_eq!(ask("10.0.0.6"), FORWARDED);
}

#[test]
fn names_outside_do_not_lead_inside() {
    let firewall = Firewall::new(&example("rebinding.Corefile"));
    let exchange = |question: &str, lines: &[&str]| firewall.exchange(&at(question), lines);
    for inside in [
        "A 10.1.2.3",
        "A 127.0.0.1",
        "A 169.254.169.254",
        "A 0.0.0.0",
        "AAAA ::1",
        "AAAA fd00::1",
        "AAAA ::ffff:192.168.1.1",
    ] {
        let line = format!("@ 1 {inside}");
        assert_eq!(exchange("A evil.example.com", &[&line]), BLOCKED, "{inside}");
        assert_eq!(exchange("A evil.example.com", &["@ 1 A 203.0.113.7", &line]), BLOCKED, "{inside}");
        assert_eq!(exchange("A wiki.corp.example", &[&line]), "pass", "{inside}");
    }
    assert_eq!(exchange("A www.example.com", &["@ 1 A 203.0.113.7", "@ 1 AAAA 2001:db8::7"]), "pass");
}

#[test]
fn search_engines_are_asked_at_their_safe_names() {
    // Who answers here has the safe names alone.
    let hosts = "hosts /dev/null {
        192.0.2.1 forcesafesearch.google.com
        192.0.2.2 strict.bing.com
        192.0.2.3 safe.duckduckgo.com
        192.0.2.4 restrict.youtube.com
        192.0.2.9 www.example.com
    }";
    let firewall = Firewall::new(&example("safe-search.Corefile").replace("forward . 192.0.2.53", hosts));
    for (name, last) in [
        ("www.google.com", 1),
        ("www.google.co.uk", 1),
        ("www.bing.com", 2),
        ("duckduckgo.com", 3),
        ("www.youtube.com", 4),
        ("m.youtube.com", 4),
        ("youtubei.googleapis.com", 4),
        ("www.example.com", 9),
    ] {
        let expected = format!("answer NOERROR aa; {name}. 3600 A 192.0.2.{last}");
        assert_eq!(firewall.ask(&at(&format!("A {name}"))), expected);
    }
}

/// Pods by their addresses.
#[derive(Debug)]
struct Pods;

impl Identities for Pods {
    fn label(&self, client: IpAddr, label: &str) -> Option<String> {
        let namespace = match client.to_string().as_str() {
            "10.0.1.1" => "shop",
            "10.0.2.1" => "bank",
            _ => return None,
        };
        (label == "kubernetes/client-namespace").then(|| namespace.to_owned())
    }
}

#[test]
fn tenants_see_their_own_names() {
    let firewall = Firewall::with(&example("tenants.Corefile"), &Engines::none(), Arc::new(Pods));
    for (name, shop, bank) in [
        ("web.shop.svc.cluster.local", "route 0", BLOCKED),
        ("web.bank.svc.cluster.local", BLOCKED, "route 2"),
        ("api.payments.example", "route 1", BLOCKED),
        ("www.example.com", BLOCKED, BLOCKED),
    ] {
        assert_eq!(firewall.ask(&at(&format!("A {name} from 10.0.1.1"))), shop, "{name}");
        assert_eq!(firewall.ask(&at(&format!("A {name} from 10.0.2.1"))), bank, "{name}");
        assert_eq!(firewall.ask(&at(&format!("A {name} from 10.0.3.1"))), "REFUSED", "{name}");
    }
}
