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

/// How many leases of each client are stored, at most, if clients have so many leases each and there is room for `most`
/// in all. A client with few leases leaves its room to others, so that one client's flood takes no other client's.
pub(crate) fn fair_share(mut counts: Vec<usize>, most: usize) -> usize {
    counts.sort_unstable();
    let mut room = most;
    for (at, count) in counts.iter().enumerate() {
        let share = room / (counts.len() - at);
        if *count > share {
            return share;
        }
        room -= count;
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s6_5_a_flood_of_leases_leaves_room_in_the_file_for_every_other_client() {
        assert_eq!(fair_share(vec![1_000, 10], 100), 90);
        assert_eq!(fair_share(vec![1_000, 10, 60], 100), 45);
        assert!(fair_share(vec![1_000, 10], 1_010) >= 1_000, "there is room for all");
        assert_eq!(fair_share(Vec::new(), 100), 100);
    }
}
