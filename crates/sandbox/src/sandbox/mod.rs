//! The cluster that runs. `wire` makes it and changes it; here it is used.
//!
//! A node's namespace sees every packet of its pods: what a node does to
//! traffic (a firewall, the translation of Services) is put there by whoever
//! wants it, through [`Sandbox::node`], and stays through every update that
//! keeps the node.

mod wire;

pub use wire::gateway_of;

use crate::connection::{Connection, Wish};
use crate::dns::{self, Ask, Heard, NameServers, Questions};
use crate::error::Error;
use crate::limits;
use crate::links::{FIRST_LINK, Wires};
use crate::listen::{Listen, Listeners};
use crate::netns::Namespace;
use crate::probe::{self, Measured, Ports, Probe, ProbeSource};
use crate::topology::{PodPlan, Topology};
use namewall_dataplane::PodInterface;
use namewall_dataplane::nft::rule::Hardware;
use namewall_policy::Snapshot;
use namewall_policy::port::Protocol;
use namewall_scenario::zones::Zones;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Longer than a loaded machine takes to answer, shorter than TCP waits before it asks again.
const TIMEOUT: Duration = Duration::from_millis(400);

/// How far `build` is: namespaces that are there, of those to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    pub done: usize,
    pub total: usize,
}

/// What an update did.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Changes {
    pub nodes_added: Vec<Arc<str>>,
    pub nodes_removed: Vec<Arc<str>>,
    /// A pod that moved, or whose addresses changed, is removed and added.
    pub pods_added: Vec<Arc<str>>,
    pub pods_removed: Vec<Arc<str>>,
}

/// A namespace, and a way to change what is in it.
#[derive(Debug)]
struct Wired {
    namespace: Arc<Namespace>,
    wires: Wires,
}

#[derive(Debug)]
struct LiveNode {
    wired: Wired,
    /// The end of its uplink in the outside namespace.
    link: u32,
    bridge: Option<Bridge>,
}

/// The bridge of a node, and the node's addresses on it.
#[derive(Debug)]
struct Bridge {
    link: u32,
    gateways: BTreeSet<IpAddr>,
}

/// How pods are connected to their nodes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Wiring {
    /// Each by a link of its own, and the node routes between them.
    #[default]
    Routed,
    /// All by one bridge, as the `bridge` plugin of CNI does it. Pods of a node are then in one /24 and one /64, whose
    /// address 254 (fffe) is the node's.
    Bridged,
}

#[derive(Debug)]
struct LivePod {
    namespace: Arc<Namespace>,
    /// The end of its link in its node's namespace.
    link: u32,
    hardware: [u8; 6],
}

/// A cluster in network namespaces. Dropped, it is gone.
#[derive(Debug)]
pub struct Sandbox {
    /// How long a probe waits for an answer.
    pub timeout: Duration,
    wiring: Wiring,
    topology: Topology,
    outside: Wired,
    nodes: BTreeMap<Arc<str>, LiveNode>,
    /// Those with a namespace of their own.
    pods: BTreeMap<Arc<str>, LivePod>,
    holders: FxHashMap<IpAddr, Arc<Namespace>>,
    listeners: Listeners,
    name_servers: Option<NameServers>,
    ports: Ports,
    next_link: u32,
}

impl Sandbox {
    /// Builds the Snapshot's nodes and pods, and hosts outside that have these addresses.
    pub fn build(snapshot: &Snapshot, outside: &[IpAddr], progress: &mut dyn FnMut(Progress)) -> Result<Self, Error> {
        Self::build_wired(snapshot, outside, Wiring::default(), progress)
    }

    /// The same with pods that are connected in this way.
    pub fn build_wired(
        snapshot: &Snapshot,
        outside: &[IpAddr],
        wiring: Wiring,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        limits::raise();
        let mut sandbox = Self {
            timeout: TIMEOUT,
            wiring,
            topology: Topology::default(),
            outside: wire::outside()?,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            holders: FxHashMap::default(),
            listeners: Listeners::start()?,
            name_servers: None,
            ports: Ports::default(),
            next_link: FIRST_LINK,
        };
        sandbox.become_like(Topology::new(snapshot, outside), progress)?;
        Ok(sandbox)
    }

    /// Makes only the difference: what stays the same keeps its namespace, its
    /// listeners and its connections. After an error nothing is promised of the
    /// sandbox but that it can be dropped.
    pub fn update(&mut self, snapshot: &Snapshot, outside: &[IpAddr]) -> Result<Changes, Error> {
        self.become_like(Topology::new(snapshot, outside), &mut |_| {})
    }

    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    pub fn node(&self, name: &str) -> Option<&Arc<Namespace>> {
        self.nodes.get(name).map(|node| &node.wired.namespace)
    }

    pub fn nodes(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Namespace>)> {
        self.nodes.iter().map(|(name, node)| (name, &node.wired.namespace))
    }

    /// The namespace of `namespace/name`; its node's, if it uses that.
    pub fn pod(&self, name: &str) -> Option<&Arc<Namespace>> {
        let plan = self.topology.pods.get(name)?;
        if plan.host_network { self.node(&plan.node) } else { self.pods.get(name).map(|pod| &pod.namespace) }
    }

    /// The interfaces of a node's pods, at the node's end, with what may come from each.
    pub fn interfaces(&self, node: &str) -> Vec<PodInterface> {
        let on_node = self.topology.pods.iter().filter(|(_, plan)| &*plan.node == node && !plan.host_network);
        let interface = |(name, plan): (&Arc<str>, &PodPlan)| {
            let pod = self.pods.get(name)?;
            let hardware = Hardware(pod.hardware);
            let addresses = plan.addresses.clone();
            let (name, index) = (wire::name_of(pod.link), pod.link);
            Some(PodInterface {
                name,
                index,
                hardware: Some(hardware),
                addresses,
                extra: Vec::new(),
                is_shared: false,
                hears_groups: true,
            })
        };
        on_node.filter_map(interface).collect()
    }

    /// The router between the nodes, which also has every outside host's address.
    pub fn outside(&self) -> &Arc<Namespace> {
        &self.outside.namespace
    }

    /// The end that has this address, as a place to connect from.
    pub fn place(&self, source: IpAddr) -> Result<ProbeSource, Error> {
        let namespace = self.holders.get(&source).ok_or(Error::NoSuchAddress(source))?.clone();
        Ok(ProbeSource { namespace, source })
    }

    /// Makes somebody answer there, until the address goes away.
    pub fn ensure_listening(&mut self, wanted: &[Listen]) -> Result<(), Error> {
        let is_free = |listen: &&Listen| !self.name_servers.as_ref().is_some_and(|servers| servers.has(listen));
        let wanted: Vec<Listen> = wanted.iter().filter(is_free).copied().collect();
        self.listeners.ensure(&wanted, |address| self.holders.get(&address))
    }

    /// Answers DNS at the servers' addresses, outside or in pods, in the place of whoever did before.
    pub fn serve_names(&mut self, zones: &Zones) -> Result<(), Error> {
        self.name_servers = None;
        self.name_servers = Some(NameServers::start(zones, |address| self.holders.get(&address))?);
        Ok(())
    }

    pub fn name_servers(&self) -> Option<&NameServers> {
        self.name_servers.as_ref()
    }

    /// Looks names up, so many at once; None where there is no answer.
    pub fn ask(&self, from: &ProbeSource, asks: &[Ask], at_once: usize) -> Result<Vec<Option<Heard>>, Error> {
        dns::ask(from, &Questions { asks, at_once, then: None }, &self.ports)
    }

    /// The same, and opens connections with each answer in hand.
    pub fn ask_and_open(&self, from: &ProbeSource, questions: &Questions<'_>) -> Result<Vec<Option<Heard>>, Error> {
        dns::ask(from, questions, &self.ports)
    }

    /// What each probe brings, in their order. All run at once.
    pub fn probe(&self, probes: &[Probe]) -> Result<Vec<Measured>, Error> {
        probe::measure(probes, &self.ports, self.timeout)
    }

    /// The same, but probes that bring nothing are repeated, up to so many
    /// times: on a busy machine a packet may be lost that nobody dropped.
    pub fn probe_patiently(&self, probes: &[Probe], repeats: usize) -> Result<Vec<Measured>, Error> {
        let mut measured = self.probe(probes)?;
        for _ in 0..repeats {
            let silent: Vec<usize> = (0..probes.len()).filter(|&at| measured[at] == Measured::Silent).collect();
            if silent.is_empty() {
                break;
            }
            let again: Vec<Probe> = silent.iter().map(|&at| probes[at].clone()).collect();
            for (at, result) in silent.into_iter().zip(self.probe(&again)?) {
                measured[at] = result;
            }
        }
        Ok(measured)
    }

    /// A TCP or UDP connection that stays open, or what was measured instead.
    pub fn connect(
        &self,
        from: &ProbeSource,
        to: SocketAddr,
        protocol: Protocol,
    ) -> Result<Result<Connection, Measured>, Error> {
        Connection::open(Wish { from, to, protocol }, &self.ports, self.timeout)
    }

    /// Whether what the far end says unasked comes through the connection. A firewall may take such a word for the
    /// beginning of a connection in the other direction.
    pub fn hears_far_end(&self, connection: &mut Connection) -> bool {
        let word = probe::nonce();
        self.listeners.speak(connection.name, word) && connection.hears(word, self.timeout)
    }
}
