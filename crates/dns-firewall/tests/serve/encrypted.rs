//! Server blocks over TLS and HTTPS: certificates, ports, and the examples that say where they are served.

use crate::support::{Authority, Engines, Firewall, LoggedText, around, built, refused};
use namewall_dns::Transport;
use std::net::SocketAddr;

/// An example as it is, with the certificate of a test.
fn example(name: &str, certificate: &str) -> String {
    let path = format!("{}/../../examples/dns/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    // The upstreams are those of the machine, whatever it has.
    text.replace("cert.pem key.pem\n", &format!("{certificate}\n")).replace("/etc/resolv.conf", "192.0.2.53")
}

#[test]
fn the_canary_says_that_the_network_has_a_resolver() {
    let firewall = Firewall::new(&example("canary.Corefile", ""));
    let ask = |question: &str| firewall.ask(&format!("{question} at 127.0.0.1:5353"));
    assert_eq!(ask("A use-application-dns.net"), "answer NXDOMAIN aa");
    assert_eq!(ask("AAAA use-application-dns.net"), "answer NXDOMAIN aa");
    assert_eq!(ask("SVCB _dns.resolver.arpa"), "answer NOERROR aa");
    assert_eq!(ask("A www.example.com"), "route 0");
}

#[test]
fn designated_resolvers_are_those_that_the_corefile_serves() {
    let authority = Authority::new("ddr");
    let text = example("encrypted.Corefile", &authority.files("dns.example.org"));
    let around = around(&LoggedText::default());
    let built = built(&text, &around, &Engines::none()).unwrap();
    let served: Vec<(SocketAddr, Transport)> = built.encrypted.iter().map(|one| (one.address, one.transport)).collect();
    assert_eq!(
        served,
        [("127.0.0.1:8853".parse().unwrap(), Transport::Tls), ("127.0.0.1:8443".parse().unwrap(), Transport::Https)]
    );
    let firewall = Firewall::new(&text);
    let told = firewall.ask("SVCB _dns.resolver.arpa at 127.0.0.1:5353");
    assert!(
        told.starts_with("answer NOERROR aa; ") && told.matches("_dns.resolver.arpa. 300 SVCB").count() == 2,
        "{told}"
    );
    assert_eq!(firewall.ask("A _dns.resolver.arpa at 127.0.0.1:5353"), "answer NOERROR aa");
    // The rules are the same, whatever a question comes by.
    for port in [5353, 8853, 8443] {
        assert_eq!(firewall.ask(&format!("A a.internal.example at 127.0.0.1:{port}")), "REFUSED");
        assert!(firewall.ask(&format!("A www.example.com at 127.0.0.1:{port}")).starts_with("route"));
    }
}

#[test]
fn what_is_wrong_with_a_certificate_is_said_at_the_start_with_its_place() {
    let authority = Authority::new("served");
    let mine = authority.files("mine.example");
    let other = authority.files("other.example");
    let (certificate, key) = (mine.split(' ').next().unwrap(), other.split(' ').nth(1).unwrap());
    let ca = authority.ca();
    for (tls, why) in [
        ("/no/cert.pem /no/key.pem".to_owned(), "tls: cannot read /no/cert.pem: ".to_owned()),
        (format!("{key} {key}"), format!("tls: {key} has no certificate in PEM")),
        (format!("{certificate} {certificate}"), format!("tls: {certificate} has no private key in PEM")),
        (format!("{certificate} {key}"), format!("tls: {certificate} does not fit the key {key}: ")),
        (format!("{mine} {key} {{\n client_auth require_and_verify\n }}"), format!("tls: {key} has no certificate")),
    ] {
        let told = refused(&format!("tls://.:853 {{\n tls {tls}\n whoami\n}}"));
        assert!(told.starts_with(&format!("Corefile:2:2: error: {why}")), "{told}");
    }
    for options in ["", "{\n client_auth nocert\n }", "{\n client_auth verify_if_given\n }"] {
        let text = format!("https://.:443 {{\n tls {mine} {ca} {options}\n whoami\n}}");
        assert_eq!(refused(&text), "it is served");
    }
}

#[test]
fn a_port_has_one_scheme_and_one_certificate() {
    let authority = Authority::new("ports");
    let (one, other) = (authority.files("one.example"), authority.files("other.example"));
    let block = |key: &str, tls: &str| format!("{key} {{\n {tls}\n whoami\n}}\n");
    let tls = format!("tls {one}");
    let mixed = block("tls://a.example:853", &tls) + &block("https://b.example:853", &tls);
    assert_eq!(refused(&mixed), "Corefile:5:1: error: port 853 is served as `tls://` already; choose another port");
    let mixed = block("a.example:853", "") + &block("tls://b.example:853", &tls);
    assert_eq!(refused(&mixed), "Corefile:5:1: error: port 853 is served as `dns://` already; choose another port");
    let mixed = block("tls://a.example:853", &tls) + &block("b.example:853", "");
    assert_eq!(refused(&mixed), "Corefile:5:1: error: port 853 is served as `tls://` already; choose another port");
    let two = block("tls://a.example", &tls) + &block("tls://b.example", &format!("tls {other}"));
    let why = "Corefile:6:2: error: port 853 shows another certificate already: see Corefile:2:2";
    assert_eq!(refused(&two), why);
    let same = block("tls://a.example", &tls) + &block("tls://b.example", &tls);
    assert_eq!(refused(&same), "it is served");
    // One block may have keys of several schemes.
    assert_eq!(refused(&block(". tls://. https://.", &tls)), "it is served");
}
