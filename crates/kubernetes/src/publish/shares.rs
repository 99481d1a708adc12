//! How many names of wildcards the clients of a node have put into objects. An object holds a bounded number of names
//! (S8.6), and each name stays for as long as DNS returns it: one client that asks for thousands of names must not fill
//! the objects that all nodes share (S6.5). Pure; time is an argument.

use namewall_runtime::Instant;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Names of one client: half of what the objects of a wildcard hold.
pub(super) const MOST_NAMES: usize = 1_000;
/// How long a name may take until an object has it.
const UNDER_WAY: Duration = Duration::from_secs(30);
/// How often it is looked which names no object has any more.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Clients that have a share of their own. All others have one together.
const MOST_CLIENTS: usize = 1_000;
const OTHERS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// A name that no object has, and who asked for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewName<'n> {
    pub(super) client: IpAddr,
    pub(super) name: &'n str,
    pub(super) now: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Shares {
    clients: HashMap<IpAddr, Share>,
    /// When it may be looked again which clients have nothing in an object.
    look_at: Instant,
}

#[derive(Debug, Default)]
struct Share {
    /// Each with the time when it was published first.
    names: HashMap<Box<str>, Instant>,
    look_at: Instant,
}

impl Share {
    fn forget(&mut self, is_listed: impl Fn(&str) -> bool, now: Instant) {
        self.names.retain(|name, since| now.since(*since) <= UNDER_WAY || is_listed(name));
        self.look_at = now + LOOK_EVERY;
    }
}

impl Shares {
    /// Whether the client may put the name into an object. `is_listed` says of a name whether an object has it.
    pub(super) fn admit(&mut self, new: NewName<'_>, is_listed: impl Fn(&str) -> bool) -> bool {
        let NewName { client, name, now } = new;
        if !self.clients.contains_key(&client) && self.clients.len() >= MOST_CLIENTS && now >= self.look_at {
            self.look_at = now + LOOK_EVERY;
            self.clients.values_mut().for_each(|share| share.forget(&is_listed, now));
            self.clients.retain(|_, share| !share.names.is_empty());
        }
        let has_own = self.clients.contains_key(&client) || self.clients.len() < MOST_CLIENTS;
        let share = self.clients.entry(if has_own { client } else { OTHERS }).or_default();
        if !share.names.contains_key(name) {
            if share.names.len() >= MOST_NAMES && now >= share.look_at {
                share.forget(is_listed, now);
            }
            if share.names.len() >= MOST_NAMES {
                return false;
            }
        }
        share.names.insert(name.into(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    fn client(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn s6_5_a_client_has_its_share_and_gets_places_back_that_its_names_have_left() {
        let (mut shares, listed) = (Shares::default(), RefCell::new(BTreeSet::new()));
        let mut admitted = |from: u8, numbers: std::ops::Range<usize>, seconds: u64| {
            let names = numbers.map(|number| format!("n{number}.example.com."));
            let is_listed = |name: &str| listed.borrow().contains(name);
            let (client, now) = (client(from), Instant(Duration::from_secs(seconds)));
            let admitted = names.filter(|name| shares.admit(NewName { client, name, now }, is_listed));
            let admitted: Vec<String> = admitted.collect();
            listed.borrow_mut().extend(admitted.iter().cloned());
            admitted.len()
        };
        assert_eq!(admitted(1, 0..2_000, 0), MOST_NAMES);
        assert_eq!(admitted(2, 2_000..2_100, 0), 100, "others have shares of their own");
        assert_eq!(admitted(1, 3_000..3_100, 3_600), 0, "its names are there still");
        // n1, n10 to n19 and n100 to n199.
        listed.borrow_mut().retain(|name| !name.starts_with("n1"));
        assert_eq!(admitted(1, 3_000..4_000, 3_601), 0, "it was looked a second ago");
        assert_eq!(admitted(1, 3_000..4_000, 3_605), 111);
    }

    #[test]
    fn clients_beyond_the_bound_have_one_share_together() {
        let mut shares = Shares::default();
        let now = Instant(Duration::from_secs(1));
        let mut admitted = 0;
        for number in 0..5_000_u32 {
            let (client, name) = (IpAddr::from(number.to_be_bytes()), format!("n{number}.example.com."));
            admitted += usize::from(shares.admit(NewName { client, name: &name, now }, |_| true));
        }
        // The address of the others is the first one's too.
        assert_eq!((shares.clients.len(), admitted), (MOST_CLIENTS, MOST_CLIENTS - 1 + MOST_NAMES));
    }
}
