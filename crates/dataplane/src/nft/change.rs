//! From one table to another: the smallest set of operations, in an order the
//! kernel accepts, as one transaction.

use super::batch::Batch;
use super::elements::{Elements, Moved};
use super::set::{self, Element, Key, SetSpec};
use super::table::{Chain, Table};
use crate::render::{ALLOWED, Step};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;

/// A table as far as it is known: one that was meant, or one that was read back.
pub(crate) trait ExistingTable {
    fn chains(&self) -> BTreeSet<&str>;
    /// Whether it has this chain with exactly these rules.
    fn has_chain(&self, name: &str, chain: &Chain) -> bool;
    /// Whether the hook, which cannot be changed in place, is another.
    fn has_other_hook(&self, name: &str, chain: &Chain) -> bool;
    fn sets(&self) -> BTreeSet<&str>;
    fn counters(&self) -> BTreeSet<&str>;
    fn spec(&self, name: &str) -> Option<&SetSpec>;
    fn elements(&self, name: &str) -> Option<&Elements>;
}

impl ExistingTable for Table {
    fn chains(&self) -> BTreeSet<&str> {
        self.chains.keys().map(String::as_str).collect()
    }

    fn has_chain(&self, name: &str, chain: &Chain) -> bool {
        self.chains.get(name) == Some(chain)
    }

    fn has_other_hook(&self, name: &str, chain: &Chain) -> bool {
        self.chains.get(name).is_some_and(|known| known.hook != chain.hook)
    }

    fn sets(&self) -> BTreeSet<&str> {
        self.sets.keys().map(String::as_str).collect()
    }

    fn counters(&self) -> BTreeSet<&str> {
        self.counters.keys().map(String::as_str).collect()
    }

    fn spec(&self, name: &str) -> Option<&SetSpec> {
        self.sets.get(name).map(|set| &set.spec)
    }

    fn elements(&self, name: &str) -> Option<&Elements> {
        self.sets.get(name).map(|set| &set.elements)
    }
}

/// True for the sets that say which change was the last. An earlier layout had one for all changes (ADR 23).
fn is_generation(set: &str) -> bool {
    set == "generation" || set::generation_of(set).is_some()
}

/// Where one begins, and where it ends unless it goes to the end of all keys.
type Interval = Vec<Element>;

/// Intervals go and come as a whole: the kernel refuses one end within another interval, though that goes with it.
fn intervals(elements: &Elements) -> FxHashSet<Interval> {
    let mut sorted: Vec<Element> = elements.iter().collect();
    // One may begin where another ends.
    sorted.sort_unstable_by_key(|element| (element.key, !element.ends_interval));
    sorted.chunk_by(|_, next| next.ends_interval).map(<[Element]>::to_vec).collect()
}

/// What must be done to a table.
#[derive(Default, Debug)]
pub(crate) struct Change<'a> {
    pub(crate) new_sets: Vec<&'a SetSpec>,
    pub(crate) new_chains: Vec<(&'a str, &'a Chain)>,
    pub(crate) rewritten: Vec<(&'a str, &'a Chain)>,
    pub(crate) gone_chains: Vec<&'a str>,
    pub(crate) gone_sets: Vec<&'a str>,
    /// Sets among those that go, which packets that are under way must find empty.
    pub(crate) emptied: Vec<&'a str>,
    pub(crate) new_elements: Vec<(&'a str, Moved<'a>)>,
    pub(crate) gone_elements: Vec<(&'a str, Moved<'a>)>,
    /// Names and comments.
    pub(crate) new_counters: Vec<(&'a str, &'a str)>,
    pub(crate) gone_counters: Vec<&'a str>,
    pub(crate) step: Option<Step>,
}

impl<'a> Change<'a> {
    /// Whether one can become the other: the form of a set and the hook of a chain are for good.
    pub(crate) fn is_possible(old: &impl ExistingTable, new: &Table) -> bool {
        let other_form = |name: &&str| new.sets.get(*name).is_some_and(|set| Some(&set.spec) != old.spec(name));
        !old.sets().iter().any(other_form) && !new.chains.iter().any(|(name, chain)| old.has_other_hook(name, chain))
    }

    pub(crate) fn between(old: &'a impl ExistingTable, new: &'a Table) -> Self {
        let mut change = Self::default();
        let old_chains = old.chains();
        for (name, chain) in &new.chains {
            if !old_chains.contains(name.as_str()) {
                change.new_chains.push((name, chain));
            } else if !old.has_chain(name, chain) {
                change.rewritten.push((name, chain));
            }
        }
        change.gone_chains.extend(old_chains.iter().filter(|name| !new.chains.contains_key(**name)));
        change.gone_sets.extend(old.sets().iter().filter(|name| !new.sets.contains_key(**name)));
        let old_counters = old.counters();
        let new_counters = new.counters.iter().filter(|(name, _)| !old_counters.contains(name.as_str()));
        change.new_counters.extend(new_counters.map(|(name, comment)| (name.as_str(), comment.as_str())));
        change.gone_counters.extend(old_counters.iter().filter(|name| !new.counters.contains_key(**name)));
        change.emptied.extend(change.gone_sets.iter().filter(|name| is_generation(name)));
        for (name, set) in &new.sets {
            match old.elements(name) {
                None => {
                    change.new_sets.push(&set.spec);
                    // Intervals must come in order, and there are not many.
                    match set.spec.interval {
                        true => change.add(name, set.elements.iter().collect(), Vec::new()),
                        false if set.elements.is_empty() => {}
                        false => change.new_elements.push((name, Moved::All(&set.elements))),
                    }
                }
                // Leases are the kernel's own: they come by grants and go by time.
                Some(_) if set.spec.timeout => {}
                Some(known) if set.spec.interval && known != &set.elements => {
                    let (was, is) = (intervals(known), intervals(&set.elements));
                    let only = |these: &FxHashSet<Interval>, others: &FxHashSet<Interval>| {
                        these.difference(others).flatten().cloned().collect()
                    };
                    change.add(name, only(&is, &was), only(&was, &is));
                }
                Some(known) => {
                    let added = set.elements.iter().filter(|element| !known.has(element));
                    let gone = known.iter().filter(|element| !set.elements.has(element));
                    change.add(name, added.collect(), gone.collect());
                }
            }
        }
        // The kernel looks for a set by its name through all that were made before it, and a lease is written while an
        // answer waits.
        change.new_sets.sort_by_key(|spec| spec.name != set::LEASE.0 && spec.name != set::LEASE.1);
        change
    }

    /// Makes it the next generation of a table that is of this one. Nothing to do stays nothing.
    pub(crate) fn step_after(mut self, generation: u16) -> Self {
        let is_about = |(name, _): &(&str, &Chain)| *name == ALLOWED;
        // Where the chain is made or mended, the generation stays.
        let is_mended = self.new_chains.iter().chain(&self.rewritten).any(is_about);
        self.step = (!self.is_empty() && !is_mended).then(|| Step::after(generation));
        self
    }

    /// True if there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        let chains = self.new_chains.is_empty() && self.rewritten.is_empty() && self.gone_chains.is_empty();
        let sets = self.new_sets.is_empty() && self.gone_sets.is_empty();
        let elements = self.new_elements.is_empty() && self.gone_elements.is_empty();
        let counters = self.new_counters.is_empty() && self.gone_counters.is_empty();
        chains && sets && elements && counters && self.step.is_none()
    }

    /// Whether a connection that was allowed may be forbidden now. More peers and
    /// more named ports only open, unless some rule denies or passes; a pod's
    /// first policies may close.
    pub(crate) fn narrows(&self, only_allows: bool) -> bool {
        let opens = |set: &str| {
            let of = |twins: &set::Twins| set == twins.0 || set == twins.1;
            // What a joined look-up allows, the rules after it allow too.
            [set::OWN, set::PODS, set::LOCAL, set::JOINED].iter().any(of)
                || (only_allows && [set::PEERS, set::NAMED].iter().any(of))
        };
        // A pod that was not there has no connections that its gates could forbid.
        let new_pods: FxHashSet<Key> = self.keys_of(set::PODS).collect();
        let closes_for = |set: &str, elements: &Moved<'_>| {
            // Either is the address, or ends with it.
            let is_new = |element: &Element| {
                let key = element.key.as_bytes();
                let number = if set == set::GATES.0 || set == set::GATES.1 { 4 } else { 0 };
                Key::from_bytes(&key[number.min(key.len())..]).is_some_and(|address| new_pods.contains(&address))
            };
            let gates = [set::GATES, set::GATED].iter().any(|twins| set == twins.0 || set == twins.1);
            !gates || elements.iter().any(|element| !is_new(&element))
        };
        let added = self.new_elements.iter().any(|(set, elements)| !opens(set) && closes_for(set, elements));
        added || !(self.gone_elements.is_empty() && self.rewritten.is_empty() && self.new_chains.is_empty())
    }

    fn keys_of(&self, sets: set::Twins) -> impl Iterator<Item = Key> {
        let new = self.new_elements.iter().filter(move |(set, _)| *set == sets.0 || *set == sets.1);
        new.flat_map(|(_, elements)| elements.iter().map(|element| element.key))
    }

    fn add(&mut self, set: &'a str, mut added: Vec<Element>, mut gone: Vec<Element>) {
        // Intervals must come in order.
        if added.iter().chain(&gone).any(|element| element.ends_interval) {
            added.sort_unstable_by_key(|element| (element.key, !element.ends_interval));
            gone.sort_unstable_by_key(|element| element.index());
        }
        if !added.is_empty() {
            self.new_elements.push((set, Moved::These(added)));
        }
        if !gone.is_empty() {
            self.gone_elements.push((set, Moved::These(gone)));
        }
    }

    /// First what is new and nobody refers to yet, then what refers to it, last what nobody refers to any more.
    pub(crate) fn write(&self, batch: &mut Batch) {
        for (name, comment) in &self.new_counters {
            batch.add_counter(name, comment);
        }
        for spec in &self.new_sets {
            batch.add_set(spec);
        }
        for (name, chain) in &self.new_chains {
            batch.add_chain(name, chain);
        }
        for (name, _) in &self.rewritten {
            batch.clear_chain(name);
        }
        for (set, elements) in &self.gone_elements {
            batch.delete_elements(set, elements.iter());
        }
        for set in &self.emptied {
            batch.clear_set(set);
        }
        for (set, elements) in &self.new_elements {
            batch.add_elements(set, elements.iter());
        }
        // The kernel validates what a map leads to when a rule asks the map: base chains first, while that is empty.
        let (base, others): (Vec<_>, Vec<_>) =
            self.new_chains.iter().chain(&self.rewritten).partition(|(_, chain)| chain.hook.is_some());
        for (name, chain) in base.into_iter().chain(others) {
            batch.add_rules(name, chain);
        }
        for name in &self.gone_chains {
            batch.clear_chain(name);
        }
        // A map may lead to a chain that goes with it.
        for name in &self.gone_sets {
            batch.delete_set(name);
        }
        for name in &self.gone_chains {
            batch.delete_chain(name);
        }
        for name in &self.gone_counters {
            batch.delete_counter(name);
        }
        if let Some(step) = &self.step {
            step.write(batch);
        }
    }
}
