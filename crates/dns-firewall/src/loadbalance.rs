//! `loadbalance`: addresses of an answer change places at random, as with CoreDNS. Only the data and the TTL of records
//! of one name and type are exchanged, so that every other byte stays where it is. MX records have preferences of their
//! own, and stay.

use crate::random::random;
use namewall_dns::wire::{Header, Name, Rcode, RecordType, Section, records};

/// Bytes from a record's TTL to its data.
const TTL_TO_DATA: usize = 6;

/// A record with an address: where its TTL stands, and how long the address is.
struct AddressAt {
    section: Section,
    owner: String,
    class: u16,
    ttl_at: usize,
    length: usize,
}

impl AddressAt {
    fn is_like(&self, other: &Self) -> bool {
        (self.section, self.class, self.length) == (other.section, other.class, other.length)
            && self.owner.eq_ignore_ascii_case(&other.owner)
    }
}

/// Exchanges addresses. Returns false if there is nothing to exchange.
pub(crate) fn shuffle(message: &mut [u8]) -> bool {
    if !Header::read(message).is_ok_and(|header| header.rcode == Rcode::NO_ERROR) {
        return false;
    }
    let mut all = addresses(message);
    let mut has_changed = false;
    while let Some(first) = all.pop() {
        let (mut group, rest): (Vec<AddressAt>, Vec<AddressAt>) = all.into_iter().partition(|one| one.is_like(&first));
        all = rest;
        group.push(first);
        for last in (1..group.len()).rev() {
            let other = (random() % (last as u64 + 1)) as usize;
            if other != last {
                exchange(message, &group[last], &group[other]);
            }
            has_changed = true;
        }
    }
    has_changed
}

fn addresses(message: &[u8]) -> Vec<AddressAt> {
    let Ok(all) = records(message) else { return Vec::new() };
    let found = all.iter().filter(|record| matches!(record.kind, RecordType::A | RecordType::AAAA));
    let read = found.filter_map(|record| {
        let (owner, _) = Name::read(message, record.owner).ok()?;
        let (section, class, ttl_at) = (record.section, record.class, record.ttl_at);
        Some(AddressAt { section, owner: owner.to_string(), class, ttl_at, length: record.data.len() })
    });
    read.collect()
}

/// Exchanges TTLs and data of two records of one length.
fn exchange(message: &mut [u8], one: &AddressAt, other: &AddressAt) {
    for (offset, length) in [(0, 4), (TTL_TO_DATA, one.length)] {
        for at in offset..offset + length {
            message.swap(one.ttl_at + at, other.ttl_at + at);
        }
    }
}
