//! Leases as elements of the kernel's table. Which leases there are is decided
//! in a `LeaseStore`; here each becomes an element for every lease group that its
//! pattern opens. A lease group is a list of peers of rules, so several patterns
//! may share one, and an element lasts as long as the longest of them.

use crate::nft::set::{self, Element, Key, Lifetime, Passing, Transient, Version};
use namewall_policy::domain::{DomainName, DomainPattern};
use namewall_policy::lease::LeaseChange;
use namewall_policy::{Instant, Lease, LeaseTable};
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::IpAddr;
use std::time::Duration;

/// Which lease groups each pattern opens.
pub type LeaseGroups = FxHashMap<DomainPattern, Vec<u64>>;

/// An address that is open in a lease group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct GroupAddress {
    group: u64,
    address: IpAddr,
}

/// A lease as it was found in the kernel.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) group: u64,
    pub(crate) address: IpAddr,
    pub(crate) left: Duration,
    /// The name it was first opened by.
    pub(crate) name: Option<DomainName>,
}

/// Elements to add and to remove, a list for each version of IP.
#[derive(Default, Debug)]
pub(crate) struct Writes {
    pub(crate) new: Passing,
    pub(crate) gone: [Vec<Element>; 2],
}

/// Leases with the groups of one table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grouped<'a> {
    pub(crate) leases: &'a LeaseTable,
    pub(crate) groups: &'a LeaseGroups,
}

impl<'a> Grouped<'a> {
    /// What must be written after a grant. A renewal never shortens an element (S6.3).
    pub(crate) fn after(self, change: &LeaseChange, now: Instant) -> Writes {
        let mut writes = Writes::default();
        let mut before: FxHashMap<(&DomainPattern, IpAddr), Option<Instant>> = FxHashMap::default();
        for opened in &change.opened {
            // A batch may open an address twice; only the first says what there was before the batch.
            before.entry((&opened.lease.pattern, opened.lease.address)).or_insert(opened.before);
        }
        let mut done: FxHashSet<GroupAddress> = FxHashSet::default();
        for opened in &change.opened {
            let address = opened.lease.address;
            for &group in self.groups.get(&opened.lease.pattern).into_iter().flatten() {
                let key = GroupAddress { group, address };
                let Some(longest) = self.longest(key).filter(|_| done.insert(key)) else { continue };
                let expiry_before = |lease: &Lease| match before.get(&(&lease.pattern, address)) {
                    Some(before) => *before,
                    None => Some(lease.expiry),
                };
                let until = self.opening(key).filter_map(expiry_before).max();
                if until.is_none_or(|until| until < longest.expiry) {
                    writes.open(key, longest, now);
                }
            }
        }
        for lease in &change.evicted {
            for &group in self.groups.get(&lease.pattern).into_iter().flatten() {
                let key = GroupAddress { group, address: lease.address };
                // Another name may still open it.
                if self.longest(key).is_none_or(|longest| longest.expiry <= now) {
                    writes.gone[Version::of(lease.address) as usize].push(element(key));
                }
            }
        }
        writes
    }

    /// What must be written because the groups changed: leases that live on in groups that are new to their pattern.
    pub(crate) fn since(self, before: &LeaseGroups, now: Instant) -> Writes {
        let mut fresh = LeaseGroups::default();
        for (pattern, groups) in self.groups {
            let is_new = |group: &u64| !before.get(pattern).is_some_and(|old| old.contains(group));
            let new: Vec<u64> = groups.iter().copied().filter(is_new).collect();
            if !new.is_empty() {
                fresh.insert(pattern.clone(), new);
            }
        }
        let mut writes = Writes::default();
        for (key, lease) in (Grouped { groups: &fresh, ..self }).wanted(now) {
            writes.open(key, lease, now);
        }
        writes
    }

    /// What must be written beside elements of an earlier process: leases that those do not cover.
    pub(crate) fn beside(self, found: &[Found], now: Instant) -> Writes {
        let until = |&Found { group, address, left, .. }: &Found| (GroupAddress { group, address }, now + left);
        let there: FxHashMap<GroupAddress, Instant> = found.iter().map(until).collect();
        let mut writes = Writes::default();
        for (key, lease) in self.wanted(now) {
            if there.get(&key).is_none_or(|until| *until < lease.expiry) {
                writes.open(key, lease, now);
            }
        }
        writes
    }

    /// For each group and address, the unexpired lease that lasts longest.
    fn wanted(self, now: Instant) -> FxHashMap<GroupAddress, &'a Lease> {
        let mut wanted: FxHashMap<GroupAddress, &Lease> = FxHashMap::default();
        for lease in self.leases.iter().filter(|lease| lease.expiry > now) {
            for &group in self.groups.get(&lease.pattern).into_iter().flatten() {
                let one = wanted.entry(GroupAddress { group, address: lease.address }).or_insert(lease);
                if one.expiry < lease.expiry {
                    *one = lease;
                }
            }
        }
        wanted
    }

    /// The leases that open the address in the group; some may have expired.
    fn opening(self, GroupAddress { group, address }: GroupAddress) -> impl Iterator<Item = &'a Lease> {
        let opens = move |lease: &&Lease| self.groups.get(&lease.pattern).is_some_and(|all| all.contains(&group));
        self.leases.at(address).filter(opens)
    }

    fn longest(self, key: GroupAddress) -> Option<&'a Lease> {
        self.opening(key).max_by_key(|lease| lease.expiry)
    }
}

/// Leases that an earlier process left in the kernel, as far as a group of the table has their element.
pub(crate) fn found_leases(found: Vec<Found>, groups: &LeaseGroups, now: Instant) -> Vec<Lease> {
    let mut patterns: FxHashMap<u64, Vec<&DomainPattern>> = FxHashMap::default();
    for (pattern, groups) in groups {
        groups.iter().for_each(|group| patterns.entry(*group).or_default().push(pattern));
    }
    let lease = |Found { group, address, left, name }| {
        let patterns = patterns.get(&group)?;
        let matching = |name: &DomainName| patterns.iter().find(|pattern| pattern.matches(name));
        let known = name.and_then(|name| Some((*matching(&name)?, name)));
        // If the name is not known, the group is: the lease stays open for as long as it was meant to.
        let (pattern, name) = known.unwrap_or_else(|| (patterns[0], patterns[0].domain().clone()));
        Some(Lease { pattern: pattern.clone(), name, address, expiry: now + left, asked_by: None })
    };
    found.into_iter().filter_map(lease).collect()
}

impl Writes {
    fn open(&mut self, key: GroupAddress, lease: &Lease, now: Instant) {
        // The kernel keeps no element for longer.
        let left = lease.expiry.0.saturating_sub(now.0).min(set::LONGEST);
        let transient = Transient { element: element(key), lifetime: Lifetime(left), name: Some(lease.name.clone()) };
        self.new[Version::of(key.address) as usize].push(transient);
    }
}

fn element(GroupAddress { group, address }: GroupAddress) -> Element {
    let (high, low) = set::halves(group);
    Element::key(Key::default().number(high).number(low).address(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_policy::LeaseStore;
    use namewall_policy::lease::Bounds;

    const NOW: Instant = Instant(Duration::from_secs(100));

    fn at(seconds: u64) -> Instant {
        Instant(Duration::from_secs(seconds))
    }

    fn exact() -> DomainPattern {
        DomainPattern::Exact("example.com".parse().unwrap())
    }

    fn groups(numbers: &[u64]) -> LeaseGroups {
        [(exact(), numbers.to_vec())].into_iter().collect()
    }

    fn lease(last: u8, expiry: Instant) -> Lease {
        let name: DomainName = "example.com".parse().unwrap();
        Lease { pattern: exact(), name, address: IpAddr::from([192, 0, 2, last]), expiry, asked_by: None }
    }

    /// Grants leases, and says what is written for it.
    fn write(store: &mut LeaseStore, leases: &[Lease], groups: &LeaseGroups, now: Instant) -> Writes {
        let change = store.grant(leases, now);
        Grouped { leases: store.table(), groups }.after(&change, now)
    }

    fn seconds(writes: &Writes) -> Vec<u64> {
        writes.new[0].iter().map(|one| one.lifetime.0.as_secs()).collect()
    }

    fn granted() -> (LeaseStore, Vec<Lease>) {
        let mut store = LeaseStore::default();
        let lease = lease(1, at(110));
        assert_eq!(seconds(&write(&mut store, std::slice::from_ref(&lease), &groups(&[1]), NOW)), [10]);
        store.acknowledge();
        (store, vec![lease])
    }

    #[test]
    fn s6_4_a_new_group_does_not_make_a_lease_longer() {
        let (store, _) = granted();
        let (one, two, other) = (groups(&[1]), groups(&[1, 2]), groups(&[3]));
        let leases = store.table();
        assert_eq!(seconds(&Grouped { leases, groups: &two }.since(&one, at(104))), [6]);
        assert!(Grouped { leases, groups: &other }.since(&one, at(110)).new[0].is_empty(), "it is over");
    }

    #[test]
    fn s6_3_what_is_open_long_enough_is_not_written() {
        let (mut store, mut again) = granted();
        let one = groups(&[1]);
        assert!(write(&mut store, &again, &one, at(101)).new[0].is_empty(), "it is there");
        again[0].expiry = at(105);
        assert!(write(&mut store, &again, &one, at(101)).new[0].is_empty(), "and never made shorter");
        again[0].expiry = at(111);
        assert_eq!(seconds(&write(&mut store, &again, &one, at(101))), [10]);
    }

    #[test]
    fn s6_6_what_the_kernel_did_not_take_is_written_again() {
        let (mut store, mut longer) = granted();
        longer[0].expiry = at(120);
        longer.push(lease(2, at(120)));
        for _ in 0..2 {
            assert_eq!(seconds(&write(&mut store, &longer, &groups(&[1]), NOW)), [20, 20]);
            store.take_back();
        }
    }

    #[test]
    fn patterns_that_share_a_group_are_one_element_that_lasts_as_long_as_the_longest() {
        let shared = DomainPattern::Subdomains("com".parse().unwrap());
        let both: LeaseGroups = [(exact(), vec![1]), (shared.clone(), vec![1])].into_iter().collect();
        let mut store = LeaseStore::default();
        let second = Lease { pattern: shared.clone(), ..lease(1, at(130)) };
        assert_eq!(seconds(&write(&mut store, &[lease(1, at(110)), second.clone()], &both, NOW)), [30]);
        store.acknowledge();
        let renewed = [lease(1, at(120))];
        assert!(write(&mut store, &renewed, &both, NOW).new[0].is_empty(), "the other pattern lasts longer");
        store.acknowledge();
        assert_eq!(seconds(&write(&mut store, &[lease(1, at(140))], &both, NOW)), [40]);
    }

    #[test]
    fn s6_5_what_makes_room_is_taken_back_from_the_kernel() {
        let bounds = Bounds { leases: 3, ..Bounds::default() };
        let mut store = LeaseStore::new(LeaseTable::with_bounds(bounds));
        let name =
            |text: &str, last: u8| Lease { name: text.parse().unwrap(), ..lease(last, at(110 + u64::from(last))) };
        let all = [name("a.example.com", 1), name("b.example.com", 1), name("c.example.com", 2)];
        let one = groups(&[1]);
        assert_eq!(write(&mut store, &all, &one, NOW).new[0].len(), 2);
        // The first goes, but the second has its address too.
        assert!(write(&mut store, &[name("d.example.com", 4)], &one, NOW).gone[0].is_empty());
        let writes = write(&mut store, &[name("e.example.com", 5)], &one, NOW);
        assert_eq!(writes.gone[0], [element(GroupAddress { group: 1, address: IpAddr::from([192, 0, 2, 1]) })]);
    }

    #[test]
    fn what_an_earlier_process_opened_is_adopted_with_its_name() {
        let found = |last: u8, seconds, name: Option<&str>| Found {
            group: 1,
            address: IpAddr::from([192, 0, 2, last]),
            left: Duration::from_secs(seconds),
            name: name.map(|name| name.parse().unwrap()),
        };
        let one = groups(&[1, 2]);
        assert_eq!(found_leases(vec![found(1, 7, Some("example.com"))], &one, NOW), [lease(1, at(107))]);
        assert_eq!(found_leases(vec![found(2, 7, Some("of.no.rule"))], &one, NOW), [lease(2, at(107))]);
        let elsewhere = Found { group: 9, ..found(1, 7, None) };
        assert_eq!(found_leases(vec![elsewhere], &one, NOW), []);
        // Only what the kernel has lost is written.
        let (store, _) = granted();
        let (leases, one) = (store.table(), groups(&[1]));
        let beside = |left| Grouped { leases, groups: &one }.beside(&[found(1, left, None)], NOW);
        assert_eq!((beside(7).new[0].len(), beside(10).new[0].len()), (1, 0));
    }
}
