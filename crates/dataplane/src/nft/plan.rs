//! A change of the kernel's table, worked out while others use the table: to
//! render the rules of many policies takes longer than an answer may be held.

use super::change::Change;
use super::features::Features;
use super::kernel::Installed;
use super::rule::Action;
use super::staging::{self, Asked, Placed};
use super::switch::{Start, Switch};
use crate::leases::{LeaseGroups, without};
use crate::render::{Delta, Ids, RESET, Rendered, Scope, render};
use crate::{Desired, Plan};
use namewall_policy::Program;
use namewall_policy::model::Action as RuleAction;
use std::any::Any;
use std::sync::Arc;

/// The way from the table as it was when the plan was begun.
#[derive(Debug)]
pub struct NftPlan {
    /// The name of the table.
    name: String,
    from: Option<Arc<Installed>>,
    features: Features,
    worked_out: Option<PlannedWay>,
    /// What is to be written before the switch.
    pub(super) staging: Vec<Placed>,
    /// Whether some of it was.
    pub(super) has_staged: bool,
    /// Groups of leases that the rules in force do not ask for.
    pub(super) new_groups: LeaseGroups,
    /// Whether their leases are being written.
    pub(super) has_begun_leases: bool,
}

/// How the table is changed.
#[derive(Debug)]
pub(super) enum PlannedWay {
    /// Only pods came, went or changed.
    Pods(Delta),
    /// The whole table is made again, and compared.
    Whole(Box<Switch>),
}

impl NftPlan {
    pub(super) fn new(name: &str, from: Option<Arc<Installed>>, features: Features) -> Self {
        let name = name.to_owned();
        Self {
            name,
            from,
            features,
            worked_out: None,
            staging: Vec::new(),
            has_staged: false,
            new_groups: LeaseGroups::default(),
            has_begun_leases: false,
        }
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
            None => {
                self.staging.clear();
                self.way_from(known, desired.program, desired.scope)
            }
        }
    }

    fn way_from(&self, known: &Installed, program: &Program, scope: &Scope) -> PlannedWay {
        match delta(known, program, scope) {
            Some(delta) => PlannedWay::Pods(delta),
            None => {
                let rendered = render_for(self.features, program, scope, &known.rendered.ids);
                self.switch(known, rendered, program)
            }
        }
    }

    fn switch(&self, known: &Installed, rendered: Rendered, program: &Program) -> PlannedWay {
        let in_force = Asked::by(&known.rendered);
        let (name, table) = (self.name.as_str(), &known.rendered.table);
        let staged = (!self.staging.is_empty()).then_some(&in_force);
        let start = Start { name, table, staged, only_allows: only_allows(program) };
        PlannedWay::Whole(Box::new(Switch::between(start, rendered)))
    }

    /// Renders so that a large change can be staged, and notes what is.
    fn render_staged(&mut self, known: &Installed, program: &Program, scope: &Scope) -> Rendered {
        let table = &known.rendered.table;
        let mut rendered = render_for(self.features, program, scope, &known.rendered.ids);
        let change = Change::between(table, &rendered.table);
        if let Some(ids) = staging::renumbered(&change, &known.rendered, &rendered) {
            drop(change);
            rendered = render_for(self.features, program, scope, &ids);
        }
        let in_force = Asked::by(&known.rendered);
        self.staging = staging::before_the_switch(&Change::between(table, &rendered.table), &in_force);
        rendered
    }
}

/// The short way, if only pods came, went or changed.
fn delta(known: &Installed, program: &Program, scope: &Scope) -> Option<Delta> {
    Delta::between(&known.program, program, scope, &known.rendered).filter(|_| known.scope == *scope)
}

impl Plan for NftPlan {
    fn work_out(&mut self, program: &Program, scope: &Scope) {
        let Some(from) = self.from.clone() else { return };
        self.worked_out = Some(match delta(&from, program, scope) {
            Some(delta) => PlannedWay::Pods(delta),
            None => {
                let rendered = self.render_staged(&from, program, scope);
                self.new_groups = without(&rendered.lease_groups, &from.rendered.lease_groups);
                self.switch(&from, rendered, program)
            }
        });
    }

    fn replaced(&self) -> Option<Box<dyn Any + Send>> {
        let is_whole = matches!(self.worked_out, Some(PlannedWay::Whole(_)));
        let from: Option<Box<dyn Any + Send>> = self.from.clone().map(|from| Box::new(from) as _);
        from.filter(|_| is_whole)
    }
}

pub(super) fn only_allows(program: &Program) -> bool {
    program.rules.iter().all(|rule| rule.action == RuleAction::Allow)
}

/// Renders for a kernel that may lack some features.
pub(super) fn render_for(features: Features, program: &Program, scope: &Scope, before: &Ids) -> Rendered {
    let mut rendered = render(program, scope, before);
    if !features.joins {
        rendered.without_joins();
    }
    if !features.resets {
        drop_in_place_of_resets(&mut rendered);
    }
    rendered
}

/// For a kernel that cannot send resets.
pub(super) fn drop_in_place_of_resets(rendered: &mut Rendered) {
    let rules = rendered.table.chains.get_mut(RESET).into_iter().flat_map(|chain| &mut chain.rules);
    let resets = rules.flat_map(|rule| &mut rule.actions).filter(|action| **action == Action::Reset);
    resets.for_each(|action| *action = Action::Drop);
}
