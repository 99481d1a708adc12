//! The objects of a cluster, found by their names and by their addresses.

use super::objects::{ClusterKey, ClusterKind, ClusterObject, ServiceForm, ServiceRecord, SliceRecord};
use namewall_corefile::Kubernetes;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{SystemTime, UNIX_EPOCH};

/// What is known of a cluster. One thread may change it while others answer from it.
#[derive(Debug)]
pub struct ClusterIndex {
    /// Kinds without which nothing is known.
    wanted: Vec<ClusterKind>,
    objects: RwLock<Objects>,
    /// When an object changed last, in seconds: the serial of its zones.
    changed: AtomicU32,
    /// What is answered from until all objects are listed.
    before: RwLock<Option<Before>>,
}

/// An index that has been answered from so far, with the directive that it was for.
#[derive(Clone, Debug)]
pub struct Before {
    pub index: Arc<ClusterIndex>,
    pub directive: Arc<Kubernetes>,
}

#[derive(Debug, Default)]
pub(super) struct Objects {
    listed: BTreeSet<ClusterKind>,
    namespaces: BTreeSet<ClusterKey>,
    services: BTreeMap<ClusterKey, ServiceRecord>,
    slices: BTreeMap<ClusterKey, SliceRecord>,
    pods: BTreeMap<ClusterKey, Vec<IpAddr>>,
    slices_of: FxHashMap<ClusterKey, BTreeSet<ClusterKey>>,
    services_at: FxHashMap<IpAddr, BTreeSet<ClusterKey>>,
    slices_at: FxHashMap<IpAddr, BTreeSet<ClusterKey>>,
    pods_at: FxHashMap<IpAddr, BTreeSet<ClusterKey>>,
}

impl ClusterIndex {
    /// Nothing is known before all of these kinds are listed.
    pub fn new(wanted: Vec<ClusterKind>) -> Self {
        let (objects, before) = (RwLock::default(), RwLock::default());
        Self { wanted, objects, changed: AtomicU32::new(now()), before }
    }

    /// The same. Until all kinds are listed, another index is answered from, if there is one.
    pub fn after(wanted: Vec<ClusterKind>, before: Option<Before>) -> Self {
        Self { before: RwLock::new(before), ..Self::new(wanted) }
    }

    /// What is answered from until all objects are listed.
    pub fn before(&self) -> Option<Before> {
        if self.is_known() {
            return None;
        }
        self.before.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets go of what was answered from before, once all objects are listed. True if names can be answered.
    pub fn settle(&self) -> bool {
        let is_known = self.is_known();
        let mut before = self.before.write().unwrap_or_else(PoisonError::into_inner);
        if is_known {
            *before = None;
        }
        is_known || before.is_some()
    }

    /// True once all objects have been listed. Before, no name can be said not to exist.
    pub fn is_known(&self) -> bool {
        let objects = self.objects();
        self.wanted.iter().all(|kind| objects.listed.contains(kind))
    }

    /// These are all objects of a kind.
    pub fn replace(&self, kind: ClusterKind, all: Vec<(ClusterKey, ClusterObject)>) {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let now: BTreeSet<&ClusterKey> = all.iter().map(|(key, _)| key).collect();
        let gone: Vec<ClusterKey> = objects.keys(kind).filter(|key| !now.contains(key)).cloned().collect();
        gone.iter().for_each(|key| objects.remove(kind, key));
        for (key, object) in all {
            objects.put(key, object);
        }
        objects.listed.insert(kind);
        drop(objects);
        self.touch(kind);
    }

    /// An object is new, has changed, or is gone.
    pub fn set(&self, kind: ClusterKind, key: ClusterKey, object: Option<ClusterObject>) {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        match object {
            Some(object) => objects.put(key, object),
            None => objects.remove(kind, &key),
        }
        drop(objects);
        self.touch(kind);
    }

    fn touch(&self, kind: ClusterKind) {
        if matches!(kind, ClusterKind::Service | ClusterKind::Slice) {
            self.changed.store(now(), Ordering::Relaxed);
        }
    }

    pub(super) fn serial(&self) -> u32 {
        self.changed.load(Ordering::Relaxed)
    }

    pub(super) fn objects(&self) -> RwLockReadGuard<'_, Objects> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32)
}

type At = FxHashMap<IpAddr, BTreeSet<ClusterKey>>;

fn enter(at: &mut At, addresses: impl Iterator<Item = IpAddr>, key: &ClusterKey) {
    addresses.for_each(|address| _ = at.entry(address).or_default().insert(key.clone()));
}

fn leave(at: &mut At, addresses: impl Iterator<Item = IpAddr>, key: &ClusterKey) {
    for address in addresses {
        if let Some(keys) = at.get_mut(&address) {
            keys.remove(key);
            if keys.is_empty() {
                at.remove(&address);
            }
        }
    }
}

fn own_addresses(service: &ServiceRecord) -> impl Iterator<Item = IpAddr> {
    let addresses: &[IpAddr] = match &service.form {
        ServiceForm::Balanced(addresses) => addresses,
        ServiceForm::Headless | ServiceForm::ExternalName(_) => &[],
    };
    addresses.iter().copied()
}

fn service_of(key: &ClusterKey, slice: &SliceRecord) -> ClusterKey {
    ClusterKey { namespace: key.namespace.clone(), name: slice.service.clone() }
}

impl Objects {
    fn keys(&self, kind: ClusterKind) -> Box<dyn Iterator<Item = &ClusterKey> + '_> {
        match kind {
            ClusterKind::Namespace => Box::new(self.namespaces.iter()),
            ClusterKind::Service => Box::new(self.services.keys()),
            ClusterKind::Slice => Box::new(self.slices.keys()),
            ClusterKind::Pod => Box::new(self.pods.keys()),
        }
    }

    fn put(&mut self, key: ClusterKey, object: ClusterObject) {
        self.remove(object.kind(), &key);
        match object {
            ClusterObject::Namespace => _ = self.namespaces.insert(key),
            ClusterObject::Service(service) => {
                enter(&mut self.services_at, own_addresses(&service), &key);
                self.services.insert(key, service);
            }
            ClusterObject::Slice(slice) => {
                enter(&mut self.slices_at, slice.endpoints.iter().map(|one| one.address), &key);
                self.slices_of.entry(service_of(&key, &slice)).or_default().insert(key.clone());
                self.slices.insert(key, slice);
            }
            ClusterObject::Pod(addresses) => {
                enter(&mut self.pods_at, addresses.iter().copied(), &key);
                self.pods.insert(key, addresses);
            }
        }
    }

    fn remove(&mut self, kind: ClusterKind, key: &ClusterKey) {
        match kind {
            ClusterKind::Namespace => _ = self.namespaces.remove(key),
            ClusterKind::Service => {
                if let Some(was) = self.services.remove(key) {
                    leave(&mut self.services_at, own_addresses(&was), key);
                }
            }
            ClusterKind::Slice => {
                if let Some(was) = self.slices.remove(key) {
                    leave(&mut self.slices_at, was.endpoints.iter().map(|one| one.address), key);
                    let service = service_of(key, &was);
                    if let Some(slices) = self.slices_of.get_mut(&service) {
                        slices.remove(key);
                        if slices.is_empty() {
                            self.slices_of.remove(&service);
                        }
                    }
                }
            }
            ClusterKind::Pod => {
                if let Some(was) = self.pods.remove(key) {
                    leave(&mut self.pods_at, was.into_iter(), key);
                }
            }
        }
    }

    pub(super) fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.contains(&ClusterKey { namespace: "".into(), name: name.into() })
    }

    pub(super) fn service(&self, key: &ClusterKey) -> Option<&ServiceRecord> {
        self.services.get(key)
    }

    pub(super) fn slices_of(&self, service: &ClusterKey) -> impl Iterator<Item = &SliceRecord> {
        self.slices_of.get(service).into_iter().flatten().filter_map(|key| self.slices.get(key))
    }

    /// The Services that have an address.
    pub(super) fn services_at(&self, address: IpAddr) -> impl Iterator<Item = &ClusterKey> {
        self.services_at.get(&address).into_iter().flatten()
    }

    /// The slices that list an address, with their namespaces.
    pub(super) fn slices_at(&self, address: IpAddr) -> impl Iterator<Item = (&ClusterKey, &SliceRecord)> {
        let keys = self.slices_at.get(&address).into_iter().flatten();
        keys.filter_map(|key| Some((key, self.slices.get(key)?)))
    }

    pub(super) fn has_pod(&self, namespace: &str, address: IpAddr) -> bool {
        self.pods_at.get(&address).into_iter().flatten().any(|key| *key.namespace == *namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::super::objects::{EndpointRecord, PortRecord};
    use super::*;

    fn key(namespace: &str, name: &str) -> ClusterKey {
        ClusterKey { namespace: namespace.into(), name: name.into() }
    }

    fn slice(service: &str, addresses: &[&str]) -> ClusterObject {
        let endpoint = |text: &&str| EndpointRecord { address: text.parse().unwrap(), host_name: None, target: None };
        let endpoints = addresses.iter().map(endpoint).collect();
        ClusterObject::Slice(SliceRecord { service: service.into(), endpoints, ports: vec![PortRecord::none()] })
    }

    #[test]
    fn an_object_that_changes_or_goes_is_found_nowhere_else() {
        let index = ClusterIndex::new(vec![ClusterKind::Slice]);
        let slices = |service: &str| index.objects().slices_of(&key("shop", service)).count();
        let at = |address: &str| index.objects().slices_at(address.parse().unwrap()).count();
        assert!(!index.is_known());
        index.set(ClusterKind::Slice, key("shop", "web-1"), Some(slice("web", &["10.0.0.1"])));
        assert!(!index.is_known(), "it is not known whether there are more");
        index.replace(ClusterKind::Slice, vec![(key("shop", "web-1"), slice("web", &["10.0.0.2", "10.0.0.3"]))]);
        assert!(index.is_known());
        assert_eq!((slices("web"), at("10.0.0.1"), at("10.0.0.2"), at("10.0.0.3")), (1, 0, 1, 1));
        index.set(ClusterKind::Slice, key("shop", "web-1"), Some(slice("db", &["10.0.0.3"])));
        assert_eq!((slices("web"), slices("db"), at("10.0.0.2"), at("10.0.0.3")), (0, 1, 0, 1));
        index.replace(ClusterKind::Slice, Vec::new());
        assert_eq!((slices("db"), at("10.0.0.3")), (0, 0));
        assert!(index.objects().slices_at.is_empty() && index.objects().slices_of.is_empty());
    }

    #[test]
    fn addresses_of_services_and_pods_follow_them() {
        let index = ClusterIndex::new(Vec::new());
        let address: IpAddr = "10.96.0.1".parse().unwrap();
        let service = ServiceRecord { form: ServiceForm::Balanced(vec![address]), ports: Vec::new() };
        index.set(ClusterKind::Service, key("shop", "web"), Some(ClusterObject::Service(service)));
        assert_eq!(index.objects().services_at(address).count(), 1);
        index.set(ClusterKind::Service, key("shop", "web"), None);
        assert_eq!(index.objects().services_at(address).count(), 0);
        index.set(ClusterKind::Pod, key("shop", "web-1"), Some(ClusterObject::Pod(vec![address])));
        assert!(index.objects().has_pod("shop", address) && !index.objects().has_pod("other", address));
        index.set(ClusterKind::Pod, key("shop", "web-1"), None);
        assert!(!index.objects().has_pod("shop", address));
    }
}
