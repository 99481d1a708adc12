//! What must hold, and a round of faults that it must hold in.

use crate::closing::Closing;
use crate::dns::{NEVER, TTL};
use crate::fault::Fault;
use crate::heartbeat::Heartbeat;
use crate::stage::{GRACE, MOVING, NODES, PODS, Stage};
use crate::world::address;
use namewall_policy::port::Protocol;
use namewall_sandbox::{Measured, Probe};
use std::collections::BTreeSet;
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

/// A name, and an address that DNS returns for it.
type Returned = (String, Ipv4Addr);

pub(crate) struct Invariant {
    /// What was open on both nodes since DNS returned it.
    open: BTreeSet<Returned>,
    /// Addresses that DNS returned once, and no longer does.
    closed: BTreeSet<Ipv4Addr>,
    /// Where the name was before it moved.
    closing: Option<Closing>,
    /// How long after DNS has last returned it each such address was closed on both nodes.
    closed_after: Vec<Duration>,
    pub(crate) probes: usize,
    /// How long after the end of its faults each round took until all was as DNS says.
    settled: Vec<Duration>,
    heartbeat: Heartbeat,
}

impl Invariant {
    /// Waits until all that DNS returns is open on both nodes, and nothing else is.
    pub(crate) fn begin(stage: &Stage) -> Self {
        let mut invariant = Self {
            open: BTreeSet::new(),
            // Before the firewall is enforced everything is open.
            closed: BTreeSet::from([NEVER]),
            closing: None,
            closed_after: Vec::new(),
            probes: 0,
            settled: Vec::new(),
            heartbeat: Heartbeat::start(),
        };
        let is_enforced = |node| !stage.world.reaches(PODS[node], &NEVER.to_string());
        stage.world.wait_up_to(SETTLE, || (0..2).all(is_enforced));
        stage.world.wait_up_to(SETTLE, || stage.shares_wildcard());
        invariant.settle(stage, "at the start").unwrap_or_else(|why| panic!("{why}"));
        invariant.settled.clear();
        invariant
    }

    /// A name moves, the faults begin, last for longer than a lease, and end. A round in which the machine stood still
    /// is made again, in the same world.
    pub(crate) fn round(&mut self, stage: &mut Stage, seed: u64, faults: &[Fault]) {
        for _ in 0..MOST_TRIES {
            self.heartbeat.reset();
            let Err(why) = self.try_round(stage, faults) else { return };
            let pause = self.heartbeat.longest_pause();
            assert!(pause > STANDSTILL, "seed {seed}, {faults:?}: {why}");
            println!("  again, as the machine stood still for {pause:?}: {}", why.lines().next().unwrap_or_default());
            self.closing = None;
            self.settle(stage, "after a round that does not count").unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
        panic!("seed {seed}: the machine stood still in every try");
    }

    fn try_round(&mut self, stage: &mut Stage, faults: &[Fault]) -> Result<(), String> {
        let before = stage.move_name();
        self.open.remove(&(MOVING.to_owned(), before));
        self.closed.insert(before);
        self.closing = Some(Closing::begin(before, !faults.iter().any(Fault::delays_lookups)));
        let mut seen = Ok(());
        for fault in faults {
            stage.begin(*fault);
            seen = seen.and_then(|()| self.sample(stage));
        }
        let began = Instant::now();
        while seen.is_ok() && began.elapsed() < HOLD {
            seen = self.sample(stage);
        }
        // Also if it has failed: the next round begins in a world without faults.
        for fault in faults.iter().rev() {
            stage.end(*fault, &mut |stage| match seen {
                Ok(()) => seen = self.sample(stage),
                Err(_) => sleep(SAMPLE_EVERY),
            });
        }
        seen?;
        if !faults.iter().any(Fault::delays_lookups_for_long) {
            self.closing.iter_mut().for_each(Closing::count_from_now);
        }
        self.settle(stage, &format!("after {faults:?}"))?;
        self.closed_after.extend(self.closing.take().and_then(|closing| closing.took()));
        Ok(())
    }

    /// The address of before is closed on both nodes in time, and stays closed.
    fn see_closing(&mut self, stage: &Stage) -> Result<(), String> {
        let Some(mut closing) = self.closing.take() else { return Ok(()) };
        let began = Instant::now();
        // A single packet that is lost must not look like a closed address.
        let repeats = if closing.is_awaited() { REPEATS } else { 0 };
        let open = self.measure(stage, &[closing.address], repeats).concat();
        let seen = closing.see(began, &open);
        self.closing = Some(closing);
        seen.map_err(|why| format!("{why}\n{}", stage.describe()))
    }

    /// All that was open on both nodes is open. What is open on both for the first time has to stay so.
    fn sample(&mut self, stage: &Stage) -> Result<(), String> {
        sleep(SAMPLE_EVERY);
        let (known, new): (Vec<_>, Vec<_>) = returned(stage).into_iter().partition(|one| self.open.contains(one));
        let is_excused = |node: usize| stage.excused[node].is_some_and(|until| Instant::now() < until);
        for ((name, address), closed) in known.iter().zip(self.closed_on(stage, &known, REPEATS)) {
            if let Some(node) = closed.into_iter().find(|node| !is_excused(*node)) {
                let closes = format!("{} closes {name} {address}, which DNS returns", NODES[node]);
                return Err(format!("{closes}\n{}", stage.describe()));
            }
        }
        let closed = self.closed_on(stage, &new, 0);
        self.open.extend(new.into_iter().zip(closed).filter(|(_, closed)| closed.is_empty()).map(|(one, _)| one));
        // Only a server that nobody may ask returns it.
        if self.measure(stage, &[NEVER], 0).concat().contains(&true) {
            return Err(format!("{NEVER} is open, which is no name's\n{}", stage.describe()));
        }
        self.see_closing(stage)
    }

    /// For each address the nodes whose pod does not reach it.
    fn closed_on(&mut self, stage: &Stage, to: &[Returned], repeats: usize) -> Vec<Vec<usize>> {
        let addresses: Vec<Ipv4Addr> = to.iter().map(|(_, address)| *address).collect();
        let open = self.measure(stage, &addresses, repeats);
        open.into_iter().map(|open| (0..2).filter(|node| !open[*node]).collect()).collect()
    }

    /// For each address whether the pod of each node reaches it.
    fn measure(&mut self, stage: &Stage, to: &[Ipv4Addr], repeats: usize) -> Vec<Vec<bool>> {
        let probe = |to: &Ipv4Addr, pod: &str| Probe {
            from: stage.world.sandbox.place(address(pod)).unwrap(),
            to: SocketAddr::new(IpAddr::V4(*to), 443),
            protocol: Protocol::Tcp,
        };
        let probes: Vec<Probe> = to.iter().flat_map(|to| PODS.map(|pod| probe(to, pod))).collect();
        self.probes += probes.len();
        let measured = stage.world.sandbox.probe_patiently(&probes, repeats).unwrap();
        measured.chunks(PODS.len()).map(|all| all.iter().map(|one| *one == Measured::Open).collect()).collect()
    }

    /// Waits until all that DNS returns is open on both nodes, and what it returned before is closed on both.
    fn settle(&mut self, stage: &Stage, when: &str) -> Result<(), String> {
        let began = Instant::now();
        loop {
            self.see_closing(stage)?;
            let returned = returned(stage);
            let open: BTreeSet<Ipv4Addr> = returned.iter().map(|(_, address)| *address).collect();
            let all: Vec<Ipv4Addr> = open.union(&self.closed).copied().collect();
            let measured = self.measure(stage, &all, 0);
            let is_wrong =
                |(address, seen): &(&Ipv4Addr, Vec<bool>)| seen.iter().any(|one| *one != open.contains(address));
            let wrong: Vec<_> = all.iter().zip(measured).filter(is_wrong).collect();
            if wrong.is_empty() {
                self.open = returned.into_iter().collect();
                self.settled.push(began.elapsed());
                return Ok(());
            }
            let told = || {
                format!("{when}: DNS returns {returned:?}; otherwise is, on {NODES:?}: {wrong:?}\n{}", stage.describe())
            };
            if began.elapsed() >= SETTLE {
                return Err(told());
            }
            sleep(SAMPLE_EVERY);
        }
    }

    pub(crate) fn summary(&self) -> String {
        let longest = |times: &[Duration]| times.iter().max().copied().unwrap_or_default().as_secs_f64();
        let (settled, closed) = (longest(&self.settled), longest(&self.closed_after));
        format!(
            "all was as DNS says {settled:.1} s after the faults at the latest; what DNS had last returned was closed \
             after {closed:.1} s at the latest"
        )
    }
}

fn returned(stage: &Stage) -> Vec<Returned> {
    let of_name = |(name, all): (String, Vec<Ipv4Addr>)| all.into_iter().map(move |one| (name.clone(), one));
    stage.dns.names().into_iter().flat_map(of_name).collect()
}
