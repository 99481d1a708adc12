//! The objects of a [`Store`], stored and taken up again (S10.3).

use crate::document::Document;
use crate::kinds::{self, Recognised, VersionedKind};
use crate::lean::whole;
use crate::record::Text;
use crate::store::Store;
use crate::stored::StoredEntry;
use crate::stored_facts as facts;
use serde_json::Value as Json;
use std::sync::Arc;

/// A stored object that this version of namewall does not read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the stored object {0} is of a kind that is not read here")]
pub struct UnknownObject(pub Arc<str>);

impl Store {
    /// Objects that are kept as text, each in the version that counts: the last good one, where there is one.
    pub fn stored_texts(&self) -> Vec<StoredEntry> {
        let texts = self.texts().map(|text| {
            let good = self.last_good_of(text.name());
            let is_good = good.is_some();
            StoredEntry { name: text.name().clone(), text: good.unwrap_or(text).json().clone(), is_good }
        });
        texts.collect()
    }

    /// Pods, Services and EndpointSlices.
    pub fn stored_facts(&self) -> Vec<StoredEntry> {
        let entry = |object: Json| {
            let text = |path: &str| object.pointer(path).and_then(Json::as_str).unwrap_or_default();
            let name = format!("{} {}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
            StoredEntry { name: name.into(), text: object.to_string().into(), is_good: false }
        };
        let known = self.facts();
        let pods = known.pods.objects.iter().filter_map(|(key, fact)| Some(facts::pod(key, fact.now.as_deref()?)));
        let services = known.services.objects.iter();
        let services = services.filter_map(|(key, fact)| Some(facts::service(key, fact.now.as_deref()?)));
        let slices = known.slices.objects.iter();
        let slices = slices.filter_map(|(key, fact)| Some(facts::slice(key, fact.now.as_deref()?)));
        pods.chain(services).chain(slices).map(entry).collect()
    }

    /// Takes good versions that an earlier process has stored. They count for objects that are there and cannot be
    /// read.
    pub fn adopt(&mut self, stored: &[StoredEntry]) {
        let good = stored.iter().filter(|entry| entry.is_good);
        let text = |entry: &StoredEntry| {
            let tree: Json = serde_json::from_str(&entry.text).ok()?;
            Some(Text::of(&Document::new(&entry.name, whole(&tree))))
        };
        self.adopt_texts(good.filter_map(text).collect());
    }

    /// A store with all objects of a stored state.
    pub fn of_stored(stored: &[StoredEntry]) -> Result<Self, UnknownObject> {
        let mut store = Self::default();
        for entry in stored {
            let unknown = || UnknownObject(entry.name.clone());
            let object: Json = serde_json::from_str(&entry.text).map_err(|_| unknown())?;
            let kind = kind_of(&object).ok_or_else(unknown)?;
            store.apply(kind, &object);
        }
        store.adopt(stored);
        Ok(store)
    }
}

fn kind_of(object: &Json) -> Option<VersionedKind> {
    let (api_version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
    let Recognised::Read(kind) = kinds::recognise(api_version, kind) else { return None };
    Some(kind.served().find(|one| one.api_version() == api_version).unwrap_or_else(|| kind.preferred()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use crate::kinds::{ENDPOINT_SLICE, NAMESPACE, NETWORK_POLICY, NODE, POD, SERVICE};
    use serde_json::json;

    fn policy(name: &str, spec: Json) -> Json {
        json!({"metadata": {"namespace": "shop", "name": name}, "spec": spec})
    }

    fn cluster() -> Store {
        let mut store = Store::default();
        store.apply(NAMESPACE.preferred(), &json!({"metadata": {"name": "shop", "labels": {"team": "shop"}}}));
        let node = json!({
            "metadata": {"name": "n1"}, "spec": {"podCIDRs": ["10.0.0.0/24"]},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]},
        });
        store.apply(NODE.preferred(), &node);
        for (name, address) in [("web", "10.0.0.1"), ("db", "10.0.0.2")] {
            let pod = json!({
                "metadata": {
                    "namespace": "shop", "name": name, "labels": {"app": name}, "uid": name,
                    "annotations": {"k8s.v1.cni.cncf.io/network-status": "[{\"ips\": [\"172.16.0.9\"]}]"},
                },
                "spec": {
                    "nodeName": "n1", "serviceAccountName": "one",
                    "containers": [{"ports": [{"name": "sql", "containerPort": 5432}]}],
                },
                "status": {"phase": "Running", "podIPs": [{"ip": address}, {"ip": "2001:db8::1"}]},
            });
            store.apply(POD.preferred(), &pod);
        }
        for (name, spec) in [
            (
                "db",
                json!({
                    "clusterIP": "10.96.0.7", "externalIPs": ["203.0.113.7"], "selector": {"app": "db"},
                    "ports": [{"name": "sql", "port": 5432, "targetPort": "sql", "nodePort": 30000, "protocol": "TCP"}],
                }),
            ),
            (
                "headless",
                json!({"clusterIP": "None", "selector": {"app": "db"}, "ports": [{"port": 1, "targetPort": 2}]}),
            ),
            ("outside", json!({"type": "ExternalName", "externalName": "example.com"})),
        ] {
            let ingress = json!([{"ip": "203.0.113.8"}, {"ip": "203.0.113.9", "ipMode": "Proxy"}]);
            let status = if name == "db" { json!({"loadBalancer": {"ingress": ingress}}) } else { Json::Null };
            let metadata = json!({"namespace": "shop", "name": name});
            store.apply(SERVICE.preferred(), &json!({"metadata": metadata, "spec": spec, "status": status}));
        }
        let slice = json!({
            "metadata": {"namespace": "shop", "name": "db-1", "labels": {"kubernetes.io/service-name": "db"}},
            "endpoints": [{"addresses": ["10.0.0.2"]}, {"addresses": ["10.0.0.3"]}],
            "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}],
        });
        store.apply(ENDPOINT_SLICE.preferred(), &slice);
        store.apply(NETWORK_POLICY.preferred(), &policy("db", json!({"podSelector": {"matchLabels": {"app": "db"}}})));
        store
    }

    fn stored(store: &Store) -> Vec<StoredEntry> {
        store.stored_texts().into_iter().chain(store.stored_facts()).collect()
    }

    #[test]
    fn s10_3_a_cluster_is_read_from_its_stored_state_as_it_was() {
        let mut store = cluster();
        let before = store.read(&Settings::default());
        let mut again = Store::of_stored(&stored(&store)).expect("all kinds are known");
        let after = again.read(&Settings::default());
        let text = |read: &crate::Read| format!("{:#?}", read.lowered.snapshot);
        assert_eq!(text(&after), text(&before));
        assert_eq!(stored(&again), stored(&store));
    }

    #[test]
    fn s10_3_a_stored_good_version_counts_for_an_object_that_cannot_be_read() {
        let mut store = cluster();
        store.read(&Settings::default());
        let entries = stored(&store);
        // Another process finds the object broken, and one that is broken and was never good.
        let mut next = cluster();
        next.adopt(&entries);
        let broken = json!({"podSelecter": {}, "ingres": []});
        next.apply(NETWORK_POLICY.preferred(), &policy("db", broken.clone()));
        next.apply(NETWORK_POLICY.preferred(), &policy("new", broken));
        let read = next.read(&Settings::default());
        assert_eq!(read.kept.iter().map(|one| &**one).collect::<Vec<_>>(), ["NetworkPolicy shop/db"]);
        assert_eq!(read.lowered.snapshot.policies.len(), 2);
        // The third process has the good version from the second.
        let good: Vec<_> = next.stored_texts().into_iter().filter(|one| one.name.contains("NetworkPolicy")).collect();
        let flags: Vec<(&str, bool)> = good.iter().map(|one| (&*one.name, one.is_good)).collect();
        assert_eq!(flags, [("NetworkPolicy shop/db", true), ("NetworkPolicy shop/new", false)]);
        assert!(good[0].text.contains("podSelector") && !good[0].text.contains("podSelecter"));
        // An object that is deleted is not kept.
        let mut last = Store::default();
        last.adopt(&entries);
        assert_eq!(last.read(&Settings::default()).lowered.snapshot.policies.len(), 0);
    }

    #[test]
    fn s10_3_a_state_with_an_unknown_kind_is_not_taken_in_part() {
        let entry = |text: &str| StoredEntry { name: "x".into(), text: text.into(), is_good: true };
        for text in
            ["{", "{}", "[]", r#"{"apiVersion": "v9", "kind": "Pod"}"#, r#"{"apiVersion": "x/v1", "kind": "Y"}"#]
        {
            assert!(Store::of_stored(&[entry(text)]).is_err(), "{text}");
        }
    }
}
