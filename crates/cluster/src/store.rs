//! The objects of a watched cluster, as they are now.

use crate::attached::PodAddresses;
use crate::document::Document;
use crate::facts::{Fact, Facts};
use crate::kept::{LastGood, Read, Remarks};
use crate::kinds::{DNS_NAME_RESOLVER, Kind, Reader, VersionedKind, read_pod, read_service, read_slice};
use crate::lean::lean;
use crate::live::Live;
use crate::lower::{Described, DescribedService, Endpoints, Lowered, Pool, Settings, object_name};
use crate::record::Text;
use crate::yaml::{Node, Value};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An object within its kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// Empty where the kind has none.
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Key {
    pub fn of(object: &Json) -> Self {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().into();
        Self { namespace: text("namespace"), name: text("name") }
    }
}

/// An object as far as it is kept.
#[derive(Debug)]
enum Object {
    Text(Text),
    Pod(Fact<Described>),
    Service(Fact<DescribedService>),
    Slice(Fact<Endpoints>),
}

impl Object {
    fn read(versioned: VersionedKind, object: &Json, pool: &mut Pool) -> Self {
        let document = document(versioned, object);
        let mut findings = Vec::new();
        // Objects from the API server have no source position.
        match versioned.kind.reader {
            Reader::Pod => {
                let mut now = read_pod(&document, &mut findings, pool);
                now.iter_mut().for_each(|pod| pod.source = None);
                Self::Pod(Fact::new(now, findings))
            }
            Reader::Service => {
                let mut now = read_service(&document, &mut findings);
                now.source = None;
                Self::Service(Fact::new(Some(now), findings))
            }
            Reader::EndpointSlice => {
                let now = read_slice(&document, &mut findings);
                Self::Slice(Fact::new(now, findings))
            }
            _ => Self::Text(Text::of(&document)),
        }
    }

    /// The key, of texts that the object holds anyway. None if it does not hold them.
    fn key(&self) -> Option<Key> {
        let of = |(namespace, name): (&Arc<str>, &Arc<str>)| Key { namespace: namespace.clone(), name: name.clone() };
        match self {
            Self::Pod(fact) => fact.now.as_ref().map(|pod| of((&pod.namespace, &pod.name))),
            Self::Service(fact) => fact.now.as_ref().map(|service| of((&service.namespace, &service.name))),
            Self::Slice(_) | Self::Text(_) => None,
        }
    }
}

/// All objects of a kind, on their way into a [`Store`].
#[derive(Debug)]
pub struct Listing {
    versioned: VersionedKind,
    pool: Pool,
    objects: Vec<(Key, Object)>,
}

impl Listing {
    pub fn new(versioned: VersionedKind) -> Self {
        Self { versioned, pool: Pool::default(), objects: Vec::new() }
    }

    pub fn kind(&self) -> &'static Kind {
        self.versioned.kind
    }

    pub fn push(&mut self, object: &Json) {
        let read = Object::read(self.versioned, object, &mut self.pool);
        self.objects.push((read.key().unwrap_or_else(|| Key::of(object)), read));
    }
}

/// The objects of a cluster, by kind. Watches feed it. Its methods return whether an object changed in a field that
/// is looked at.
#[derive(Debug, Default)]
pub struct Store {
    texts: BTreeMap<&'static Kind, BTreeMap<Key, Text>>,
    facts: Facts,
    pool: Pool,
    last_good: LastGood<Text>,
    /// What was read last, and what was told with it; none if it must be read anew.
    live: Option<(Live, Remarks)>,
    /// Services whose endpoints have changed since.
    touched: BTreeSet<Key>,
    /// How often an object that is kept as text has changed, and how often another.
    versions: StoreVersions,
}

/// Numbers that change with the objects of a [`Store`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct StoreVersions {
    /// Policies, nodes, namespaces and the like.
    pub texts: u64,
    /// Pods, Services and EndpointSlices.
    pub facts: u64,
}

impl Store {
    /// Adds or replaces an object.
    pub fn apply(&mut self, versioned: VersionedKind, object: &Json) -> bool {
        if self.pool.is_overgrown() {
            self.pool = Pool::of(self.facts.pods.all());
        }
        let read = Object::read(versioned, object, &mut self.pool);
        self.put(versioned.kind, read.key().unwrap_or_else(|| Key::of(object)), read)
    }

    fn put(&mut self, kind: &'static Kind, key: Key, object: Object) -> bool {
        let is_new = self.insert(kind, key, object);
        self.count_change(kind, is_new);
        is_new
    }

    fn count_change(&mut self, kind: &Kind, is_new: bool) {
        match kind.reader {
            Reader::Pod | Reader::Service | Reader::EndpointSlice => self.versions.facts += u64::from(is_new),
            _ => self.versions.texts += u64::from(is_new && is_read(kind)),
        }
    }

    /// Changes with every change of an object.
    pub fn versions(&self) -> StoreVersions {
        self.versions
    }

    fn insert(&mut self, kind: &'static Kind, key: Key, object: Object) -> bool {
        match object {
            Object::Pod(fact) => self.facts.pods.put(key, fact),
            Object::Service(fact) => {
                let is_new = self.facts.services.put(key, fact);
                self.live.take_if(|_| is_new);
                is_new
            }
            Object::Slice(fact) => {
                let now = fact
                    .now
                    .as_deref()
                    .into_iter()
                    .chain(self.facts.slices.objects.get(&key).and_then(|one| one.now.as_deref()));
                let of: Vec<Key> = now.map(service_key).collect();
                let is_new = self.facts.slices.put(key, fact);
                if is_new {
                    of.into_iter().for_each(|service| self.touch(service));
                }
                is_new
            }
            Object::Text(text) => {
                let objects = self.texts.entry(kind).or_default();
                if objects.get(&key) == Some(&text) {
                    return false;
                }
                objects.insert(key, text);
                self.live.take_if(|_| is_read(kind));
                true
            }
        }
    }

    fn touch(&mut self, service: Key) {
        // What the API server's addresses are, policies may ask (S7.3).
        self.live.take_if(|_| (&*service.namespace, &*service.name) == ("default", "kubernetes"));
        self.touched.insert(service);
    }

    pub fn remove(&mut self, kind: &'static Kind, key: &Key) -> bool {
        let has_gone = self.take_out(kind, key);
        self.count_change(kind, has_gone);
        has_gone
    }

    fn take_out(&mut self, kind: &'static Kind, key: &Key) -> bool {
        match kind.reader {
            Reader::Pod => {
                self.facts.pods.objects.contains_key(key) && {
                    self.facts.pods.remove(key);
                    true
                }
            }
            Reader::Service => {
                self.facts.services.objects.contains_key(key) && {
                    self.facts.services.remove(key);
                    self.live = None;
                    true
                }
            }
            Reader::EndpointSlice => {
                self.facts.slices.objects.contains_key(key) && {
                    let was = self.facts.slices.remove(key);
                    was.as_deref().into_iter().map(service_key).for_each(|service| self.touch(service));
                    true
                }
            }
            _ => {
                let has_gone = self.texts.get_mut(kind).is_some_and(|objects| objects.remove(key).is_some());
                self.live.take_if(|_| has_gone && is_read(kind));
                has_gone
            }
        }
    }

    /// Replaces all objects of a kind. Those that are not in the list are gone.
    pub fn replace(&mut self, listing: Listing) -> bool {
        let kind = listing.kind();
        let Listing { pool, objects, .. } = listing;
        let now: BTreeSet<&Key> = objects.iter().map(|(key, _)| key).collect();
        let gone: Vec<Key> = self.keys(kind).filter(|key| !now.contains(key)).cloned().collect();
        let mut changed = !gone.is_empty();
        gone.iter().for_each(|key| _ = self.remove(kind, key));
        if matches!(kind.reader, Reader::Pod) {
            self.pool = pool;
        }
        for (key, object) in objects {
            changed |= self.put(kind, key, object);
        }
        changed
    }

    /// The keys of all objects of a kind.
    pub fn keys(&self, kind: &'static Kind) -> Box<dyn Iterator<Item = &Key> + '_> {
        match kind.reader {
            Reader::Pod => Box::new(self.facts.pods.objects.keys()),
            Reader::Service => Box::new(self.facts.services.objects.keys()),
            Reader::EndpointSlice => Box::new(self.facts.slices.objects.keys()),
            _ => Box::new(self.texts.get(kind).into_iter().flat_map(BTreeMap::keys)),
        }
    }

    /// Takes the addresses that this node's runtime has given its pods, in place of those before. They count until the
    /// status of a pod says otherwise (S1.9).
    pub fn attach(&mut self, pods: &[PodAddresses]) -> bool {
        let Facts { pods: known, attached, .. } = &mut self.facts;
        let changed = attached.replace(pods, |key| known.objects.get(key)?.now.as_deref());
        let known = changed.into_iter().filter(|key| self.facts.pods.objects.contains_key(key));
        let known: Vec<Key> = known.collect();
        let is_new = !known.is_empty();
        self.facts.pods.changed.extend(known);
        is_new
    }

    /// The pods that have the addresses that the runtime has given them.
    pub fn attached(&self) -> impl Iterator<Item = &Key> {
        let Facts { pods, attached, .. } = &self.facts;
        attached.counting(|key| pods.objects.get(key)?.now.as_deref())
    }

    /// The pods that have not ended.
    pub fn pods(&self) -> impl Iterator<Item = &Described> {
        self.facts.pods.all()
    }

    pub fn service(&self, key: &Key) -> Option<&DescribedService> {
        self.facts.services.objects.get(key)?.now.as_deref()
    }

    /// What objects list for a Service.
    pub fn endpoints_of<'a>(&'a self, namespace: &'a str, service: &'a str) -> Vec<&'a Endpoints> {
        self.facts.endpoints_of(namespace, service)
    }

    /// Whether there is any object of a kind.
    pub fn has(&self, kind: &'static Kind) -> bool {
        self.keys(kind).next().is_some()
    }

    /// How many objects of a kind there are.
    pub fn count_of(&self, kind: &'static Kind) -> usize {
        match kind.reader {
            Reader::Pod => self.facts.pods.objects.len(),
            Reader::Service => self.facts.services.objects.len(),
            Reader::EndpointSlice => self.facts.slices.objects.len(),
            _ => self.texts.get(kind).map_or(0, BTreeMap::len),
        }
    }

    /// An object that is kept as text, read again. Pods, Services and EndpointSlices are not kept as text.
    pub fn get(&self, kind: &'static Kind, key: &Key) -> Option<Document> {
        self.texts.get(kind)?.get(key).map(Text::read)
    }

    /// All objects of a kind that is kept as text. Each is read again when the iterator reaches it.
    pub fn of(&self, kind: &'static Kind) -> impl Iterator<Item = (&Key, Document)> {
        self.texts.get(kind).into_iter().flatten().map(|(key, text)| (key, text.read()))
    }

    /// A digest of all objects of a kind, each as it was last made and changed: two who have the same have the same objects.
    pub fn digest(&self, kind: &'static Kind) -> String {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let mut add = |bytes: &[u8]| {
            for byte in bytes.iter().chain(b"/") {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for (key, document) in self.of(kind) {
            add(key.namespace.as_bytes());
            add(key.name.as_bytes());
            let metadata = |field| document.node.get("metadata").and_then(|metadata| metadata.get(field));
            // Generations of an object that was deleted and made anew begin again.
            add(metadata("uid").and_then(Node::as_str).unwrap_or_default().as_bytes());
            if let Some(Node { value: Value::Int(number), .. }) = metadata("generation") {
                add(&number.to_be_bytes());
            }
        }
        format!("{hash:016x}")
    }

    pub fn count(&self) -> usize {
        self.texts.values().map(BTreeMap::len).sum::<usize>() + self.facts.count()
    }

    /// What the objects say. A policy with an error keeps its last good version.
    pub fn read(&mut self, settings: &Settings) -> Read {
        let touched = std::mem::take(&mut self.touched);
        let mut known = self.live.take().filter(|(live, _)| live.settings == *settings);
        if let Some((live, _)) = &mut known
            && !live.follow(&mut self.facts, touched)
        {
            known = None;
        }
        let (live, told) = known.unwrap_or_else(|| self.read_anew(settings));
        let mut now = told.clone();
        self.facts.tell(&mut now.findings);
        let lowered = Lowered { snapshot: live.snapshot.clone(), ..Lowered::default() };
        self.live = Some((live, told));
        Read { lowered, findings: now.findings, kept: now.kept }
    }

    /// The objects that the Snapshot depends on and that are kept as text.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &Text> {
        self.texts.iter().filter(|(kind, _)| is_read(kind)).flat_map(|(_, objects)| objects.values())
    }

    pub(crate) fn last_good_of(&self, object: &str) -> Option<&Text> {
        self.last_good.of(object)?.first()
    }

    pub(crate) fn adopt_texts(&mut self, good: Vec<Text>) {
        self.last_good.adopt(good);
    }

    /// How many pods, Services and EndpointSlices there are.
    pub fn fact_count(&self) -> usize {
        self.facts.count()
    }

    /// True if there is a pod, a Service or an EndpointSlice.
    pub fn has_facts(&self) -> bool {
        self.fact_count() > 0
    }

    /// Forgets the good versions that were adopted.
    pub fn forget_good(&mut self) {
        self.last_good = LastGood::default();
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read_anew(&mut self, settings: &Settings) -> (Live, Remarks) {
        let kinds = self.texts.iter().filter(|(kind, _)| is_read(kind));
        let texts = kinds.flat_map(|(_, objects)| objects.values()).cloned();
        let Read { lowered, findings, kept } = self.last_good.lower(texts, Vec::new(), settings);
        let live = Live::new(settings.clone(), lowered.snapshot, &mut self.facts, &mut self.pool);
        (live, Remarks { findings, kept })
    }
}

/// True if the Snapshot depends on objects of a kind. Names that other nodes have learned become leases, by a way of
/// their own.
fn is_read(kind: &Kind) -> bool {
    *kind != DNS_NAME_RESOLVER
}

fn service_key(endpoints: &Endpoints) -> Key {
    Key { namespace: endpoints.namespace.clone(), name: endpoints.service.clone() }
}

/// The document of an object. The items of a list need not have an apiVersion and a kind.
fn document(versioned: VersionedKind, object: &Json) -> Document {
    let kind = versioned.kind;
    let mut node = lean(kind, object);
    for (key, text) in [("apiVersion", versioned.api_version().as_str()), ("kind", kind.name)] {
        if let Some(field) = node.entry(key).filter(|field| field.is_null()) {
            *field = Node::string(text);
        }
    }
    let mut document = Document::new(&Arc::from(""), node);
    document.file = object_name(&document, kind.name).into();
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{CLUSTER_EGRESS_FIREWALL, POD};
    use serde_json::json;

    /// S10.1: who spoils his pod does not take it out of its policies.
    #[test]
    fn s10_1_a_pod_with_an_error_counts_as_far_as_it_can_be_read() {
        let mut store = Store::default();
        let mut pod = json!({"metadata": {"namespace": "shop", "name": "web"}, "status": {"phase": "Pending"}});
        store.apply(POD.preferred(), &pod);
        store.read(&Settings::default());
        pod["metadata"]["annotations"] = json!({"k8s.v1.cni.cncf.io/network-status": "{"});
        pod["status"] = json!({"phase": "Running", "podIP": "10.0.0.7"});
        assert!(store.apply(POD.preferred(), &pod));
        let read = store.read(&Settings::default());
        assert_eq!(read.lowered.snapshot.workloads[0].addresses.len(), 1);
        assert_eq!((read.findings.len(), read.kept.len()), (1, 0));
    }

    /// A node that enforces a deleted object does not enforce the new one of the same name and generation.
    #[test]
    fn an_object_that_was_made_anew_has_another_digest() {
        let digest = |uid: &str| {
            let mut store = Store::default();
            let metadata = json!({"name": "no-metadata", "generation": 1, "uid": uid});
            store.apply(CLUSTER_EGRESS_FIREWALL.preferred(), &json!({"metadata": metadata, "spec": {"priority": 1}}));
            store.digest(&CLUSTER_EGRESS_FIREWALL)
        };
        assert_eq!(digest("8f2a"), digest("8f2a"));
        assert_ne!(digest("8f2a"), digest("91c3"));
    }

    #[test]
    fn what_nobody_has_any_more_is_let_go() {
        let mut store = Store::default();
        store.read(&Settings::default());
        for number in 0..60_000 {
            let metadata = json!({"namespace": "jobs", "name": "job", "labels": {"job": number.to_string()}});
            store.apply(POD.preferred(), &json!({"metadata": metadata}));
        }
        assert!(!store.pool.is_overgrown());
        assert_eq!((store.count(), store.pods().count()), (1, 1));
    }
}
