//! S8.7: an address that a node has opened for a name stays open there while DNS
//! returns it, whatever goes wrong; and it closes when DNS does not return it any
//! more. Each seed is a schedule of faults. `SCHEDULES` and `FIRST_SEED` run
//! more of them: `SCHEDULES=1 FIRST_SEED=17` is seed 17 again.

use namewall_kubernetes::testing::Faults;
use namewall_simulation::Cluster;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const NAMES: [&str; 3] = ["a.example.com.", "b.example.com.", "c.example.com."];
const TTL: u64 = 30;
/// How long after DNS has changed an address may stay open: the TTL that a node or the controller has seen last, its
/// grace, and the time until it is looked up and seen.
const CLOSES_WITHIN: u64 = 2 * TTL + 20;
/// How many faults a schedule has.
const FAULTS: u64 = 12;

/// What DNS returned, by the second, and what is open.
struct Schedule {
    seed: u64,
    cluster: Cluster,
    /// For each name: the address that DNS returns, and since which second.
    returned: Vec<(IpAddr, u64)>,
    open: Vec<BTreeSet<(String, IpAddr)>>,
    second: u64,
    /// What was done, for the report.
    log: Vec<String>,
}

impl Schedule {
    fn new(seed: u64) -> Self {
        let cluster = Cluster::new(seed);
        let returned = (1..=3).map(|number| (IpAddr::from([198, 51, 100, number]), 0)).collect();
        Self { seed, cluster, returned, open: vec![BTreeSet::new(); 2], second: 0, log: Vec::new() }
    }

    fn note(&mut self, what: impl Into<String>) {
        self.log.push(format!("{} s: {}", self.second, what.into()));
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.cluster.simulation.run_for(SECOND);
            self.second += 1;
            self.check();
        }
    }

    fn check(&mut self) {
        let now = self.cluster.open();
        for (node, (before, open)) in self.open.iter().zip(&now).enumerate() {
            for (name, address) in before.difference(open) {
                let at = NAMES.iter().position(|known| known.trim_end_matches('.') == name).expect("one of ours");
                let (returned, _) = self.returned[at];
                let told = || format!("seed {}, second {}: {:#?}", self.seed, self.second, self.log);
                assert!(*address != returned, "node {node} closes {name} {address}; {}", told());
            }
            for (name, address) in open {
                let at = NAMES.iter().position(|known| known.trim_end_matches('.') == name).expect("one of ours");
                let (returned, since) = self.returned[at];
                let is_late = *address != returned && self.second > since + CLOSES_WITHIN;
                assert!(!is_late, "node {node} keeps {name} {address}; seed {}, {:#?}", self.seed, self.log);
            }
        }
        self.open = now;
    }

    fn fault(&mut self, number: u64) {
        let some = |most: u64| self.cluster.random_below(most);
        match number {
            0 => {
                let seconds = 20 + some(600);
                self.note(format!("the API server is away for {seconds} s"));
                self.cluster.server.set_faults(Faults { is_away: true, ..Faults::default() });
                self.pass(seconds);
            }
            1 => {
                let at = some(2) as usize;
                self.note(format!("replica {at} restarts"));
                self.cluster.restart_replica(at);
            }
            2 => {
                let at = some(2) as usize;
                self.note(format!("node {at} restarts"));
                self.cluster.restart_node(at);
            }
            3 => {
                let seconds = 5 + some(15);
                self.note(format!("DNS fails for {seconds} s"));
                NAMES.iter().for_each(|name| self.cluster.dns.fail(name, "SERVFAIL"));
                self.pass(seconds);
                NAMES.iter().zip(&self.returned).for_each(|(name, (address, _))| {
                    self.cluster.dns.set(name, &[(*address, TTL as u32)]);
                });
            }
            4 => {
                self.note("the API server forgets its history");
                self.cluster.server.forget_history();
            }
            5 => {
                self.note("all is slow, and some of it is lost");
                self.cluster.disturb();
            }
            _ => {
                let (at, last) = (some(3) as usize, 10 + some(200) as u8);
                let address = IpAddr::from([198, 51, 100, last]);
                self.note(format!("{} moves to {address}", NAMES[at]));
                self.returned[at] = (address, self.second);
                self.cluster.dns.set(NAMES[at], &[(address, TTL as u32)]);
            }
        }
    }

    fn run(mut self) -> u64 {
        self.pass(60);
        for _ in 0..FAULTS {
            let number = self.cluster.random_below(8);
            self.fault(number);
            let seconds = 10 + self.cluster.random_below(60);
            self.pass(seconds);
            self.note("calm");
            self.cluster.calm();
            self.pass(CLOSES_WITHIN);
        }
        let all = |open: &BTreeSet<(String, IpAddr)>| open.len() == NAMES.len();
        assert!(self.open.iter().all(all), "seed {}: {:?}, {:#?}", self.seed, self.open, self.log);
        self.second
    }
}

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn s8_7_what_a_node_has_opened_stays_open_while_dns_returns_it() {
    let (first, count) = (setting("FIRST_SEED", 1), setting("SCHEDULES", 12));
    let began = Instant::now();
    let simulated: u64 = (first..first + count).map(|seed| Schedule::new(seed).run()).sum();
    let seconds = began.elapsed().as_secs_f64();
    println!("{count} schedules, {simulated} simulated seconds: {:.1} schedules per second", count as f64 / seconds);
}

#[test]
fn s8_7_nodes_without_the_api_server_keep_names_open_for_an_hour() {
    let mut schedule = Schedule::new(1);
    schedule.pass(60);
    assert!(schedule.open.iter().all(|open| open.len() == NAMES.len()), "{:?}", schedule.open);
    schedule.cluster.server.set_faults(Faults { is_away: true, ..Faults::default() });
    schedule.pass(3_600);
    assert!(schedule.open.iter().all(|open| open.len() == NAMES.len()), "{:?}", schedule.open);
}
