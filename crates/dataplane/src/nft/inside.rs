//! The tables inside pods' network namespaces, in the kernel.

mod connections;

pub use connections::NftConnections;

use super::batch::{Batch, fixed};
use super::change::Change;
use super::error::NftError;
use super::features::{EgressHook, Features};
use super::guard::{Access, Kept};
use super::kernel::{Nft, ids_of, write_leases};
use super::plan::drop_in_place_of_resets;
use super::read;
use super::removal;
use super::session::{Check, NOTE, Session};
use super::set::{self, Version};
use super::table::{Table, TableFamily, TableRef};
use super::wire::table::{OWNER, PERSIST};
use super::wire::{SUBSYSTEM, generation, message};
use crate::PodInterface;
use crate::guard;
use crate::inside::{FrameChecks, Inside, PodNamespace, SecondStatus};
use crate::leases::Grouped;
use crate::netlink::{self, ACK, Messages, PodSockets, SecondLink, SecondLinks, Socket};
use crate::nflog::DenialLog;
use crate::remembered::Remembered;
use crate::render::{Ids, Insider, Rendered, Scope, render_inside};
use connections::{REMEMBERED, found_cuts};
use namewall_policy::Program;
use namewall_policy::lease::LeaseChange;
use namewall_policy::program::{ClassId, Holder};
use namewall_policy::{Instant, LeaseTable};
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::error::Error;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// By the name of the namespace.
pub(super) type InsideTables = BTreeMap<String, PodTables>;

/// The tables of one namespace.
#[derive(Debug)]
pub(super) struct PodTables {
    sockets: Arc<Mutex<PodSockets>>,
    /// The pod, as NAMESPACE/NAME, and its own addresses.
    pod: String,
    addresses: Vec<IpAddr>,
    /// What the namespace has; None until it was read.
    links: Option<SecondLinks>,
    /// What the kernel has of rules; None until it was read.
    rules: Option<Rendered>,
    frames: Kept,
    /// The number of the last change to any table of the namespace that was seen.
    seen: Option<u32>,
    repaired: u64,
    failed: bool,
    /// True once the tables of an earlier process were made right.
    was_adopted: bool,
    /// Cut TCP connections that the table remembers.
    remembered: Remembered,
    /// Why denials are not logged.
    unlogged: Option<String>,
}

/// What became of the tables that an earlier process has left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    AsWanted,
    /// They are not as they are wanted now.
    Different,
}

impl PodTables {
    /// The number of the last change that is known, if the tables are as they should be.
    pub(super) fn seen(&self) -> Option<u32> {
        self.seen.filter(|_| !self.failed && self.rules.is_some())
    }

    fn new(pod: &PodNamespace) -> Self {
        Self {
            sockets: pod.sockets.clone(),
            pod: pod.pod.clone(),
            addresses: pod.addresses.clone(),
            links: None,
            rules: None,
            frames: Kept::new(TableFamily::Netdev),
            seen: None,
            repaired: 0,
            failed: false,
            was_adopted: false,
            remembered: Remembered::with_room(REMEMBERED),
            unlogged: None,
        }
    }
}

fn lock(sockets: &Mutex<PodSockets>) -> MutexGuard<'_, PodSockets> {
    sockets.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What one pod is to have.
struct Wanted<'a> {
    inside: &'a Inside<'a>,
    name: &'a str,
    features: Features,
    patience: Duration,
}

impl Nft {
    /// Makes the tables of a namespace right.
    pub(super) fn enforce_inside(&mut self, inside: &Inside<'_>) -> SecondStatus {
        let Self { inside: tables, settings, features, .. } = self;
        let pod = inside.pod;
        let known = tables.entry(pod.id.clone()).or_insert_with(|| PodTables::new(pod));
        if !Arc::ptr_eq(&known.sockets, &pod.sockets) {
            // Other sockets own nothing yet.
            *known = PodTables { repaired: known.repaired, was_adopted: known.was_adopted, ..PodTables::new(pod) };
        }
        known.addresses.clone_from(&pod.addresses);
        known.enforce(&Wanted { inside, name: &settings.table, features: *features, patience: settings.patience })
    }

    /// True if something in a namespace has changed, or is not as it should be.
    pub(super) fn look_inside(&mut self, looks_at_tables: bool) -> bool {
        let mut has_news = false;
        for pod in self.inside.values_mut() {
            let mut sockets = lock(&pod.sockets);
            let links = sockets.have_news();
            if links {
                pod.links = None;
            }
            let tables = looks_at_tables && ruleset(&mut sockets.netfilter).is_ok_and(|now| Some(now) != pod.seen);
            has_news |= links || tables || pod.failed || pod.rules.is_none();
        }
        has_news
    }

    /// Opens and closes leases in every namespace with rules for their names.
    pub(super) fn open_inside(&mut self, change: &LeaseChange, leases: &LeaseTable, now: Instant) {
        for pod in self.inside.values_mut() {
            let Some(rules) = pod.rules.as_ref().filter(|rules| !rules.lease_groups.is_empty()) else { continue };
            let mut sockets = lock(&pod.sockets);
            let mut session = Session { socket: &mut sockets.netfilter, table: (&self.settings.table).into() };
            let mut batch = Batch::new(session.table);
            write_leases(&mut batch, &Grouped { leases, groups: &rules.lease_groups }.after(change, now));
            if batch.is_empty() {
                continue;
            }
            match session.commit(batch) {
                Ok(()) => pod.seen = ruleset(&mut sockets.netfilter).ok(),
                // What it has is read, and made right, with the next look.
                Err(_) => pod.rules = None,
            }
        }
    }
}

impl PodTables {
    fn enforce(&mut self, wanted: &Wanted<'_>) -> SecondStatus {
        let class = class_of(wanted.inside.program, &wanted.inside.pod.addresses);
        let sockets = self.sockets.clone();
        let done = self.make_right(&mut lock(&sockets), wanted, class);
        self.failed = done.is_err();
        let interfaces = self.links.iter().flat_map(|links| &links.second);
        SecondStatus {
            id: wanted.inside.pod.id.clone(),
            pod: wanted.inside.pod.pod.clone(),
            interfaces: interfaces.map(|link| link.name.clone()).collect(),
            is_judged: class.is_some(),
            frames: match wanted.features.egress_hook {
                EgressHook { is_there: false, .. } => FrameChecks::None,
                EgressHook { tells_routed: false, .. } => FrameChecks::Sources,
                _ => FrameChecks::Full,
            },
            repaired: self.repaired,
            failure: done.err().map(|error| with_causes(&error)),
            unlogged: self.unlogged.clone(),
        }
    }

    fn make_right(
        &mut self,
        sockets: &mut PodSockets,
        wanted: &Wanted<'_>,
        class: Option<ClassId>,
    ) -> Result<(), NftError> {
        // Notices first: a change while links are read is seen by the next look.
        if sockets.have_news() || self.links.is_none() {
            self.links = Some(sockets.read_links(&wanted.inside.pod.own).map_err(NftError::Socket)?);
            // The kernel changes a chain together with its interface.
            self.frames.known = None;
        }
        let links = self.links.clone().unwrap_or_default();
        let before = ruleset(&mut sockets.netfilter).map_err(NftError::Socket)?;
        let repaired = self.repaired;
        self.look_for_changes(&mut sockets.netfilter, wanted)?;
        // Without a second interface the closed table is enough, and costs nothing at a change of policies.
        let class = class.filter(|_| !links.second.is_empty());
        let insider = Insider { own: links.own, class };
        self.listen(&mut sockets.log, wanted, !links.second.is_empty());
        let is_first = self.rules.is_none();
        let mut found = self.replace_rules(&mut sockets.netfilter, wanted, insider)?;
        if is_first {
            removal::remove(&mut sockets.netfilter, CLOSED_TABLE, wanted.patience, &mut |_| {})?;
        }
        let has_frames = wanted.inside.pod.has_table || self.frames.known.is_some() || !links.second.is_empty();
        if wanted.features.egress_hook.is_there && has_frames {
            let (program, extra) = (wanted.inside.program, &wanted.inside.pod.extra);
            let own_frames = links.second.iter().filter(|link| link.has_own_frames);
            let interfaces: Vec<PodInterface> =
                own_frames.map(|link| PodInterface { extra: extra.clone(), ..sender(link, program) }).collect();
            let table = guard::sent_frames(
                &interfaces,
                wanted.inside.scope.log_group,
                wanted.features.egress_hook.tells_routed,
            );
            let (socket, name, patience) = (&mut sockets.netfilter, wanted.name, wanted.patience);
            if self.frames.replace(&mut Access { socket, name, patience }, table)? > 0 {
                found = Found::Different;
            }
        }
        // A difference alone may come of policies that have changed while no process ran, and a change of tables alone
        // of what the pod does with its own.
        let was_touched = wanted.inside.pod.has_table && wanted.inside.pod.last_seen.is_some_and(|seen| seen != before);
        if !self.was_adopted && was_touched && found == Found::Different && self.repaired == repaired {
            self.repaired += 1;
        }
        self.was_adopted = true;
        self.seen = Some(ruleset(&mut sockets.netfilter).map_err(NftError::Socket)?);
        Ok(())
    }

    /// Listens to denials, before there are rules that log. A log line is lost if nobody listens, and a packet is not
    /// let through for it: a failure is told and tried again with the next change.
    fn listen(&mut self, log: &mut DenialLog, wanted: &Wanted<'_>, has_links: bool) {
        let group = wanted.inside.scope.log_group;
        let done = if has_links { log.listen(group) } else { Ok(()) };
        self.unlogged = done.err().map(|error| match error.errno() {
            Some(Errno::EBUSY) => format!("a process in the pod listens to the log group {group} already"),
            _ => with_causes(&error),
        });
    }

    /// Compares the kernel's tables with what was put there, if somebody has changed anything in the namespace since.
    fn look_for_changes(&mut self, socket: &mut Socket, wanted: &Wanted<'_>) -> Result<(), NftError> {
        let now = ruleset(socket).map_err(NftError::Socket)?;
        let tables = [
            (TableFamily::Inet, self.rules.as_ref().map(|rules| &rules.table)),
            (TableFamily::Netdev, self.frames.known.as_ref()),
        ];
        let is_first = self.rules.is_none();
        let mut is_changed = false;
        if is_first {
            // A table that an earlier process has left and that is gone was removed by somebody.
            let table = TableRef { family: TableFamily::Inet, name: wanted.name };
            is_changed = self.seen.is_none() && wanted.inside.pod.has_table && !Session { socket, table }.exists()?;
        } else if self.seen != Some(now) {
            for (family, known) in tables {
                let Some(known) = known else { continue };
                let table = TableRef { family, name: wanted.name };
                is_changed |= match read::read(socket, table) {
                    Ok(live) => !Change::between(&live, known).is_empty(),
                    Err(error) if error.errno() == Some(Errno::ENOENT) => true,
                    Err(source) => return Err(NftError::Read { table: table.to_string(), source }),
                };
            }
        }
        if is_changed {
            self.repaired += 1;
            self.rules = None;
            self.frames.known = None;
        }
        Ok(())
    }

    /// Returns what there was, if it was not known.
    fn replace_rules(&mut self, socket: &mut Socket, wanted: &Wanted<'_>, insider: Insider) -> Result<Found, NftError> {
        let Inside { program, scope, leases, now, .. } = *wanted.inside;
        let mut session = Session { socket, table: wanted.name.into() };
        let mut batch = Batch::new(session.table);
        let nothing = Table::default();
        let render = |ids: &Ids| {
            let mut rendered = render_inside(program, scope, insider, ids);
            if !wanted.features.resets {
                drop_in_place_of_resets(&mut rendered);
            }
            rendered
        };
        let (claimed, mut rendered);
        let mut found = Found::AsWanted;
        let change = match &self.rules {
            Some(known) => {
                rendered = render(&known.ids);
                Change::between(&known.table, &rendered.table).step_after(known.ids.generation)
            }
            None => {
                claimed = session.claim(wanted.patience)?;
                let ids = claimed.as_ref().map(ids_of).unwrap_or_default();
                rendered = render(&ids);
                match &claimed {
                    Some(live) if Change::is_possible(live, &rendered.table) => {
                        for version in
                            Version::BOTH.into_iter().filter(|version| live.sets.contains_key(set::LEASE[*version]))
                        {
                            batch.clear_set(set::LEASE[version]);
                        }
                        self.remembered = found_cuts(session.socket, wanted.name)?;
                        let change = Change::between(live, &rendered.table);
                        if !change.is_empty() {
                            found = Found::Different;
                        }
                        change.step_after(ids.generation)
                    }
                    other => {
                        found = Found::Different;
                        self.remembered.were_lost();
                        if other.is_some() {
                            batch.delete_table();
                        }
                        batch.add_table(OWNER | PERSIST, NOTE);
                        Change::between(&nothing, &rendered.table)
                    }
                }
            }
        };
        change.write(&mut batch);
        let grouped = Grouped { leases, groups: &rendered.lease_groups };
        let writes = match &self.rules {
            Some(known) => grouped.replacing(&known.lease_groups, &LeaseChange::default(), now),
            None => grouped.beside(&[], &[], now),
        };
        write_leases(&mut batch, &writes);
        let done = session.commit(batch).and_then(|()| session.verify(&Check::of(&change), &rendered.table));
        let step = change.step;
        match &done {
            Ok(()) => {
                rendered.advance(step);
                self.rules = Some(rendered);
            }
            Err(error) if error.leaves_all_as_it_was() => {}
            Err(_) => self.rules = None,
        }
        done.map(|()| found)
    }
}

/// The table that closes second interfaces until an agent comes. It has a name of its own: who makes it does not know
/// how the agent calls its table. An agent removes it once its own table is in force.
pub(super) const CLOSED_TABLE: &str = "namewall-closed";
/// How an agent calls its table, unless its settings have another name.
const USUAL_TABLE: &str = "namewall";

/// Closes the second interfaces of a pod that no agent knows, until one does. `own` is the name of the pod's own
/// interface. Where an agent of the usual settings has left its table, that stays as it is, and is enough.
pub fn close_inside(sockets: &mut PodSockets, own: &str) -> Result<(), NftError> {
    let own = sockets.read_links(own).map_err(NftError::Socket)?.own;
    for table in [USUAL_TABLE, CLOSED_TABLE] {
        if (Session { socket: &mut sockets.netfilter, table: table.into() }).exists()? {
            return Ok(());
        }
    }
    let mut session = Session { socket: &mut sockets.netfilter, table: CLOSED_TABLE.into() };
    let (program, scope) = (Program::default(), Scope::default());
    let closed = render_inside(&program, &scope, Insider { own, class: None }, &Ids::default());
    let mut batch = Batch::new(session.table);
    batch.add_table(OWNER | PERSIST, NOTE);
    Change::between(&Table::default(), &closed.table).write(&mut batch);
    session.commit(batch)
}

/// The Class of the pod with these addresses. None if the Program does not know it.
fn class_of(program: &Program, addresses: &[IpAddr]) -> Option<ClassId> {
    addresses.iter().find_map(|address| match program.by_address.get(address) {
        Some(Holder::Pod(id)) => Some(program.member(*id).class),
        _ => None,
    })
}

/// What may be sent from a second interface: its own addresses, as the kernel has them, but none that the Program has as
/// a pod's or a node's.
fn sender(link: &SecondLink, program: &Program) -> PodInterface {
    let SecondLink { name, index, hardware, addresses, .. } = link.clone();
    let addresses = addresses.into_iter().filter(|address| program.by_address.get(address).is_none()).collect();
    PodInterface { name, index, hardware, addresses, extra: Vec::new(), is_shared: false, hears_groups: true }
}

/// The number of the last change to any table of the namespace.
fn ruleset(socket: &mut Socket) -> Result<u32, netlink::Error> {
    let mut asked = Messages::new();
    asked.begin(SUBSYSTEM << 8 | message::GET_GENERATION, ACK, &fixed(0, 0));
    let mut number = 0;
    socket.commit_echoed(&asked, |answer| {
        number = answer.attributes(4).u32(generation::NUMBER).unwrap_or_default();
    })?;
    Ok(number)
}

fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(all(test, feature = "system"))]
mod system_tests;
