//! What the unit tests of this crate have in common: a small cluster on a data
//! plane in memory, and DNS answers.

use crate::addresses::Machine;
use crate::learner::Learning;
use crate::node::{Node, NodeSettings};
use crate::settle::Settle;
use namewall_cluster::{Document, LastGood, Read, Settings, yaml};
use namewall_dataplane::memory::Memory;
use namewall_dataplane::netlink::MachineAddresses;
use namewall_dataplane::netlink::routed::RoutedLink;
use namewall_dataplane::netlink::shared::SharedLink;
use namewall_dataplane::netlink::veth::PodLink;
use namewall_dataplane::nft::rule::Hardware;
use namewall_dataplane::render::Scope;
use namewall_dataplane::{CutEstablished, Tunnels};
use namewall_dns::lookup::{Done, Lookups, Order};
use namewall_policy::addr::Cidr;
use namewall_policy::lease::{Bounds, NeverLeased};
use namewall_policy::{Program, compile};
use namewall_runtime::ManualClock;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

/// Nothing is ever found.
#[derive(Debug)]
pub(crate) struct NoLookups;

impl Lookups for NoLookups {
    fn order(&mut self, _order: Order) {}

    fn take_done(&mut self) -> Vec<Done> {
        Vec::new()
    }
}

/// The pod that policies are for, and another.
pub(crate) const WEB: &str = "10.0.0.1";
pub(crate) const DB: &str = "10.0.0.2";
/// The server that gives answers.
pub(crate) const UPSTREAM: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 53)), 53);

/// Two pods on one node, `shop/web` and `shop/db`.
pub(crate) const PODS: &str = "
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {nodeName: n1},
 status: {phase: Running, podIP: 10.0.0.1}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop, labels: {app: db}}, spec: {nodeName: n1},
 status: {phase: Running, podIP: 10.0.0.2}}
";

/// Web may open these names, and nothing else.
pub(crate) fn names_of_web(patterns: &[&str]) -> String {
    names_of("web", patterns)
}

/// The pods of an app may open these names, and nothing else.
pub(crate) fn names_of(app: &str, patterns: &[&str]) -> String {
    format!(
        "{{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {{name: names-{app}}},
           spec: {{tier: Admin, priority: 1, subject: {{pods: {{podSelector: {{matchLabels: {{app: {app}}}}}}}}}, egress: [
             {{action: Accept, to: [{{domainNames: [{}]}}]}},
             {{action: Deny, to: [{{networks: [0.0.0.0/0]}}]}}]}}}}",
        patterns.iter().map(|pattern| format!("'{pattern}'")).collect::<Vec<_>>().join(", ")
    )
}

/// The pods with these policies, as a source reads them.
pub(crate) fn read(policies: &[String]) -> Read {
    let text = format!("{PODS}\n---\n{}", policies.join("\n---\n"));
    let documents = yaml::split_documents(&text).into_iter().flat_map(|part| {
        let tree = yaml::parse(part).expect("it is YAML").expect("it is not empty");
        Document::from_tree(&"test.yaml".into(), tree).0
    });
    let read = LastGood::default().lower(documents.map(Arc::new), Vec::new(), &Settings::default());
    assert_eq!(read.findings, [], "the manifests of a test are right");
    read
}

pub(crate) fn program(policies: &[String]) -> Program {
    compile(&read(policies).lowered.snapshot).0
}

/// A node in memory, with a handle to look at what is enforced, and a clock to move.
pub(crate) struct Bench {
    pub(crate) node: Node<Memory>,
    pub(crate) memory: Memory,
    pub(crate) clock: Arc<ManualClock>,
}

impl Bench {
    pub(crate) fn new(policies: &[String]) -> Self {
        let (memory, clock) = (Memory::default(), Arc::new(ManualClock::default()));
        let mut node = node(&memory, &clock);
        node.enforce(&program(policies)).expect("memory takes it");
        Self { node, memory, clock }
    }

    /// Another process takes over what is in the data plane.
    pub(crate) fn restart(&mut self, policies: &[String]) {
        self.node = node(&self.memory, &self.clock);
        self.node.enforce(&program(policies)).expect("memory takes it");
    }
}

fn node(memory: &Memory, clock: &Arc<ManualClock>) -> Node<Memory> {
    let settings = NodeSettings {
        scope: Scope::default(),
        cut: CutEstablished::default(),
        settle: Settle::AT_ONCE,
        bounds: Bounds::default(),
        learning: Learning::default(),
        never_leased: NeverLeased::new("cluster.local".parse().expect("a name")),
    };
    Node::new(memory.clone(), settings, clock.clone())
}

/// An answer to a question for the A records of a name.
pub(crate) fn answer(name: &str, addresses: &[Ipv4Addr], ttl: u32) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0];
    bytes[6..8].copy_from_slice(&(addresses.len() as u16).to_be_bytes());
    for label in name.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.extend([0, 0, 1, 0, 1]);
    for address in addresses {
        // The owner is a pointer to the question.
        bytes.extend([0xc0, 12, 0, 1, 0, 1]);
        bytes.extend(ttl.to_be_bytes());
        bytes.extend([0, 4]);
        bytes.extend(address.octets());
    }
    bytes
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A machine whose addresses a test says.
#[derive(Clone, Default, Debug)]
pub(crate) struct FakeMachine(Arc<Mutex<Interfaces>>);

#[derive(Default, Debug)]
struct Interfaces {
    addresses: BTreeSet<IpAddr>,
    /// Networks of local routes.
    unlisted: BTreeSet<Cidr>,
    routed: Vec<RoutedLink>,
    shared: Vec<SharedLink>,
    tunnels: Tunnels,
    links: Vec<PodLink>,
    has_changed: bool,
    has_new_links: bool,
    fails: bool,
}

impl FakeMachine {
    pub(crate) fn new(addresses: &[&str]) -> Self {
        let machine = Self::default();
        machine.set_unnoticed(addresses);
        machine
    }

    pub(crate) fn set(&self, addresses: &[&str]) {
        self.set_unnoticed(addresses);
        self.with(|interfaces| interfaces.has_changed = true);
    }

    /// The kernel does not tell of the change.
    pub(crate) fn set_unnoticed(&self, addresses: &[&str]) {
        self.with(|interfaces| interfaces.addresses = addresses.iter().map(|text| ip(text)).collect());
    }

    /// From now on it answers for these networks by local routes.
    pub(crate) fn set_unlisted(&self, networks: &[&str]) {
        let networks = networks.iter().map(|text| text.parse().expect("a network")).collect();
        self.with(|interfaces| {
            interfaces.unlisted = networks;
            interfaces.has_changed = true;
        });
    }

    /// Routes an address to the pod behind an interface.
    pub(crate) fn route(&self, name: &str, index: u32, address: &str) {
        let link = RoutedLink { name: name.to_owned(), index, hardware: None, addresses: vec![ip(address)] };
        self.with(|interfaces| interfaces.routed.push(link));
    }

    /// Adds a port of a bridge that pods' addresses are routed to.
    pub(crate) fn port(&self, name: &str, index: u32) {
        let blocks = vec!["10.0.0.0/24".parse().expect("a block")];
        let link = SharedLink { name: name.to_owned(), index, addresses: Vec::new(), blocks };
        self.with(|interfaces| interfaces.shared.push(link));
    }

    /// From now on these are its tunnel endpoints: UDP ports and IP protocols.
    pub(crate) fn tunnel(&self, ports: &[u16], protocols: &[u8]) {
        let tunnels =
            Tunnels { ports: ports.iter().copied().collect(), protocols: protocols.iter().copied().collect() };
        self.with(|interfaces| interfaces.tunnels = tunnels);
    }

    /// Adds an interface that leads to a pod. The kernel tells of it.
    pub(crate) fn link(&self, name: &str, index: u32) {
        let link = PodLink { name: name.to_owned(), index, hardware: Hardware([2, 0, 0, 0, 0, index as u8]) };
        self.with(|interfaces| {
            interfaces.links.push(link);
            interfaces.has_new_links = true;
        });
    }

    /// Whether the addresses can be read from now on.
    pub(crate) fn fail(&self, fails: bool) {
        self.with(|interfaces| interfaces.fails = fails);
    }

    fn with<T>(&self, with: impl FnOnce(&mut Interfaces) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Machine for FakeMachine {
    fn has_changed(&mut self) -> bool {
        self.with(|interfaces| std::mem::take(&mut interfaces.has_changed))
    }

    fn addresses(&mut self) -> Option<MachineAddresses> {
        self.with(|interfaces| {
            let (listed, unlisted) = (interfaces.addresses.clone(), interfaces.unlisted.clone());
            (!interfaces.fails).then_some(MachineAddresses { listed, unlisted })
        })
    }

    fn routed_links(&mut self) -> Option<Vec<RoutedLink>> {
        self.with(|interfaces| (!interfaces.fails).then(|| interfaces.routed.clone()))
    }

    fn links_have_changed(&mut self) -> bool {
        self.with(|interfaces| std::mem::take(&mut interfaces.has_new_links))
    }

    fn pod_links(&mut self, wanted: &BTreeSet<u32>) -> Option<Vec<PodLink>> {
        let is_wanted = |link: &&PodLink| wanted.contains(&link.index);
        self.with(|interfaces| {
            (!interfaces.fails).then(|| interfaces.links.iter().filter(is_wanted).cloned().collect())
        })
    }

    fn shared_links(&mut self, wanted: &BTreeSet<IpAddr>) -> Option<Vec<SharedLink>> {
        let addresses: Vec<IpAddr> = wanted.iter().copied().collect();
        let shared = |link: &SharedLink| SharedLink { addresses: addresses.clone(), ..link.clone() };
        self.with(|interfaces| (!interfaces.fails).then(|| interfaces.shared.iter().map(shared).collect()))
    }

    fn tunnels(&mut self) -> Option<Tunnels> {
        self.with(|interfaces| (!interfaces.fails).then(|| interfaces.tunnels.clone()))
    }
}
