//! Response policy zones from files: what clients get, which policy counts, and where policies stand beside rules,
//! the cache and answers of our own.

use crate::stub::eventually;
use crate::support::{Ask, Firewall, Live, check, refused, upstream};
use std::path::PathBuf;

/// A policy zone in a file that is gone when the test ends.
struct File(PathBuf);

const HEAD: &str = "$TTL 300\n@ SOA ns.policy.example. host.policy.example. 1 3600 600 86400 60\n";

impl File {
    fn new(name: &str, records: &str) -> Self {
        let path = std::env::temp_dir().join(format!("namewall-rpz-{}-{name}", std::process::id()));
        std::fs::write(&path, format!("{HEAD}{records}")).unwrap();
        Self(path)
    }

    fn becomes(&self, records: &str) {
        let new = self.0.with_extension("new");
        std::fs::write(&new, format!("{HEAD}{records}")).unwrap();
        std::fs::rename(&new, &self.0).unwrap();
    }

    fn line(&self) -> String {
        format!("rpz policy.example file {}\n", self.0.display())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn corefile(zones: &[&File], more: &str) -> String {
    let zones: String = zones.iter().map(|zone| zone.line()).collect();
    format!(".:53 {{\n{zones}{more}\nforward . 192.0.2.53\n}}")
}

const NXDOMAIN: &str = "NXDOMAIN; authority . 60 SOA 60";
const NODATA: &str = "NOERROR; authority . 60 SOA 60";

#[test]
fn policies_for_names_are_applied_before_anybody_is_asked() {
    let zone = File::new(
        "actions",
        "bad.example CNAME .\n*.bad.example CNAME .\nok.bad.example CNAME rpz-passthru.\nnone.example CNAME *.\n\
         quiet.example CNAME rpz-drop.\nslow.example CNAME rpz-tcp-only.\nown.example A 192.0.2.7\n TXT text\n",
    );
    check(
        &corefile(&[&zone], ""),
        &[
            ("A bad.example", NXDOMAIN),
            ("A www.BAD.example", NXDOMAIN),
            ("A ok.bad.example", "route 0"),
            ("A evilbad.example", "route 0"),
            ("A none.example", NODATA),
            ("A quiet.example", "silence"),
            ("A slow.example", "NOERROR tc"),
            ("A slow.example tcp", "route 0"),
            ("A own.example", "answer NOERROR aa; own.example. 300 A 192.0.2.7"),
            ("AAAA own.example", "answer NOERROR; authority . 60 SOA 60"),
            ("A bad.example CH", "route 0"),
        ],
    );
}

/// Servers answer questions of the class ANY with records of the class IN.
#[test]
fn questions_of_any_class_are_judged() {
    let zone = File::new(
        "class",
        "bad.example CNAME .\n8.0.0.0.10.rpz-client-ip CNAME *.\n24.0.2.0.192.rpz-ip CNAME .\nown.example A 192.0.2.7\n",
    );
    let firewall = Firewall::new(&corefile(&[&zone], ""));
    assert_eq!(firewall.ask("A bad.example ANYCLASS"), NXDOMAIN);
    assert_eq!(firewall.ask("A good.example ANYCLASS from 10.9.9.9"), NODATA);
    assert_eq!(firewall.ask("A own.example ANYCLASS"), "answer NOERROR aa; own.example. 300 A 192.0.2.7");
    let asked = |address: &str| firewall.exchange("A www.example ANYCLASS", &[address]);
    assert_eq!(asked("www.example. 60 A 192.0.2.1"), NXDOMAIN);
    assert_eq!(asked("www.example. 60 A 198.51.100.1"), "pass");
    assert_eq!(firewall.exchange("A www.example ANYCLASS", &["www.example. 60 CNAME bad.example."]), NXDOMAIN);
    assert_eq!(firewall.ask("TXT bad.example CH"), "route 0");
}

#[test]
fn policies_for_clients_count_before_those_for_names() {
    let zone = File::new(
        "clients",
        "8.0.0.0.10.rpz-client-ip CNAME .\n32.3.2.1.10.rpz-client-ip CNAME rpz-passthru.\nbad.example CNAME *.\n\
         48.zz.1.db8.2001.rpz-client-ip CNAME rpz-drop.\n",
    );
    check(
        &corefile(&[&zone], ""),
        &[
            ("A good.example from 10.9.9.9", NXDOMAIN),
            ("A bad.example from 10.9.9.9", NXDOMAIN),
            ("A bad.example from 10.1.2.3", "route 0"),
            ("A bad.example from 192.0.2.9", NODATA),
            ("A good.example from ::ffff:10.9.9.9", NXDOMAIN),
            ("A good.example from 2001:db8:1::9", "silence"),
        ],
    );
}

#[test]
fn policies_for_addresses_judge_answers() {
    let zone = File::new("addresses", "24.0.2.0.192.rpz-ip CNAME .\n32.7.2.0.192.rpz-ip CNAME rpz-passthru.\n");
    let firewall = Firewall::new(&corefile(&[&zone], ""));
    let asked = |lines: &[&str]| firewall.exchange("A www.example", lines);
    assert_eq!(asked(&["www.example. 60 A 198.51.100.1"]), "pass");
    assert_eq!(asked(&["www.example. 60 A 198.51.100.1", "www.example. 60 A 192.0.2.1"]), NXDOMAIN);
    // The longest prefix counts.
    assert_eq!(asked(&["www.example. 60 A 192.0.2.7", "www.example. 60 A 192.0.2.1"]), "pass");
}

#[test]
fn names_that_aliases_lead_to_are_judged() {
    let zone = File::new("aliases", "bad.example CNAME .\nfine.example CNAME rpz-passthru.\n");
    let firewall = Firewall::new(&corefile(&[&zone], ""));
    let lines = ["www.example. 60 CNAME bad.example.", "bad.example. 60 A 198.51.100.1"];
    assert_eq!(firewall.exchange("A www.example", &lines), NXDOMAIN);
    // The policy of the name itself comes before the policy of its alias target.
    let lines = ["fine.example. 60 CNAME bad.example.", "bad.example. 60 A 198.51.100.1"];
    assert_eq!(firewall.exchange("A fine.example", &lines), "pass");
}

/// The first zone that says something counts, whatever it looks at.
#[test]
fn zones_count_in_their_order() {
    let first = File::new("first", "32.1.2.0.192.rpz-ip CNAME *.\nboth.example CNAME rpz-passthru.\n");
    let second = File::new("second", "both.example CNAME .\nlater.example CNAME .\n");
    let text = corefile(&[&first, &second], "").replacen("policy.example", "first.example", 1);
    // A zone in a file is named by the Corefile.
    let firewall = Firewall::new(&text);
    assert_eq!(firewall.ask("A both.example"), "route 0");
    // The first zone looks at the answer: it has to be asked for.
    assert_eq!(firewall.exchange("A later.example", &["later.example. 60 A 192.0.2.1"]), NODATA);
    assert_eq!(firewall.exchange("A later.example", &["later.example. 60 A 192.0.2.2"]), NXDOMAIN);
    let text = corefile(&[&second, &first], "").replacen("policy.example", "first.example", 1);
    check(&text, &[("A both.example", NXDOMAIN), ("A later.example", NXDOMAIN)]);
}

#[test]
fn aliases_of_policies_are_followed() {
    let zone = File::new(
        "garden",
        "bad.example CNAME garden.example.\n*.worse.example CNAME *.garden.example.\n\
         32.1.2.0.192.rpz-ip CNAME garden.example.\nlost.example CNAME denied.example.\ndenied.example CNAME .\n",
    );
    let hosts = "hosts /no/such/file {\n192.0.2.80 garden.example a.worse.example.garden.example\n\
                 192.0.2.1 inside.example\nfallthrough\n}";
    let firewall = Firewall::new(&corefile(&[&zone], hosts));
    let garden = "garden.example. 3600 A 192.0.2.80";
    assert_eq!(
        firewall.ask("A bad.example"),
        format!("answer NOERROR aa; bad.example. 300 CNAME garden.example.; {garden}")
    );
    assert_eq!(
        firewall.ask("A a.worse.example"),
        "answer NOERROR aa; a.worse.example. 300 CNAME a.worse.example.garden.example.; \
         a.worse.example.garden.example. 3600 A 192.0.2.80"
    );
    // An upstream's answer, and one of our own.
    assert_eq!(
        firewall.exchange("A www.example", &["www.example. 60 A 192.0.2.1"]),
        format!("answer NOERROR aa; www.example. 300 CNAME garden.example.; {garden}")
    );
    assert_eq!(
        firewall.ask("A inside.example"),
        format!("answer NOERROR aa; inside.example. 300 CNAME garden.example.; {garden}")
    );
    assert_eq!(firewall.ask("CNAME bad.example"), "answer NOERROR aa; bad.example. 300 CNAME garden.example.");
    // The target is another question of the client.
    assert_eq!(firewall.ask("A lost.example"), NXDOMAIN);
}

/// Rules are asked first about a question, and last about what the client gets.
#[test]
fn policies_stand_between_the_rules() {
    let zone = File::new(
        "rules",
        "refused.example CNAME rpz-passthru.\nown.example A 10.0.0.1\nother.example A 192.0.2.9\nbad.example CNAME .\n",
    );
    let rules = "firewall query {\nrefuse name == 'refused.example'\ndefault allow\n}\n\
                 firewall response {\nrefuse in-cidr(response_ip, 10.0.0.0/8)\ndefault allow\n}";
    check(
        &corefile(&[&zone], rules),
        &[
            ("A refused.example", "REFUSED"),
            ("A bad.example", NXDOMAIN),
            ("A own.example", "REFUSED"),
            ("A other.example", "answer NOERROR aa; other.example. 300 A 192.0.2.9"),
        ],
    );
}

/// The cache keeps what upstreams say, and policies are asked of what comes from it.
#[test]
fn the_cache_stands_behind_policies() {
    let zone = File::new("cache", "32.2.0.0.127.rpz-client-ip CNAME .\n32.9.2.0.192.rpz-ip CNAME rpz-passthru.\n");
    let upstream = upstream(&["www.example. 60 A 192.0.2.1"]);
    let text = format!(
        ".:PORT0 {{\nbind 127.0.0.1\n{} {{\nreload 50ms\n}}\ncache 30\nforward . {}\n}}",
        zone.line().trim_end(),
        upstream.address
    );
    let live = Live::start(&text);
    assert!(live.ask("A www.example from 127.0.0.1").starts_with("NOERROR"));
    assert_eq!(live.ask("A www.example from 127.0.0.2"), NXDOMAIN);
    assert!(live.ask("A www.example from 127.0.0.1").starts_with("NOERROR"));
    // A policy that comes later counts for answers that are kept already.
    zone.becomes("32.1.2.0.192.rpz-ip CNAME .\n");
    eventually(|| live.ask("A www.example from 127.0.0.1") == NXDOMAIN);
    // A zone that cannot be read is not used.
    zone.becomes("32.1.2.0.192.rpz-ip CNAME rpz-nothing.\n");
    let told = live.told.lines(1);
    assert!(told[0].contains("line 3: ") && told[0].ends_with("it stays as it was"), "{told:?}");
    assert_eq!(live.ask("A www.example from 127.0.0.1"), NXDOMAIN);
}

/// Addresses that are made up for IPv6 are those that a policy lets pass for IPv4.
#[test]
fn look_ups_of_our_own_are_judged() {
    let zone = File::new("dns64", "32.1.2.0.192.rpz-ip CNAME .\n");
    let upstream = upstream(&["www.example. 60 A 192.0.2.1"]);
    let text = format!(
        ".:PORT0 {{\n{}dns64 {{\nallow_ipv4\ntranslate_all\n}}\nforward . {}\n}}",
        zone.line(),
        upstream.address
    );
    let live = Live::start(&text);
    let said = live.ask("AAAA www.example");
    assert!(!said.contains("64:ff9b"), "{said}");
}

#[test]
fn s9_5_a_policy_zone_that_cannot_be_read_stops_the_start() {
    let zone = File::new("broken", "a.rpz-else CNAME .\n");
    let said = refused(&corefile(&[&zone], ""));
    let expected =
        format!("Corefile:2:1: error: rpz: {}: line 3: a.rpz-else.: no trigger is called so", zone.0.display());
    assert_eq!(said, expected);
    assert!(refused(". {\nrpz policy.example file /no/such/file\n}").contains("No such file or directory"));
    let said = refused(". {\nrpz policy.example file a b\nrpz policy.example form a\n}");
    assert!(said.contains("one file") && said.contains("did you mean `from`?"), "{said}");
}

/// What a forwarder cannot see is told, and never left out in silence.
#[test]
fn s10_2_triggers_about_servers_are_warned_of() {
    let zone = File::new("servers", "ns.bad.example.rpz-nsdname CNAME .\n32.1.2.0.192.rpz-nsip CNAME .\n");
    let firewall = Firewall::new(&corefile(&[&zone], ""));
    let warned = firewall.warnings.iter().any(|warning| warning.contains("2 triggers of `rpz-nsdname` or `rpz-nsip`"));
    assert!(warned, "{:?}", firewall.warnings);
}

#[test]
fn explain_names_the_zone_and_its_record() {
    let zone = File::new("explained", "bad.example CNAME .\n24.0.2.0.192.rpz-ip CNAME *.\nown.example A 192.0.2.1\n");
    let firewall = Firewall::new(&corefile(&[&zone], ""));
    let explained = |question: &str, lines: Option<&[&str]>| {
        let ask = Ask::from(question);
        let answer = lines.map(|lines| crate::support::answer(&ask.query, lines));
        firewall.service.explain(&ask.asked(), answer.as_deref()).lines()
    };
    let lines = explained("A bad.example", None);
    let file = zone.0.display();
    let by = format!("Corefile:2:1: rpz policy.example.: bad.example.policy.example. at {file}:3 → NXDOMAIN");
    assert_eq!(lines[1..], [by, "the client gets NXDOMAIN".to_owned()]);
    let lines = explained("A www.example", Some(&["www.example. 60 A 192.0.2.1"]));
    let by = format!("Corefile:2:1: rpz policy.example.: 24.0.2.0.192.rpz-ip.policy.example. at {file}:4 → NODATA");
    assert_eq!(lines[1..], ["it is forwarded".to_owned(), by, "the client gets NOERROR without data".to_owned()]);
    let lines = explained("A own.example", None);
    assert!(lines.contains(&"rpz answers it".to_owned()), "{lines:?}");
}
