//! A map in shards that one version shares with the next: what a change costs
//! is a shard.

use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::{BuildHasher as _, Hash};
use std::sync::Arc;

/// A shard of a map of a hundred thousand has a few hundred entries.
const SHARDS: usize = 512;

#[derive(Clone, Debug)]
pub struct Shards<K, V> {
    shards: Arc<Vec<Arc<FxHashMap<K, V>>>>,
    length: usize,
}

impl<K, V> Default for Shards<K, V> {
    fn default() -> Self {
        let empty = Arc::new(FxHashMap::default());
        Self { shards: Arc::new(vec![empty; SHARDS]), length: 0 }
    }
}

impl<K: Hash + Eq, V> Shards<K, V> {
    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.shards[shard_of(key)].get(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.shards.iter().flat_map(|shard| shard.iter())
    }
}

impl<K: Hash + Eq, V: PartialEq> Shards<K, V> {
    /// The entries that are not the same in an earlier version. What both versions share is not looked at.
    pub fn changed_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = (&'a K, &'a V)> + 'a {
        let both = self.shards.iter().zip(before.shards.iter());
        let changed = both.filter(|(one, other)| !Arc::ptr_eq(one, other));
        changed.flat_map(|(one, other)| one.iter().filter(|(key, value)| other.get(*key) != Some(*value)))
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Shards<K, V> {
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = self.shard_mut(&key).insert(key, value);
        self.length += usize::from(before.is_none());
        before
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        // A shard is not copied for nothing.
        self.get(key)?;
        let before = self.shard_mut(key).remove(key);
        self.length -= usize::from(before.is_some());
        before
    }

    fn shard_mut(&mut self, key: &K) -> &mut FxHashMap<K, V> {
        Arc::make_mut(&mut Arc::make_mut(&mut self.shards)[shard_of(key)])
    }
}

/// By bits that a shard does not place its entries by.
fn shard_of<K: Hash>(key: &K) -> usize {
    let hash = FxBuildHasher.hash_one(key);
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % SHARDS
}

impl<K: Hash + Eq, V: PartialEq> PartialEq for Shards<K, V> {
    fn eq(&self, other: &Self) -> bool {
        let mut both = self.shards.iter().zip(other.shards.iter());
        self.length == other.length && both.all(|(one, other)| Arc::ptr_eq(one, other) || one == other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_apart_and_share_what_is_the_same() {
        let mut before: Shards<u32, u32> = Shards::default();
        for at in 0..10_000 {
            assert_eq!(before.insert(at, at), None);
        }
        let mut next = before.clone();
        assert_eq!((next.insert(7, 1), next.remove(&8), next.remove(&8)), (Some(7), Some(8), None));
        assert_eq!((before.get(&7), before.get(&8), before.len()), (Some(&7), Some(&8), 10_000));
        assert_eq!((next.get(&7), next.get(&8), next.len()), (Some(&1), None, 9_999));
        assert_eq!(next.iter().count(), 9_999);
        let shared = before.shards.iter().zip(next.shards.iter()).filter(|(one, other)| Arc::ptr_eq(one, other));
        assert!(shared.count() >= SHARDS - 2);
        assert!(before != next);
        assert_eq!(next.changed_since(&before).collect::<Vec<_>>(), [(&7, &1)]);
        assert_eq!(before.changed_since(&next).count(), 2);
        next.insert(7, 7);
        next.insert(8, 8);
        assert!(before == next);
    }

    #[test]
    fn no_shard_has_too_much() {
        let mut map: Shards<std::net::IpAddr, ()> = Shards::default();
        for at in 0..100_000_u32 {
            map.insert(std::net::Ipv4Addr::from(0x0a00_0000 + at).into(), ());
        }
        assert!(map.shards.iter().all(|shard| shard.len() < 600), "some shard is crowded");
    }
}
