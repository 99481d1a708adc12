//! DNSNameResolver objects: which there are, for which names, and what their
//! status says of it (S8).

use crate::clocks::{Before, Came, Clocks, Seen};
use jiff::Timestamp;
use namewall_cluster::kinds::dns_name_resolver::{DnsNameResolver, Status};
use namewall_cluster::resolver::{matches, next_lookup};
use namewall_cluster::{Document, Key, yaml};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

/// What one object says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameObject {
    pub key: Key,
    /// A name or wildcard, lower case, with its last dot.
    pub pattern: String,
    /// Its times are by our own clock.
    pub status: Status,
    /// Whether it is ours to delete.
    pub is_ours: bool,
}

/// An address that a status has for a name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SharedAddress {
    pub pattern: String,
    pub name: String,
    pub address: IpAddr,
    pub ttl_seconds: i32,
    /// When it was looked up, by our own clock, in seconds since 1970.
    pub looked_up: i64,
}

/// Whoever makes an object says so by this label.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "namewall");

impl NameObject {
    pub(crate) fn read(key: &Key, document: &Document) -> Option<Self> {
        let (object, _) = yaml::read::<DnsNameResolver>(&document.node, "").ok()?;
        let labels = document.node.get("metadata").and_then(|metadata| metadata.get("labels"));
        let manager = labels.and_then(|labels| labels.get(MANAGED_BY.0)).and_then(yaml::Node::as_str);
        Some(Self::of(key, object, manager))
    }

    /// The same of an object as the server has sent it. An object of a thousand names changes many times in a second,
    /// so it is read without a detour.
    pub(crate) fn of_json(key: &Key, object: &Value) -> Option<Self> {
        let manager = object["metadata"]["labels"][MANAGED_BY.0].as_str();
        Some(Self::of(key, DnsNameResolver::deserialize(object).ok()?, manager))
    }

    fn of(key: &Key, object: DnsNameResolver, manager: Option<&str>) -> Self {
        Self {
            key: key.clone(),
            pattern: object.spec.name.to_ascii_lowercase(),
            status: object.status,
            is_ours: manager == Some(MANAGED_BY.1),
        }
    }

    /// The addresses of its names, the wildcard's own entry among them (S8.6). Skips names that the object is not for.
    pub fn addresses(&self) -> impl Iterator<Item = SharedAddress> + '_ {
        let names = self.status.resolved_names.iter().filter(move |item| matches(&self.pattern, &item.dns_name));
        names.flat_map(|item| {
            item.resolved_addresses.iter().filter_map(|one| {
                let due = next_lookup(one).as_second();
                Some(SharedAddress {
                    pattern: self.pattern.clone(),
                    name: item.dns_name.clone(),
                    address: one.ip.parse().ok()?,
                    ttl_seconds: one.ttl_seconds,
                    looked_up: due - i64::from(one.ttl_seconds),
                })
            })
        })
    }
}

/// The objects, by what they are for.
#[derive(Clone, Default, Debug)]
pub(crate) struct Names {
    objects: BTreeMap<Key, NameObject>,
    by_pattern: BTreeMap<String, Vec<Key>>,
    /// Of objects whose times are others by our clock.
    clocks: HashMap<Key, Clocks>,
    /// Of objects that have changed since they were listed.
    versions: HashMap<Key, String>,
}

/// An object as it was in a version of it, to be changed.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) version: Option<String>,
    pub(crate) pattern: String,
    /// By our own clock.
    pub(crate) status: Status,
    pub(crate) clocks: Clocks,
}

impl Names {
    /// All objects anew. What was known of them before says how old their addresses are.
    pub(crate) fn replace<'d>(&mut self, documents: impl Iterator<Item = (&'d Key, Document)>, now: Timestamp) {
        let before = std::mem::take(self);
        for mut object in documents.filter_map(|(key, document)| NameObject::read(key, &document)) {
            let clocks = before.translate(&object.key, &mut object.status, Seen { came: Came::Listed, at: now });
            self.insert(object, clocks);
        }
    }

    /// An object as it says it is, in place of what it said before.
    pub(crate) fn put(&mut self, mut object: NameObject, now: Timestamp) {
        let clocks = self.translate(&object.key, &mut object.status, Seen { came: Came::Now, at: now });
        self.insert(object, clocks);
    }

    /// Which version of an object is the one that is known.
    pub(crate) fn set_version(&mut self, key: &Key, version: &str) {
        self.versions.insert(key.clone(), version.to_owned());
    }

    /// What can be written without asking for it first.
    pub(crate) fn held(&self, key: &Key) -> Option<Held> {
        let (version, object) = (self.versions.get(key)?, self.objects.get(key)?);
        Some(Held {
            version: Some(version.clone()),
            pattern: object.pattern.clone(),
            status: object.status.clone(),
            clocks: self.clocks.get(key).cloned().unwrap_or_default(),
        })
    }

    fn insert(&mut self, object: NameObject, clocks: Clocks) {
        let key = object.key.clone();
        self.remove(&key);
        if !clocks.is_empty() {
            self.clocks.insert(key.clone(), clocks);
        }
        self.by_pattern.entry(object.pattern.clone()).or_default().push(key.clone());
        self.objects.insert(key, object);
    }

    /// Sets the times of what an object says to those of our clock.
    pub(crate) fn translate(&self, key: &Key, status: &mut Status, seen: Seen) -> Clocks {
        let (nothing, same) = (Status::default(), Clocks::default());
        let known = self.objects.get(key).map_or(&nothing, |object| &object.status);
        let clocks = self.clocks.get(key).unwrap_or(&same);
        Before { status: known, clocks }.translate(status, seen)
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        self.clocks.remove(key);
        self.versions.remove(key);
        let Some(object) = self.objects.remove(key) else { return };
        if let Some(keys) = self.by_pattern.get_mut(&object.pattern) {
            keys.retain(|known| known != key);
            if keys.is_empty() {
                self.by_pattern.remove(&object.pattern);
            }
        }
    }

    /// Into how many objects of its namespace the wildcard of an object is spread.
    pub(crate) fn part_count(&self, key: &Key) -> usize {
        let of_pattern = self.objects.get(key).and_then(|object| self.by_pattern.get(&object.pattern));
        of_pattern.into_iter().flatten().filter(|other| other.namespace == key.namespace).count().max(1)
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&NameObject> {
        self.objects.get(key)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &NameObject> {
        self.objects.values()
    }

    /// Every name that an object has.
    pub(crate) fn listed(&self) -> HashSet<&str> {
        let all = self.objects.values().flat_map(|object| &object.status.resolved_names);
        all.map(|item| item.dns_name.as_str()).collect()
    }

    /// Those for a name: its own, and the wildcard's over it.
    pub(crate) fn matching(&self, name: &str) -> impl Iterator<Item = &NameObject> {
        let wildcard = name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let own = self.by_pattern.get(name).into_iter();
        let wider = wildcard.filter(|wildcard| wildcard != name).and_then(|wildcard| self.by_pattern.get(&wildcard));
        own.chain(wider).flatten().filter_map(|key| self.objects.get(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_says_nothing_of_names_it_is_not_for() {
        let item = |name: &str, last: u8| {
            json!({
                "dnsName": name,
                "resolvedAddresses": [{"ip": format!("192.0.2.{last}"), "ttlSeconds": 30, "lastLookupTime": "2026-01-01T00:00:00Z"}],
            })
        };
        let names = [
            item("a.example.com.", 1),
            item("b.other.com.", 2),
            item("a.b.example.com.", 3),
            item("*.example.com.", 4),
        ];
        let status: Status = serde_json::from_value(json!({"resolvedNames": names})).expect("a status");
        let key = Key { namespace: "namewall".into(), name: "dns-1".into() };
        let object = NameObject { key, pattern: "*.example.com.".to_owned(), status, is_ours: true };
        let told: Vec<String> = object.addresses().map(|one| format!("{} {}", one.name, one.address)).collect();
        assert_eq!(told, ["a.example.com. 192.0.2.1", "*.example.com. 192.0.2.4"]);
    }
}
