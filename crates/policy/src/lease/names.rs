//! The names that have opened addresses, by pattern, and whom they are counted to.

use super::end::{Grant, LeaseEnd};
use super::slab::{Keyed, Slot};
use crate::domain::{DomainName, RulePattern};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;

/// Who asked; none if nobody in particular did.
pub(super) type Client = Option<IpAddr>;

/// Clients, in few bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asked(u32);

impl Asked {
    pub(super) fn by(client: Client) -> Self {
        Self(1 << (FxBuildHasher.hash_one(client) >> 59))
    }

    pub(super) fn note(&mut self, client: Client) {
        self.0 |= Self::by(client).0;
    }

    pub(super) fn has(self, client: Client) -> bool {
        self.0 & Self::by(client).0 != 0
    }
}

/// More addresses than this are given room for more at once.
const FEW_ADDRESSES: usize = 4;

/// An address that a name has opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenAddress {
    pub(super) address: IpAddr,
    pub(super) end: LeaseEnd,
}

/// A name of a pattern.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: DomainName,
    pub(super) pattern: Slot,
    /// Whose name it is: of those who asked for it, who had the fewest.
    pub(super) client: Client,
    /// Who else asked for it, the last of them: whose name it is when the client has to give it up.
    pub(super) other: Client,
    /// A bit for each client that has asked for it since it was last given up. Two clients may share a bit: then one of
    /// them is not noted as the last who asked.
    pub(super) asked: Asked,
    pub(super) addresses: Vec<OpenAddress>,
    /// When the last of them ends.
    pub(super) end: LeaseEnd,
    /// The grant of its place in the client's order. Other places there are no longer its own.
    pub(super) place: Grant,
    pub(super) next: Slot,
}

impl Keyed for Named {
    fn hash(&self, secret: &RandomState) -> u64 {
        secret.hash_one((self.pattern, &self.name))
    }

    fn next(&mut self) -> &mut Slot {
        &mut self.next
    }

    fn next_slot(&self) -> Slot {
        self.next
    }
}

impl Named {
    pub(super) fn at(&self, address: IpAddr) -> Option<&OpenAddress> {
        self.addresses.iter().find(|open| open.address == address)
    }

    pub(super) fn at_mut(&mut self, address: IpAddr) -> Option<&mut OpenAddress> {
        self.addresses.iter_mut().find(|open| open.address == address)
    }

    pub(super) fn push(&mut self, open: OpenAddress) {
        // Most names have one or two.
        if self.addresses.len() < FEW_ADDRESSES {
            self.addresses.reserve_exact(1);
        }
        self.addresses.push(open);
    }

    /// Takes away the address.
    pub(super) fn take(&mut self, address: IpAddr) -> Option<OpenAddress> {
        let at = self.addresses.iter().position(|open| open.address == address)?;
        Some(self.addresses.swap_remove(at))
    }
}

/// The names of a pattern.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) pattern: RulePattern,
    /// How many there are.
    pub(super) count: usize,
    pub(super) accounts: FxHashMap<Client, Account>,
}

impl Names {
    pub(super) fn of(pattern: RulePattern) -> Self {
        Self { pattern, count: 0, accounts: FxHashMap::default() }
    }

    /// How many leases a client has of this pattern.
    pub(super) fn leases_of(&self, client: Client) -> usize {
        self.accounts.get(&client).map_or(0, |account| account.leases)
    }
}

/// The names of a pattern that a client has asked for.
#[derive(Clone, Default, Debug)]
pub(super) struct Account {
    pub(super) names: usize,
    pub(super) leases: usize,
    /// Its names by when they ended when that was last looked at; some are gone.
    pub(super) order: BinaryHeap<Reverse<Place>>,
}

/// A place in the order of an account.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    pub(super) end: LeaseEnd,
    pub(super) name: Slot,
}

impl Place {
    /// True if the name that is found at the place's number is the one that it was made for, and still counted to
    /// the same account.
    pub(super) fn is_of(&self, named: &Named, account: &AccountKey) -> bool {
        named.place == self.end.grant && named.client == account.client && named.pattern == account.pattern
    }
}

/// Whose [`Account`] it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AccountKey {
    pub(super) pattern: Slot,
    pub(super) client: Client,
}
