//! The elements of a set, packed: a node of a large cluster has hundreds of
//! thousands, and nearly all are an address, or a number and an address.

use super::set::{Element, Index, Key, Value};
use rustc_hash::FxHashSet;
use std::hash::{Hash, Hasher};

/// Each once, found by its index.
#[derive(Clone, Default, Debug)]
pub struct Elements {
    /// Those with a key of up to a number and an IPv4 address.
    short: FxHashSet<Packed<8>>,
    /// The same with an IPv6 address.
    long: FxHashSet<Packed<20>>,
    /// Intervals, those that lead to chains, and longer keys.
    others: FxHashSet<Whole>,
}

/// An element that is a key and nothing else.
#[derive(Clone, Copy, Debug)]
struct Packed<const LONGEST: usize> {
    key: [u8; LONGEST],
    length: u8,
}

impl<const LONGEST: usize> Packed<LONGEST> {
    fn of(element: &Element) -> Option<Self> {
        if element.key_end.is_some() || element.ends_interval || element.value != Value::None {
            return None;
        }
        let bytes = element.key.as_bytes();
        let mut key = [0; LONGEST];
        key.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self { key, length: bytes.len() as u8 })
    }

    fn whole(&self) -> Element {
        Element::key(Key::from_bytes(&self.key[..usize::from(self.length)]).unwrap_or_default())
    }
}

impl<const LONGEST: usize> PartialEq for Packed<LONGEST> {
    fn eq(&self, other: &Self) -> bool {
        (self.key, self.length) == (other.key, other.length)
    }
}

impl<const LONGEST: usize> Eq for Packed<LONGEST> {}

impl<const LONGEST: usize> Hash for Packed<LONGEST> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

#[derive(Clone, Debug)]
struct Whole(Element);

impl PartialEq for Whole {
    fn eq(&self, other: &Self) -> bool {
        self.0.index() == other.0.index()
    }
}

impl Eq for Whole {}

impl Hash for Whole {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.as_bytes().hash(state);
        self.0.ends_interval.hash(state);
    }
}

impl Elements {
    /// In place of one that was there by the same index.
    pub fn insert(&mut self, element: Element) {
        if let Some(packed) = Packed::of(&element) {
            self.forget_whole(&element);
            self.short.replace(packed);
        } else if let Some(packed) = Packed::of(&element) {
            self.forget_whole(&element);
            self.long.replace(packed);
        } else {
            self.remove(element.index());
            self.others.insert(Whole(element));
        }
    }

    /// What leads to a chain and what does not may have the same index.
    fn forget_whole(&mut self, element: &Element) {
        if !self.others.is_empty() {
            self.others.remove(&Whole(Element::at(element.index())));
        }
    }

    pub fn remove(&mut self, index: Index) {
        let element = Element::at(index);
        Packed::of(&element).into_iter().for_each(|packed| _ = self.short.remove(&packed));
        Packed::of(&element).into_iter().for_each(|packed| _ = self.long.remove(&packed));
        self.others.remove(&Whole(element));
    }

    pub fn get(&self, index: Index) -> Option<Element> {
        let element = Element::at(index);
        let short = Packed::of(&element).and_then(|packed| self.short.get(&packed)).map(Packed::whole);
        let long = || Packed::of(&element).and_then(|packed| self.long.get(&packed)).map(Packed::whole);
        let other = || self.others.get(&Whole(element.clone())).map(|whole| whole.0.clone());
        short.or_else(long).or_else(other)
    }

    /// Whether it has this very element.
    pub fn has(&self, element: &Element) -> bool {
        self.get(element.index()).as_ref() == Some(element)
    }

    pub fn iter(&self) -> impl Iterator<Item = Element> {
        let packed = self.short.iter().map(Packed::whole).chain(self.long.iter().map(Packed::whole));
        packed.chain(self.others.iter().map(|whole| whole.0.clone()))
    }

    pub fn len(&self) -> usize {
        self.short.len() + self.long.len() + self.others.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl PartialEq for Elements {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|element| other.has(&element))
    }
}

impl Eq for Elements {}

/// Elements on their way to the kernel: all that a set has, or some.
#[derive(Debug)]
pub(crate) enum Moved<'a> {
    All(&'a Elements),
    These(Vec<Element>),
}

impl Moved<'_> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = Element> {
        let (all, these) = match self {
            Self::All(elements) => (Some(*elements), &[][..]),
            Self::These(elements) => (None, &elements[..]),
        };
        all.into_iter().flat_map(Elements::iter).chain(these.iter().cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Keys of all lengths there are, few enough that they meet again.
    fn element() -> impl Strategy<Value = Element> {
        let key =
            (0_u8..3, prop_oneof![Just(1_usize), Just(4), Just(8), Just(12), Just(16), Just(20), Just(36), Just(44)]);
        let value = prop_oneof![Just(Value::None), Just(Value::goto("chain".to_owned()))];
        (key, value, any::<bool>(), any::<bool>()).prop_map(|((byte, length), value, has_end, ends_interval)| {
            let key = Key::from_bytes(&vec![byte; length]).expect("it is short enough");
            Element { key, key_end: has_end.then(|| Box::new(key)), ends_interval, value }
        })
    }

    proptest! {
        #[test]
        fn packed_or_not_an_element_is_found_as_it_was_put(
            steps in proptest::collection::vec((element(), any::<bool>()), 0..40),
        ) {
            let (mut elements, mut plain) = (Elements::default(), BTreeMap::new());
            for (element, stays) in steps {
                match stays {
                    true => {
                        elements.insert(element.clone());
                        plain.insert(element.index(), element);
                    }
                    false => {
                        elements.remove(element.index());
                        plain.remove(&element.index());
                    }
                }
            }
            prop_assert_eq!(elements.len(), plain.len());
            let found: BTreeMap<Index, Element> = elements.iter().map(|element| (element.index(), element)).collect();
            prop_assert_eq!(&found, &plain);
            prop_assert!(plain.values().all(|element| elements.has(element)));
            let mut again = Elements::default();
            plain.into_values().for_each(|element| again.insert(element));
            prop_assert!(again == elements);
        }
    }
}
