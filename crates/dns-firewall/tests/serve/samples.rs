//! Other people's Corefiles (tests/corefiles), served: the samples of the original form (docs/semantics.md, S9) and of
//! the plugins' READMEs, as printed but for where names are asked and engines are.

use crate::support::{Engines, Fake, Firewall, refused};
use namewall_dns_firewall::Identities;
use namewall_engines::Judged;
use namewall_expression::{Fact, Facts, Outcome};
use std::net::IpAddr;
use std::sync::Arc;

const NO: &str = "NXDOMAIN; authority . 60 SOA 60";
const NO_EDNS: &str = "NXDOMAIN; authority . 60 SOA 60; edns ede 15";

/// A sample, with an upstream for what passes: none has one.
macro_rules! sample {
    ($name:literal) => {
        forwarding(include_str!(concat!("../../../../tests/corefiles/", $name, ".corefile")))
    };
}

fn forwarding(printed: &str) -> String {
    let block = printed.trim_end().strip_suffix('}').expect("a block ends with a brace");
    format!("{block}   forward . 192.0.2.53\n}}\n")
}

#[test]
fn original_by_type_and_client() {
    for text in [sample!("original/by-type"), sample!("original/by-type-short")] {
        crate::support::check(
            &text,
            &[
                ("A www.example.com from 172.23.1.2", "route 0"),
                ("A www.example.com from 172.24.1.2", NO),
                ("AAAA www.example.com from 172.23.1.2", NO),
                ("TXT www.example.com from 172.24.1.2", "route 0"),
                ("TXT www.example.com from fd00::1", "route 0"),
                ("A www.example.com from fd00::1", NO),
            ],
        );
    }
}

#[test]
fn original_by_edns0_and_returned_address() {
    let printed = sample!("original/by-edns0");
    let firewall = Firewall::new(&printed);
    // Without an encoding it is what its rule compares it with: text.
    assert_eq!(firewall.ask("A www.example.com 0xffed=infoblox"), "route 0");
    assert_eq!(firewall.ask("A www.example.com"), NO);
    let becomes = |records: &[&str]| firewall.exchange("A www.example.com 0xffed=infoblox-7", records);
    assert_eq!(becomes(&["@ 30 A 10.1.2.3"]), "pass");
    assert_eq!(becomes(&["@ 30 A 10.1.2.3", "@ 30 A 11.1.2.3"]), NO_EDNS);
    assert_eq!(becomes(&[]), NO_EDNS);
    assert_eq!(firewall.ask("A www.example.com 0xffed=somebody"), NO_EDNS);
}

/// The one with engines, where rules see the text of a client's id.
fn engines() -> String {
    sample!("original/engines").replace("client_id      \n", "client_id bytes\n")
}

/// What cannot be served says so. When it can be, this is where it goes from.
#[test]
fn what_is_not_served_says_so() {
    let told = refused(&engines());
    let lines: Vec<&str> = told.lines().collect();
    let why = [
        "Corefile:11:11: error: themis permission-domain: /home/root/policy-file-domain: ",
        "Corefile:15:11: error: themis permission-ip: /home/root/policy-file-ip: ",
        "Corefile:34:7: error: kubernetes rbac: ",
    ];
    assert_eq!(lines.len(), why.len(), "{told}");
    for (line, start) in lines.iter().zip(why) {
        assert!(line.starts_with(start), "{line}\nshould begin with {start}");
    }
}

#[test]
fn original_external_engines() {
    let by_client = Fake::new(|facts: &dyn Facts| {
        let client = facts.get(&Fact::named("request/client_id")).to_string();
        Judged::Now(Ok(match &*client {
            "friend" => Outcome::Allow,
            "foe" => Outcome::Refuse,
            _ => Outcome::Undefined,
        }
        .into()))
    });
    let by_domain = Fake::new(|facts: &dyn Facts| {
        let is_bad = facts.get(&Fact::Name).to_string() == "bad.example.";
        let is_answer = facts.get(&Fact::Rcode).to_string() == "NOERROR";
        Judged::Now(Ok(match (is_bad, is_answer) {
            (true, _) => Outcome::Block,
            (false, true) => Outcome::Allow,
            (false, false) => Outcome::Undefined,
        }
        .into()))
    });
    let nobody = Fake::now(Outcome::Undefined);
    let engines = Engines::of([
        ("permission-client", &by_client),
        ("permission-domain", &by_domain),
        ("permission-ip", &nobody),
        ("opa-permission-ip", &nobody),
    ]);
    let firewall = Firewall::with_engines(&self::engines().replace("kubernetes rbac", ""), &engines);
    let one = &["@ 30 A 192.0.2.1"];
    assert_eq!(firewall.exchange("A www.example 0xffed=friend", one), "pass");
    assert_eq!(firewall.exchange("A www.example 0xffed=foe", one), "REFUSED; edns ede 18");
    assert_eq!(firewall.exchange("A www.example 0xffed=infoblox", one), "pass");
    assert_eq!(firewall.exchange("A www.example", one), NO);
    assert_eq!(firewall.exchange("A bad.example 0xffed=infoblox", one), NO_EDNS);
    // Its name is asked for again with the answer.
    assert_eq!(firewall.exchange("A bad.example 0xffed=friend", one), NO_EDNS);
}

#[test]
fn original_the_older_plugin() {
    let engine = Fake::new(|facts: &dyn Facts| {
        let get = |name: &str| facts.get(&Fact::Label(name.into())).to_string();
        let is_known =
            get("policy/uid") == "0a0b" && get("policy/source_ip") == "192.0.2.9" && get("policy/client_name") == "me";
        Judged::Now(Ok(if is_known { Outcome::Allow } else { Outcome::Undefined }.into()))
    });
    let firewall = Firewall::with_engines(&sample!("original/older-plugin"), &Engines::of([("policy", &engine)]));
    let own = "A www.example 0xffef=x:0a0b 0xffea=x:c0000209 0xffeb=me";
    assert_eq!(firewall.exchange(own, &["@ 30 A 192.0.2.1"]), "pass");
    assert_eq!(firewall.ask("A www.example"), NO, "at the end of a query's list it blocks");
    assert_eq!(firewall.ask("A www.mycompanyname.com"), "route 0");
    assert_eq!(firewall.ask("A mycompanyname.org"), "route 0");
    assert_eq!(firewall.ask("A notmycompanyname.org"), NO);
    let told = firewall.ask("TXT www.example.debug CH");
    assert!(told.contains("www.example.: block by Corefile:2:1"), "{told}");
}

#[test]
fn readmes_by_client() {
    crate::support::check(
        &sample!("readmes/clients"),
        &[
            ("A a.example from 10.120.1.11", "REFUSED"),
            ("A a.example from 10.120.1.12", "route 0"),
            ("A a.example from 10.120.0.1", "route 0"),
            ("A a.example from 10.121.0.1", "silence"),
            ("A a.example from fd00::1", "silence"),
        ],
    );
}

#[test]
fn readmes_by_name() {
    crate::support::check(
        &sample!("readmes/names"),
        &[
            ("TXT www.EXAMPLE.com", "route 0"),
            ("A www.google.com", "route 0"),
            ("AAAA www.google.com", "route 0"),
            ("TXT www.google.com", NO),
            ("A www.example.org", NO),
        ],
    );
}

#[test]
fn readmes_by_edns0() {
    crate::support::check(
        &sample!("readmes/edns0"),
        &[
            ("A www.example.org 0xffed=123456789 0xffee=ABCDEF", "route 0"),
            ("A www.example.org 0xffed=123456789", "REFUSED; edns ede 18"),
            ("A www.example.org 0xffed=12345678 0xffee=ABCDEF", "REFUSED; edns ede 18"),
            ("A www.example.org", "REFUSED"),
            ("A www.example.com 0xffed=123456789 0xffee=ABCDEF", "REFUSED; edns"),
        ],
    );
    // The older README's list ends with `block true`, which lets nobody pass.
    let first = Firewall::new(&sample!("readmes/first-edns0").replace("block true", "allow true"));
    let becomes = |record: &str| {
        first.exchange("A www.example.org 0xffed=123456789 0xffee=ABCDEF", &["@ 30 A 192.0.2.1", record])
    };
    assert_eq!(becomes("@ 30 A 192.0.2.2"), "pass");
    assert_eq!(becomes("@ 30 A 172.217.1.1"), "REFUSED; edns ede 18");
}

/// A tenant's pod, and one that is none.
#[derive(Debug)]
struct Tenants;

impl Identities for Tenants {
    fn label(&self, client: IpAddr, label: &str) -> Option<String> {
        let namespace = if client == IpAddr::from([10, 0, 0, 1]) { "tenant-a" } else { "kube-system" };
        (label == "kubernetes/client-namespace").then(|| namespace.to_owned())
    }
}

#[test]
fn readmes_by_tenant() {
    let firewall = Firewall::with(&sample!("readmes/tenants"), &Engines::none(), Arc::new(Tenants));
    assert_eq!(firewall.ask("A web.tenant-b.svc.cluster.local from 10.0.0.2"), "route 0");
    assert_eq!(
        firewall.ask("A web.tenant-b.svc.cluster.local from 10.0.0.1"),
        "NXDOMAIN; authority cluster.local. 60 SOA 60"
    );
    assert_eq!(firewall.ask("A web.tenant-a.svc.cluster.local from 10.0.0.1"), "route 0", "its own Service");
    assert_eq!(firewall.ask("SRV _http._tcp.Web.Tenant-A.svc.cluster.local from 10.0.0.1"), "route 0");
    assert_eq!(firewall.ask("A web.default.svc.cluster.local from 10.0.0.1"), "route 0");
    assert_eq!(
        firewall.ask("A tenant-a.web.svc.cluster.local from 10.0.0.1"),
        "NXDOMAIN; authority cluster.local. 60 SOA 60"
    );
}

#[test]
fn readmes_by_engine() {
    let engine = Fake::now(Outcome::Allow);
    for text in [sample!("readmes/themis"), sample!("readmes/opa"), sample!("readmes/any-engine")] {
        let firewall = Firewall::with_engines(&text, &Engines::of([("myengine", &engine)]));
        assert_eq!(firewall.ask("A a.example"), "route 0");
    }
}

/// The Corefile of every cluster, with an upstream that is not the machine's.
#[test]
fn a_clusters_own_is_served_with_warnings() {
    let printed = include_str!("../../../../tests/corefiles/clusters/kubernetes.corefile");
    let firewall = Firewall::new(&printed.replace("/etc/resolv.conf", "192.0.2.53"));
    assert_eq!(
        firewall.warnings,
        ["Corefile:7:5: names of the cluster are not answered here, they are forwarded; it says who clients are",]
    );
    assert_eq!(
        firewall.exchange("A www.example", &["@ 300 A 192.0.2.1"]),
        "answer NOERROR; www.example. 30 A 192.0.2.1"
    );
    assert_eq!(firewall.ask("A www.example"), "answer NOERROR; www.example. 30 A 192.0.2.1");
    assert_eq!(firewall.exchange("A web.shop.svc.cluster.local", &["@ 300 A 192.0.2.1"]), "pass");
    assert_eq!(firewall.ask("A web.shop.svc.cluster.local"), "route 0");
}

/// The Corefiles of distributions, with an upstream and addresses that are not the machine's.
fn of_a_distribution(text: &str) -> Firewall {
    let here = text.replace("/etc/resolv.conf", "192.0.2.53").replace("169.254.20.10 10.96.0.10", "127.0.0.1");
    Firewall::new(&here.replace(":5353", ":53"))
}

#[test]
fn a_clusters_own_of_openshift_is_served() {
    for text in [
        include_str!("../../../../tests/corefiles/clusters/openshift.corefile"),
        include_str!("../../../../tests/corefiles/clusters/openshift-default.corefile"),
    ] {
        let firewall = of_a_distribution(text);
        assert_eq!(firewall.exchange("A www.example", &["@ 300 A 192.0.2.1"]), "pass");
        assert_eq!(firewall.ask("A www.example"), "answer NOERROR; www.example. 300 A 192.0.2.1", "it is cached");
    }
}

#[test]
fn a_clusters_own_of_node_local_dns_is_served() {
    let firewall = of_a_distribution(include_str!("../../../../tests/corefiles/clusters/node-local-dns.corefile"));
    assert_eq!(firewall.warnings, [""; 0]);
    assert_eq!(firewall.ask("A web.shop.svc.cluster.local"), "route 0");
    assert_eq!(firewall.ask("PTR 1.0.0.10.in-addr.arpa"), "route 1");
    assert_eq!(firewall.ask("A www.example"), "route 3");
}

#[test]
fn a_clusters_own_of_aks_is_served() {
    let firewall = of_a_distribution(include_str!("../../../../tests/corefiles/clusters/aks.corefile"));
    assert_eq!(firewall.ask("A www.example"), "route 0");
    assert_eq!(firewall.ask("A a.b.c.d.e.internal.cloudapp.net"), "answer NXDOMAIN aa");
    assert_eq!(firewall.ask("A a.internal.cloudapp.net"), "route 0");
    assert_eq!(firewall.ask("A a.reddog.microsoft.com"), "answer NXDOMAIN aa");
}

#[test]
fn a_clusters_own_of_gke_is_served() {
    let firewall = of_a_distribution(include_str!("../../../../tests/corefiles/clusters/gke.corefile"));
    assert_eq!(firewall.warnings, [""; 0]);
    assert_eq!(firewall.ask("A web.shop.svc.cluster.local"), "route 0");
    assert_eq!(firewall.ask("TYPE13 www.example"), "answer NXDOMAIN aa");
    assert_eq!(firewall.ask("A www.example"), "route 1");
}
