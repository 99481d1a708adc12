//! The switch from one table to another, written down before anybody has to wait
//! for it: with thousands of pods, to compare two tables takes longer than the
//! kernel takes for the change.

use super::batch::Batch;
use super::change::Change;
use super::session::Check;
use super::staging::{self, Asked, Placed};
use super::table::Table;
use crate::render::Rendered;

#[derive(Debug)]
pub(super) struct Switch {
    /// The table as it is after the switch.
    pub(super) rendered: Rendered,
    /// All of the change but leases.
    pub(super) batch: Batch,
    /// What is read back after it.
    pub(super) check: Check,
    /// True if connections that exist may be forbidden now.
    pub(super) narrows: bool,
    /// Elements that no rule asks for after it, and that stay until they are cleared.
    pub(super) litter: Vec<Placed>,
}

/// What a switch goes from.
#[derive(Clone, Copy)]
pub(super) struct Start<'a> {
    /// The name of the table.
    pub(super) name: &'a str,
    pub(super) table: &'a Table,
    /// If what the rules in force do not ask for is written before the switch: the numbers that they do ask for.
    pub(super) staged: Option<&'a Asked>,
    /// Whether no rule of the next Program denies or passes.
    pub(super) only_allows: bool,
}

impl Switch {
    pub(super) fn between(start: Start<'_>, mut rendered: Rendered) -> Self {
        let Start { name, table, staged, only_allows } = start;
        let mut change = Change::between(table, &rendered.table).step_after(rendered.ids.generation);
        let narrows = change.narrows(only_allows);
        let litter = staging::after_the_switch(&mut change, &Asked::by(&rendered));
        if let Some(in_force) = staged {
            staging::leave_out_staged(&mut change, in_force);
        }
        let mut batch = Batch::new(name);
        change.write(&mut batch);
        let (check, step) = (Check::of(&change), change.step.take());
        rendered.advance(step);
        litter.iter().for_each(|placed| placed.put_into(&mut rendered.table));
        Self { rendered, batch, check, narrows, litter }
    }
}
