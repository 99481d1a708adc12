//! Facts of names, of what clients ask, and of where they are: in rules, logs and views.

use crate::support::{Engines, Firewall, refused};
use namewall_dns_firewall::Identities;
use namewall_testbed::Mmdb;
use serde_json::json;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn facts_of_names_are_those_of_the_longest_label() {
    let firewall = Firewall::new(
        ".:53 {
            firewall query {
                refuse label_length == 7 and label_entropy > 2.5 and label_entropy < 2.53
                drop label_length == 0
                default allow
            }
            forward . 192.0.2.53
        }",
    );
    assert_eq!(firewall.ask("A www.example.com"), "REFUSED", "`example` has six letters, one of them twice");
    assert_eq!(firewall.ask("A www.EXAMPLE.com"), "REFUSED");
    assert_eq!(firewall.ask("A www.aaaaaaa.com"), "route 0");
    assert_eq!(firewall.ask("A ."), "silence");
}

#[test]
fn each_question_counts_once_however_often_a_fact_is_looked_at() {
    let firewall = Firewall::new(
        ".:53 {
            log . \"{name} {client_rate} {client_subdomains}\"
            firewall query {
                refuse client_subdomains > 5 or client_rate > 1000
                block client_subdomains > 5
                default allow
            }
            firewall response {
                block client_subdomains > 1000
                default allow
            }
            hosts /dev/null {
                192.0.2.1 a.example.com b.example.com
            }
        }",
    );
    for (count, (name, told)) in [("a", "0.1 1"), ("a", "0.2 1"), ("b", "0.3 ")].into_iter().enumerate() {
        firewall.ask(&format!("A {name}.example.com"));
        let lines = firewall.told.lines(count + 1);
        assert!(lines[count].contains(&format!("{name}.example.com. {told}")), "{lines:?}");
    }
}

#[test]
fn what_clients_asked_outlives_a_rule_that_does_not_look() {
    // Nobody looks: nothing is counted, and it is not set.
    let firewall = Firewall::new(
        ".:53 {\n firewall query {\n refuse label_length > 60\n default allow\n}\n forward . 192.0.2.53\n}",
    );
    assert_eq!(firewall.ask("A a.example.com"), "route 0");
}

#[test]
fn a_fact_that_is_misspelt_or_counted_too_late_is_refused() {
    let rule = |rule: &str| {
        refused(&format!(".:53 {{\n firewall query {{\n {rule}\n default allow\n }}\n forward . 192.0.2.53\n}}"))
    };
    assert!(rule("deny client_rates > 5").contains("`client_rates` is never set"), "{}", rule("deny client_rates > 5"));
    assert!(rule("deny client_rates > 5").contains("did you mean `client_rate`?"));
    assert!(rule("deny geoip/country/code == 'GB'").contains("add the directive `geoip DBFILE`"));
    assert!(rule("deny is-private(name)").contains("does not take"), "{}", rule("deny is-private(name)"));
    let view =
        |fact: &str| refused(&format!(".:53 {{\n view a {{\n expr {fact} > 5\n }}\n whoami\n}}\n.:53 {{\n whoami\n}}"));
    assert!(
        view("client_rate").contains("nothing sets `client_rate` before a view is chosen"),
        "{}",
        view("client_rate")
    );
    assert_eq!(view("label_length"), "it is served");
}

/// A file of a test, which goes with it.
struct Database(PathBuf);

impl Database {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("namewall-geoip-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }

    fn country(name: &str) -> Self {
        let record = |code: &str| json!({"country": {"iso_code": code}});
        let made = Mmdb::new("GeoLite2-Country").with("10.1.0.0".parse().unwrap(), 16, &record("GB")).with(
            "10.2.0.0".parse().unwrap(),
            16,
            &record("DE"),
        );
        Self::new(name, &made.bytes())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn rules_and_views_go_by_where_clients_are() {
    let database = Database::country("rules");
    let path = database.0.display();
    let firewall = Firewall::new(&format!(
        ".:53 {{
            geoip {path}
            view islands {{
                expr metadata('geoip/country/code') == 'GB'
            }}
            forward . 192.0.2.1
        }}
        .:53 {{
            geoip {path} {{
                edns-subnet
            }}
            firewall query {{
                refuse geoip/country/code == 'DE'
                permit geoip/country/code == ''
                default block
            }}
            forward . 192.0.2.2
        }}"
    ));
    assert_eq!(firewall.ask("A www.example.com from 10.1.2.3"), "route 0");
    assert_eq!(firewall.ask("A www.example.com from 10.2.2.3"), "REFUSED");
    assert_eq!(firewall.ask("A www.example.com from 10.3.2.3"), "route 1");
    assert_eq!(
        firewall.ask("A www.example.com from 10.3.2.3 0x0008=x:000110000a02"),
        "REFUSED; edns ede 18",
        "by its subnet"
    );
}

#[test]
fn a_database_that_is_missing_broken_or_of_another_kind_stops_the_start() {
    let database = Database::country("kind");
    let corefile = |path: &str, fact: &str| {
        refused(&format!(
            ".:53 {{\n geoip {path}\n firewall query {{\n deny {fact} == '1'\n default allow\n }}\n forward . 192.0.2.1\n}}"
        ))
    };
    let path = database.0.display().to_string();
    assert_eq!(corefile(&path, "geoip/city/name"), "it is served");
    assert!(corefile(&path, "geoip/asn/number").contains("`geoip/asn/number` is never set: no database"));
    assert!(
        corefile("/no/such/file", "geoip/city/name")
            .contains("Corefile:2:2: error: geoip: /no/such/file: No such file")
    );
    let broken = Database::new("broken", b"no database");
    assert!(corefile(&broken.0.display().to_string(), "geoip/city/name").contains("error: geoip:"));
}

/// Pods that are not listed yet, and then are.
#[derive(Debug, Default)]
struct Awaited(AtomicBool);

impl Identities for Awaited {
    fn label(&self, _: IpAddr, label: &str) -> Option<String> {
        (self.are_known() && label == "kubernetes/client-namespace").then(|| "evil".to_owned())
    }

    fn are_known(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

#[test]
fn until_pods_are_known_nothing_is_decided_that_depends_on_them() {
    let opa = "opa clients {\n endpoint http://127.0.0.1:1/\n fields name kubernetes/client-label/team\n }";
    for (directives, known) in [
        ("firewall query {\n refuse [kubernetes/client-namespace] == 'evil'\n default allow\n }", "REFUSED"),
        // What comes before it may not decide for it: nobody knows which rule is about whom.
        (
            "firewall query {\n allow name == 'a.example'\n deny [kubernetes/client-namespace] == ''\n default allow\n }",
            "route 0",
        ),
        ("firewall response {\n block [kubernetes/client-namespace] == 'evil'\n default allow\n }", "route 0"),
        (&format!("{opa}\n firewall query {{\n opa clients\n default refuse\n }}"), ""),
        ("rewrite edns0 local set 0xffee {kubernetes/client-pod-name}", ""),
        // No rule asks.
        ("log . {/kubernetes/client-namespace}", "route 0"),
    ] {
        let pods = Arc::new(Awaited::default());
        let text = format!(".:53 {{\n {directives}\n forward . 192.0.2.53\n}}");
        let firewall = Firewall::with(&text, &Engines::none(), pods.clone());
        let is_about_clients = !directives.starts_with("log");
        let expected = if is_about_clients { "SERVFAIL" } else { known };
        assert!(firewall.ask("A a.example").starts_with(expected), "{directives}");
        pods.0.store(true, Ordering::SeqCst);
        if !known.is_empty() {
            assert!(firewall.ask("A a.example").starts_with(known), "{directives}");
        }
    }
}

#[test]
fn a_view_that_cannot_be_judged_leaves_its_questions_to_no_other_block() {
    let pods = Arc::new(Awaited::default());
    let firewall = Firewall::with(
        ".:53 {
            errors
            view children {
                expr atoi([kubernetes/client-namespace]) < 18
            }
            forward . 192.0.2.53
        }
        .:53 {
            forward . 192.0.2.54
        }
        public.example:53 {
            forward . 192.0.2.55
        }",
        &Engines::none(),
        pods.clone(),
    );
    // Not before it is known who asks, nor if a label is no number.
    assert!(firewall.ask("A a.example").starts_with("SERVFAIL"));
    assert_eq!(firewall.ask("A a.public.example"), "route 2");
    pods.0.store(true, Ordering::SeqCst);
    assert!(firewall.ask("A a.example").starts_with("SERVFAIL"));
    assert_eq!(firewall.ask("A a.public.example"), "route 2");
    let told = firewall.told.lines(2);
    assert!(told[0].contains("the pods of the cluster are not known yet"), "{told:?}");
    assert!(told[1].contains("Corefile:3:13: in `atoi("), "{told:?}");
}
