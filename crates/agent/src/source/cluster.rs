//! A cluster that is watched through its API server.

use super::stand_in::StandIn;
use super::storage::{StorageSettings, StorageStatus};
use super::{Event, Source, TICK};
use crate::config::DNS_PORT;
use crate::signals::{Signal, Signals};
use crate::warning::Warning;
use namewall_cluster::kinds::{
    CLUSTER_EGRESS_FIREWALL, Component, EGRESS_FIREWALL, MAX_NODE_ADDRESSES, NODE, NODE_ADDRESSES,
};
use namewall_cluster::resolver::Settings as ResolverSettings;
use namewall_cluster::yaml::{Node, Value};
use namewall_cluster::{
    DescribedService, Key, LoadError, PodAddresses, Read, Settings, Store, find_dns_service, no_dns_service,
};
use namewall_kubernetes::{Connection, Enforces, NodeTopic, Publisher, Trouble, Watch};
use namewall_policy::addr::Cidr;
use namewall_policy::{Finding, Instant};
use namewall_runtime::Clock;
use namewall_telemetry::{Export, Health};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// What changes is published at once, and again after this time at the earliest.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(500);
/// After a failure it is tried again after this time.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How often it is looked whether the API server still has what was published.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// How often the same trouble is logged.
const LOG_EVERY: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub struct ClusterSettings {
    pub cluster: Settings,
    /// Whether pods may talk before they are known.
    pub opens_unknown: bool,
    /// The namespaces whose DNSNameResolvers are trusted and written. Who may write one may open an address.
    pub namespaces: Vec<String>,
    /// The Service that answers DNS. None: the usual one of the cluster.
    pub dns_service: Option<Key>,
    /// Whether that Service is asked, since no other server is configured.
    pub asks_dns_service: bool,
    /// Where the objects outlive the process. None: nowhere.
    pub storage: Option<StorageSettings>,
}

impl ClusterSettings {
    /// An error if the Service that we ask for names is not there.
    fn dns_finding(&self, store: &Store) -> Option<Finding> {
        let named = self.dns_service.as_ref();
        let is_missing = self.asks_dns_service && find_dns_service(store, named).is_none();
        is_missing.then(|| {
            no_dns_service(
                named,
                "the servers of the node's resolv.conf are asked, which may not know the cluster's names",
            )
        })
    }
}

/// How long and for what a cluster is waited for.
#[derive(Clone, Copy)]
pub struct WaitForCluster<'a> {
    pub signals: &'a dyn Signals,
    pub health: &'a Health,
    /// The Node that this machine is.
    pub node: Option<&'a str>,
    /// Whether rules of an earlier process are in the kernel.
    pub has_rules: &'a dyn Fn() -> bool,
}

impl std::fmt::Debug for WaitForCluster<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaitForCluster").field("node", &self.node).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub struct ClusterSource {
    watch: Watch,
    connection: Connection,
    settings: ClusterSettings,
    clock: Arc<dyn Clock>,
    published: Published,
    /// The firewalls as they were last read, and the version of the objects: nodes publish which they enforce.
    read: Enforces,
    read_version: Option<u64>,
    /// The pods that had the addresses that the runtime has given them, when the cluster was last read.
    attached: BTreeSet<Key>,
    logged: LoggedTrouble,
    /// Of each topic that Events are about.
    enforcement_warning: Warning,
    runtime_warning: Warning,
    dns_warning: Warning,
    tampering_warning: Warning,
    sharing_warning: Warning,
    stand_in: StandIn,
}

/// What the API server knows of this node.
#[derive(Default, Debug)]
struct Published {
    addresses: Option<BTreeSet<IpAddr>>,
    /// The digest of what is enforced, and the one that was published.
    enforced: Enforces,
    digest: Enforces,
    /// Nothing is published before that time.
    not_before: Option<Instant>,
    check_at: Option<Instant>,
}

impl ClusterSource {
    pub fn new(connection: &Connection, settings: ClusterSettings) -> Self {
        let watch = Watch::start(connection, Component::Agent);
        let stand_in = StandIn::load(settings.storage.as_ref(), connection.cluster(), &watch);
        Self {
            watch,
            stand_in,
            connection: connection.clone(),
            settings,
            clock: connection.environment().clock.clone(),
            published: Published::default(),
            read: Enforces::default(),
            read_version: None,
            attached: BTreeSet::new(),
            logged: LoggedTrouble::default(),
            enforcement_warning: Warning::default(),
            runtime_warning: Warning::default(),
            dns_warning: Warning::default(),
            tampering_warning: Warning::default(),
            sharing_warning: Warning::default(),
        }
    }

    /// Waits until all of the cluster is known, or for a while if an earlier process has stored all of it. False if a
    /// signal ended it. Until then nothing changes in the kernel: policies that are not known yet would be missing. If
    /// an earlier process has stored all but the pods, and the kernel `has_rules` of none, as after a reboot, the pods
    /// of this node are closed until the cluster is known.
    pub fn wait_until_known(&mut self, wait: &WaitForCluster<'_>) -> bool {
        let WaitForCluster { signals, health, node, has_rules } = *wait;
        while self.watch.wait_until_known(TICK).is_err() {
            health.turn();
            self.logged.log(self.watch.trouble(), self.clock.now());
            let opens_unknown = self.settings.opens_unknown;
            let close = |store: &Store| {
                let closes_any = node.is_some_and(|node| !pod_cidrs(store, node).is_empty());
                closes_any && !opens_unknown && !has_rules()
            };
            if self.stand_in.is_due(self.clock.now(), close) {
                return true;
            }
            if signals.wait(Duration::ZERO) == Some(Signal::Stop) {
                return false;
            }
        }
        true
    }
}

impl Source for ClusterSource {
    fn next(&mut self, signals: &dyn Signals) -> Event {
        self.watch.wait(TICK);
        self.logged.log(self.watch.trouble(), self.clock.now());
        if let Some(signal) = signals.wait(Duration::ZERO) {
            return signal.into();
        }
        let now = self.clock.now();
        if self.watch.is_known() && self.stand_in.owes(self.watch.with_store(Store::versions), now) {
            let stand_in = &mut self.stand_in;
            self.watch.with_store(|store| stand_in.note(store, now));
            self.stand_in.keep();
        }
        // Policies first: what names open depends on them.
        if self.watch.has_changed() {
            return Event::Changed;
        }
        let mut names = self.watch.new_names();
        names.retain(|(key, _)| self.settings.namespaces.iter().any(|trusted| **trusted == *key.namespace));
        if names.is_empty() { Event::Nothing } else { Event::Names(names) }
    }

    fn read(&mut self) -> Result<Read, LoadError> {
        if self.watch.is_known() {
            self.stand_in.end(&self.watch);
        } else if let Some(store) = self.stand_in.store() {
            self.attached = store.attached().cloned().collect();
            let mut read = store.read(&self.settings.cluster);
            read.findings.extend(self.settings.dns_finding(store));
            return Ok(read);
        }
        let version = Some(self.watch.with_store(Store::versions).texts);
        // To digest them takes as long as to read them.
        if version != self.read_version {
            self.read_version = version;
            self.read = self.watch.with_store(|store| Enforces {
                cluster_egress_firewalls: store.digest(&CLUSTER_EGRESS_FIREWALL),
                egress_firewalls: store.digest(&EGRESS_FIREWALL),
            });
        }
        let (stand_in, now) = (&mut self.stand_in, self.clock.now());
        let settings = &self.settings;
        let look = |store: &Store| {
            stand_in.note(store, now);
            (store.attached().cloned().collect(), settings.dns_finding(store))
        };
        let (mut read, (attached, dns_finding)) = self.watch.read_with(&settings.cluster, look);
        read.findings.extend(dns_finding);
        self.attached = attached;
        Ok(read)
    }

    fn keep(&mut self) {
        self.stand_in.keep();
    }

    fn storage(&self) -> StorageStatus {
        self.stand_in.status()
    }

    fn attach(&mut self, pods: &[PodAddresses]) {
        self.stand_in.store().into_iter().for_each(|store| _ = store.attach(pods));
        self.watch.attach(pods);
    }

    fn attached(&self) -> BTreeSet<Key> {
        self.attached.clone()
    }

    fn waker(&self) -> Option<Box<dyn Fn() + Send + Sync>> {
        let waker = self.watch.waker();
        Some(Box::new(move || waker.wake()))
    }

    fn enforced(&mut self) {
        self.published.enforced.clone_from(&self.read);
    }

    fn is_busy(&self) -> bool {
        true
    }

    fn pod_blocks(&self, node: Option<&str>) -> Vec<Cidr> {
        let node = node.filter(|_| !self.settings.opens_unknown);
        node.map(|node| self.with_store(|store| pod_cidrs(store, node))).unwrap_or_default()
    }

    fn dns_service(&self) -> Option<Key> {
        self.with_store(|store| find_dns_service(store, self.settings.dns_service.as_ref()))
    }

    fn dns_servers(&self) -> Vec<SocketAddr> {
        let service = self.dns_service();
        self.with_store(|store| {
            let service = service.and_then(|key| store.service(&key));
            let addresses = service.map(DescribedService::cluster_addresses).unwrap_or_default();
            addresses.iter().map(|&address| (address, DNS_PORT).into()).collect()
        })
    }

    fn publisher(&self) -> Option<Publisher> {
        let publisher = self.watch.publisher(ResolverSettings::default());
        Some(publisher.within(self.settings.namespaces.clone()))
    }

    fn metrics(&self) -> Option<Arc<dyn Export>> {
        Some(Arc::new(self.watch.metrics()))
    }

    fn trouble(&self) -> Vec<Trouble> {
        self.watch.trouble()
    }

    fn publish(&mut self, node: &str, addresses: &BTreeSet<IpAddr>) -> bool {
        let now = self.clock.now();
        // The server is away: every attempt would hold up the loop.
        if self.stand_in.stands_in().is_some() {
            return false;
        }
        if self.watch.absent().contains(&&NODE_ADDRESSES) {
            return true;
        }
        if self.published.is_due(addresses, now) || self.is_lost(node, now) {
            self.write(node, addresses, now);
        }
        self.published.addresses.is_some()
    }

    fn warn_users(&mut self, node: &str, topic: NodeTopic, error: Option<&str>) {
        let now = self.clock.now();
        let warning = match topic {
            NodeTopic::Enforcement => &mut self.enforcement_warning,
            NodeTopic::Runtime => &mut self.runtime_warning,
            NodeTopic::Dns => &mut self.dns_warning,
            NodeTopic::Tampering => &mut self.tampering_warning,
            NodeTopic::Sharing => &mut self.sharing_warning,
        };
        // Nobody can be told while the server is away.
        if !warning.is_due(error, now) || !self.watch.trouble().is_empty() {
            return;
        }
        let written = self.connection.block_on(self.connection.environment().tell_of_node(node, topic, error));
        warning.ended(error, written.is_ok(), now);
        if let Err(error) = written {
            warn!(%error, "cannot write an Event");
        }
    }
}

impl Drop for ClusterSource {
    fn drop(&mut self) {
        let stand_in = &mut self.stand_in;
        if self.watch.is_known() && stand_in.stands_in().is_none() {
            self.watch.with_store(|store| stand_in.note_all(store));
            self.stand_in.keep();
        }
    }
}

impl ClusterSource {
    /// Does something with the objects that count now.
    fn with_store<T>(&self, with: impl FnOnce(&Store) -> T) -> T {
        match self.stand_in.stands_in() {
            Some(store) => with(store),
            None => self.watch.with_store(with),
        }
    }

    /// Whether somebody has removed what was published.
    fn is_lost(&mut self, node: &str, now: Instant) -> bool {
        if self.published.check_at.is_some_and(|at| now < at) {
            return false;
        }
        self.published.check_at = Some(now + CHECK_EVERY);
        let key = Key { namespace: "".into(), name: node.into() };
        self.watch.with_store(|store| store.get(&NODE_ADDRESSES, &key).is_none())
    }

    fn write(&mut self, node: &str, addresses: &BTreeSet<IpAddr>, now: Instant) {
        if addresses.len() > MAX_NODE_ADDRESSES {
            warn!(addresses = addresses.len(), MAX_NODE_ADDRESSES, "other nodes are not told of all addresses");
        }
        let listed: Vec<IpAddr> = addresses.iter().copied().take(MAX_NODE_ADDRESSES).collect();
        let enforced = self.published.enforced.clone();
        let publish = self.connection.environment().publish_node(node, &listed, &enforced);
        let written = self.connection.block_on(publish);
        let wait = if written.is_ok() { PUBLISH_INTERVAL } else { RETRY_INTERVAL };
        self.published.not_before = Some(now + wait);
        // What was written just now is not seen by the watch yet.
        self.published.check_at = Some(now + CHECK_EVERY);
        match written {
            Ok(()) => {
                self.published.addresses = Some(addresses.clone());
                self.published.digest = enforced;
            }
            Err(error) => warn!(%error, "cannot publish the addresses of this node"),
        }
    }
}

impl Published {
    /// Whether there is something new to say, and it is time to.
    fn is_due(&self, addresses: &BTreeSet<IpAddr>, now: Instant) -> bool {
        let is_new = self.addresses.as_ref() != Some(addresses) || self.digest != self.enforced;
        is_new && self.not_before.is_none_or(|at| now >= at)
    }
}

/// What of the watches' trouble is in the log.
#[derive(Default, Debug)]
struct LoggedTrouble(BTreeMap<&'static str, (String, Instant)>);

impl LoggedTrouble {
    /// Logs each trouble once and again after a while, and that all of it is over.
    fn log(&mut self, trouble: Vec<Trouble>, at: Instant) {
        let Self(logged) = self;
        let now: BTreeMap<&'static str, String> = trouble.into_iter().map(|one| (one.kind, one.what)).collect();
        if now.is_empty() && !logged.is_empty() {
            info!("the API server answers again");
        }
        logged.retain(|kind, _| now.contains_key(kind));
        for (kind, what) in now {
            let is_known = match logged.get(kind) {
                Some((known, logged_at)) => *known == what || at.since(*logged_at) <= LOG_EVERY,
                None => false,
            };
            if is_known {
                continue;
            }
            // A server that is away is one line, however many kinds are watched.
            if !logged.values().any(|(known, _)| *known == what) {
                warn!(kind, error = what, "cannot watch; what was known stays in force");
            }
            logged.insert(kind, (what, at));
        }
    }
}

pub(super) fn pod_cidrs(store: &Store, node: &str) -> Vec<Cidr> {
    let key = Key { namespace: "".into(), name: node.into() };
    let document = store.get(&NODE, &key);
    let spec = document.as_ref().and_then(|document| document.node.get("spec"));
    let listed = spec.and_then(|spec| spec.get("podCIDRs")).map(|list| &list.value);
    let listed = if let Some(Value::Seq(items)) = listed { &items[..] } else { &[] };
    let texts = listed.iter().chain(spec.and_then(|spec| spec.get("podCIDR"))).filter_map(Node::as_str);
    let mut blocks: Vec<Cidr> = texts.filter_map(|text| text.parse().ok()).collect();
    blocks.dedup();
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Instant {
        Instant(Duration::from_millis(milliseconds))
    }

    #[test]
    fn s7_2_a_change_is_published_within_a_second_and_many_are_not_a_flood() {
        let mut published = Published::default();
        let (mut writes, mut longest) = (Vec::new(), 0);
        // Ten seconds in which every turn of the loop, 100 ms, has another address.
        let mut unpublished_since = None;
        for turn in 0..100_u64 {
            let addresses: BTreeSet<IpAddr> = [IpAddr::from([192, 0, 2, turn as u8])].into();
            let since = *unpublished_since.get_or_insert(turn);
            if published.is_due(&addresses, at(turn * 100)) {
                longest = longest.max((turn - since) * 100);
                unpublished_since = None;
                published.addresses = Some(addresses);
                published.not_before = Some(at(turn * 100) + PUBLISH_INTERVAL);
                writes.push(turn);
            }
        }
        assert!(longest <= 500, "{longest} ms");
        assert_eq!(writes.len(), 20, "{writes:?}");
    }

    #[test]
    fn what_is_published_is_not_published_again() {
        let addresses: BTreeSet<IpAddr> = [IpAddr::from([192, 0, 2, 1])].into();
        let mut published = Published::default();
        assert!(published.is_due(&addresses, at(0)), "the first time");
        published.addresses = Some(addresses.clone());
        assert!(!published.is_due(&addresses, at(10_000)));
        published.enforced.egress_firewalls = "digest".to_owned();
        assert!(published.is_due(&addresses, at(10_000)), "other firewalls are enforced");
    }
}
