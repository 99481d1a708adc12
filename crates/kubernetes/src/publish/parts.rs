//! Which objects the result of a lookup is written to. A wildcard with many names has several objects, its parts: each
//! write costs the API server time for every name in the object. Pure.

use crate::names::NameObject;
use namewall_cluster::resolver::PART_NAMES;
use std::collections::BTreeMap;

/// The objects that a lookup of a name changes. `would_change` says whether it would change one of them.
///
/// In each namespace a name is in one part of its wildcard: in the one that has it already, or in one with room for it.
/// If the entry of the wildcard says all of it, it is in none.
pub(super) fn concerned<'o>(
    objects: impl Iterator<Item = &'o NameObject>,
    name: &str,
    would_change: impl Fn(&NameObject) -> bool,
) -> Vec<&'o NameObject> {
    let mut wildcards: BTreeMap<(&str, &str), Vec<&NameObject>> = BTreeMap::new();
    for object in objects {
        wildcards.entry((&object.key.namespace, &object.pattern)).or_default().push(object);
    }
    let mut concerned = Vec::new();
    for mut parts in wildcards.into_values() {
        parts.sort_by(|one, other| one.key.cmp(&other.key));
        let has_it = |part: &&NameObject| part.status.has(name);
        let is_known = parts.iter().any(has_it);
        let (changed, same): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| would_change(part));
        match is_known {
            true => concerned.extend(changed.into_iter().filter(has_it)),
            false if same.is_empty() => concerned.extend(home(&changed, name)),
            false => {}
        }
    }
    concerned
}

/// The part that a new name goes to. The first one has the entry of the wildcard itself, as OpenShift's plugin expects.
fn home<'o>(parts: &[&'o NameObject], name: &str) -> Option<&'o NameObject> {
    let count = |part: &NameObject| part.status.resolved_names.len();
    let first = parts.first().copied()?;
    if first.pattern == name {
        return Some(first);
    }
    let with_room: Vec<&&NameObject> = parts.iter().filter(|part| count(part) < PART_NAMES).collect();
    if with_room.is_empty() {
        return parts.iter().copied().min_by_key(|part| count(part));
    }
    // Several nodes choose the same part for a name, and different ones for different names.
    let hash = name.bytes().fold(0_usize, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    Some(with_room[hash % with_room.len()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_cluster::Key;
    use namewall_cluster::kinds::dns_name_resolver::{ResolvedName, Status};

    fn part(name: &str, names: &[String]) -> NameObject {
        let item = |name: &String| ResolvedName {
            conditions: Vec::new(),
            dns_name: name.clone(),
            resolved_addresses: Vec::new(),
            resolution_failures: 0,
        };
        NameObject {
            key: Key { namespace: "namewall".into(), name: name.into() },
            pattern: "*.example.com.".to_owned(),
            status: Status { resolved_names: names.iter().map(item).collect() },
            is_ours: true,
        }
    }

    fn numbered(numbers: std::ops::Range<usize>) -> Vec<String> {
        numbers.map(|number| format!("n{number}.example.com.")).collect()
    }

    fn chosen(parts: &[NameObject], name: &str, changes: impl Fn(&NameObject) -> bool) -> Vec<String> {
        concerned(parts.iter(), name, changes).iter().map(|part| part.key.name.to_string()).collect()
    }

    #[test]
    fn a_name_stays_in_the_part_that_has_it() {
        let parts = [part("dns-a-2", &numbered(0..60)), part("dns-a", &[])];
        assert_eq!(chosen(&parts, "n7.example.com.", |_| true), ["dns-a-2"]);
        let is_other = |part: &NameObject| &*part.key.name != "dns-a-2";
        assert_eq!(chosen(&parts, "n7.example.com.", is_other), Vec::<String>::new(), "it says so already");
    }

    #[test]
    fn a_new_name_goes_to_a_part_with_room() {
        let parts = [part("dns-a", &numbered(0..50)), part("dns-a-2", &numbered(50..99)), part("dns-a-3", &[])];
        let mut seen = std::collections::BTreeMap::new();
        for name in numbered(100..140) {
            *seen.entry(chosen(&parts, &name, |_| true).concat()).or_insert(0) += 1;
        }
        assert!(seen.len() == 2 && !seen.contains_key("dns-a"), "{seen:?}");
        assert_eq!(chosen(&parts, "*.example.com.", |_| true), ["dns-a"], "the wildcard's own entry");
        let full = [part("dns-a", &numbered(0..70)), part("dns-a-2", &numbered(70..130))];
        assert_eq!(chosen(&full, "x.example.com.", |_| true), ["dns-a-2"]);
    }

    #[test]
    fn what_the_wildcard_s_entry_says_is_said_in_no_part() {
        let parts = [part("dns-a", &["*.example.com.".to_owned()]), part("dns-a-2", &[])];
        let covers = |part: &NameObject| &*part.key.name == "dns-a-2";
        assert_eq!(chosen(&parts, "x.example.com.", covers), Vec::<String>::new());
    }

    #[test]
    fn each_namespace_and_each_pattern_counts_for_itself() {
        let mut other = part("dns-a", &[]);
        other.key.namespace = "openshift-ovn-kubernetes".into();
        let mut exact = part("dns-b", &[]);
        exact.pattern = "x.example.com.".to_owned();
        let parts = [part("dns-a", &[]), other, exact];
        assert_eq!(chosen(&parts, "x.example.com.", |_| true).len(), 3);
    }
}
