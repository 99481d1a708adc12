//! Changes of rules that move many leases: in parts, with the lock free between
//! two of them, and with grants in between.

use super::*;
use crate::testing::{Bench, DB, WEB, answer, names_of, names_of_web, program};
use namewall_policy::domain::DomainPattern;
use namewall_policy::lease::{NeverLeased, Revision, Rules};
use namewall_policy::{LeaseStore, Verdict};
use std::net::Ipv4Addr;

/// A change may have so many leases in one part, and no more in its switch.
const MOST: usize = 1_000;

fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() + number)
}

/// A node whose web pod has opened so many names.
fn with_names(count: u32) -> Bench {
    let bench = Bench::new(&[names_of_web(&["*.api.example.com"])]);
    for number in 0..count {
        bench.hears(WEB, &answer(&format!("n{number}.api.example.com"), &[address(number)], 600));
    }
    bench.memory.take_largest_change();
    bench
}

#[test]
fn s6_6_an_edited_pattern_takes_many_leases_over_in_parts() {
    let mut bench = with_names(3_500);
    for next in ["*.example.com", "*.api.example.com"] {
        bench.node.enforce(&program(&[names_of_web(&[next])])).expect("memory takes it");
        let largest = bench.memory.take_largest_change();
        assert!(largest <= MOST, "{next}: {largest} leases at once");
        let closed = (0..3_500).find(|number| bench.verdict(WEB, address(*number)) != Verdict::Allow);
        assert_eq!(closed, None, "{next}");
    }
    // Pods come and go: nothing is carried over.
    bench.node.enforce(&program(&[names_of_web(&["*.api.example.com"])])).expect("memory takes it");
    assert_eq!(bench.memory.take_largest_change(), 0);
}

#[test]
fn s6_3_a_rule_recalls_many_answers_in_parts() {
    let mut bench = Bench::new(&[]);
    let many: Vec<Ipv4Addr> = (0..2_000).map(address).collect();
    for (at, some) in many.chunks(20).enumerate() {
        bench.hears(WEB, &answer(&format!("n{at}.example.com"), some, 600));
    }
    bench.node.enforce(&program(&[names_of_web(&["*.example.com"])])).expect("memory takes it");
    let largest = bench.memory.take_largest_change();
    assert!(largest <= MOST, "{largest} leases at once");
    assert_eq!(many.iter().find(|one| bench.verdict(WEB, **one) != Verdict::Allow), None);
}

#[test]
fn s6_8_of_many_leases_those_in_a_network_that_settings_name_are_closed_by_one_change() {
    let mut bench = with_names(3_500);
    let never = NeverLeased::new("cluster.local".parse().unwrap());
    bench.node.set_never_leased(never.and_networks(&["198.18.1.0/24".parse().unwrap()]));
    bench.node.enforce(&program(&[names_of_web(&["*.example.com"])])).expect("memory takes it");
    assert_eq!(bench.learner().counters().revoked_by.iter().sum::<u64>(), 256, "each is counted once");
    for number in [0, 255, 256, 511, 512, 3_499] {
        let is_open = bench.verdict(WEB, address(number)) == Verdict::Allow;
        assert_eq!(is_open, !(256..512).contains(&number), "{number}");
    }
    assert!(bench.memory.leases().iter().all(|lease| !never_in(&lease.address)));
}

fn never_in(address: &IpAddr) -> bool {
    address.to_string().starts_with("198.18.1.")
}

/// A number that follows from the one before.
fn next(number: &mut u64) -> u64 {
    *number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *number >> 33
}

#[test]
fn s6_3_whatever_is_granted_between_the_parts_of_a_revision_nothing_is_forgotten() {
    let before = program(&[names_of_web(&["*.api.example.com"]), names_of("db", &["*.example.org"])]);
    let after =
        program(&[names_of_web(&["*.example.com", "n1.api.example.com"]), names_of("db", &["*.api.example.com"])]);
    let plain = NeverLeased::new("cluster.local".parse().unwrap());
    let listed = plain.clone().and_networks(&["198.18.0.0/25".parse().unwrap()]);
    let api = RulePattern::allow(DomainPattern::Subdomains("api.example.com".parse().unwrap()));
    for seed in 0..6_u64 {
        let mut dice = seed;
        let never = if seed % 2 == 0 { &plain } else { &listed };
        let revision = Revision {
            before: Some(Rules { program: &before, never_leased: &plain }),
            next: Rules { program: &after, never_leased: never },
        };
        let mut store = LeaseStore::default();
        let (pattern, now) = (api.clone(), Instant(Duration::from_secs(1)));
        let mut grant = |store: &mut LeaseStore, count: u64| {
            let leases: Vec<Lease> = (0..count)
                .map(|_| {
                    let (number, left) = (next(&mut dice) % 3_000, 60 + next(&mut dice) % 600);
                    Lease {
                        pattern: pattern.clone(),
                        name: format!("n{number}.api.example.com").parse().unwrap(),
                        address: address(number as u32).into(),
                        expiry: now + Duration::from_secs(left),
                        asked_by: Some(crate::testing::ip(DB)),
                    }
                })
                .collect();
            store.grant(&leases, now);
            store.acknowledge();
        };
        grant(&mut store, 2_500);
        let (mut survey, mut parts) = (store.survey(&revision), 0);
        while survey.is_under_way() {
            let found = store.look_on(&mut survey, &revision);
            store.carry(&found, now);
            store.acknowledge();
            grant(&mut store, 40);
            parts += 1;
        }
        assert!(parts > 3, "{parts}");
        store.end_survey(&survey, &revision);
        grant(&mut store, 40);
        let plan = store.plan_after(&survey, &revision);
        let change = store.revise(&revision, plan, &[]);
        store.acknowledge();
        assert!(change.opened.len() < 300, "{} leases are left for the switch", change.opened.len());
        for lease in store.table().all() {
            assert!(never.refusal(&after, &lease.name, lease.address).is_none(), "{lease:?} is never leased");
            for id in after.patterns.matching(&lease.name) {
                let wanted = Lease { pattern: after.patterns.get(id).clone(), ..lease.clone() };
                assert!(store.table().expiry(&wanted) >= Some(lease.expiry), "{wanted:?} is forgotten");
            }
        }
    }
}

#[test]
fn s6_7_a_known_name_is_answered_without_the_data_plane_however_many_clients_ask() {
    let apps = ["web", "db"];
    let bench = Bench::new(&apps.map(|app| names_of(app, &["*.example.com"])));
    let say = answer("api.example.com", &[address(1)], 600);
    for client in [WEB, DB] {
        bench.hears(client, &say);
    }
    let before = bench.memory.opened();
    for _ in 0..20 {
        for client in [WEB, DB] {
            let mut batch = Batch::default();
            let bytes = &say;
            let opens = bench.learner().learn(&Answer { client: ip(client), upstream: None, bytes }, &mut batch);
            assert_eq!((opens, batch.len()), (Opens::Nothing, 0));
        }
    }
    assert_eq!(bench.memory.opened(), before);
}

#[test]
fn s6_3_a_known_name_is_renewed_once_a_second_at_most_and_never_by_a_cache() {
    let bench = Bench::new(&[names_of_web(&["*.example.com"])]);
    let mut counts = [0, 0];
    for (which, falls) in [true, false].into_iter().enumerate() {
        let name = format!("n{which}.example.com");
        bench.hears(WEB, &answer(&name, &[address(which as u32)], 600));
        for quarter in 1..=40_u64 {
            bench.clock.advance(Duration::from_millis(250));
            // The TTLs of a cache fall with time; a server that has the zone says the same each time.
            let ttl = if falls { 600 - quarter.div_ceil(4) as u32 } else { 600 };
            let opens = bench.hears(WEB, &answer(&name, &[address(which as u32)], ttl));
            assert_ne!(opens, Opens::New, "nobody waits for it");
            counts[which] += usize::from(opens == Opens::Renewal);
        }
    }
    assert!(counts[0] == 0 && counts[1] <= 10, "{counts:?} renewals in ten seconds");
}

fn ip(text: &str) -> IpAddr {
    crate::testing::ip(text)
}
