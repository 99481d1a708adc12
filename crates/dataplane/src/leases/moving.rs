//! Leases of groups that no rule asks for, on their way into the kernel or out of
//! it, in parts. Leases are granted, renewed and evicted between two parts: what is
//! written is what the table of leases says at that time.

use super::{GroupAddress, Grouped, LeaseGroups, Writes};
use namewall_policy::lease::Walk;
use namewall_policy::{Instant, Lease, LeaseTable};

/// A part walks over so many names at most: most of them may have no lease of these groups.
const NAMES_AT_ONCE: usize = 4_096;
/// Names between two looks at how many elements there are.
const STEP: usize = 64;

#[derive(Default, Debug)]
pub(crate) struct Moving {
    groups: LeaseGroups,
    /// Where to go on; None if all names were met.
    walk: Option<Walk>,
    /// Of names that were met, what is not moved yet.
    pending: Vec<GroupAddress>,
}

impl Moving {
    pub(crate) fn begin(groups: LeaseGroups) -> Self {
        let walk = (!groups.is_empty()).then(Walk::default);
        Self { groups, walk, pending: Vec::new() }
    }

    pub(crate) fn groups(&self) -> &LeaseGroups {
        &self.groups
    }

    /// True if every lease of these groups was moved.
    pub(crate) fn is_over(&self) -> bool {
        self.walk.is_none() && self.pending.is_empty()
    }

    /// Moves all of it again: it is not known what became of the last part.
    pub(crate) fn begin_again(&mut self) {
        *self = Self::begin(std::mem::take(&mut self.groups));
    }

    /// Opens some more, at most so many elements.
    pub(crate) fn open_some(&mut self, leases: &LeaseTable, now: Instant, most: usize) -> Writes {
        let some = self.next(leases, most);
        let grouped = Grouped { leases, groups: &self.groups };
        let mut writes = Writes::default();
        for key in some {
            // As it is now: it may have been renewed or evicted since the walk met it.
            if let Some(longest) = grouped.longest(key).filter(|longest| longest.expiry > now) {
                writes.open(key, longest, now);
            }
        }
        writes
    }

    /// Closes some more, at most so many elements.
    pub(crate) fn close_some(&mut self, leases: &LeaseTable, most: usize) -> Writes {
        let mut writes = Writes::default();
        self.next(leases, most).into_iter().for_each(|key| writes.close(key));
        writes
    }

    /// Closes leases as well that the table no longer has.
    pub(crate) fn close_evicted(&mut self, evicted: &[Lease]) {
        for Lease { pattern, address, .. } in evicted {
            let groups = self.groups.get(pattern).into_iter().flatten();
            self.pending.extend(groups.map(|&group| GroupAddress { group, address: *address }));
        }
    }

    fn next(&mut self, leases: &LeaseTable, most: usize) -> Vec<GroupAddress> {
        let mut names = 0;
        while let Some(from) = self.walk.filter(|_| self.pending.len() < most && names < NAMES_AT_ONCE) {
            let (found, next) = leases.walk(from, STEP);
            for lease in found {
                let groups = self.groups.get(lease.pattern).into_iter().flatten();
                self.pending.extend(groups.map(|&group| GroupAddress { group, address: lease.address }));
            }
            self.walk = next;
            names += STEP;
        }
        let mut some = self.pending.split_off(self.pending.len().saturating_sub(most));
        some.sort_unstable();
        some.dedup();
        some
    }
}
