//! What becomes of leases when the Program changes (S6.3): those that have become
//! such as are never leased go, and the others carry over to every pattern that
//! allows their name.

use super::survey::Survey;
use super::table::Walk;
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

/// Which leases may have become such as are never leased.
#[derive(Debug)]
pub(super) enum Suspects {
    All,
    /// Those that lead to one of these addresses.
    LeadingTo(Vec<IpAddr>),
}

impl Revision<'_> {
    /// Works out what is to be done with all leases, or with what a survey has left. `carried` is what was done last.
    pub(super) fn plan(&self, table: &LeaseTable, carried: Option<&Carried>, survey: &Survey) -> Plan {
        let revoked = match &survey.suspects {
            Suspects::LeadingTo(addresses) => {
                self.revoked(table, addresses.iter().flat_map(|one| table.leading_to(*one)))
            }
            Suspects::All => match survey.looked_at() {
                None => self.revoked(table, table.addresses()),
                Some(until) => self.revoked_of(table, survey, until),
            },
        };
        let Rules { program, never_leased } = self.next;
        if !self.has_new_rules() {
            return Plan { revoked, ..Plan::default() };
        }
        let since = carried.filter(|carried| carried.is_for(program)).map(|carried| carried.grants);
        let (names, _) = table.walk_since(Walk::default(), usize::MAX, since);
        let mut found: Vec<Lease> = names.flat_map(|named| table.not_carried(named, &program.patterns)).collect();
        found.retain(|lease| never_leased.refusal_of_lease(program, lease.borrowed()).is_none());
        Plan { revoked, carried: found, patterns: Some(Carried::to(program, table.grants())) }
    }

    /// As long as only pods come and go, no pattern and no subject of a rule is new.
    pub(super) fn has_new_rules(&self) -> bool {
        self.before.is_none_or(|before| !has_same_rules(before.program, self.next.program))
    }

    fn revoked(&self, table: &LeaseTable, suspects: impl Iterator<Item = IpAddr>) -> Vec<(Lease, Refusal)> {
        let Rules { program, never_leased } = self.next;
        let mut suspects: Vec<IpAddr> = suspects.collect();
        suspects.sort_unstable();
        suspects.dedup();
        let mut revoked = Vec::new();
        for address in suspects {
            for pattern in table.at(address).map(|lease| lease.pattern).filter(|pattern| !pattern.denies()) {
                // All of its names may lead to pods, and most suspects are pods.
                if never_leased.is_inside(pattern)
                    && never_leased.refusal(program, pattern.names.domain(), address).is_none()
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

    /// What a survey has found, as far as it is still there, and what was granted since.
    fn revoked_of(&self, table: &LeaseTable, survey: &Survey, until: u64) -> Vec<(Lease, Refusal)> {
        let (names, _) = table.walk_since(Walk::default(), usize::MAX, Some(until));
        let later = names.flat_map(|named| table.leases_of(named)).map(|lease| lease.to_lease());
        let mut seen = FxHashSet::default();
        let is_first = |lease: &Lease| seen.insert((lease.pattern.clone(), lease.name.clone(), lease.address));
        let known = survey.refused.iter().cloned().chain(later).filter(is_first);
        known.filter_map(|lease| self.refused(Lease { expiry: table.expiry(&lease)?, ..lease })).collect()
    }

    /// The lease, if it is one that is never leased from now on.
    pub(super) fn refused(&self, lease: Lease) -> Option<(Lease, Refusal)> {
        let Rules { program, never_leased } = self.next;
        let refusal = never_leased.refusal_of_lease(program, lease.borrowed())?;
        Some((lease, refusal))
    }

    /// Where leases may have become such as are never leased.
    pub(super) fn suspects(&self) -> Suspects {
        let Rules { program, never_leased } = self.next;
        let Some(before) = self.before.filter(|before| before.never_leased == never_leased) else {
            return Suspects::All;
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
                None => return Suspects::All,
            }
        }
        Suspects::LeadingTo(changed)
    }
}

impl Carried {
    pub(super) fn to(program: &Program, grants: u64) -> Self {
        Self { patterns: program.patterns.clone(), grants }
    }

    /// True if it is about all patterns of this Program.
    pub(super) fn is_for(&self, program: &Program) -> bool {
        is_same(&self.patterns, &program.patterns)
    }

    pub(super) fn grants(&self) -> u64 {
        self.grants
    }
}

impl LeaseTable {
    /// Goes on with other rules, where nobody has to acknowledge it.
    pub fn follow(&mut self, revision: &Revision<'_>) {
        let plan = revision.plan(self, None, &Survey::none(revision));
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
