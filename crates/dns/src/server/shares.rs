//! Which client holds how many places of a bounded table, and who holds most. All of it takes constant time, however
//! many clients there are: counts change by one, so a client moves between neighbouring buckets.

use rustc_hash::FxHashMap;
use std::net::IpAddr;

/// The end of a list.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Share {
    count: u32,
    /// The place of the client in the bucket of its count.
    at: u32,
    /// The place in the table that it took last.
    newest: u32,
}

/// A place of the table in the list of its client.
#[derive(Clone, Copy, Debug)]
struct Place {
    client: Option<IpAddr>,
    older: u32,
    newer: u32,
}

const FREE: Place = Place { client: None, older: NONE, newer: NONE };

#[derive(Default, Debug)]
pub(super) struct Shares {
    clients: FxHashMap<IpAddr, Share>,
    /// Clients by their counts; the first bucket is for one place.
    buckets: Vec<Vec<IpAddr>>,
    /// By the numbers of the table.
    places: Vec<Place>,
}

impl Shares {
    /// How many places the client holds.
    pub(super) fn count(&self, client: IpAddr) -> u32 {
        self.clients.get(&client).map_or(0, |share| share.count)
    }

    /// The client takes a place.
    pub(super) fn enter(&mut self, client: IpAddr, slot: u32) {
        self.leave(slot);
        let at = slot as usize;
        if self.places.len() <= at {
            self.places.resize(at + 1, FREE);
        }
        let mut share = self.clients.remove(&client).unwrap_or(Share { count: 0, at: 0, newest: NONE });
        self.places[at] = Place { client: Some(client), older: share.newest, newer: NONE };
        if let Some(older) = self.places.get_mut(share.newest as usize) {
            older.newer = slot;
        }
        share.newest = slot;
        self.move_to(client, share, share.count + 1);
    }

    /// The place is free again. Nothing happens if no client held it.
    pub(super) fn leave(&mut self, slot: u32) {
        let Some(place) = self.places.get_mut(slot as usize) else { return };
        let Place { client, older, newer } = std::mem::replace(place, FREE);
        let Some(client) = client else { return };
        let Some(mut share) = self.clients.remove(&client) else { return };
        if let Some(older) = self.places.get_mut(older as usize) {
            older.newer = newer;
        }
        match self.places.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => share.newest = older,
        }
        self.move_to(client, share, share.count - 1);
    }

    /// Puts a client that was taken out of the map into the bucket of another count.
    fn move_to(&mut self, client: IpAddr, share: Share, count: u32) {
        if let Some(bucket) = share.count.checked_sub(1).and_then(|bucket| self.buckets.get_mut(bucket as usize)) {
            bucket.swap_remove(share.at as usize);
            if let Some(moved) = bucket.get(share.at as usize).and_then(|moved| self.clients.get_mut(moved)) {
                moved.at = share.at;
            }
        }
        if let Some(bucket) = count.checked_sub(1) {
            let bucket = bucket as usize;
            if self.buckets.len() <= bucket {
                self.buckets.resize_with(bucket + 1, Vec::new);
            }
            self.buckets[bucket].push(client);
            let at = self.buckets[bucket].len() as u32 - 1;
            self.clients.insert(client, Share { count, at, ..share });
        }
        while self.buckets.last().is_some_and(Vec::is_empty) {
            self.buckets.pop();
        }
    }

    /// A client that holds more places than any other, or as many, and how many these are.
    pub(super) fn heaviest(&self) -> Option<(IpAddr, u32)> {
        let client = *self.buckets.last()?.last()?;
        Some((client, self.buckets.len() as u32))
    }

    /// The places of a client, the newest first.
    pub(super) fn places_of(&self, client: IpAddr) -> impl Iterator<Item = u32> {
        let mut next = self.clients.get(&client).map_or(NONE, |share| share.newest);
        std::iter::from_fn(move || {
            let slot = next;
            next = self.places.get(slot as usize)?.older;
            Some(slot)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn client(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    #[test]
    fn the_newest_place_of_the_heaviest_is_found() {
        let mut shares = Shares::default();
        assert_eq!(shares.heaviest(), None);
        for slot in 0..5 {
            shares.enter(client(1), slot);
        }
        shares.enter(client(2), 9);
        assert_eq!(shares.heaviest(), Some((client(1), 5)));
        assert_eq!(shares.places_of(client(1)).collect::<Vec<_>>(), [4, 3, 2, 1, 0]);
        shares.leave(4);
        shares.leave(2);
        assert_eq!(shares.places_of(client(1)).collect::<Vec<_>>(), [3, 1, 0]);
        for slot in [0, 1, 3] {
            shares.leave(slot);
        }
        assert_eq!(shares.heaviest(), Some((client(2), 1)));
    }

    proptest! {
        /// The same as counting by hand.
        #[test]
        fn counts_and_lists_agree_with_a_plain_map(steps in proptest::collection::vec((0u8..4, 0u32..12), 0..200)) {
            let (mut shares, mut plain) = (Shares::default(), HashMap::<u32, u8>::new());
            for (who, slot) in steps {
                if who == 0 {
                    shares.leave(slot);
                    plain.remove(&slot);
                } else {
                    shares.enter(client(who), slot);
                    plain.insert(slot, who);
                }
                let count = |who: u8| plain.values().filter(|&&one| one == who).count() as u32;
                for who in 1..4 {
                    prop_assert_eq!(shares.count(client(who)), count(who));
                    let mut places: Vec<u32> = shares.places_of(client(who)).collect();
                    places.sort_unstable();
                    let mut own: Vec<u32> =
                        plain.iter().filter(|(_, one)| **one == who).map(|(slot, _)| *slot).collect();
                    own.sort_unstable();
                    prop_assert_eq!(places, own);
                }
                let most = (1..4).map(count).max().filter(|most| *most > 0);
                prop_assert_eq!(shares.heaviest().map(|(_, count)| count), most);
                prop_assert_eq!(shares.heaviest().map(|(client, _)| shares.count(client)), most);
            }
        }
    }
}
