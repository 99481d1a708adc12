//! The leases of one node, and which of them the data plane has acknowledged.
//!
//! A grant has two steps. [`LeaseStore::grant`] enters the leases and says what
//! the data plane has to write. Then [`LeaseStore::acknowledge`] makes them count
//! as open, or [`LeaseStore::take_back`] undoes the grant. In between,
//! [`LeaseStore::is_open`] is false for them, so that no DNS answer is released
//! before its own addresses are open (S6.6, S6.7).

use super::evicted::Evicted;
use super::revise::{Carried, Plan, Revision, Rules};
use super::survey::Survey;
use super::{Before, Instant, Lease, LeaseTable};
use crate::domain::RulePattern;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// What a grant changes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LeaseChange {
    pub opened: Vec<Opened>,
    /// Leases that had to make room (S6.5). Another name or pattern may still open their addresses.
    pub evicted: Vec<Lease>,
}

/// A lease that was granted or renewed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    pub lease: Lease,
    /// Until when its pattern opened its address before the grant, by whichever name.
    pub before: Option<Instant>,
}

/// The leases of one node. Expired leases stay in the table while connections may outlive them (S6.4).
#[derive(Default, Debug)]
pub struct LeaseStore {
    table: LeaseTable,
    /// What is under way, in order.
    journal: Vec<Step>,
    /// The addresses of the grant under way, and until when all leases there that it renews were open before it; None
    /// if one of them is new.
    unacknowledged: HashMap<IpAddr, Option<Instant>>,
    /// What has been carried over, and what is on its way.
    carried: [Option<Carried>; 2],
    evicted: Evicted,
}

/// When a lease of an earlier process has ended: before this process began, and after nothing at all.
const LONG_AGO: Instant = Instant(Duration::from_nanos(1));

/// A change that can be undone.
#[derive(Debug)]
enum Step {
    /// With what there was before it.
    Granted(Lease, Before),
    Revoked(Lease),
}

impl LeaseStore {
    pub fn new(table: LeaseTable) -> Self {
        Self { table, ..Self::default() }
    }

    pub fn table(&self) -> &LeaseTable {
        &self.table
    }

    /// True if the data plane has acknowledged the lease until then at least, and it counts as the asking client's. While
    /// a lease is renewed it is open until it would have ended without that.
    pub fn is_open(&self, lease: &Lease, until: Instant) -> bool {
        let is_acknowledged = match self.unacknowledged.get(&lease.address) {
            None => true,
            Some(before) => before.is_some_and(|before| before >= until),
        };
        is_acknowledged && self.table.has(lease, until)
    }

    /// Enters leases that have not expired. They count as open once they are acknowledged.
    pub fn grant(&mut self, leases: &[Lease], now: Instant) -> LeaseChange {
        self.acknowledge();
        let mut change = LeaseChange::default();
        for lease in leases.iter().filter(|lease| lease.expiry > now) {
            self.enter(lease, &mut change);
        }
        change.evicted.retain(|lease| lease.expiry > now);
        change
    }

    fn enter(&mut self, lease: &Lease, change: &mut LeaseChange) {
        let before = self.table.before(lease);
        change.opened.push(Opened { lease: lease.clone(), before: before.longest });
        let open = self.unacknowledged.entry(lease.address).or_insert(before.expiry);
        *open = (*open).min(before.expiry);
        self.journal.push(Step::Granted(lease.clone(), before));
        let evicted = self.table.grant(lease.clone());
        self.evicted.extend(&evicted);
        change.evicted.extend(evicted);
    }

    /// The patterns whose leases for an address had to make room (S6.5). Connections that they opened may still exist,
    /// and are not cut (S6.4).
    pub fn evicted_at(&self, address: IpAddr) -> impl Iterator<Item = &RulePattern> {
        self.evicted.at(address)
    }

    /// Begins to work out what new rules do to many leases.
    pub fn survey(&self, revision: &Revision<'_>) -> Survey {
        Survey::begin(revision, &self.table, self.carried[0].as_ref())
    }

    /// Works out some more of it. Gives leases that are to be entered with `carry` before the next part.
    pub fn look_on(&self, survey: &mut Survey, revision: &Revision<'_>) -> Vec<Lease> {
        survey.look_on(revision, &self.table)
    }

    /// Enters leases that new rules carry over or open, some of which may have ended, before these rules are in force.
    pub fn carry(&mut self, leases: &[Lease], now: Instant) -> LeaseChange {
        self.acknowledge();
        let mut change = LeaseChange::default();
        leases.iter().for_each(|lease| self.enter(lease, &mut change));
        change.evicted.retain(|lease| lease.expiry > now);
        change
    }

    /// Every lease that a survey has looked at is carried over.
    pub fn end_survey(&mut self, survey: &Survey, revision: &Revision<'_>) {
        if let Some(until) = survey.looked_at().filter(|_| revision.has_new_rules()) {
            self.carried[0] = Some(Carried::to(revision.next.program, until));
        }
    }

    /// What new rules do to the leases.
    pub fn plan(&self, revision: &Revision<'_>) -> Plan {
        self.plan_after(&Survey::none(revision), revision)
    }

    /// What new rules do to the leases after those that were looked at before.
    pub fn plan_after(&self, survey: &Survey, revision: &Revision<'_>) -> Plan {
        revision.plan(&self.table, self.carried[0].as_ref(), survey)
    }

    /// Enters what new rules do to the leases, and leases that they open besides. All of it counts once it is
    /// acknowledged.
    pub fn revise(&mut self, revision: &Revision<'_>, plan: Plan, more: &[Lease]) -> LeaseChange {
        self.acknowledge();
        let Rules { program, never_leased } = revision.next;
        self.evicted.keep_only(|address, pattern| {
            pattern.denies() || never_leased.refusal(program, pattern.names.domain(), address).is_none()
        });
        self.table.set_translators(never_leased.translators());
        let mut change = LeaseChange::default();
        for (lease, _) in plan.revoked {
            self.table.revoke(&lease);
            self.journal.push(Step::Revoked(lease.clone()));
            change.evicted.push(lease);
        }
        // What has ended is carried over, too: connections that it opened go on (S6.4).
        for lease in plan.carried.iter().chain(more) {
            self.enter(lease, &mut change);
        }
        self.carried[1] = plan.patterns;
        change
    }

    /// The data plane has taken what was granted last.
    pub fn acknowledge(&mut self) {
        if let Some(carried) = self.carried[1].take() {
            self.carried[0] = Some(carried);
        }
        self.journal.clear();
        self.unacknowledged.clear();
    }

    /// The data plane has not taken what was granted last. Evicted leases stay evicted.
    pub fn take_back(&mut self) {
        self.carried[1] = None;
        for step in self.journal.drain(..).rev() {
            match step {
                Step::Granted(lease, before) => self.table.take_back(&lease, before),
                // Nothing has to make room: there was room before.
                Step::Revoked(lease) => drop(self.table.grant(lease)),
            }
        }
        self.unacknowledged.clear();
    }

    /// Takes over the leases that an earlier process left in the data plane.
    pub fn adopt(&mut self, found: Vec<Lease>) {
        for lease in found {
            self.table.grant(lease);
        }
    }

    /// Enters leases of an earlier process that have ended. They open nothing, but connections that they opened go on
    /// (S6.4). No other lease makes room for them.
    pub fn inherit(&mut self, ended: impl Iterator<Item = Lease>) {
        for lease in ended {
            if self.table.expiry(&lease).is_none() && self.table.has_room_for(&lease) {
                self.table.grant(Lease { expiry: LONG_AGO, ..lease });
            }
        }
    }

    /// Drops up to `most` expired names, except those with an address that is `in_use`.
    pub fn forget(&mut self, now: Instant, most: usize, in_use: impl Fn(IpAddr) -> bool) -> usize {
        self.evicted.keep_only(|address, _| in_use(address));
        self.table.forget(now, most, in_use)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::DomainPattern;
    use crate::lease::Bounds;

    const NOW: Instant = Instant(Duration::from_secs(100));

    fn at(seconds: u64) -> Instant {
        Instant(Duration::from_secs(seconds))
    }

    fn lease(name: &str, last: u8, seconds: u64) -> Lease {
        let pattern = RulePattern::allow(DomainPattern::Subdomains("example.com".parse().unwrap()));
        let address = IpAddr::from([192, 0, 2, last]);
        Lease { pattern, name: name.parse().unwrap(), address, expiry: at(seconds), asked_by: None }
    }

    #[test]
    fn s6_7_a_lease_is_open_once_it_is_acknowledged() {
        let mut store = LeaseStore::default();
        let (first, other) = (lease("a.example.com", 1, 110), lease("b.example.com", 1, 110));
        store.grant(std::slice::from_ref(&first), NOW);
        assert!(!store.is_open(&first, NOW), "nothing has acknowledged it");
        store.acknowledge();
        assert!(store.is_open(&first, at(110)) && !store.is_open(&first, at(111)));
        store.grant(std::slice::from_ref(&other), NOW);
        assert!(!store.is_open(&other, NOW));
    }

    /// Answers with an address whose lease is renewed at this moment need not be held for that.
    #[test]
    fn s6_7_a_lease_that_is_renewed_stays_open_meanwhile() {
        let mut store = LeaseStore::default();
        let (first, other) = (lease("a.example.com", 1, 110), lease("b.example.com", 1, 130));
        store.grant(std::slice::from_ref(&first), NOW);
        store.acknowledge();
        let renewed = lease("a.example.com", 1, 120);
        store.grant(std::slice::from_ref(&renewed), NOW);
        assert!(store.is_open(&renewed, at(110)), "the data plane has it until then");
        assert!(!store.is_open(&renewed, at(111)));
        // The same grant once more has the end that nothing has acknowledged.
        store.take_back();
        store.grant(&[renewed.clone(), lease("a.example.com", 1, 140)], NOW);
        assert!(store.is_open(&renewed, at(110)) && !store.is_open(&renewed, at(111)));
        // Another name at the address, which is new, is open for nobody.
        store.take_back();
        for grant in [[renewed.clone(), other.clone()], [other.clone(), renewed.clone()]] {
            store.grant(&grant, NOW);
            assert!(!store.is_open(&other, NOW), "nothing has acknowledged it");
            store.take_back();
        }
        store.grant(&[renewed.clone(), other.clone()], NOW);
        store.acknowledge();
        assert!(store.is_open(&renewed, at(120)) && store.is_open(&other, at(130)));
    }

    #[test]
    fn s6_6_what_is_taken_back_is_as_it_was() {
        let mut store = LeaseStore::default();
        let first = lease("a.example.com", 1, 110);
        store.grant(std::slice::from_ref(&first), NOW);
        store.acknowledge();
        for _ in 0..2 {
            let change = store.grant(&[lease("a.example.com", 1, 120), lease("a.example.com", 2, 120)], NOW);
            let before: Vec<_> = change.opened.iter().map(|opened| opened.before).collect();
            assert_eq!(before, [Some(at(110)), None]);
            store.take_back();
        }
        assert!(store.is_open(&first, at(110)) && !store.is_open(&first, at(111)));
        assert_eq!(store.table().len(), 1);
    }

    #[test]
    fn s6_5_evicted_leases_are_part_of_the_change() {
        let mut store = LeaseStore::new(LeaseTable::with_bounds(Bounds { leases: 1, ..Bounds::default() }));
        store.grant(&[lease("a.example.com", 1, 110)], NOW);
        store.acknowledge();
        let change = store.grant(&[lease("b.example.com", 2, 111)], NOW);
        assert!(matches!(change.evicted.as_slice(), [one] if one.name.as_str() == "a.example.com"), "{change:?}");
        let change = store.grant(&[lease("c.example.com", 3, 200)], at(150));
        assert!(change.evicted.is_empty(), "an expired lease need not be closed: {change:?}");
    }

    #[test]
    fn s6_4_an_expired_lease_is_not_granted() {
        let mut store = LeaseStore::default();
        assert_eq!(store.grant(&[lease("a.example.com", 1, 100)], NOW), LeaseChange::default());
    }

    #[test]
    fn leases_of_an_earlier_process_are_open() {
        let mut store = LeaseStore::default();
        let found = lease("a.example.com", 1, 107);
        store.adopt(vec![found.clone()]);
        assert!(store.is_open(&found, at(107)));
    }

    #[test]
    fn s6_4_leases_of_an_earlier_process_that_have_ended_are_known_and_open_nothing() {
        let bounds = Bounds { addresses_a_name: 100, names_a_pattern: 2, leases: 110 };
        let mut store = LeaseStore::new(LeaseTable::with_bounds(bounds));
        let found = lease("a.example.com", 1, 107);
        store.adopt(vec![found.clone()]);
        // One that is open, some that have ended, and more than there is room for.
        store.inherit([lease("a.example.com", 1, 50)].into_iter());
        store.inherit((0..=255).map(|last| lease("a.example.com", last, 200)));
        store.inherit((1..=9).map(|last| lease(&format!("n{last}.example.com"), last, 200)));
        assert!(store.is_open(&found, at(107)), "it is as it was");
        assert_eq!(store.table().len(), 101, "as many addresses and names as there is room for");
        let ended = lease("a.example.com", 9, 0);
        let opens = |now| store.table().opening(ended.address, now, |pattern| *pattern == ended.pattern).is_some();
        assert!(!opens(NOW) && opens(Instant::default()), "for connections of that time alone");
        assert_eq!(store.table().evictions(), Default::default());
    }
}
