//! Where what is enforced comes from: files that are looked at, or a cluster
//! that is watched.

use super::addresses::own_addresses;
use super::complaint::Complaint;
use super::manifests::Manifests;
use crate::commands::signals::next_signal;
use crate::output;
use anyhow::Result;
use namewall_cluster::resolver::Settings as ResolverSettings;
use namewall_cluster::yaml::{Node, Value};
use namewall_cluster::{DescribedService, Key, Read, Settings, Store};
use namewall_kubernetes::{Connection, NameObject, Publisher, Trouble, Watch};
use namewall_policy::addr::Cidr;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// How often files are looked at, and how long a change of a cluster is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const DNS_PORT: u16 = 53;
/// How often this node's addresses are looked at.
const PUBLISH_EVERY: Duration = Duration::from_secs(5);
/// How often it is said again that the API server cannot be reached.
const SAY_AGAIN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) enum Source {
    Files(Manifests),
    Cluster(Box<Cluster>),
}

/// What is next.
#[derive(Debug)]
pub(super) enum Next {
    Signal(Signal),
    /// What is enforced.
    Changed,
    /// Only what other nodes have learned.
    Names(Vec<(Key, Option<NameObject>)>),
    Nothing,
}

impl Source {
    /// Waits a while for something to do.
    pub(super) fn next(&mut self, signals: &SignalFd) -> Next {
        match self {
            Self::Files(files) => match next_signal(signals, LOOK_EVERY) {
                Some(signal) => Next::Signal(signal),
                None if files.have_changed() => Next::Changed,
                None => Next::Nothing,
            },
            Self::Cluster(cluster) => {
                cluster.watch.wait(LOOK_EVERY);
                cluster.say_trouble();
                if let Some(signal) = next_signal(signals, Duration::ZERO) {
                    return Next::Signal(signal);
                }
                // First: what it opens must be meant.
                if cluster.watch.has_changed() {
                    return Next::Changed;
                }
                let mut names = cluster.watch.new_names();
                names.retain(|(key, _)| cluster.namespaces.iter().any(|believed| **believed == *key.namespace));
                if names.is_empty() { Next::Nothing } else { Next::Names(names) }
            }
        }
    }

    pub(super) fn read(&mut self) -> Result<Read> {
        match self {
            Self::Files(files) => files.read(),
            Self::Cluster(cluster) => {
                cluster.read = cluster.watch.with_store(|store| store.digest("ClusterEgressFirewall"));
                Ok(cluster.watch.read(&cluster.settings))
            }
        }
    }

    /// The blocks that only pods of a node get addresses from, if such a pod is to be closed until it is known.
    pub(super) fn blocks_of(&self, node: &str) -> Vec<Cidr> {
        match self {
            Self::Cluster(cluster) if !cluster.opens_unknown => cluster.watch.with_store(|store| blocks(store, node)),
            _ => Vec::new(),
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// What was last read is in force.
    pub(super) fn is_enforced(&mut self) {
        if let Self::Cluster(cluster) = self {
            cluster.enforced.clone_from(&cluster.read);
        }
    }

    /// Tells others what they should know of this node.
    pub(super) fn publish(&mut self, node: Option<&str>) {
        if let (Self::Cluster(cluster), Some(node)) = (self, node) {
            cluster.publish(node);
        }
    }

    /// Tells users what keeps what is meant from being in force on a node; without an error, that nothing does.
    pub(super) fn tell(&mut self, node: Option<&str>, error: Option<&str>) {
        if let (Self::Cluster(cluster), Some(node)) = (self, node) {
            cluster.tell(node, error);
        }
    }

    /// Where the cluster's DNS Service answers, if it has one: whom pods mean, and whose answers count.
    pub(super) fn dns_servers(&self) -> Vec<SocketAddr> {
        match self {
            Self::Files(_) => Vec::new(),
            Self::Cluster(cluster) => cluster.dns_servers(),
        }
    }

    /// Who tells others what is learned, where there are others.
    pub(super) fn publisher(&self) -> Option<Publisher> {
        match self {
            Self::Files(_) => None,
            Self::Cluster(cluster) => {
                Some(cluster.watch.publisher(ResolverSettings::default()).within(cluster.namespaces.clone()))
            }
        }
    }

    /// What stands between it and the API server.
    pub(super) fn trouble(&self) -> Vec<Trouble> {
        match self {
            Self::Files(_) => Vec::new(),
            Self::Cluster(cluster) => cluster.watch.trouble(),
        }
    }
}

/// A cluster, and what of its trouble was said already.
#[derive(Debug)]
pub(super) struct Cluster {
    watch: Watch,
    settings: Settings,
    /// Whether pods may talk before they are known.
    pub(super) opens_unknown: bool,
    /// Whose DNSNameResolvers are believed and written: who may write one may open an address.
    pub(super) namespaces: Vec<String>,
    /// The namespace and name of the Service that answers DNS.
    pub(super) dns_service: (String, String),
    connection: Connection,
    /// What the API server was last told, and when to look again.
    published: ((BTreeSet<IpAddr>, String), Option<Instant>),
    /// The digest of the ClusterEgressFirewalls that were last read, and of those that are enforced.
    read: String,
    enforced: String,
    said: BTreeMap<&'static str, (String, Instant)>,
    complaint: Complaint,
}

impl Cluster {
    pub(super) fn new(connection: &Connection, settings: Settings) -> Self {
        Self {
            watch: Watch::start(connection),
            settings,
            opens_unknown: false,
            namespaces: Vec::new(),
            dns_service: Default::default(),
            connection: connection.clone(),
            published: Default::default(),
            read: String::new(),
            enforced: String::new(),
            said: BTreeMap::new(),
            complaint: Complaint::default(),
        }
    }

    /// Tells the API server every address of this node, if it is time to look and they are others.
    fn publish(&mut self, node: &str) {
        let (known, again) = &mut self.published;
        let is_time = again.is_none_or(|again| Instant::now() >= again) || known.1 != self.enforced;
        if !is_time || self.watch.absent().contains(&"NodeAddresses") {
            return;
        }
        *again = Some(Instant::now() + PUBLISH_EVERY);
        let own = (own_addresses(), self.enforced.clone());
        if own == *known {
            return;
        }
        let addresses: Vec<IpAddr> = own.0.iter().copied().collect();
        match self.connection.publish_node(node, (&addresses, &own.1)) {
            Ok(()) => *known = own,
            Err(error) => output::note(&format!("cannot publish this node's addresses: {error}")),
        }
    }

    fn tell(&mut self, node: &str, error: Option<&str>) {
        let now = Instant::now();
        // While the server is away nobody can be told.
        if !self.complaint.is_due(error, now) || !self.watch.trouble().is_empty() {
            return;
        }
        let told = self.connection.tell_of_node(node, error);
        self.complaint.ended(error, told.is_ok(), now);
        if let Err(error) = told {
            output::note(&format!("cannot write an Event: {error}"));
        }
    }

    fn dns_servers(&self) -> Vec<SocketAddr> {
        let (namespace, name) = &self.dns_service;
        let key = Key { namespace: namespace.as_str().into(), name: name.as_str().into() };
        self.watch.with_store(|store| {
            let addresses = store.service(&key).map(DescribedService::cluster_addresses).unwrap_or_default();
            addresses.iter().map(|&address| (address, DNS_PORT).into()).collect()
        })
    }

    /// Waits until all of the cluster is known, or a signal ends it. Until then nothing is enforced that was not
    /// before: policies that are not known yet would be missing.
    pub(super) fn wait_until_known(&mut self, signals: &SignalFd) -> Option<Signal> {
        while self.watch.wait_until_known(LOOK_EVERY).is_err() {
            self.say_trouble();
            if let Some(signal) = next_signal(signals, Duration::ZERO).filter(|signal| *signal != Signal::SIGHUP) {
                return Some(signal);
            }
        }
        None
    }

    /// Each once, and again after a while; and that it is over.
    fn say_trouble(&mut self) {
        let now: BTreeMap<&'static str, String> =
            self.watch.trouble().into_iter().map(|trouble| (trouble.kind, trouble.what)).collect();
        let over: Vec<&str> = self.said.keys().copied().filter(|kind| !now.contains_key(kind)).collect();
        if !over.is_empty() && now.is_empty() {
            output::note("the API server is heard again");
        }
        self.said.retain(|kind, _| now.contains_key(kind));
        let is_news = |kind: &&str, what: &String| match self.said.get(kind) {
            Some((said, at)) => said != what && at.elapsed() > SAY_AGAIN,
            None => true,
        };
        let news: Vec<(&'static str, String)> = now.into_iter().filter(|(kind, what)| is_news(kind, what)).collect();
        for (kind, what) in news {
            // One server that is gone is one piece of news, however many kinds it has.
            if !self.said.values().any(|(said, _)| *said == what) {
                output::note(&format!("cannot watch {kind}: {what}; what was known stays in force"));
            }
            self.said.insert(kind, (what, Instant::now()));
        }
    }
}

fn blocks(store: &Store, node: &str) -> Vec<Cidr> {
    let key = Key { namespace: "".into(), name: node.into() };
    let document = store.get("Node", &key);
    let spec = document.as_ref().and_then(|document| document.node.get("spec"));
    let listed = spec.and_then(|spec| spec.get("podCIDRs")).map(|list| &list.value);
    let listed = if let Some(Value::Seq(items)) = listed { &items[..] } else { &[] };
    let texts = listed.iter().chain(spec.and_then(|spec| spec.get("podCIDR"))).filter_map(Node::as_str);
    let mut blocks: Vec<Cidr> = texts.filter_map(|text| text.parse().ok()).collect();
    blocks.dedup();
    blocks
}
