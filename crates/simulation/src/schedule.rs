//! A schedule of faults from one seed, and the invariant that each simulated second
//! is held against (S8.7): an address that a node has opened for a name stays open
//! there while DNS returns it, whatever goes wrong; and it closes when DNS does not
//! return it any more. A violation panics with what was done.

use crate::{Cluster, RESOLVER};
use namewall_kubernetes::api::{ApiError, Request, Verb};
use namewall_kubernetes::testing::Faults;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
pub(crate) const NAMES: [&str; 3] = ["a.example.com.", "b.example.com.", "c.example.com."];
pub const TTL: u64 = 30;
/// How long after DNS has changed an address may stay open: the TTL that a node or the controller has seen last, its
/// grace, and the time until it is looked up and seen.
const CLOSES_WITHIN: u64 = 2 * TTL + 20;
/// What only the controller's DNS server returns, at times.
const DISPUTED: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 99));
/// How many faults a schedule has.
const FAULTS: u64 = 12;

/// What DNS returned, by the second, and what is open.
#[derive(Debug)]
pub struct Schedule {
    seed: u64,
    pub cluster: Cluster,
    /// For each name: the address that DNS returns, and since which second.
    returned: Vec<(IpAddr, u64)>,
    /// What only the controller's DNS server returns.
    disputed: Option<IpAddr>,
    /// What is open on each node.
    pub open: Vec<BTreeSet<(String, IpAddr)>>,
    second: u64,
    /// What was done, for the report.
    log: Vec<String>,
}

impl Schedule {
    /// Nothing has happened yet.
    pub fn new(seed: u64) -> Self {
        let cluster = Cluster::new(seed);
        let returned = (1..=3).map(|number| (IpAddr::from([198, 51, 100, number]), 0)).collect();
        let open = vec![BTreeSet::new(); 2];
        Self { seed, cluster, returned, disputed: None, open, second: 0, log: Vec::new() }
    }

    fn note(&mut self, what: impl Into<String>) {
        self.log.push(format!("{} s: {}", self.second, what.into()));
    }

    /// Lets seconds go by, and checks each.
    pub fn pass(&mut self, seconds: u64) {
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

    /// A name moves to another address, from now on.
    pub fn move_name(&mut self, at: usize, address: IpAddr) {
        self.note(format!("{} moves to {address}", NAMES[at]));
        self.returned[at] = (address, self.second);
        self.cluster.dns.set(NAMES[at], &[(address, TTL as u32)]);
    }

    /// True if each node has all names open, besides those of a flood.
    pub fn has_all_names(&self) -> bool {
        let count =
            |open: &BTreeSet<(String, IpAddr)>| open.iter().filter(|(name, _)| !name.starts_with("flood")).count();
        self.open.iter().all(|open| count(open) == NAMES.len())
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

    /// One node is cut off from the API server; the other and the controller go on.
    fn cut_off(&mut self) {
        let (node, seconds) = (self.cluster.random_below(2) as usize, 20 + self.cluster.random_below(600));
        self.note(format!("node {node} is cut off for {seconds} s"));
        self.cluster.cut_off(node, true);
        self.pass(seconds);
        self.cluster.cut_off(node, false);
    }

    /// The clock of a node is set, by up to an hour.
    fn step_clock(&mut self) {
        let (node, seconds) = (self.cluster.random_below(2) as usize, self.cluster.random_below(7_200) as i64 - 3_600);
        self.note(format!("the clock of node {node} is set by {seconds} s"));
        self.cluster.step_clock(node, seconds);
    }

    /// The pod of a node that starts anew asks for many names under the wildcard.
    fn flood(&mut self) {
        let node = self.cluster.random_below(2) as usize;
        self.note(format!("node {node} starts anew, and its pod asks for many names"));
        let before = self.cluster.nodes[node].0.asks_for.clone();
        let flood = (0..100).map(|number| format!("flood-{number}.example.com."));
        for name in flood {
            self.cluster.dns.set(&name, &[(IpAddr::from([203, 0, 113, 7]), TTL as u32)]);
            self.cluster.nodes[node].0.asks_for.push(name);
        }
        self.cluster.restart_node(node);
        self.pass(60);
        self.cluster.nodes[node].0.asks_for = before;
        self.cluster.restart_node(node);
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
            9 => self.cut_off(),
            10 => self.step_clock(),
            11 => self.flood(),
            5 => {
                self.note("all is slow, and some of it is lost");
                self.cluster.disturb();
            }
            _ => {
                let (at, last) = (some(3) as usize, 10 + some(200) as u8);
                self.move_name(at, IpAddr::from([198, 51, 100, last]));
            }
        }
    }

    /// Runs all of it. Returns how many seconds were simulated.
    pub fn run(mut self) -> u64 {
        self.pass(60);
        for _ in 0..FAULTS {
            let number = self.cluster.random_below(14);
            self.fault(number);
            let seconds = 10 + self.cluster.random_below(60);
            self.pass(seconds);
            self.note("calm");
            self.cluster.calm();
            self.pass(CLOSES_WITHIN);
        }
        assert!(self.has_all_names(), "seed {}: {:?}, {:#?}", self.seed, self.open, self.log);
        self.second
    }
}
