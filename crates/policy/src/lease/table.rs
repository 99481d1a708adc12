//! The leases there are, found by address, within bounds that no client can
//! break for the others (S6.5).
//!
//! Names are counted a pattern, and within it a client: who asked. Where there
//! is no room for one more, the client with the most names gives up the one that
//! ends soonest. So a flood of random names evicts its own.

use super::{Instant, Lease};
use crate::domain::{DomainName, DomainPattern};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;

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
        Self { addresses_a_name: 1_000, names_a_pattern: 100_000, leases: 262_144 }
    }
}

/// Leases that had to go before their time, by the bound that was hit.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Evictions {
    pub addresses_a_name: u64,
    pub names_a_pattern: u64,
    pub leases: u64,
}

/// Who asked; none if nobody in particular did.
type Client = Option<IpAddr>;

#[derive(Clone, Default, Debug)]
pub struct LeaseTable {
    bounds: Bounds,
    by_address: FxHashMap<IpAddr, Vec<Lease>>,
    patterns: FxHashMap<DomainPattern, Names>,
    count: usize,
    evictions: Evictions,
    /// The account with the most names when it was last looked for, and how many.
    heaviest: Option<(DomainPattern, Client, usize)>,
}

/// The names of a pattern.
#[derive(Clone, Default, Debug)]
struct Names {
    names: FxHashMap<DomainName, Named>,
    accounts: FxHashMap<Client, Account>,
}

#[derive(Clone, Debug)]
struct Named {
    /// Whose name it is: of those who asked for it, who had the fewest.
    client: Client,
    addresses: Vec<IpAddr>,
    /// When the last of them ends.
    expiry: Instant,
}

/// The names of a pattern that a client has asked for.
#[derive(Clone, Default, Debug)]
struct Account {
    names: usize,
    /// Its names by when they ended when that was last looked at; some are gone.
    order: BinaryHeap<Reverse<(Instant, DomainName)>>,
}

impl LeaseTable {
    pub fn with_bounds(bounds: Bounds) -> Self {
        let addresses_a_name = bounds.addresses_a_name.max(Bounds::LEAST_ADDRESSES);
        Self { bounds: Bounds { addresses_a_name, ..bounds }, ..Self::default() }
    }

    /// Adds a lease, or renews the one there is; a renewal never shortens it (S6.3). Gives back
    /// those that had to make room.
    pub fn grant(&mut self, lease: Lease) -> Vec<Lease> {
        let mut evicted = Vec::new();
        let is_new_name = self.count_name(&lease);
        let known = self.by_address.get_mut(&lease.address).into_iter().flatten();
        let same = known.into_iter().find(|known| known.pattern == lease.pattern && known.name == lease.name);
        if let Some(known) = same {
            known.expiry = known.expiry.max(lease.expiry);
            return evicted;
        }
        self.make_room_at(&lease, &mut evicted);
        let (pattern, name) = (lease.pattern.clone(), lease.name.clone());
        if let Some(named) = self.named(&pattern, &name) {
            named.addresses.push(lease.address);
        }
        // Most addresses have one name.
        self.by_address.entry(lease.address).or_insert_with(|| Vec::with_capacity(1)).push(lease);
        self.count += 1;
        if is_new_name && self.patterns[&pattern].names.len() > self.bounds.names_a_pattern {
            let heaviest = self.patterns[&pattern].accounts.iter().max_by_key(|(_, account)| account.names);
            let client = heaviest.map(|(client, _)| *client);
            let before = evicted.len();
            client.and_then(|client| self.evict((&pattern, client), &name, &mut evicted));
            self.evictions.names_a_pattern += (evicted.len() - before) as u64;
        }
        while self.count > self.bounds.leases {
            let before = evicted.len();
            let Some((heavy, client)) = self.heaviest() else { break };
            if self.evict((&heavy, client), &name, &mut evicted).is_none() {
                break;
            }
            self.evictions.leases += (evicted.len() - before) as u64;
        }
        evicted
    }

    /// Notes who asked for the name, and until when it is open. True if it is new.
    fn count_name(&mut self, lease: &Lease) -> bool {
        let client = lease.asked_by;
        if !self.patterns.contains_key(&lease.pattern) {
            self.patterns.insert(lease.pattern.clone(), Names::default());
        }
        let Some(Names { names, accounts }) = self.patterns.get_mut(&lease.pattern) else { return false };
        let count = |accounts: &FxHashMap<Client, Account>, client| accounts.get(&client).map_or(0, |one| one.names);
        let is_new = match names.get_mut(&lease.name) {
            Some(named) => {
                named.expiry = named.expiry.max(lease.expiry);
                if named.client == client || count(accounts, named.client) <= count(accounts, client) + 1 {
                    return false;
                }
                if let Some(account) = accounts.get_mut(&named.client) {
                    account.names -= 1;
                }
                named.client = client;
                false
            }
            None => {
                names.insert(lease.name.clone(), Named { client, addresses: Vec::new(), expiry: lease.expiry });
                true
            }
        };
        let account = accounts.entry(client).or_default();
        account.names += 1;
        account.order.push(Reverse((lease.expiry, lease.name.clone())));
        is_new
    }

    fn named(&mut self, pattern: &DomainPattern, name: &DomainName) -> Option<&mut Named> {
        self.patterns.get_mut(pattern)?.names.get_mut(name)
    }

    /// Where the name has all the addresses it may have, the one that ends soonest goes.
    fn make_room_at(&mut self, lease: &Lease, evicted: &mut Vec<Lease>) {
        let most = self.bounds.addresses_a_name;
        let Some(named) = self.named(&lease.pattern, &lease.name) else { return };
        if named.addresses.len() < most {
            return;
        }
        let addresses = std::mem::take(&mut named.addresses);
        let ends = |address: &IpAddr| self.find(*address, &lease.pattern, &lease.name).map(|one| one.expiry);
        let soonest = addresses.iter().enumerate().min_by_key(|(_, address)| ends(address)).map(|(at, _)| at);
        let mut addresses = addresses;
        if let Some(at) = soonest {
            let address = addresses.swap_remove(at);
            evicted.extend(self.take(address, &lease.pattern, &lease.name));
            self.evictions.addresses_a_name += 1;
        }
        if let Some(named) = self.named(&lease.pattern, &lease.name) {
            named.addresses = addresses;
        }
    }

    fn find(&self, address: IpAddr, pattern: &DomainPattern, name: &DomainName) -> Option<&Lease> {
        self.by_address.get(&address)?.iter().find(|lease| lease.pattern == *pattern && lease.name == *name)
    }

    /// Takes a lease out of the index by address.
    fn take(&mut self, address: IpAddr, pattern: &DomainPattern, name: &DomainName) -> Option<Lease> {
        let leases = self.by_address.get_mut(&address)?;
        let at = leases.iter().position(|lease| lease.pattern == *pattern && lease.name == *name)?;
        let lease = leases.swap_remove(at);
        if leases.is_empty() {
            self.by_address.remove(&address);
        }
        self.count -= 1;
        Some(lease)
    }

    /// The account with the most names; looked for again only when it has clearly fewer.
    fn heaviest(&mut self) -> Option<(DomainPattern, Client)> {
        let now = self.heaviest.as_ref().and_then(|(pattern, client, then)| {
            let names = self.patterns.get(pattern)?.accounts.get(client)?.names;
            (names > then - then / 8 && names > 1).then(|| (pattern.clone(), *client))
        });
        if now.is_some() {
            return now;
        }
        let all = self.patterns.iter().flat_map(|(pattern, names)| {
            names.accounts.iter().map(move |(client, account)| (account.names, pattern, *client))
        });
        let (count, pattern, client) = all.max_by_key(|(count, ..)| *count)?;
        let found = (pattern.clone(), client);
        self.heaviest = Some((found.0.clone(), client, count));
        Some(found)
    }

    /// The account's name that ends soonest goes, with all its addresses; but not `kept`, which has just come.
    fn evict(&mut self, of: (&DomainPattern, Client), kept: &DomainName, into: &mut Vec<Lease>) -> Option<()> {
        let (pattern, client) = of;
        let Names { names, accounts } = self.patterns.get_mut(pattern)?;
        let order = &mut accounts.get_mut(&client)?.order;
        let (mut aside, mut victim) = (None, None);
        while let Some(Reverse((at, name))) = order.pop() {
            let Some(named) = names.get(&name).filter(|named| named.client == client) else { continue };
            if named.expiry > at {
                order.push(Reverse((named.expiry, name)));
            } else if name == *kept {
                aside = Some(Reverse((at, name)));
            } else {
                victim = Some(name);
                break;
            }
        }
        order.extend(aside);
        self.remove(pattern, &victim?, into);
        Some(())
    }

    fn remove(&mut self, pattern: &DomainPattern, name: &DomainName, into: &mut Vec<Lease>) {
        let Some(Names { names, accounts }) = self.patterns.get_mut(pattern) else { return };
        let Some(named) = names.remove(name) else { return };
        if let Some(account) = accounts.get_mut(&named.client) {
            account.names -= 1;
            if account.names == 0 {
                accounts.remove(&named.client);
            }
        }
        if names.is_empty() {
            self.patterns.remove(pattern);
        }
        for address in named.addresses {
            into.extend(self.take(address, pattern, name));
        }
    }

    /// What was granted did not come into force: it ends when it did before.
    pub fn take_back(&mut self, lease: &Lease, before: Option<Instant>) {
        match before {
            Some(before) => {
                let leases = self.by_address.get_mut(&lease.address).into_iter().flatten();
                let mut same = leases.into_iter().filter(|one| one.pattern == lease.pattern && one.name == lease.name);
                if let Some(known) = same.next() {
                    known.expiry = before;
                }
            }
            None => {
                self.take(lease.address, &lease.pattern, &lease.name);
                let Some(named) = self.named(&lease.pattern, &lease.name) else { return };
                named.addresses.retain(|address| *address != lease.address);
                if named.addresses.is_empty() {
                    self.remove(&lease.pattern, &lease.name, &mut Vec::new());
                }
            }
        }
    }

    /// When the lease of this name at this address ends.
    pub fn expiry(&self, lease: &Lease) -> Option<Instant> {
        self.find(lease.address, &lease.pattern, &lease.name).map(|known| known.expiry)
    }

    /// The live lease by which a pattern that is `wanted` opens the address.
    pub fn opening(&self, address: IpAddr, now: Instant, wanted: impl Fn(&DomainPattern) -> bool) -> Option<&Lease> {
        if self.by_address.is_empty() {
            return None;
        }
        self.at(address).iter().find(|lease| now < lease.expiry && wanted(&lease.pattern))
    }

    /// All leases of an address, such as have ended among them.
    pub fn at(&self, address: IpAddr) -> &[Lease] {
        self.by_address.get(&address).map_or(&[], Vec::as_slice)
    }

    /// Drops names that have ended, at most so many, but for such as lead to an address that is `kept`.
    /// Gives how many went.
    pub fn forget(&mut self, now: Instant, most: usize, kept: impl Fn(IpAddr) -> bool) -> usize {
        let mut ended = Vec::new();
        for (pattern, Names { names, accounts }) in &mut self.patterns {
            for (client, account) in accounts {
                let mut later = Vec::new();
                while let Some(Reverse((at, _))) = account.order.peek()
                    && *at <= now
                    && ended.len() < most
                    && let Some(Reverse((_, name))) = account.order.pop()
                {
                    match names.get(&name).filter(|named| named.client == *client) {
                        None => {}
                        Some(named) if named.expiry > now => account.order.push(Reverse((named.expiry, name))),
                        Some(named) if named.addresses.iter().any(|address| kept(*address)) => later.push((now, name)),
                        Some(_) => ended.push((pattern.clone(), name)),
                    }
                }
                account.order.extend(later.into_iter().map(Reverse));
            }
        }
        let mut gone = Vec::new();
        for (pattern, name) in &ended {
            self.remove(pattern, name, &mut gone);
        }
        ended.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Lease> {
        self.by_address.values().flatten()
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn evictions(&self) -> Evictions {
        self.evictions
    }
}
