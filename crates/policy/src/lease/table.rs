//! The leases there are, found by address, within bounds that no client can
//! break for the others (S6.5).
//!
//! Leases are counted to the client that asked, and within it to the pattern. Where
//! there is no room for one more, the client with the most leases gives up the name
//! that ends soonest; a name that another client has asked for too is counted to
//! that one instead. So a flood evicts its own, and no name that others use.
//!
//! A table has hundreds of thousands of leases, so names and patterns are numbers
//! in it: every name is kept once, and what is open at an address is told by its
//! number.

mod evict;
mod view;

pub use view::Walk;

use super::end::LeaseEnd;
use super::names::{AccountKey, Asked, Client, Named, Names, OpenAddress, Place};
use super::opened::{Opening, Openings};
use super::slab::{Indexed, Slab, Slot};
use super::{Instant, Lease, carried};
use crate::addr::Cidr;
use crate::domain::{DomainName, RulePattern};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much is kept (S6.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    pub addresses_a_name: usize,
    pub names_a_pattern: usize,
    /// In all.
    pub leases: usize,
}

impl Bounds {
    /// Every name can have so many addresses, whatever is set.
    pub const LEAST_ADDRESSES: usize = 100;
}

impl Default for Bounds {
    fn default() -> Self {
        Self { addresses_a_name: 1_000, names_a_pattern: 100_000, leases: 200_000 }
    }
}

/// Leases that had to go before their time, by the bound that was hit.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Evictions {
    pub addresses_a_name: u64,
    pub names_a_pattern: u64,
    pub leases: u64,
}

/// What there was before a grant.
#[derive(Clone, Debug)]
pub(super) struct Before {
    /// When the lease was to end; None if it was not there.
    pub(super) expiry: Option<Instant>,
    /// Until when the pattern opened the address, by whichever name.
    pub(super) longest: Option<Instant>,
}

/// A table that has become so large becomes larger.
const LARGE: usize = 4_096;

#[derive(Clone, Default, Debug)]
pub struct LeaseTable {
    bounds: Bounds,
    openings: Openings,
    names: Indexed<Named>,
    patterns: FxHashMap<RulePattern, Slot>,
    of_patterns: Slab<Names>,
    count: usize,
    /// How many grants there have been.
    grants: u64,
    /// How many of them opened an address for a name that it was not open for.
    news: u64,
    evictions: Evictions,
    /// How often one has ended, or was taken back.
    losses: Arc<AtomicU64>,
    /// How many leases each client has, of all patterns.
    clients: FxHashMap<IpAddr, usize>,
    /// The account that was the largest when it was last looked for, and how large its holder was.
    heaviest: Option<(AccountKey, usize)>,
    /// The prefixes of translators in this network.
    translators: Vec<Cidr>,
    /// The IPv6 addresses among those that are open that carry an IPv4 address, by that.
    carriers: HashMap<Ipv4Addr, Vec<IpAddr>>,
}

/// What has just come, and does not go for it.
#[derive(Clone, Copy)]
struct Newest {
    name: Slot,
    address: IpAddr,
}

fn give_back(clients: &mut FxHashMap<IpAddr, usize>, client: Client, leases: usize) {
    let Some(client) = client else { return };
    if let Some(count) = clients.get_mut(&client) {
        *count -= leases;
        if *count == 0 {
            clients.remove(&client);
        }
    }
}

impl LeaseTable {
    pub fn with_bounds(bounds: Bounds) -> Self {
        let addresses_a_name = bounds.addresses_a_name.max(Bounds::LEAST_ADDRESSES);
        let leases = bounds.leases.min(Slab::<Named>::MOST);
        Self { bounds: Bounds { addresses_a_name, leases, ..bounds }, ..Self::default() }
    }

    /// Adds a lease, or renews the one there is; a renewal never shortens it (S6.3). Gives back
    /// those that had to make room.
    pub fn grant(&mut self, lease: Lease) -> Vec<Lease> {
        let mut evicted = Vec::new();
        self.grants += 1;
        let end = LeaseEnd { expiry: lease.expiry.into(), grant: self.grants.into() };
        let (name, is_new_name) = self.count_name(&lease, end);
        let newest = Newest { name, address: lease.address };
        let known = self.names.get_mut(name).and_then(|named| named.at_mut(lease.address));
        match known {
            Some(open) => open.end = LeaseEnd { expiry: end.expiry.max(open.end.expiry), ..end },
            None => {
                self.make_room_at(newest, &mut evicted);
                if let Some(named) = self.names.get_mut(name) {
                    named.push(OpenAddress { address: lease.address, end });
                }
                self.count_lease(name);
            }
        }
        self.open(newest, end);
        let pattern = self.names.get(name).map(|named| named.pattern).filter(|_| is_new_name);
        if let Some((pattern, names)) = pattern.and_then(|pattern| Some((pattern, self.of_patterns.get(pattern)?)))
            && names.count > self.bounds.names_a_pattern
        {
            let before = evicted.len();
            self.evict_of_pattern(pattern, name, &mut evicted);
            self.evictions.names_a_pattern += (evicted.len() - before) as u64;
        }
        while self.count > self.bounds.leases {
            let before = evicted.len();
            if !self.evict_of_the_heaviest(newest, &mut evicted) {
                break;
            }
            self.evictions.leases += (evicted.len() - before) as u64;
        }
        evicted
    }

    /// Notes it where it is found by its address.
    fn open(&mut self, Newest { name, address }: Newest, end: LeaseEnd) {
        if self.openings.len() == LARGE {
            self.openings.make_room_for(self.bounds.leases);
        }
        if address.is_ipv6() && !self.openings.contains(address) {
            for v4 in carried::by(address, &self.translators) {
                self.carriers.entry(v4).or_default().push(address);
            }
        }
        let names = &self.names;
        let patterns = |name| names.get(name).map(|named| named.pattern);
        self.openings.open(address, Opening { until: end.expiry, name }, patterns);
    }

    /// Notes who asked for the name, and until when it is open. Gives its number, and whether it is new.
    fn count_name(&mut self, lease: &Lease, end: LeaseEnd) -> (Slot, bool) {
        let client = lease.asked_by;
        let pattern = match self.patterns.get(&lease.pattern) {
            Some(pattern) => *pattern,
            None => {
                let pattern = self.of_patterns.insert(Names::of(lease.pattern.clone()));
                self.patterns.insert(lease.pattern.clone(), pattern);
                pattern
            }
        };
        if let Some(name) = self.find(pattern, &lease.name) {
            self.count_again(name, client, end);
            return (name, false);
        }
        let most = self.bounds.names_a_pattern.min(self.bounds.leases);
        let Some(names) = self.of_patterns.get_mut(pattern) else { return (Slot::MAX, false) };
        let named = Named {
            name: lease.name.clone(),
            pattern,
            client,
            other: None,
            asked: Asked::by(client),
            addresses: Vec::with_capacity(1),
            end,
            place: end.grant,
            next: 0,
        };
        // To grow a large table takes milliseconds, in which nobody is answered: it is made large at once.
        if self.names.len() == LARGE {
            self.names.make_room_for(self.bounds.leases);
        }
        names.count += 1;
        let name = self.names.insert(named);
        let account = names.accounts.entry(client).or_default();
        if account.order.len() == LARGE {
            account.order.reserve(most.saturating_sub(LARGE));
        }
        account.names += 1;
        account.order.push(Reverse(Place { end, name }));
        (name, true)
    }

    /// Notes who asked for a known name: it is counted to the client that has fewer.
    fn count_again(&mut self, name: Slot, client: Client, end: LeaseEnd) {
        let Some(named) = self.names.get_mut(name) else { return };
        named.end = LeaseEnd { expiry: named.end.expiry.max(end.expiry), ..end };
        named.asked.note(client);
        let (before, leases) = (named.client, named.addresses.len());
        let Some(names) = self.of_patterns.get(named.pattern).filter(|_| before != client) else { return };
        if names.leases_of(before) <= names.leases_of(client) + leases {
            named.other = client.or(named.other);
            return;
        }
        named.other = before;
        self.recount(name, client);
    }

    /// Counts a name and its leases to another client.
    fn recount(&mut self, name: Slot, to: Client) {
        let Some(named) = self.names.get_mut(name) else { return };
        let Some(Names { accounts, .. }) = self.of_patterns.get_mut(named.pattern) else { return };
        let (from, leases) = (std::mem::replace(&mut named.client, to), named.addresses.len());
        named.place = named.end.grant;
        if let Some(account) = accounts.get_mut(&from) {
            account.names -= 1;
            account.leases -= leases;
            if account.names == 0 {
                accounts.remove(&from);
            }
        }
        let account = accounts.entry(to).or_default();
        account.names += 1;
        account.leases += leases;
        account.order.push(Reverse(Place { end: named.end, name }));
        give_back(&mut self.clients, from, leases);
        if let Some(client) = to {
            *self.clients.entry(client).or_default() += leases;
        }
    }

    /// Counts a new lease to whose name it is.
    fn count_lease(&mut self, name: Slot) {
        self.count += 1;
        self.news += 1;
        let Some(Named { pattern, client, .. }) = self.names.get(name) else { return };
        if let Some(names) = self.of_patterns.get_mut(*pattern) {
            names.accounts.entry(*client).or_default().leases += 1;
        }
        if let Some(client) = client {
            *self.clients.entry(*client).or_default() += 1;
        }
    }

    fn slot(&self, pattern: &RulePattern, name: &DomainName) -> Option<Slot> {
        self.find(*self.patterns.get(pattern)?, name)
    }

    fn find(&self, pattern: Slot, name: &DomainName) -> Option<Slot> {
        self.names.find((pattern, name), |named| named.pattern == pattern && named.name == *name)
    }

    fn named(&self, lease: &Lease) -> Option<&Named> {
        self.names.get(self.slot(&lease.pattern, &lease.name)?)
    }

    /// A name no longer has the address.
    fn close(&mut self, name: Slot, gone: OpenAddress) -> Option<Lease> {
        let OpenAddress { address, end } = gone;
        self.losses.fetch_add(1, Ordering::SeqCst);
        if self.openings.close(address, name) {
            self.forget_carrier(address);
        }
        self.count -= 1;
        let Named { name, pattern, client, .. } = self.names.get(name)?;
        give_back(&mut self.clients, *client, 1);
        let names = self.of_patterns.get_mut(*pattern)?;
        if let Some(account) = names.accounts.get_mut(client) {
            account.leases -= 1;
        }
        let (pattern, name, asked_by) = (names.pattern.clone(), name.clone(), *client);
        Some(Lease { pattern, name, address, expiry: end.expiry.into(), asked_by })
    }

    fn forget_carrier(&mut self, address: IpAddr) {
        for v4 in carried::by(address, &self.translators) {
            if let Some(carriers) = self.carriers.get_mut(&v4) {
                carriers.retain(|one| *one != address);
                if carriers.is_empty() {
                    self.carriers.remove(&v4);
                }
            }
        }
    }

    /// Removes a name, with all its addresses.
    fn remove(&mut self, name: Slot, into: &mut Vec<Lease>) {
        while let Some(gone) = self.names.get_mut(name).and_then(|named| named.addresses.pop()) {
            into.extend(self.close(name, gone));
        }
        let Some(Named { pattern, client, .. }) = self.names.remove(name) else { return };
        let Some(names) = self.of_patterns.get_mut(pattern) else { return };
        names.count -= 1;
        if let Some(account) = names.accounts.get_mut(&client) {
            account.names -= 1;
            if account.names == 0 {
                names.accounts.remove(&client);
            }
        }
        if names.count == 0 {
            let gone = self.of_patterns.remove(pattern);
            gone.iter().for_each(|names| _ = self.patterns.remove(&names.pattern));
            self.heaviest = self.heaviest.filter(|(key, _)| key.pattern != pattern);
        }
    }

    /// Removes one lease.
    pub(super) fn revoke(&mut self, lease: &Lease) {
        let Some(name) = self.slot(&lease.pattern, &lease.name) else { return };
        let Some(named) = self.names.get_mut(name) else { return };
        let Some(gone) = named.take(lease.address) else { return };
        let is_empty = named.addresses.is_empty();
        self.close(name, gone);
        if is_empty {
            self.remove(name, &mut Vec::new());
        }
    }

    /// What a grant changes, as it is before it.
    pub(super) fn before(&self, lease: &Lease) -> Before {
        let mut longest = self.at(lease.address).filter(|longest| *longest.pattern == lease.pattern);
        Before { expiry: self.expiry(lease), longest: longest.next().map(|longest| longest.expiry) }
    }

    /// What was granted did not come into force: all is as it was before, but for what had to make room.
    pub(super) fn take_back(&mut self, lease: &Lease, before: Before) {
        self.losses.fetch_add(1, Ordering::SeqCst);
        let Some(expiry) = before.expiry else { return self.revoke(lease) };
        let Some(name) = self.slot(&lease.pattern, &lease.name) else { return };
        let Some(known) = self.names.get_mut(name).and_then(|named| named.at_mut(lease.address)) else { return };
        known.end.expiry = expiry.into();
        self.openings.shorten(lease.address, Opening { until: expiry.into(), name });
    }

    /// Whether the lease is there until then at least, and it is known that who asks now has asked for it.
    pub fn has(&self, lease: &Lease, until: Instant) -> bool {
        self.named(lease).is_some_and(|named| {
            let lasts = named.at(lease.address).is_some_and(|open| open.end.expiry >= until.into());
            lasts && named.asked.has(lease.asked_by)
        })
    }

    /// How many leases were new, in all. A renewal is not.
    pub fn news(&self) -> u64 {
        self.news
    }

    /// True if nothing would have to go for this lease, which is not there.
    pub(super) fn has_room_for(&self, lease: &Lease) -> bool {
        let addresses = self.named(lease).map(|named| named.addresses.len());
        let names = self.patterns.get(&lease.pattern).and_then(|pattern| self.of_patterns.get(*pattern));
        let has_name = addresses.is_some() || names.map_or(0, |names| names.count) < self.bounds.names_a_pattern;
        self.count < self.bounds.leases && has_name && addresses.unwrap_or(0) < self.bounds.addresses_a_name
    }

    /// When the lease of this name at this address ends.
    pub fn expiry(&self, lease: &Lease) -> Option<Instant> {
        self.named(lease)?.at(lease.address).map(|open| open.end.expiry.into())
    }

    /// Drops names that have ended, at most so many, but for such as lead to an address that is `kept`.
    /// Gives how many went.
    pub fn forget(&mut self, now: Instant, most: usize, kept: impl Fn(IpAddr) -> bool) -> usize {
        let now = now.into();
        let mut ended = Vec::new();
        for (pattern, Names { accounts, .. }) in self.of_patterns.iter_mut() {
            for (client, account) in accounts {
                let key = AccountKey { pattern, client: *client };
                let mut later = Vec::new();
                while let Some(Reverse(place)) = account.order.peek().copied()
                    && place.end.expiry <= now
                    && ended.len() < most
                {
                    account.order.pop();
                    match self.names.get_mut(place.name).filter(|named| place.is_of(named, &key)) {
                        None => {}
                        Some(named) if named.end.expiry > now => {
                            named.place = named.end.grant;
                            account.order.push(Reverse(Place { end: named.end, ..place }));
                        }
                        Some(named) if named.addresses.iter().any(|open| kept(open.address)) => {
                            later.push(Place { end: LeaseEnd { expiry: now, ..place.end }, ..place });
                        }
                        Some(_) => ended.push(place.name),
                    }
                }
                account.order.extend(later.into_iter().map(Reverse));
            }
        }
        let mut gone = Vec::new();
        ended.iter().for_each(|name| self.remove(*name, &mut gone));
        ended.len()
    }

    /// Finds the addresses that lead through these translators, too.
    pub(super) fn set_translators(&mut self, translators: &[Cidr]) {
        if self.translators == translators {
            return;
        }
        self.translators = translators.to_vec();
        self.carriers.clear();
        for address in self.openings.addresses() {
            for v4 in carried::by(address, &self.translators) {
                self.carriers.entry(v4).or_default().push(address);
            }
        }
    }

    pub(super) fn grants(&self) -> u64 {
        self.grants
    }

    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Another number whenever a lease there was has gone, or has become shorter.
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::SeqCst)
    }

    /// The same number, for those who look at it without the table. Copies of the table share it.
    pub fn loss_counter(&self) -> Arc<AtomicU64> {
        self.losses.clone()
    }

    pub fn evictions(&self) -> Evictions {
        self.evictions
    }
}
