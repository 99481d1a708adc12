//! The table in the kernel, and the one socket through which we change it.

use super::batch::Batch;
use super::change::Change;
use super::elements::Moved;
use super::error::NftError;
use super::features::{self, Features};
use super::guard::GuardTables;
use super::inside::{InsideTables, NftConnections};
use super::plan::{self, NftPlan, PlannedWay};
use super::read::{self, Live};
use super::session::{Check, NOTE, Session};
use super::set::{self, Element, Key, Lifetime, Transient, Version};
use super::staging::{AT_ONCE, Placed};
use super::switch::{Start, Switch};
use super::table::{Table, TableRef};
use super::wire::table::{OWNER, PERSIST};
use crate::conntrack::{Connection, Conntrack};
use crate::guard::{Guard, GuardDrops, Guarded};
use crate::inside::{Inside, PodDenials, PodNamespace, SecondStatus};
use crate::leases::{Adopting, Grouped, LeaseGroups, Moving, Writes, most_elements, union, without};
use crate::netlink::bridges::Bridges;
use crate::netlink::{Family, Socket};
use crate::nflog::{DenialLog, Told};
use crate::remembered::{Ends, MOST, Remembered};
use crate::render::{AUDIT, CUT_EARLY, Delta, Ids, Rendered, Scope, early_cut_chain, render};
use crate::{Applied, Count, Cut, Dataplane, Desired, FollowDenials, Way};
use namewall_policy::lease::LeaseChange;
use namewall_policy::{Instant, LeaseTable, Program};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long the kernel may take to release the table of a process that has ended, on a busy machine.
pub const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Settings {
    pub table: String,
    /// How long the first change waits until the kernel has released the table of a process that has ended.
    pub patience: Duration,
    /// How many cut connections are remembered. No more than by default: the kernel's sets have a size.
    pub most_cuts: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { table: "namewall".to_owned(), patience: RELEASE_TIMEOUT, most_cuts: MOST }
    }
}

/// The kernel as a Dataplane.
#[derive(Debug)]
pub struct Nft {
    pub(super) socket: Socket,
    /// Network interfaces.
    pub(super) links: Socket,
    conntrack: Conntrack,
    pub(super) settings: Settings,
    /// What we made of the kernel's table; none until the first `replace`.
    known: Option<Arc<Installed>>,
    /// Elements that were written for a change to come, and are not in `known`.
    staged: Vec<Placed>,
    /// Elements in `known` that no rule asks for any more.
    litter: Vec<Placed>,
    /// Leases of groups that no rule asks for yet, or never will: a change that was staged may not come.
    arriving: Moving,
    /// The groups of the rules in force and those that arrive, if there are any: grants are written to all of them.
    with_arriving: Option<LeaseGroups>,
    /// Leases of groups that no rule asks for any more.
    leaving: Moving,
    /// So many elements are written in one transaction.
    at_once: usize,
    remembered: Remembered,
    pub(super) features: Features,
    pub(super) guard: GuardTables,
    pub(super) inside: InsideTables,
}

/// The kernel's table as we know it, and what it was made from.
#[derive(Clone, Debug)]
pub(super) struct Installed {
    pub(super) program: Program,
    pub(super) scope: Scope,
    pub(super) rendered: Rendered,
}

impl Installed {
    fn new(desired: &Desired<'_>, rendered: Rendered) -> Self {
        Self { program: desired.program.clone(), scope: desired.scope.clone(), rendered }
    }

    /// Where the table differs from a full render of the Program. Chains and sets of Classes without pods may
    /// remain for a while.
    fn difference(&self) -> Option<String> {
        let whole = render(&self.program, &self.scope, &self.rendered.ids);
        let ours = &self.rendered.table;
        let chain = whole.table.chains.iter().find(|(name, chain)| ours.chains.get(*name) != Some(chain));
        let groups: FxHashSet<u32> = whole.numbers.groups.iter().map(|group| group.number).collect();
        let ports: FxHashSet<u32> = whole.numbers.named.values().copied().collect();
        let joins: FxHashSet<u32> = whole.numbers.joins.numbers().collect();
        let is_used = |name: &str, element: &Element| {
            let number = || {
                element.key.as_bytes().get(..4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
            };
            match name {
                _ if name == set::PEERS.0 || name == set::PEERS.1 => groups.contains(&number()),
                _ if name == set::NAMED.0 || name == set::NAMED.1 => ports.contains(&number()),
                _ if name == set::JOINED.0 || name == set::JOINED.1 => joins.contains(&number()),
                _ => true,
            }
        };
        let is_other = |(name, meant): &(&String, &super::table::Set)| {
            let Some(own) = ours.sets.get(*name) else { return true };
            let used = own.elements.iter().filter(|element| is_used(name, element)).count();
            used != meant.elements.len() || meant.elements.iter().any(|one| !own.elements.has(&one))
        };
        let set = whole.table.sets.iter().find(is_other);
        let counter = whole.table.counters.iter().find(|(name, _)| !ours.counters.contains_key(*name));
        let counter = counter.map(|(name, _)| format!("counter {name}"));
        chain.map(|(name, _)| format!("chain {name}")).or(counter).or(set.map(|(name, _)| format!("set {name}")))
    }
}

impl Nft {
    /// Opens the sockets in the thread's network namespace, of a kernel that can do what we need. Changes nothing.
    pub fn open(settings: Settings) -> Result<Self, NftError> {
        let mut socket = open_socket()?;
        Session { socket: &mut socket, table: (&settings.table).into() }.exists()?;
        let features = features::check()?;
        let conntrack = Conntrack::open().map_err(NftError::Socket)?;
        Ok(Self {
            links: Socket::open(Family::NetlinkRoute).map_err(NftError::Socket)?,
            socket,
            conntrack,
            known: None,
            staged: Vec::new(),
            litter: Vec::new(),
            arriving: Moving::default(),
            with_arriving: None,
            leaving: Moving::default(),
            at_once: AT_ONCE,
            remembered: Remembered::with_room(settings.most_cuts),
            settings,
            features,
            guard: GuardTables::default(),
            inside: InsideTables::default(),
        })
    }

    /// The table as it should be now.
    pub fn table(&self) -> Option<&Table> {
        self.known.as_ref().map(|known| &known.rendered.table)
    }

    /// True if the kernel can answer packets of connections that were cut with a reset. If not, they are dropped.
    pub fn can_reset(&self) -> bool {
        self.features.resets
    }

    /// The first change of this process: whatever the kernel has is made right in one transaction.
    fn adopt(&mut self, desired: &Desired<'_>) -> Result<Applied, NftError> {
        // The kernel's table is read as a whole, with what an unfinished change has left in it.
        self.staged.clear();
        self.litter.clear();
        self.set_arriving(Moving::default(), &LeaseGroups::default());
        self.leaving = Moving::default();
        let name = self.settings.table.clone();
        let patience = self.settings.patience;
        let claimed = self.session().claim(patience)?;
        let mut exists = claimed.is_some();
        let live = claimed.unwrap_or_default();
        let unread = |source| NftError::Read { table: TableRef::from(&name).to_string(), source };
        let mut rendered = plan::render_for(self.features, desired.program, desired.scope, &ids_of(&live));
        let mut batch = Batch::new(&name);
        let live = match Change::is_possible(&live, &rendered.table) {
            true => live,
            // Somebody made sets or hooks of ours into something else: a new table in place of the old.
            false => {
                batch.delete_table();
                exists = false;
                Live::default()
            }
        };
        let change = Change::between(&live, &rendered.table).step_after(rendered.ids.generation);
        let found = if exists {
            let mut cut = read::read_keys(&name, set::CUT.0, 3 * MOST).map_err(unread)?;
            cut.extend(read::read_keys(&name, set::CUT.1, 3 * MOST).map_err(unread)?);
            let ends = cut.iter().filter_map(|key| Ends::found(key)).collect();
            let is_pod = |address| desired.program.pod_at(address).is_some();
            self.remembered.adopt(ends, is_pod, std::time::Instant::now());
            Some(read::read_leases(&name).map_err(unread)?)
        } else {
            // Owned, so that nobody flushes it by accident; persistent, or it would go when we do: wide open.
            batch.add_table(OWNER | PERSIST, NOTE);
            self.remembered.were_lost();
            None
        };
        change.write(&mut batch);
        let Desired { program, leases, adoption: rules, now, .. } = *desired;
        let groups = &rendered.lease_groups;
        let elements = found.as_deref().unwrap_or_default();
        let adopted = Adopting { program, groups, rules, now }.adopt(elements);
        write_leases(&mut batch, &Grouped { leases, groups }.beside(elements, &adopted.leases, now));
        let (adopted, revoked) = (found.map(|_| adopted.leases), adopted.revoked);
        // An earlier process may have ended before it cut what it should have.
        let operations = batch.operations();
        let narrows_adopted = exists && change.narrows(plan::only_allows(program));
        let applied = Applied { way: Way::Rebuild, operations, narrows: true, adopted, narrows_adopted, revoked };
        self.commit(batch)?;
        self.session().verify(&Check::of(&change), &rendered.table)?;
        let step = change.step;
        rendered.advance(step);
        self.known = Some(Arc::new(Installed::new(desired, rendered)));
        Ok(applied)
    }

    /// The whole table was made again, and compared.
    fn switch(&mut self, known: Arc<Installed>, desired: &Desired<'_>, switch: Switch) -> Result<Applied, NftError> {
        let Switch { rendered, mut batch, check, narrows, litter } = switch;
        let grouped = Grouped { leases: desired.leases, groups: &rendered.lease_groups };
        // What arrives is complete, so only what goes on to change is written.
        let before = self.with_arriving.as_ref().unwrap_or(&known.rendered.lease_groups);
        let unasked = without(before, &rendered.lease_groups);
        let is_much = most_elements(&unasked, desired.leases) > self.at_once;
        let mut leaving = Moving::begin(if is_much { unasked } else { LeaseGroups::default() });
        leaving.close_evicted(&desired.changed.evicted);
        let stays = is_much.then(|| without(before, leaving.groups()));
        let writes = grouped.replacing(stays.as_ref().unwrap_or(before), desired.changed, desired.now);
        let narrows = narrows || writes.closes() || !leaving.is_over();
        write_leases(&mut batch, &writes);
        let operations = batch.operations();
        let applied = Applied { way: Way::Whole, operations, narrows, ..Applied::default() };
        let done = self.commit(batch).and_then(|()| self.session().verify(&check, &rendered.table));
        match &done {
            Ok(()) => {
                self.litter = litter;
                self.leaving = leaving;
                self.set_arriving(Moving::default(), &LeaseGroups::default());
                self.staged.clear();
                self.known = Some(Arc::new(Installed::new(desired, rendered)));
            }
            Err(error) => self.known = error.leaves_all_as_it_was().then_some(known),
        }
        done.map(|()| applied)
    }

    /// The table as it is in the kernel, with what was staged for a change that did not come.
    fn with_staged(&mut self, known: Arc<Installed>) -> Installed {
        let mut known = Arc::unwrap_or_clone(known);
        self.staged.drain(..).for_each(|placed| placed.put_into(&mut known.rendered.table));
        known
    }

    /// Only pods came, went or changed: a few elements.
    fn replace_pods(&mut self, mut known: Installed, desired: &Desired<'_>, delta: Delta) -> Result<Applied, NftError> {
        let next = desired.program;
        let Delta { gone, come, groups, sizes } = delta;
        let mut change = Change::default();
        for (into, placed) in [(&mut change.gone_elements, &gone), (&mut change.new_elements, &come)] {
            let mut by_set: BTreeMap<&str, Vec<Element>> = BTreeMap::new();
            placed.iter().for_each(|(set, element)| by_set.entry(set).or_default().push(element.clone()));
            into.extend(by_set.into_iter().map(|(set, elements)| (set, Moved::These(elements))));
        }
        let change = change.step_after(known.rendered.ids.generation);
        let mut batch = Batch::new(&self.settings.table);
        change.write(&mut batch);
        let written = self.with_arriving.as_ref().unwrap_or(&known.rendered.lease_groups);
        let writes = Grouped { leases: desired.leases, groups: written }.after(desired.changed, desired.now);
        write_leases(&mut batch, &writes);
        let narrows = change.narrows(plan::only_allows(next)) || writes.closes();
        let operations = batch.operations();
        let applied = Applied { way: Way::Pods, operations, narrows, ..Applied::default() };
        if let Err(error) =
            self.commit(batch).and_then(|()| self.session().verify(&Check::of(&change), &known.rendered.table))
        {
            self.known = error.leaves_all_as_it_was().then(|| Arc::new(known));
            return Err(error);
        }
        let (rendered, step) = (&mut known.rendered, change.step);
        rendered.advance(step);
        for (set, element) in gone {
            if let Some(set) = rendered.table.sets.get_mut(set) {
                set.elements.remove(element.index());
            }
        }
        for (set, element) in come {
            if let Some(set) = rendered.table.sets.get_mut(set) {
                set.insert(element);
            }
        }
        if let Some(groups) = groups {
            rendered.numbers.groups = groups;
        }
        rendered.numbers.joins.resize(&sizes);
        known.program = next.clone();
        debug_assert_eq!(known.difference(), None, "the short way leads elsewhere than the long one");
        self.known = Some(Arc::new(known));
        Ok(applied)
    }

    fn session(&mut self) -> Session<'_> {
        Session { socket: &mut self.socket, table: (&self.settings.table).into() }
    }

    fn commit(&mut self, batch: Batch) -> Result<(), NftError> {
        self.session().commit(batch)
    }

    /// Grants are written to these groups, too.
    fn set_arriving(&mut self, arriving: Moving, in_force: &LeaseGroups) {
        self.with_arriving = (!arriving.groups().is_empty()).then(|| union(in_force, arriving.groups()));
        self.arriving = arriving;
    }

    /// Begins to write the leases of a planned change that no rule asks for yet, if they are many. What an earlier plan
    /// has left is kept right until a change is made, and goes after it.
    fn begin_leases(&mut self, plan: &mut NftPlan, leases: &LeaseTable) {
        let Some(known) = self.known.clone().filter(|_| !plan.has_begun_leases) else { return };
        plan.has_begun_leases = true;
        let is_more = !without(&plan.new_groups, self.arriving.groups()).is_empty();
        if is_more && most_elements(&plan.new_groups, leases) > self.at_once {
            let groups = union(self.arriving.groups(), &plan.new_groups);
            self.set_arriving(Moving::begin(groups), &known.rendered.lease_groups);
        }
    }

    /// Writes some of the leases that no rule asks for yet.
    fn stage_leases(&mut self, leases: &LeaseTable, now: Instant) -> Result<(), NftError> {
        let mut batch = Batch::new(&self.settings.table);
        write_leases(&mut batch, &self.arriving.open_some(leases, now, self.at_once));
        self.write_unasked(batch).inspect_err(|_| self.arriving.begin_again())
    }

    /// Removes some of the leases that no rule asks for any more. Some may have ended by themselves.
    fn clear_leases(&mut self, leases: &LeaseTable) -> Result<(), NftError> {
        let mut batch = Batch::new(&self.settings.table);
        write_leases(&mut batch, &self.leaving.close_some(leases, self.at_once));
        self.write_unasked(batch).inspect_err(|_| self.leaving.begin_again())?;
        if self.leaving.is_over() {
            self.leaving = Moving::default();
        }
        Ok(())
    }

    /// Writes elements that no rule asks for.
    fn write_unasked(&mut self, batch: Batch) -> Result<(), NftError> {
        let done = self.commit(batch);
        if done.as_ref().is_err_and(|error| !error.leaves_all_as_it_was()) {
            self.known = None;
        }
        done
    }

    /// One that cannot be cut does not save the others; the first failure is told when all have been tried.
    fn cut_all(&mut self, connections: &[&Connection]) -> Result<Cut, NftError> {
        let (mut cut, mut failed) = (Cut::default(), None);
        for some in connections.chunks(CUT_AT_ONCE) {
            // Before they go: no packet may come between.
            match self.remember(some) {
                Ok(forgotten) => cut.forgotten += forgotten,
                Err(error) => failed = failed.or(Some(error)),
            }
            for connection in some {
                match self.conntrack.delete(connection) {
                    Ok(was_there) => cut.connections += usize::from(was_there),
                    Err(error) => failed = failed.or(Some(NftError::Connections(error))),
                }
            }
        }
        failed.map_or(Ok(cut), Err)
    }

    /// Adds the chain that resets translated connections before they are translated anew, unless it is there. It comes
    /// with the first of them that is cut, so that no packet pays for it before.
    fn reset_early(&mut self) -> Result<(), NftError> {
        let Some(known) = &mut self.known else { return Ok(()) };
        if known.rendered.ids.resets_early {
            return Ok(());
        }
        let chain = early_cut_chain();
        let change = Change { new_chains: vec![(CUT_EARLY, &chain)], ..Change::default() };
        let mut batch = Batch::new(&self.settings.table);
        change.write(&mut batch);
        let done = Session { socket: &mut self.socket, table: (&self.settings.table).into() }.commit(batch);
        match &done {
            Ok(()) => {
                let rendered = &mut Arc::make_mut(known).rendered;
                rendered.ids.resets_early = true;
                rendered.table.chains.insert(CUT_EARLY.to_owned(), chain);
            }
            Err(error) if error.leaves_all_as_it_was() => {}
            Err(_) => self.known = None,
        }
        done
    }

    /// Has the kernel answer what is still sent through these connections with a reset. Returns how many others gave
    /// way.
    fn remember(&mut self, connections: &[&Connection]) -> Result<usize, NftError> {
        if connections.iter().any(|connection| Ends::of(connection).is_some_and(Ends::is_translated)) {
            self.reset_early()?;
        }
        let Self { remembered, known, .. } = self;
        let is_pod = |address| known.as_ref().is_some_and(|known| known.program.pod_at(address).is_some());
        let ends = connections.iter().filter_map(|connection| Ends::of(connection));
        let memory = remembered.remember(ends, is_pod, std::time::Instant::now());
        let mut batch = Batch::new(&self.settings.table);
        for version in Version::BOTH {
            batch.destroy_elements(set::CUT[version], memory.gone[version as usize].iter());
        }
        batch.add_passing(set::CUT, &memory.new);
        if batch.operations() == 0 {
            return Ok(0);
        }
        let done = self.commit(batch);
        if done.as_ref().is_err_and(|error| !error.leaves_all_as_it_was()) {
            self.known = None;
        }
        done.map(|()| memory.forgotten)
    }
}

/// So many connections are cut in a row: a longer transaction would keep others waiting.
pub(super) const CUT_AT_ONCE: usize = 1000;

impl Dataplane for Nft {
    type Error = NftError;
    type Connections = NftConnections;
    type Denials = DenialLog;
    type Plan = NftPlan;

    fn plan(&self) -> NftPlan {
        NftPlan::new(&self.settings.table, self.known.clone(), self.features)
    }

    fn replace_planned(&mut self, desired: &Desired<'_>, plan: NftPlan) -> Result<Applied, NftError> {
        // A rule that comes back would ask for them again.
        self.leaving.close_evicted(&desired.changed.evicted);
        while self.known.is_some() && !self.leaving.is_over() {
            self.clear_leases(desired.leases)?;
        }
        while self.known.is_some() && !self.arriving.is_over() {
            self.stage_leases(desired.leases, desired.now)?;
        }
        let Some(known) = self.known.take() else { return self.adopt(desired) };
        let is_as_planned =
            plan.is_from(&known) && plan.staging.is_empty() && plan.has_staged != self.staged.is_empty();
        let applied = match plan.into_way(&known, desired) {
            PlannedWay::Pods(delta) => {
                let known = self.with_staged(known);
                let applied = self.replace_pods(known, desired, delta)?;
                // What was staged for a change that did not come.
                self.leaving = Moving::begin(self.arriving.groups().clone());
                self.set_arriving(Moving::default(), &LeaseGroups::default());
                Ok(applied)
            }
            PlannedWay::Whole(switch) if is_as_planned => self.switch(known, desired, *switch),
            // The kernel has more than the plan knows of.
            PlannedWay::Whole(_) => {
                let known = self.with_staged(known);
                let rendered = plan::render_for(self.features, desired.program, desired.scope, &known.rendered.ids);
                let only_allows = plan::only_allows(desired.program);
                let (name, table) = (self.settings.table.as_str(), &known.rendered.table);
                let switch = Switch::between(Start { name, table, staged: None, only_allows }, rendered);
                self.switch(Arc::new(known), desired, switch)
            }
        }?;
        // The rules in pods' namespaces follow; until then they are those of before, with the leases of now.
        self.open_inside(desired.changed, desired.leases, desired.now);
        Ok(applied)
    }

    fn stage(&mut self, plan: &mut NftPlan, leases: &LeaseTable, now: Instant) -> Result<bool, NftError> {
        if !self.known.as_ref().is_some_and(|known| plan.is_from(known)) {
            return Ok(false);
        }
        // A group that comes back must not meet what is about to go.
        if !self.leaving.is_over() {
            self.clear_leases(leases)?;
            return Ok(true);
        }
        self.begin_leases(plan, leases);
        // What an earlier plan has left is settled by a change that compares all of it.
        if !plan.staging.is_empty() && (plan.has_staged || self.staged.is_empty()) {
            let left = plan.staging.len().saturating_sub(self.at_once);
            let some = plan.staging.split_off(left);
            let mut batch = Batch::new(&self.settings.table);
            by_set(&some).into_iter().for_each(|(set, elements)| batch.add_elements(set, elements.into_iter()));
            self.write_unasked(batch)?;
            plan.has_staged = true;
            self.staged.extend(some);
            return Ok(left > 0 || !self.arriving.is_over());
        }
        if !self.arriving.is_over() {
            self.stage_leases(leases, now)?;
        }
        Ok(!self.arriving.is_over())
    }

    fn clear(&mut self, leases: &LeaseTable) -> Result<bool, NftError> {
        if self.known.is_none() {
            self.litter.clear();
            self.leaving = Moving::default();
        }
        if !self.leaving.is_over() {
            self.clear_leases(leases)?;
            return Ok(true);
        }
        let left = self.litter.len().saturating_sub(self.at_once);
        let mut batch = Batch::new(&self.settings.table);
        let some = self.litter.get(left..).unwrap_or_default();
        by_set(some).into_iter().for_each(|(set, elements)| batch.delete_elements(set, elements.into_iter()));
        self.write_unasked(batch)?;
        let gone = self.litter.split_off(left);
        if let Some(known) = &mut self.known {
            let table = &mut Arc::make_mut(known).rendered.table;
            gone.iter().for_each(|placed| placed.take_out_of(table));
        }
        Ok(left > 0)
    }

    fn is_enforcing(&mut self) -> Result<bool, NftError> {
        self.session().exists()
    }

    fn guard(&mut self, guard: &Guard<'_>) -> Result<Guarded, NftError> {
        self.guard_interfaces(guard)
    }

    fn guard_drops(&mut self) -> Result<GuardDrops, NftError> {
        self.read_guard_drops()
    }

    fn filter_bridges(&mut self) -> Result<Bridges, NftError> {
        self.filter_bridges_of_pods()
    }

    fn inside(&mut self, inside: &Inside<'_>) -> SecondStatus {
        self.enforce_inside(inside)
    }

    fn keep_inside(&mut self, pods: &[PodNamespace]) {
        self.inside.retain(|id, _| pods.iter().any(|pod| pod.id == *id));
    }

    fn has_news_inside(&mut self, looks_at_tables: bool) -> bool {
        self.look_inside(looks_at_tables)
    }

    fn seen_inside(&self) -> BTreeMap<String, u32> {
        self.inside.iter().filter_map(|(id, pod)| Some((id.clone(), pod.seen()?))).collect()
    }

    fn open(&mut self, change: &LeaseChange, leases: &LeaseTable, now: Instant) -> Result<(), NftError> {
        let Some(known) = &self.known else {
            return Err(NftError::Unknown { table: TableRef::from(&self.settings.table).to_string() });
        };
        let groups = self.with_arriving.as_ref().unwrap_or(&known.rendered.lease_groups);
        let mut batch = Batch::new(&self.settings.table);
        write_leases(&mut batch, &Grouped { leases, groups }.after(change, now));
        self.commit(batch)?;
        self.leaving.close_evicted(&change.evicted);
        self.open_inside(change, leases, now);
        Ok(())
    }

    fn connections(&self) -> Result<NftConnections, NftError> {
        self.all_connections()
    }

    fn cut(&mut self, connections: &[&Connection]) -> Result<Cut, NftError> {
        self.cut_all(connections)
    }

    fn cut_inside(&mut self, id: &str, connections: &[&Connection]) -> Result<Cut, NftError> {
        self.cut_all_inside(id, connections)
    }

    fn take_denials_inside(&mut self) -> Vec<PodDenials> {
        self.read_denials_inside()
    }

    fn intercepts_dns(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.scope.dns.is_some())
    }

    fn beat(&mut self, life: Duration) -> Result<(), NftError> {
        let element = |protocol| Element::key(Key::only_protocol(protocol));
        let alive = |protocol| Transient { element: element(protocol), lifetime: Lifetime(life), note: None };
        let mut batch = Batch::new(&self.settings.table);
        batch.add_transient(set::ALIVE, Scope::ASKED_OVER.map(alive).iter());
        self.commit(batch)
    }

    fn stop_beating(&mut self) -> Result<(), NftError> {
        let mut batch = Batch::new(&self.settings.table);
        let elements = Scope::ASKED_OVER.map(|protocol| Element::key(Key::only_protocol(protocol)));
        batch.destroy_elements(set::ALIVE, elements.iter());
        self.commit(batch)
    }

    fn counts(&mut self) -> Result<BTreeMap<String, Count>, NftError> {
        let live = read::read_chains_and_rules(&mut self.socket, &self.settings.table);
        let live = live.map_err(|source| self.session().unread(source))?;
        let mut counts: BTreeMap<String, Count> = BTreeMap::new();
        for counter in live.counters.into_values() {
            if let Some(label) = counter.comment {
                *counts.entry(label).or_default() += counter.count;
            }
        }
        for rule in live.chains.into_values().flat_map(|chain| chain.rules) {
            if let (Some(label), Some(count)) = (rule.comment, rule.count) {
                *counts.entry(label).or_default() += count;
            }
        }
        Ok(counts)
    }

    fn denials(&self, log_group: u16) -> Result<DenialLog, NftError> {
        DenialLog::open(log_group).map_err(NftError::Denials)
    }
}

impl FollowDenials for DenialLog {
    type Error = NftError;

    fn wait(&mut self) -> Result<Told, NftError> {
        Self::wait(self).map_err(NftError::Denials)
    }

    fn reopen(&mut self) -> Result<(), NftError> {
        Self::reopen(self).map_err(NftError::Denials)
    }
}

fn by_set(placed: &[Placed]) -> BTreeMap<&'static str, Vec<&Element>> {
    let mut by_set: BTreeMap<_, Vec<&Element>> = BTreeMap::new();
    placed.iter().for_each(|Placed { set, element }| by_set.entry(*set).or_default().push(element));
    by_set
}

pub(super) fn write_leases(batch: &mut Batch, writes: &Writes) {
    batch.add_passing(set::LEASE, &writes.new);
    for version in Version::BOTH {
        batch.destroy_elements(set::LEASE[version], writes.gone[version as usize].iter());
    }
}

/// The numbers a table that was read back uses.
pub(super) fn ids_of(live: &Live) -> Ids {
    let generation = live.sets.keys().find_map(|set| set::generation_of(set)).unwrap_or_default();
    let resets_early = live.chains.contains_key(CUT_EARLY);
    let mut ids = Ids { generation, resets_early, ..Ids::default() };
    // A rule that names its group in a comment tells which number it had.
    for rule in live.chains.values().flat_map(|chain| &chain.rules) {
        if let (Some(label), Some(group)) = (&rule.comment, super::rule::peer_group(&rule.expressions)) {
            ids.groups.insert(label.strip_prefix(AUDIT).unwrap_or(label).to_owned(), group);
        }
    }
    ids
}

pub(super) fn open_socket() -> Result<Socket, NftError> {
    Socket::open(Family::NetlinkNetFilter).map_err(NftError::Socket)
}

/// Puts a whole table in the place of the one of that name, in one transaction.
/// For tables that are made once, like those of the sandbox.
pub fn put_table(name: &str, table: &Table) -> Result<(), NftError> {
    let mut socket = open_socket()?;
    let mut session = Session { socket: &mut socket, table: name.into() };
    let exists = session.exists()?;
    let mut batch = Batch::new(name);
    if exists {
        batch.delete_table();
    }
    batch.add_table(0, NOTE);
    let nothing = Table::default();
    Change::between(&nothing, table).write(&mut batch);
    session.commit(batch)
}

#[cfg(test)]
#[cfg(feature = "system")]
mod staging_tests;
#[cfg(test)]
#[cfg(feature = "system")]
mod system_tests;
// The transactions are those of a little-endian machine.
#[cfg(all(test, feature = "system", target_endian = "little"))]
mod takeover_tests;
#[cfg(test)]
mod tests;
