//! musl's resolver, as in Alpine: it asks all servers at once for both families,
//! and before 1.2.4 it takes a truncated answer as it is.

use crate::namespace::inside;
use crate::program::{Fixture, of_www, run};
use crate::zone::MANY;
use std::path::Path;

/// The program, built anew: it must be musl's whatever the machine's own library is.
fn lookup() -> String {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/lookup.c");
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lookup-{}", std::process::id()));
    let built = built.to_str().unwrap().to_owned();
    run("musl-gcc", &["-static", "-O1", "-o", &built, source]);
    built
}

#[test]
fn both_families_at_once() {
    let Some(inside) = inside() else { return };
    let (fixture, lookup) = (Fixture::at("127.0.0.1:53"), lookup());
    inside.configure("");
    for name in ["www.shop.example", "WWW.Shop.Example", "alias.shop.example"] {
        assert_eq!(fixture.addresses(&run(&lookup, &[name])), of_www(), "{name}");
    }
    std::fs::remove_file(lookup).unwrap();
}

#[test]
fn what_it_takes_of_a_truncated_answer_is_open() {
    let Some(inside) = inside() else { return };
    let (fixture, lookup) = (Fixture::at("127.0.0.1:53"), lookup());
    inside.configure("");
    let shown = fixture.addresses(&run(&lookup, &["large.shop.example"])).len();
    assert!((1..=MANY as usize).contains(&shown), "{shown}");
    std::fs::remove_file(lookup).unwrap();
}

#[test]
fn a_search_list_is_gone_through() {
    let Some(inside) = inside() else { return };
    let (fixture, lookup) = (Fixture::at("127.0.0.1:53"), lookup());
    inside.configure("search ns.svc.cluster.local svc.cluster.local shop.example\noptions ndots:5");
    for name in ["www", "alias", "www.shop.example"] {
        assert_eq!(fixture.addresses(&run(&lookup, &[name])), of_www(), "{name}");
    }
    std::fs::remove_file(lookup).unwrap();
}
