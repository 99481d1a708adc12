//! What a table of leases says: by address, by name, and all of it.

use super::super::names::{Named, Names};
use super::super::opened::Opening;
use super::super::slab::Slot;
use super::super::{Instant, Lease, LeaseRef};
use super::LeaseTable;
use crate::domain::{DomainName, PatternTable, RulePattern};
use rustc_hash::FxHashMap;
use std::net::IpAddr;

/// How far a walk over a table has come. Leases can be granted between two steps of it. A walk meets every name that
/// is there from its beginning to its end; one that comes meanwhile may be passed over.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Walk(Slot);

impl LeaseTable {
    /// The live lease by which a pattern that is `wanted` opens the address.
    pub fn opening(
        &self,
        address: IpAddr,
        now: Instant,
        wanted: impl Fn(&RulePattern) -> bool,
    ) -> Option<LeaseRef<'_>> {
        if self.is_empty() {
            return None;
        }
        self.at(address).find(|lease| now < lease.expiry && wanted(lease.pattern))
    }

    /// For each pattern that opens the address, the lease that lasts longest; it may have ended.
    pub fn at(&self, address: IpAddr) -> impl Iterator<Item = LeaseRef<'_>> {
        self.openings.at(address).filter_map(move |opening| self.view(address, opening))
    }

    fn view(&self, address: IpAddr, Opening { until, name }: Opening) -> Option<LeaseRef<'_>> {
        let Named { name, pattern, client, .. } = self.names.get(name)?;
        let pattern = &self.of_patterns.get(*pattern)?.pattern;
        Some(LeaseRef { pattern, name, address, expiry: until.into(), asked_by: *client })
    }

    /// For each address and pattern that opens it, the lease that lasts longest.
    pub fn iter(&self) -> impl Iterator<Item = LeaseRef<'_>> {
        self.openings.iter().filter_map(|(address, opening)| self.view(address, opening))
    }

    /// The addresses that a name has opened, by whichever pattern, and until when.
    pub fn addresses_of(&self, name: &DomainName) -> impl Iterator<Item = (IpAddr, Instant)> {
        let recorded: Vec<DomainName> = name.recorded_as().collect();
        let named = self.of_patterns.iter().flat_map(move |(pattern, _)| {
            let slots = recorded.iter().filter_map(|name| self.find(pattern, name));
            slots.filter_map(|name| self.names.get(name)).collect::<Vec<_>>()
        });
        named.flat_map(|named| named.addresses.iter().map(|open| (open.address, open.end.expiry.into())))
    }

    /// All addresses that are open.
    pub(in super::super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.openings.addresses()
    }

    /// Of the addresses that are open, those that lead to this one: itself, and those that carry it.
    pub(in super::super) fn leading_to(&self, address: IpAddr) -> Vec<IpAddr> {
        let carriers = match address {
            IpAddr::V4(v4) => self.carriers.get(&v4),
            IpAddr::V6(_) => None,
        };
        let itself = self.openings.contains(address).then_some(address);
        itself.into_iter().chain(carriers.into_iter().flatten().copied()).collect()
    }

    /// The leases by which names of a pattern open an address.
    pub(in super::super) fn names_at(&self, pattern: &RulePattern, address: IpAddr) -> Vec<Lease> {
        let Some(slot) = self.patterns.get(pattern) else { return Vec::new() };
        let names = self.openings.names_at(address, *slot, |name| self.names.get(name).map(|named| named.pattern));
        let at = names.into_iter().filter_map(|name| {
            let named = self.names.get(name)?;
            let (expiry, name) = (named.at(address)?.end.expiry.into(), named.name.clone());
            Some(Lease { pattern: pattern.clone(), name, address, expiry, asked_by: named.client })
        });
        at.collect()
    }

    /// The leases of some patterns that end by then, or have ended.
    pub fn ending(&self, by: Instant, wanted: impl Fn(&RulePattern) -> bool) -> Vec<Lease> {
        let wanted = self.of_patterns.iter().filter(|(_, names)| wanted(&names.pattern));
        let patterns: FxHashMap<Slot, &RulePattern> = wanted.map(|(slot, names)| (slot, &names.pattern)).collect();
        if patterns.is_empty() {
            return Vec::new();
        }
        let mut ending = Vec::new();
        for (_, named) in self.names.iter() {
            let Some(pattern) = patterns.get(&named.pattern) else { continue };
            for open in named.addresses.iter().filter(|open| open.end.expiry <= by.into()) {
                let (name, address, expiry) = (&named.name, open.address, open.end.expiry.into());
                ending.push(LeaseRef { pattern, name, address, expiry, asked_by: named.client }.to_lease());
            }
        }
        ending
    }

    /// The leases of some names, at most so many, and where to go on; None if these were the last.
    pub fn walk(&self, Walk(from): Walk, names: usize) -> (impl Iterator<Item = LeaseRef<'_>>, Option<Walk>) {
        let to = from.saturating_add(Slot::try_from(names).unwrap_or(Slot::MAX));
        let next = (self.names.end() > to).then_some(Walk(to));
        (self.names.between(from, to).flat_map(move |named| self.leases_of(named)), next)
    }

    /// The same for names that have changed since a grant, or for all of them.
    pub(in super::super) fn walk_since(
        &self,
        Walk(from): Walk,
        names: usize,
        since: Option<u64>,
    ) -> (impl Iterator<Item = &Named>, Option<Walk>) {
        let to = from.saturating_add(Slot::try_from(names).unwrap_or(Slot::MAX));
        let next = (self.names.end() > to).then_some(Walk(to));
        let has_changed = move |named: &&Named| since.is_none_or(|since| u64::from(named.end.grant) > since);
        (self.names.between(from, to).filter(has_changed), next)
    }

    /// What these patterns would open if all of them had been there: leases for each pattern that matches a name which
    /// another pattern has opened, and has not opened it for as long.
    pub(in super::super) fn not_carried(&self, named: &Named, patterns: &PatternTable) -> Vec<Lease> {
        let mut found = Vec::new();
        let Some(Names { pattern: own, .. }) = self.of_patterns.get(named.pattern) else { return found };
        let matching = patterns.matching(&named.name).into_iter().map(|id| patterns.get(id));
        for pattern in matching.filter(|pattern| *pattern != own) {
            for lease in self.leases_of(named) {
                let lease = LeaseRef { pattern, ..lease }.to_lease();
                if self.expiry(&lease).is_none_or(|known| known < lease.expiry) {
                    found.push(lease);
                }
            }
        }
        found
    }

    /// The leases of a name.
    pub(in super::super) fn leases_of<'t>(&'t self, named: &'t Named) -> impl Iterator<Item = LeaseRef<'t>> {
        let pattern = self.of_patterns.get(named.pattern).map(|names| &names.pattern);
        pattern.into_iter().flat_map(move |pattern| {
            named.addresses.iter().map(move |open| {
                let (name, address, expiry) = (&named.name, open.address, open.end.expiry.into());
                LeaseRef { pattern, name, address, expiry, asked_by: named.client }
            })
        })
    }

    /// Every lease, of every name.
    pub fn all(&self) -> impl Iterator<Item = Lease> {
        self.names.iter().flat_map(move |(_, named)| self.leases_of(named)).map(LeaseRef::to_lease)
    }
}
