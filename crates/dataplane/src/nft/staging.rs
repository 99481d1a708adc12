//! Elements that no rule asks for. Those of pods and of named ports begin with the
//! number of a group: while no rule has that number, they decide nothing. So a
//! large change writes them before its switch, in small transactions, and removes
//! those of the old rules after it. The switch itself stays one transaction.

use super::change::Change;
use super::elements::Moved;
use super::set::{self, Element};
use super::table::Table;
use crate::render::{Ids, Rendered};
use rustc_hash::{FxHashMap, FxHashSet};

/// So many elements are written in one transaction: a longer one would keep answers waiting. A change with fewer is
/// not staged.
pub(super) const AT_ONCE: usize = 1_000;

/// An element, and its set.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) set: &'static str,
    pub(super) element: Element,
}

impl Placed {
    pub(super) fn put_into(&self, table: &mut Table) {
        table.sets.get_mut(self.set).into_iter().for_each(|set| set.insert(self.element.clone()));
    }

    pub(super) fn take_out_of(&self, table: &mut Table) {
        table.sets.get_mut(self.set).into_iter().for_each(|set| set.elements.remove(self.element.index()));
    }
}

/// The numbers that rules of a table ask for.
pub(super) struct Asked {
    peers: FxHashSet<u32>,
    named: FxHashSet<u32>,
}

impl Asked {
    pub(super) fn by(rendered: &Rendered) -> Self {
        let groups = rendered.numbers.groups.iter().map(|group| group.number);
        Self { peers: groups.collect(), named: rendered.numbers.named.values().copied().collect() }
    }

    /// The set, if it is one of groups, and whether a rule asks for the element.
    fn of(&self, set: &str, element: &Element) -> Option<(&'static str, bool)> {
        let number = element.key.as_bytes().first_chunk().copied().map_or(0, u32::from_ne_bytes);
        let find = |twins: set::Twins| [twins.0, twins.1].into_iter().find(|name| *name == set);
        let peers = find(set::PEERS).map(|set| (set, self.peers.contains(&number)));
        peers.or_else(|| find(set::NAMED).map(|set| (set, self.named.contains(&number))))
    }

    /// True for the sets whose elements begin with the number of a group.
    fn is_of_groups(&self, set: &str) -> bool {
        [set::PEERS, set::NAMED].iter().any(|twins| twins.0 == set || twins.1 == set)
    }

    /// The set of an element that no rule asks for.
    fn set_of_unasked(&self, set: &str, element: &Element) -> Option<&'static str> {
        self.of(set, element).and_then(|(set, is_asked)| (!is_asked).then_some(set))
    }
}

/// What of a change the rules in force do not ask for, if that is much.
pub(super) fn before_the_switch(change: &Change<'_>, in_force: &Asked) -> Vec<Placed> {
    let elements = change.new_elements.iter().flat_map(|(set, moved)| moved.iter().map(move |one| (*set, one)));
    let place = |(set, element)| in_force.set_of_unasked(set, &element).map(|set| Placed { set, element });
    let staged: Vec<Placed> = elements.filter_map(place).collect();
    if staged.len() > AT_ONCE { staged } else { Vec::new() }
}

/// Takes out of a change what the new rules do not ask for, if that is much: it can go after the switch.
pub(super) fn after_the_switch(change: &mut Change<'_>, next: &Asked) -> Vec<Placed> {
    let is_unasked = |set: &str, element: &Element| next.set_of_unasked(set, element).is_some();
    let gone = change.gone_elements.iter().flat_map(|(set, moved)| moved.iter().map(move |one| (*set, one)));
    if gone.filter(|(set, element)| is_unasked(set, element)).count() <= AT_ONCE {
        return Vec::new();
    }
    let mut later = Vec::new();
    for (set, moved) in &mut change.gone_elements {
        let mut now = Vec::new();
        for element in moved.iter() {
            match next.set_of_unasked(set, &element) {
                Some(set) => later.push(Placed { set, element }),
                None => now.push(element),
            }
        }
        *moved = Moved::These(now);
    }
    change.gone_elements.retain(|(_, moved)| moved.iter().next().is_some());
    later
}

/// Takes out of a change what was written before the switch.
pub(super) fn leave_out_staged(change: &mut Change<'_>, in_force: &Asked) {
    for (set, moved) in &mut change.new_elements {
        if in_force.is_of_groups(set) {
            let left = moved.iter().filter(|element| in_force.set_of_unasked(set, element).is_none());
            *moved = Moved::These(left.collect());
        }
    }
    change.new_elements.retain(|(_, moved)| moved.iter().next().is_some());
}

/// Numbers for a table in which no group that changes much keeps its number: under a new one, its pods can be written
/// before the switch. None if no group changes much.
pub(super) fn renumbered(change: &Change<'_>, in_force: &Rendered, next: &Rendered) -> Option<Ids> {
    let (old, new) = (Asked::by(in_force), Asked::by(next));
    let mut sizes: FxHashMap<u32, usize> = FxHashMap::default();
    for (set, moved) in change.new_elements.iter().chain(&change.gone_elements) {
        if *set == set::PEERS.0 || *set == set::PEERS.1 {
            for element in moved.iter() {
                let number = element.key.as_bytes().first_chunk().copied().map_or(0, u32::from_ne_bytes);
                *sizes.entry(number).or_default() += 1;
            }
        }
    }
    let is_in_both = |number: &u32| old.peers.contains(number) && new.peers.contains(number);
    let large: FxHashSet<u32> =
        sizes.into_iter().filter(|(number, size)| *size > AT_ONCE && is_in_both(number)).map(|(one, _)| one).collect();
    if large.is_empty() {
        return None;
    }
    let mut ids = in_force.ids.clone();
    ids.groups.retain(|_, number| !large.contains(number));
    // No other group gets a number that rules in force ask for: its elements would count before the switch.
    ids.reserved = old.peers;
    Some(ids)
}
