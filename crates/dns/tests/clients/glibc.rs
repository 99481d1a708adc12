//! glibc's resolver, by getent: it asks for A and AAAA at once from one port.

use crate::namespace::inside;
use crate::program::{Fixture, of_www, run};
use crate::zone::MANY;

const OPTIONS: [&str; 6] = [
    "",
    "options use-vc",
    "options edns0",
    "options single-request",
    "options single-request-reopen",
    "options edns0 trust-ad use-vc",
];

#[test]
fn both_families_at_once_over_udp_and_tcp() {
    let Some(inside) = inside() else { return };
    let fixture = Fixture::at("127.0.0.1:53");
    for options in OPTIONS {
        inside.configure(options);
        for name in ["www.shop.example", "WWW.Shop.Example", "alias.shop.example"] {
            let said = run("getent", &["ahosts", name]);
            assert_eq!(fixture.addresses(&said), of_www(), "{name}, {options}");
        }
    }
}

#[test]
fn a_truncated_answer_is_asked_for_again_over_tcp() {
    let Some(inside) = inside() else { return };
    let fixture = Fixture::at("127.0.0.1:53");
    for options in OPTIONS {
        inside.configure(options);
        let said = run("getent", &["ahosts", "large.shop.example"]);
        assert_eq!(fixture.addresses(&said).len(), MANY as usize, "{options}");
    }
}

/// As in a pod: several suffixes to try, and names that have fewer dots than they should.
#[test]
fn a_search_list_is_gone_through() {
    let Some(inside) = inside() else { return };
    let fixture = Fixture::at("127.0.0.1:53");
    inside.configure("search ns.svc.cluster.local svc.cluster.local shop.example\noptions ndots:5");
    for name in ["www", "alias", "www.shop.example"] {
        let said = run("getent", &["ahosts", name]);
        assert_eq!(fixture.addresses(&said), of_www(), "{name}");
    }
}
