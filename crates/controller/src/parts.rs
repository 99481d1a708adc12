//! Wildcards whose names are spread over several objects. Pure.

use namewall_cluster::Key;
use namewall_cluster::resolver::{MOST_PARTS, PART_NAMES, is_wildcard, part_name};
use namewall_kubernetes::NameObject;
use std::collections::{BTreeMap, BTreeSet};

/// True if the object may need another one beside it.
pub(crate) fn is_full(object: &NameObject) -> bool {
    object.is_ours && is_wildcard(&object.pattern) && object.status.resolved_names.len() >= PART_NAMES
}

/// The parts that are missing: the name of the object, and the wildcard. When all parts are full there shall be twice as
/// many, so that few objects are made one after the other while names come in.
pub(crate) fn missing_parts(objects: &BTreeMap<Key, NameObject>) -> Vec<(String, String)> {
    let mut by_wildcard: BTreeMap<&str, Vec<&NameObject>> = BTreeMap::new();
    for object in objects.values().filter(|object| object.is_ours && is_wildcard(&object.pattern)) {
        by_wildcard.entry(&object.pattern).or_default().push(object);
    }
    let mut missing = Vec::new();
    for (wildcard, parts) in by_wildcard.into_iter().filter(|(_, parts)| parts.iter().all(|part| is_full(part))) {
        let names: BTreeSet<&str> = parts.iter().map(|part| &*part.key.name).collect();
        let more = parts.len().min(MOST_PARTS.saturating_sub(parts.len()));
        let free = (2..).map(|number| part_name(wildcard, number)).filter(|name| !names.contains(name.as_str()));
        missing.extend(free.take(more).map(|name| (name, wildcard.to_owned())));
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_cluster::kinds::dns_name_resolver::{ResolvedName, Status};

    fn objects(parts: &[(&str, usize)]) -> BTreeMap<Key, NameObject> {
        let item = |number: usize| ResolvedName {
            conditions: Vec::new(),
            dns_name: format!("n{number}.example.com."),
            resolved_addresses: Vec::new(),
            resolution_failures: 0,
        };
        let object = |(name, count): &(&str, usize)| {
            let key = Key { namespace: "namewall".into(), name: (*name).into() };
            let status = Status { resolved_names: (0..*count).map(item).collect() };
            (key.clone(), NameObject { key, pattern: "*.example.com.".to_owned(), status, is_ours: true })
        };
        parts.iter().map(object).collect()
    }

    fn count(parts: &[(&str, usize)]) -> usize {
        missing_parts(&objects(parts)).len()
    }

    #[test]
    fn s8_6_a_wildcard_whose_parts_are_full_gets_as_many_again() {
        assert_eq!(count(&[("a", 49)]), 0);
        assert_eq!(
            missing_parts(&objects(&[("a", 50)])),
            [(part_name("*.example.com.", 2), "*.example.com.".to_owned())]
        );
        assert_eq!(count(&[("a", 80), ("b", 3)]), 0, "one has room");
        assert_eq!(count(&[("a", 80), ("b", 50), ("c", 60)]), 3);
        let most: Vec<(String, usize)> = (0..MOST_PARTS).map(|number| (format!("p{number}"), 50)).collect();
        let most: Vec<(&str, usize)> = most.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!((count(&most), count(&most[..MOST_PARTS - 3])), (0, 3));
    }

    #[test]
    fn others_objects_and_names_have_no_parts() {
        let mut foreign = objects(&[("a", 80)]);
        foreign.values_mut().for_each(|object| object.is_ours = false);
        assert_eq!(missing_parts(&foreign), []);
        let mut exact = objects(&[("a", 80)]);
        exact.values_mut().for_each(|object| object.pattern = "www.example.com.".to_owned());
        assert_eq!(missing_parts(&exact), []);
    }
}
