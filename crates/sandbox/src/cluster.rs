//! A sandbox with namewall in it: every node's namespace has the table a node
//! of a real cluster would have, and kube-proxy's beside it.

use crate::error::Error;
use crate::netns::Namespace;
use crate::renewing::NodeNames;
use crate::sandbox::{Progress, Sandbox, Wiring};
use crate::services;
use crate::topology::Topology;
use namewall_agent::{DnsSettings, Learning, Node, NodeError, NodeSettings, Settle, SystemClock};
use namewall_dataplane::netlink::shared::shared_links;
use namewall_dataplane::netlink::tunnels::tunnels;
use namewall_dataplane::netlink::{Family, PodSockets, Socket};
use namewall_dataplane::nflog::{DenialLog, Denied};
use namewall_dataplane::nft::{Nft, Settings, put_table};
use namewall_dataplane::render::Scope;
use namewall_dataplane::{Count, CutEstablished, PodInterface, PodNamespace, Tunnels};
use namewall_policy::lease::{Bounds, NeverLeased};
use namewall_policy::model::NodeId;
use namewall_policy::{Instant, Lease, LeaseRef, Program, Snapshot};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};

const SERVICES: &str = "kube-proxy";
const MASQUERADE: &str = "cni";
const RELAYS: &str = "load-balancers";

#[derive(Debug)]
pub struct Cluster {
    pub sandbox: Sandbox,
    agents: BTreeMap<Arc<str>, Node>,
    /// Of each agent, the names that it keeps. The lock makes a cluster shareable: lookups are not.
    names: BTreeMap<Arc<str>, Mutex<NodeNames>>,
    /// Whoever hears of denials is not the agent.
    logs: BTreeMap<Arc<str>, DenialLog>,
    /// When nodes decide what to cut.
    settle: Settle,
    /// How many cut connections an agent remembers, if it is not the usual number.
    most_cuts: Option<usize>,
    /// Sockets of pods' network namespaces, by pod.
    sockets: BTreeMap<Arc<str>, Reached>,
    /// True if agents have gone, so that pods have what they left.
    has_restarted: bool,
    /// What the agents before knew of changes to tables inside pods' network namespaces.
    last_seen: BTreeMap<String, u32>,
    /// False if agents know no interface of a pod, as without a CNI plugin.
    knows_interfaces: bool,
    /// Tunnel endpoints that nodes have besides those that their kernels tell of.
    tunnels: Tunnels,
    /// True if there are load balancers outside.
    has_relays: bool,
}

/// A network namespace, and sockets that were opened in it.
#[derive(Debug)]
struct Reached {
    namespace: Weak<Namespace>,
    sockets: Arc<Mutex<PodSockets>>,
}

/// How every node serves DNS to its pods.
#[derive(Clone, Debug)]
pub struct Dns {
    pub server: namewall_dns::Settings,
    pub learning: Learning,
    /// What no name opens.
    pub never_leased: NeverLeased,
    /// Servers that pods may mean.
    pub trusted: Vec<SocketAddr>,
}

/// Pods' questions are taken to this port of their node, and those after it.
const DNS_PORT: u16 = 1053;

/// What the cluster is to be.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub snapshot: &'a Snapshot,
    pub program: &'a Program,
    pub outside: &'a [IpAddr],
    pub cut: CutEstablished,
    /// How nodes serve DNS, if they do.
    pub dns: Option<&'a Dns>,
}

impl Cluster {
    /// The NFLOG group every node tells of denials in.
    pub const LOG_GROUP: u16 = 53;

    pub fn build(wanted: &Wanted<'_>, progress: &mut dyn FnMut(Progress)) -> Result<Self, Error> {
        Self::build_wired(wanted, Wiring::default(), progress)
    }

    /// The same with pods that are connected in this way.
    pub fn build_wired(wanted: &Wanted<'_>, wiring: Wiring, progress: &mut dyn FnMut(Progress)) -> Result<Self, Error> {
        let sandbox = Sandbox::build_wired(wanted.snapshot, wanted.outside, wiring, progress)?;
        let mut cluster = Self {
            sandbox,
            agents: BTreeMap::new(),
            names: BTreeMap::new(),
            logs: BTreeMap::new(),
            settle: Settle::AT_ONCE,
            most_cuts: None,
            sockets: BTreeMap::new(),
            has_restarted: false,
            last_seen: BTreeMap::new(),
            knows_interfaces: true,
            tunnels: Tunnels::default(),
            has_relays: false,
        };
        cluster.enforce(wanted)?;
        Ok(cluster)
    }

    /// From now on every node puts its address in the place of its pods', where their packets leave for anybody but a
    /// pod, as many CNI plugins do. It is for the pods there are now.
    pub fn masquerade(&mut self) -> Result<(), Error> {
        for (name, namespace) in self.sandbox.nodes() {
            let table = services::leaving(self.sandbox.topology(), name);
            let put = namespace.enter(|| put_table(MASQUERADE, &table))?;
            put.map_err(|source| Error::Agent { node: name.to_string(), source: source.into() })?;
        }
        Ok(())
    }

    /// Nodes go on with other settings, from their sockets on.
    pub fn serve_again(&mut self, wanted: &Wanted<'_>) -> Result<(), Error> {
        for (name, node) in &mut self.agents {
            node.stop_serving().map_err(|source| Error::Agent { node: name.to_string(), source })?;
        }
        self.enforce(wanted).map(drop)
    }

    /// What namewall is on a node.
    pub fn agent(&self, node: &str) -> Option<&Node> {
        self.agents.get(node)
    }

    /// The agents go, and what they put into the kernel stays: by themselves, or without the time to do anything.
    pub fn stop(&mut self, is_orderly: bool) -> Result<(), Error> {
        self.remember_changes();
        self.sockets.clear();
        self.has_restarted = true;
        for (name, mut node) in std::mem::take(&mut self.agents) {
            if is_orderly {
                node.stop_serving().map_err(|source| Error::Agent { node: name.to_string(), source })?;
            }
        }
        Ok(())
    }

    /// Goes on to another state; connections that it forbids are cut.
    pub fn update(&mut self, wanted: &Wanted<'_>) -> Result<(), Error> {
        self.sandbox.update(wanted.snapshot, wanted.outside)?;
        self.agents.retain(|name, _| self.sandbox.node(name).is_some());
        self.logs.retain(|name, _| self.sandbox.node(name).is_some());
        self.enforce(wanted).map(drop)
    }

    /// Goes on to another state, or stays, with new agents: each finds the table
    /// the last one left. How many operations each took to make it right.
    pub fn restart(&mut self, wanted: &Wanted<'_>) -> Result<BTreeMap<Arc<str>, usize>, Error> {
        self.remember_changes();
        self.agents.clear();
        self.sockets.clear();
        self.has_restarted = true;
        self.sandbox.update(wanted.snapshot, wanted.outside)?;
        self.enforce(wanted)
    }

    /// What agents store for the next ones.
    fn remember_changes(&mut self) {
        self.last_seen.extend(self.agents.values().flat_map(Node::seen_inside));
    }

    /// From the next change on agents know no interface of a pod: only which bridge pods are behind.
    pub fn forget_interfaces(&mut self) {
        self.knows_interfaces = false;
    }

    /// From the next change on every node has these tunnel endpoints too, as if it had devices that this kernel may not
    /// know.
    pub fn add_tunnels(&mut self, tunnels: Tunnels) {
        self.tunnels.extend(&tunnels);
    }

    /// Agents that start from now on remember so many cut connections.
    pub fn set_most_cuts(&mut self, most: usize) {
        self.most_cuts = Some(most);
    }

    /// How many cut connections were forgotten on all nodes to make room for others.
    pub fn forgotten_cuts(&self) -> u64 {
        self.agents.values().map(Node::forgotten_cuts).sum()
    }

    /// From the next change on, what to cut is decided when policies have settled, and `settle` is called.
    pub fn set_settle(&mut self, settle: Settle) {
        self.settle = settle;
    }

    /// Cuts what policies forbid that have settled. Returns how many connections it were on all nodes.
    pub fn settle(&mut self) -> Result<usize, Error> {
        let mut connections = 0;
        for (name, namespace) in self.sandbox.nodes() {
            let Some(node) = self.agents.get_mut(name) else { continue };
            let cut = namespace.enter(|| node.settle())?;
            let cut = cut.map_err(|source| Error::Agent { node: name.to_string(), source })?;
            connections += cut.map_or(0, |cut| cut.connections);
        }
        Ok(connections)
    }

    /// How many operations each node's table took.
    fn enforce(&mut self, wanted: &Wanted<'_>) -> Result<BTreeMap<Arc<str>, usize>, Error> {
        let mut operations = BTreeMap::new();
        self.reach_pods()?;
        self.relay(wanted.snapshot)?;
        let failed = |node: &Arc<str>, source: NodeError| Error::Agent { node: node.to_string(), source };
        for (name, namespace) in self.sandbox.nodes() {
            let nat = services::table(wanted.snapshot, self.sandbox.topology(), name);
            namespace.enter(|| put_table(SERVICES, &nat))?.map_err(|source| failed(name, source.into()))?;
            let known = wanted.snapshot.node_named(name);
            if !self.logs.contains_key(name) {
                let log = namespace.enter(|| DenialLog::open(Self::LOG_GROUP))?.map_err(Error::DenialLog)?;
                self.logs.insert(name.clone(), log);
            }
            if !self.agents.contains_key(name) {
                let clock = Arc::new(SystemClock::start());
                let opened = namespace.enter(|| open_node(known, self.most_cuts, clock.clone()))?;
                self.agents.insert(name.clone(), opened.map_err(|source| failed(name, source))?);
                self.names.insert(name.clone(), Mutex::new(NodeNames::new(clock)));
            }
            let namespaces = self.namespaces_on(name);
            let Some(node) = self.agents.get_mut(name) else { continue };
            if let (Some(dns), None) = (wanted.dns, node.dns()) {
                let settings = dns_settings(dns, self.sandbox.topology(), name);
                node.learner().set(dns.learning);
                namespace.enter(|| node.serve(settings))?.map_err(|source| failed(name, source))?;
            }
            if let Some(dns) = wanted.dns {
                node.set_never_leased(dns.never_leased.clone());
            }
            node.set_cut(wanted.cut, self.settle);
            node.scope_mut().node = known;
            let learn = || tunnels(&mut Socket::open(Family::NetlinkRoute)?);
            let mut learned = namespace.enter(learn)?.map_err(Error::PodSockets)?;
            learned.extend(&self.tunnels);
            node.scope_mut().tunnels = learned;
            let mut interfaces = self.sandbox.interfaces(name);
            if !self.knows_interfaces {
                let addresses = interfaces.iter().flat_map(|one| one.addresses.clone()).collect();
                let find = || shared_links(&mut Socket::open(Family::NetlinkRoute)?, &addresses);
                let links = namespace.enter(find)?.map_err(Error::PodSockets)?;
                interfaces = links.into_iter().map(PodInterface::shared).collect();
            }
            node.set_interfaces(interfaces);
            node.set_namespaces(namespaces);
            let enforced = namespace.enter(|| node.enforce(wanted.program))?;
            let (applied, _) = enforced.map_err(|source| failed(name, source))?;
            operations.insert(name.clone(), applied.operations);
        }
        Ok(operations)
    }

    /// Load balancers outside pass on what comes to addresses that no node translates.
    fn relay(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let has_relays = snapshot.services.iter().any(|service| !service.proxied.is_empty());
        let had_relays = std::mem::replace(&mut self.has_relays, has_relays);
        if has_relays || had_relays {
            let table = services::relays(snapshot, self.sandbox.topology());
            let put = self.sandbox.outside().enter(|| put_table(RELAYS, &table))?;
            put.map_err(|source| Error::Agent { node: "the outside".to_owned(), source: source.into() })?;
        }
        Ok(())
    }

    /// Opens sockets in the network namespaces of new pods, as the CNI plugin does.
    fn reach_pods(&mut self) -> Result<(), Error> {
        let Self { sandbox, sockets, .. } = self;
        let namespace_of = |name: &str| {
            sandbox.topology().pods.get(name).and_then(|plan| match plan.host_network {
                true => None,
                false => sandbox.pod(name),
            })
        };
        sockets.retain(|name, reached| {
            let is_it = |namespace: &Arc<Namespace>| Weak::ptr_eq(&reached.namespace, &Arc::downgrade(namespace));
            namespace_of(name).is_some_and(is_it)
        });
        for name in sandbox.topology().pods.keys() {
            let Some(namespace) = namespace_of(name).filter(|_| !sockets.contains_key(name)) else { continue };
            let opened = namespace.enter(PodSockets::open)?.map_err(Error::PodSockets)?;
            let reached = Reached { namespace: Arc::downgrade(namespace), sockets: Arc::new(Mutex::new(opened)) };
            sockets.insert(name.clone(), reached);
        }
        Ok(())
    }

    /// The network namespaces of a node's pods.
    fn namespaces_on(&self, node: &str) -> Vec<PodNamespace> {
        let on_node = self.sandbox.topology().pods.iter().filter(|(_, plan)| &*plan.node == node);
        let reached = on_node.filter_map(|(name, plan)| {
            Some(PodNamespace {
                id: name.to_string(),
                pod: name.to_string(),
                own: "eth0".to_owned(),
                addresses: plan.addresses.clone(),
                has_table: self.has_restarted,
                last_seen: self.last_seen.get(name.as_ref()).copied(),
                extra: Vec::new(),
                sockets: self.sockets.get(name)?.sockets.clone(),
            })
        });
        reached.collect()
    }

    /// Looks what has changed inside pods' network namespaces, and makes it right, as the agent's loop does.
    pub fn follow_namespaces(&mut self) {
        for node in self.agents.values_mut().filter(|node| node.has_news_inside(true)) {
            node.enforce_inside();
        }
    }

    /// What agents do about names as time goes by: they keep what rules deny by name (S8.7), and ask these servers.
    pub fn renew_names(&mut self, servers: &[SocketAddr]) -> Result<(), Error> {
        for (name, namespace) in self.sandbox.nodes() {
            let (Some(node), Some(names)) = (self.agents.get(name), self.names.get_mut(name)) else { continue };
            let names = names.get_mut().unwrap_or_else(PoisonError::into_inner);
            namespace.enter(|| names.turn(node, servers))??;
        }
        Ok(())
    }

    /// What pods of one node have looked up counts on the others, as in a cluster with `namewall controller --all-names`
    /// (S8.7).
    pub fn share_names(&mut self) -> Result<(), Error> {
        for (learner, node) in &self.agents {
            let now = node.now();
            let own = |lease: &LeaseRef<'_>| lease.asked_by.is_some() && lease.expiry > now;
            let learned: Vec<Lease> =
                node.with_leases(|table| table.iter().filter(own).map(|lease| lease.to_lease()).collect());
            for (name, other) in self.agents.iter().filter(|(name, _)| *name != learner) {
                // Each node has a clock of its own.
                let there = other.now();
                let leases: Vec<Lease> = learned
                    .iter()
                    .map(|lease| {
                        let expiry = there + lease.expiry.0.saturating_sub(now.0);
                        Lease { expiry, asked_by: None, ..lease.clone() }
                    })
                    .collect();
                other.grant(&leases).map_err(|source| Error::Agent { node: name.to_string(), source })?;
            }
        }
        Ok(())
    }

    /// Opens addresses on every node.
    pub fn grant(&mut self, leases: &[Lease], now: Instant) -> Result<(), Error> {
        for (name, node) in &mut self.agents {
            let failed = |source| Error::Agent { node: name.to_string(), source };
            // The node has a clock of its own.
            let own = node.now();
            let left = |lease: &Lease| own + lease.expiry.0.saturating_sub(now.0);
            let leases: Vec<Lease> = leases.iter().map(|one| Lease { expiry: left(one), ..one.clone() }).collect();
            node.grant(&leases).map_err(failed)?;
        }
        Ok(())
    }

    /// What has been denied since this was last asked.
    pub fn denials(&mut self) -> Result<Vec<Denied>, Error> {
        let mut denials = Vec::new();
        for log in self.logs.values_mut() {
            denials.extend(log.drain().map_err(Error::DenialLog)?);
        }
        Ok(denials)
    }

    /// How often each rule of a policy has matched, on all nodes.
    pub fn counts(&mut self) -> Result<BTreeMap<String, Count>, Error> {
        let mut all: BTreeMap<String, Count> = BTreeMap::new();
        for (name, node) in &mut self.agents {
            let failed = |source| Error::Agent { node: name.to_string(), source };
            for (label, count) in node.counts().map_err(failed)? {
                *all.entry(label).or_default() += count;
            }
        }
        Ok(all)
    }

    /// The table of a node, as it was made.
    pub fn table(&self, node: &str) -> Option<namewall_dataplane::nft::table::Table> {
        self.agents.get(node)?.table()
    }
}

/// What no name opens unless settings say more.
pub(crate) fn usually_never_leased() -> NeverLeased {
    NeverLeased::new("cluster.local".parse().expect("it is a name"))
}

/// A node that nobody described judges all pods: they are all on it.
fn open_node(node: Option<NodeId>, most_cuts: Option<usize>, clock: Arc<SystemClock>) -> Result<Node, NodeError> {
    let scope = Scope { node, log_group: Cluster::LOG_GROUP, ..Scope::default() };
    let settings = NodeSettings {
        scope,
        cut: CutEstablished::default(),
        settle: Settle::AT_ONCE,
        bounds: Bounds::default(),
        learning: Learning::default(),
        never_leased: usually_never_leased(),
    };
    let usual = Settings::default();
    let nft = Nft::open(Settings { most_cuts: most_cuts.unwrap_or(usual.most_cuts), ..usual })?;
    Ok(Node::new(nft, settings, clock))
}

/// A node serves at its first address of each family.
fn dns_settings(dns: &Dns, topology: &Topology, node: &str) -> DnsSettings {
    let addresses = topology.nodes.get(node).map(|node| node.addresses.as_slice()).unwrap_or_default();
    let first = |is_v4: bool| addresses.iter().copied().find(move |address| address.is_ipv4() == is_v4);
    DnsSettings {
        server: dns.server.clone(),
        take_to: [true, false].into_iter().filter_map(first).collect(),
        first_port: DNS_PORT,
        trusted: dns.trusted.clone(),
    }
}
