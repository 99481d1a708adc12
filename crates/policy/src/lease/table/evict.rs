//! What goes where there is no room for one more (S6.5).

use super::super::names::{AccountKey, Asked, Client, Named, Names, Place};
use super::super::slab::Slot;
use super::{Lease, LeaseTable, Newest};
use std::cmp::Reverse;

/// So many names are counted to other clients before one goes. A flood by two clients that ask for the same names
/// would otherwise hold up a grant for as long as it takes to count all of them again.
const MOST_RECOUNTED: usize = 1_024;

impl LeaseTable {
    /// Where the name has all the addresses it may have, the one that ends soonest goes.
    pub(super) fn make_room_at(&mut self, newest: Newest, evicted: &mut Vec<Lease>) {
        let most = self.bounds.addresses_a_name;
        if self.names.get(newest.name).is_none_or(|named| named.addresses.len() < most) {
            return;
        }
        if let Some(gone) = self.evict_address(newest) {
            evicted.push(gone);
            self.evictions.addresses_a_name += 1;
        }
    }

    /// The address of the newest name that ends soonest goes, but not the newest.
    pub(super) fn evict_address(&mut self, newest: Newest) -> Option<Lease> {
        let named = self.names.get_mut(newest.name)?;
        let others = named.addresses.iter().filter(|open| open.address != newest.address);
        let soonest = others.min_by_key(|open| open.end)?.address;
        let gone = named.take(soonest)?;
        self.close(newest.name, gone)
    }

    /// How much the holder of an account has: a client all that it asked for, whoever only told a pattern's.
    fn weight(&self, key: AccountKey) -> Option<usize> {
        let account = self.of_patterns.get(key.pattern)?.accounts.get(&key.client)?;
        Some(match key.client {
            Some(client) => self.clients.get(&client).copied().unwrap_or_default(),
            None => account.leases,
        })
    }

    /// The largest account of the largest holder; looked for again only when that has clearly less.
    fn heaviest(&mut self) -> Option<AccountKey> {
        let now = self.heaviest.and_then(|(key, then)| {
            let is_left = self.weight(key)? > then - then / 8;
            let account = self.of_patterns.get(key.pattern)?.accounts.get(&key.client)?;
            (is_left && account.names > 1).then_some(key)
        });
        if now.is_some() {
            return now;
        }
        let (weight, key) = self.by_weight().max_by_key(|(weight, _)| *weight)?;
        self.heaviest = Some((key, weight.0));
        Some(key)
    }

    /// Every account, with what its holder has and what it has itself.
    fn by_weight(&self) -> impl Iterator<Item = ((usize, usize), AccountKey)> {
        self.of_patterns.iter().flat_map(move |(pattern, names)| {
            names.accounts.iter().map(move |(client, account)| {
                let all =
                    client.map_or(account.leases, |client| self.clients.get(&client).copied().unwrap_or_default());
                ((all, account.leases), AccountKey { pattern, client: *client })
            })
        })
    }

    /// The largest holder makes room; the next one, where all that it has is the newest. True if anything went.
    pub(super) fn evict_of_the_heaviest(&mut self, newest: Newest, into: &mut Vec<Lease>) -> bool {
        let Some(heavy) = self.heaviest() else { return false };
        if self.evict_from(heavy, newest, into) {
            return true;
        }
        self.heaviest = None;
        let mut all: Vec<_> = self.by_weight().map(|(weight, key)| (Reverse(weight), key)).collect();
        all.sort_by_key(|(weight, _)| *weight);
        all.iter().any(|(_, key)| self.evict_from(*key, newest, into))
    }

    fn evict_from(&mut self, key: AccountKey, newest: Newest, into: &mut Vec<Lease>) -> bool {
        if self.evict(key, newest.name, into).is_some() {
            return true;
        }
        let is_own = |named: &Named| named.client == key.client && named.pattern == key.pattern;
        let is_own = self.names.get(newest.name).is_some_and(is_own);
        let gone = if is_own { self.evict_address(newest) } else { None };
        let has_gone = gone.is_some();
        into.extend(gone);
        has_gone
    }

    /// The client with the most names of a pattern gives one up; another one, where all that it has stays.
    pub(super) fn evict_of_pattern(&mut self, pattern: Slot, kept: Slot, into: &mut Vec<Lease>) -> bool {
        let Some(Names { accounts, .. }) = self.of_patterns.get(pattern) else { return false };
        let key_of = |client: Client| AccountKey { pattern, client };
        let heaviest = accounts.iter().max_by_key(|(_, account)| account.names).map(|(client, _)| key_of(*client));
        if heaviest.is_some_and(|key| self.evict(key, kept, into).is_some()) {
            return true;
        }
        let accounts = self.of_patterns.get(pattern).into_iter().flat_map(|names| &names.accounts);
        let mut others: Vec<(usize, Client)> = accounts.map(|(client, account)| (account.names, *client)).collect();
        others.sort_unstable_by_key(|(names, _)| Reverse(*names));
        others.into_iter().any(|(_, client)| self.evict(key_of(client), kept, into).is_some())
    }

    /// The account's name that ends soonest goes, with all its addresses. One that another client has asked for stays,
    /// and is that client's.
    fn evict(&mut self, of: AccountKey, kept: Slot, into: &mut Vec<Lease>) -> Option<()> {
        let mut first_recounted = None;
        for _ in 0..MOST_RECOUNTED {
            let name = self.soonest(of, kept)?;
            let named = self.names.get_mut(name)?;
            let Some(other) = named.other.take() else {
                self.remove(name, into);
                return Some(());
            };
            // All others are noted when they ask again.
            named.asked = Asked::by(Some(other));
            self.recount(name, Some(other));
            first_recounted.get_or_insert(name);
        }
        self.remove(first_recounted?, into);
        Some(())
    }

    /// Takes the account's name that ends soonest from its order; but not `kept`, which has just come.
    fn soonest(&mut self, of: AccountKey, kept: Slot) -> Option<Slot> {
        let order = &mut self.of_patterns.get_mut(of.pattern)?.accounts.get_mut(&of.client)?.order;
        let (mut aside, mut victim) = (None, None);
        while let Some(Reverse(place)) = order.pop() {
            let Some(named) = self.names.get_mut(place.name).filter(|named| place.is_of(named, &of)) else { continue };
            if named.end > place.end {
                named.place = named.end.grant;
                order.push(Reverse(Place { end: named.end, ..place }));
            } else if place.name == kept {
                aside = Some(Reverse(place));
            } else {
                victim = Some(place.name);
                break;
            }
        }
        order.extend(aside);
        victim
    }
}
