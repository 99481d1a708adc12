//! The table in the kernel, and the one socket through which we change it.

use super::batch::Batch;
use super::change::{Change, Known as _};
use super::elements::Moved;
use super::features::{self, Lacking};
use super::owner::{self, Owner};
use super::read::{self, Count, Live};
use super::set::{self, Element, Key, Lifetime, Transient, Version};
use super::table::{Chain, Table};
use super::wire::table::{OWNER, PERSIST};
use crate::conntrack::{Connection, Conntrack};
use crate::cut::{CutEstablished, Judge};
use crate::leases::{LeaseGroups, Leases, Writes};
use crate::netlink::{self, Family, Socket};
use crate::remembered::{MOST, Remembered};
use crate::render::{ALLOWED, AUDIT, Delta, Ids, Rendered, Scope, render};
use crate::{Applied, Cut, Dataplane};
use namewall_policy::lease::Bounds;
use namewall_policy::model::Action;
use namewall_policy::{Instant, Lease, LeaseTable, Program};
use nix::errno::Errno;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// What our table says of itself, so that we never take somebody else's.
pub(super) const NOTE: &str = "made by namewall";
/// How long the kernel may take to release the table of a process that has ended, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Settings {
    pub table: String,
    pub scope: Scope,
    pub cut: CutEstablished,
    /// How many leases are kept (S6.5).
    pub bounds: Bounds,
    /// How long the first change waits until the kernel has released the table of a process that has ended.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            table: "namewall".to_owned(),
            scope: Scope::default(),
            cut: CutEstablished::default(),
            bounds: Bounds::default(),
            patience: PATIENCE,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum NftError {
    #[error("cannot talk to nftables")]
    Socket(#[source] netlink::Error),
    #[error("no right to change nftables; run as root, or with the capability NET_ADMIN")]
    Rights,
    #[error(
        "this kernel has no nftables, or not enough of it: load nf_tables and nf_conntrack, on Linux 6.12 or newer"
    )]
    NoNftables(#[source] netlink::Error),
    #[error("this kernel ({release}) is too old: it cannot {lacking}; nothing was changed. Use Linux 6.12 or newer")]
    TooOld { lacking: Lacking, release: String },
    #[error("there is a table inet {0} that namewall did not make; name another with --table, or remove it")]
    Foreign(String),
    #[error("the table inet {table} belongs to a namewall that is running ({owner}); stop that one first")]
    Owned { table: String, owner: Owner },
    #[error("cannot read the table inet {table} back")]
    Read {
        table: String,
        #[source]
        source: netlink::Error,
    },
    #[error("cannot read or cut connections")]
    Connections(#[source] netlink::Error),
    #[error("the kernel did not say whether it took the change to table inet {table}; the next change reads the table")]
    Unanswered {
        table: String,
        #[source]
        source: netlink::Error,
    },
    #[error("the kernel did not take the change to table inet {table}; nothing was changed")]
    Rejected {
        table: String,
        #[source]
        source: netlink::Error,
    },
    #[error("the kernel took the change to table inet {table}, but has something else: {what}")]
    Differs { table: String, what: String },
}

impl NftError {
    /// Whether the kernel's table is surely what we took it for. What is missing or there already says otherwise.
    fn leaves_all_as_it_was(&self) -> bool {
        let drifted = [Errno::ENOENT, Errno::EEXIST, Errno::EBUSY];
        match self {
            Self::Rejected { source, .. } => source.errno().is_none_or(|errno| !drifted.contains(&errno)),
            Self::Owned { .. } | Self::Rights => true,
            _ => false,
        }
    }
}

/// The kernel as a Dataplane.
#[derive(Debug)]
pub struct Nft {
    socket: Socket,
    conntrack: Conntrack,
    settings: Settings,
    /// What we made of the kernel's table; none until the first `replace`.
    known: Option<Known>,
    leases: Leases,
    remembered: Remembered,
}

/// The kernel's table as we know it, and what it was made from.
#[derive(Debug)]
struct Known {
    program: Program,
    scope: Scope,
    rendered: Rendered,
}

impl Known {
    /// Where the table is not what the whole way would have made of the Program.
    /// What only classes have that nobody is in any more may stay for a while.
    fn difference(&self) -> Option<String> {
        let whole = render(&self.program, &self.scope, &self.rendered.ids);
        let ours = &self.rendered.table;
        let chain = whole.table.chains.iter().find(|(name, chain)| ours.chains.get(*name) != Some(chain));
        let groups: FxHashSet<u32> = whole.numbers.groups.iter().map(|group| group.number).collect();
        let ports: FxHashSet<u32> = whole.numbers.named.values().copied().collect();
        let is_used = |name: &str, element: &Element| {
            let number = || {
                element.key.as_bytes().get(..4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
            };
            match name {
                set::CLASSES => whole.table.sets[name].elements.get(element.index()).is_some(),
                _ if name == set::PEERS.0 || name == set::PEERS.1 => groups.contains(&number()),
                _ if name == set::NAMED.0 || name == set::NAMED.1 => ports.contains(&number()),
                _ => true,
            }
        };
        let is_other = |(name, meant): &(&String, &super::table::Set)| {
            let Some(own) = ours.sets.get(*name) else { return true };
            let used = own.elements.iter().filter(|element| is_used(name, element)).count();
            used != meant.elements.len() || meant.elements.iter().any(|one| !own.elements.has(&one))
        };
        let set = whole.table.sets.iter().find(is_other);
        chain.map(|(name, _)| format!("chain {name}")).or(set.map(|(name, _)| format!("set {name}")))
    }
}

impl Nft {
    /// Opens the sockets in the thread's network namespace, of a kernel that can do what we need. Changes nothing.
    pub fn open(settings: Settings) -> Result<Self, NftError> {
        let mut socket = open_socket()?;
        match read::table_note(&mut socket, &settings.table) {
            Ok(Some(note)) if note != NOTE => return Err(NftError::Foreign(settings.table)),
            Ok(_) => {}
            Err(error) => return Err(refused_at_all(error)),
        }
        features::check()?;
        let conntrack = Conntrack::open().map_err(NftError::Socket)?;
        let leases = Leases::new(LeaseTable::with_bounds(settings.bounds));
        Ok(Self { socket, conntrack, settings, known: None, leases, remembered: Remembered::default() })
    }

    /// What is open by name, and such as has ended but may still have connections.
    pub fn leases(&self) -> &LeaseTable {
        &self.leases.table
    }

    /// Cuts those of these connections that `program` forbids.
    pub fn cut_among(&mut self, program: &Program, connections: &[Connection]) -> Result<Cut, NftError> {
        let judge = Judge::new(program, &self.leases.table, self.settings.cut)
            .with_incomplete_history(self.leases.is_incomplete())
            .on(&self.settings.scope);
        let forbidden: Vec<&Connection> = connections.iter().filter(|connection| judge.forbids(connection)).collect();
        self.cut_all(&forbidden)
    }

    /// Forgets leases that have ended, a few at a time, but for addresses that connections lead to.
    pub fn forget(&mut self, now: Instant, connected: &FxHashSet<IpAddr>) {
        self.leases.table.forget(now, FORGOTTEN_AT_ONCE, |address| connected.contains(&address));
    }

    /// Whether the kernel's table takes pods' DNS to our server while that lives.
    pub fn takes_dns(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.scope.dns.is_some())
    }

    /// Pods' DNS is taken to our server for so long from now; not any longer unless this is done again.
    pub fn beat(&mut self, life: Duration) -> Result<(), NftError> {
        let element = |protocol| Element::key(Key::only_protocol(protocol));
        let alive = |protocol| Transient { element: element(protocol), lifetime: Lifetime(life), name: None };
        let mut batch = Batch::new(&self.settings.table);
        batch.add_transient(set::ALIVE, Scope::ASKED_OVER.map(alive).iter());
        self.commit(batch)
    }

    /// Our server goes: from now on pods' DNS goes its usual way.
    pub fn stop_beating(&mut self) -> Result<(), NftError> {
        let mut batch = Batch::new(&self.settings.table);
        let elements = Scope::ASKED_OVER.map(|protocol| Element::key(Key::only_protocol(protocol)));
        batch.destroy_elements(set::ALIVE, elements.iter());
        self.commit(batch)
    }

    /// The table as it should be now.
    pub fn table(&self) -> Option<&Table> {
        self.known.as_ref().map(|known| &known.rendered.table)
    }

    /// How often each rule of a policy has matched, by what `explain` and the log call it. Rules of audited
    /// policies have `audit: ` before it.
    pub fn counts(&mut self) -> Result<BTreeMap<String, Count>, NftError> {
        let table = self.settings.table.clone();
        let live = read::read_chains_and_rules(&mut self.socket, &table);
        let live = live.map_err(|source| NftError::Read { table, source })?;
        let mut counts: BTreeMap<String, Count> = BTreeMap::new();
        for rule in live.chains.into_values().flat_map(|chain| chain.rules) {
            if let (Some(label), Some(count)) = (rule.comment, rule.count) {
                let sum = counts.entry(label).or_default();
                *sum = Count { packets: sum.packets + count.packets, bytes: sum.bytes + count.bytes };
            }
        }
        Ok(counts)
    }

    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// The first change of this process: whatever the kernel has is made right in one transaction.
    fn adopt(&mut self, next: &Program, now: Instant) -> Result<Applied, NftError> {
        let name = self.settings.table.clone();
        let note = read::table_note(&mut self.socket, &name).map_err(refused_at_all)?;
        let unread = |source| NftError::Read { table: name.clone(), source };
        let mut exists = note.is_some();
        let live = match note {
            None => Live::default(),
            Some(note) if note != NOTE => return Err(NftError::Foreign(name)),
            Some(_) => {
                // Owned before it is read, so that nobody changes it meanwhile; and by itself, since in one
                // transaction the kernel lets nobody take a table over and give it new hooks.
                let patience = self.settings.patience;
                owner::retry_while_owned(patience, &mut |_| {}, || {
                    let mut claim = Batch::new(&name);
                    claim.add_table(OWNER | PERSIST, NOTE);
                    self.commit(claim)
                })?;
                read::read(&mut self.socket, &name).map_err(unread)?
            }
        };
        let mut rendered = render(next, &self.settings.scope, &ids_of(&live));
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
            let cut = [set::CUT.0, set::CUT.1].into_iter().map(|set| read::count_elements((&name, set), MOST));
            let cut = cut.sum::<Result<usize, _>>().map_err(unread)?;
            self.remembered.adopt(cut, std::time::Instant::now());
            Some(read::read_leases(&name).map_err(unread)?)
        } else {
            // Owned, so that nobody flushes it by accident; persistent, or it would go when we do: wide open.
            batch.add_table(OWNER | PERSIST, NOTE);
            self.remembered.were_lost();
            None
        };
        change.write(&mut batch);
        write_leases(&mut batch, &self.leases.adopt(found, &rendered.lease_groups, now));
        // An earlier process may have ended before it cut what it should have.
        let applied = Applied { operations: batch.operations(), narrows: true };
        self.commit(batch)?;
        self.verify(&change, &rendered.table)?;
        let step = change.step;
        rendered.advance(step);
        self.known = Some(Known { program: next.clone(), scope: self.settings.scope.clone(), rendered });
        Ok(applied)
    }

    /// The whole table is made again, and compared.
    fn replace_table(&mut self, known: Known, next: &Program, now: Instant) -> Result<Applied, NftError> {
        let mut rendered = render(next, &self.settings.scope, &known.rendered.ids);
        let change = Change::between(&known.rendered.table, &rendered.table).step_after(rendered.ids.generation);
        let mut batch = Batch::new(&self.settings.table);
        change.write(&mut batch);
        if rendered.lease_groups != known.rendered.lease_groups {
            let groups = (&known.rendered.lease_groups, &rendered.lease_groups);
            write_leases(&mut batch, &self.leases.regroup(groups, now));
        }
        let applied = Applied { operations: batch.operations(), narrows: change.narrows(only_allows(next)) };
        let done = self.commit(batch).and_then(|()| self.verify(&change, &rendered.table));
        let step = change.step;
        match &done {
            Ok(()) => {
                rendered.advance(step);
                self.known = Some(Known { program: next.clone(), scope: self.settings.scope.clone(), rendered });
            }
            Err(error) => self.known = error.leaves_all_as_it_was().then_some(known),
        }
        done.map(|()| applied)
    }

    /// Only pods came, went or changed: a few elements.
    fn replace_pods(&mut self, mut known: Known, next: &Program, delta: Delta) -> Result<Applied, NftError> {
        let Delta { gone, come, classes, groups } = delta;
        let mut change = Change::default();
        for (into, placed) in [(&mut change.gone_elements, &gone), (&mut change.new_elements, &come)] {
            let mut by_set: BTreeMap<&str, Vec<Element>> = BTreeMap::new();
            placed.iter().for_each(|(set, element)| by_set.entry(set).or_default().push(element.clone()));
            into.extend(by_set.into_iter().map(|(set, elements)| (set, Moved::These(elements))));
        }
        let change = change.step_after(known.rendered.ids.generation);
        let mut batch = Batch::new(&self.settings.table);
        change.write(&mut batch);
        let applied = Applied { operations: batch.operations(), narrows: change.narrows(only_allows(next)) };
        if let Err(error) = self.commit(batch).and_then(|()| self.verify(&change, &known.rendered.table)) {
            self.known = error.leaves_all_as_it_was().then_some(known);
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
        for (address, number) in classes {
            match number {
                Some(number) => rendered.ids.classes.insert(address, number),
                None => rendered.ids.classes.remove(&address),
            };
        }
        if let Some(groups) = groups {
            rendered.numbers.groups = groups;
        }
        known.program = next.clone();
        debug_assert_eq!(known.difference(), None, "the short way leads elsewhere than the long one");
        self.known = Some(known);
        Ok(applied)
    }

    fn commit(&mut self, batch: Batch) -> Result<(), NftError> {
        if batch.is_empty() {
            return Ok(());
        }
        let table = self.settings.table.clone();
        let done = self.socket.commit(&batch.finish());
        match &done {
            Ok(()) => self.leases.keep(),
            Err(_) => self.leases.take_back(),
        }
        done.map_err(|source| match source {
            netlink::Error::Receive(_) => NftError::Unanswered { table, source },
            source => owner::refusal(&mut self.socket, &table, source),
        })
    }

    /// One that cannot be cut does not save the others; the first failure is told when all have been tried.
    fn cut_all(&mut self, connections: &[&Connection]) -> Result<Cut, NftError> {
        let (mut cut, mut failed) = (Cut::default(), None);
        for some in connections.chunks(CUT_AT_ONCE) {
            // Before they go: no packet may come between.
            match self.remember(some) {
                Ok(without) => cut.not_remembered += without,
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

    /// Makes the kernel drop what is still sent through these connections; how many there was no room for.
    fn remember(&mut self, connections: &[&Connection]) -> Result<usize, NftError> {
        let (packets, without) = self.remembered.packets(connections.iter().copied(), std::time::Instant::now());
        let mut batch = Batch::new(&self.settings.table);
        batch.add_passing(set::CUT, &packets);
        let done = self.commit(batch);
        if done.as_ref().is_err_and(|error| !error.leaves_all_as_it_was()) {
            self.known = None;
        }
        done.map(|()| without)
    }

    /// Reads back what was changed, and compares.
    fn verify(&mut self, change: &Change<'_>, table: &Table) -> Result<(), NftError> {
        let name = self.settings.table.clone();
        let unread = |source| NftError::Read { table: name.clone(), source };
        let stepped = change.step.iter().map(|step| (ALLOWED, &step.allowed));
        let chains: Vec<(&str, &Chain)> =
            change.new_chains.iter().chain(&change.rewritten).copied().chain(stepped).collect();
        let live = if chains.len() > MANY_CHAINS {
            let live = read::read_chains_and_rules(&mut self.socket, &name).map_err(unread)?;
            if let Some(chain) = live.chains().symmetric_difference(&table.chains()).next() {
                return Err(NftError::Differs { table: name, what: format!("chain {chain}") });
            }
            live
        } else {
            let names: Vec<&str> = chains.iter().map(|(name, _)| *name).collect();
            read::read_chain_rules(&mut self.socket, &name, &names).map_err(unread)?
        };
        for (chain, meant) in chains {
            if !live.chains.get(chain).is_some_and(|live| live.has_rules(&meant.rules)) {
                return Err(NftError::Differs { table: name, what: format!("chain {chain}") });
            }
        }
        for (set, elements) in &change.new_elements {
            let some: Vec<Element> = elements.iter().take(SPOT_CHECKS).collect();
            if !read::has_elements(&mut self.socket, (&name, set), &some).map_err(unread)? {
                return Err(NftError::Differs { table: name, what: format!("set {set}") });
            }
        }
        if let Some(step) = &change.step
            && !read::has_elements(&mut self.socket, (&name, set::GENERATION), std::slice::from_ref(&step.come))
                .map_err(unread)?
        {
            return Err(NftError::Differs { table: name, what: format!("set {}", set::GENERATION) });
        }
        Ok(())
    }
}

/// Up to here chains are read back one by one.
const MANY_CHAINS: usize = 200;
/// Leases that have ended go a few at a time: nobody should wait for it.
const FORGOTTEN_AT_ONCE: usize = 5_000;
/// A dump of a large set takes long; of each change so many elements are asked for by key.
const SPOT_CHECKS: usize = 16;
/// So many connections are cut in a row: a longer transaction would keep others waiting.
const CUT_AT_ONCE: usize = 1000;

impl Dataplane for Nft {
    type Error = NftError;

    fn replace(&mut self, next: &Program, now: Instant) -> Result<Applied, NftError> {
        let Some(known) = self.known.take() else { return self.adopt(next, now) };
        let scope = &self.settings.scope;
        let delta = Delta::between((&known.program, next), scope, &known.rendered).filter(|_| known.scope == *scope);
        match delta {
            Some(delta) => self.replace_pods(known, next, delta),
            None => self.replace_table(known, next, now),
        }
    }

    fn grant(&mut self, leases: &[Lease], now: Instant) -> Result<(), NftError> {
        // Where nothing is known of the table they are kept for the change that makes it known.
        let none = LeaseGroups::default();
        let groups = self.known.as_ref().map_or(&none, |known| &known.rendered.lease_groups);
        let writes = self.leases.grant(leases, groups, now);
        let mut batch = Batch::new(&self.settings.table);
        write_leases(&mut batch, &writes);
        self.commit(batch)
    }

    fn cut(&mut self, program: &Program, now: Instant) -> Result<Cut, NftError> {
        let connections = self.conntrack.list().map_err(NftError::Connections)?;
        let cut = self.cut_among(program, &connections);
        let connected: FxHashSet<IpAddr> = connections.iter().map(|connection| connection.destination.0).collect();
        self.forget(now, &connected);
        cut
    }
}

fn only_allows(program: &Program) -> bool {
    program.rules.iter().all(|rule| rule.action == Action::Allow)
}

fn write_leases(batch: &mut Batch, writes: &Writes) {
    batch.add_passing(set::LEASE, &writes.new);
    for version in Version::BOTH {
        batch.destroy_elements(set::LEASE[version], writes.gone[version as usize].iter());
    }
}

/// The numbers a table that was read back uses.
fn ids_of(live: &Live) -> Ids {
    let mut ids = Ids::default();
    for version in Version::BOTH {
        let Some(set) = live.sets.get(set::WHO[version]) else { continue };
        for element in set.elements.iter() {
            if let (Some(address), set::Value::Number(number)) = (element.address(), &element.value) {
                ids.classes.insert(address, *number);
            }
        }
    }
    if let Some(set) = live.sets.get(set::GENERATION) {
        ids.generation = set.elements.iter().next().and_then(|element| element.key.as_port()).unwrap_or_default();
    }
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

pub(super) fn refused_at_all(error: netlink::Error) -> NftError {
    match error.errno() {
        Some(Errno::EPERM | Errno::EACCES) => NftError::Rights,
        Some(Errno::EINVAL | Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT) => NftError::NoNftables(error),
        _ => NftError::Socket(error),
    }
}

/// Puts a whole table in the place of the one of that name, in one transaction.
/// For tables that are made once, like those of the sandbox.
pub fn put_table(name: &str, table: &Table) -> Result<(), NftError> {
    let mut socket = open_socket()?;
    let exists = read::table_note(&mut socket, name).map_err(refused_at_all)?;
    let mut batch = Batch::new(name);
    match exists {
        Some(note) if note != NOTE => return Err(NftError::Foreign(name.to_owned())),
        Some(_) => batch.delete_table(),
        None => {}
    }
    batch.add_table(0, NOTE);
    let nothing = Table::default();
    Change::between(&nothing, table).write(&mut batch);
    let rejected = |source| NftError::Rejected { table: name.to_owned(), source };
    socket.commit(&batch.finish()).map_err(rejected)
}

#[cfg(test)]
#[cfg(feature = "system")]
mod system_tests;
#[cfg(test)]
mod tests;
