//! What becomes of a DNSNameResolver's status when a name is looked up, and as
//! time goes by (S8.3, S8.4): the pseudo-code of the document, with its slips
//! mended. Pure; time is an argument.

use crate::kinds::dns_name_resolver::{ResolvedAddress, ResolvedName, Status};
use crate::kinds::meta::Condition;
use jiff::{SignedDuration, Timestamp};
use std::net::IpAddr;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// What a TTL of 0 counts as, and what an address is given whose name cannot be resolved.
    pub minimum_ttl: i32,
    /// A name that so many times in a row could not be resolved goes, if its addresses have had their time.
    pub failure_threshold: i32,
    /// How long an address outlives its TTL.
    pub grace: SignedDuration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { minimum_ttl: 5, failure_threshold: 5, grace: SignedDuration::from_secs(5) }
    }
}

/// Times of a next lookup that are no further apart count as the same.
const SAME: SignedDuration = SignedDuration::from_secs(5);
const DEGRADED: &str = "Degraded";

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
    pub pattern: &'s str,
    pub status: &'s mut Status,
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

impl Resolver<'_> {
    /// A name was resolved to these addresses, each with a TTL. An answer without any changes nothing. Says
    /// whether the status is another now.
    pub fn found(&mut self, lookup: Lookup<'_>, addresses: &[(IpAddr, u32)]) -> bool {
        if addresses.is_empty() {
            return false;
        }
        let found: Vec<ResolvedAddress> = addresses.iter().map(|&(ip, ttl)| lookup.address(ip, ttl)).collect();
        let before = self.status.clone();
        match self.position(lookup.name) {
            Some(at) => renew(&mut self.status.resolved_names[at], &found, lookup),
            // What the wildcard says already need not be said again for each of its names.
            None if !is_wildcard(lookup.name)
                && self.wildcard().is_some_and(|whole| covers(whole, &found, lookup.now)) => {}
            None => self.status.resolved_names.push(ResolvedName {
                conditions: vec![lookup.condition("False", "NOERROR")],
                dns_name: lookup.name.to_owned(),
                resolved_addresses: found,
                resolution_failures: 0,
            }),
        }
        if is_wildcard(lookup.name) {
            self.fold(lookup.now);
        }
        *self.status != before
    }

    /// A name could not be resolved. A name that is not known stays so.
    pub fn failed(&mut self, lookup: Lookup<'_>, rcode: &str) -> bool {
        let Some(at) = self.position(lookup.name) else { return false };
        let Lookup { now, settings, .. } = lookup;
        let item = &mut self.status.resolved_names[at];
        let has_ended = item.resolved_addresses.iter().all(|address| next_lookup(address) <= now);
        if item.resolution_failures >= settings.failure_threshold && has_ended {
            self.status.resolved_names.remove(at);
            return true;
        }
        // Whoever fails to answer does not say that the addresses are wrong: those whose time is up get a little more.
        for address in item.resolved_addresses.iter_mut().filter(|address| is_same(next_lookup(address), now)) {
            address.ttl_seconds = settings.minimum_ttl;
            address.last_lookup_time = Some(now);
        }
        item.resolution_failures = item.resolution_failures.saturating_add(1);
        set_condition(&mut item.conditions, lookup.condition("True", rcode));
        true
    }

    /// Takes out addresses whose time and grace are over, and names without any.
    pub fn prune(&mut self, now: Timestamp, grace: SignedDuration) -> bool {
        let before = self.status.clone();
        for item in &mut self.status.resolved_names {
            item.resolved_addresses.retain(|address| next_lookup(address) + grace > now);
        }
        self.status.resolved_names.retain(|item| !item.resolved_addresses.is_empty());
        *self.status != before
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.status.resolved_names.iter().position(|item| item.dns_name == name)
    }

    /// What is known of the wildcard itself.
    fn wildcard(&self) -> Option<&ResolvedName> {
        let own = self.status.resolved_names.iter().find(|item| item.dns_name == self.pattern);
        own.filter(|item| is_wildcard(&item.dns_name))
    }

    /// Takes out the names of which the wildcard says all there is to say.
    fn fold(&mut self, now: Timestamp) {
        let Some(whole) = self.wildcard().cloned() else { return };
        let is_said =
            |item: &ResolvedName| item.dns_name != whole.dns_name && covers(&whole, &item.resolved_addresses, now);
        self.status.resolved_names.retain(|item| !is_said(item));
    }
}

impl Lookup<'_> {
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
            kind: DEGRADED.to_owned(),
            status: degraded.to_owned(),
            reason: rcode.to_owned(),
            message,
            observed_generation: None,
            last_transition_time: self.now,
        }
    }
}

/// The addresses a name has now, beside those it had: other resolvers may see others.
fn renew(item: &mut ResolvedName, found: &[ResolvedAddress], lookup: Lookup<'_>) {
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

/// What the object for a name is called: as the shipped controllers call it, the `collisions`th time they try.
pub fn object_name(name: &str, collisions: u32) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut hash: u32 = 0x811c_9dc5;
    let again = if collisions == 0 { String::new() } else { collisions.to_string() };
    for byte in name.bytes().chain(again.bytes()) {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    let safe =
        hash.to_string().bytes().map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()])).collect();
    ["dns-".to_owned(), safe].concat()
}
