//! How the status of a DNSNameResolver changes when a name is looked up, and
//! with time (S8.3, S8.4): the pseudo-code of the design document, with its
//! errors corrected. Pure; time is an argument.

use crate::kinds::dns_name_resolver::{ResolvedAddress, ResolvedName, Status};
use crate::kinds::meta::Condition;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// What a TTL of 0 counts as, and what an address is given whose name cannot be resolved.
    pub minimum_ttl: i32,
    /// A name that so many times in a row could not be resolved goes, if its addresses have had their time.
    pub failure_threshold: i32,
    /// How long an address outlives its TTL.
    pub grace: SignedDuration,
    pub bounds: Bounds,
}

/// How much one object may hold (S8.6). The API server refuses objects of more than about 1.5 MB; these bounds keep a
/// status below 1 MB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    pub names: usize,
    pub addresses: usize,
    pub addresses_per_name: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { names: 2_000, addresses: 5_000, addresses_per_name: 1_000 }
    }
}

/// A wildcard with so many names in each of its objects gets more objects, its parts, up to so many: each write costs
/// the API server time for every name in the object.
pub const PART_NAMES: usize = 50;
pub const MOST_PARTS: usize = 40;

/// What the `number`th part of a wildcard is called. The first is named as if it were the only one (`object_name`).
pub fn part_name(wildcard: &str, number: usize) -> String {
    format!("{}-{number}", object_name(wildcard, 0))
}

impl Bounds {
    /// The bounds of one of so many parts: together they hold as much as one object would. A part that has more since
    /// before there were as many keeps it.
    pub fn of_part(self, parts: usize, status: &Status) -> Self {
        let held: usize = status.resolved_names.iter().map(|item| item.resolved_addresses.len()).sum();
        Self {
            names: (self.names / parts).max(if parts > 1 { status.resolved_names.len() } else { 0 }),
            addresses: (self.addresses / parts).max(if parts > 1 { held.max(self.addresses_per_name) } else { 0 }),
            addresses_per_name: self.addresses_per_name,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self { minimum_ttl: 5, failure_threshold: 5, grace: SignedDuration::from_secs(5), bounds: Bounds::default() }
    }
}

/// Times of a next lookup that are no further apart count as the same.
const SAME: SignedDuration = SignedDuration::from_secs(5);

/// The names of an object that a rule denies, each with the time of the last answer that replaced all its addresses.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DeniedNames(pub BTreeMap<String, Option<Timestamp>>);

impl DeniedNames {
    /// True if no answer has replaced an address of the name whose time ended then (S8.7).
    fn keeps(&self, name: &str, end: Timestamp) -> bool {
        self.0.get(name).is_some_and(|answered| answered.is_none_or(|answered| answered < end))
    }
}

/// A lookup of a name, and when.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'a> {
    /// Lower case, with its last dot; the wildcard itself if that was asked for.
    pub name: &'a str,
    pub now: Timestamp,
    pub settings: Settings,
}

/// The status of the object for one name or wildcard.
#[derive(Debug)]
pub struct Resolver<'s> {
    /// What the object is for: `spec.name`.
    pattern: &'s str,
    status: &'s mut Status,
    /// Addresses that were removed because a bound was reached.
    evicted: usize,
}

/// Whether a name is a wildcard.
pub fn is_wildcard(name: &str) -> bool {
    name.starts_with("*.")
}

/// Whether an object for `pattern` is about `name`: the name itself, or one label instead of the `*`.
pub fn matches(pattern: &str, name: &str) -> bool {
    if pattern == name {
        return true;
    }
    let Some(rest) = pattern.strip_prefix('*') else { return false };
    let Some(label) = name.strip_suffix(rest) else { return false };
    !label.is_empty() && label != "*" && !label.contains('.')
}

/// Whether an object can hold a name: the pattern that the definition of DNSNameResolvers has for it. Names with `_`,
/// which resolve and may be asked for, are not among them.
pub fn is_storable(name: &str) -> bool {
    let Some(bare) = name.strip_prefix("*.").unwrap_or(name).strip_suffix('.') else { return false };
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = |label: &str| {
        let at_ends = !label.starts_with('-') && !label.ends_with('-');
        (1..=63).contains(&label.len()) && at_ends && label.bytes().all(is_inner)
    };
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    let labels: Vec<&str> = bare.split('.').collect();
    let is_address = labels.len() == 4 && labels.iter().all(|label| is_number(label));
    name.len() <= 254 && labels.len() >= 2 && labels.iter().all(|label| is_label(label)) && !is_address
}

impl<'s> Resolver<'s> {
    /// The object for a name or wildcard, with its status.
    pub fn new(pattern: &'s str, status: &'s mut Status) -> Self {
        Self { pattern, status, evicted: 0 }
    }

    /// How many addresses were removed because a bound was reached.
    pub fn evicted(&self) -> usize {
        self.evicted
    }

    /// A name was resolved to these addresses, each with a TTL. An answer without any changes nothing. Returns
    /// whether the status has changed.
    pub fn found(&mut self, lookup: Lookup<'_>, addresses: &[(IpAddr, u32)]) -> bool {
        if addresses.is_empty() {
            return false;
        }
        let found = lookup.addresses(addresses);
        let mut has_changed = false;
        match self.position(lookup.name) {
            Some(at) => has_changed = renew(&mut self.status.resolved_names[at], &found, lookup),
            // What the wildcard says already need not be said again for each of its names.
            None if !is_wildcard(lookup.name)
                && self.wildcard().is_some_and(|whole| covers(whole, &found, lookup.now)) => {}
            None => {
                has_changed = true;
                let new = ResolvedName {
                    conditions: vec![lookup.condition("False", "NOERROR")],
                    dns_name: lookup.name.to_owned(),
                    resolved_addresses: found,
                    resolution_failures: 0,
                };
                self.status.resolved_names.push(new);
            }
        }
        if is_wildcard(lookup.name) {
            has_changed |= self.put_first(lookup.name);
            has_changed |= self.fold(lookup.now);
        }
        let evicted = self.evicted;
        self.keep_bounds(lookup);
        has_changed || self.evicted != evicted
    }

    /// Removes what exceeds the bounds: the soonest to expire, and never the name that was found now. The entry of
    /// the wildcard stays too, because it stands for all its names.
    fn keep_bounds(&mut self, lookup: Lookup<'_>) {
        let Bounds { names, addresses, addresses_per_name } = lookup.settings.bounds;
        if let Some(at) = self.position(lookup.name) {
            let known = &mut self.status.resolved_names[at].resolved_addresses;
            if known.len() > addresses_per_name {
                known.sort_by_key(|address| std::cmp::Reverse(next_lookup(address)));
                self.evicted += known.len() - addresses_per_name;
                known.truncate(addresses_per_name);
            }
        }
        let all = &mut self.status.resolved_names;
        let mut count: usize = all.iter().map(|item| item.resolved_addresses.len()).sum();
        if all.len() <= names && count <= addresses {
            return;
        }
        let may_go = |item: &ResolvedName| item.dns_name != lookup.name && !is_wildcard(&item.dns_name);
        let mut by_expiry: Vec<(Timestamp, String)> = all
            .iter()
            .filter(|item| may_go(item))
            .map(|item| (item.resolved_addresses.iter().map(next_lookup).max(), item.dns_name.clone()))
            .map(|(expiry, name)| (expiry.unwrap_or(Timestamp::MIN), name))
            .collect();
        by_expiry.sort();
        for (_, name) in by_expiry {
            if all.len() <= names && count <= addresses {
                return;
            }
            let Some(at) = all.iter().position(|item| item.dns_name == name) else { continue };
            let gone = all.remove(at).resolved_addresses.len();
            count -= gone;
            self.evicted += gone;
        }
    }

    /// A name could not be resolved. Nothing is noted of a name that has no entry.
    pub fn failed(&mut self, lookup: Lookup<'_>, rcode: &str) -> bool {
        let Some(at) = self.position(lookup.name) else { return false };
        let Lookup { now, settings, .. } = lookup;
        let item = &mut self.status.resolved_names[at];
        let has_ended = item.resolved_addresses.iter().all(|address| next_lookup(address) <= now);
        if item.resolution_failures >= settings.failure_threshold && has_ended {
            self.status.resolved_names.remove(at);
            return true;
        }
        // A failure does not say that the addresses are wrong.
        lengthen(item, lookup);
        item.resolution_failures = item.resolution_failures.saturating_add(1);
        set_condition(&mut item.conditions, lookup.condition("True", rcode));
        true
    }

    /// The name of the object could not be resolved, and no address of it is known: its entry says why (S8.7). Nothing
    /// changes if it says so already.
    pub fn unresolved(&mut self, lookup: Lookup<'_>, rcode: &str) -> bool {
        let is_own = lookup.name == self.pattern && !is_wildcard(self.pattern);
        let at = self.position(lookup.name);
        let known = at.map(|at| &self.status.resolved_names[at]);
        let is_said = |item: &ResolvedName| {
            let degraded = item.degraded();
            !item.resolved_addresses.is_empty() || degraded.is_some_and(|condition| condition.reason == rcode)
        };
        if !is_own || known.is_some_and(is_said) {
            return false;
        }
        let condition = lookup.condition("True", rcode);
        match at {
            Some(at) => set_condition(&mut self.status.resolved_names[at].conditions, condition),
            None => self.status.resolved_names.push(ResolvedName {
                conditions: vec![condition],
                dns_name: lookup.name.to_owned(),
                resolved_addresses: Vec::new(),
                resolution_failures: 1,
            }),
        }
        true
    }

    /// A name is due, and its lookup waits for its turn: its addresses last a little longer (S8.7).
    pub fn postponed(&mut self, lookup: Lookup<'_>) -> bool {
        self.position(lookup.name).is_some_and(|at| lengthen(&mut self.status.resolved_names[at], lookup))
    }

    /// Takes out addresses whose time and grace are over, and names without any. Addresses of names that a rule denies
    /// stay until they are replaced.
    pub fn prune(&mut self, now: Timestamp, grace: SignedDuration, denied: &DeniedNames) -> bool {
        let before = self.status.clone();
        for item in &mut self.status.resolved_names {
            let name = &item.dns_name;
            let stays = |end: Timestamp| end + grace > now || denied.keeps(name, end);
            item.resolved_addresses.retain(|address| stays(next_lookup(address)));
        }
        // An entry without addresses says why the name of the object has none.
        let says_why = |item: &ResolvedName| {
            let is_own = item.dns_name == self.pattern && !is_wildcard(self.pattern);
            is_own && item.degraded().is_some() && before.resolved_names.contains(item)
        };
        self.status.resolved_names.retain(|item| !item.resolved_addresses.is_empty() || says_why(item));
        *self.status != before
    }

    /// OpenShift's plugin expects the entry of the wildcard first. Other writers may have put it elsewhere. Returns
    /// whether they have.
    fn put_first(&mut self, name: &str) -> bool {
        let Some(at @ 1..) = self.position(name) else { return false };
        self.status.resolved_names[..=at].rotate_right(1);
        true
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.status.resolved_names.iter().position(|item| item.dns_name == name)
    }

    /// What is known of the wildcard itself.
    fn wildcard(&self) -> Option<&ResolvedName> {
        let own = self.status.resolved_names.iter().find(|item| item.dns_name == self.pattern);
        own.filter(|item| is_wildcard(&item.dns_name))
    }

    /// Takes out the names of which the wildcard says all there is to say. Returns whether there are any.
    fn fold(&mut self, now: Timestamp) -> bool {
        let Some(whole) = self.wildcard().cloned() else { return false };
        let is_said =
            |item: &ResolvedName| item.dns_name != whole.dns_name && covers(&whole, &item.resolved_addresses, now);
        let before = self.status.resolved_names.len();
        self.status.resolved_names.retain(|item| !is_said(item));
        self.status.resolved_names.len() != before
    }
}

impl Lookup<'_> {
    /// The same, of a name that is kept however often it fails.
    pub fn keeping_its_name(mut self) -> Self {
        self.settings.failure_threshold = i32::MAX;
        self
    }

    /// What was found, each address once with its longest TTL: several servers may have been asked, and the API
    /// server refuses a list that has an address twice.
    fn addresses(&self, found: &[(IpAddr, u32)]) -> Vec<ResolvedAddress> {
        let mut distinct: Vec<ResolvedAddress> = Vec::with_capacity(found.len());
        let mut places: HashMap<IpAddr, usize> = HashMap::new();
        for &(ip, ttl) in found {
            let new = self.address(ip, ttl);
            match places.get(&ip) {
                Some(&at) => distinct[at].ttl_seconds = distinct[at].ttl_seconds.max(new.ttl_seconds),
                None => {
                    places.insert(ip, distinct.len());
                    distinct.push(new);
                }
            }
        }
        distinct
    }

    fn address(&self, ip: IpAddr, ttl: u32) -> ResolvedAddress {
        let ttl = i32::try_from(ttl).unwrap_or(i32::MAX);
        ResolvedAddress {
            ip: ip.to_string(),
            ttl_seconds: if ttl == 0 { self.settings.minimum_ttl } else { ttl },
            last_lookup_time: Some(self.now),
        }
    }

    /// What a reader of the object is told of the name.
    fn condition(&self, degraded: &str, rcode: &str) -> Condition {
        let message = match degraded {
            "False" => format!("{} was resolved", self.name),
            _ => format!("{} could not be resolved: {rcode}", self.name),
        };
        Condition {
            kind: ResolvedName::DEGRADED.to_owned(),
            status: degraded.to_owned(),
            reason: rcode.to_owned(),
            message,
            observed_generation: None,
            last_transition_time: self.now,
        }
    }
}

/// Addresses that have expired, or are about to, last a little longer. Returns whether there are any.
fn lengthen(item: &mut ResolvedName, lookup: Lookup<'_>) -> bool {
    let Lookup { now, settings, .. } = lookup;
    let mut due = item.resolved_addresses.iter_mut().filter(|address| next_lookup(address) <= now + SAME).peekable();
    let has_any = due.peek().is_some();
    due.for_each(|address| {
        address.ttl_seconds = settings.minimum_ttl;
        address.last_lookup_time = Some(now);
    });
    has_any
}

/// The addresses a name has now, beside those it had: other resolvers may see others. Returns whether the entry has
/// changed.
fn renew(item: &mut ResolvedName, found: &[ResolvedAddress], lookup: Lookup<'_>) -> bool {
    let before = item.clone();
    for new in found {
        match item.resolved_addresses.iter_mut().find(|known| known.ip == new.ip) {
            // One that is due is renewed by however little: it would be over before the next lookup.
            Some(known) if next_lookup(known) > lookup.now && is_same(next_lookup(known), next_lookup(new)) => {}
            Some(known) => *known = new.clone(),
            None => item.resolved_addresses.push(new.clone()),
        }
    }
    item.resolution_failures = 0;
    set_condition(&mut item.conditions, lookup.condition("False", "NOERROR"));
    *item != before
}

/// A condition that stays what it was keeps the time since when it is.
fn set_condition(conditions: &mut Vec<Condition>, mut new: Condition) {
    match conditions.iter_mut().find(|known| known.kind == new.kind) {
        Some(known) => {
            if known.status == new.status {
                new.last_transition_time = known.last_transition_time;
            }
            *known = new;
        }
        None => conditions.push(new),
    }
}

/// When a name with this address is to be looked up again. One that was never looked up is long due.
pub fn next_lookup(address: &ResolvedAddress) -> Timestamp {
    let last = address.last_lookup_time.unwrap_or(Timestamp::UNIX_EPOCH);
    last.checked_add(SignedDuration::from_secs(address.ttl_seconds.into())).unwrap_or(Timestamp::MAX)
}

fn is_same(one: Timestamp, other: Timestamp) -> bool {
    one.duration_since(other).abs() <= SAME
}

/// Whether it has all of these addresses, each until the same time, and not until now.
fn covers(item: &ResolvedName, addresses: &[ResolvedAddress], now: Timestamp) -> bool {
    let has = |wanted: &ResolvedAddress| {
        let same = item.resolved_addresses.iter().filter(|known| known.ip == wanted.ip);
        let mut same = same.filter(|known| next_lookup(known) > now);
        same.any(|known| is_same(next_lookup(known), next_lookup(wanted)))
    };
    addresses.iter().all(has)
}

/// The name of the object for a DNS name: the one that OVN-Kubernetes gives it, on the `collisions`th try.
pub fn object_name(name: &str, collisions: u32) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    // Kubernetes' hash of a Go string: the type's name, then the text. The number of tries follows as eight bytes.
    let tries = if collisions == 0 { Vec::new() } else { u64::from(collisions).to_le_bytes().to_vec() };
    let bytes = b"(string)".iter().copied().chain(name.bytes()).chain(tries);
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let encode = |digit: u8| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()]);
    let encoded: String = hash.to_string().bytes().map(encode).collect();
    format!("dns-{encoded}")
}
