//! The example of lists and policy zones does what its comments say.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../dns/tests/support/stub.rs"]
mod stub;
#[path = "serve/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "it is shared with other tests")]
mod support;

use support::Firewall;

#[test]
fn the_example_denies_what_its_list_and_its_policy_zone_say() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dns/lists");
    // Paths are seen from where the process is started; no other test is in this program.
    std::env::set_current_dir(&folder).unwrap();
    let firewall = Firewall::new(&std::fs::read_to_string("Corefile").unwrap());
    let nxdomain = "NXDOMAIN; authority . 60 SOA 60";
    for (question, becomes) in [
        ("A www.ads.example", "REFUSED"),
        ("A help.ads.example", "route 0"),
        ("A count.example", "REFUSED"),
        ("A www.count.example", "route 0"),
        ("A click.example", "route 0"),
        ("A a.click.example", "REFUSED"),
        ("A pixel.example", "REFUSED"),
        ("A malware.example", nxdomain),
        ("A www.malware.example", nxdomain),
        ("A fixed.malware.example", "route 0"),
        ("A phish.example", "answer NOERROR aa; phish.example. 300 A 192.0.2.80"),
        ("A www.example from 192.0.2.66", "silence"),
    ] {
        assert_eq!(firewall.ask(&format!("{question} at 127.0.0.1:5353")), becomes, "{question}");
    }
    let exchange = |name: &str, address: &str| {
        let line = format!("{name}. 60 A {address}");
        firewall.exchange(&format!("A {name} at 127.0.0.1:5353"), &[&*line])
    };
    assert_eq!(exchange("one.example", "203.0.113.9"), nxdomain);
    assert_eq!(exchange("two.example", "198.51.100.9"), "pass");
}
