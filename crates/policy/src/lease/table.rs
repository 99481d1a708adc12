//! The leases there are, found by address, within bounds that no client can
//! break for the others (S6.5).
//!
//! Leases are counted to the client that asked, and within it to the pattern. Where
//! there is no room for one more, the client with the most leases gives up the name
//! that ends soonest; a name that another client has asked for too is counted to
//! that one instead. So a flood evicts its own, and no name that others use.

use super::opened::Opened;
use super::{Instant, Lease, carried};
use crate::addr::Cidr;
use crate::domain::{DomainName, DomainPattern, PatternTable};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
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
    expiry: Option<Instant>,
    /// Until when the pattern opened the address, by whichever name.
    pub(super) longest: Option<Instant>,
}

/// A table that has become so large becomes larger.
const LARGE: usize = 4_096;

/// So many names are counted to other clients before one goes. A flood by two clients that ask for the same names
/// would otherwise hold up a grant for as long as it takes to count all of them again.
const MOST_RECOUNTED: usize = 1_024;

/// Who asked; none if nobody in particular did.
type Client = Option<IpAddr>;

/// When a lease ends. Of those that end at once, the one that was granted first is less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct LeaseEnd {
    expiry: Instant,
    /// The number of the grant.
    grant: u64,
}

/// An address that a name has opened.
#[derive(Clone, Copy, Debug)]
struct OpenAddress {
    address: IpAddr,
    end: LeaseEnd,
}

#[derive(Clone, Default, Debug)]
pub struct LeaseTable {
    bounds: Bounds,
    by_address: FxHashMap<IpAddr, Vec<Opened>>,
    patterns: FxHashMap<DomainPattern, Names>,
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
    carriers: FxHashMap<Ipv4Addr, Vec<IpAddr>>,
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
    /// Who else asked for it, the last of them: whose name it is when the client has to give it up.
    other: Client,
    addresses: Vec<OpenAddress>,
    /// When the last of them ends.
    end: LeaseEnd,
}

/// Whose [`Account`] it is.
#[derive(Clone, PartialEq, Eq, Debug)]
struct AccountKey {
    pattern: DomainPattern,
    client: Client,
}

/// Whose lease it is.
struct Owner<'a> {
    pattern: &'a DomainPattern,
    name: &'a DomainName,
    client: Client,
}

/// What has just come, and does not go for it.
struct Newest {
    name: DomainName,
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

/// The names of a pattern that a client has asked for.
#[derive(Clone, Default, Debug)]
struct Account {
    names: usize,
    leases: usize,
    /// Its names by when they ended when that was last looked at; some are gone.
    order: BinaryHeap<Reverse<(LeaseEnd, DomainName)>>,
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
        self.grants += 1;
        let grant = self.grants;
        let is_new_name = self.count_name(&lease);
        let Some(named) = self.named(&lease.pattern, &lease.name) else { return evicted };
        let known = named.addresses.iter_mut().find(|open| open.address == lease.address);
        let is_new = match known {
            Some(open) => {
                open.end = LeaseEnd { expiry: lease.expiry.max(open.end.expiry), grant };
                false
            }
            None => {
                self.make_room_at(&lease, &mut evicted);
                if let Some(named) = self.named(&lease.pattern, &lease.name) {
                    named
                        .addresses
                        .push(OpenAddress { address: lease.address, end: LeaseEnd { expiry: lease.expiry, grant } });
                }
                true
            }
        };
        let (pattern, name) = (lease.pattern.clone(), lease.name.clone());
        let newest = Newest { name: name.clone(), address: lease.address };
        if is_new {
            self.count_lease(&lease);
        }
        self.open(lease, is_new);
        if is_new_name && self.patterns[&pattern].names.len() > self.bounds.names_a_pattern {
            let before = evicted.len();
            self.evict_of_pattern(&pattern, &name, &mut evicted);
            self.evictions.names_a_pattern += (evicted.len() - before) as u64;
        }
        while self.count > self.bounds.leases {
            let before = evicted.len();
            if !self.evict_of_the_heaviest(&newest, &mut evicted) {
                break;
            }
            self.evictions.leases += (evicted.len() - before) as u64;
        }
        evicted
    }

    /// Notes it where it is found by its address.
    fn open(&mut self, lease: Lease, is_new: bool) {
        self.count += usize::from(is_new);
        if self.by_address.len() == LARGE {
            self.by_address.reserve(self.bounds.leases.saturating_sub(LARGE));
        }
        if !self.by_address.contains_key(&lease.address) {
            for v4 in carried::by(lease.address, &self.translators) {
                self.carriers.entry(v4).or_default().push(lease.address);
            }
        }
        // Most addresses have one name.
        let opened = self.by_address.entry(lease.address).or_insert_with(|| Vec::with_capacity(1));
        match opened.iter_mut().find(|one| one.longest().pattern == lease.pattern) {
            Some(one) => one.grant(lease),
            None => opened.push(Opened::by(lease)),
        }
    }

    /// Notes who asked for the name, and until when it is open. True if it is new.
    fn count_name(&mut self, lease: &Lease) -> bool {
        let (client, grant) = (lease.asked_by, self.grants);
        if !self.patterns.contains_key(&lease.pattern) {
            self.patterns.insert(lease.pattern.clone(), Names::default());
        }
        let Some(Names { names, accounts }) = self.patterns.get_mut(&lease.pattern) else { return false };
        let count = |accounts: &FxHashMap<Client, Account>, client| accounts.get(&client).map_or(0, |one| one.leases);
        if let Some(named) = names.get_mut(&lease.name) {
            named.end = LeaseEnd { expiry: named.end.expiry.max(lease.expiry), grant };
            let (before, leases) = (named.client, named.addresses.len());
            if before == client {
                return false;
            }
            if count(accounts, before) <= count(accounts, client) + leases {
                named.other = client.or(named.other);
                return false;
            }
            named.other = before;
            self.recount(&lease.pattern, &lease.name, client);
            return false;
        }
        let end = LeaseEnd { expiry: lease.expiry, grant };
        // Most names have one address.
        names.insert(lease.name.clone(), Named { client, other: None, addresses: Vec::with_capacity(1), end });
        // To grow a large table takes milliseconds, in which nobody is answered: it is made large at once.
        let most = self.bounds.names_a_pattern.min(self.bounds.leases);
        if names.len() == LARGE {
            names.reserve(most.saturating_sub(LARGE));
        }
        let account = accounts.entry(client).or_default();
        if account.order.len() == LARGE {
            account.order.reserve(most.saturating_sub(LARGE));
        }
        account.names += 1;
        account.order.push(Reverse((end, lease.name.clone())));
        true
    }

    /// Counts a name and its leases to another client.
    fn recount(&mut self, pattern: &DomainPattern, name: &DomainName, to: Client) {
        let Some(Names { names, accounts }) = self.patterns.get_mut(pattern) else { return };
        let Some(named) = names.get_mut(name) else { return };
        let (from, leases) = (std::mem::replace(&mut named.client, to), named.addresses.len());
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
        account.order.push(Reverse((named.end, name.clone())));
        give_back(&mut self.clients, from, leases);
        if let Some(client) = to {
            *self.clients.entry(client).or_default() += leases;
        }
    }

    /// Counts a new lease to whose name it is.
    fn count_lease(&mut self, lease: &Lease) {
        self.news += 1;
        let Some(Names { names, accounts }) = self.patterns.get_mut(&lease.pattern) else { return };
        let Some(client) = names.get(&lease.name).map(|named| named.client) else { return };
        accounts.entry(client).or_default().leases += 1;
        if let Some(client) = client {
            *self.clients.entry(client).or_default() += 1;
        }
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
        let newest = Newest { name: lease.name.clone(), address: lease.address };
        if let Some(gone) = self.evict_address(&lease.pattern, &newest) {
            evicted.push(gone);
            self.evictions.addresses_a_name += 1;
        }
    }

    /// The address of the newest name that ends soonest goes, but not the newest.
    fn evict_address(&mut self, pattern: &DomainPattern, newest: &Newest) -> Option<Lease> {
        let named = self.named(pattern, &newest.name)?;
        let client = named.client;
        let others = named.addresses.iter().enumerate().filter(|(_, open)| open.address != newest.address);
        let (at, _) = others.min_by_key(|(_, open)| open.end)?;
        let gone = named.addresses.swap_remove(at);
        Some(self.close(&Owner { pattern, name: &newest.name, client }, gone))
    }

    /// A name no longer has the address.
    fn close(&mut self, owner: &Owner<'_>, gone: OpenAddress) -> Lease {
        let Owner { pattern, name, client } = *owner;
        let OpenAddress { address, end: LeaseEnd { expiry, .. } } = gone;
        self.losses.fetch_add(1, Ordering::SeqCst);
        if let Some(opened) = self.by_address.get_mut(&address)
            && let Some(at) = opened.iter().position(|one| one.longest().pattern == *pattern)
        {
            if !opened[at].close(name) {
                opened.swap_remove(at);
            }
            if opened.is_empty() {
                self.by_address.remove(&address);
                self.forget_carrier(address);
            }
        }
        self.count -= 1;
        if let Some(account) = self.patterns.get_mut(pattern).and_then(|names| names.accounts.get_mut(&client)) {
            account.leases -= 1;
        }
        give_back(&mut self.clients, client, 1);
        Lease { pattern: pattern.clone(), name: name.clone(), address, expiry, asked_by: client }
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

    /// How much the holder of an account has: a client all that it asked for, whoever only told a pattern's.
    fn weight(&self, key: &AccountKey) -> Option<usize> {
        let account = self.patterns.get(&key.pattern)?.accounts.get(&key.client)?;
        Some(match key.client {
            Some(client) => self.clients.get(&client).copied().unwrap_or_default(),
            None => account.leases,
        })
    }

    /// The largest account of the largest holder; looked for again only when that has clearly less.
    fn heaviest(&mut self) -> Option<AccountKey> {
        let now = self.heaviest.as_ref().and_then(|(key, then)| {
            let is_left = self.weight(key)? > then - then / 8;
            let account = self.patterns.get(&key.pattern)?.accounts.get(&key.client)?;
            (is_left && account.names > 1).then(|| key.clone())
        });
        if now.is_some() {
            return now;
        }
        let (weight, key) = self.by_weight().max_by_key(|(weight, _)| *weight)?;
        let key = AccountKey { pattern: key.0.clone(), client: key.1 };
        self.heaviest = Some((key.clone(), weight.0));
        Some(key)
    }

    /// Every account, with what its holder has and what it has itself.
    fn by_weight(&self) -> impl Iterator<Item = ((usize, usize), (&DomainPattern, Client))> {
        self.patterns.iter().flat_map(move |(pattern, names)| {
            names.accounts.iter().map(move |(client, account)| {
                let all =
                    client.map_or(account.leases, |client| self.clients.get(&client).copied().unwrap_or_default());
                ((all, account.leases), (pattern, *client))
            })
        })
    }

    /// The largest holder makes room; the next one, where all that it has is the newest. True if anything went.
    fn evict_of_the_heaviest(&mut self, newest: &Newest, into: &mut Vec<Lease>) -> bool {
        let Some(heavy) = self.heaviest() else { return false };
        if self.evict_from(&heavy, newest, into) {
            return true;
        }
        self.heaviest = None;
        let mut all: Vec<_> = self
            .by_weight()
            .map(|(weight, (pattern, client))| (Reverse(weight), AccountKey { pattern: pattern.clone(), client }))
            .collect();
        all.sort_by_key(|(weight, _)| *weight);
        all.iter().any(|(_, key)| self.evict_from(key, newest, into))
    }

    fn evict_from(&mut self, key: &AccountKey, newest: &Newest, into: &mut Vec<Lease>) -> bool {
        if self.evict(key, &newest.name, into).is_some() {
            return true;
        }
        let is_own = self.named(&key.pattern, &newest.name).is_some_and(|named| named.client == key.client);
        let gone = if is_own { self.evict_address(&key.pattern, newest) } else { None };
        let has_gone = gone.is_some();
        into.extend(gone);
        has_gone
    }

    /// The client with the most names of a pattern gives one up; another one, where all that it has stays.
    fn evict_of_pattern(&mut self, pattern: &DomainPattern, kept: &DomainName, into: &mut Vec<Lease>) -> bool {
        let Some(Names { accounts, .. }) = self.patterns.get(pattern) else { return false };
        let key_of = |client: Client| AccountKey { pattern: pattern.clone(), client };
        let heaviest = accounts.iter().max_by_key(|(_, account)| account.names).map(|(client, _)| key_of(*client));
        if heaviest.is_some_and(|key| self.evict(&key, kept, into).is_some()) {
            return true;
        }
        let accounts = self.patterns.get(pattern).into_iter().flat_map(|names| &names.accounts);
        let mut others: Vec<(usize, Client)> = accounts.map(|(client, account)| (account.names, *client)).collect();
        others.sort_unstable_by_key(|(names, _)| Reverse(*names));
        others.into_iter().any(|(_, client)| self.evict(&key_of(client), kept, into).is_some())
    }

    /// The account's name that ends soonest goes, with all its addresses. One that another client has asked for stays,
    /// and is that client's.
    fn evict(&mut self, of: &AccountKey, kept: &DomainName, into: &mut Vec<Lease>) -> Option<()> {
        let mut first_recounted = None;
        for _ in 0..MOST_RECOUNTED {
            let name = self.soonest(of, kept)?;
            let Some(other) = self.named(&of.pattern, &name)?.other.take() else {
                self.remove(&of.pattern, &name, into);
                return Some(());
            };
            self.recount(&of.pattern, &name, Some(other));
            first_recounted.get_or_insert(name);
        }
        self.remove(&of.pattern, &first_recounted?, into);
        Some(())
    }

    /// Takes the account's name that ends soonest from its order; but not `kept`, which has just come.
    fn soonest(&mut self, of: &AccountKey, kept: &DomainName) -> Option<DomainName> {
        let AccountKey { pattern, client } = of;
        let Names { names, accounts } = self.patterns.get_mut(pattern)?;
        let order = &mut accounts.get_mut(client)?.order;
        let (mut aside, mut victim) = (None, None);
        while let Some(Reverse((at, name))) = order.pop() {
            let Some(named) = names.get(&name).filter(|named| named.client == *client) else { continue };
            if named.end > at {
                order.push(Reverse((named.end, name)));
            } else if name == *kept {
                aside = Some(Reverse((at, name)));
            } else {
                victim = Some(name);
                break;
            }
        }
        order.extend(aside);
        victim
    }

    fn remove(&mut self, pattern: &DomainPattern, name: &DomainName, into: &mut Vec<Lease>) {
        let Some(named) = self.patterns.get_mut(pattern).and_then(|names| names.names.remove(name)) else { return };
        let client = named.client;
        for gone in named.addresses {
            into.push(self.close(&Owner { pattern, name, client }, gone));
        }
        let Some(Names { names, accounts }) = self.patterns.get_mut(pattern) else { return };
        if let Some(account) = accounts.get_mut(&client) {
            account.names -= 1;
            if account.names == 0 {
                accounts.remove(&client);
            }
        }
        if names.is_empty() {
            self.patterns.remove(pattern);
        }
    }

    /// Removes one lease.
    pub(super) fn revoke(&mut self, lease: &Lease) {
        let Some(named) = self.named(&lease.pattern, &lease.name) else { return };
        let Some(at) = named.addresses.iter().position(|open| open.address == lease.address) else { return };
        let gone = named.addresses.swap_remove(at);
        let (client, is_empty) = (named.client, named.addresses.is_empty());
        self.close(&Owner { pattern: &lease.pattern, name: &lease.name, client }, gone);
        if is_empty {
            self.remove(&lease.pattern, &lease.name, &mut Vec::new());
        }
    }

    /// What a grant changes, as it is before it.
    pub(super) fn before(&self, lease: &Lease) -> Before {
        let opened = self.by_address.get(&lease.address).into_iter().flatten();
        let longest = opened.map(Opened::longest).find(|longest| longest.pattern == lease.pattern);
        Before { expiry: self.expiry(lease), longest: longest.map(|longest| longest.expiry) }
    }

    /// What was granted did not come into force: all is as it was before, but for what had to make room.
    pub(super) fn take_back(&mut self, lease: &Lease, before: Before) {
        self.losses.fetch_add(1, Ordering::SeqCst);
        let Some(named) = self.named(&lease.pattern, &lease.name) else { return };
        match before.expiry {
            Some(expiry) => {
                let mut known = named.addresses.iter_mut().filter(|open| open.address == lease.address);
                if let Some(known) = known.next() {
                    known.end.expiry = expiry;
                }
            }
            None => return self.revoke(lease),
        }
        let mut opened = self.by_address.get_mut(&lease.address).into_iter().flatten();
        if let (Some(one), Some(expiry)) = (opened.find(|one| one.longest().pattern == lease.pattern), before.expiry) {
            one.shorten(&lease.name, expiry);
        }
    }

    /// Whether the lease is there until then at least, and it is known that who asks now has asked for it.
    pub fn has(&self, lease: &Lease, until: Instant) -> bool {
        let named = self.patterns.get(&lease.pattern).and_then(|names| names.names.get(&lease.name));
        named.is_some_and(|named| {
            let lasts = |open: &OpenAddress| open.address == lease.address && open.end.expiry >= until;
            let is_known = named.client == lease.asked_by || (named.other == lease.asked_by && named.other.is_some());
            is_known && named.addresses.iter().any(lasts)
        })
    }

    /// How many leases were new, in all. A renewal is not.
    pub fn news(&self) -> u64 {
        self.news
    }

    /// True if nothing would have to go for this lease, which is not there.
    pub(super) fn has_room_for(&self, lease: &Lease) -> bool {
        let names = self.patterns.get(&lease.pattern);
        let addresses = names.and_then(|all| all.names.get(&lease.name)).map(|named| named.addresses.len());
        let has_name = addresses.is_some() || names.map_or(0, |all| all.names.len()) < self.bounds.names_a_pattern;
        self.count < self.bounds.leases && has_name && addresses.unwrap_or(0) < self.bounds.addresses_a_name
    }

    /// When the lease of this name at this address ends.
    pub fn expiry(&self, lease: &Lease) -> Option<Instant> {
        let named = self.patterns.get(&lease.pattern)?.names.get(&lease.name)?;
        named.addresses.iter().find(|open| open.address == lease.address).map(|open| open.end.expiry)
    }

    /// The live lease by which a pattern that is `wanted` opens the address.
    pub fn opening(&self, address: IpAddr, now: Instant, wanted: impl Fn(&DomainPattern) -> bool) -> Option<&Lease> {
        if self.by_address.is_empty() {
            return None;
        }
        self.at(address).find(|lease| now < lease.expiry && wanted(&lease.pattern))
    }

    /// For each pattern that opens the address, the lease that lasts longest; it may have ended.
    pub fn at(&self, address: IpAddr) -> impl Iterator<Item = &Lease> {
        self.by_address.get(&address).into_iter().flatten().map(Opened::longest)
    }

    /// Drops names that have ended, at most so many, but for such as lead to an address that is `kept`.
    /// Gives how many went.
    pub fn forget(&mut self, now: Instant, most: usize, kept: impl Fn(IpAddr) -> bool) -> usize {
        let mut ended = Vec::new();
        for (pattern, Names { names, accounts }) in &mut self.patterns {
            for (client, account) in accounts {
                let mut later = Vec::new();
                while let Some(Reverse((end, _))) = account.order.peek()
                    && end.expiry <= now
                    && ended.len() < most
                    && let Some(Reverse((_, name))) = account.order.pop()
                {
                    match names.get(&name).filter(|named| named.client == *client) {
                        None => {}
                        Some(named) if named.end.expiry > now => account.order.push(Reverse((named.end, name))),
                        Some(named) if named.addresses.iter().any(|open| kept(open.address)) => {
                            later.push((LeaseEnd { expiry: now, grant: 0 }, name))
                        }
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

    /// For each address and pattern that opens it, the lease that lasts longest.
    pub fn iter(&self) -> impl Iterator<Item = &Lease> {
        self.by_address.values().flatten().map(Opened::longest)
    }

    /// The addresses that a name has opened, by whichever pattern, and until when.
    pub fn addresses_of(&self, name: &DomainName) -> impl Iterator<Item = (IpAddr, Instant)> {
        let recorded: Vec<DomainName> = name.recorded_as().collect();
        let named = self
            .patterns
            .values()
            .flat_map(move |names| recorded.iter().filter_map(|name| names.names.get(name)).collect::<Vec<_>>());
        named.flat_map(|named| named.addresses.iter().map(|open| (open.address, open.end.expiry)))
    }

    /// All addresses that are open.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.by_address.keys().copied()
    }

    /// Of the addresses that are open, those that lead to this one: itself, and those that carry it.
    pub(super) fn leading_to(&self, address: IpAddr) -> Vec<IpAddr> {
        let carriers = match address {
            IpAddr::V4(v4) => self.carriers.get(&v4),
            IpAddr::V6(_) => None,
        };
        let itself = self.by_address.contains_key(&address).then_some(address);
        itself.into_iter().chain(carriers.into_iter().flatten().copied()).collect()
    }

    /// The leases by which names of a pattern open an address.
    pub(super) fn names_at(&self, pattern: &DomainPattern, address: IpAddr) -> Vec<Lease> {
        let names = self.patterns.get(pattern).into_iter().flat_map(|names| &names.names);
        let at = names.filter_map(|(name, named)| {
            let open = named.addresses.iter().find(|open| open.address == address)?;
            let (pattern, name, expiry) = (pattern.clone(), name.clone(), open.end.expiry);
            Some(Lease { pattern, name, address, expiry, asked_by: named.client })
        });
        at.collect()
    }

    /// What these patterns would open if all of them had been there: leases for each pattern that matches a name which
    /// another pattern has opened, and has not opened it for as long. Of names that have changed since a grant.
    pub(super) fn not_carried(&self, patterns: &PatternTable, since: Option<u64>) -> Vec<Lease> {
        let mut found = Vec::new();
        for (own, names) in &self.patterns {
            let changed = names.names.iter().filter(|(_, named)| since.is_none_or(|since| named.end.grant > since));
            for (name, named) in changed {
                let matching = patterns.matching(name).into_iter().map(|id| patterns.get(id));
                for pattern in matching.filter(|pattern| *pattern != own) {
                    for open in &named.addresses {
                        let (pattern, name, address) = (pattern.clone(), name.clone(), open.address);
                        let expiry = open.end.expiry;
                        let lease = Lease { pattern, name, address, expiry, asked_by: named.client };
                        if self.expiry(&lease).is_none_or(|known| known < expiry) {
                            found.push(lease);
                        }
                    }
                }
            }
        }
        found
    }

    /// Finds the addresses that lead through these translators, too.
    pub(super) fn set_translators(&mut self, translators: &[Cidr]) {
        if self.translators == translators {
            return;
        }
        self.translators = translators.to_vec();
        self.carriers.clear();
        for &address in self.by_address.keys() {
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

    /// Every lease, of every name.
    pub fn all(&self) -> impl Iterator<Item = Lease> {
        self.patterns.iter().flat_map(|(pattern, Names { names, .. })| {
            names.iter().flat_map(move |(name, named)| {
                named.addresses.iter().map(move |open| {
                    let (address, expiry) = (open.address, open.end.expiry);
                    let (pattern, name, asked_by) = (pattern.clone(), name.clone(), named.client);
                    Lease { pattern, name, address, expiry, asked_by }
                })
            })
        })
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
