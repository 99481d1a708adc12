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
    /// Of IPv4, and of IPv6.
    pub(crate) addresses: [Vec<IpAddr>; 2],
    pub others: Vec<Data>,
    /// How many addresses an answer has, if not all; the next one has the next.
    pub rotate: Option<usize>,
    /// How many answers there were, of IPv4 and of IPv6.
    turns: [usize; 2],
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
            Self::Records(set) => Box::new(set.addresses.iter().flatten().copied()),
            Self::Exact(exact) => {
                let records = exact.answer.iter().chain(&exact.authority).chain(&exact.additional);
                Box::new(records.filter_map(|record| record.data.address()))
            }
        }
    }
}

impl RecordSet {
    pub fn of_addresses(addresses: Vec<IpAddr>, ttl: u32) -> Self {
        let addresses = addresses.into_iter().partition(IpAddr::is_ipv4);
        Self { ttl, addresses: addresses.into(), ..Self::default() }
    }

    /// What it answers to that type; the next answer may have other addresses.
    pub(crate) fn take(&mut self, kind: RecordType) -> Vec<Data> {
        let any = kind == RecordType::ANY;
        let mut data = Vec::new();
        for (family, of_family) in [RecordType::A, RecordType::AAAA].into_iter().enumerate() {
            if any || kind == of_family {
                data.extend(self.take_addresses(family).into_iter().map(Data::from));
            }
        }
        data.extend(self.others.iter().filter(|data| any || data.kind() == kind).cloned());
        data
    }

    fn take_addresses(&mut self, family: usize) -> Vec<IpAddr> {
        let all = &self.addresses[family];
        let count = self.rotate.map_or(all.len(), |count| count.min(all.len()));
        let start = self.turns[family].wrapping_mul(count);
        self.turns[family] = self.turns[family].wrapping_add(1);
        (0..count).map(|at| all[start.wrapping_add(at) % all.len()]).collect()
    }
}
