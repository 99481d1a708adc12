//! What there is to build: nodes, pods and the world outside, with their addresses. Pure.
//!
//! A pod without a node goes to the first node of the Snapshot, or to one made
//! up. A node without an address stays without: its pods are routed all the
//! same, since links need none, only nobody can speak to the node itself.

use namewall_policy::Snapshot;
use namewall_policy::model::{Backend, BackendTarget, NodeId, Workload, WorkloadId, WorkloadKind};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The node that is made up where a Snapshot has pods and no node.
pub const DEFAULT_NODE: &str = "node";

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Topology {
    /// By name.
    pub nodes: BTreeMap<Arc<str>, NodePlan>,
    /// By `namespace/name`.
    pub pods: BTreeMap<Arc<str>, PodPlan>,
    /// Addresses of hosts that are no part of the cluster.
    pub outside: BTreeSet<IpAddr>,
    /// Addresses of Services, and the node that the world outside sends them to.
    pub services: BTreeMap<IpAddr, Arc<str>>,
    /// What was asked for and cannot be had.
    pub left_out: Vec<LeftOut>,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NodePlan {
    pub addresses: Vec<IpAddr>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodPlan {
    pub node: Arc<str>,
    /// All on one interface; those of a `hostNetwork` pod are also its node's.
    pub addresses: Vec<IpAddr>,
    /// It lives in its node's namespace.
    pub host_network: bool,
}

/// An address that nobody got.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOut {
    pub address: IpAddr,
    /// Who should have had it.
    pub of: String,
    pub why: Unusable,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unusable {
    /// Loopback, link-local, multicast and such: it cannot be routed.
    NotRoutable,
    TakenBy(String),
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot have {}: ", self.of, self.address)?;
        match &self.why {
            Unusable::NotRoutable => f.write_str("it is no address that can be routed"),
            Unusable::TakenBy(holder) => write!(f, "{holder} has it"),
        }
    }
}

impl Topology {
    /// Every node, every pod that has an address or its node's network, and the hosts outside.
    pub fn new(snapshot: &Snapshot, outside: &[IpAddr]) -> Self {
        let mut planner = Planner::default();
        for node in snapshot.nodes.iter() {
            let addresses = planner.take(&node.addresses, &format!("node {}", node.name));
            planner.topology.nodes.insert(node.name.clone(), NodePlan { addresses });
        }
        // Nodes' addresses are known before pods are: a pod cannot take one away.
        let pods = || snapshot.workload_ids().filter(|&id| lives(snapshot.workload(id)));
        for id in pods().filter(|&id| snapshot.workload(id).host_network) {
            planner.host_pod(snapshot, id);
        }
        for id in pods().filter(|&id| !snapshot.workload(id).host_network) {
            planner.pod(snapshot, id);
        }
        planner.services(snapshot);
        let outside = planner.take(outside, "a host outside");
        planner.topology.outside.extend(outside);
        planner.topology
    }

    /// Every address that somebody has.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let nodes = self.nodes.values().flat_map(|node| &node.addresses);
        let pods = self.pods.values().filter(|pod| !pod.host_network).flat_map(|pod| &pod.addresses);
        nodes.chain(pods).chain(&self.outside).copied()
    }
}

fn lives(workload: &Workload) -> bool {
    workload.kind == WorkloadKind::Pod && (workload.host_network || !workload.addresses.is_empty())
}

#[derive(Default)]
struct Planner {
    topology: Topology,
    holders: FxHashMap<IpAddr, String>,
}

impl Planner {
    /// Those of the addresses that are free; the others are written down.
    fn take(&mut self, addresses: &[IpAddr], of: &str) -> Vec<IpAddr> {
        let mut taken = Vec::new();
        for &address in addresses {
            let why = match self.holders.get(&address) {
                _ if !is_routable(address) => Unusable::NotRoutable,
                Some(holder) if holder == of => continue,
                Some(holder) => Unusable::TakenBy(holder.clone()),
                None => {
                    self.holders.insert(address, of.to_owned());
                    taken.push(address);
                    continue;
                }
            };
            self.topology.left_out.push(LeftOut { address, of: of.to_owned(), why });
        }
        taken
    }

    fn node_of(&mut self, snapshot: &Snapshot, workload: &Workload) -> Arc<str> {
        let node = workload.node.map(|id| snapshot.node(id)).or(snapshot.nodes.first());
        let name = node.map_or_else(|| DEFAULT_NODE.into(), |node| node.name.clone());
        self.topology.nodes.entry(name.clone()).or_default();
        name
    }

    fn pod(&mut self, snapshot: &Snapshot, id: WorkloadId) {
        let (name, workload) = (snapshot.workload_name(id), snapshot.workload(id));
        let addresses = self.take(&workload.addresses, &format!("pod {name}"));
        if addresses.is_empty() {
            return;
        }
        let node = self.node_of(snapshot, workload);
        self.topology.pods.insert(name.into(), PodPlan { node, addresses, host_network: false });
    }

    /// A Service is sent to a node that has one of its pods, as a load balancer that knows would.
    fn services(&mut self, snapshot: &Snapshot) {
        let pods = snapshot.workloads.iter().filter(|workload| !workload.host_network);
        let placed = pods.filter_map(|pod| Some((pod, pod.node?)));
        let nodes: BTreeMap<IpAddr, NodeId> =
            placed.flat_map(|(pod, node)| pod.addresses.iter().map(move |&address| (address, node))).collect();
        for service in &snapshot.services {
            let of = format!("Service {}/{}", snapshot.namespace(service.namespace).name, service.name);
            let backends = service.ports.iter().flat_map(|port| &port.backends);
            let node_of = |backend: &Backend| match backend.target {
                BackendTarget::Workload(id) => snapshot.workload(id).node,
                BackendTarget::Address(address) => nodes.get(&address).copied(),
            };
            // A load balancer that nodes do not translate is a host outside.
            let balancers = self.take(&service.proxied, &of);
            self.topology.outside.extend(balancers);
            let node = backends.filter_map(node_of).next().map(|id| snapshot.node(id).name.clone());
            let Some(node) = node.or_else(|| self.topology.nodes.keys().next().cloned()) else { continue };
            let translated: Vec<IpAddr> = service.translated().collect();
            for address in self.take(&translated, &of) {
                self.topology.services.insert(address, node.clone());
            }
        }
    }

    /// Its addresses are its node's, also those that the node does not tell of.
    fn host_pod(&mut self, snapshot: &Snapshot, id: WorkloadId) {
        let (name, workload) = (snapshot.workload_name(id), snapshot.workload(id));
        let node = self.node_of(snapshot, workload);
        let more = self.take(&workload.addresses, &format!("node {node}"));
        let addresses = self.topology.nodes.get_mut(&node).map(|plan| {
            plan.addresses.extend(more);
            let own = plan.addresses.iter().filter(|address| workload.addresses.contains(address));
            let own: Vec<IpAddr> = own.copied().collect();
            if own.is_empty() { plan.addresses.clone() } else { own }
        });
        let addresses = addresses.unwrap_or_default();
        self.topology.pods.insert(name.into(), PodPlan { node, addresses, host_network: true });
    }
}

/// 169.254.0.0/16 is: a metadata service is a host worth asking for.
fn is_routable(address: IpAddr) -> bool {
    let special = address.is_unspecified() || address.is_loopback() || address.is_multicast();
    let more = match address {
        IpAddr::V4(address) => address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address.to_ipv4_mapped().is_some(),
    };
    !special && !more
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_policy::labels::Labels;
    use namewall_policy::model::{Node, Role};

    fn pod(snapshot: &mut Snapshot, name: &str, addresses: &[&str]) {
        let namespace = snapshot.ensure_namespace("shop");
        let host_network = name.starts_with("host");
        let pod = snapshot.new_pod(Role { namespace, labels: Labels::default(), host_network }, name);
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        snapshot.add_workload(Workload { addresses, ..pod });
    }

    fn texts(topology: &Topology) -> String {
        let mut lines = Vec::new();
        lines.extend(topology.nodes.iter().map(|(name, node)| format!("node {name} {:?}", node.addresses)));
        lines.extend(topology.pods.iter().map(|(name, pod)| format!("{name} on {} {:?}", pod.node, pod.addresses)));
        lines.push(format!("outside {:?}", topology.outside));
        lines.extend(topology.left_out.iter().map(LeftOut::to_string));
        lines.join("\n")
    }

    #[test]
    fn pods_without_a_node_get_one_that_is_made_up() {
        let mut snapshot = Snapshot::default();
        pod(&mut snapshot, "web", &["10.0.0.1", "2001:db8::1"]);
        pod(&mut snapshot, "waiting", &[]);
        pod(&mut snapshot, "host", &["192.0.2.9"]);
        let expected = "node node [192.0.2.9]\nshop/host on node [192.0.2.9]\n\
             shop/web on node [10.0.0.1, 2001:db8::1]\noutside {}";
        assert_eq!(texts(&Topology::new(&snapshot, &[])), expected);
    }

    #[test]
    fn an_address_is_had_once_and_only_if_it_can_be_routed() {
        let mut snapshot = Snapshot::default();
        let addresses = vec!["192.0.2.1".parse().unwrap(), "127.0.0.1".parse().unwrap()];
        snapshot.add_node(Node { name: "n1".into(), labels: Labels::default(), addresses, source: None });
        pod(&mut snapshot, "a", &["10.0.0.1"]);
        pod(&mut snapshot, "b", &["10.0.0.1", "192.0.2.1", "10.0.0.2"]);
        pod(&mut snapshot, "host", &["192.0.2.1"]);
        let outside = ["10.0.0.2", "203.0.113.1", "203.0.113.1", "fe80::7", "169.254.169.254"];
        let outside: Vec<IpAddr> = outside.iter().map(|text| text.parse().unwrap()).collect();
        let expected = "node n1 [192.0.2.1]\nshop/a on n1 [10.0.0.1]\nshop/b on n1 [10.0.0.2]\n\
             shop/host on n1 [192.0.2.1]\noutside {169.254.169.254, 203.0.113.1}\n\
             node n1 cannot have 127.0.0.1: it is no address that can be routed\n\
             pod shop/b cannot have 10.0.0.1: pod shop/a has it\n\
             pod shop/b cannot have 192.0.2.1: node n1 has it\n\
             a host outside cannot have 10.0.0.2: pod shop/b has it\n\
             a host outside cannot have fe80::7: it is no address that can be routed";
        assert_eq!(texts(&Topology::new(&snapshot, &outside)), expected);
    }
}
