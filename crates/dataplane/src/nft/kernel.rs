//! The table in the kernel, and the one socket through which we change it.

use super::batch::Batch;
use super::change::{Change, Known};
use super::read::{self, Live};
use super::set::{self, Element, Version};
use super::table::{Chain, Table};
use super::wire::table::{OWNER, PERSIST};
use crate::conntrack::Conntrack;
use crate::cut::{CutEstablished, Judge};
use crate::leases::{Fresh, Leases};
use crate::netlink::{self, Family, Socket};
use crate::render::{Ids, Rendered, Scope, render};
use crate::{Applied, Dataplane};
use namewall_policy::{Instant, Lease, Program};
use nix::errno::Errno;
use rustc_hash::FxHashSet;
use std::net::IpAddr;

/// What our table says of itself, so that we never take somebody else's.
const NOTE: &str = "made by namewall";

#[derive(Clone, Debug)]
pub struct Settings {
    pub table: String,
    pub scope: Scope,
    pub cut: CutEstablished,
}

impl Default for Settings {
    fn default() -> Self {
        Self { table: "namewall".to_owned(), scope: Scope::default(), cut: CutEstablished::default() }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum NftError {
    #[error("cannot talk to nftables")]
    Socket(#[source] netlink::Error),
    #[error("no right to change nftables; run as root, or with the capability NET_ADMIN")]
    Rights,
    #[error("this kernel has no nftables, or not enough of it: load nf_tables and nf_conntrack (kernel 5.10 or newer)")]
    NoNftables(#[source] netlink::Error),
    #[error("there is a table inet {0} that namewall did not make; name another with --table, or remove it")]
    Foreign(String),
    #[error("the table inet {0} belongs to a namewall that is running; stop that one first")]
    Owned(String),
    #[error("cannot read the table inet {table} back")]
    Read {
        table: String,
        #[source]
        source: netlink::Error,
    },
    #[error("cannot read or cut connections")]
    Connections(#[source] netlink::Error),
    #[error("the kernel did not take the change to table inet {table}; nothing was changed")]
    Rejected {
        table: String,
        #[source]
        source: netlink::Error,
    },
    #[error("the kernel took the change to table inet {table}, but has something else: {what}")]
    Differs { table: String, what: String },
}

/// The kernel as a Dataplane.
#[derive(Debug)]
pub struct Nft {
    socket: Socket,
    conntrack: Conntrack,
    settings: Settings,
    /// What we made of the kernel's table; none until the first `replace`.
    known: Option<Rendered>,
    leases: Leases,
}

impl Nft {
    /// Opens the sockets in the thread's network namespace. Changes nothing.
    pub fn open(settings: Settings) -> Result<Self, NftError> {
        let mut socket = open_socket()?;
        match read::table_note(&mut socket, &settings.table) {
            Ok(Some(note)) if note != NOTE => return Err(NftError::Foreign(settings.table)),
            Ok(_) => {}
            Err(error) => return Err(refused_at_all(error)),
        }
        let conntrack = Conntrack::open().map_err(NftError::Socket)?;
        Ok(Self { socket, conntrack, settings, known: None, leases: Leases::default() })
    }

    /// The table as it should be now.
    pub fn table(&self) -> Option<&Table> {
        self.known.as_ref().map(|rendered| &rendered.table)
    }

    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// The first change of this process: whatever the kernel has is made right in one transaction.
    fn adopt(&mut self, next: &Program) -> Result<Applied, NftError> {
        let name = self.settings.table.clone();
        let note = read::table_note(&mut self.socket, &name).map_err(refused_at_all)?;
        let mut exists = note.is_some();
        let live = match note {
            None => Live::default(),
            Some(note) if note != NOTE => return Err(NftError::Foreign(name)),
            Some(_) => {
                let unread = |source| NftError::Read { table: name.clone(), source };
                read::read(&mut self.socket, &name).map_err(unread)?
            }
        };
        let rendered = render(next, &self.settings.scope, &ids_of(&live));
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
        let change = Change::between(&live, &rendered.table);
        // Owned, so that nobody flushes it by accident; persistent, or it would go when we do: wide open.
        batch.add_table(OWNER | PERSIST, NOTE);
        if exists {
            // In one transaction the kernel lets nobody take a table over and give it new hooks.
            self.commit(std::mem::replace(&mut batch, Batch::new(&name)))?;
            let unread = |source| NftError::Read { table: name.clone(), source };
            self.leases.adopt(read::read_leases(&name).map_err(unread)?);
        }
        change.write(&mut batch);
        let applied = Applied { operations: batch.operations(), narrows: change.narrows() };
        self.commit(batch)?;
        self.verify(&change, &rendered.table)?;
        self.known = Some(rendered);
        Ok(applied)
    }

    fn commit(&mut self, batch: Batch) -> Result<(), NftError> {
        if batch.is_empty() {
            return Ok(());
        }
        let table = self.settings.table.clone();
        self.socket.commit(&batch.finish()).map_err(|source| match source.errno() {
            Some(Errno::EPERM) if nix::unistd::geteuid().is_root() => NftError::Owned(table),
            Some(Errno::EPERM) => NftError::Rights,
            _ => NftError::Rejected { table, source },
        })
    }

    /// Reads back what was changed, and compares.
    fn verify(&mut self, change: &Change<'_>, table: &Table) -> Result<(), NftError> {
        let name = self.settings.table.clone();
        let unread = |source| NftError::Read { table: name.clone(), source };
        let chains: Vec<(&str, &Chain)> = change.new_chains.iter().chain(&change.rewritten).copied().collect();
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
            let some: Vec<&Element> = elements.iter().copied().take(SPOT_CHECKS).collect();
            if !read::has_elements(&mut self.socket, (&name, set), &some).map_err(unread)? {
                return Err(NftError::Differs { table: name, what: format!("set {set}") });
            }
        }
        Ok(())
    }
}

/// Up to here chains are read back one by one.
const MANY_CHAINS: usize = 200;
/// A dump of a large set takes long; of each change so many elements are asked for by key.
const SPOT_CHECKS: usize = 16;

impl Dataplane for Nft {
    type Error = NftError;

    fn replace(&mut self, next: &Program) -> Result<Applied, NftError> {
        let Some(known) = self.known.take() else { return self.adopt(next) };
        let rendered = render(next, &self.settings.scope, &known.ids);
        let change = Change::between(&known.table, &rendered.table);
        let mut batch = Batch::new(&self.settings.table);
        change.write(&mut batch);
        if rendered.lease_groups != known.lease_groups {
            let fresh = self.leases.regroup(&rendered.lease_groups);
            write_leases(&mut batch, &fresh);
        }
        let applied = Applied { operations: batch.operations(), narrows: change.narrows() };
        let done = self.commit(batch).and_then(|()| self.verify(&change, &rendered.table));
        drop(change);
        match done {
            Ok(()) => self.known = Some(rendered),
            // What the kernel has is what it had; or nobody knows, and the next change reads it.
            Err(NftError::Rejected { .. }) => self.known = Some(known),
            Err(_) => {}
        }
        done.map(|()| applied)
    }

    fn grant(&mut self, leases: &[Lease], now: Instant) -> Result<(), NftError> {
        let Some(known) = &self.known else { return Ok(()) };
        let fresh = self.leases.grant(leases, &known.lease_groups, now);
        let mut batch = Batch::new(&self.settings.table);
        write_leases(&mut batch, &fresh);
        self.commit(batch)
    }

    fn cut(&mut self, program: &Program) -> Result<usize, NftError> {
        let connections = self.conntrack.list().map_err(NftError::Connections)?;
        let judge = Judge::new(program, &self.leases.history, self.settings.cut)
            .with_incomplete_history(self.leases.were_adopted());
        let mut cut = 0;
        for connection in connections.iter().filter(|connection| judge.forbids(connection)) {
            cut += usize::from(self.conntrack.delete(connection).map_err(NftError::Connections)?);
        }
        let connected: FxHashSet<IpAddr> = connections.iter().map(|connection| connection.destination.0).collect();
        self.leases.forget(|address| connected.contains(&address));
        Ok(cut)
    }
}

fn write_leases(batch: &mut Batch, fresh: &Fresh) {
    for (version, elements) in Version::BOTH.into_iter().zip(fresh) {
        batch.add_leases(set::LEASE[version], elements.iter().map(|(element, left)| (element, *left)));
    }
}

/// The numbers a table that was read back uses.
fn ids_of(live: &Live) -> Ids {
    let mut ids = Ids::default();
    for version in Version::BOTH {
        let Some(set) = live.sets.get(set::WHO[version]) else { continue };
        for element in set.elements.values() {
            if let (Some(address), set::Value::Number(number)) = (element.address(), &element.value) {
                ids.classes.insert(address, *number);
            }
        }
    }
    // A rule that names its group in a comment tells which number it had.
    for rule in live.chains.values().flat_map(|chain| &chain.rules) {
        if let (Some(label), Some(group)) = (&rule.comment, super::rule::peer_group(&rule.expressions)) {
            ids.groups.insert(label.clone(), group);
        }
    }
    ids
}

fn open_socket() -> Result<Socket, NftError> {
    Socket::open(Family::NetlinkNetFilter).map_err(NftError::Socket)
}

fn refused_at_all(error: netlink::Error) -> NftError {
    match error.errno() {
        Some(Errno::EPERM | Errno::EACCES) => NftError::Rights,
        Some(Errno::EINVAL | Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT) => NftError::NoNftables(error),
        _ => NftError::Socket(error),
    }
}

/// Removes the table and all that is in it. False if there was none.
pub fn uninstall(table: &str) -> Result<bool, NftError> {
    let mut socket = open_socket()?;
    match read::table_note(&mut socket, table).map_err(refused_at_all)? {
        None => return Ok(false),
        Some(note) if note != NOTE => return Err(NftError::Foreign(table.to_owned())),
        Some(_) => {}
    }
    let mut batch = Batch::new(table);
    batch.delete_table();
    socket.commit(&batch.finish()).map_err(|source| match source.errno() {
        Some(Errno::EPERM) if nix::unistd::geteuid().is_root() => NftError::Owned(table.to_owned()),
        Some(Errno::EPERM) => NftError::Rights,
        _ => NftError::Rejected { table: table.to_owned(), source },
    })?;
    Ok(true)
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
