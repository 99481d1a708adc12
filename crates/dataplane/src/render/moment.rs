//! The moment of a change. A packet sees the rules as they were when it came,
//! and the elements of sets as they are when it asks. One that is under way
//! while a change is made may therefore mix the two: it may be led to a chain
//! that is still empty for it, or miss the peers of a rule that denies.
//!
//! So every change has a number, its **generation**, and a set with that number
//! in its name. The chain `allowed` asks the set of the rules it stands among.
//! A change empties the set of the last one and makes its own. Whatever allows
//! a connection leads to `allowed`, and a packet with old rules is dropped
//! there. Sent again, it meets the new rules. The set has the families of IP in
//! it, since nft cannot show a test that looks at nothing of the packet.
//! What falls off the end of a base chain is dropped as well: only a packet
//! that was led to an empty chain gets there.

use super::{BASE_CHAINS, Mode, Render};
use crate::nft::Batch;
use crate::nft::rule::{Action as Do, Rule, Test};
use crate::nft::set::{self, Element, Field, Holds, Key, SetSpec, Version};
use crate::nft::table::{Chain, Set, Table};

pub(crate) const ALLOWED: &str = "allowed";
const WHY: &str = "came while the rules were changed";

/// From the generation of a table to the next.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) generation: u16,
    pub(crate) allowed: Chain,
    gone: String,
    come: Set,
}

impl Step {
    pub(crate) fn after(generation: u16) -> Self {
        let next = generation.wrapping_add(1);
        Self { generation: next, allowed: allowed(next), gone: set::generation(generation), come: set_of(next) }
    }

    /// The set of the next generation, which must be in the kernel when the step is made.
    pub(crate) fn come(&self) -> (&str, Vec<Element>) {
        (&self.come.spec.name, self.come.elements.iter().collect())
    }

    /// The old set goes last, and empty: a packet that is under way with the old rules still looks there.
    pub(crate) fn write(&self, batch: &mut Batch) {
        let Set { spec, elements } = &self.come;
        batch.add_set(spec);
        batch.add_elements(&spec.name, elements.iter());
        batch.clear_chain(ALLOWED);
        batch.add_rules(ALLOWED, &self.allowed);
        batch.clear_set(&self.gone);
        batch.delete_set(&self.gone);
    }

    /// The table as it is when the step is made.
    pub(crate) fn note(self, table: &mut Table) {
        table.sets.remove(&self.gone);
        table.sets.insert(self.come.spec.name.clone(), self.come);
        table.chains.insert(ALLOWED.to_owned(), self.allowed);
    }
}

impl Render<'_> {
    /// The last thing that is done to a table: these rules end its base chains.
    pub(super) fn end_base_chains(&self, table: &mut Table, generation: u16) {
        insert_allowed(table, generation);
        for (name, ..) in BASE_CHAINS {
            if let Some(chain) = table.chains.get_mut(name) {
                chain.rules.push(Rule::new([], Mode::Enforce.allowance()));
            }
        }
    }
}

/// The chain that accepts, for rules of this generation.
pub(super) fn insert_allowed(table: &mut Table, generation: u16) {
    table.chains.insert(ALLOWED.to_owned(), allowed(generation));
    table.sets.insert(set::generation(generation), set_of(generation));
}

fn allowed(generation: u16) -> Chain {
    let current = Rule::new([Test::Generation(generation)], Do::Accept);
    let drop = Rule { tests: Vec::new(), actions: vec![Do::Count, Do::Drop], comment: Some(WHY.to_owned()) };
    let comment = Some("accepts what policies allow".to_owned());
    Chain { hook: None, rules: vec![current, drop], comment }
}

/// The set of a generation. It has every family, so every packet finds it until it is emptied.
fn set_of(generation: u16) -> Set {
    let mut set = Set::new(SetSpec::new(&set::generation(generation), &[Field::Family], Holds::Keys));
    for version in Version::BOTH {
        set.insert(Element::key(Key::only_family(version)));
    }
    set
}
