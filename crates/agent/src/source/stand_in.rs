//! The last good objects of a cluster: stored while it is watched, and enforced
//! in its place while a new process cannot list it (S10.3).

use super::storage::{Storage, StorageSettings, StorageStatus};
use namewall_cluster::kinds::NAMESPACE;
use namewall_cluster::yaml::Node;
use namewall_cluster::{Key, Store, StoreVersions, StoredEntry};
use namewall_kubernetes::Watch;
use namewall_policy::Instant;
use std::time::Duration;
use tracing::{info, warn};

/// How long the API server has to be listed before the stored objects are enforced in its place.
const LISTED_WITHIN: Duration = Duration::from_secs(10);
/// Pods, Services and EndpointSlices are stored after this time at the earliest, and later in large clusters: there
/// may be a hundred thousand.
const FACTS_EVERY: Duration = Duration::from_secs(5);
const FACTS_A_SECOND: usize = 2_000;
/// With more of them none is stored: they would take tens of megabytes of an agent's memory. Policies are stored all
/// the same. Without its pods a cluster is enforced in place of the API server's only where nothing else is enforced:
/// then all of the node's pods are unknown, and closed.
const MOST_FACTS: usize = 20_000;

/// The stored objects of a cluster.
#[derive(Debug, Default)]
pub(crate) struct StandIn {
    storage: Storage,
    /// What an earlier process has stored, until the cluster is known.
    store: Option<Store>,
    /// Whether it has no pods and the like, since there were too many.
    lacks_facts: bool,
    /// Whether it is enforced.
    is_enforced: bool,
    waiting_since: Option<Instant>,
    lost: Option<String>,
    /// Up to where the store was noted.
    noted: StoreVersions,
    pending: Option<Pending>,
    /// Pods and the like as they were stored last, and when they are stored again.
    facts: Vec<StoredEntry>,
    facts_at: Option<Instant>,
    /// How many pods and the like there are, if that is too many to store them.
    too_many: Option<usize>,
}

/// Objects that are to be stored.
#[derive(Debug)]
struct Pending {
    entries: Vec<StoredEntry>,
    /// Whether a policy, a node or a namespace is among those that changed.
    is_urgent: bool,
}

impl StandIn {
    /// Loads what an earlier process has stored of this cluster. Good versions of its objects count from now on for
    /// objects that cannot be read.
    pub(crate) fn load(settings: Option<&StorageSettings>, cluster: &str, watch: &Watch) -> Self {
        let Some(settings) = settings else { return Self::default() };
        let mut own = Self { storage: Storage::new(settings, cluster.to_owned()), ..Self::default() };
        let Some(stored) = own.storage.load() else { return own };
        match Store::of_stored(&stored.entries) {
            Ok(store) => {
                watch.with_store_mut(|known| known.adopt(&stored.entries));
                // Every cluster has pods or Services, if only that of its API server.
                own.lacks_facts = !store.has_facts();
                own.store = Some(store);
            }
            Err(error) => own.lose(error.to_string()),
        }
        own
    }

    fn lose(&mut self, why: String) {
        warn!("{why}; what an earlier process knew to be good is lost");
        self.lost = Some(why);
        self.store = None;
    }

    /// True if the stored objects are to be enforced, since the cluster has not been listed in time. Without pods that
    /// depends on whether they would close anything that is open: they `close` addresses of this node without a pod, if
    /// no rules are in the kernel.
    pub(crate) fn is_due(&mut self, now: Instant, close: impl FnOnce(&Store) -> bool) -> bool {
        let since = *self.waiting_since.get_or_insert(now);
        let Some(store) = self.store.as_ref().filter(|_| now.since(since) >= LISTED_WITHIN) else { return false };
        self.is_enforced = !self.lacks_facts || close(store);
        if self.is_enforced {
            warn!("{}", self.about_standing_in());
        }
        self.is_enforced
    }

    fn about_standing_in(&self) -> &'static str {
        if self.lacks_facts {
            "the API server has not been listed since the start, no pods are stored and no rules were in the kernel: \
             all pods of this node are closed until it can be listed"
        } else {
            "the API server has not been listed since the start; what an earlier process has stored is enforced until \
             it can"
        }
    }

    /// The objects to enforce in place of the cluster's, while that is not known.
    pub(crate) fn store(&mut self) -> Option<&mut Store> {
        self.store.as_mut().filter(|_| self.is_enforced)
    }

    pub(crate) fn stands_in(&self) -> Option<&Store> {
        self.store.as_ref().filter(|_| self.is_enforced)
    }

    /// The cluster is known: it counts from now on. The good versions of another cluster do not.
    pub(crate) fn end(&mut self, watch: &Watch) {
        let Some(store) = self.store.take() else { return };
        if std::mem::take(&mut self.is_enforced) {
            info!("the API server is listed; its objects are enforced again");
        }
        let (stored, now) = (uid(&store), watch.with_store(uid));
        if stored.is_some() && now.is_some() && stored != now {
            watch.with_store_mut(Store::forget_good);
            self.lose("the stored objects are of another cluster".to_owned());
        }
    }

    /// Takes down what is new in a store that was just read. `keep` stores it.
    pub(crate) fn note(&mut self, store: &Store, now: Instant) {
        let versions = store.versions();
        let is_time = self.facts_at.is_none_or(|at| now >= at);
        let has_new_facts = is_time && versions.facts != self.noted.facts;
        let has_new_texts = versions.texts != self.noted.texts;
        if has_new_facts {
            let too_many = Some(store.fact_count()).filter(|count| *count > MOST_FACTS);
            if let Some(count) = too_many.filter(|_| self.too_many.is_none()) {
                warn!("{}", about_left_out(count));
            }
            self.facts = if too_many.is_some() { Vec::new() } else { store.stored_facts() };
            self.too_many = too_many;
            self.facts_at = Some(now + FACTS_EVERY + Duration::from_secs((self.facts.len() / FACTS_A_SECOND) as u64));
            self.noted.facts = versions.facts;
        }
        self.noted.texts = versions.texts;
        if has_new_texts || has_new_facts {
            let entries = store.stored_texts().into_iter().chain(self.facts.iter().cloned()).collect();
            let is_urgent = has_new_texts || self.pending.as_ref().is_some_and(|before| before.is_urgent);
            self.pending = Some(Pending { entries, is_urgent });
        }
    }

    /// Stores what was noted. Policies are stored before they are enforced, if that takes no longer than a moment.
    pub(crate) fn keep(&mut self) {
        match self.pending.take() {
            Some(Pending { entries, is_urgent: true }) => self.storage.save(entries),
            Some(Pending { entries, is_urgent: false }) => self.storage.save_later(entries),
            None => {}
        }
    }

    /// Notes all that is new, at the end of the process.
    pub(crate) fn note_all(&mut self, store: &Store) {
        self.facts_at = None;
        self.note(store, Instant::default());
    }

    /// True if pods and the like have changed since they were stored, and it is time to store them.
    pub(crate) fn owes(&self, versions: StoreVersions, now: Instant) -> bool {
        versions.facts != self.noted.facts && self.facts_at.is_some_and(|at| now >= at)
    }

    pub(crate) fn status(&self) -> StorageStatus {
        let status = self.storage.status();
        let stands_in = self.is_enforced.then(|| self.about_standing_in().to_owned());
        let left_out = self.too_many.map(about_left_out);
        StorageStatus { lost: self.lost.clone().or(status.lost.clone()), left_out, stands_in, ..status }
    }
}

/// The message about a cluster with more pods, Services and EndpointSlices than are stored.
fn about_left_out(count: usize) -> String {
    format!(
        "{count} pods, Services and EndpointSlices are not stored, since {MOST_FACTS} is the most; policies, nodes and \
         namespaces are. An agent that starts without an API server waits for it, with the kernel's rules as they are; \
         where there are none, it closes the node's pods"
    )
}

/// What tells one cluster from another.
fn uid(store: &Store) -> Option<String> {
    let key = Key { namespace: "".into(), name: "kube-system".into() };
    let namespace = store.get(&NAMESPACE, &key)?;
    namespace.node.get("metadata")?.get("uid").and_then(Node::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::super::cluster::pod_cidrs;
    use super::*;
    use namewall_cluster::Settings;
    use namewall_cluster::kinds::{Kind, NETWORK_POLICY, NODE, POD};
    use namewall_kubernetes::testing::FakeServer;
    use namewall_runtime::testing::Simulation;
    use serde_json::{Value, json};
    use std::path::PathBuf;

    const KINDS: [&Kind; 4] = [&NAMESPACE, &NODE, &NETWORK_POLICY, &POD];

    /// A cluster, and the state directory of a node.
    struct World {
        simulation: Simulation,
        server: FakeServer,
        folder: PathBuf,
    }

    impl World {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("namewall-stand-in-{name}-{}", std::process::id()));
            std::fs::remove_dir_all(&folder).ok();
            let mut world = Self::with_server(folder);
            world.put(&NAMESPACE, json!({"metadata": {"name": "kube-system"}}));
            world.put(&POD, pod("db", "10.0.0.2"));
            world.put(&NETWORK_POLICY, policy(json!({"podSelector": {"matchLabels": {"app": "db"}}})));
            world
        }

        fn with_server(folder: PathBuf) -> Self {
            let mut simulation = Simulation::new(1);
            let server = FakeServer::start(&mut simulation);
            Self { simulation, server, folder }
        }

        fn put(&mut self, kind: &'static Kind, object: Value) {
            self.server.put(kind, object);
        }

        /// An agent that starts. It knows the cluster if it is `listed`.
        fn agent(&mut self, is_listed: bool) -> (Watch, StandIn) {
            let (process, clock) = (self.simulation.process(), self.simulation.clock());
            let watch = Watch::start_in(&self.server.environment(&process, clock), KINDS);
            let settings = StorageSettings { folder: self.folder.clone(), table: "namewall".to_owned() };
            let stand_in = StandIn::load(Some(&settings), "cluster https://server/", &watch);
            if is_listed {
                assert!(self.simulation.run_until(Duration::from_secs(60), || watch.is_known()));
            }
            (watch, stand_in)
        }

        /// An agent that reads the cluster, stores it and ends. The number of policies, and of those that are kept.
        fn read(&mut self) -> (usize, usize) {
            let (mut watch, mut stand_in) = self.agent(true);
            stand_in.end(&watch);
            let note = |store: &Store| stand_in.note(store, Instant::default());
            let (read, ()) = watch.read_with(&Settings::default(), note);
            stand_in.keep();
            (read.lowered.snapshot.policies.len(), read.kept.len())
        }
    }

    impl Drop for World {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.folder).ok();
        }
    }

    fn pod(name: &str, address: &str) -> Value {
        json!({
            "metadata": {"namespace": "shop", "name": name, "labels": {"app": name}},
            "spec": {"nodeName": "n1"}, "status": {"phase": "Running", "podIPs": [{"ip": address}]},
        })
    }

    fn policy(spec: Value) -> Value {
        json!({"metadata": {"namespace": "shop", "name": "db"}, "spec": spec})
    }

    fn after(seconds: u64) -> Instant {
        Instant(Duration::from_secs(seconds))
    }

    /// After a reboot: no rules are in the kernel.
    fn close(_: &Store) -> bool {
        true
    }

    #[test]
    fn s10_3_without_an_api_server_the_stored_cluster_is_enforced_until_it_is_listed() {
        let mut world = World::new("away");
        assert_eq!(world.read(), (1, 0));
        let (watch, mut stand_in) = world.agent(false);
        assert!(!watch.is_known() && !stand_in.is_due(after(1), close) && !stand_in.is_due(after(10), close));
        assert!(stand_in.stands_in().is_none(), "the server has its time");
        assert!(stand_in.is_due(after(11), |_| panic!("its pods are stored")));
        let store = stand_in.store().expect("it stands in");
        let read = store.read(&Settings::default()).lowered.snapshot;
        assert_eq!((read.policies.len(), read.pod_count()), (1, 1));
        assert!(stand_in.status().stands_in.is_some());
        // It is known: the stored objects no longer count.
        assert!(world.simulation.run_until(Duration::from_secs(60), || watch.is_known()));
        stand_in.end(&watch);
        assert!(stand_in.store().is_none());
        assert_eq!((stand_in.status().stands_in, stand_in.status().lost), (None, None));
    }

    #[test]
    fn s10_3_an_object_that_a_new_agent_cannot_read_keeps_its_last_good_version() {
        let mut world = World::new("broken");
        assert_eq!(world.read(), (1, 0));
        world.put(&NETWORK_POLICY, policy(json!({"podSelecter": {}})));
        assert_eq!(world.read(), (1, 1));
        assert_eq!(world.read(), (1, 1), "the agent after it has it as well");
        world.put(&NETWORK_POLICY, policy(json!({"podSelector": {}})));
        assert_eq!(world.read(), (1, 0));
    }

    #[test]
    fn s10_3_an_object_that_is_damaged_in_any_way_keeps_its_last_good_version() {
        let expression = json!({"matchExpressions": [{"key": "app", "operator": "Like"}]});
        for (what, damaged) in [
            ("a misspelt field", policy(json!({"podSelecter": {}}))),
            ("a selector that is text", policy(json!({"podSelector": "db"}))),
            ("rules that are text", policy(json!({"podSelector": {}, "ingress": "all"}))),
            ("an unknown operator", policy(json!({"podSelector": expression}))),
            ("an unknown policy type", policy(json!({"podSelector": {}, "policyTypes": ["Ingres"]}))),
            ("a spec that is text", policy(json!("none"))),
            ("a port that is none", policy(json!({"podSelector": {}, "ingress": [{"ports": [{"port": 70_000}]}]}))),
        ] {
            let mut world = World::new("damaged");
            // While an agent runs.
            let (mut watch, mut stand_in) = world.agent(true);
            stand_in.end(&watch);
            let mut read = |world: &mut World| {
                world.simulation.run_for(Duration::from_secs(5));
                let (read, ()) = watch.read_with(&Settings::default(), |store| stand_in.note(store, after(1)));
                stand_in.keep();
                (read.lowered.snapshot.policies.len(), read.kept.len())
            };
            assert_eq!(read(&mut world), (1, 0), "{what}");
            world.put(&NETWORK_POLICY, damaged.clone());
            assert_eq!(read(&mut world), (1, 1), "{what}");
            drop((watch, stand_in));
            // In the agents after it, of which the second has never seen the good one.
            assert_eq!([world.read(), world.read()], [(1, 1), (1, 1)], "{what}");
            // The server is away.
            let (_watch, mut stand_in) = world.agent(false);
            assert!(!stand_in.is_due(after(1), close) && stand_in.is_due(after(11), close));
            let stored = stand_in.store().expect("it stands in").read(&Settings::default());
            // What is stored is the good one.
            assert_eq!((stored.lowered.snapshot.policies.len(), stored.kept.len()), (1, 0), "{what}");
            drop(stand_in);
            world.put(&NETWORK_POLICY, policy(json!({"podSelector": {}})));
            assert_eq!(world.read(), (1, 0), "{what}: it is mended");
        }
    }

    #[test]
    fn s10_3_the_objects_of_another_cluster_do_not_count() {
        let mut world = World::new("other");
        assert_eq!(world.read(), (1, 0));
        let folder = world.folder.clone();
        let mut other = World::with_server(folder);
        // The server numbers objects: its kube-system has another uid.
        other.put(&NETWORK_POLICY, policy(json!({"podSelecter": {}})));
        other.put(&NAMESPACE, json!({"metadata": {"name": "kube-system"}}));
        let (mut watch, mut stand_in) = other.agent(true);
        stand_in.end(&watch);
        assert!(stand_in.status().lost.is_some_and(|text| text.contains("another cluster")));
        assert_eq!(watch.read(&Settings::default()).kept.len(), 0);
    }

    #[test]
    fn s10_3_before_an_agent_has_stored_anything_it_waits_for_the_api_server() {
        let mut world = World::new("first");
        let (_watch, mut stand_in) = world.agent(false);
        assert!(!stand_in.is_due(after(1), close) && !stand_in.is_due(after(1_000), close));
    }

    #[test]
    fn s10_3_a_cluster_with_too_many_pods_stores_its_policies_and_says_that_pods_are_missing() {
        let mut world = World::new("many");
        // One pod is there already.
        (1..MOST_FACTS).for_each(|at| world.put(&POD, pod(&format!("p{at}"), "10.0.0.4")));
        let (mut watch, mut stand_in) = world.agent(true);
        let mut read = |stand_in: &mut StandIn, now| {
            watch.read_with(&Settings::default(), |store| stand_in.note(store, now));
            stand_in.pending.take().map(|pending| pending.entries.len())
        };
        assert_eq!(read(&mut stand_in, after(1)), Some(MOST_FACTS + 2), "all of them are stored");
        assert_eq!(stand_in.status().left_out, None);
        world.put(&POD, pod("one-more", "10.0.0.5"));
        world.simulation.run_for(Duration::from_secs(5));
        assert_eq!(read(&mut stand_in, after(60)), Some(2), "a policy and a namespace");
        let told = stand_in.status().left_out.expect("status says so");
        assert!(told.starts_with("20001 pods, Services and EndpointSlices are not stored"), "{told}");
        world.put(&NODE, json!({"metadata": {"name": "n1"}, "spec": {"podCIDRs": ["10.0.0.0/24"]}}));
        world.simulation.run_for(Duration::from_secs(5));
        watch.read_with(&Settings::default(), |store| stand_in.note(store, after(120)));
        stand_in.keep();
        drop((watch, stand_in));
        // The next agent starts without an API server. It lets rules be that are in the kernel.
        let (_watch, mut stand_in) = world.agent(false);
        assert!(!stand_in.is_due(after(200), close) && !stand_in.is_due(after(211), |_| false));
        assert!(stand_in.store().is_none() && stand_in.status().stands_in.is_none());
        // After a reboot there are none. Of the node's addresses no pod is known, so that all of them are closed.
        assert!(stand_in.is_due(after(212), |store| pod_cidrs(store, "n1") == ["10.0.0.0/24".parse().unwrap()]));
        let read = stand_in.store().expect("it stands in").read(&Settings::default()).lowered.snapshot;
        assert_eq!((read.policies.len(), read.pod_count(), read.nodes.len()), (1, 0, 1));
        let told = stand_in.status().stands_in.expect("status says so");
        assert!(told.contains("all pods of this node are closed"), "{told}");
    }

    #[test]
    fn pods_are_stored_now_and_then_and_policies_at_once() {
        let mut world = World::new("often");
        let (mut watch, mut stand_in) = world.agent(true);
        let mut read = |stand_in: &mut StandIn, now| {
            watch.read_with(&Settings::default(), |store| stand_in.note(store, now));
            stand_in.pending.take().map(|pending| (pending.entries.len(), pending.is_urgent))
        };
        assert_eq!(read(&mut stand_in, after(1)), Some((3, true)));
        assert_eq!(read(&mut stand_in, after(1)), None, "nothing is new");
        world.put(&POD, pod("web", "10.0.0.3"));
        world.simulation.run_for(Duration::from_secs(5));
        assert_eq!(read(&mut stand_in, after(2)), None, "it is too early");
        assert_eq!(read(&mut stand_in, after(7)), Some((4, false)));
    }
}
