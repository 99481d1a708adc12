//! One of our tables in the kernel, through the socket that owns it: claim it,
//! change it, read the change back.

use super::batch::Batch;
use super::change::{Change, ExistingTable as _};
use super::elements::Moved;
use super::error::{NftError, refused_at_all};
use super::owner;
use super::read::{self, Live};
use super::set::Element;
use super::table::{Chain, Table, TableRef};
use super::wire::table::{OWNER, PERSIST};
use crate::netlink::{self, Socket};
use crate::render::{ALLOWED, Step};
use std::time::Duration;

/// What our tables say of themselves, so that we never take somebody else's.
pub(super) const NOTE: &str = "made by namewall";

/// Up to here chains are read back one by one.
const MANY_CHAINS: usize = 200;
/// A dump of a large set takes long; of each change so many elements are asked for by key.
const SPOT_CHECKS: usize = 16;

/// What is read back after a change.
#[derive(Debug)]
pub(super) struct Check {
    /// The chains that it writes.
    chains: Vec<(String, Chain)>,
    /// Some of the elements that it writes, by their sets.
    elements: Vec<(String, Vec<Element>)>,
}

impl Check {
    pub(super) fn of(change: &Change<'_>) -> Self {
        let stepped = change.step.iter().map(|step| (ALLOWED, &step.allowed));
        let chains = change.new_chains.iter().chain(&change.rewritten).copied().chain(stepped);
        let some = |(set, elements): &(&str, Moved<'_>)| {
            ((*set).to_owned(), elements.iter().take(SPOT_CHECKS).collect::<Vec<_>>())
        };
        let come = change.step.iter().map(Step::come).map(|(set, elements)| (set.to_owned(), elements));
        Self {
            chains: chains.map(|(name, chain)| (name.to_owned(), chain.clone())).collect(),
            elements: change.new_elements.iter().map(some).chain(come).collect(),
        }
    }
}

pub(super) struct Session<'a> {
    pub(super) socket: &'a mut Socket,
    pub(super) table: TableRef<'a>,
}

impl Session<'_> {
    /// True if the table exists. A table that is not ours is an error.
    pub(super) fn exists(&mut self) -> Result<bool, NftError> {
        match read::table_note(self.socket, self.table).map_err(refused_at_all)? {
            Some(note) if note != NOTE => Err(NftError::Foreign(self.table.to_string())),
            note => Ok(note.is_some()),
        }
    }

    /// Takes the table over from a process that has ended, and reads it. None if there is no such table.
    pub(super) fn claim(&mut self, patience: Duration) -> Result<Option<Live>, NftError> {
        if !self.exists()? {
            return Ok(None);
        }
        // Owned before it is read, so that nobody changes it meanwhile; and by itself, since in one transaction the
        // kernel lets nobody take a table over and give it new hooks.
        owner::retry_while_owned(patience, &mut |_| {}, || {
            let mut claim = Batch::new(self.table);
            claim.add_table(OWNER | PERSIST, NOTE);
            self.commit(claim)
        })?;
        let live = read::read(self.socket, self.table);
        live.map(Some).map_err(|source| self.unread(source))
    }

    pub(super) fn commit(&mut self, batch: Batch) -> Result<(), NftError> {
        if batch.is_empty() {
            return Ok(());
        }
        self.socket.commit(&batch.finish()).map_err(|source| match source {
            netlink::Error::Receive(_) => NftError::Unanswered { table: self.table.to_string(), source },
            source => owner::refusal(self.socket, self.table, source),
        })
    }

    pub(super) fn unread(&self, source: netlink::Error) -> NftError {
        NftError::Read { table: self.table.to_string(), source }
    }

    fn differs(&self, kind: &str, name: &str) -> NftError {
        NftError::Differs { table: self.table.to_string(), what: format!("{kind} {name}") }
    }

    /// Reads back what was changed, and compares.
    pub(super) fn verify(&mut self, Check { chains, elements }: &Check, table: &Table) -> Result<(), NftError> {
        let live = if chains.len() > MANY_CHAINS {
            let live = read::read_chains_and_rules(self.socket, self.table).map_err(|source| self.unread(source))?;
            if let Some(chain) = live.chains().symmetric_difference(&table.chains()).next() {
                return Err(self.differs("chain", chain));
            }
            live
        } else {
            let names: Vec<&str> = chains.iter().map(|(name, _)| name.as_str()).collect();
            read::read_chain_rules(self.socket, self.table, &names).map_err(|source| self.unread(source))?
        };
        for (chain, meant) in chains {
            if !live.chains.get(chain).is_some_and(|live| live.has_rules(&meant.rules)) {
                return Err(self.differs("chain", chain));
            }
        }
        elements.iter().try_for_each(|(set, some)| self.verify_elements(set, some))
    }

    fn verify_elements(&mut self, set: &str, elements: &[Element]) -> Result<(), NftError> {
        let has = read::has_elements(self.socket, self.table, set, elements).map_err(|source| self.unread(source))?;
        if has { Ok(()) } else { Err(self.differs("set", set)) }
    }
}
