//! Things that are found by a number. The number of one that is gone is used again.
//! Those of an [`Indexed`] are also found by a key that they have.
//!
//! The index is a list of chains: it takes four bytes for each thing, and things
//! that come and go never make it larger. Its hash has a secret key: names and
//! addresses are chosen by whoever answers questions, and many in one chain would
//! make every grant slow. A fast hash without a key had 128 IPv6 addresses of one
//! network in each chain, without anybody meaning it.

use std::hash::{BuildHasher as _, Hash, RandomState};

/// The number of a thing.
pub(super) type Slot = u32;
/// The end of a chain. It is no thing's number.
const NONE: Slot = Slot::MAX;

#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<Slot>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// More things than this are never put in.
    pub(super) const MOST: usize = Slot::MAX as usize - 1;

    pub(super) fn insert(&mut self, thing: T) -> Slot {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(thing);
                slot
            }
            None => {
                self.slots.push(Some(thing));
                (self.slots.len() - 1) as Slot
            }
        }
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<T> {
        let gone = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(gone)
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&T> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        self.slots.iter().enumerate().filter_map(|(slot, thing)| Some((slot as Slot, thing.as_ref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Slot, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(slot, thing)| Some((slot as Slot, thing.as_mut()?)))
    }

    /// The things whose numbers are at least the first and less than the second.
    pub(super) fn between(&self, from: Slot, to: Slot) -> impl Iterator<Item = &T> {
        let to = (to as usize).min(self.slots.len());
        self.slots.get(from as usize..to).unwrap_or_default().iter().flatten()
    }

    /// All numbers in use are less.
    pub(super) fn end(&self) -> Slot {
        self.slots.len() as Slot
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Makes room for so many in all.
    pub(super) fn make_room_for(&mut self, most: usize) {
        self.slots.reserve_exact(most.saturating_sub(self.slots.len()));
    }
}

/// A thing that is found by a key.
pub(super) trait Keyed {
    /// The hash of its key by the secret of the index.
    fn hash(&self, secret: &RandomState) -> u64;
    /// The next thing in its chain. It is the index's to change.
    fn next(&mut self) -> &mut Slot;
    fn next_slot(&self) -> Slot;
}

#[derive(Clone, Debug)]
pub(super) struct Indexed<T> {
    things: Slab<T>,
    /// Where the chain of each hash begins; their number is a power of two.
    heads: Vec<Slot>,
    secret: RandomState,
}

impl<T> Default for Indexed<T> {
    fn default() -> Self {
        Self { things: Slab::default(), heads: Vec::new(), secret: RandomState::new() }
    }
}

impl<T: Keyed> Indexed<T> {
    pub(super) fn get(&self, slot: Slot) -> Option<&T> {
        self.things.get(slot)
    }

    /// The thing may be changed, except for its key.
    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.things.get_mut(slot)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        self.things.iter()
    }

    /// The things whose numbers are at least the first and less than the second.
    pub(super) fn between(&self, from: Slot, to: Slot) -> impl Iterator<Item = &T> {
        self.things.between(from, to)
    }

    /// All numbers in use are less.
    pub(super) fn end(&self) -> Slot {
        self.things.end()
    }

    pub(super) fn len(&self) -> usize {
        self.things.len()
    }

    /// The thing with this key, which `is_it` knows it by.
    pub(super) fn find(&self, key: impl Hash, is_it: impl Fn(&T) -> bool) -> Option<Slot> {
        let mut slot = *self.heads.get(self.chain(self.secret.hash_one(key)))?;
        loop {
            let thing = self.things.get(slot)?;
            if is_it(thing) {
                return Some(slot);
            }
            slot = thing.next_slot();
        }
    }

    /// Puts a thing in whose key no other has.
    pub(super) fn insert(&mut self, thing: T) -> Slot {
        if self.things.len() >= self.heads.len() {
            self.lengthen(self.things.len() + 1);
        }
        let chain = self.chain(thing.hash(&self.secret));
        let slot = self.things.insert(thing);
        let next = std::mem::replace(&mut self.heads[chain], slot);
        self.things.get_mut(slot).into_iter().for_each(|thing| *thing.next() = next);
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<T> {
        let gone = self.things.remove(slot)?;
        let (chain, next) = (self.chain(gone.hash(&self.secret)), gone.next_slot());
        let head = self.heads.get_mut(chain)?;
        if *head == slot {
            *head = next;
            return Some(gone);
        }
        let mut before = *head;
        while let Some(thing) = self.things.get_mut(before) {
            if *thing.next() == slot {
                *thing.next() = next;
                break;
            }
            before = *thing.next();
        }
        Some(gone)
    }

    /// Makes room for so many in all.
    pub(super) fn make_room_for(&mut self, most: usize) {
        self.things.make_room_for(most);
        if most > self.heads.len() {
            self.lengthen(most);
        }
    }

    fn lengthen(&mut self, least: usize) {
        self.heads = vec![NONE; least.next_power_of_two()];
        let mask = self.heads.len() - 1;
        for (slot, thing) in self.things.iter_mut() {
            let head = &mut self.heads[thing.hash(&self.secret) as usize & mask];
            *thing.next() = std::mem::replace(head, slot);
        }
    }

    fn chain(&self, hash: u64) -> usize {
        hash as usize & self.heads.len().wrapping_sub(1)
    }

    /// How many things the longest chain has.
    #[cfg(test)]
    pub(super) fn longest_chain(&self) -> usize {
        let length = |head: &Slot| {
            std::iter::successors(self.things.get(*head), |thing| self.things.get(thing.next_slot())).count()
        };
        self.heads.iter().map(length).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_again_once_its_thing_is_gone() {
        let mut slab = Slab::default();
        let (one, two) = (slab.insert("one"), slab.insert("two"));
        assert_eq!((slab.remove(one), slab.remove(one)), (Some("one"), None));
        assert_eq!((slab.get(one), slab.get(two), slab.len()), (None, Some(&"two"), 1));
        assert_eq!(slab.insert("three"), one);
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(one, &"three"), (two, &"two")]);
    }

    #[derive(Debug)]
    struct Number {
        number: u32,
        next: Slot,
    }

    impl Keyed for Number {
        // Many share a chain.
        fn hash(&self, secret: &RandomState) -> u64 {
            secret.hash_one(self.number % 7)
        }

        fn next(&mut self) -> &mut Slot {
            &mut self.next
        }

        fn next_slot(&self) -> Slot {
            self.next
        }
    }

    #[test]
    fn what_is_in_an_index_is_found_by_its_key_whatever_came_and_went() {
        let mut index = Indexed::default();
        let mut expected = std::collections::BTreeMap::new();
        for step in 0..4_000_u32 {
            let number = step.wrapping_mul(2_654_435_761) % 97;
            let find = |index: &Indexed<Number>| index.find(number % 7, |one| one.number == number);
            assert_eq!(find(&index), expected.get(&number).copied());
            match expected.remove(&number) {
                Some(slot) => assert_eq!(index.remove(slot).map(|one| one.number), Some(number)),
                None => _ = expected.insert(number, index.insert(Number { number, next: 0 })),
            }
            if step == 1_000 {
                index.make_room_for(1_000);
            }
            assert_eq!((find(&index), index.len()), (expected.get(&number).copied(), expected.len()));
        }
        assert!(index.heads.len() <= 1_024);
        let mut all: Vec<u32> = index.iter().map(|(_, one)| one.number).collect();
        all.sort_unstable();
        assert!(all.iter().eq(expected.keys()));
    }
}
