//! What a name has: records by type, or an answer spelled out.

use super::name::Name;
use super::record::{Data, Rcode, Record, RecordType};
use std::net::IpAddr;

#[derive(Clone, Debug)]
pub enum Owner {
    Records(RecordSet),
    Exact(Exact),
}

/// Records of one owner.
#[derive(Clone, Default, Debug)]
pub struct RecordSet {
    pub ttl: u32,
    /// An alias has nothing else.
    pub alias: Option<Alias>,
    pub addresses: Vec<IpAddr>,
    pub others: Vec<Data>,
    /// How many addresses an answer has, if not all; the next one has the next.
    pub rotate: Option<usize>,
    /// How many answers there were, of IPv4 and of IPv6.
    pub(crate) turns: [usize; 2],
}

#[derive(Clone, Debug)]
pub struct Alias {
    pub target: Name,
    /// Whether the answer goes on with what the target has.
    pub chase: bool,
}

/// An answer in its very order, whatever type is asked for.
#[derive(Clone, Default, Debug)]
pub struct Exact {
    pub rcode: Option<Rcode>,
    pub answer: Vec<Record>,
    pub authority: Vec<Record>,
    pub additional: Vec<Record>,
}

impl Owner {
    /// Every address it speaks of.
    pub fn addresses(&self) -> Box<dyn Iterator<Item = IpAddr> + '_> {
        match self {
            Self::Records(set) => Box::new(set.addresses.iter().copied()),
            Self::Exact(exact) => {
                let records = exact.answer.iter().chain(&exact.authority).chain(&exact.additional);
                Box::new(records.filter_map(|record| record.data.address()))
            }
        }
    }
}

impl RecordSet {
    pub fn of_addresses(addresses: Vec<IpAddr>, ttl: u32) -> Self {
        Self { ttl, addresses, ..Self::default() }
    }

    /// What it answers to that type; the next answer may have other addresses.
    pub(crate) fn take(&mut self, kind: RecordType) -> Vec<Data> {
        let any = kind == RecordType::ANY;
        let mut data = Vec::new();
        for (turn, family) in [RecordType::A, RecordType::AAAA].into_iter().enumerate() {
            if any || kind == family {
                data.extend(self.take_addresses(turn).into_iter().map(Data::from));
            }
        }
        data.extend(self.others.iter().filter(|data| any || data.kind() == kind).cloned());
        data
    }

    fn take_addresses(&mut self, turn: usize) -> Vec<IpAddr> {
        let of_family = |address: &&IpAddr| address.is_ipv6() == (turn == 1);
        let all: Vec<IpAddr> = self.addresses.iter().filter(of_family).copied().collect();
        let count = self.rotate.map_or(all.len(), |count| count.min(all.len()));
        let start = self.turns[turn].wrapping_mul(count);
        self.turns[turn] = self.turns[turn].wrapping_add(1);
        (0..count).map(|at| all[(start + at) % all.len()]).collect()
    }
}
