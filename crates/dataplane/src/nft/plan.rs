//! A change of the kernel's table, worked out while others use the table: to
//! render the rules of many policies takes longer than an answer may be held.

use super::change::Change;
use super::kernel::Installed;
use super::rule::Action;
use super::staging::{self, Asked, Placed};
use crate::render::{Delta, Ids, RESET, Rendered, Scope, render};
use crate::{Desired, Plan};
use namewall_policy::Program;
use std::sync::Arc;

/// The way from the table as it was when the plan was begun.
#[derive(Debug)]
pub struct NftPlan {
    from: Option<Arc<Installed>>,
    can_reset: bool,
    worked_out: Option<PlannedWay>,
    /// What is to be written before the switch.
    pub(super) staging: Vec<Placed>,
    /// Whether some of it was.
    pub(super) has_staged: bool,
}

/// How the table is changed.
#[derive(Debug)]
pub(super) enum PlannedWay {
    /// Only pods came, went or changed.
    Pods(Delta),
    /// The whole table is made again, and compared.
    Whole(Box<Rendered>),
}

impl NftPlan {
    pub(super) fn new(from: Option<Arc<Installed>>, can_reset: bool) -> Self {
        Self { from, can_reset, worked_out: None, staging: Vec::new(), has_staged: false }
    }

    /// True if it is a way from this table.
    pub(super) fn is_from(&self, known: &Arc<Installed>) -> bool {
        self.from.as_ref().is_some_and(|from| Arc::ptr_eq(from, known))
    }

    /// What was worked out, if the table is still the same; else it is worked out now.
    pub(super) fn into_way(mut self, known: &Arc<Installed>, desired: &Desired<'_>) -> PlannedWay {
        let is_the_same = self.is_from(known);
        match self.worked_out.take().filter(|_| is_the_same) {
            Some(way) => way,
            None => self.way_from(known, desired.program, desired.scope),
        }
    }

    fn way_from(&self, known: &Installed, program: &Program, scope: &Scope) -> PlannedWay {
        let delta = Delta::between(&known.program, program, scope, &known.rendered).filter(|_| known.scope == *scope);
        match delta {
            Some(delta) => PlannedWay::Pods(delta),
            None => PlannedWay::Whole(Box::new(render_for(self.can_reset, program, scope, &known.rendered.ids))),
        }
    }
}

impl Plan for NftPlan {
    fn work_out(&mut self, program: &Program, scope: &Scope) {
        let Some(from) = self.from.clone() else { return };
        let mut way = self.way_from(&from, program, scope);
        if let PlannedWay::Whole(rendered) = &mut way {
            let change = Change::between(&from.rendered.table, &rendered.table);
            if let Some(ids) = staging::renumbered(&change, &from.rendered, rendered) {
                **rendered = render_for(self.can_reset, program, scope, &ids);
            }
            let change = Change::between(&from.rendered.table, &rendered.table);
            self.staging = staging::before_the_switch(&change, &Asked::by(&from.rendered));
        }
        self.worked_out = Some(way);
    }
}

/// Renders for a kernel that may not be able to send resets.
pub(super) fn render_for(can_reset: bool, program: &Program, scope: &Scope, before: &Ids) -> Rendered {
    let mut rendered = render(program, scope, before);
    if !can_reset {
        let rules = rendered.table.chains.get_mut(RESET).into_iter().flat_map(|chain| &mut chain.rules);
        let resets = rules.flat_map(|rule| &mut rule.actions).filter(|action| **action == Action::Reset);
        resets.for_each(|action| *action = Action::Drop);
    }
    rendered
}
