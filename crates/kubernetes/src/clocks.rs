//! When addresses were looked up, by our own clock.
//!
//! Whoever looks up a name records the time by its own clock, and clocks differ
//! by minutes. So an address that appears in a change counts as looked up now,
//! unless its own time says nearly the same. An address seen before keeps its
//! age. For addresses that are first found in a list the age is unknown: their
//! own time counts, unless it is in the future.

use jiff::{SignedDuration, Timestamp};
use namewall_cluster::kinds::dns_name_resolver::{ResolvedAddress, Status};
use std::collections::HashMap;

/// A lookup is written, and seen by all, within this.
const ABOUT: SignedDuration = SignedDuration::from_secs(5);

/// How a status came to be known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Came {
    /// As a change.
    Now,
    /// In a list: who knows since when it is so.
    Listed,
}

/// How and when, by our clock, a status came to be known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) came: Came,
    pub(crate) at: Timestamp,
}

/// The times of a status that are others by our clock: by name and address, what the object says and what we do.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Clocks(HashMap<NameAndAddress, (ResolvedAddress, Option<Timestamp>)>);

type NameAndAddress = (String, String);

/// A status by our own clock, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before<'b> {
    pub(crate) status: &'b Status,
    pub(crate) clocks: &'b Clocks,
}

impl Before<'_> {
    /// Sets the times of what an object says now to those of our clock.
    pub(crate) fn translate(&self, status: &mut Status, seen: Seen) -> Clocks {
        let known: HashMap<(&str, &str), &ResolvedAddress> = places(self.status).collect();
        let mut clocks = Clocks::default();
        for item in &mut status.resolved_names {
            for address in &mut item.resolved_addresses {
                let place = (item.dns_name.clone(), address.ip.clone());
                let ours = match known.get(&(place.0.as_str(), place.1.as_str())) {
                    Some(same) if self.clocks.said(&place, same) == address => same.last_lookup_time,
                    _ => first_seen(address.last_lookup_time, seen),
                };
                if ours != address.last_lookup_time {
                    clocks.0.insert(place, (address.clone(), ours));
                    address.last_lookup_time = ours;
                }
            }
        }
        clocks
    }
}

impl Clocks {
    /// What the object says where we say this.
    fn said<'c>(&'c self, place: &NameAndAddress, ours: &'c ResolvedAddress) -> &'c ResolvedAddress {
        self.0.get(place).map_or(ours, |(said, _)| said)
    }

    /// Gives back to what has not changed the time that the object has: nobody shall take it for another lookup.
    pub(crate) fn restore(&self, status: &mut Status) {
        for item in &mut status.resolved_names {
            for address in &mut item.resolved_addresses {
                let place = (item.dns_name.clone(), address.ip.clone());
                if let Some((said, ours)) = self.0.get(&place)
                    && (*ours, said.ttl_seconds) == (address.last_lookup_time, address.ttl_seconds)
                {
                    address.last_lookup_time = said.last_lookup_time;
                }
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn places(status: &Status) -> impl Iterator<Item = ((&str, &str), &ResolvedAddress)> {
    status.resolved_names.iter().flat_map(|item| {
        item.resolved_addresses.iter().map(|address| ((item.dns_name.as_str(), address.ip.as_str()), address))
    })
}

fn first_seen(said: Option<Timestamp>, Seen { came, at: now }: Seen) -> Option<Timestamp> {
    // One that was never looked up says so.
    let said = said?;
    let is_about = said.duration_since(now).abs() <= ABOUT;
    Some(match came {
        Came::Now if !is_about => now,
        Came::Now => said,
        Came::Listed => said.min(now),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_cluster::kinds::dns_name_resolver::ResolvedName;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).expect("a time")
    }

    /// An address, when it was looked up, and its TTL.
    type Said = (&'static str, i64, i32);

    fn status(addresses: &[Said]) -> Status {
        let address = |(ip, looked_up, ttl): &Said| ResolvedAddress {
            ip: (*ip).to_owned(),
            ttl_seconds: *ttl,
            last_lookup_time: Some(at(*looked_up)),
        };
        let resolved_addresses = addresses.iter().map(address).collect();
        let dns_name = "www.example.com.".to_owned();
        let item = ResolvedName { conditions: Vec::new(), dns_name, resolved_addresses, resolution_failures: 0 };
        Status { resolved_names: vec![item] }
    }

    /// What we say of each, as an object changes.
    fn seen(steps: &[(&[Said], Came, i64)]) -> Vec<i64> {
        let (mut known, mut clocks) = (Status::default(), Clocks::default());
        for (addresses, came, now) in steps {
            let mut next = status(addresses);
            clocks =
                Before { status: &known, clocks: &clocks }.translate(&mut next, Seen { came: *came, at: at(*now) });
            known = next;
        }
        let times = places(&known).filter_map(|(_, address)| address.last_lookup_time);
        times.map(|time| time.as_second() - at(0).as_second()).collect()
    }

    #[test]
    fn a_change_is_as_old_as_it_says_if_that_is_now() {
        assert_eq!(seen(&[(&[("192.0.2.1", 98, 30)], Came::Now, 100)]), [98]);
    }

    #[test]
    fn a_change_by_another_clock_is_of_now_and_grows_old() {
        for theirs in [-200, 400] {
            let said: &[_] = &[("192.0.2.1", theirs, 30)];
            assert_eq!(seen(&[(said, Came::Now, 100)]), [100]);
            assert_eq!(seen(&[(said, Came::Now, 100), (said, Came::Now, 120), (said, Came::Listed, 130)]), [100]);
        }
    }

    #[test]
    fn a_lookup_again_is_another() {
        let (first, second): (&[_], &[_]) = (&[("192.0.2.1", -200, 30)], &[("192.0.2.1", -170, 30)]);
        assert_eq!(seen(&[(first, Came::Now, 100), (second, Came::Now, 130)]), [130]);
    }

    #[test]
    fn what_is_listed_is_as_old_as_it_says_and_never_of_the_future() {
        assert_eq!(seen(&[(&[("192.0.2.1", -200, 30), ("192.0.2.2", 400, 30)], Came::Listed, 100)]), [-200, 100]);
    }

    #[test]
    fn what_has_not_changed_is_written_as_it_was() {
        let said = status(&[("192.0.2.1", -200, 30), ("192.0.2.2", 400, 30)]);
        let mut ours = said.clone();
        let before = Before { status: &Status::default(), clocks: &Clocks::default() };
        let clocks = before.translate(&mut ours, Seen { came: Came::Now, at: at(100) });
        ours.resolved_names[0].resolved_addresses[1].last_lookup_time = Some(at(130));
        clocks.restore(&mut ours);
        assert_eq!(ours, status(&[("192.0.2.1", -200, 30), ("192.0.2.2", 130, 30)]));
    }
}
