//! Leases that had to make room before their time. Their addresses are closed, but
//! connections that they opened go on (S6.4). Each is counted to the client that
//! asked for it, and where there is no room, the client with the most gives way
//! with its oldest.

use super::Lease;
use super::names::Client;
use super::slab::{Slab, Slot};
use crate::domain::RulePattern;
use rustc_hash::FxHashMap;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// So many leases are remembered.
const MOST: usize = 65_536;
/// More than one gives way at once, since the client with the most is looked for among all.
const FORGOTTEN_AT_ONCE: usize = 100;

#[derive(Debug)]
pub(super) struct Evicted {
    leases: Slab<EvictedLease>,
    /// The last of each address; the others follow it. The hash has a secret key, since upstreams choose addresses.
    last_at: HashMap<IpAddr, Slot>,
    /// Those of each client, as they came.
    of_clients: FxHashMap<Client, VecDeque<Slot>>,
    most: usize,
}

#[derive(Debug)]
struct EvictedLease {
    address: IpAddr,
    client: Client,
    pattern: RulePattern,
    /// The next one of the address.
    next: Option<Slot>,
}

impl Default for Evicted {
    fn default() -> Self {
        Self::with_room(MOST)
    }
}

impl Evicted {
    fn with_room(most: usize) -> Self {
        let (last_at, of_clients) = (HashMap::default(), FxHashMap::default());
        Self { leases: Slab::default(), last_at, of_clients, most }
    }

    pub(super) fn extend(&mut self, leases: &[Lease]) {
        for Lease { pattern, address, asked_by, .. } in leases {
            if self.all_at(*address).any(|known| known.client == *asked_by && known.pattern == *pattern) {
                continue;
            }
            if self.leases.len() >= self.most {
                self.make_room();
            }
            let next = self.last_at.get(address).copied();
            let evicted = EvictedLease { address: *address, client: *asked_by, pattern: pattern.clone(), next };
            let slot = self.leases.insert(evicted);
            self.last_at.insert(*address, slot);
            self.of_clients.entry(*asked_by).or_default().push_back(slot);
        }
    }

    /// The patterns of the leases of an address, some of them more than once.
    pub(super) fn at(&self, address: IpAddr) -> impl Iterator<Item = &RulePattern> {
        self.all_at(address).map(|lease| &lease.pattern)
    }

    fn all_at(&self, address: IpAddr) -> impl Iterator<Item = &EvictedLease> {
        let last = self.last_at.get(&address).and_then(|slot| self.leases.get(*slot));
        std::iter::successors(last, |lease| self.leases.get(lease.next?))
    }

    pub(super) fn keep_only(&mut self, is_kept: impl Fn(IpAddr, &RulePattern) -> bool) {
        let is_gone = |lease: &EvictedLease| !is_kept(lease.address, &lease.pattern);
        let gone: Vec<Slot> = self.leases.iter().filter(|(_, lease)| is_gone(lease)).map(|(slot, _)| slot).collect();
        if gone.is_empty() {
            return;
        }
        gone.into_iter().for_each(|slot| self.forget(slot));
        self.of_clients.retain(|_, own| {
            own.retain(|slot| self.leases.get(*slot).is_some());
            !own.is_empty()
        });
    }

    /// The client with the most forgets its oldest: one, or what it has more than the next client.
    fn make_room(&mut self) {
        let mut sizes: Vec<usize> = self.of_clients.values().map(VecDeque::len).collect();
        sizes.sort_unstable();
        let second = sizes.iter().rev().nth(1).copied().unwrap_or(0);
        let largest = self.of_clients.iter().max_by_key(|(client, own)| (own.len(), **client));
        let Some((client, count)) = largest.map(|(client, own)| (*client, own.len())) else { return };
        let surplus = count.saturating_sub(second).clamp(1, FORGOTTEN_AT_ONCE).min(count);
        let Some(own) = self.of_clients.get_mut(&client) else { return };
        let oldest: Vec<Slot> = own.drain(..surplus).collect();
        if own.is_empty() {
            self.of_clients.remove(&client);
        }
        oldest.into_iter().for_each(|slot| self.forget(slot));
    }

    /// Takes a lease out of those of its address. Its client's list is the caller's.
    fn forget(&mut self, slot: Slot) {
        let Some(EvictedLease { address, next, .. }) = self.leases.remove(slot) else { return };
        let Some(last) = self.last_at.get_mut(&address) else { return };
        if *last == slot {
            match next {
                Some(next) => *last = next,
                None => drop(self.last_at.remove(&address)),
            }
            return;
        }
        let mut at = *last;
        while let Some(lease) = self.leases.get_mut(at) {
            match lease.next {
                Some(after) if after == slot => {
                    lease.next = next;
                    return;
                }
                Some(after) => at = after,
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::DomainPattern;
    use crate::lease::Instant;
    use std::net::Ipv4Addr;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    fn lease_of(client: u8, number: u32) -> Lease {
        let domain: crate::domain::DomainName = "example.com".parse().expect("a name");
        let pattern = RulePattern::allow(DomainPattern::Exact(domain.clone()));
        let asked_by = Some(IpAddr::from([10, 0, 0, client]));
        Lease { pattern, name: domain, address: address(number), expiry: Instant::default(), asked_by }
    }

    /// Each lease is in the list of its client and in that of its address, and nowhere else.
    fn check(evicted: &Evicted) {
        let listed: usize = evicted.of_clients.values().map(VecDeque::len).sum();
        let found: usize = evicted.last_at.keys().map(|address| evicted.all_at(*address).count()).sum();
        assert_eq!((listed, found), (evicted.leases.len(), evicted.leases.len()));
        assert!(evicted.leases.len() <= evicted.most);
        assert!(evicted.of_clients.values().all(|own| !own.is_empty()));
        for (client, own) in &evicted.of_clients {
            assert!(own.iter().all(|slot| evicted.leases.get(*slot).is_some_and(|lease| lease.client == *client)));
        }
    }

    fn count(evicted: &Evicted, client: u8) -> usize {
        evicted.of_clients.get(&Some(IpAddr::from([10, 0, 0, client]))).map_or(0, VecDeque::len)
    }

    #[test]
    fn s6_5_a_flood_of_evicted_leases_forgets_its_own_oldest() {
        let mut evicted = Evicted::default();
        evicted.extend(&[lease_of(1, 0), lease_of(1, 1)]);
        // The flood has an address of the other client, too.
        (1..=MOST as u32).for_each(|number| evicted.extend(&[lease_of(2, number), lease_of(2, number)]));
        check(&evicted);
        assert_eq!(count(&evicted, 1), 2);
        assert_eq!((evicted.at(address(0)).count(), evicted.at(address(1)).count()), (1, 1), "the flood's is gone");
        assert_eq!(evicted.at(address(2)).count(), 0, "the oldest");
        assert_eq!(evicted.at(address(MOST as u32)).count(), 1, "the newest");
        assert!(evicted.leases.len() > MOST - FORGOTTEN_AT_ONCE);
        evicted.keep_only(|one, _| one == address(MOST as u32) || one == address(1));
        check(&evicted);
        assert_eq!((evicted.leases.len(), count(&evicted, 1)), (2, 1));
    }

    #[test]
    fn clients_with_as_much_give_way_by_turns() {
        let mut evicted = Evicted::with_room(10);
        for number in 0..100 {
            for client in 1..=3 {
                evicted.extend(&[lease_of(client, number)]);
                check(&evicted);
            }
        }
        let counts: Vec<usize> = (1..=3).map(|client| count(&evicted, client)).collect();
        assert!(counts.iter().all(|count| (3..=4).contains(count)), "{counts:?}");
        assert_eq!(evicted.at(address(99)).count(), 3, "one for each client");
        assert!(
            (1..=3).all(|client| evicted.all_at(address(99)).any(|one| one.client == lease_of(client, 0).asked_by))
        );
    }

    #[test]
    fn a_lease_alone_in_its_room_gives_way_to_the_next() {
        let mut evicted = Evicted::with_room(1);
        evicted.extend(&[lease_of(1, 1), lease_of(2, 2)]);
        check(&evicted);
        assert_eq!((evicted.at(address(1)).count(), evicted.at(address(2)).count()), (0, 1));
    }
}
