//! Leases as elements of the kernel's table. Which leases there are is decided
//! in a `LeaseStore`; here each becomes an element for every lease group that its
//! pattern opens. A lease group is a list of peers of rules, so several patterns
//! may share one, and an element lasts as long as the longest of them.

mod moving;

pub(crate) use moving::Moving;

use crate::Adoption;
use crate::nft::set::{self, Element, Key, LeaseNote, Lifetime, Passing, Transient, Version};
use namewall_policy::domain::{DomainName, RulePattern};
use namewall_policy::lease::{LeaseChange, Refusal};
use namewall_policy::{Instant, Lease, LeaseRef, LeaseTable, Program};
use rustc_hash::FxHashMap;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

/// Times of the kernel's and of ours that differ by less are the same.
const SAME: Duration = Duration::from_secs(1);

/// Which lease groups each pattern opens.
pub type LeaseGroups = FxHashMap<RulePattern, Vec<u64>>;

/// An address that is open in a lease group. Whoever answers questions chooses the address, so that tables of them have a
/// hash with a secret key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
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
    /// What it was first opened by.
    pub(crate) note: Option<LeaseNote>,
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
        self.replacing(self.groups, change, now)
    }

    /// What must be written because the groups changed, and the leases with them: leases that live on in groups that
    /// are new to their pattern, and those that have no group any more.
    pub(crate) fn replacing(self, before: &LeaseGroups, change: &LeaseChange, now: Instant) -> Writes {
        // To compare the groups of thousands of patterns would take longer than the rest of a grant.
        let (fresh, stale) = match std::ptr::eq(self.groups, before) || self.groups == before {
            true => Default::default(),
            false => (without(self.groups, before), without(before, self.groups)),
        };
        let mut wanted = Grouped { groups: &fresh, ..self }.wanted(now);
        let stale = Grouped { groups: &stale, ..self }.wanted(now);
        let mut gone: HashSet<GroupAddress> = stale.into_keys().collect();
        let mut known = Known { change, before: None };
        for opened in &change.opened {
            let address = opened.lease.address;
            for &group in self.groups.get(&opened.lease.pattern).into_iter().flatten() {
                let key = GroupAddress { group, address };
                let longest = self.longest(key).filter(|longest| longest.expiry > now && !wanted.contains_key(&key));
                let Some(longest) = longest else { continue };
                let is_own = || *longest.pattern == opened.lease.pattern && self.opening(key).nth(1).is_none();
                // Nothing opened it before: so it is with nearly every new lease.
                if opened.before.is_none() && is_own() {
                    wanted.insert(key, longest);
                    continue;
                }
                let until = self.opening(key).filter_map(|lease| known.expiry_before(lease)).max();
                if until.is_none_or(|until| until < longest.expiry) {
                    wanted.insert(key, longest);
                }
            }
        }
        for lease in &change.evicted {
            let groups = [self.groups, before].into_iter().filter_map(|groups| groups.get(&lease.pattern));
            for &group in groups.flatten() {
                let key = GroupAddress { group, address: lease.address };
                // Another name may still open it, for a shorter time.
                match self.longest(key).filter(|longest| longest.expiry > now) {
                    None => _ = gone.insert(key),
                    Some(longest) if longest.expiry < lease.expiry && self.has_group(&lease.pattern, group) => {
                        wanted.insert(key, longest);
                    }
                    Some(_) => {}
                }
            }
        }
        let mut writes = Writes::default();
        sorted(wanted).into_iter().for_each(|(key, lease)| writes.open(key, lease, now));
        let mut gone: Vec<GroupAddress> = gone.into_iter().collect();
        gone.sort_unstable();
        gone.into_iter().for_each(|key| writes.close(key));
        writes
    }

    /// What must be written beside elements of an earlier process, to have the leases and what is taken over of it.
    pub(crate) fn beside(self, found: &[Found], adopted: &'a [Lease], now: Instant) -> Writes {
        let until = |&Found { group, address, left, .. }: &Found| (GroupAddress { group, address }, now + left);
        let there: HashMap<GroupAddress, Instant> = found.iter().map(until).collect();
        let mut wanted = self.wanted(now);
        for lease in adopted {
            self.want(lease.borrowed(), &mut wanted);
        }
        let mut writes = Writes::default();
        let mut gone: Vec<GroupAddress> = there.keys().filter(|key| !wanted.contains_key(key)).copied().collect();
        gone.sort_unstable();
        gone.into_iter().for_each(|key| writes.close(key));
        for (key, lease) in sorted(wanted) {
            // Unlike a renewal, this may shorten an element: no lease lasts for longer than the maximum.
            let is_right = |until: &Instant| (lease.expiry..=lease.expiry + SAME).contains(until);
            if !there.get(&key).is_some_and(is_right) {
                writes.open(key, lease, now);
            }
        }
        writes
    }

    /// For each group and address, the unexpired lease that lasts longest.
    fn wanted(self, now: Instant) -> HashMap<GroupAddress, LeaseRef<'a>> {
        let mut wanted: HashMap<GroupAddress, LeaseRef<'_>> = HashMap::new();
        if self.groups.is_empty() {
            return wanted;
        }
        for lease in self.leases.iter().filter(|lease| lease.expiry > now) {
            self.want(lease, &mut wanted);
        }
        wanted
    }

    fn want(self, lease: LeaseRef<'a>, wanted: &mut HashMap<GroupAddress, LeaseRef<'a>>) {
        for &group in self.groups.get(lease.pattern).into_iter().flatten() {
            let one = wanted.entry(GroupAddress { group, address: lease.address }).or_insert(lease);
            if one.expiry < lease.expiry {
                *one = lease;
            }
        }
    }

    /// The leases that open the address in the group; some may have expired.
    fn opening(self, GroupAddress { group, address }: GroupAddress) -> impl Iterator<Item = LeaseRef<'a>> {
        let opens = move |lease: &LeaseRef<'_>| self.groups.get(lease.pattern).is_some_and(|all| all.contains(&group));
        self.leases.at(address).filter(opens)
    }

    fn has_group(self, pattern: &RulePattern, group: u64) -> bool {
        self.groups.get(pattern).is_some_and(|groups| groups.contains(&group))
    }

    fn longest(self, key: GroupAddress) -> Option<LeaseRef<'a>> {
        self.opening(key).max_by_key(|lease| lease.expiry)
    }
}

/// In an order that does not depend on the secret of a hash: the same change is always written in the same way.
fn sorted(wanted: HashMap<GroupAddress, LeaseRef<'_>>) -> Vec<(GroupAddress, LeaseRef<'_>)> {
    let mut wanted: Vec<_> = wanted.into_iter().collect();
    wanted.sort_unstable_by_key(|(key, _)| *key);
    wanted
}

/// What there was before a change. It is worked out when it is first asked for.
struct Known<'a> {
    change: &'a LeaseChange,
    before: Option<HashMap<(&'a RulePattern, IpAddr), Option<Instant>>>,
}

impl Known<'_> {
    /// Until when the pattern of a lease opened its address before the change.
    fn expiry_before(&mut self, lease: LeaseRef<'_>) -> Option<Instant> {
        let before = self.before.get_or_insert_with(|| {
            let mut before = HashMap::new();
            for opened in &self.change.opened {
                // A batch may open an address twice; only the first says what there was before the batch.
                before.entry((&opened.lease.pattern, opened.lease.address)).or_insert(opened.before);
            }
            before
        });
        before.get(&(lease.pattern, lease.address)).map_or(Some(lease.expiry), |before| *before)
    }
}

/// The groups of either, by pattern.
pub(crate) fn union(one: &LeaseGroups, other: &LeaseGroups) -> LeaseGroups {
    let mut all = one.clone();
    for (pattern, groups) in without(other, one) {
        all.entry(pattern).or_default().extend(groups);
    }
    all
}

/// How many elements these groups have at most.
pub(crate) fn most_elements(groups: &LeaseGroups, leases: &LeaseTable) -> usize {
    groups.values().map(Vec::len).max().unwrap_or_default().saturating_mul(leases.len())
}

/// The groups of one that the other does not have, by pattern.
pub(crate) fn without(one: &LeaseGroups, other: &LeaseGroups) -> LeaseGroups {
    let mut left = LeaseGroups::default();
    for (pattern, groups) in one {
        let is_left = |group: &u64| !other.get(pattern).is_some_and(|other| other.contains(group));
        let groups: Vec<u64> = groups.iter().copied().filter(is_left).collect();
        if !groups.is_empty() {
            left.insert(pattern.clone(), groups);
        }
    }
    left
}

/// What is made of leases that an earlier process left in the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adopting<'a> {
    pub(crate) program: &'a Program,
    pub(crate) groups: &'a LeaseGroups,
    pub(crate) rules: Adoption<'a>,
    pub(crate) now: Instant,
}

/// Leases of an earlier process.
#[derive(Default, Debug)]
pub(crate) struct Adopted {
    pub(crate) leases: Vec<Lease>,
    pub(crate) revoked: Vec<(Lease, Refusal)>,
}

impl Adopting<'_> {
    /// A lease carries over to every pattern that allows its name (S6.3), unless the pattern has a lease of that name and
    /// address itself, which keeps its own time. Where the name is not known, the group is: the lease stays open for as
    /// long as it was meant to.
    pub(crate) fn adopt(self, found: &[Found]) -> Adopted {
        let mut by_group: FxHashMap<u64, Vec<&RulePattern>> = FxHashMap::default();
        for (pattern, groups) in self.groups {
            groups.iter().for_each(|group| by_group.entry(*group).or_default().push(pattern));
        }
        let patterns = &self.program.patterns;
        let named = found.iter().filter_map(|found| Some((found.group, found.address, &found.note.as_ref()?.name)));
        let named: HashSet<(u64, IpAddr, &DomainName)> = named.collect();
        let mut adopted = Adopted::default();
        for Found { group, address, left, note } in found {
            let matching = |name: &DomainName| -> Vec<&RulePattern> {
                patterns.matching(name).into_iter().map(|id| patterns.get(id)).collect()
            };
            let known = note.as_ref().map(|note| (matching(&note.name), note.name.clone()));
            let known = known.filter(|(all, _)| !all.is_empty());
            let asked_by = note.as_ref().and_then(|note| note.asked_by);
            let of_group = || by_group.get(group).map(|all| (vec![all[0]], all[0].names.domain().clone()));
            let Some((patterns, name)) = known.or_else(of_group) else { continue };
            let refusal = self.rules.never_leased.refusal(self.program, &name, *address);
            let expiry = self.now + (*left).min(self.rules.longest);
            let is_denied = by_group.get(group).is_some_and(|all| all.iter().any(|pattern| pattern.denies()));
            for pattern in patterns {
                let groups = self.groups.get(pattern).map(Vec::as_slice).unwrap_or_default();
                let is_own = groups.contains(group);
                if !is_own && groups.iter().any(|other| named.contains(&(*other, *address, &name))) {
                    continue;
                }
                let (pattern, name) = (pattern.clone(), name.clone());
                let lease = Lease { pattern, name, address: *address, expiry, asked_by };
                match refusal.filter(|_| !lease.pattern.denies()) {
                    // A lease of a rule that denies opened nothing.
                    Some(_) if is_denied => {}
                    Some(refusal) => adopted.revoked.push((lease, refusal)),
                    None => adopted.leases.push(lease),
                }
            }
        }
        adopted
    }
}

impl Writes {
    fn open(&mut self, key: GroupAddress, lease: LeaseRef<'_>, now: Instant) {
        // The kernel keeps no element for longer.
        let left = lease.expiry.0.saturating_sub(now.0).min(set::LONGEST);
        let note = Some(LeaseNote { name: lease.name.clone(), asked_by: lease.asked_by });
        let transient = Transient { element: element(key), lifetime: Lifetime(left), note };
        self.new[Version::of(key.address) as usize].push(transient);
    }

    fn close(&mut self, key: GroupAddress) {
        self.gone[Version::of(key.address) as usize].push(element(key));
    }

    pub(crate) fn closes(&self) -> bool {
        self.gone.iter().any(|gone| !gone.is_empty())
    }
}

fn element(GroupAddress { group, address }: GroupAddress) -> Element {
    let (high, low) = set::halves(group);
    Element::key(Key::default().number(high).number(low).address(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, Sample, WithRules as _};
    use namewall_policy::LeaseStore;
    use namewall_policy::domain::DomainPattern;
    use namewall_policy::lease::Bounds;
    use namewall_policy::model::{Action, Direction, Peer, Peers, PolicyKind, Ports};

    const NOW: Instant = Instant(Duration::from_secs(100));

    fn at(seconds: u64) -> Instant {
        Instant(Duration::from_secs(seconds))
    }

    fn exact() -> RulePattern {
        RulePattern::allow(DomainPattern::Exact("example.com".parse().unwrap()))
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
        let since = |groups, now| Grouped { leases, groups }.replacing(&one, &LeaseChange::default(), now);
        assert_eq!(seconds(&since(&two, at(104))), [6]);
        assert!(since(&other, at(110)).new[0].is_empty(), "it is over");
    }

    #[test]
    fn s6_3_a_lease_whose_rule_is_gone_is_taken_out_of_the_kernel() {
        let (store, _) = granted();
        let (both, one, none) = (groups(&[1, 2]), groups(&[1]), LeaseGroups::default());
        let leases = store.table();
        let gone = |groups| Grouped { leases, groups }.replacing(&both, &LeaseChange::default(), NOW).gone;
        let address = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(gone(&one), [vec![element(GroupAddress { group: 2, address })], vec![]]);
        assert_eq!(gone(&none)[0].len(), 2);
        assert_eq!(gone(&both), [vec![], vec![]]);
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
    fn s6_3_an_address_ends_with_the_longest_lease_that_is_left() {
        let mut store = LeaseStore::new(LeaseTable::with_bounds(Bounds { leases: 4, ..Bounds::default() }));
        let subdomains = RulePattern::allow(DomainPattern::Subdomains("example.com".parse().unwrap()));
        let one: LeaseGroups = [(subdomains.clone(), vec![1])].into_iter().collect();
        let mut grant = |client: u8, name: &str, last: u8, expiry| {
            let (pattern, name) = (subdomains.clone(), name.parse().unwrap());
            let asked_by = Some(IpAddr::from([10, 0, 0, client]));
            let lease = Lease { pattern, name, asked_by, ..lease(last, at(expiry)) };
            let writes = write(&mut store, &[lease], &one, NOW);
            assert!(writes.gone[0].is_empty());
            let mut seconds = seconds(&writes);
            seconds.sort_unstable();
            seconds
        };
        assert_eq!(grant(2, "z.example.com", 1, 120), [20]);
        assert_eq!(grant(1, "x.example.com", 1, 150), [50], "two names at one address");
        assert_eq!(grant(1, "y.example.com", 2, 160), [60]);
        assert_eq!(grant(1, "v.example.com", 3, 170), [70]);
        // The first client has most, and gives up the name that kept the address open longest.
        assert_eq!(grant(2, "w.example.com", 4, 200), [20, 100]);
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
        let shared = RulePattern::allow(DomainPattern::Subdomains("com".parse().unwrap()));
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
            note: name.map(|name| LeaseNote { name: name.parse().unwrap(), asked_by: None }),
        };
        let one = groups(&[1, 2]);
        let (never_leased, program) = (sample::never_leased(), program(&[exact()]));
        let rules = Adoption { never_leased: &never_leased, longest: Duration::from_secs(3_605) };
        let adopt = |found| Adopting { program: &program, groups: &one, rules, now: NOW }.adopt(&[found]).leases;
        assert_eq!(adopt(found(1, 7, Some("example.com"))), [lease(1, at(107))]);
        assert_eq!(adopt(found(2, 7, Some("of.no.rule"))), [lease(2, at(107))]);
        assert_eq!(adopt(Found { group: 9, ..found(1, 7, None) }), []);
        assert_eq!(adopt(Found { group: 9, ..found(1, 7, Some("example.com")) }), [lease(1, at(107))], "S6.3");
        assert_eq!(adopt(found(1, 2_000_000, Some("example.com"))), [lease(1, at(3_705))], "S6.3");
        // Only what the kernel has lost is written.
        let (store, _) = granted();
        let (leases, one) = (store.table(), groups(&[1]));
        let beside = |left| Grouped { leases, groups: &one }.beside(&[found(1, left, None)], &[], NOW);
        assert_eq!((beside(7).new[0].len(), beside(10).new[0].len(), beside(2_000).new[0].len()), (1, 0, 1));
        assert_eq!(
            (beside(7).closes(), Grouped { leases, groups: &one }.beside(&[found(3, 7, None)], &[], NOW).closes()),
            (false, true)
        );
    }

    /// A Program with a rule of these patterns.
    fn program(patterns: &[RulePattern]) -> Program {
        let peers = patterns.iter().map(|pattern| Peer::Domain(pattern.names.clone())).collect();
        let clauses = sample::clauses(Peers::Listed(peers), Ports::Any);
        let names = sample::policy(PolicyKind::NetworkPolicy, "names", "web");
        let pods = Sample::default().pod("web", &["10.0.0.1"], "n1").pod("db", &["10.0.0.2"], "n1");
        pods.policy(names.rule(Direction::Egress, Action::Allow, clauses)).program()
    }

    /// One name may be open for two patterns until two times: the pattern of a new rule took over a lease that another
    /// pattern has renewed since.
    #[test]
    fn s6_3_a_table_with_a_name_that_is_open_for_different_times_is_adopted_as_it_is() {
        let wide = RulePattern::allow(DomainPattern::Subdomains("com".parse().unwrap()));
        let (never_leased, program) = (sample::never_leased(), program(&[exact(), wide.clone()]));
        let rules = Adoption { never_leased: &never_leased, longest: Duration::from_secs(3_605) };
        let mut both = groups(&[1]);
        both.insert(wide.clone(), vec![2]);
        let found = |group, seconds| Found {
            group,
            address: IpAddr::from([192, 0, 2, 1]),
            left: Duration::from_secs(seconds),
            note: Some(LeaseNote { name: "example.com".parse().unwrap(), asked_by: None }),
        };
        let table = [found(1, 1_800), found(2, 3_600)];
        let adopted = Adopting { program: &program, groups: &both, rules, now: NOW }.adopt(&table).leases;
        let renewed = Lease { pattern: wide, ..lease(1, at(3_700)) };
        assert_eq!(adopted, [lease(1, at(1_900)), renewed.clone()]);
        let beside = |found: &[Found], adopted: &[Lease]| {
            Grouped { leases: &LeaseTable::default(), groups: &both }.beside(found, adopted, NOW)
        };
        let writes = beside(&table, &adopted);
        assert!(writes.new.iter().all(Vec::is_empty) && !writes.closes(), "nothing is written");
        // To a pattern without it the name carries over.
        let adopted = Adopting { program: &program, groups: &both, rules, now: NOW }.adopt(&table[1..]).leases;
        assert_eq!(adopted, [lease(1, at(3_700)), renewed]);
        assert_eq!(beside(&table[1..], &adopted).new[0].len(), 1);
    }

    #[test]
    fn s6_8_what_is_never_leased_is_not_adopted_and_goes_from_the_kernel() {
        let (never_leased, program, one) = (sample::never_leased(), program(&[exact()]), groups(&[1]));
        let rules = Adoption { never_leased: &never_leased, longest: Duration::from_secs(3_605) };
        let note = Some(LeaseNote { name: "example.com".parse().unwrap(), asked_by: None });
        let left = Duration::from_secs(7);
        let pod = [Found { group: 1, address: IpAddr::from([10, 0, 0, 2]), left, note }];
        let adopted = Adopting { program: &program, groups: &one, rules, now: NOW }.adopt(&pod);
        assert!(adopted.leases.is_empty() && matches!(adopted.revoked.as_slice(), [(_, Refusal::Pod)]), "{adopted:?}");
        let writes = Grouped { leases: &LeaseTable::default(), groups: &one }.beside(&pod, &adopted.leases, NOW);
        assert_eq!(writes.gone[0], [element(GroupAddress { group: 1, address: pod[0].address })]);
    }
}
