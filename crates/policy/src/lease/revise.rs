//! What becomes of leases when the Program changes (S6.3): those that have become
//! such as are never leased go, and the others carry over to every pattern that
//! allows their name.

use super::{Lease, LeaseTable, NeverLeased, Refusal};
use crate::addr::{AddrSet, next_address};
use crate::domain::PatternTable;
use crate::program::Program;
use rustc_hash::FxHashSet;
use std::net::IpAddr;
use std::sync::Arc;

/// More addresses than this are not looked up one by one.
const FEW: usize = 4_096;

/// What decides which leases there may be.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    pub program: &'a Program,
    pub never_leased: &'a NeverLeased,
}

/// From which rules leases go on to which.
#[derive(Clone, Copy, Debug)]
pub struct Revision<'a> {
    /// None if nothing was in force: then every lease is checked.
    pub before: Option<Rules<'a>>,
    pub next: Rules<'a>,
}

/// What a revision does to a table of leases.
#[derive(Default, Debug)]
pub struct Plan {
    /// Leases that are never leased from now on.
    pub revoked: Vec<(Lease, Refusal)>,
    /// Leases of other patterns for what is open already; some may have ended.
    pub(super) carried: Vec<Lease>,
    /// The patterns that all leases have been carried over to then.
    pub(super) patterns: Option<Carried>,
}

/// Which leases have been carried over to which patterns.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    patterns: Arc<PatternTable>,
    /// All that were granted until then.
    grants: u64,
}

impl Revision<'_> {
    /// Works out what is to be done. `carried` is what was done last.
    pub(super) fn plan(&self, table: &LeaseTable, carried: Option<&Carried>) -> Plan {
        let Rules { program, .. } = self.next;
        let revoked = self.revoked(table);
        // As long as only pods come and go, no pattern and no subject of a rule is new.
        let has_new_rules = self.before.is_none_or(|before| !has_same_rules(before.program, program));
        if !has_new_rules {
            return Plan { revoked, ..Plan::default() };
        }
        let gone: FxHashSet<(&str, IpAddr)> =
            revoked.iter().map(|(lease, _)| (lease.name.as_str(), lease.address)).collect();
        let since = carried.filter(|carried| is_same(&carried.patterns, &program.patterns));
        let mut found = table.not_carried(&program.patterns, since.map(|carried| carried.grants));
        found.retain(|lease| !gone.contains(&(lease.name.as_str(), lease.address)));
        let patterns = Carried { patterns: program.patterns.clone(), grants: table.grants() };
        Plan { revoked, carried: found, patterns: Some(patterns) }
    }

    fn revoked(&self, table: &LeaseTable) -> Vec<(Lease, Refusal)> {
        let Rules { program, never_leased } = self.next;
        let mut revoked = Vec::new();
        for address in self.suspects(table) {
            for pattern in table.at(address).map(|lease| lease.pattern) {
                // All of its names may lead to pods, and most suspects are pods.
                if never_leased.is_inside(pattern) && never_leased.refusal(program, pattern.domain(), address).is_none()
                {
                    continue;
                }
                for lease in table.names_at(pattern, address) {
                    let refusal = never_leased.refusal(program, &lease.name, address);
                    revoked.extend(refusal.map(|refusal| (lease, refusal)));
                }
            }
        }
        revoked
    }

    /// The addresses of leases that may have become such as are never leased.
    fn suspects(&self, table: &LeaseTable) -> Vec<IpAddr> {
        let Rules { program, never_leased } = self.next;
        let Some(before) = self.before.filter(|before| before.never_leased == never_leased) else {
            return table.addresses().collect();
        };
        let mut changed: Vec<IpAddr> =
            program.by_address.changed_since(&before.program.by_address).map(|(address, _)| *address).collect();
        let sets = [
            (&before.program.service_addresses, &program.service_addresses),
            (&before.program.pod_networks, &program.pod_networks),
        ];
        for (before, next) in sets.into_iter().filter(|(before, next)| !Arc::ptr_eq(before, next)) {
            match few(&next.subtract(before)) {
                Some(few) => changed.extend(few),
                None => return table.addresses().collect(),
            }
        }
        let mut suspects: Vec<IpAddr> = changed.into_iter().flat_map(|address| table.leading_to(address)).collect();
        suspects.sort_unstable();
        suspects.dedup();
        suspects
    }
}

impl LeaseTable {
    /// Goes on with other rules, where nobody has to acknowledge it.
    pub fn follow(&mut self, revision: &Revision<'_>) {
        let plan = revision.plan(self, None);
        self.set_translators(revision.next.never_leased.translators());
        plan.revoked.iter().for_each(|(lease, _)| self.revoke(lease));
        for lease in plan.carried {
            self.grant(lease);
        }
    }
}

/// The addresses of a set, unless they are many.
fn few(set: &AddrSet) -> Option<Vec<IpAddr>> {
    let mut all = Vec::new();
    for range in set.ranges() {
        let mut next = Some(range.first);
        while let Some(address) = next.filter(|address| *address <= range.last) {
            all.push(address);
            if all.len() > FEW {
                return None;
            }
            next = next_address(address);
        }
    }
    Some(all)
}

fn has_same_rules(before: &Program, next: &Program) -> bool {
    Arc::ptr_eq(&before.rules, &next.rules) && Arc::ptr_eq(&before.classes, &next.classes)
}

fn is_same(one: &Arc<PatternTable>, other: &Arc<PatternTable>) -> bool {
    Arc::ptr_eq(one, other) || one.iter().eq(other.iter())
}
