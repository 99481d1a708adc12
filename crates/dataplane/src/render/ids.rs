//! Numbers for what the kernel must tell apart: the **group** of pods a rule
//! speaks of.
//!
//! Numbers are kept from one Program to the next wherever that is possible, so
//! that a change in the cluster stays a small change in the kernel.

use namewall_policy::Program;
use namewall_policy::bits::BitSet;
use namewall_policy::program::{Holder, Member};
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::IpAddr;
use std::ops::Range;

/// The numbers in use.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Ids {
    /// By each rule that speaks of the group.
    pub(crate) groups: FxHashMap<String, u32>,
    /// Numbers that no other group gets.
    pub(crate) reserved: FxHashSet<u32>,
    /// Of the last change.
    pub(crate) generation: u16,
    /// True if a translated connection was cut here, so that the table has the chain that resets such connections before
    /// they are translated anew.
    pub(crate) resets_early: bool,
}

/// Every pod that has an address.
pub(crate) fn pods(program: &Program) -> impl Iterator<Item = (IpAddr, &Member)> {
    program.by_address.iter().filter_map(|(&address, &holder)| match holder {
        Holder::Pod(id) => Some((address, program.member(id))),
        Holder::Node(_) | Holder::SomeNode(_) => None,
    })
}

/// Gives numbers nobody has, the lowest first.
struct Fresh {
    taken: FxHashSet<u32>,
    last: u32,
}

impl Fresh {
    fn after(taken: FxHashSet<u32>) -> Self {
        Self { taken, last: 0 }
    }

    fn next(&mut self) -> u32 {
        loop {
            self.last += 1;
            if !self.taken.contains(&self.last) {
                return self.last;
            }
        }
    }
}

/// The groups the rules ask for: rules that speak of the same pods share one.
#[derive(Default, Debug)]
pub(crate) struct Groups {
    by_content: FxHashMap<BitSet, usize>,
    wanted: Vec<Wanted>,
}

#[derive(Debug)]
struct Wanted {
    roles: BitSet,
    labels: Vec<String>,
    runs: Vec<Range<u32>>,
}

impl Groups {
    /// Asks for a group for a run of rules; its number comes with `number`.
    pub(crate) fn want(&mut self, roles: &BitSet, label: String, run: Range<u32>) {
        let next = self.wanted.len();
        let at = *self.by_content.entry(roles.clone()).or_insert(next);
        if at == next {
            self.wanted.push(Wanted { roles: roles.clone(), labels: Vec::new(), runs: Vec::new() });
        }
        self.wanted[at].labels.push(label);
        self.wanted[at].runs.push(run);
    }

    pub(crate) fn number(self, before: &Ids) -> Numbered {
        let mut taken = FxHashSet::default();
        let mut numbers: Vec<Option<u32>> = Vec::new();
        for wanted in &self.wanted {
            let had = wanted.labels.iter().filter_map(|label| before.groups.get(label));
            numbers.push(had.copied().find(|number| taken.insert(*number)));
        }
        taken.extend(&before.reserved);
        let mut fresh = Fresh::after(taken);
        let mut numbered = Numbered::default();
        for (Wanted { roles, labels, runs }, number) in self.wanted.into_iter().zip(numbers) {
            let number = number.unwrap_or_else(|| fresh.next());
            numbered.by_rule.extend(labels.into_iter().map(|label| (label, number)));
            numbered.groups.push(Group { number, roles, runs });
        }
        numbered
    }
}

/// Groups with their numbers.
#[derive(Default, Debug)]
pub(crate) struct Numbered {
    pub(crate) by_rule: FxHashMap<String, u32>,
    pub(crate) groups: Vec<Group>,
}

/// The pods that some runs of rules speak of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    pub(crate) number: u32,
    pub(crate) roles: BitSet,
    /// The runs, as ranges of rule ids.
    pub(crate) runs: Vec<Range<u32>>,
}
