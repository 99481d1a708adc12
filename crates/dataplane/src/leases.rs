//! The leases the kernel has. The table of them is ours, and may lose some for
//! want of room (S6.5); what the kernel was told of those is taken back.

use crate::nft::set::{self, Element, Key, Lifetime, Passing, Transient, Version};
use namewall_policy::domain::{DomainName, DomainPattern};
use namewall_policy::lease::Before;
use namewall_policy::{Instant, Lease, LeaseTable};
use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Which lease groups each pattern opens.
pub type LeaseGroups = FxHashMap<DomainPattern, Vec<u64>>;

/// A lease as it was found in the kernel.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) group: u64,
    pub(crate) address: IpAddr,
    pub(crate) left: Duration,
    /// The name it was first opened by.
    pub(crate) name: Option<DomainName>,
}

/// What is to be told to the kernel, a list for each version of IP.
#[derive(Default, Debug)]
pub(crate) struct Writes {
    pub(crate) new: Passing,
    pub(crate) gone: [Vec<Element>; 2],
}

#[derive(Default, Debug)]
pub(crate) struct Leases {
    /// Those that have ended among them, as long as connections may outlive them.
    pub(crate) table: LeaseTable,
    /// There were leases before us that the table does not know by their names.
    is_incomplete: bool,
    /// What is being written, and what there was before it, should the kernel not take it.
    journal: Vec<(Lease, Before)>,
}

impl Leases {
    pub(crate) fn new(table: LeaseTable) -> Self {
        Self { table, ..Self::default() }
    }

    pub(crate) fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// Takes over what the kernel has from an earlier process, if there was one, and gives what it has not.
    pub(crate) fn adopt(&mut self, found: Option<Vec<Found>>, groups: &LeaseGroups, now: Instant) -> Writes {
        let mut patterns: FxHashMap<u64, Vec<&DomainPattern>> = FxHashMap::default();
        for (pattern, groups) in groups {
            groups.iter().for_each(|group| patterns.entry(*group).or_default().push(pattern));
        }
        let (is_old, found) = (found.is_some(), found.unwrap_or_default());
        let there: FxHashMap<(u64, IpAddr), Instant> =
            found.iter().map(|one| ((one.group, one.address), now + one.left)).collect();
        let mut writes = Writes::default();
        for (key, (expiry, name)) in self.wanted(groups, now) {
            if there.get(&key).is_none_or(|until| *until < expiry) {
                writes.open(key, (expiry, &name), now);
            }
        }
        // What it opened and has ended since nobody knows, and connections may outlive it.
        self.is_incomplete |= is_old;
        for Found { group, address, left, name } in found {
            let Some(patterns) = patterns.get(&group) else { continue };
            let matching = |name: &DomainName| patterns.iter().find(|pattern| pattern.matches(name));
            let known = name.and_then(|name| Some((*matching(&name)?, name)));
            // Of one whose name is not known, the group is: it stays open as long as it was to.
            let (pattern, name) = known.unwrap_or_else(|| (patterns[0], patterns[0].domain().clone()));
            let pattern = pattern.clone();
            self.table.grant(Lease { pattern, name, address, expiry: now + left, asked_by: None });
        }
        writes
    }

    /// Until when each group should have each address open, and by which name.
    fn wanted(&self, groups: &LeaseGroups, now: Instant) -> FxHashMap<(u64, IpAddr), (Instant, DomainName)> {
        let mut wanted: FxHashMap<(u64, IpAddr), (Instant, DomainName)> = FxHashMap::default();
        for lease in self.table.iter().filter(|lease| lease.expiry > now) {
            for &group in groups.get(&lease.pattern).into_iter().flatten() {
                let one = wanted.entry((group, lease.address)).or_insert((lease.expiry, lease.name.clone()));
                one.0 = one.0.max(lease.expiry);
            }
        }
        wanted
    }

    /// What must be written because groups changed: leases that live on in groups that are new to them.
    pub(crate) fn regroup(&mut self, (before, after): (&LeaseGroups, &LeaseGroups), now: Instant) -> Writes {
        let mut writes = Writes::default();
        let is_new = |pattern: &DomainPattern, group: &u64| !before.get(pattern).is_some_and(|old| old.contains(group));
        let mut fresh: LeaseGroups = LeaseGroups::default();
        for (pattern, groups) in after {
            let new: Vec<u64> = groups.iter().copied().filter(|group| is_new(pattern, group)).collect();
            if !new.is_empty() {
                fresh.insert(pattern.clone(), new);
            }
        }
        for (key, (expiry, name)) in self.wanted(&fresh, now) {
            writes.open(key, (expiry, &name), now);
        }
        writes
    }

    /// What must be written for these leases. A renewal never shortens (S6.3).
    pub(crate) fn grant(&mut self, leases: &[Lease], groups: &LeaseGroups, now: Instant) -> Writes {
        self.journal.clear();
        let mut writes = Writes::default();
        let mut evicted = Vec::new();
        for lease in leases.iter().filter(|lease| lease.expiry > now) {
            for &group in groups.get(&lease.pattern).into_iter().flatten() {
                if self.until((group, lease.address), groups).is_none_or(|until| until < lease.expiry) {
                    writes.open((group, lease.address), (lease.expiry, &lease.name), now);
                }
            }
            self.journal.push((lease.clone(), self.table.before(lease)));
            evicted.extend(self.table.grant(lease.clone()));
        }
        for lease in evicted.into_iter().filter(|lease| lease.expiry > now) {
            for &group in groups.get(&lease.pattern).into_iter().flatten() {
                // Another name may still open it.
                if self.until((group, lease.address), groups).is_none_or(|until| until <= now) {
                    writes.gone[Version::of(lease.address) as usize].push(element((group, lease.address)));
                }
            }
        }
        writes
    }

    /// Until when the group has the address open.
    fn until(&self, (group, address): (u64, IpAddr), groups: &LeaseGroups) -> Option<Instant> {
        let opens = |lease: &&Lease| groups.get(&lease.pattern).is_some_and(|groups| groups.contains(&group));
        self.table.at(address).filter(opens).map(|lease| lease.expiry).max()
    }

    /// The kernel took what was written last.
    pub(crate) fn keep(&mut self) {
        self.journal.clear();
    }

    /// The kernel did not take what was to be written last.
    pub(crate) fn take_back(&mut self) {
        for (lease, before) in self.journal.drain(..).rev() {
            self.table.take_back(&lease, before);
        }
    }
}

impl Writes {
    fn open(&mut self, key: (u64, IpAddr), (expiry, name): (Instant, &DomainName), now: Instant) {
        // The kernel keeps nothing for longer.
        let left = expiry.0.saturating_sub(now.0).min(set::LONGEST);
        let lease = Transient { element: element(key), lifetime: Lifetime(left), name: Some(name.clone()) };
        self.new[Version::of(key.1) as usize].push(lease);
    }
}

fn element((group, address): (u64, IpAddr)) -> Element {
    let (high, low) = set::halves(group);
    Element::key(Key::default().number(high).number(low).address(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_policy::lease::Bounds;

    const NOW: Instant = Instant(Duration::from_secs(100));

    fn at(seconds: u64) -> Instant {
        Instant(Duration::from_secs(seconds))
    }

    fn groups(numbers: &[u64]) -> LeaseGroups {
        [(DomainPattern::Exact("example.com".parse().unwrap()), numbers.to_vec())].into_iter().collect()
    }

    fn lease(last: u8, expiry: Instant) -> Lease {
        let name: DomainName = "example.com".parse().unwrap();
        let pattern = DomainPattern::Exact(name.clone());
        Lease { pattern, name, address: IpAddr::from([192, 0, 2, last]), expiry, asked_by: None }
    }

    fn granted() -> (Leases, Vec<Lease>) {
        let mut leases = Leases::default();
        let lease = lease(1, at(110));
        let writes = leases.grant(std::slice::from_ref(&lease), &groups(&[1]), NOW);
        assert_eq!(writes.new[0].len(), 1);
        (leases, vec![lease])
    }

    #[test]
    fn s6_4_a_new_group_does_not_make_a_lease_longer() {
        let (mut leases, _) = granted();
        let writes = leases.regroup((&groups(&[1]), &groups(&[1, 2])), at(104));
        assert!(matches!(writes.new[0].as_slice(), [one] if one.lifetime == Lifetime(Duration::from_secs(6))));
        assert!(leases.regroup((&groups(&[1]), &groups(&[3])), at(110)).new[0].is_empty(), "it is over");
    }

    #[test]
    fn s6_3_what_is_open_long_enough_is_not_written() {
        let (mut leases, mut again) = granted();
        assert!(leases.grant(&again, &groups(&[1]), at(101)).new[0].is_empty(), "it is there");
        again[0].expiry = at(105);
        assert!(leases.grant(&again, &groups(&[1]), at(101)).new[0].is_empty(), "and never made shorter");
        again[0].expiry = at(111);
        assert_eq!(leases.grant(&again, &groups(&[1]), at(101)).new[0].len(), 1);
    }

    #[test]
    fn s6_6_what_the_kernel_did_not_take_is_written_again() {
        let (mut leases, mut longer) = granted();
        leases.keep();
        longer[0].expiry = at(120);
        longer.push(lease(2, at(120)));
        for _ in 0..2 {
            assert_eq!(leases.grant(&longer, &groups(&[1]), NOW).new[0].len(), 2);
            leases.take_back();
        }
        assert_eq!(leases.table.expiry(&longer[0]), Some(at(110)));
        assert_eq!(leases.table.len(), 1);
    }

    #[test]
    fn s6_5_what_makes_room_is_taken_back_from_the_kernel() {
        let bounds = Bounds { leases: 3, ..Bounds::default() };
        let mut leases = Leases::new(LeaseTable::with_bounds(bounds));
        let name =
            |text: &str, last: u8| Lease { name: text.parse().unwrap(), ..lease(last, at(110 + u64::from(last))) };
        let all = [name("a.example.com", 1), name("b.example.com", 1), name("c.example.com", 2)];
        assert_eq!(leases.grant(&all, &groups(&[1]), NOW).new[0].len(), 2);
        // The first goes, but the second has its address too.
        assert!(leases.grant(&[name("d.example.com", 4)], &groups(&[1]), NOW).gone[0].is_empty());
        let writes = leases.grant(&[name("e.example.com", 5)], &groups(&[1]), NOW);
        assert_eq!(writes.gone[0], [element((1, IpAddr::from([192, 0, 2, 1])))]);
    }

    #[test]
    fn what_an_earlier_process_opened_is_adopted_with_its_name() {
        let found = |last: u8, seconds, name: Option<&str>| Found {
            group: 1,
            address: IpAddr::from([192, 0, 2, last]),
            left: Duration::from_secs(seconds),
            name: name.map(|name| name.parse().unwrap()),
        };
        let mut leases = Leases::default();
        let writes = leases.adopt(Some(vec![found(1, 7, Some("example.com"))]), &groups(&[1, 2]), NOW);
        assert!(writes.new[0].is_empty());
        assert_eq!(leases.table.expiry(&lease(1, NOW)), Some(at(107)));
        leases.adopt(Some(vec![found(2, 7, Some("of.no.rule"))]), &groups(&[1]), NOW);
        assert!(leases.is_incomplete());
        // Of what we knew only what the kernel has lost is written.
        assert_eq!(leases.adopt(Some(vec![found(1, 7, None)]), &groups(&[1]), NOW).new[0].len(), 1);
    }
}
