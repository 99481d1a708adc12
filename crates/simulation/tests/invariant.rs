//! S8.7 in virtual time, over schedules of faults (`namewall_simulation::Schedule`).
//! `SCHEDULES` and `FIRST_SEED` run more of them: `SCHEDULES=1 FIRST_SEED=17` is
//! seed 17 again.

use namewall_kubernetes::api::{ApiError, Request, Verb};
use namewall_kubernetes::testing::Faults;
use namewall_simulation::{Schedule, TTL};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::IpAddr;
use std::time::Instant;

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// The CPU time of this thread.
fn cpu_seconds() -> f64 {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts it");
    let nanoseconds: f64 = times.split(' ').next().and_then(|first| first.parse().ok()).expect("it is a number");
    nanoseconds / 1e9
}

#[test]
fn s8_7_what_a_node_has_opened_stays_open_while_dns_returns_it() {
    let (first, count) = (setting("FIRST_SEED", 1), setting("SCHEDULES", 8));
    let (began, cpu_before) = (Instant::now(), cpu_seconds());
    let simulated: u64 = (first..first + count).map(|seed| Schedule::new(seed).run()).sum();
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu_before);
    // On a busy machine the first of these is far below the second.
    let [rate, cpu_rate] = [seconds, cpu].map(|time| count as f64 / time);
    let figure = format!(
        "{count} schedules, {simulated} simulated seconds: {rate:.2} per second, {cpu_rate:.2} per second of CPU"
    );
    // Past the harness, which would keep it to itself.
    writeln!(std::io::stderr(), "schedules: {figure}").expect("stderr is open");
}

/// One pod asks for hundreds of names under a wildcard. The names that others use stay open on both nodes.
#[test]
fn s8_7_a_flood_under_a_wildcard_closes_no_other_name() {
    let mut schedule = Schedule::new(3);
    schedule.pass(60);
    let flood: Vec<String> = (0..500).map(|number| format!("flood-{number}.example.com.")).collect();
    for (number, name) in flood.iter().enumerate() {
        let address = IpAddr::from([203, 0, 113, (number % 250) as u8]);
        schedule.cluster.dns.set(name, &[(address, TTL as u32)]);
    }
    schedule.cluster.nodes[0].0.asks_for.extend(flood);
    schedule.cluster.restart_node(0);
    // The names of the flood are asked for so often that the pod hardly asks for its own.
    schedule.pass(300);
    assert!(schedule.has_all_names(), "{:?}", schedule.open);
    assert!(schedule.open[1].len() > 20, "the other node has heard of the flood: {}", schedule.open[1].len());
}

#[test]
fn s8_7_nodes_without_the_api_server_keep_names_open_for_an_hour() {
    let mut schedule = Schedule::new(1);
    schedule.pass(60);
    assert!(schedule.has_all_names(), "{:?}", schedule.open);
    schedule.cluster.server.set_faults(Faults { is_away: true, ..Faults::default() });
    schedule.pass(3_600);
    assert!(schedule.has_all_names(), "{:?}", schedule.open);
}

/// The other node and the controller go on, and a name moves twice. The node that is cut off follows DNS by itself, and
/// when it is back it neither closes nor opens anything that DNS does not.
#[test]
fn s8_7_a_node_that_is_cut_off_for_an_hour_follows_dns_by_itself() {
    let mut schedule = Schedule::new(1);
    schedule.pass(60);
    schedule.cluster.cut_off(0, true);
    for last in [77, 78] {
        schedule.move_name(1, IpAddr::from([198, 51, 100, last]));
        schedule.pass(1_800);
    }
    assert!(schedule.has_all_names(), "{:?}", schedule.open);
    schedule.cluster.cut_off(0, false);
    schedule.pass(300);
    assert!(schedule.has_all_names() && schedule.open[0] == schedule.open[1], "{:?}", schedule.open);
}

/// A pod asks for names one after the other, each hardly more than once.
#[test]
fn s8_7_names_that_pods_ask_for_while_writes_are_refused_stay_open_and_are_shared_later() {
    let mut schedule = Schedule::new(5);
    schedule.pass(60);
    for number in 0..200 {
        let name = format!("late-{number}.example.com.");
        schedule.cluster.dns.set(&name, &[([203, 0, 113, number].into(), TTL as u32)]);
        schedule.cluster.nodes[0].0.asks_for.push(name);
    }
    schedule.cluster.server.refuse(|request: &Request| {
        let throttled = ApiError::Refused { code: 429, message: "refused by the test".to_owned() };
        matches!(request.verb, Verb::ReplaceStatus(_)).then_some(throttled)
    });
    schedule.cluster.restart_node(0);
    let mut late = BTreeSet::new();
    for second in 0..300 {
        schedule.pass(1);
        let closed: Vec<_> = late.difference(&schedule.open[0]).collect();
        assert!(closed.is_empty(), "{closed:?} after {second} s");
        late.extend(schedule.open[0].iter().filter(|(name, _)| name.starts_with("late-")).cloned());
    }
    assert!(late.len() > 30, "{}", late.len());
    schedule.cluster.server.refuse(|_: &Request| None);
    schedule.pass(120);
    assert!(late.is_subset(&schedule.open[1]), "{:?}", late.difference(&schedule.open[1]));
}
