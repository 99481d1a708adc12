//! A data plane without a kernel, for tests and simulations. It judges
//! connections by the Program itself, and can be told to fail.

use crate::guard::{Guard, GuardDrops, Guarded, PodInterface};
use crate::inside::{FrameChecks, Inside, PodNamespace, SecondStatus};
use crate::leases::{Adopted, Adopting, Found, LeaseGroups};
use crate::netlink::bridges::Bridges;
use crate::nft::set::LeaseNote;
use crate::render::Scope;
use crate::{
    Applied, Connection, Count, Cut, Dataplane, Denied, Desired, FollowDenials, ListConnections, Plan, Told, Way,
};
use namewall_policy::domain::RulePattern;
use namewall_policy::lease::LeaseChange;
use namewall_policy::port::Protocol;
use namewall_policy::{Decision, Flow, Instant, Lease, LeaseTable, Program, Verdict, evaluate};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// A handle to a data plane in memory. Clones share it, as processes share a kernel: a test keeps one to look at what
/// another enforces.
#[derive(Clone, Default, Debug)]
pub struct Memory {
    shared: Arc<Mutex<Inner>>,
    /// False until this handle has changed something: then it takes over what there is.
    has_adopted: bool,
}

#[derive(Default, Debug)]
struct Inner {
    program: Program,
    scope: Scope,
    interfaces: Vec<PodInterface>,
    /// Names of interfaces that do not exist.
    missing: Vec<String>,
    /// Like the kernel, it knows until when a pattern opens an address, and by which name.
    leases: FxHashMap<(RulePattern, IpAddr), Lease>,
    connections: Vec<Connection>,
    replaced: usize,
    /// How often leases were opened, and the most leases that a change of rules or leases had.
    opened: usize,
    largest_change: usize,
    /// In how many more parts it takes what comes before a change, and after it.
    parts: [usize; 2],
    is_alive: bool,
    /// How often somebody else is said to have changed the tables inside pods' network namespaces.
    tampered: u64,
    /// How often it was asked to have bridges pass their frames.
    filtered: u64,
    refuses: bool,
    followers: Vec<Sender<Denied>>,
    while_planning: Option<Act>,
}

/// Something that a test does.
struct Act(Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Act {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Act")
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the data plane was told to refuse every change")]
pub struct Refused;

impl Memory {
    /// What the data plane does with a connection.
    pub fn judge(&self, flow: &Flow, now: Instant) -> Decision {
        let inner = self.lock();
        let mut leases = LeaseTable::default();
        inner.leases.values().for_each(|lease| drop(leases.grant(lease.clone())));
        evaluate(&inner.program, &leases, flow, now)
    }

    /// Whether a new TCP connection is let through, whoever has the addresses.
    pub fn connects(&self, from: IpAddr, to: SocketAddr) -> bool {
        let held = self.lock();
        let (from, port) = (held.program.endpoint_at(from), to.port());
        let to = held.program.endpoint_at(to.ip());
        drop(held);
        let flow = Flow { from, to, protocol: Protocol::Tcp, port, via: None, hop: None, masker: None };
        self.judge(&flow, Instant::default()).verdict == Verdict::Allow
    }

    /// The leases that are written, with those that have expired, by address.
    pub fn leases(&self) -> Vec<Lease> {
        let mut leases: Vec<Lease> = self.lock().leases.values().cloned().collect();
        leases.sort_by_key(|lease| lease.address);
        leases
    }

    /// Sets the connections that exist.
    pub fn connect(&self, connections: Vec<Connection>) {
        self.lock().connections = connections;
    }

    /// The connections that were not cut.
    pub fn connected(&self) -> Vec<Connection> {
        self.lock().connections.clone()
    }

    /// Refuses every change from now on, or takes changes again.
    pub fn refuse(&self, refuses: bool) {
        self.lock().refuses = refuses;
    }

    /// Reports a denied packet to everybody who follows denials.
    pub fn deny(&self, denied: &Denied) {
        self.lock().followers.retain(|follower| follower.send(denied.clone()).is_ok());
    }

    /// Ends the logs of everybody who follows denials, as an error of their sockets would.
    pub fn break_denial_logs(&self) {
        self.lock().followers.clear();
    }

    /// How many follow denials.
    pub fn denial_followers(&self) -> usize {
        self.lock().followers.len()
    }

    /// Does this while the next change is planned.
    pub fn while_planning(&self, act: impl FnOnce() + Send + 'static) {
        self.lock().while_planning = Some(Act(Box::new(act)));
    }

    /// Takes the next change in so many parts before its switch and after it, besides the last ones.
    pub fn take_parts(&self, before: usize, after: usize) {
        self.lock().parts = [before, after];
    }

    /// True if there is another part.
    fn take_part(&self, which: usize) -> bool {
        let left = &mut self.lock().parts[which];
        let is_more = *left > 0;
        *left = left.saturating_sub(1);
        is_more
    }

    /// How often answers had leases opened.
    pub fn opened(&self) -> usize {
        self.lock().opened
    }

    /// The most leases that were opened and closed at once, since this was last asked.
    pub fn take_largest_change(&self) -> usize {
        std::mem::take(&mut self.lock().largest_change)
    }

    /// From now on somebody else has changed the tables inside pods' network namespaces once more.
    pub fn tamper(&self) {
        self.lock().tampered += 1;
    }

    /// How often it was asked to have bridges pass their frames through the firewall.
    pub fn filtered(&self) -> u64 {
        self.lock().filtered
    }

    /// How many changes it has taken.
    pub fn replaced(&self) -> usize {
        self.lock().replaced
    }

    /// True if pods' DNS is taken to our server.
    pub fn is_alive(&self) -> bool {
        self.lock().is_alive
    }

    /// The interfaces that are guarded.
    pub fn guarded(&self) -> Vec<PodInterface> {
        self.lock().interfaces.clone()
    }

    /// Interfaces of these names do not exist from now on.
    pub fn set_missing(&self, names: &[&str]) {
        self.lock().missing = names.iter().map(|&name| name.to_owned()).collect();
    }

    /// The scope that is enforced.
    pub fn scope(&self) -> Scope {
        self.lock().scope.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is there, if it may be changed.
    fn change(&self) -> Result<MutexGuard<'_, Inner>, Refused> {
        let inner = self.lock();
        if inner.refuses { Err(Refused) } else { Ok(inner) }
    }
}

/// True if two Programs have the same policies for the same pods. They may be of two processes, so nothing is shared.
fn has_rules_of(one: &Program, other: &Program) -> bool {
    let rules = |of: &Program| format!("{:?}{:?}{:?}{:?}", of.classes, of.rules, of.peer_sets, of.port_specs);
    rules(one) == rules(other)
}

impl Inner {
    fn open(&mut self, lease: &Lease) {
        let known = self.leases.entry((lease.pattern.clone(), lease.address)).or_insert_with(|| lease.clone());
        if known.expiry < lease.expiry {
            *known = lease.clone();
        }
    }

    fn follow(&mut self, change: &LeaseChange, leases: &LeaseTable, now: Instant) {
        self.largest_change = self.largest_change.max(change.opened.len() + change.evicted.len());
        change.opened.iter().for_each(|opened| self.open(&opened.lease));
        for Lease { pattern, address, .. } in &change.evicted {
            if leases.opening(*address, now, |other| other == pattern).is_none() {
                self.leases.remove(&(pattern.clone(), *address));
            }
        }
    }

    /// Takes over the leases that are there, as the kernel's side does.
    fn adopt(&mut self, desired: &Desired<'_>) -> Adopted {
        let now = desired.now;
        let found = self.leases.drain().map(|(_, lease)| Found {
            // It has no groups: the name tells the patterns.
            group: 0,
            address: lease.address,
            left: lease.expiry.since(now),
            note: Some(LeaseNote { name: lease.name, asked_by: lease.asked_by }),
        });
        let found: Vec<Found> = found.filter(|found| !found.left.is_zero()).collect();
        let (program, rules, groups) = (desired.program, desired.adoption, &LeaseGroups::default());
        let adopted = Adopting { program, groups, rules, now }.adopt(&found);
        adopted.leases.iter().for_each(|lease| self.open(lease));
        adopted
    }
}

impl Dataplane for Memory {
    type Error = Refused;
    type Connections = Self;
    type Denials = MemoryDenials;
    type Plan = MemoryPlan;

    fn plan(&self) -> MemoryPlan {
        MemoryPlan(self.lock().while_planning.take())
    }

    fn replace_planned(&mut self, desired: &Desired<'_>, _plan: MemoryPlan) -> Result<Applied, Refused> {
        let mut inner = self.change()?;
        let is_another = inner.replaced > 0 && !has_rules_of(desired.program, &inner.program);
        let narrows_adopted = is_another && !self.has_adopted;
        inner.program = desired.program.clone();
        inner.scope = desired.scope.clone();
        let is_first = inner.replaced == 0;
        let has_adopted = self.has_adopted || inner.leases.is_empty();
        let adopted = (!has_adopted).then(|| inner.adopt(desired));
        inner.follow(desired.changed, desired.leases, desired.now);
        let open = desired.leases.iter().filter(|lease| lease.expiry > desired.now);
        open.for_each(|lease| inner.open(&lease.to_lease()));
        let patterns: FxHashSet<&RulePattern> = desired.program.patterns.iter().map(|(_, pattern)| pattern).collect();
        inner.leases.retain(|(pattern, _), _| patterns.contains(pattern));
        let way = if is_first { Way::Rebuild } else { Way::Whole };
        inner.replaced += 1;
        let (adopted, revoked) = adopted.map(|adopted| (adopted.leases, adopted.revoked)).unzip();
        let revoked = revoked.unwrap_or_default();
        drop(inner);
        self.has_adopted = true;
        Ok(Applied { way, operations: 1, narrows: true, adopted, narrows_adopted, revoked })
    }

    fn stage(&mut self, _plan: &mut MemoryPlan, _leases: &LeaseTable, _now: Instant) -> Result<bool, Refused> {
        Ok(self.take_part(0))
    }

    fn clear(&mut self, _leases: &LeaseTable) -> Result<bool, Refused> {
        Ok(self.take_part(1))
    }

    fn is_enforcing(&mut self) -> Result<bool, Refused> {
        Ok(self.replaced() > 0)
    }

    fn guard(&mut self, guard: &Guard<'_>) -> Result<Guarded, Refused> {
        let mut inner = self.change()?;
        let operations = usize::from(inner.interfaces != guard.interfaces);
        let is_missing = |interface: &&PodInterface| inner.missing.contains(&interface.name);
        let missing: Vec<String> =
            guard.interfaces.iter().filter(is_missing).map(|interface| interface.name.clone()).collect();
        inner.interfaces = guard.interfaces.to_vec();
        inner.interfaces.retain(|interface| !missing.contains(&interface.name));
        Ok(Guarded { operations, missing, ..Guarded::default() })
    }

    fn filter_bridges(&mut self) -> Result<Bridges, Refused> {
        self.lock().filtered += 1;
        Ok(Bridges::default())
    }

    fn inside(&mut self, inside: &Inside<'_>) -> SecondStatus {
        SecondStatus {
            id: inside.pod.id.clone(),
            pod: inside.pod.pod.clone(),
            interfaces: Vec::new(),
            is_judged: true,
            frames: FrameChecks::Full,
            repaired: self.lock().tampered,
            failure: None,
            unlogged: None,
        }
    }

    fn keep_inside(&mut self, _pods: &[PodNamespace]) {}

    fn has_news_inside(&mut self, looks_at_tables: bool) -> bool {
        looks_at_tables
    }

    fn guard_drops(&mut self) -> Result<GuardDrops, Refused> {
        Ok(GuardDrops::default())
    }

    fn open(&mut self, change: &LeaseChange, leases: &LeaseTable, now: Instant) -> Result<(), Refused> {
        let mut inner = self.change()?;
        inner.follow(change, leases, now);
        inner.opened += 1;
        Ok(())
    }

    fn connections(&self) -> Result<Self, Refused> {
        Ok(self.clone())
    }

    fn cut(&mut self, connections: &[&Connection]) -> Result<Cut, Refused> {
        let mut inner = self.change()?;
        let before = inner.connections.len();
        inner.connections.retain(|connection| !connections.contains(&connection));
        Ok(Cut { connections: before - inner.connections.len(), forgotten: 0 })
    }

    fn intercepts_dns(&self) -> bool {
        self.lock().scope.dns.is_some()
    }

    fn beat(&mut self, _life: Duration) -> Result<(), Refused> {
        self.change()?.is_alive = true;
        Ok(())
    }

    fn stop_beating(&mut self) -> Result<(), Refused> {
        self.change()?.is_alive = false;
        Ok(())
    }

    /// It counts nothing.
    fn counts(&mut self) -> Result<BTreeMap<String, Count>, Refused> {
        Ok(BTreeMap::new())
    }

    fn denials(&self, _log_group: u16) -> Result<MemoryDenials, Refused> {
        let (sender, receiver) = channel();
        self.lock().followers.push(sender);
        Ok(MemoryDenials { reported: receiver, of: Arc::downgrade(&self.shared) })
    }
}

/// Plans nothing, and does what a test wants to happen meanwhile.
#[derive(Debug)]
pub struct MemoryPlan(Option<Act>);

impl Plan for MemoryPlan {
    fn work_out(&mut self, _program: &Program, _scope: &Scope) {
        if let Some(Act(act)) = self.0.take() {
            act();
        }
    }
}

/// Denied packets that a test reports.
#[derive(Debug)]
pub struct MemoryDenials {
    reported: Receiver<Denied>,
    of: Weak<Mutex<Inner>>,
}

impl FollowDenials for MemoryDenials {
    type Error = Refused;

    /// Fails when the data plane is gone, or the test closes the log.
    fn wait(&mut self) -> Result<Told, Refused> {
        self.reported.recv().map(|denied| Told { denials: vec![denied], lost: 0 }).map_err(|_| Refused)
    }

    fn reopen(&mut self) -> Result<(), Refused> {
        let of = Memory { shared: self.of.upgrade().ok_or(Refused)?, has_adopted: false };
        let (sender, receiver) = channel();
        of.change()?.followers.push(sender);
        self.reported = receiver;
        Ok(())
    }
}

impl ListConnections for Memory {
    type Error = Refused;

    fn list(&mut self) -> Result<Vec<Connection>, Refused> {
        Ok(self.connected())
    }
}
