//! What must hold, and a round of faults that it must hold in.

use crate::dns::TTL;
use crate::fault::Fault;
use crate::stage::{GRACE, MOVING, NODES, PODS, Stage};
use crate::world::address;
use namewall_policy::port::Protocol;
use namewall_sandbox::{Measured, Probe};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A little longer than a lease lasts that nobody renews.
const HOLD: Duration = Duration::from_secs(TTL as u64 + GRACE.as_secs() + 2);
const SAMPLE_EVERY: Duration = Duration::from_millis(200);
/// How long it may take until all is as DNS says, once the faults are over.
const SETTLE: Duration = Duration::from_secs(60);
/// On a busy machine a packet may be lost that nobody dropped.
const REPEATS: usize = 3;
/// A round on a machine that stood still for longer than this is made again if it fails.
const STANDSTILL: Duration = Duration::from_secs(2);
const MOST_TRIES: usize = 3;

pub(crate) struct Invariant {
    /// Names with addresses that were open on both nodes since DNS returned them.
    open: BTreeSet<(String, Ipv4Addr)>,
    /// Addresses that DNS returned once, and no longer does.
    closed: BTreeSet<Ipv4Addr>,
    pub(crate) probes: usize,
    /// How long after the end of its faults each round took until all was as DNS says.
    settled: Vec<Duration>,
    /// When the last sample was taken, and the longest pause between two.
    last: Instant,
    longest_pause: Duration,
}

impl Invariant {
    /// Waits until all that DNS returns is open on both nodes, and nothing else is.
    pub(crate) fn begin(stage: &Stage) -> Self {
        let mut invariant = Self {
            open: BTreeSet::new(),
            // Before the firewall is enforced everything is open.
            closed: BTreeSet::from([stage.never_returned()]),
            probes: 0,
            settled: Vec::new(),
            last: Instant::now(),
            longest_pause: Duration::ZERO,
        };
        let is_enforced = |node| !stage.world.reaches(PODS[node], &stage.never_returned().to_string());
        stage.world.wait_up_to(SETTLE, || (0..2).all(is_enforced));
        stage.world.wait_up_to(SETTLE, || stage.shares_wildcard());
        invariant.settle(stage, "at the start");
        invariant.settled.clear();
        invariant
    }

    /// A name moves, the faults begin, last for longer than a lease, and end. A round in which the machine stood still
    /// is made again, in the same world.
    pub(crate) fn round(&mut self, stage: &mut Stage, seed: u64, faults: &[Fault]) {
        for _ in 0..MOST_TRIES {
            self.longest_pause = Duration::ZERO;
            match self.try_round(stage, faults) {
                Ok(()) => return,
                Err(why) if self.longest_pause > STANDSTILL => {
                    println!("  again, as the machine stood still for {:?}: {why}", self.longest_pause);
                    self.settle(stage, "after a round that does not count");
                }
                Err(why) => panic!("seed {seed}, {faults:?}: {why}\n{}", stage.describe()),
            }
        }
        panic!("seed {seed}: the machine stood still in every try");
    }

    fn try_round(&mut self, stage: &mut Stage, faults: &[Fault]) -> Result<(), String> {
        let before = stage.move_name();
        self.open.remove(&(MOVING.to_owned(), before));
        self.closed.insert(before);
        let mut seen = Ok(());
        for fault in faults {
            stage.begin(*fault);
            seen = seen.and(self.sample(stage));
        }
        let began = Instant::now();
        while began.elapsed() < HOLD {
            seen = seen.and_then(|()| self.sample(stage));
        }
        for fault in faults.iter().rev() {
            stage.end(*fault, &mut |stage| seen = std::mem::replace(&mut seen, Ok(())).and(self.sample(stage)));
        }
        seen?;
        self.settle(stage, &format!("after {faults:?}"));
        Ok(())
    }

    /// All that was open on both nodes is.
    fn sample(&mut self, stage: &Stage) -> Result<(), String> {
        self.longest_pause = self.longest_pause.max(self.last.elapsed().saturating_sub(SAMPLE_EVERY));
        sleep(SAMPLE_EVERY);
        self.last = Instant::now();
        let names = stage.dns.names();
        let returned: Vec<(String, Ipv4Addr)> =
            names.into_iter().flat_map(|(name, all)| all.into_iter().map(move |one| (name.clone(), one))).collect();
        let addresses: Vec<Ipv4Addr> = returned.iter().map(|(_, address)| *address).collect();
        let (known, unknown): (Vec<_>, Vec<_>) =
            returned.iter().zip(&addresses).partition(|(one, _)| self.open.contains(*one));
        let repeats = |is_known| if is_known { REPEATS } else { 0 };
        for (part, is_known) in [(known, true), (unknown, false)] {
            let part: Vec<&(String, Ipv4Addr)> = part.into_iter().map(|(one, _)| one).collect();
            let all: Vec<Ipv4Addr> = part.iter().map(|(_, address)| *address).collect();
            let open = self.measure(stage, &all, repeats(is_known));
            for (name, address) in part {
                let is_open = |node: &usize| open[&(*node, *address)];
                let is_excused = |node: &usize| stage.excused[*node].is_some_and(|until| Instant::now() < until);
                match (0..2).find(|node| !is_open(node) && !is_excused(node)) {
                    Some(node) if is_known => {
                        return Err(format!("{} closes {name} {address}, which DNS returns", NODES[node]));
                    }
                    None if (0..2).all(|node| is_open(&node)) => _ = self.open.insert((name.clone(), *address)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Which addresses each node's pod reaches.
    fn measure(&mut self, stage: &Stage, to: &[Ipv4Addr], repeats: usize) -> BTreeMap<(usize, Ipv4Addr), bool> {
        let places: Vec<(usize, Ipv4Addr)> = (0..2).flat_map(|node| to.iter().map(move |one| (node, *one))).collect();
        let probe = |(node, to): &(usize, Ipv4Addr)| Probe {
            from: stage.world.sandbox.place(address(PODS[*node])).unwrap(),
            to: SocketAddr::new(IpAddr::V4(*to), 443),
            protocol: Protocol::Tcp,
        };
        let probes: Vec<Probe> = places.iter().map(probe).collect();
        self.probes += probes.len();
        let measured = stage.world.sandbox.probe_patiently(&probes, repeats).unwrap();
        places.into_iter().zip(measured.into_iter().map(|one| one == Measured::Open)).collect()
    }

    /// Waits until all that DNS returns is open on both nodes, and what it returned before is closed on both.
    fn settle(&mut self, stage: &Stage, when: &str) {
        let began = Instant::now();
        loop {
            let names = stage.dns.names();
            let returned: Vec<(String, Ipv4Addr)> =
                names.into_iter().flat_map(|(name, all)| all.into_iter().map(move |one| (name.clone(), one))).collect();
            let addresses: Vec<Ipv4Addr> = returned.iter().map(|(_, address)| *address).collect();
            let open = self.measure(stage, &addresses, 0);
            let gone: Vec<Ipv4Addr> = self.closed.iter().copied().filter(|one| !addresses.contains(one)).collect();
            let shut = self.measure(stage, &gone, 0);
            let wrong = open.iter().filter(|(_, is_open)| !**is_open).chain(shut.iter().filter(|(_, is_open)| **is_open));
            let wrong: Vec<_> = wrong.map(|((node, address), is_open)| (NODES[*node], address, *is_open)).collect();
            if wrong.is_empty() {
                self.open = returned.into_iter().collect();
                self.last = Instant::now();
                return self.settled.push(began.elapsed());
            }
            let told = || format!("{when}: expected otherwise, (node, address, is open): {wrong:?}\n{}", stage.describe());
            assert!(began.elapsed() < SETTLE, "{}", told());
            sleep(SAMPLE_EVERY);
        }
    }

    pub(crate) fn summary(&self) -> String {
        let longest = self.settled.iter().max().copied().unwrap_or_default();
        format!("all was as DNS says {:.1} s after the faults at the latest", longest.as_secs_f64())
    }
}
