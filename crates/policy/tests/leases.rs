//! How much is kept of what names open, and for whom (S6.5), and what they never open (S6.8).

use namewall_policy::domain::{DomainName, DomainPattern, RulePattern, Wildcard};
use namewall_policy::labels::Labels;
use namewall_policy::lease::{Bounds, NeverLeased, Revision, Rules};
use namewall_policy::model::{Node, Role, Workload, WorkloadId, WorkloadKind};
use namewall_policy::{Instant, Lease, LeaseStore, LeaseTable, Snapshot, compile, compile_next};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const SMALL: Bounds = Bounds { addresses_a_name: 100, names_a_pattern: 50, leases: 1_000 };

fn at(seconds: u64) -> Instant {
    Instant(Duration::from_secs(seconds))
}

fn pattern(text: &str) -> RulePattern {
    RulePattern::allow(DomainPattern::parse(text, Wildcard::Subdomains).expect("it is a pattern"))
}

fn lease(pattern_text: &str, name: &str, address: u32, seconds: u64) -> Lease {
    let address = Ipv4Addr::from(0xc633_0000 + address).into();
    Lease {
        pattern: pattern(pattern_text),
        name: name.parse().expect("it is a name"),
        address,
        expiry: at(seconds),
        asked_by: None,
    }
}

/// The same, asked for by a client.
fn by(client: u8, lease: Lease) -> Lease {
    let client: IpAddr = Ipv4Addr::new(10, 0, 0, client).into();
    Lease { asked_by: Some(client), ..lease }
}

fn names(table: &LeaseTable) -> Vec<DomainName> {
    let mut names: Vec<DomainName> = table.all().map(|lease| lease.name).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn s6_5_at_least_a_hundred_addresses_a_name_always_fit() {
    let mut table = LeaseTable::with_bounds(Bounds { addresses_a_name: 1, ..SMALL });
    for address in 0..100 {
        assert!(table.grant(by(1, lease("*.b", "a.b", address, 60))).is_empty());
    }
    assert_eq!(table.len(), 100);
}

#[test]
fn s6_5_a_name_with_more_addresses_gives_up_those_that_end_soonest() {
    let mut table = LeaseTable::with_bounds(SMALL);
    for address in 0..100 {
        table.grant(by(1, lease("*.b", "a.b", address, 1_000 - u64::from(address))));
    }
    // The soonest to end is the last that came, address 99; and what comes now ends sooner still, and stays.
    let evicted = table.grant(by(1, lease("*.b", "a.b", 500, 10)));
    assert_eq!(evicted, [by(1, lease("*.b", "a.b", 99, 901))]);
    assert_eq!(table.at(lease("*.b", "a.b", 500, 0).address).count(), 1);
    assert_eq!((table.len(), table.evictions().addresses_a_name), (100, 1));
    // Another name with the same address is another lease.
    assert!(table.grant(by(1, lease("*.b", "c.b", 500, 10))).is_empty());
}

/// Times are in whole seconds, so that much ends at once: then what was answered last stays.
#[test]
fn s6_5_of_those_that_end_at_once_the_newest_answer_stays() {
    let mut table = LeaseTable::with_bounds(Bounds { addresses_a_name: 100, ..SMALL });
    for number in 0..100 {
        table.grant(lease("a.b", "a.b", number, 60));
    }
    // An answer with one address that is known, and seven that are not.
    let answer = [0, 200, 201, 202, 203, 204, 205, 206];
    for number in answer {
        table.grant(lease("a.b", "a.b", number, 60));
    }
    let all: Vec<Lease> = table.all().collect();
    for number in answer {
        assert!(all.contains(&lease("a.b", "a.b", number, 60)), "{number}");
    }
    assert_eq!(all.len(), 100);

    let mut table = LeaseTable::with_bounds(Bounds { names_a_pattern: 10, ..SMALL });
    for number in 0..10 {
        table.grant(by(1, lease("*.b", &format!("x{number}.b"), number, 60)));
    }
    let newest = ["x5.b", "a.b", "b.b", "c.b"];
    for (name, address) in newest.into_iter().zip(20..) {
        table.grant(by(1, lease("*.b", name, address, 60)));
    }
    let known = names(&table);
    newest.iter().for_each(|name| assert!(known.contains(&name.parse().unwrap()), "{name} of {known:?}"));
}

#[test]
fn s6_5_a_flood_of_names_evicts_its_own_and_never_the_newest() {
    let mut table = LeaseTable::with_bounds(SMALL);
    // The tenants' names end long before those of the flood: the soonest to end of all is not what goes.
    for number in 0..10 {
        table.grant(by(2, lease("*.b", &format!("own{number}.b"), number, 5)));
        table.grant(by(3, lease("*.other", &format!("own{number}.other"), number, 5)));
    }
    for number in 0..10_000_u32 {
        let flood = lease("*.b", &format!("x{number}.b"), 1_000 + number, 1_000);
        let address = flood.address;
        for gone in table.grant(by(1, flood)) {
            assert!(gone.name.as_str().starts_with('x'), "{} made room for {number}", gone.name);
        }
        assert_eq!(table.at(address).count(), 1, "the newest stays");
    }
    let left = names(&table);
    assert_eq!(left.iter().filter(|name| name.as_str().starts_with("own")).count(), 20);
    assert_eq!(left.iter().filter(|name| name.as_str().starts_with('x')).count(), 40);
    assert_eq!(table.evictions().names_a_pattern, 9_960);
}

#[test]
fn s6_5_the_bound_on_all_leases_is_paid_by_who_has_most() {
    let mut table = LeaseTable::with_bounds(Bounds { leases: 100, names_a_pattern: 1_000, ..SMALL });
    for number in 0..30 {
        table.grant(by(2, lease("*.b", &format!("own{number}.b"), number, 5)));
    }
    for number in 0..5_000 {
        table.grant(by(1, lease("*.other", &format!("x{number}.other"), number, 1_000)));
        assert!(table.len() <= 100);
    }
    assert_eq!(names(&table).iter().filter(|name| name.as_str().starts_with("own")).count(), 30);
    assert_eq!(table.evictions().leases, 4_930);
}

#[test]
fn s6_5_answers_with_many_addresses_evict_their_own() {
    let mut table = LeaseTable::with_bounds(Bounds { leases: 10_000, ..Bounds::default() });
    for number in 0..400 {
        table.grant(by(2, lease("*.b", &format!("own{number}.b"), number, 5)));
    }
    // Of fewer names, but of many more leases.
    for number in 0..30 {
        for address in 0..1_000 {
            let flood = lease("*.other", &format!("x{number}.other"), 1_000 + number * 1_000 + address, 1_000);
            for gone in table.grant(by(1, flood)) {
                assert!(gone.name.as_str().starts_with('x'), "{} made room", gone.name);
            }
        }
    }
    assert!(table.len() <= 10_000);
    assert_eq!(names(&table).iter().filter(|name| name.as_str().starts_with("own")).count(), 400);
    assert_eq!(table.all().filter(|lease| lease.name.as_str() == "x29.other").count(), 1_000, "the newest is whole");
}

#[test]
fn s6_5_a_flood_over_many_patterns_is_one_clients() {
    let mut table = LeaseTable::with_bounds(Bounds { leases: 3_000, ..Bounds::default() });
    for number in 0..1_000 {
        table.grant(by(2, lease("*.b", &format!("own{number}.b"), number, 5)));
    }
    for number in 0..10_000 {
        // Of no pattern it has as many as the other client has of its one.
        let zone = format!("z{}", number % 20);
        table.grant(by(1, lease(&format!("*.{zone}"), &format!("x{number}.{zone}"), 2_000 + number, 1_000)));
    }
    assert_eq!(names(&table).iter().filter(|name| name.as_str().starts_with("own")).count(), 1_000);
}

#[test]
fn s6_5_a_name_that_is_alone_makes_room_for_itself() {
    let mut table = LeaseTable::with_bounds(Bounds { addresses_a_name: 1_000, leases: 100, ..SMALL });
    for number in 0..150 {
        table.grant(by(1, lease("*.b", "a.b", number, 60)));
        table.grant(by(1, lease("a.b", "a.b", number, 60)));
        assert!(table.len() <= 100);
        assert_eq!(table.at(lease("a.b", "a.b", number, 0).address).count(), 2, "the newest is there");
    }
}

#[test]
fn s6_5_a_name_many_ask_for_is_counted_to_who_has_fewest() {
    let mut table = LeaseTable::with_bounds(SMALL);
    table.grant(by(1, lease("*.b", "shared.b", 1, 5)));
    for number in 0..20 {
        table.grant(by(1, lease("*.b", &format!("x{number}.b"), 100 + number, 500)));
    }
    table.grant(by(2, lease("*.b", "shared.b", 1, 5)));
    for number in 20..1_000 {
        table.grant(by(1, lease("*.b", &format!("x{number}.b"), 100 + number, 500)));
    }
    assert!(names(&table).contains(&"shared.b".parse().unwrap()));
}

#[test]
fn s6_5_a_flood_does_not_evict_names_that_another_client_asked_for_too() {
    let bounds = [Bounds { names_a_pattern: 100, ..Bounds::default() }, Bounds { leases: 100, ..Bounds::default() }];
    for bounds in bounds {
        let mut table = LeaseTable::with_bounds(bounds);
        // The client that floods later asks first, and its answers end first.
        for number in 0..30 {
            let shared = lease("*.b", &format!("shared{number}.b"), number, 5);
            table.grant(by(1, shared.clone()));
            table.grant(by(2, shared.clone()));
            assert!(table.has(&by(2, shared.clone()), at(5)) && table.has(&by(1, shared), at(5)));
        }
        for number in 0..1_000 {
            for gone in table.grant(by(1, lease("*.b", &format!("x{number}.b"), 100 + number, 500))) {
                assert!(gone.name.as_str().starts_with('x'), "{} made room for {number}", gone.name);
            }
        }
        assert_eq!(names(&table).iter().filter(|name| name.as_str().starts_with("shared")).count(), 30);
        assert_eq!(table.len(), 100);
    }
}

#[test]
fn s6_5_two_clients_that_flood_the_same_names_evict_their_own() {
    let mut table = LeaseTable::with_bounds(Bounds { leases: 5_000, ..Bounds::default() });
    for number in 0..100 {
        table.grant(by(3, lease("*.b", &format!("own{number}.b"), number, 5)));
    }
    for number in 0..20_000 {
        let flood = lease("*.b", &format!("x{number}.b"), 1_000 + number, 500);
        for client in [1, 2] {
            for gone in table.grant(by(client, flood.clone())) {
                assert!(gone.name.as_str().starts_with('x'), "{} made room for {number}", gone.name);
            }
            assert!(table.len() <= 5_000);
        }
    }
    assert_eq!(names(&table).iter().filter(|name| name.as_str().starts_with("own")).count(), 100);
}

#[test]
fn s6_4_what_has_ended_is_forgotten_but_for_what_connections_lead_to() {
    let mut table = LeaseTable::default();
    for number in 0..10 {
        table.grant(by(1, lease("*.b", &format!("x{number}.b"), number, 10 + u64::from(number))));
    }
    table.grant(by(1, lease("*.b", "x0.b", 0, 100)));
    let kept = lease("*.b", "x1.b", 1, 0).address;
    assert_eq!(table.forget(at(15), 2, |address| address == kept), 2, "at most two at a time");
    assert_eq!(table.forget(at(15), usize::MAX, |address| address == kept), 2);
    assert_eq!(names(&table).len(), 6, "the renewed one, the connected one, and four that live");
    assert!(table.opening(kept, at(15), |_| true).is_none(), "it opens nothing new");
    assert_eq!(table.forget(at(15), usize::MAX, |_| false), 1);
}

/// What this thread has computed so far. Other than the clock it does not count what else the machine does.
fn cpu_time() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts it");
    let nanoseconds = told.split_whitespace().next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.expect("the first of them is a number"))
}

#[test]
fn a_hundred_thousand_names_at_one_address_cost_no_more_than_one() {
    let mut table = LeaseTable::default();
    let begun = cpu_time();
    for number in 0..100_000 {
        table.grant(by(1, lease("*.b", &format!("x{number}.b"), 1, 60)));
    }
    assert_eq!((table.len(), table.iter().count()), (100_000, 1));
    assert!(cpu_time() - begun < Duration::from_secs(20), "{:?}", cpu_time() - begun);
}

/// A cluster with pods of these addresses.
fn cluster(pods: impl Iterator<Item = u32>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let namespace = snapshot.ensure_namespace("shop");
    let role = snapshot.role_of(Role { namespace, labels: Labels::default(), host_network: false });
    for number in pods {
        snapshot.add_workload(Workload {
            kind: WorkloadKind::Pod,
            namespace,
            name: format!("p{number}").into(),
            role,
            addresses: [Ipv4Addr::from(number).into()].into(),
            second_addresses: [].into(),
            node: None,
            host_network: false,
            ports: [].into(),
            owner: None,
            source: None,
        });
    }
    snapshot
}

#[test]
fn s6_3_a_pod_that_comes_costs_nothing_for_leases_that_it_has_nothing_to_do_with() {
    const PODS: u32 = 0x0a00_0000;
    let mut store = LeaseStore::default();
    let all: Vec<Lease> =
        (0..100_000).map(|number| by(1, lease("*.b", &format!("x{number}.b"), number, 600))).collect();
    store.grant(&all, at(0));
    store.acknowledge();
    let never = outside();
    let mut snapshot = cluster(PODS..PODS + 1_000);
    let (mut program, _) = compile(&snapshot);
    let (mut spent, mut revoked) = (Duration::ZERO, 0);
    for event in 0..100 {
        let mut next = snapshot.clone();
        // One of them takes the address of a lease.
        let address = if event == 50 { 0xc633_0007 } else { PODS + 1_000 + event };
        let workload = Workload { name: format!("new{event}").into(), ..snapshot.workload(WorkloadId(0)).clone() };
        next.add_workload(Workload { addresses: [Ipv4Addr::from(address).into()].into(), ..workload });
        let (new, _) = compile_next(&snapshot, &program, &next);
        let rules = |program| Rules { program, never_leased: &never };
        let revision = Revision { before: Some(rules(&program)), next: rules(&new) };
        let begun = cpu_time();
        let plan = store.plan(&revision);
        revoked += plan.revoked.len();
        store.revise(&revision, plan, &[]);
        store.acknowledge();
        spent += cpu_time() - begun;
        (snapshot, program) = (next, new);
    }
    assert_eq!((revoked, store.table().len()), (1, 99_999));
    println!("a pod event costs {:?} with 100,000 leases", spent / 100);
    // All leases, looked at a hundred times, take many times as long even in a fast build.
    assert!(spent < Duration::from_secs(5), "{spent:?}");
}

#[test]
fn s6_7_each_client_enters_a_known_name_once_however_many_ask_for_it() {
    let mut store = LeaseStore::new(LeaseTable::with_bounds(SMALL));
    let clients: Vec<Lease> = (1..=40).map(|client| by(client, lease("*.b", "a.b", 1, 600))).collect();
    let mut entries = 0;
    for round in 0..5 {
        for one in &clients {
            if !store.is_open(one, at(600)) {
                store.grant(std::slice::from_ref(one), at(0));
                store.acknowledge();
                entries += 1;
            }
        }
        assert!(entries <= clients.len(), "round {round}: {entries} entries for {} clients", clients.len());
    }
    assert!(entries > 10, "clients are told apart: {entries} entries");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever comes in which order: counts agree with what is there, bounds hold, the newest is there,
    /// a lease never gets shorter, and what is evicted is gone.
    #[test]
    fn s6_5_bounds_hold_whatever_comes(
        steps in prop::collection::vec((0..4_u8, 0..3_usize, 0..30_u32, 0..60_u32, 0..100_u64, any::<bool>()), 1..120),
    ) {
        let bounds = Bounds { addresses_a_name: 100, names_a_pattern: 12, leases: 40 };
        let mut table = LeaseTable::with_bounds(bounds);
        for (who, under, name, address, seconds, forgets) in steps {
            let text = ["*.a", "*.b", "*.c"][under];
            let one = lease(text, &format!("n{name}{}", &text[1..]), address, seconds);
            let before = table.expiry(&one);
            let evicted = table.grant(by(who, one.clone()));
            prop_assert_eq!(table.expiry(&one), before.max(Some(one.expiry)));
            for gone in &evicted {
                prop_assert_eq!(table.expiry(gone), None);
            }
            if forgets {
                table.forget(at(seconds / 2), 5, |_| false);
            }
            prop_assert!(table.len() <= bounds.leases);
            for text in ["*.a", "*.b", "*.c"] {
                let own = table.all().filter(|lease| lease.pattern == pattern(text));
                let mut names: Vec<DomainName> = own.map(|lease| lease.name).collect();
                names.sort();
                names.dedup();
                prop_assert!(names.len() <= bounds.names_a_pattern);
            }
        }
        prop_assert_eq!(table.all().count(), table.len());
        for one in table.all() {
            let open = table.at(one.address).find(|longest| *longest.pattern == one.pattern);
            prop_assert!(open.is_some_and(|longest| longest.expiry >= one.expiry));
        }
        for longest in table.iter() {
            prop_assert!(table.all().any(|one| one.address == longest.address && one.pattern == *longest.pattern));
        }
    }
}

fn outside() -> NeverLeased {
    NeverLeased::new("cluster.local".parse().expect("a name"))
}

/// Whether a name outside may open the address, in a cluster with a node at 192.0.2.1 and pods in 10.244.0.0/16.
fn may_lease(address: &str) -> bool {
    allows(&outside(), address)
}

fn allows(never: &NeverLeased, address: &str) -> bool {
    let mut snapshot = Snapshot::default();
    let addresses = vec!["192.0.2.1".parse().expect("an address")];
    snapshot.add_node(Node { name: "n1".into(), labels: Labels::default(), addresses, source: None });
    snapshot.pod_networks = std::sync::Arc::new(vec!["10.244.0.0/16".parse().expect("a network")]);
    let (program, _) = compile(&snapshot);
    let name = "api.example.com".parse().expect("a name");
    never.refusal(&program, &name, address.parse().expect("an address")).is_none()
}

#[test]
fn s6_8_ipv6_forms_of_an_inner_address_are_never_leased() {
    for inner in ["127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0", "192.0.2.1", "10.244.7.7", "100.100.100.200"]
    {
        assert!(!may_lease(inner), "{inner}");
        let v4: Ipv4Addr = inner.parse().expect("an address");
        let [a, b, c, d] = v4.octets();
        for form in [
            format!("::ffff:{inner}"),
            format!("64:ff9b::{inner}"),
            format!("64:ff9b:1::{inner}"),
            format!("2002:{a:02x}{b:02x}:{c:02x}{d:02x}::1"),
            format!("::ffff:0:{inner}"),
            format!("64:ff9b:1:{a:02x}{b:02x}:{c:02x}:{d:02x}00::"),
            format!("2001:0:{a:02x}{b:02x}:{c:02x}{d:02x}::3434:fefe"),
            format!("2001:0:cb00:7107::{:02x}{:02x}:{:02x}{:02x}", !a, !b, !c, !d),
            format!("2001:db8::5efe:{inner}"),
        ] {
            assert!(!may_lease(&form), "{form}");
        }
    }
    for outer in [
        "203.0.113.7",
        "::ffff:203.0.113.7",
        "64:ff9b::203.0.113.7",
        "64:ff9b:1::203.0.113.7",
        "64:ff9b:1:cb00:71:700::",
        "2002:cb00:7107::1",
        "2001:0:cb00:7107::3434:fefe",
        "2001:db8::7f00:1",
    ] {
        assert!(may_lease(outer), "{outer}");
    }
}

#[test]
fn s6_8_a_translator_of_this_network_leads_inside_too() {
    let prefix = "2001:db8:64::/96".parse().expect("a prefix");
    let never = outside().translated_by(&[prefix]);
    assert!(may_lease("2001:db8:64::10.244.7.7"), "without the setting nobody knows");
    assert!(!allows(&never, "2001:db8:64::10.244.7.7") && !allows(&never, "2001:db8:64::127.0.0.1"));
    assert!(allows(&never, "2001:db8:64::203.0.113.7"));
}

#[test]
fn s6_8_networks_of_settings_are_never_leased() {
    let networks = ["172.16.0.0/12", "2001:db8:7::/48"].map(|text| text.parse().expect("a network"));
    let never = outside().and_networks(&networks);
    for address in ["172.16.0.1", "172.31.255.255", "2001:db8:7::1", "::ffff:172.16.0.1", "64:ff9b::172.16.0.1"] {
        assert!(may_lease(address) && !allows(&never, address), "{address}");
    }
    assert!(allows(&never, "172.32.0.1") && allows(&never, "2001:db8:8::1"));
}

#[test]
fn s6_8_cloud_metadata_is_never_leased() {
    for metadata in ["169.254.169.254", "100.100.100.200", "fd00:ec2::254"] {
        assert!(!may_lease(metadata), "{metadata}");
    }
    assert!(may_lease("100.100.100.201") && may_lease("fd00:ec2::253"));
}
