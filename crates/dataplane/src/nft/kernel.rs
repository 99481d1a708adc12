//! The table in the kernel, and the one socket through which we change it.

use super::batch::Batch;
use super::change::{Change, Known};
use super::read::{self, Live};
use super::set::{self, Element, Key, Lifetime, Version};
use super::table::Table;
use super::wire::table::{OWNER, PERSIST};
use crate::netlink::{self, Family, Socket};
use crate::render::{Ids, Rendered, Scope, render};
use crate::{Applied, Dataplane};
use namewall_policy::{Instant, Lease, Program};
use nix::errno::Errno;
use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::time::Duration;

/// What our table says of itself, so that we never take somebody else's.
const NOTE: &str = "made by namewall";

#[derive(Clone, Debug)]
pub struct Settings {
    pub table: String,
    pub scope: Scope,
}

impl Default for Settings {
    fn default() -> Self {
        Self { table: "namewall".to_owned(), scope: Scope::default() }
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
    settings: Settings,
    /// What we made of the kernel's table; none until the first `replace`.
    known: Option<Rendered>,
    /// Until when each lease group has each address open.
    leased: FxHashMap<(u64, IpAddr), Instant>,
}

impl Nft {
    /// Opens the socket in the thread's network namespace. Changes nothing.
    pub fn open(settings: Settings) -> Result<Self, NftError> {
        let mut socket = open_socket()?;
        match read::table_note(&mut socket, &settings.table) {
            Ok(Some(note)) if note != NOTE => return Err(NftError::Foreign(settings.table)),
            Ok(_) => {}
            Err(error) => return Err(refused_at_all(error)),
        }
        Ok(Self { socket, settings, known: None, leased: FxHashMap::default() })
    }

    /// The table as it should be now.
    pub fn table(&self) -> Option<&Table> {
        self.known.as_ref().map(|rendered| &rendered.table)
    }

    /// The first change of this process: whatever the kernel has is made right in one transaction.
    fn adopt(&mut self, next: &Program) -> Result<Applied, NftError> {
        let name = self.settings.table.clone();
        let exists = read::table_note(&mut self.socket, &name).map_err(refused_at_all)?;
        let live = match exists {
            None => Live::default(),
            Some(note) if note != NOTE => return Err(NftError::Foreign(name)),
            Some(_) => self.read()?,
        };
        let rendered = render(next, &self.settings.scope, &ids_of(&live, next, &self.settings.scope));
        let change = Change::between(&live, &rendered.table);
        let mut batch = Batch::new(&name);
        // Owned, so that nobody flushes it by accident; persistent, or it would go when we do: wide open.
        batch.add_table(OWNER | PERSIST, NOTE);
        change.write(&mut batch);
        let applied = Applied { operations: batch.operations() };
        self.commit(batch)?;
        self.verify(&change, &rendered.table)?;
        self.known = Some(rendered);
        Ok(applied)
    }

    fn read(&mut self) -> Result<Live, NftError> {
        let table = self.settings.table.clone();
        read::read(&mut self.socket, &table).map_err(|source| NftError::Read { table, source })
    }

    fn commit(&mut self, batch: Batch) -> Result<(), NftError> {
        if batch.is_empty() {
            return Ok(());
        }
        let table = self.settings.table.clone();
        self.socket.commit(&batch.finish()).map_err(|source| match source.errno() {
            Some(Errno::EPERM) => {
                if nix::unistd::geteuid().is_root() {
                    NftError::Owned(table)
                } else {
                    NftError::Rights
                }
            }
            _ => NftError::Rejected { table, source },
        })
    }

    /// Reads back what was changed, and compares.
    fn verify(&mut self, change: &Change<'_>, table: &Table) -> Result<(), NftError> {
        let name = self.settings.table.clone();
        let chains: Vec<&str> = change.new_chains.iter().chain(&change.rewritten).map(|(name, _)| *name).collect();
        let differs = |what: String| Err(NftError::Differs { table: name.clone(), what });
        let unread = |source| NftError::Read { table: name.clone(), source };
        if chains.len() > MANY_CHAINS {
            let live = read::read(&mut self.socket, &name).map_err(unread)?;
            for chain in live.chains().symmetric_difference(&table.chains()) {
                return differs(format!("chain {chain}"));
            }
            for (chain, meant) in &table.chains {
                if !live.has_chain(chain, meant) {
                    return differs(format!("chain {chain}"));
                }
            }
            return Ok(());
        }
        let live = read::read_chain_rules(&mut self.socket, &name, &chains).map_err(unread)?;
        for chain in chains {
            let same = table.chains.get(chain).zip(live.chains.get(chain)).is_some_and(|(meant, live)| {
                live.rules.len() == meant.rules.len()
                    && live.rules.iter().zip(&meant.rules).all(|(live, meant)| live.expressions == meant.expressions())
            });
            if !same {
                return differs(format!("chain {chain}"));
            }
        }
        Ok(())
    }
}

/// Up to here chains are read back one by one.
const MANY_CHAINS: usize = 200;

impl Dataplane for Nft {
    type Error = NftError;

    fn replace(&mut self, next: &Program) -> Result<Applied, NftError> {
        let Some(known) = self.known.take() else { return self.adopt(next) };
        let rendered = render(next, &self.settings.scope, &known.ids);
        let change = Change::between(&known.table, &rendered.table);
        let mut batch = Batch::new(&self.settings.table);
        change.write(&mut batch);
        let applied = Applied { operations: batch.operations() };
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
        let mut fresh: [Vec<(Element, Lifetime)>; 2] = Default::default();
        for lease in leases {
            let left = lease.expiry.0.saturating_sub(now.0);
            if left.is_zero() {
                continue;
            }
            for &group in known.lease_groups.get(&lease.pattern).into_iter().flatten() {
                let until = self.leased.entry((group, lease.address)).or_insert(Instant(Duration::ZERO));
                // A renewal never shortens (S6.3).
                if *until >= lease.expiry {
                    continue;
                }
                *until = lease.expiry;
                let (high, low) = set::halves(group);
                let key = Key::default().number(high).number(low).address(lease.address).done();
                fresh[Version::of(lease.address) as usize].push((Element::key(key), Lifetime(left)));
            }
        }
        let mut batch = Batch::new(&self.settings.table);
        for (version, elements) in Version::BOTH.into_iter().zip(&fresh) {
            batch.add_leases(set::LEASE[version], elements.iter().map(|(element, left)| (element, *left)));
        }
        self.commit(batch)
    }
}

/// The numbers a table that was read back uses.
fn ids_of(live: &Live, _program: &Program, _scope: &Scope) -> Ids {
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
