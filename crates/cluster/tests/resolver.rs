//! S8.3 and S8.4: every branch of the document's pseudo-code, as a table of what is done and what the status says
//! after it. Time is in seconds; an address is written `ip@lookup+ttl`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use jiff::{SignedDuration, Timestamp};
use namewall_cluster::kinds::dns_name_resolver::{ResolvedName, Status};
use namewall_cluster::resolver::{Bounds, DeniedNames, Lookup, Resolver, Settings, matches, object_name};

/// When nothing has happened yet.
const START: i64 = 1_700_000_000;

enum Step {
    /// At this second this name has these addresses: `1.1.1.1/30 1.1.1.2/0`.
    Found(i64, &'static str, &'static str),
    Failed(i64, &'static str),
    Prune(i64),
}
use Step::{Failed, Found, Prune};

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(START + second).unwrap()
}

fn play(pattern: &str, steps: &[Step]) -> (String, Vec<bool>) {
    let mut status = Status::default();
    let mut changes = Vec::new();
    for step in steps {
        let mut resolver = Resolver::new(pattern, &mut status);
        let lookup = |now: i64, name| Lookup { name, now: time(now), settings: Settings::default() };
        changes.push(match step {
            Found(now, name, addresses) => {
                let split = |one: &str| {
                    let (ip, ttl) = one.split_once('/').unwrap();
                    (ip.parse().unwrap(), ttl.parse().unwrap())
                };
                let addresses: Vec<_> = addresses.split_whitespace().map(split).collect();
                resolver.found(lookup(*now, name), &addresses)
            }
            Failed(now, name) => resolver.failed(lookup(*now, name), "NXDOMAIN"),
            Prune(now) => resolver.prune(time(*now), SignedDuration::from_secs(5), &DeniedNames::default()),
        });
    }
    (tell(&status), changes)
}

fn tell(status: &Status) -> String {
    let items = status.resolved_names.iter().map(|item| {
        let mut addresses: Vec<String> = Vec::new();
        for address in &item.resolved_addresses {
            let at = address.last_lookup_time.unwrap().as_second() - START;
            addresses.push(format!("{}@{at}+{}", address.ip, address.ttl_seconds));
        }
        let degraded = item.conditions.iter().any(|one| one.kind == "Degraded" && one.status == "True");
        let degraded = if degraded { format!(" degraded {}", item.resolution_failures) } else { String::new() };
        format!("{} {}{degraded}", item.dns_name, addresses.join(" "))
    });
    items.collect::<Vec<_>>().join("; ")
}

fn check(pattern: &str, steps: &[Step], expected: &str) {
    assert_eq!(play(pattern, steps).0, expected);
}

const NAME: &str = "www.example.com.";
const STAR: &str = "*.example.com.";

#[test]
fn s8_3_a_first_answer_is_written_down() {
    check(NAME, &[Found(0, NAME, "192.0.2.1/30 2001:db8::1/60")], "www.example.com. 192.0.2.1@0+30 2001:db8::1@0+60");
}

#[test]
fn s8_4_a_ttl_of_0_counts_as_5_seconds() {
    check(NAME, &[Found(0, NAME, "192.0.2.1/0")], "www.example.com. 192.0.2.1@0+5");
}

#[test]
fn an_answer_without_addresses_changes_nothing() {
    let (told, changes) = play(NAME, &[Found(0, NAME, "192.0.2.1/30"), Found(9, NAME, "")]);
    assert_eq!((told.as_str(), &changes[..]), ("www.example.com. 192.0.2.1@0+30", &[true, false][..]));
}

#[test]
fn s8_3_an_address_with_the_same_next_lookup_is_left_alone() {
    let steps = [Found(0, NAME, "192.0.2.1/30"), Found(10, NAME, "192.0.2.1/20"), Found(10, NAME, "192.0.2.1/25")];
    let (told, changes) = play(NAME, &steps);
    assert_eq!((told.as_str(), &changes[..]), ("www.example.com. 192.0.2.1@0+30", &[true, false, false][..]));
}

#[test]
fn s8_3_an_address_with_another_next_lookup_is_renewed() {
    check(NAME, &[Found(0, NAME, "192.0.2.1/30"), Found(10, NAME, "192.0.2.1/26")], "www.example.com. 192.0.2.1@10+26");
    check(NAME, &[Found(0, NAME, "192.0.2.1/30"), Found(10, NAME, "192.0.2.1/5")], "www.example.com. 192.0.2.1@10+5");
}

#[test]
fn an_address_that_is_due_is_renewed_however_short_its_ttl_is() {
    let steps = [Found(0, NAME, "192.0.2.1/2"), Found(1, NAME, "192.0.2.1/2"), Found(2, NAME, "192.0.2.1/2"), Prune(8)];
    check(NAME, &steps, "www.example.com. 192.0.2.1@2+2");
}

#[test]
fn s8_3_new_addresses_are_added_to_those_that_are_known() {
    let steps = [Found(0, NAME, "192.0.2.1/30"), Found(3, NAME, "192.0.2.2/30")];
    check(NAME, &steps, "www.example.com. 192.0.2.1@0+30 192.0.2.2@3+30");
}

#[test]
fn a_success_ends_a_row_of_failures() {
    let steps = [Found(0, NAME, "192.0.2.1/30"), Failed(30, NAME), Found(35, NAME, "192.0.2.1/30")];
    check(NAME, &steps, "www.example.com. 192.0.2.1@35+30");
}

#[test]
fn s8_3_a_failure_gives_a_due_address_a_little_more_time() {
    let steps = [Found(0, NAME, "192.0.2.1/30 192.0.2.2/300"), Failed(30, NAME)];
    check(NAME, &steps, "www.example.com. 192.0.2.1@30+5 192.0.2.2@0+300 degraded 1");
}

#[test]
fn a_failure_of_a_name_that_is_not_known_changes_nothing() {
    assert_eq!(play(NAME, &[Failed(0, NAME)]), (String::new(), vec![false]));
}

#[test]
fn s8_4_a_name_goes_after_5_failures_when_all_its_ttls_are_over() {
    let mut steps = vec![Found(0, NAME, "192.0.2.1/5")];
    steps.extend((1..=5).map(|n| Failed(n * 5, NAME)));
    check(NAME, &steps, "www.example.com. 192.0.2.1@25+5 degraded 5");
    steps.push(Failed(30, NAME));
    check(NAME, &steps, "");
}

#[test]
fn s8_4_a_name_whose_ttl_is_not_over_stays_however_often_it_fails() {
    let mut steps = vec![Found(0, NAME, "192.0.2.1/3600")];
    steps.extend((1..=9).map(|n| Failed(n * 5, NAME)));
    check(NAME, &steps, "www.example.com. 192.0.2.1@0+3600 degraded 9");
}

#[test]
fn s8_3_a_name_under_a_wildcard_is_written_down_by_itself() {
    check(STAR, &[Found(0, NAME, "192.0.2.1/30")], "www.example.com. 192.0.2.1@0+30");
}

#[test]
fn s8_3_what_the_wildcard_says_already_is_not_said_for_a_name() {
    let steps = [Found(0, STAR, "192.0.2.1/30 192.0.2.2/30"), Found(1, NAME, "192.0.2.2/29")];
    let (told, changes) = play(STAR, &steps);
    assert_eq!((told.as_str(), &changes[..]), ("*.example.com. 192.0.2.1@0+30 192.0.2.2@0+30", &[true, false][..]));
}

#[test]
fn s8_3_a_name_with_more_than_the_wildcard_is_written_down() {
    let more = [Found(0, STAR, "192.0.2.1/30"), Found(1, NAME, "192.0.2.1/29 192.0.2.9/29")];
    check(STAR, &more, "*.example.com. 192.0.2.1@0+30; www.example.com. 192.0.2.1@1+29 192.0.2.9@1+29");
    let longer = [Found(0, STAR, "192.0.2.1/30"), Found(1, NAME, "192.0.2.1/600")];
    check(STAR, &longer, "*.example.com. 192.0.2.1@0+30; www.example.com. 192.0.2.1@1+600");
}

#[test]
fn s8_3_the_wildcards_own_answer_takes_out_names_that_say_no_more() {
    let steps =
        [Found(0, NAME, "192.0.2.1/30"), Found(0, "b.example.com.", "192.0.2.7/30"), Found(2, STAR, "192.0.2.1/28")];
    check(STAR, &steps, "*.example.com. 192.0.2.1@2+28; b.example.com. 192.0.2.7@0+30");
}

/// Or a short one would be over before it is ever renewed.
#[test]
fn s8_4_an_address_that_is_due_and_found_again_is_renewed_however_short_its_ttl() {
    check(NAME, &[Found(0, NAME, "192.0.2.1/5"), Found(5, NAME, "192.0.2.1/5")], "www.example.com. 192.0.2.1@5+5");
    check(NAME, &[Found(0, NAME, "192.0.2.1/0"), Found(6, NAME, "192.0.2.1/0")], "www.example.com. 192.0.2.1@6+5");
    check(NAME, &[Found(0, NAME, "192.0.2.1/3"), Found(3, NAME, "192.0.2.1/1")], "www.example.com. 192.0.2.1@3+1");
    // Nor is it enough that a wildcard which is due had it.
    let steps = [Found(0, STAR, "192.0.2.1/5"), Found(5, NAME, "192.0.2.1/5")];
    check(STAR, &steps, "*.example.com. 192.0.2.1@0+5; www.example.com. 192.0.2.1@5+5");
}

#[test]
fn s8_4_an_address_goes_when_its_ttl_and_grace_are_over() {
    let found = Found(0, NAME, "192.0.2.1/10 192.0.2.2/20");
    let (told, changes) = play(NAME, &[found, Prune(14)]);
    assert_eq!((told.as_str(), changes[1]), ("www.example.com. 192.0.2.1@0+10 192.0.2.2@0+20", false));
    let found = Found(0, NAME, "192.0.2.1/10 192.0.2.2/20");
    let (told, changes) = play(NAME, &[found, Prune(15)]);
    assert_eq!((told.as_str(), changes[1]), ("www.example.com. 192.0.2.2@0+20", true));
}

#[test]
fn s8_3_pruning_takes_out_the_name_that_is_resolved_and_not_the_one_that_is_meant() {
    let steps = [Found(0, STAR, "192.0.2.1/60"), Found(0, NAME, "192.0.2.9/5"), Prune(10)];
    check(STAR, &steps, "*.example.com. 192.0.2.1@0+60");
}

#[test]
fn s8_2_a_wildcard_stands_for_one_label() {
    for (pattern, name, expected) in [
        (NAME, NAME, true),
        (NAME, "example.com.", false),
        (STAR, NAME, true),
        (STAR, STAR, true),
        (STAR, "example.com.", false),
        (STAR, "a.b.example.com.", false),
        (STAR, ".example.com.", false),
        (STAR, "wwwexample.com.", false),
    ] {
        assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
    }
}

#[test]
fn s8_2_objects_are_named_by_a_hash_and_told_apart_when_it_collides() {
    let first = object_name(NAME, 0);
    assert!(first.starts_with("dns-") && first.len() > 8, "{first}");
    assert!(first.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'), "{first}");
    assert_ne!(first, object_name(NAME, 1));
    assert_ne!(first, object_name(STAR, 0));
}

#[test]
fn s8_2_objects_have_the_names_that_ovn_kubernetes_gives_them() {
    assert_eq!(object_name("www.example.com.", 0), "dns-5dd68c7c99");
}

#[test]
fn an_address_that_two_servers_gave_is_written_once_with_its_longest_ttl() {
    let steps = [Found(0, NAME, "192.0.2.1/30 192.0.2.2/30 192.0.2.1/20 192.0.2.2/60")];
    check(NAME, &steps, "www.example.com. 192.0.2.1@0+30 192.0.2.2@0+60");
}

#[test]
fn s8_7_a_failure_that_comes_late_keeps_the_addresses_too() {
    let steps = [Found(0, NAME, "192.0.2.1/30"), Failed(39, NAME), Prune(40)];
    check(NAME, &steps, "www.example.com. 192.0.2.1@39+5 degraded 1");
}

/// Other writers may have put it elsewhere.
#[test]
fn s8_3_the_entry_of_the_wildcard_is_put_first_when_it_is_renewed() {
    let mut status = Status::default();
    let mut find = |second: i64, name: &str| {
        let lookup = Lookup { name, now: time(second), settings: Settings::default() };
        let address = if name == STAR { "192.0.2.1" } else { "192.0.2.7" };
        let has_changed = Resolver::new(STAR, &mut status).found(lookup, &[(address.parse().unwrap(), 30)]);
        let told = tell(&status);
        status.resolved_names.reverse();
        (has_changed, told)
    };
    find(0, NAME);
    let both = "*.example.com. 192.0.2.1@0+30; www.example.com. 192.0.2.7@0+30";
    assert_eq!(find(0, STAR), (true, both.to_owned()));
    assert_eq!(find(1, STAR), (true, both.to_owned()), "it was last, and nothing else is new");
}

#[test]
fn the_entry_of_the_wildcard_comes_first() {
    let steps = [Found(0, "a.example.com.", "192.0.2.1/30"), Found(1, STAR, "192.0.2.9/30")];
    check(STAR, &steps, "*.example.com. 192.0.2.9@1+30; a.example.com. 192.0.2.1@0+30");
}

/// What a status holds after names were found one after the other, each with so many addresses and this TTL.
fn bounded(bounds: Bounds, found: &[(&str, u8, u32)]) -> (Vec<String>, usize) {
    let mut status = Status::default();
    let mut evicted = 0;
    for (name, count, ttl) in found {
        let addresses: Vec<_> = (1..=*count).map(|last| ([192, 0, 2, last].into(), *ttl)).collect();
        let mut resolver = Resolver::new(STAR, &mut status);
        resolver.found(Lookup { name, now: time(0), settings: Settings { bounds, ..Settings::default() } }, &addresses);
        evicted += resolver.evicted();
    }
    let tell = |item: &ResolvedName| format!("{} {}", item.dns_name, item.resolved_addresses.len());
    (status.resolved_names.iter().map(tell).collect(), evicted)
}

#[test]
fn s8_6_the_soonest_to_expire_goes_and_never_what_was_found_last() {
    let bounds = Bounds { names: 2, ..Bounds::default() };
    let found = [("a.example.com.", 1, 30), ("b.example.com.", 1, 20), ("c.example.com.", 1, 10)];
    assert_eq!(bounded(bounds, &found), (vec!["a.example.com. 1".to_owned(), "c.example.com. 1".to_owned()], 1));
    let bounds = Bounds { addresses: 5, ..Bounds::default() };
    let found = [("a.example.com.", 3, 30), ("b.example.com.", 2, 20), ("c.example.com.", 1, 10)];
    assert_eq!(bounded(bounds, &found), (vec!["a.example.com. 3".to_owned(), "c.example.com. 1".to_owned()], 2));
    let bounds = Bounds { addresses_per_name: 3, ..Bounds::default() };
    assert_eq!(bounded(bounds, &[("a.example.com.", 9, 30)]), (vec!["a.example.com. 3".to_owned()], 6));
}

#[test]
fn s8_6_the_wildcard_s_own_entry_is_never_evicted() {
    let bounds = Bounds { names: 2, ..Bounds::default() };
    let found = [(STAR, 1, 5), ("b.example.com.", 2, 20), ("c.example.com.", 2, 10)];
    assert_eq!(bounded(bounds, &found), (vec!["*.example.com. 1".to_owned(), "c.example.com. 2".to_owned()], 2));
}

#[test]
fn s8_6_a_full_status_is_far_smaller_than_what_the_api_server_refuses() {
    let mut status = Status::default();
    let Bounds { names, .. } = Bounds::default();
    // Long names, and more of both than there is room for.
    for number in 0..names + 100 {
        let name = format!("{number:063}.{}.example.com.", "x".repeat(63));
        let addresses: Vec<_> = (0..4).map(|last| ([0x2001, 0xdb8, 9, 9, 9, 9, 9, last].into(), 30)).collect();
        let pattern = format!("*.{}.example.com.", "x".repeat(63));
        let lookup = Lookup { name: &name, now: time(0), settings: Settings::default() };
        Resolver::new(&pattern, &mut status).found(lookup, &addresses);
    }
    let size = serde_json::to_string(&status).unwrap().len();
    assert!(size < 1_300_000, "{size}");
}
