//! S8.7: an address that a node has opened for a name stays open there while DNS
//! returns it, whatever goes wrong; and it closes when DNS does not return it any
//! more. Each seed is a schedule of faults. `SCHEDULES` and `FIRST_SEED` run
//! more of them: `SCHEDULES=1 FIRST_SEED=17` is seed 17 again.

use namewall_kubernetes::api::{ApiError, Request, Verb};
use namewall_kubernetes::testing::Faults;
use namewall_simulation::{Cluster, RESOLVER};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const NAMES: [&str; 3] = ["a.example.com.", "b.example.com.", "c.example.com."];
const TTL: u64 = 30;
/// How long after DNS has changed an address may stay open: the TTL that a node or the controller has seen last, its
/// grace, and the time until it is looked up and seen.
const CLOSES_WITHIN: u64 = 2 * TTL + 20;
/// What only the controller's DNS server returns, at times.
const DISPUTED: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 99));
/// How many faults a schedule has.
const FAULTS: u64 = 12;

/// What DNS returned, by the second, and what is open.
struct Schedule {
    seed: u64,
    cluster: Cluster,
    /// For each name: the address that DNS returns, and since which second.
    returned: Vec<(IpAddr, u64)>,
    /// What only the controller's DNS server returns.
    disputed: Option<IpAddr>,
    open: Vec<BTreeSet<(String, IpAddr)>>,
    second: u64,
    /// What was done, for the report.
    log: Vec<String>,
}

impl Schedule {
    fn new(seed: u64) -> Self {
        let cluster = Cluster::new(seed);
        let returned = (1..=3).map(|number| (IpAddr::from([198, 51, 100, number]), 0)).collect();
        let open = vec![BTreeSet::new(); 2];
        Self { seed, cluster, returned, disputed: None, open, second: 0, log: Vec::new() }
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
                let Some((returned, _)) = self.returned_for(name) else { continue };
                let told = || format!("seed {}, second {}: {:#?}", self.seed, self.second, self.log);
                // Where servers disagree, who is asked last decides.
                let is_disputed = self.disputed.is_some();
                assert!(*address != returned || is_disputed, "node {node} closes {name} {address}; {}", told());
            }
            for (name, address) in open {
                let Some((returned, since)) = self.returned_for(name) else { continue };
                // Another server returns this one now.
                let is_late =
                    *address != returned && Some(*address) != self.disputed && self.second > since + CLOSES_WITHIN;
                assert!(!is_late, "node {node} keeps {name} {address}; seed {}, {:#?}", self.seed, self.log);
            }
        }
        self.open = now;
    }

    /// What DNS returns, and since when. None for names of a flood.
    fn returned_for(&self, name: &str) -> Option<(IpAddr, u64)> {
        let at = NAMES.iter().position(|known| known.trim_end_matches('.') == name)?;
        Some(self.returned[at])
    }

    /// The API server refuses to write what nodes and the controller have learned.
    fn refuse_writes(&mut self) {
        let code = [429, 413, 422, 500][self.cluster.random_below(4) as usize];
        let seconds = 20 + self.cluster.random_below(300);
        self.note(format!("the API server answers writes with {code} for {seconds} s"));
        self.cluster.server.refuse(move |request: &Request| {
            let message = "refused by the test".to_owned();
            matches!(request.verb, Verb::ReplaceStatus(_)).then_some(ApiError::Refused { code, message })
        });
        self.pass(seconds);
        self.cluster.server.refuse(|_: &Request| None);
    }

    /// The controller's DNS server says something else than the one that nodes and pods ask.
    fn disagree(&mut self) {
        let lies = self.cluster.random_below(3);
        let seconds = 20 + self.cluster.random_below(200);
        self.note(format!("the controller's resolver says something else ({lies}) for {seconds} s"));
        for name in NAMES {
            let found = match lies {
                0 => Ok(vec![(DISPUTED, TTL as u32)]),
                1 => Err("SERVFAIL".to_owned()),
                _ => Ok(Vec::new()),
            };
            self.cluster.dns.disagree(RESOLVER, name, found);
        }
        // A server that fails says nothing against the other one's answers.
        self.disputed = (lies != 1).then_some(DISPUTED);
        self.pass(seconds);
        self.cluster.dns.agree();
        self.pass(CLOSES_WITHIN);
        // It was looked up until then.
        self.disputed = None;
        self.returned.iter_mut().for_each(|(_, since)| *since = self.second);
    }

    fn two_leaders(&mut self) {
        let seconds = 2 + self.cluster.random_below(60);
        self.note(format!("both replicas lead for {seconds} s"));
        let usurp = |cluster: &Cluster, usurps: bool| {
            cluster.replicas.iter().for_each(|(replica, _)| replica.usurps.store(usurps, Ordering::Relaxed));
        };
        usurp(&self.cluster, true);
        self.pass(seconds);
        usurp(&self.cluster, false);
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
            6 => self.refuse_writes(),
            7 => self.disagree(),
            8 => self.two_leaders(),
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
            let number = self.cluster.random_below(11);
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
    let (first, count) = (setting("FIRST_SEED", 1), setting("SCHEDULES", 8));
    let began = Instant::now();
    let simulated: u64 = (first..first + count).map(|seed| Schedule::new(seed).run()).sum();
    let seconds = began.elapsed().as_secs_f64();
    println!("{count} schedules, {simulated} simulated seconds: {:.1} schedules per second", count as f64 / seconds);
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
    let ours = |open: &BTreeSet<(String, IpAddr)>| open.iter().filter(|(name, _)| !name.starts_with("flood")).count();
    assert!(schedule.open.iter().all(|open| ours(open) == NAMES.len()), "{:?}", schedule.open);
    assert!(schedule.open[1].len() > 20, "the other node has heard of the flood: {}", schedule.open[1].len());
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
