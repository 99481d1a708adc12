//! Values by domain: a name has what the closest domain above it, or itself, has.

use super::name::Name;
use rustc_hash::FxHashMap;

#[derive(Clone, Debug)]
pub(super) struct DomainMap<V> {
    values: FxHashMap<Box<[u8]>, V>,
    /// Labels of the longest domain: names below it are as good as it.
    deepest: usize,
}

impl<V> Default for DomainMap<V> {
    fn default() -> Self {
        Self { values: FxHashMap::default(), deepest: 0 }
    }
}

/// More labels than a name has.
const MOST_LABELS: usize = 128;

impl<V> DomainMap<V> {
    /// Gives back what was there.
    pub(super) fn insert(&mut self, domain: &Name, value: V) -> Option<V> {
        self.deepest = self.deepest.max(ends(domain.key()).1);
        self.values.insert(domain.key().into(), value)
    }

    /// The root is above everything and yet finds nothing, as in Themis.
    pub(super) fn get(&self, name: &Name) -> Option<&V> {
        let (ends, labels) = ends(name.key());
        let upwards = ends[..labels.min(self.deepest)].iter().rev();
        upwards.map(|end| usize::from(*end)).find_map(|end| self.values.get(&name.key()[..end]))
    }
}

/// Where each label of a key ends, and how many there are.
fn ends(key: &[u8]) -> ([u8; MOST_LABELS], usize) {
    let mut ends = [0; MOST_LABELS];
    let (mut labels, mut at) = (0, 0);
    while let Some(length) = key.get(at) {
        at += 1 + usize::from(*length);
        ends[labels] = at as u8;
        labels += 1;
    }
    (ends, labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_domain_counts() {
        let mut map = DomainMap::default();
        for (at, text) in ["example.com", "a.b.example.com", "net", "."].into_iter().enumerate() {
            map.insert(&Name::parse(text).unwrap(), at);
        }
        let of = |text: &str| map.get(&Name::parse(text).unwrap()).copied();
        assert_eq!(of("EXAMPLE.com."), Some(0));
        assert_eq!(of("b.example.com"), Some(0));
        assert_eq!(of("x.a.b.example.com"), Some(1));
        assert_eq!(of("notexample.com"), None);
        assert_eq!(of("any.net"), Some(2));
        assert_eq!(of("org"), None);
        assert_eq!(of("."), None);
        assert_eq!(of(&format!("{}net", "a.".repeat(120))), Some(2));
    }
}
