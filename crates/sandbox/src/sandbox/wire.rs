//! Makes the sandbox like a Topology: first all that goes, then all that comes.

use super::{Bridge, Changes, LiveNode, LivePod, Progress, Sandbox, Wired, Wiring};
use crate::error::Error;
use crate::links::{Batch, FIRST_LINK, HARDWARE_ADDRESS, InNetwork, LOOPBACK, LinkEnd, To, Wires};
use crate::netns::Namespace;
use crate::sysctl::{self, Manners};
use crate::topology::{NodePlan, PodPlan, Topology};
use namewall_dataplane::guard::link_local;
use namewall_dataplane::nft::rule::Hardware;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The bridge of a node.
const BRIDGE: &str = "cni0";
/// The one link of a pod, and a node's uplink.
const ETH0: LinkEnd<'_> = LinkEnd { index: FIRST_LINK, name: "eth0", hardware: None };

/// The requests of an update, by namespace. Each is sent as a whole.
#[derive(Default)]
struct Batches {
    outside: Batch,
    nodes: BTreeMap<Arc<str>, Batch>,
}

impl Batches {
    fn node(&mut self, name: &Arc<str>) -> &mut Batch {
        self.nodes.entry(name.clone()).or_default()
    }
}

/// What one Topology has and another has not: of the old one what goes, of the new one what comes.
struct Only<'a> {
    pods: Vec<(&'a Arc<str>, &'a PodPlan)>,
    nodes: Vec<(&'a Arc<str>, &'a NodePlan)>,
    /// Addresses of nodes that both have.
    node_addresses: Vec<(&'a Arc<str>, IpAddr)>,
    outside: Vec<IpAddr>,
    /// Addresses of Services, and the node they lead to.
    services: Vec<(IpAddr, &'a Arc<str>)>,
}

impl<'a> Only<'a> {
    fn of(this: &'a Topology, other: &Topology) -> Self {
        let pods = this.pods.iter().filter(|(name, plan)| !plan.host_network && other.pods.get(*name) != Some(plan));
        let nodes = this.nodes.iter().filter(|(name, _)| !other.nodes.contains_key(*name));
        let both = this.nodes.iter().filter_map(|(name, plan)| Some((name, plan, other.nodes.get(name)?)));
        let node_addresses = both.flat_map(|(name, plan, other)| {
            let only = plan.addresses.iter().filter(|address| !other.addresses.contains(address));
            only.map(move |&address| (name, address))
        });
        let services = this.services.iter().filter(|(address, node)| other.services.get(*address) != Some(node));
        Self {
            services: services.map(|(&address, node)| (address, node)).collect(),
            pods: pods.collect(),
            nodes: nodes.collect(),
            node_addresses: node_addresses.collect(),
            outside: this.outside.difference(&other.outside).copied().collect(),
        }
    }

    fn addresses(&self) -> FxHashSet<IpAddr> {
        let pods = self.pods.iter().flat_map(|(_, plan)| &plan.addresses);
        let nodes = self.nodes.iter().flat_map(|(_, plan)| &plan.addresses);
        let others = self.node_addresses.iter().map(|(_, address)| address).chain(&self.outside);
        pods.chain(nodes).chain(others).copied().collect()
    }
}

pub(super) fn outside() -> Result<Wired, Error> {
    let mut batch = Batch::default();
    batch.up(LOOPBACK);
    create("the outside", Manners::Router, batch)
}

impl Sandbox {
    pub(super) fn become_like(&mut self, new: Topology, progress: &mut dyn FnMut(Progress)) -> Result<Changes, Error> {
        let old = std::mem::take(&mut self.topology);
        let (gone, come) = (Only::of(&old, &new), Only::of(&new, &old));
        self.listeners.forget(&gone.addresses());
        self.remove(&gone)?;
        self.add(&come, progress)?;
        let names = |pods: &[(&Arc<str>, &PodPlan)]| pods.iter().map(|(name, _)| (*name).clone()).collect();
        let node_names = |nodes: &[(&Arc<str>, &NodePlan)]| nodes.iter().map(|(name, _)| (*name).clone()).collect();
        let changes = Changes {
            nodes_added: node_names(&come.nodes),
            nodes_removed: node_names(&gone.nodes),
            pods_added: names(&come.pods),
            pods_removed: names(&gone.pods),
        };
        drop((gone, come));
        self.topology = new;
        self.holders = self.find_holders();
        Ok(changes)
    }

    fn find_holders(&self) -> FxHashMap<IpAddr, Arc<Namespace>> {
        let mut holders = FxHashMap::default();
        for (name, plan) in &self.topology.nodes {
            let namespace = self.nodes.get(name).map(|node| &node.wired.namespace);
            holders.extend(plan.addresses.iter().filter_map(|&address| Some((address, namespace?.clone()))));
        }
        for (name, plan) in self.topology.pods.iter().filter(|(_, plan)| !plan.host_network) {
            let namespace = self.pods.get(name).map(|pod| &pod.namespace);
            holders.extend(plan.addresses.iter().filter_map(|&address| Some((address, namespace?.clone()))));
        }
        holders.extend(self.topology.outside.iter().map(|&address| (address, self.outside.namespace.clone())));
        holders
    }

    /// A link is deleted even where open sockets keep its namespace: nobody else may meet the old holder of an address.
    fn remove(&mut self, gone: &Only<'_>) -> Result<(), Error> {
        let mut batches = Batches::default();
        for (name, plan) in &gone.pods {
            let (Some(pod), Some(node)) = (self.pods.remove(*name), self.nodes.get(&plan.node)) else { continue };
            batches.node(&plan.node).remove_link(pod.link);
            plan.addresses.iter().for_each(|&address| batches.outside.remove_route(To::Address(address), node.link));
        }
        for (name, address) in &gone.node_addresses {
            let Some(node) = self.nodes.get(*name) else { continue };
            let batch = batches.node(name);
            batch.remove_address(ETH0.index, *address);
            batch.restore_default_route(ETH0.index);
            batches.outside.remove_route(To::Address(*address), node.link);
        }
        gone.outside.iter().for_each(|&address| batches.outside.remove_address(LOOPBACK, address));
        for (address, node) in &gone.services {
            let Some(node) = self.nodes.get(*node) else { continue };
            batches.outside.remove_route(To::Address(*address), node.link);
        }
        self.commit(batches)?;
        let mut links = Batch::default();
        for (name, _) in &gone.nodes {
            if let Some(node) = self.nodes.remove(*name) {
                links.remove_link(node.link);
            }
        }
        commit(&mut self.outside.wires, links, "the outside")
    }

    fn add(&mut self, come: &Only<'_>, progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
        let total = come.nodes.len() + come.pods.len();
        let mut done = 0;
        let mut step = || {
            done += 1;
            progress(Progress { done, total });
        };
        let mut batches = Batches::default();
        let mut coming_up = Vec::new();
        for (name, plan) in &come.nodes {
            self.add_node(name, plan, &mut batches)?;
            step();
        }
        for (name, address) in &come.node_addresses {
            let Some(node) = self.nodes.get(*name) else { continue };
            batches.node(name).address(ETH0.index, *address);
            batches.outside.route(To::Address(*address), node.link);
        }
        come.outside.iter().for_each(|&address| batches.outside.address(LOOPBACK, address));
        for (address, node) in &come.services {
            let Some(node) = self.nodes.get(*node) else { continue };
            batches.outside.route(To::Address(*address), node.link);
        }
        for (name, plan) in &come.pods {
            coming_up.push((*name, self.add_pod(name, plan, &mut batches)?, *plan));
            step();
        }
        self.commit(batches)?;
        for (name, mut wires, plan) in coming_up {
            wait_for_link(&mut wires, &plan.addresses, &format!("pod {name}"))?;
        }
        self.wait_for_nodes(come)
    }

    fn wait_for_nodes(&mut self, come: &Only<'_>) -> Result<(), Error> {
        for (name, plan) in &come.nodes {
            let Some(node) = self.nodes.get_mut(*name) else { continue };
            wait_for_link(&mut node.wired.wires, &plan.addresses, &format!("node {name}"))?;
        }
        for (name, address) in &come.node_addresses {
            let Some(node) = self.nodes.get_mut(*name) else { continue };
            wait_for(&mut node.wired.wires, &[*address], &format!("node {name}"))?;
        }
        wait_for(&mut self.outside.wires, &come.outside, "the outside")
    }

    fn add_node(&mut self, name: &Arc<str>, plan: &NodePlan, batches: &mut Batches) -> Result<(), Error> {
        let link = self.new_link();
        let mut batch = Batch::default();
        batch.up(LOOPBACK);
        let far = format!("node{link}");
        batch.link(ETH0, LinkEnd { index: link, name: &far, hardware: None }, self.outside.namespace.as_fd());
        plan.addresses.iter().for_each(|&address| batch.address(ETH0.index, address));
        // Its pods may speak a family that it has no address of.
        batch.route(To::EverythingV4, ETH0.index);
        if sysctl::has_ipv6() {
            batch.route(To::EverythingV6, ETH0.index);
        }
        let wired = create(&format!("node {name}"), Manners::Router, batch)?;
        batches.outside.up(link);
        plan.addresses.iter().for_each(|&address| batches.outside.route(To::Address(address), link));
        self.nodes.insert(name.clone(), LiveNode { wired, link, bridge: None });
        Ok(())
    }

    fn add_pod(&mut self, name: &Arc<str>, plan: &PodPlan, batches: &mut Batches) -> Result<Wires, Error> {
        if self.wiring == Wiring::Bridged {
            return self.add_bridged_pod(name, plan, batches);
        }
        let link = self.new_link();
        let node = &self.nodes[&plan.node];
        let mut batch = Batch::default();
        batch.up(LOOPBACK);
        let far = name_of(link);
        batch.link(ETH0, LinkEnd { index: link, name: &far, hardware: None }, node.wired.namespace.as_fd());
        plan.addresses.iter().for_each(|&address| batch.address(ETH0.index, address));
        if plan.addresses.iter().any(IpAddr::is_ipv4) {
            batch.route(To::EverythingV4, ETH0.index);
        }
        if plan.addresses.iter().any(IpAddr::is_ipv6) {
            batch.route(To::EverythingV6, ETH0.index);
        }
        if sysctl::has_ipv6() {
            batch.pod_link_local(ETH0.index);
        }
        let wired = create(&format!("pod {name}"), Manners::Host, batch)?;
        let on_node = batches.node(&plan.node);
        on_node.up(link);
        if sysctl::has_ipv6() {
            on_node.node_link_local(link);
        }
        plan.addresses.iter().for_each(|&address| on_node.route(To::Address(address), link));
        plan.addresses.iter().for_each(|&address| batches.outside.route(To::Address(address), node.link));
        self.pods.insert(name.clone(), LivePod { namespace: wired.namespace, link, hardware: HARDWARE_ADDRESS });
        Ok(wired.wires)
    }

    /// A pod that is a port of its node's bridge, with neighbours that it finds by ARP and neighbour discovery.
    fn add_bridged_pod(&mut self, name: &Arc<str>, plan: &PodPlan, batches: &mut Batches) -> Result<Wires, Error> {
        let (link, bridge) = (self.new_link(), self.bridge_of(plan, batches));
        let node = &self.nodes[&plan.node];
        let hardware = hardware_of(link);
        let mut batch = Batch::default();
        batch.up(LOOPBACK);
        let far = name_of(link);
        let near = LinkEnd { hardware: Some(hardware), ..ETH0 };
        let far = LinkEnd { index: link, name: &far, hardware: Some(hardware_of(link | NODES_END)) };
        batch.link(near, far, node.wired.namespace.as_fd());
        for &address in &plan.addresses {
            batch.address_in(ETH0.index, InNetwork { address, bits: network_bits(address) });
        }
        let gateways: BTreeSet<IpAddr> = plan.addresses.iter().map(|&address| gateway_of(address)).collect();
        gateways.iter().for_each(|&gateway| batch.route_by(gateway, ETH0.index));
        let wired = create(&format!("pod {name}"), Manners::Bridged, batch)?;
        let on_node = batches.node(&plan.node);
        on_node.port(link, bridge);
        on_node.up(link);
        plan.addresses.iter().for_each(|&address| batches.outside.route(To::Address(address), node.link));
        self.pods.insert(name.clone(), LivePod { namespace: wired.namespace, link, hardware });
        Ok(wired.wires)
    }

    /// The bridge of the pod's node, with a gateway for each of the pod's addresses.
    fn bridge_of(&mut self, plan: &PodPlan, batches: &mut Batches) -> u32 {
        let new_link = self.new_link();
        let Some(node) = self.nodes.get_mut(&plan.node) else { return new_link };
        let batch = batches.node(&plan.node);
        let bridge = node.bridge.get_or_insert_with(|| {
            let hardware = hardware_of(new_link);
            batch.bridge(LinkEnd { index: new_link, name: BRIDGE, hardware: Some(hardware) });
            let address = link_local(Hardware(hardware)).into();
            batch.address_in(new_link, InNetwork { address, bits: 64 });
            Bridge { link: new_link, gateways: BTreeSet::new() }
        });
        for gateway in plan.addresses.iter().map(|&address| gateway_of(address)) {
            if bridge.gateways.insert(gateway) {
                batch.address_in(bridge.link, InNetwork { address: gateway, bits: network_bits(gateway) });
            }
        }
        bridge.link
    }

    /// Numbers are not used twice, so nothing late can reach the wrong link.
    fn new_link(&mut self) -> u32 {
        self.next_link += 1;
        self.next_link
    }

    /// The outside first: a node's uplink must be up before its routes are of use.
    fn commit(&mut self, batches: Batches) -> Result<(), Error> {
        commit(&mut self.outside.wires, batches.outside, "the outside")?;
        for (name, batch) in batches.nodes {
            if let Some(node) = self.nodes.get_mut(&name) {
                commit(&mut node.wired.wires, batch, &format!("node {name}"))?;
            }
        }
        Ok(())
    }
}

/// The name of a pod's link at the node's end.
pub(super) fn name_of(link: u32) -> String {
    format!("pod{link}")
}

/// What sets the hardware address of the node's end apart from that of the pod's end.
const NODES_END: u32 = 1 << 24;

fn hardware_of(link: u32) -> [u8; 6] {
    let [a, b, c, d] = link.to_be_bytes();
    [0x0a, 0x58, a, b, c, d]
}

fn network_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 24 } else { 64 }
}

/// The node's address in the network of a pod on its bridge.
pub fn gateway_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            [a, b, c, 254].into()
        }
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            [a, b, c, d, 0, 0, 0, 0xfffe].into()
        }
    }
}

fn commit(wires: &mut Wires, batch: Batch, what: &str) -> Result<(), Error> {
    wires.commit(batch).map_err(|source| Error::Wire { what: what.to_owned(), source })
}

fn wait_for_link(wires: &mut Wires, addresses: &[IpAddr], what: &str) -> Result<(), Error> {
    match wires.wait_until_running(ETH0.index) {
        Ok(true) => wait_for(wires, addresses, what),
        Ok(false) => Err(Error::LinkDown { what: what.to_owned() }),
        Err(source) => Err(Error::Wire { what: what.to_owned(), source }),
    }
}

fn wait_for(wires: &mut Wires, addresses: &[IpAddr], what: &str) -> Result<(), Error> {
    for &address in addresses {
        match wires.wait_until_local(address) {
            Ok(true) => {}
            Ok(false) => return Err(Error::AddressUnused { what: what.to_owned(), address }),
            Err(source) => return Err(Error::Wire { what: what.to_owned(), source }),
        }
    }
    Ok(())
}

/// A namespace with settings, and with what the batch puts into it.
fn create(what: &str, manners: Manners, batch: Batch) -> Result<Wired, Error> {
    let (namespace, wires) = Namespace::create_with(|| {
        sysctl::set(manners)?;
        let mut wires = Wires::open().map_err(|source| Error::Wire { what: what.to_owned(), source })?;
        commit(&mut wires, batch, what)?;
        Ok(wires)
    })?;
    Ok(Wired { namespace: Arc::new(namespace), wires })
}
