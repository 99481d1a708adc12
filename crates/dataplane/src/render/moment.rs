//! The moment of a change. A packet sees the rules as they were when it came,
//! and the elements of sets as they are when it asks. One that is under way
//! while a change is made may therefore mix the two: it may be led to a chain
//! that is still empty for it, or miss the peers of a rule that denies.
//!
//! So every change has a number, its **generation**. The set `generation` has
//! the number of the last change, and the chain `allowed` knows the number of
//! the rules it stands among. Whatever allows a connection leads there, and a
//! packet for which they differ is dropped. Sent again, it meets the new rules.
//! What falls off the end of a base chain is dropped as well: only a packet
//! that was led to an empty chain gets there.

use super::{BASE_CHAINS, Mode, Render};
use crate::nft::rule::{Action as Do, Rule, Test};
use crate::nft::set::{Element, Field, GENERATION, Holds, Key, SetSpec};
use crate::nft::table::{Chain, Table};

pub(crate) const ALLOWED: &str = "allowed";
const WHY: &str = "came while the rules were changed";

/// From the generation of a table to the next.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) generation: u16,
    pub(crate) allowed: Chain,
    pub(crate) gone: Element,
    pub(crate) come: Element,
}

impl Step {
    pub(crate) fn after(generation: u16) -> Self {
        let next = generation.wrapping_add(1);
        Self { generation: next, allowed: allowed(next), gone: element(generation), come: element(next) }
    }

    /// The table as it is when the step is made.
    pub(crate) fn note(self, table: &mut Table) {
        if let Some(set) = table.sets.get_mut(GENERATION) {
            set.elements.remove(self.gone.index());
            set.insert(self.come);
        }
        table.chains.insert(ALLOWED.to_owned(), self.allowed);
    }
}

impl Render<'_> {
    /// The last thing that is done to a table: these rules end its base chains.
    pub(super) fn end_base_chains(&self, table: &mut Table, generation: u16) {
        table.chains.insert(ALLOWED.to_owned(), allowed(generation));
        table.set(SetSpec::new(GENERATION, &[Field::Port], Holds::Keys)).insert(element(generation));
        for (name, ..) in BASE_CHAINS {
            if let Some(chain) = table.chains.get_mut(name) {
                chain.rules.push(Rule::new([], Mode::Enforce.allowance()));
            }
        }
    }
}

fn allowed(generation: u16) -> Chain {
    let current = Rule::new([Test::Generation(generation)], Do::Accept);
    let drop = Rule { tests: Vec::new(), actions: vec![Do::Count, Do::Drop], comment: Some(WHY.to_owned()) };
    Chain { hook: None, rules: vec![current, drop] }
}

fn element(generation: u16) -> Element {
    Element::key(Key::only_port(generation))
}
