//! Many names in little memory, each with a number. The names stand one after the other in one block of bytes, and a
//! hash table has their numbers. A name is found by its labels from the right, so that one pass over a question's name
//! asks for the name and for every name above it.
//!
//! The hash of a name only says where to look. Every hit is compared byte by byte: two names with the same hash are
//! never taken for each other.

use std::hash::{BuildHasher, RandomState};

/// The fewest places of the hash table.
const LEAST_SLOTS: usize = 16;
/// The longest name, its last empty label included (RFC 1035 §3.1).
pub(crate) const LONGEST: usize = 255;
/// As many labels as such a name has at most.
const MOST_LABELS: usize = 127;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Names on the wire, in lower case, numbered from 0 in the order in which they were added.
#[derive(Clone, Debug)]
pub struct NameTable {
    names: Vec<u8>,
    /// Where the name of each number begins, and where the last one ends.
    starts: Vec<u32>,
    /// A power of two of places, of which at least half are empty.
    slots: Box<[Slot]>,
    /// A bit for each number of labels that a name has.
    depths: u128,
    /// It differs from table to table, so that nobody can choose names that share a place.
    seed: u64,
}

/// A place of the hash table.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// The number of the name and one; 0 is an empty place.
    id: u32,
    /// The upper half of its hash: most other names are told apart without a look at them.
    hash: u32,
}

/// A name of a table that is a name that was asked for, or stands above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Above {
    pub id: u32,
    /// How many labels of the name that was asked for it has.
    pub depth: usize,
}

/// Why a name is not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no room for more names")]
pub struct Full;

impl Default for NameTable {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            starts: vec![0],
            slots: vec![Slot::default(); LEAST_SLOTS].into(),
            depths: 0,
            seed: RandomState::new().hash_one(0),
        }
    }
}

impl NameTable {
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.names.capacity() + self.starts.capacity() * size_of::<u32>() + self.slots.len() * size_of::<Slot>()
    }

    /// Adds a name, which is in lower case and whole. Returns its number, and whether it is new.
    pub fn insert(&mut self, name: &[u8]) -> Result<(u32, bool), Full> {
        let (hash, depth) = self.hash(name);
        if let Some(id) = self.find(hash, &[name]) {
            return Ok((id, false));
        }
        if (self.len() + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let id = u32::try_from(self.len()).ok().filter(|id| *id < u32::MAX).ok_or(Full)?;
        let end = u32::try_from(self.names.len() + name.len()).map_err(|_| Full)?;
        self.names.extend_from_slice(name);
        self.starts.push(end);
        self.depths |= bit(depth);
        place(&mut self.slots, hash, id);
        Ok((id, true))
    }

    /// Gives back the memory that was reserved for more names.
    pub fn shrink(&mut self) {
        self.names.shrink_to_fit();
        self.starts.shrink_to_fit();
    }

    /// The name of a number.
    pub fn name(&self, id: u32) -> &[u8] {
        let range = self.starts.get(id as usize).zip(self.starts.get(id as usize + 1));
        range.and_then(|(start, end)| self.names.get(*start as usize..*end as usize)).unwrap_or_default()
    }

    pub fn get(&self, name: &[u8]) -> Option<u32> {
        let (hash, _) = self.hash(name);
        self.find(hash, &[name])
    }

    /// The names of the table that are this one or stand above it, the shortest first.
    pub fn above<'t>(&'t self, name: &'t [u8]) -> impl Iterator<Item = Above> + 't {
        self.suffixes(name).filter_map(|suffix| {
            let is_there = self.depths & bit(suffix.depth) != 0;
            let id = if is_there { self.find(suffix.hash, &[suffix.name]) } else { None };
            id.map(|id| Above { id, depth: suffix.depth })
        })
    }

    /// The wildcard (`*.b`) of a name.
    pub fn wildcard_of(&self, name: &[u8]) -> Option<u32> {
        let whole = self.suffixes(name).last()?;
        self.find(mix(whole.hash, b"\x01*"), &[b"\x01*", name])
    }

    /// The hash of a name, and how many labels it has.
    fn hash(&self, name: &[u8]) -> (u64, usize) {
        self.suffixes(name).last().map_or((self.seed, 0), |whole| (whole.hash, whole.depth))
    }

    /// The root, and each name above this one down to itself.
    fn suffixes<'n>(&self, name: &'n [u8]) -> Suffixes<'n> {
        let (mut starts, mut count, mut at) = ([0; MOST_LABELS], 0, 0);
        while let Some(length) = name.get(at).copied().filter(|length| *length > 0) {
            let Some(slot) = starts.get_mut(count) else { break };
            *slot = at as u8;
            count += 1;
            at += 1 + usize::from(length);
        }
        Suffixes { name, starts, count, depth: 0, hash: self.seed, end: at }
    }

    /// The number of the name that these pieces make.
    fn find(&self, hash: u64, pieces: &[&[u8]]) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        // At least half of the places are empty, so that there is an end.
        loop {
            let slot = self.slots.get(at)?;
            let id = slot.id.checked_sub(1)?;
            if slot.hash == (hash >> 32) as u32 && is_made_of(self.name(id), pieces) {
                return Some(id);
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let mut slots = vec![Slot::default(); self.slots.len() * 2].into_boxed_slice();
        for id in 0..self.len() as u32 {
            place(&mut slots, self.hash(self.name(id)).0, id);
        }
        self.slots = slots;
    }
}

/// A name above another, or itself.
struct Suffix<'n> {
    name: &'n [u8],
    hash: u64,
    depth: usize,
}

/// The names above one, from the root to itself.
struct Suffixes<'n> {
    name: &'n [u8],
    /// Where each label begins.
    starts: [u8; MOST_LABELS],
    count: usize,
    /// How many labels the next one has.
    depth: usize,
    hash: u64,
    /// Where the labels that have been hashed begin.
    end: usize,
}

impl<'n> Iterator for Suffixes<'n> {
    type Item = Suffix<'n>;

    fn next(&mut self) -> Option<Suffix<'n>> {
        if self.depth > self.count {
            return None;
        }
        if self.depth > 0 {
            let start = usize::from(self.starts[self.count - self.depth]);
            self.hash = mix(self.hash, self.name.get(start..self.end)?);
            self.end = start;
        }
        let suffix = Suffix { name: self.name.get(self.end..)?, hash: self.hash, depth: self.depth };
        self.depth += 1;
        Some(suffix)
    }
}

fn bit(depth: usize) -> u128 {
    1 << depth.min(MOST_LABELS)
}

fn place(slots: &mut [Slot], hash: u64, id: u32) {
    let mask = slots.len() - 1;
    let mut at = hash as usize & mask;
    while slots[at].id != 0 {
        at = (at + 1) & mask;
    }
    slots[at] = Slot { id: id + 1, hash: (hash >> 32) as u32 };
}

/// Adds a label with its length to the hash of the labels behind it.
fn mix(hash: u64, label: &[u8]) -> u64 {
    let mut hash = hash;
    for chunk in label.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let wide = u128::from(hash ^ u64::from_le_bytes(word)) * u128::from(FACTOR);
        hash = wide as u64 ^ (wide >> 64) as u64;
    }
    hash
}

fn is_made_of(name: &[u8], pieces: &[&[u8]]) -> bool {
    let mut rest = name;
    for piece in pieces {
        match rest.strip_prefix(*piece) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &[&[u8]]) -> NameTable {
        let mut table = NameTable::default();
        names.iter().for_each(|name| assert!(table.insert(name).unwrap().1));
        table
    }

    #[test]
    fn names_above_are_found_by_labels() {
        let table = table(&[b"\x03com\0", b"\x07example\x03com\0", b"\x01a\x07example\x03com\0"]);
        let above = |name: &'static [u8]| table.above(name).map(|found| (found.id, found.depth)).collect::<Vec<_>>();
        assert_eq!(above(b"\x01a\x07example\x03com\0"), [(0, 1), (1, 2), (2, 3)]);
        assert_eq!(above(b"\x01b\x07example\x03com\0"), [(0, 1), (1, 2)]);
        assert_eq!(above(b"\x0bevilexample\x03com\0"), [(0, 1)]);
        assert!(above(b"\x03org\0").is_empty() && above(b"\0").is_empty());
        assert_eq!(table.get(b"\x07example\x03com\0"), Some(1));
        assert_eq!(table.name(2), b"\x01a\x07example\x03com\0");
    }

    #[test]
    fn a_name_has_its_wildcard() {
        let table = table(&[b"\x01*\x07example\0", b"\x01*\0"]);
        assert_eq!(table.wildcard_of(b"\x07example\0"), Some(0));
        assert_eq!(table.wildcard_of(b"\0"), Some(1));
        assert_eq!(table.wildcard_of(b"\x03www\x07example\0"), None);
    }

    /// The hash decides where to look, and nothing else.
    #[test]
    fn names_of_one_hash_are_told_apart() {
        let mut table = table(&[b"\x01a\0"]);
        let (hash, _) = table.hash(b"\x01a\0");
        assert_eq!(table.find(hash, &[b"\x01b\0"]), None);
        assert_eq!(table.insert(b"\x01b\0"), Ok((1, true)));
        // Another name at the first one's hash.
        place(&mut table.slots, hash, 1);
        assert_eq!(table.find(hash, &[b"\x01b\0"]), Some(1));
        assert_eq!(table.find(hash, &[b"\x01a\0"]), Some(0));
        assert_eq!(table.find(hash, &[b"\x01c\0"]), None);
    }

    #[test]
    fn the_longest_name_has_a_place() {
        let name: Vec<u8> = [1, b'x'].repeat(127).into_iter().chain([0]).collect();
        assert_eq!(name.len(), LONGEST);
        let mut table = NameTable::default();
        assert_eq!(table.insert(&name), Ok((0, true)));
        assert_eq!(table.insert(&name), Ok((0, false)));
        assert_eq!(table.above(&name).collect::<Vec<_>>(), [Above { id: 0, depth: 127 }]);
    }
}
