//! What a process knows of its leases and the kernel does not keep, stored for the
//! next process.
//!
//! ```text
//! kernel   address, name, client, time left       of leases that are open
//! file     name, address, client, answer, server  of these, and of leases that have ended
//! ```
//! A lease that has ended opens nothing, but connections that it opened go on
//! (S6.4). A process that starts finds such connections, and the file tells it
//! which of them a lease has opened. The file itself opens nothing.

mod file;
mod keeper;
mod origins;

pub(crate) use file::load;
pub(crate) use keeper::{Keeper, Records};
pub(crate) use origins::{LeaseKey, Origin, Origins};

use namewall_policy::domain::DomainName;
use std::net::IpAddr;
use std::sync::Arc;

/// A lease, as it is stored. It may have ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LeaseRecord {
    pub(crate) name: DomainName,
    pub(crate) address: IpAddr,
    pub(crate) asked_by: Option<IpAddr>,
    /// The answer that opened it, if it is known.
    pub(crate) origin: Option<Arc<Origin>>,
}

/// So many leases are stored.
pub(crate) const MOST: usize = 50_000;

/// The records that are stored if there are too many: each client's share grows until there is no room, so that one
/// client's flood takes no other client's.
pub(crate) fn shared_fairly(mut records: Vec<LeaseRecord>, most: usize) -> Vec<LeaseRecord> {
    if records.len() <= most {
        return records;
    }
    let mut counts = rustc_hash::FxHashMap::<Option<IpAddr>, usize>::default();
    let mut ranked: Vec<(usize, usize)> = Vec::with_capacity(records.len());
    for (at, record) in records.iter().enumerate() {
        let count = counts.entry(record.asked_by).or_default();
        ranked.push((*count, at));
        *count += 1;
    }
    ranked.sort_unstable();
    let mut kept = vec![false; records.len()];
    ranked.iter().take(most).for_each(|(_, at)| kept[*at] = true);
    let mut kept = kept.into_iter();
    records.retain(|_| kept.next() == Some(true));
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(client: u8, number: u32) -> LeaseRecord {
        LeaseRecord {
            name: "api.example.com".parse().expect("a name"),
            address: IpAddr::V4(number.into()),
            asked_by: Some([10, 0, 0, client].into()),
            origin: None,
        }
    }

    #[test]
    fn s6_5_a_flood_of_leases_leaves_room_in_the_file_for_every_other_client() {
        let flood = (0..1_000).map(|number| record(1, number));
        let records: Vec<LeaseRecord> = flood.chain((0..10).map(|number| record(2, number))).collect();
        let kept = shared_fairly(records.clone(), 100);
        let of = |client: u8| kept.iter().filter(|one| one.asked_by == Some([10, 0, 0, client].into())).count();
        assert_eq!((of(1), of(2)), (90, 10));
        assert_eq!(shared_fairly(records.clone(), 1_010), records);
    }
}
