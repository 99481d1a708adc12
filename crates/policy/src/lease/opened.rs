//! What opens an address: by each pattern, however many of its names. Most
//! addresses have one name of one pattern; thousands of names may share one.

use super::end::Moment;
use super::slab::{Indexed, Keyed, Slot};
use rustc_hash::FxHashMap;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;

/// A name that keeps an address open, and until when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Opening {
    pub(super) until: Moment,
    pub(super) name: Slot,
}

/// Stands for the name of an address that is found among the shared ones.
const SHARED: Slot = Slot::MAX;

/// An address that is open.
#[derive(Clone, Debug)]
struct OpenAt {
    address: IpAddr,
    by: Opening,
    next: Slot,
}

impl Keyed for OpenAt {
    fn hash(&self, secret: &RandomState) -> u64 {
        secret.hash_one(self.address)
    }

    fn next(&mut self) -> &mut Slot {
        &mut self.next
    }

    fn next_slot(&self) -> Slot {
        self.next
    }
}

/// The addresses that are open.
#[derive(Clone, Default, Debug)]
pub(super) struct Openings {
    addresses: Indexed<OpenAt>,
    /// Those that more than one name has opened, with a list of patterns each.
    shared: HashMap<IpAddr, Vec<Opened>>,
}

/// What a pattern opens at one address.
#[derive(Clone, Debug)]
struct Opened {
    pattern: Slot,
    /// By the name that keeps it open longest; of several that do, the one that was granted last.
    longest: Opening,
    /// By the other names.
    others: Option<Box<FxHashMap<Slot, Moment>>>,
}

impl Openings {
    pub(super) fn len(&self) -> usize {
        self.addresses.len()
    }

    pub(super) fn make_room_for(&mut self, most: usize) {
        self.addresses.make_room_for(most);
    }

    fn find(&self, address: IpAddr) -> Option<Slot> {
        self.addresses.find(address, |one| one.address == address)
    }

    fn by(&self, address: IpAddr) -> Option<Opening> {
        self.addresses.get(self.find(address)?).map(|one| one.by)
    }

    fn by_mut(&mut self, address: IpAddr) -> Option<&mut Opening> {
        let slot = self.find(address)?;
        self.addresses.get_mut(slot).map(|one| &mut one.by)
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.find(address).is_some()
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().map(|(_, one)| one.address)
    }

    /// For each pattern that opens the address, the name that does so longest.
    pub(super) fn at(&self, address: IpAddr) -> impl Iterator<Item = Opening> {
        self.longest(address, self.by(address))
    }

    /// The same for every address.
    pub(super) fn iter(&self) -> impl Iterator<Item = (IpAddr, Opening)> {
        self.addresses.iter().flat_map(|(_, OpenAt { address, by, .. })| {
            self.longest(*address, Some(*by)).map(|opening| (*address, opening))
        })
    }

    fn longest(&self, address: IpAddr, one: Option<Opening>) -> impl Iterator<Item = Opening> {
        let is_shared = one.is_some_and(|one| one.name == SHARED);
        let shared = is_shared.then(|| self.shared.get(&address)).flatten();
        let shared = shared.into_iter().flatten().map(|opened| opened.longest);
        one.filter(|_| !is_shared).into_iter().chain(shared)
    }

    /// The names of a pattern that open the address.
    pub(super) fn names_at(
        &self,
        address: IpAddr,
        pattern: Slot,
        patterns: impl Fn(Slot) -> Option<Slot>,
    ) -> Vec<Slot> {
        match self.by(address) {
            None => Vec::new(),
            Some(one) if one.name != SHARED => {
                Some(one.name).filter(|name| patterns(*name) == Some(pattern)).into_iter().collect()
            }
            Some(_) => {
                let opened = self.shared.get(&address).into_iter().flatten().filter(|one| one.pattern == pattern);
                opened
                    .flat_map(|one| {
                        one.others.iter().flat_map(|others| others.keys().copied()).chain([one.longest.name])
                    })
                    .collect()
            }
        }
    }

    /// A name opens the address, or goes on to for longer. `patterns` says which pattern a name is of.
    pub(super) fn open(&mut self, address: IpAddr, new: Opening, patterns: impl Fn(Slot) -> Option<Slot>) {
        let Some(one) = self.by_mut(address) else {
            self.addresses.insert(OpenAt { address, by: new, next: 0 });
            return;
        };
        if one.name == new.name {
            one.until = one.until.max(new.until);
            return;
        }
        let first = std::mem::replace(one, Opening { name: SHARED, ..*one });
        let shared = self.shared.entry(address).or_default();
        if first.name != SHARED {
            shared.extend(patterns(first.name).map(|pattern| Opened { pattern, longest: first, others: None }));
        }
        let Some(pattern) = patterns(new.name) else { return };
        match shared.iter_mut().find(|opened| opened.pattern == pattern) {
            Some(opened) => opened.grant(new),
            None => shared.push(Opened { pattern, longest: new, others: None }),
        }
    }

    /// A name keeps the address open until then only.
    pub(super) fn shorten(&mut self, address: IpAddr, to: Opening) {
        match self.by_mut(address) {
            Some(one) if one.name == to.name => one.until = to.until,
            Some(one) if one.name == SHARED => {
                let all = self.shared.get_mut(&address);
                all.into_iter().flatten().for_each(|opened| opened.shorten(to));
            }
            _ => {}
        }
    }

    /// A name no longer keeps the address open. True if none is left.
    pub(super) fn close(&mut self, address: IpAddr, name: Slot) -> bool {
        let Some(slot) = self.find(address) else { return false };
        let is_left = match self.addresses.get(slot).map(|one| one.by) {
            None => return false,
            Some(one) if one.name == SHARED => {
                let shared = self.shared.get_mut(&address);
                shared.is_some_and(|shared| {
                    shared.retain_mut(|opened| opened.close(name));
                    !shared.is_empty()
                })
            }
            Some(one) => one.name != name,
        };
        if !is_left {
            self.addresses.remove(slot);
            self.shared.remove(&address);
        }
        !is_left
    }
}

impl Opened {
    /// A name of the pattern has opened it, or goes on to for longer.
    fn grant(&mut self, new: Opening) {
        if new.name == self.longest.name {
            self.longest.until = self.longest.until.max(new.until);
            return;
        }
        // Names that end at once go in the order in which they came. The last to go stands first here, so that few have
        // to look for the next.
        if new.until >= self.longest.until {
            self.put_first(new);
            return;
        }
        let known = self.others.get_or_insert_default().entry(new.name).or_insert(new.until);
        *known = new.until.max(*known);
    }

    fn put_first(&mut self, first: Opening) {
        let others = self.others.get_or_insert_default();
        others.remove(&first.name);
        let Opening { until, name } = std::mem::replace(&mut self.longest, first);
        others.insert(name, until);
    }

    fn shorten(&mut self, to: Opening) {
        if to.name != self.longest.name {
            self.others.iter_mut().filter_map(|others| others.get_mut(&to.name)).for_each(|until| *until = to.until);
            return;
        }
        self.longest.until = to.until;
        if let Some(next) = self.next_longest().filter(|next| next.until > to.until) {
            self.put_first(next);
        }
    }

    /// A name no longer keeps it open. False if none is left.
    fn close(&mut self, name: Slot) -> bool {
        if name == self.longest.name {
            let Some(next) = self.next_longest() else { return false };
            self.put_first(next);
        }
        self.others.iter_mut().for_each(|others| _ = others.remove(&name));
        true
    }

    fn next_longest(&self) -> Option<Opening> {
        let others = self.others.as_ref()?.iter();
        others.max_by_key(|(_, until)| **until).map(|(&name, &until)| Opening { until, name })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Instant;
    use super::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const PATTERN: Slot = 7;

    fn opening(name: Slot, seconds: u64) -> Opening {
        Opening { until: Instant(Duration::from_secs(seconds)).into(), name }
    }

    fn of_one(_: Slot) -> Option<Slot> {
        Some(PATTERN)
    }

    /// Whoever answers questions chooses the addresses, and names too: none of them may make look-ups slow.
    #[test]
    fn s6_5_addresses_that_are_near_each_other_are_found_at_once() {
        let numbers = || 0..50_000_u32;
        let v4 = numbers().map(|number| IpAddr::V4((0x0b00_0000 + number).into()));
        let first = std::net::Ipv6Addr::new(0x2600, 0, 0, 0, 0, 0, 0, 0).to_bits();
        let low = numbers().map(|number| IpAddr::V6((first + u128::from(number)).into()));
        let high = numbers().map(|number| IpAddr::V6((first + (u128::from(number) << 64)).into()));
        for addresses in [v4.collect::<Vec<_>>(), low.collect(), high.collect()] {
            let mut openings = Openings::default();
            addresses.iter().for_each(|&address| openings.open(address, opening(1, 1), of_one));
            let longest = openings.addresses.longest_chain();
            assert!(longest <= 16, "{longest} addresses have one chain, as has {}", addresses[0]);
        }
    }

    #[test]
    fn s6_3_the_longest_lease_is_that_of_a_name_that_is_left() {
        // All orders of grants and ends of three names, some of which end at once.
        for choice in 0..4_u64.pow(8) {
            let mut expected: BTreeMap<Slot, u64> = BTreeMap::new();
            let mut openings = Openings::default();
            for step in 0..8 {
                let number = choice / 4_u64.pow(step) % 4;
                let name = (number % 3) as Slot;
                if number == 3 || (step > 4 && expected.contains_key(&name)) {
                    if expected.remove(&name).is_some() {
                        assert_eq!(openings.close(ADDRESS, name), expected.is_empty(), "{choice}");
                    }
                } else {
                    let expiry = 10 + u64::from(step) * (number % 2);
                    let known = expected.entry(name).or_insert(expiry);
                    *known = expiry.max(*known);
                    openings.open(ADDRESS, opening(name, expiry), of_one);
                }
                let longest: Vec<Opening> = openings.at(ADDRESS).collect();
                let until = expected.values().max();
                assert_eq!(longest.first().map(|one| one.until), until.map(|seconds| opening(0, *seconds).until));
                assert!(longest.len() <= 1 && longest.iter().all(|one| expected.contains_key(&one.name)), "{choice}");
                let mut names = openings.names_at(ADDRESS, PATTERN, of_one);
                names.sort_unstable();
                assert!(names.iter().eq(expected.keys()), "{choice}");
                assert_eq!(openings.contains(ADDRESS), !expected.is_empty());
            }
        }
    }

    #[test]
    fn a_lease_that_is_taken_back_leaves_the_next_longest() {
        let mut openings = Openings::default();
        for one in [opening(1, 10), opening(2, 20), opening(1, 30)] {
            openings.open(ADDRESS, one, of_one);
        }
        openings.shorten(ADDRESS, opening(1, 10));
        assert_eq!(openings.at(ADDRESS).collect::<Vec<_>>(), [opening(2, 20)]);
        assert!(!openings.close(ADDRESS, 2));
        assert_eq!(openings.at(ADDRESS).collect::<Vec<_>>(), [opening(1, 10)]);
        assert!(openings.close(ADDRESS, 1) && openings.len() == 0);
    }

    #[test]
    fn s6_4_every_pattern_keeps_an_address_open_for_itself() {
        let (mut openings, patterns) = (Openings::default(), |name: Slot| Some(name % 2));
        for one in [opening(1, 10), opening(2, 20), opening(4, 15), opening(3, 5)] {
            openings.open(ADDRESS, one, patterns);
        }
        assert_eq!(openings.at(ADDRESS).collect::<Vec<_>>(), [opening(1, 10), opening(2, 20)]);
        assert!(!openings.close(ADDRESS, 1) && !openings.close(ADDRESS, 2));
        assert_eq!(openings.at(ADDRESS).collect::<Vec<_>>(), [opening(3, 5), opening(4, 15)]);
        assert_eq!(openings.names_at(ADDRESS, 0, patterns), [4]);
        assert!(!openings.close(ADDRESS, 3) && openings.close(ADDRESS, 4));
        assert!(openings.shared.is_empty());
    }
}
