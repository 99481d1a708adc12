//! The attachments of this node's pods, shared by the loop and the control socket.

use namewall_cluster::{Key, PodAddresses, PodUid};
use namewall_cni::{Attachment, AttachmentId, HostLink, Mac, Records};
use namewall_dataplane::guard::link_local;
use namewall_dataplane::netlink::PodSockets;
use namewall_dataplane::nft::rule::Hardware;
use namewall_dataplane::{PodInterface, PodNamespace, SecondStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tracing::{error, info};

/// More than any node has pods.
const MOST: usize = 4096;
/// The longest time that a plugin may wait.
const LONGEST_WAIT: Duration = Duration::from_secs(100);

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AttachError {
    #[error("there are {MOST} attachments on this node already")]
    TooMany,
    #[error("pod {pod} with uid {uid} is not known here after {seconds} s: no object of the API server and no manifest has it, or one has it with other addresses{}", because(.why))]
    NotKnown { pod: String, uid: String, seconds: u64, why: Option<String> },
    #[error("it was detached meanwhile")]
    Gone,
    #[error("the second interfaces of pod {pod} cannot be enforced: {why}")]
    Inside { pod: String, why: String },
}

fn because(why: &Option<String>) -> String {
    why.as_ref().map(|why| format!("; the last change failed: {why}")).unwrap_or_default()
}

/// Wakes the loop.
pub(crate) type Wake = Box<dyn Fn() + Send + Sync>;

#[derive(Debug)]
struct Entry {
    attachment: Attachment,
    /// The version of the list that it came with.
    since: u64,
    /// False if it was read from a record.
    is_new: bool,
    is_enforced: bool,
    /// Sockets of the pod's network namespace; None if nobody has passed any.
    sockets: Option<Arc<Mutex<PodSockets>>>,
    /// Whether this process has tried to open some.
    was_tried: bool,
}

#[derive(Default, Debug)]
struct Known {
    entries: BTreeMap<AttachmentId, Entry>,
    /// Grows with every change.
    version: u64,
    /// The version that the loop has taken.
    taken: u64,
    /// Records that could not be read.
    unreadable: Vec<String>,
    /// Why the last change failed.
    failure: Option<String>,
    /// Sockets were passed since `take_reached` was called.
    has_reached: bool,
    /// Why the second interfaces of a container's pod are not enforced, by container.
    inside: BTreeMap<String, String>,
}

#[derive(Default)]
pub(crate) struct Attachments {
    known: Mutex<Known>,
    changed: Condvar,
    wake: OnceLock<Wake>,
}

/// How many there are, for `status`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Summary {
    pub(crate) known: usize,
    pub(crate) enforced: usize,
    /// Those of which the host's end is known.
    pub(crate) interfaces: usize,
    pub(crate) unreadable: Vec<String>,
}

impl Attachments {
    /// Those of which there are records. A record that cannot be read is logged and shown by `status`.
    pub(crate) fn load(records: &Records) -> Self {
        let mut known = Known::default();
        match records.load() {
            Ok((attachments, unreadable)) => {
                known.unreadable.extend(unreadable.iter().map(ToString::to_string));
                attachments.into_iter().for_each(|attachment| known.put(attachment, false));
            }
            Err(error) => known.unreadable.push(crate::error::with_causes(&error)),
        }
        known.unreadable.iter().for_each(|what| error!("{what}"));
        if !known.entries.is_empty() {
            info!(attachments = known.entries.len(), "read the records of pods' interfaces");
        }
        Self { known: Mutex::new(known), ..Self::default() }
    }

    /// What ends the loop's wait for other changes.
    pub(crate) fn set_wake(&self, wake: Wake) {
        let _ = self.wake.set(wake);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// Adds one and waits until the kernel enforces it, for this long at most. Then it is taken back.
    pub(crate) fn attach(
        &self,
        attachment: Attachment,
        sockets: Option<PodSockets>,
        patience: Duration,
    ) -> Result<(), AttachError> {
        let (id, patience) = (attachment.id.clone(), patience.min(LONGEST_WAIT));
        let Attachment { namespace, name, uid, .. } = &attachment;
        let (pod, uid) = (format!("{namespace}/{name}"), uid.clone());
        let mut known = self.lock();
        if known.entries.len() >= MOST && !known.entries.contains_key(&id) {
            return Err(AttachError::TooMany);
        }
        known.put(attachment, true);
        if let Some(entry) = known.entries.get_mut(&id) {
            entry.sockets = sockets.map(|sockets| Arc::new(Mutex::new(sockets)));
        }
        let since = known.version;
        drop(known);
        self.wake();
        let is_waiting = |known: &mut Known| known.entries.get(&id).is_some_and(|entry| !entry.is_enforced);
        let waited = self.changed.wait_timeout_while(self.lock(), patience, is_waiting);
        let (mut known, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match known.entries.get(&id) {
            None => Err(AttachError::Gone),
            Some(entry) if entry.is_enforced => Ok(()),
            Some(entry) => {
                // Another call for the same one may have come later.
                if entry.since == since {
                    known.remove(&id);
                }
                let (seconds, why) = (patience.as_secs(), known.failure.clone());
                let inside = known.inside.get(&id.container).cloned();
                drop(known);
                self.wake();
                if let Some(why) = inside {
                    return Err(AttachError::Inside { pod, why });
                }
                Err(AttachError::NotKnown { pod, uid, seconds, why })
            }
        }
    }

    /// Removes one. Its addresses are closed with the next change.
    pub(crate) fn detach(&self, id: &AttachmentId) -> bool {
        let is_known = self.lock().remove(id);
        self.changed.notify_all();
        self.wake();
        is_known
    }

    /// Whether the kernel enforces it.
    pub(crate) fn is_enforced(&self, id: &AttachmentId) -> bool {
        self.lock().entries.get(id).is_some_and(|entry| entry.is_enforced)
    }

    /// Whether there is anything that the loop has not taken.
    pub(crate) fn has_changed(&self) -> bool {
        let known = self.lock();
        known.version != known.taken
    }

    /// The addresses of all pods, if anything has changed since they were last taken. Of several attachments of a pod the
    /// newest counts.
    pub(crate) fn take(&self) -> Option<Vec<PodAddresses>> {
        let mut known = self.lock();
        if known.version == known.taken {
            return None;
        }
        known.taken = known.version;
        let mut own: Vec<&Entry> = known.entries.values().filter(|entry| entry.attachment.is_own()).collect();
        own.sort_by_key(|entry| entry.since);
        let newest: BTreeMap<Key, &Entry> = own.into_iter().map(|entry| (pod_of(&entry.attachment), entry)).collect();
        let addresses = newest.into_iter().map(|(pod, entry)| PodAddresses {
            pod,
            uid: PodUid::of(&entry.attachment.uid),
            addresses: entry.attachment.addresses.as_slice().into(),
            link_local: entry.attachment.mac.map(|Mac(bytes)| link_local(Hardware(bytes))),
            is_new: entry.is_new,
        });
        Some(addresses.collect())
    }

    /// What was taken is in force; these pods have the addresses that they were given. Second networks give a pod no
    /// addresses to wait for.
    pub(crate) fn enforced(&self, pods: &BTreeSet<Key>) {
        let mut known = self.lock();
        let known = &mut *known;
        let (taken, inside) = (known.taken, &known.inside);
        known.failure = None;
        for entry in known.entries.values_mut().filter(|entry| entry.since <= taken) {
            let has_addresses = !entry.attachment.is_own() || pods.contains(&pod_of(&entry.attachment));
            // A pod that runs is not taken back for what fails later.
            let is_inside = !inside.contains_key(&entry.attachment.id.container) || entry.is_enforced;
            entry.is_enforced = has_addresses && is_inside;
        }
        self.changed.notify_all();
    }

    /// What became of the tables inside pods' network namespaces.
    pub(crate) fn enforced_inside(&self, pods: &[SecondStatus]) {
        let failed = pods.iter().filter_map(|pod| Some((pod.id.clone(), pod.failure.clone()?)));
        let (mut known, failed) = (self.lock(), failed.collect::<BTreeMap<_, _>>());
        // A plugin may wait for what did not succeed at once: the loop then says that it is enforced.
        known.version += u64::from(known.inside.keys().any(|id| !failed.contains_key(id)));
        known.inside = failed;
    }

    /// The network namespaces that can be reached. A container has one, and its own interface says which pod it is.
    pub(crate) fn namespaces(&self) -> Vec<PodNamespace> {
        let known = self.lock();
        let own = known.entries.values().filter(|entry| entry.attachment.is_own());
        let reached = own.filter_map(|entry| {
            let Attachment { id, namespace, name, addresses, .. } = &entry.attachment;
            let of_container = known.entries.values().filter(|other| other.attachment.id.container == id.container);
            // The first: the kernel lets only the sockets that made a table change it.
            let first = of_container.filter(|other| other.sockets.is_some()).min_by_key(|other| other.since)?;
            Some(PodNamespace {
                id: id.container.clone(),
                pod: format!("{namespace}/{name}"),
                own: id.interface.clone(),
                addresses: addresses.clone(),
                has_table: !entry.is_new && entry.attachment.is_inside,
                last_seen: None,
                extra: Vec::new(),
                sockets: first.sockets.clone()?,
            })
        });
        reached.collect()
    }

    /// The containers whose network namespace nobody has passed sockets of, and where it is.
    pub(crate) fn unreached(&self) -> Vec<(AttachmentId, PathBuf)> {
        let known = self.lock();
        let own = known.entries.values().filter(|entry| entry.attachment.is_own());
        let is_reached = |container: &str| {
            known.entries.values().any(|other| other.attachment.id.container == container && other.sockets.is_some())
        };
        own.filter(|entry| !is_reached(&entry.attachment.id.container))
            .map(|entry| (entry.attachment.id.clone(), entry.attachment.netns.clone()))
            .collect()
    }

    /// Takes sockets of the namespace of an attachment that is known. False if it is not.
    pub(crate) fn reach(&self, id: &AttachmentId, sockets: PodSockets) -> bool {
        let mut known = self.lock();
        let Some(entry) = known.entries.get_mut(id) else { return false };
        entry.sockets = Some(Arc::new(Mutex::new(sockets)));
        known.has_reached = true;
        drop(known);
        self.wake();
        true
    }

    /// The namespaces that are not reached, and that this process has not tried to enter.
    pub(crate) fn untried(&self) -> Vec<(AttachmentId, PathBuf)> {
        let unreached = self.unreached();
        let mut known = self.lock();
        let mut is_new = |id: &AttachmentId| {
            known.entries.get_mut(id).is_some_and(|entry| !std::mem::replace(&mut entry.was_tried, true))
        };
        unreached.into_iter().filter(|(id, _)| is_new(id)).collect()
    }

    /// True if sockets were passed with `reach` since this was last asked.
    pub(crate) fn take_reached(&self) -> bool {
        std::mem::take(&mut self.lock().has_reached)
    }

    /// What was taken is not in force, and will be tried again.
    pub(crate) fn failed(&self, why: &str) {
        self.lock().failure = Some(why.to_owned());
    }

    /// The interfaces of the host that lead to pods. Where two attachments name one interface, the newer counts. Those of
    /// second networks are left out: their addresses are in no policy's map, so the guard would prove nothing.
    pub(crate) fn interfaces(&self) -> Vec<PodInterface> {
        let known = self.lock();
        let mut entries: Vec<&Entry> = known.entries.values().filter(|entry| entry.attachment.is_own()).collect();
        entries.sort_by_key(|entry| entry.since);
        let mut by_name = BTreeMap::new();
        for Entry { attachment: Attachment { host, mac, addresses, .. }, .. } in entries {
            let Some(HostLink { name, index }) = host.clone() else { continue };
            let (hardware, addresses) = (mac.map(|Mac(bytes)| Hardware(bytes)), addresses.clone());
            let interface = PodInterface {
                name,
                index,
                hardware,
                addresses,
                extra: Vec::new(),
                is_shared: false,
                hears_groups: false,
            };
            by_name.insert(interface.name.clone(), interface);
        }
        by_name.into_values().collect()
    }

    pub(crate) fn summary(&self) -> Summary {
        let known = self.lock();
        let count = |is_it: fn(&Entry) -> bool| known.entries.values().filter(|entry| is_it(entry)).count();
        Summary {
            known: known.entries.len(),
            enforced: count(|entry| entry.is_enforced),
            interfaces: count(|entry| entry.attachment.host.is_some()),
            unreadable: known.unreadable.clone(),
        }
    }
}

impl std::fmt::Debug for Attachments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attachments").field("known", &self.known).finish_non_exhaustive()
    }
}

impl Known {
    fn put(&mut self, attachment: Attachment, is_new: bool) {
        self.version += 1;
        let entry =
            Entry { since: self.version, is_new, is_enforced: false, sockets: None, was_tried: false, attachment };
        self.entries.insert(entry.attachment.id.clone(), entry);
    }

    fn remove(&mut self, id: &AttachmentId) -> bool {
        let is_known = self.entries.remove(id).is_some();
        self.version += u64::from(is_known);
        is_known
    }
}

fn pod_of(attachment: &Attachment) -> Key {
    Key { namespace: attachment.namespace.as_str().into(), name: attachment.name.as_str().into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;
    use std::thread;

    const SOON: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);

    fn attachment(container: &str, interface: &str, address: [u8; 4]) -> Attachment {
        Attachment {
            id: AttachmentId { container: container.to_owned(), interface: interface.to_owned() },
            network: "pods".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: "u1".to_owned(),
            netns: "/run/netns/a".into(),
            host: Some(HostLink { name: format!("veth{container}"), index: 7 }),
            mac: None,
            addresses: vec![address.into()],
            is_inside: false,
        }
    }

    fn web() -> BTreeSet<Key> {
        BTreeSet::from([Key { namespace: "shop".into(), name: "web".into() }])
    }

    /// Attaches in a thread of its own, which waits while the test plays the part of the loop.
    fn attach(all: &Arc<Attachments>, one: Attachment) -> thread::JoinHandle<Result<(), AttachError>> {
        let (waiting, version) = (all.clone(), all.lock().version);
        let thread = thread::spawn(move || waiting.attach(one, None, LONG));
        while all.lock().version == version {
            thread::yield_now();
        }
        thread
    }

    #[test]
    fn s1_9_attach_returns_when_what_was_taken_with_it_is_enforced() {
        let all = Arc::new(Attachments::default());
        let waiting = attach(&all, attachment("a", "eth0", [10, 0, 0, 7]));
        assert!(all.has_changed());
        // A change that was under way before does not contain it.
        all.enforced(&web());
        assert!(!all.is_enforced(&attachment("a", "eth0", [0; 4]).id));
        let taken = all.take().expect("there is something new");
        assert_eq!((taken.len(), taken[0].is_new), (1, true));
        assert!(all.take().is_none() && !all.has_changed());
        // The pod is not known yet.
        all.enforced(&BTreeSet::new());
        assert!(!waiting.is_finished());
        all.enforced(&web());
        assert_eq!(waiting.join().expect("it ends well"), Ok(()));
        assert!(all.is_enforced(&attachment("a", "eth0", [0; 4]).id));
    }

    #[test]
    fn s1_9_a_pod_that_never_comes_is_refused_and_taken_back() {
        let all = Attachments::default();
        all.failed("no room");
        let error = all.attach(attachment("a", "eth0", [10, 0, 0, 7]), None, SOON).expect_err("nobody enforces it");
        let text = error.to_string();
        assert!(text.contains("pod shop/web with uid u1 is not known here") && text.contains("no room"), "{text}");
        assert_eq!(all.take().expect("it went").len(), 0);
    }

    #[test]
    fn s1_9_who_is_detached_meanwhile_is_refused() {
        let all = Arc::new(Attachments::default());
        let waiting = attach(&all, attachment("a", "eth0", [10, 0, 0, 7]));
        assert!(all.detach(&attachment("a", "eth0", [0; 4]).id));
        assert_eq!(waiting.join().expect("it ends well"), Err(AttachError::Gone));
        assert!(!all.detach(&attachment("a", "eth0", [0; 4]).id));
    }

    #[test]
    fn s1_9_of_two_sandboxes_of_a_pod_the_newer_counts_and_second_networks_never() {
        let all = Arc::new(Attachments::default());
        let first = attach(&all, attachment("b", "eth0", [10, 0, 0, 6]));
        let second = attach(&all, attachment("a", "eth0", [10, 0, 0, 7]));
        let other = attach(&all, attachment("a", "net1", [172, 16, 0, 7]));
        let taken = all.take().expect("there is something new");
        assert_eq!(
            taken.iter().map(|one| one.addresses.to_vec()).collect::<Vec<_>>(),
            [vec![IpAddr::from([10, 0, 0, 7])]]
        );
        all.enforced(&web());
        for waiting in [first, second, other] {
            assert_eq!(waiting.join().expect("it ends well"), Ok(()));
        }
        assert_eq!(all.interfaces().len(), 2, "each sandbox has one, and the second network's is left out");
        // The old sandbox goes; the new one stays.
        all.detach(&attachment("b", "eth0", [0; 4]).id);
        assert_eq!(all.take().expect("one went")[0].addresses.to_vec(), [IpAddr::from([10, 0, 0, 7])]);
    }

    #[test]
    fn s7_4_a_namespace_is_reached_by_the_first_sockets_that_were_opened_in_it() {
        let sockets = || Some(PodSockets::open().expect("sockets"));
        let all = Attachments::default();
        let one = |interface| attachment("a", interface, [10, 0, 0, 7]);
        let add = |interface, sockets| {
            let mut known = all.lock();
            known.put(one(interface), true);
            let entry = known.entries.get_mut(&one(interface).id).expect("it was put");
            entry.sockets = sockets;
        };
        add("eth0", None);
        assert_eq!((all.namespaces().len(), all.unreached().len()), (0, 1));
        assert_eq!((all.untried().len(), all.untried().len()), (1, 0), "a namespace is tried once");
        assert!(all.reach(&one("eth0").id, sockets().expect("some")));
        assert!(all.take_reached() && !all.take_reached());
        assert!(!all.reach(&one("net9").id, sockets().expect("some")), "it is not known");
        let first = all.namespaces()[0].sockets.clone();
        // The plugin runs once more for a second network.
        add("net1", sockets().map(|sockets| Arc::new(Mutex::new(sockets))));
        let reached = all.namespaces();
        assert_eq!((reached.len(), reached[0].own.as_str(), all.unreached().len()), (1, "eth0", 0));
        assert!(Arc::ptr_eq(&reached[0].sockets, &first), "only the sockets that made a table may change it");
    }

    #[test]
    fn records_are_read_at_the_start_and_what_cannot_be_read_is_told() {
        let folder = std::env::temp_dir().join(format!("namewall-attachments-{}", std::process::id()));
        let records = Records::new(&folder);
        records.write(&attachment("a", "eth0", [10, 0, 0, 7])).expect("it is written");
        std::fs::write(folder.join("b@eth0.json"), "{").expect("a file");
        let all = Attachments::load(&records);
        std::fs::remove_dir_all(&folder).ok();
        let taken = all.take().expect("one was read");
        assert_eq!((taken.len(), taken[0].is_new), (1, false));
        let summary = all.summary();
        assert_eq!((summary.known, summary.enforced, summary.interfaces), (1, 0, 1));
        assert!(matches!(summary.unreadable.as_slice(), [one] if one.contains("b@eth0.json")), "{summary:?}");
    }
}
