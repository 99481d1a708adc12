//! Addresses for what has none: manifests from Git have Deployments and
//! Services, and a sandbox needs pods and a node. Pure.

use crate::topology::DEFAULT_NODE;
use namewall_policy::Snapshot;
use namewall_policy::addr::{Cidr, next_address};
use namewall_policy::model::{NodeId, Service, ServiceForm, Workload, WorkloadKind};
use rustc_hash::FxHashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The pod network where nothing says which.
const PODS: (IpAddr, u8) = (IpAddr::V4(Ipv4Addr::new(10, 244, 0, 0)), 16);
/// Networks for Services, in the order in which they are tried: none may overlap the pods'.
const SERVICES: [(IpAddr, u8); 4] = [
    (IpAddr::V4(Ipv4Addr::new(10, 96, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(172, 30, 0, 0)), 16),
    (IpAddr::V6(Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, 0)), 112),
    (IpAddr::V6(Ipv6Addr::new(0xfd00, 0x172, 0, 0, 0, 0, 0, 0)), 112),
];
/// The same for nodes.
const NODES: [(IpAddr, u8); 4] = [
    (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 0)), 24),
    (IpAddr::V4(Ipv4Addr::new(172, 18, 0, 0)), 16),
    (IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0xffff, 0, 0, 0, 0)), 64),
    (IpAddr::V6(Ipv6Addr::new(0xfd00, 0x18, 0, 0, 0, 0, 0, 0)), 64),
];

/// What was made up.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Assigned {
    /// The networks that the addresses of pods are from.
    pub networks: Vec<Cidr>,
    /// The workloads that have become pods, by `namespace/name`.
    pub workloads: Vec<String>,
    /// How many Services got addresses, and from which networks.
    pub services: usize,
    pub service_networks: Vec<Cidr>,
    /// The addresses of nodes, where none had one.
    pub nodes: Vec<IpAddr>,
    /// Workloads for which a network had no address left.
    pub left_out: Vec<String>,
}

/// Makes one pod of every template, and gives it and every pod without an
/// address one of each family from the cluster's pod networks, or from a usual
/// one. Pods without a node are on the first. Services get addresses too, and
/// so do nodes if none has one. The Snapshot must be compiled anew afterwards.
pub fn assign_addresses(snapshot: &mut Snapshot) -> Assigned {
    if snapshot.pod_networks.is_empty() {
        Arc::make_mut(&mut snapshot.pod_networks).push(Cidr::new(PODS.0, PODS.1));
    }
    let mut assigned = Assigned::default();
    for is_v4 in [true, false] {
        let of_family = snapshot.pod_networks.iter().find(|network| network.address().is_ipv4() == is_v4);
        assigned.networks.extend(of_family.copied());
    }
    let mut used: FxHashSet<IpAddr> = FxHashSet::default();
    used.extend(snapshot.workloads.iter().flat_map(|workload| workload.addresses.iter().copied()));
    used.extend(snapshot.nodes.iter().flat_map(|node| node.addresses.iter().copied()));
    used.extend(snapshot.services.iter().flat_map(|service| service.addresses.iter().copied()));
    let node = assign_nodes(snapshot, &mut assigned, &mut used);
    assign_pods(snapshot, node, &mut assigned, &mut used);
    assign_services(snapshot, &mut assigned, &mut used);
    assigned
}

/// Returns the node for pods that have none.
fn assign_nodes(snapshot: &mut Snapshot, assigned: &mut Assigned, used: &mut FxHashSet<IpAddr>) -> NodeId {
    let first = if snapshot.nodes.is_empty() { snapshot.ensure_node(DEFAULT_NODE) } else { NodeId(0) };
    if snapshot.nodes.iter().any(|node| !node.addresses.is_empty()) {
        return first;
    }
    let mut pools = assigned.pools(&NODES, &snapshot.pod_networks);
    for node in Arc::make_mut(&mut snapshot.nodes) {
        node.addresses = pools.iter_mut().filter_map(|pool| pool.take(used)).collect();
        assigned.nodes.extend(&node.addresses);
    }
    first
}

fn assign_pods(snapshot: &mut Snapshot, first: NodeId, assigned: &mut Assigned, used: &mut FxHashSet<IpAddr>) {
    // The first address of a network is often its gateway.
    let mut pools: Vec<Pool> = assigned.networks.iter().map(|&network| Pool::new(network).after_first()).collect();
    let mut names: FxHashSet<String> = FxHashSet::default();
    for id in snapshot.workload_ids().collect::<Vec<_>>() {
        let workload = snapshot.workload(id).clone();
        let name = snapshot.workload_name(id);
        if !workload.is_template() && !workload.addresses.is_empty() {
            names.insert(name);
            continue;
        }
        let node = workload.node.unwrap_or(first);
        let mut pod = Workload { kind: WorkloadKind::Pod, node: Some(node), ..workload.clone() };
        if !names.insert(name.clone()) {
            // Two kinds may share a name; two pods may not.
            pod.name = format!("{}-{}", workload.name, workload.kind.name().to_lowercase()).into();
        }
        pod.addresses = match workload.host_network {
            true => snapshot.node(node).addresses.clone().into(),
            false => pools.iter_mut().filter_map(|pool| pool.take(used)).collect(),
        };
        if pod.addresses.is_empty() && !workload.host_network {
            assigned.left_out.push(name);
            continue;
        }
        assigned.workloads.push(name);
        snapshot.workloads.set(id.index(), pod);
    }
}

fn assign_services(snapshot: &mut Snapshot, assigned: &mut Assigned, used: &mut FxHashSet<IpAddr>) {
    let mut pools = assigned.pools(&SERVICES, &snapshot.pod_networks);
    let needs = |service: &Service| service.form == ServiceForm::Balanced && service.addresses.is_empty();
    for at in 0..snapshot.services.len() {
        if let Some(service) = snapshot.services.get_mut(at).filter(|service| needs(service)) {
            service.addresses = pools.iter_mut().filter_map(|pool| pool.take(used)).collect();
            assigned.services += usize::from(!service.addresses.is_empty());
        }
    }
    if assigned.services > 0 {
        assigned.service_networks = pools.iter().map(|pool| pool.network).collect();
    }
}

impl Assigned {
    /// The first network of each family that pods speak and that is not among theirs.
    fn pools(&self, networks: &[(IpAddr, u8)], pods: &[Cidr]) -> Vec<Pool> {
        let is_free = |network: &Cidr| !pods.iter().any(|pods| pods.covers(network) || network.covers(pods));
        let families = self.networks.iter().map(|network| network.address().is_ipv4());
        let first = |is_v4: bool| {
            let mut usable = networks.iter().map(|&(address, prefix)| Cidr::new(address, prefix)).filter(is_free);
            usable.find(|network| network.address().is_ipv4() == is_v4).map(Pool::new)
        };
        families.filter_map(first).collect()
    }
}

/// The addresses of a network, one after another, without the network's own.
struct Pool {
    network: Cidr,
    next: Option<IpAddr>,
}

impl Pool {
    fn new(network: Cidr) -> Self {
        Self { network, next: next_address(network.address()) }
    }

    fn after_first(self) -> Self {
        Self { next: self.next.and_then(next_address), ..self }
    }

    /// The next address that nobody has.
    fn take(&mut self, used: &mut FxHashSet<IpAddr>) -> Option<IpAddr> {
        loop {
            let address = self.next?;
            self.next = next_address(address);
            if !self.network.contains(address) {
                self.next = None;
                return None;
            }
            if used.insert(address) {
                return Some(address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_policy::labels::Labels;
    use namewall_policy::model::Role;

    fn workload(snapshot: &mut Snapshot, kind: WorkloadKind, name: &str, address: Option<&str>) {
        let namespace = snapshot.ensure_namespace("shop");
        let pod = snapshot.new_pod(Role { namespace, labels: Labels::default(), host_network: false }, name);
        let addresses = address.map(|text| text.parse().expect("it is an address")).into_iter().collect();
        snapshot.add_workload(Workload { kind, addresses, ..pod });
    }

    #[test]
    fn templates_become_pods_with_free_addresses() {
        let mut snapshot = Snapshot::default();
        workload(&mut snapshot, WorkloadKind::Pod, "there", Some("10.244.0.2"));
        workload(&mut snapshot, WorkloadKind::Deployment, "web", None);
        workload(&mut snapshot, WorkloadKind::StatefulSet, "web", None);
        let assigned = assign_addresses(&mut snapshot);
        assert_eq!(assigned.workloads, ["shop/web", "shop/web"]);
        let texts: Vec<String> =
            snapshot.workloads.iter().map(|pod| format!("{} {} {:?}", pod.kind, pod.name, pod.addresses)).collect();
        assert_eq!(texts, ["Pod there [10.244.0.2]", "Pod web [10.244.0.3]", "Pod web-statefulset [10.244.0.4]"]);
    }

    #[test]
    fn nodes_and_services_get_addresses_that_are_no_pods() {
        for (pods, expected) in [
            ("10.244.0.0/16", ["10.96.0.1", "192.0.2.1"]),
            ("10.0.0.0/8", ["172.30.0.1", "192.0.2.1"]),
            ("192.0.2.0/24", ["10.96.0.1", "172.18.0.1"]),
        ] {
            let mut snapshot = Snapshot::default();
            Arc::make_mut(&mut snapshot.pod_networks).push(pods.parse().expect("it is a network"));
            workload(&mut snapshot, WorkloadKind::Deployment, "web", None);
            let namespace = snapshot.ensure_namespace("shop");
            let (form, addresses, ports) = (ServiceForm::Balanced, Vec::new(), Vec::new());
            snapshot.services.push(Service {
                namespace,
                name: "web".into(),
                form,
                addresses,
                external: Vec::new(),
                proxied: Vec::new(),
                ports,
                source: None,
            });
            let assigned = assign_addresses(&mut snapshot);
            let service = snapshot.services.get(0).expect("it is there").addresses[0];
            assert_eq!([service, assigned.nodes[0]].map(|address| address.to_string()), expected, "{pods}");
            assert_eq!(snapshot.workloads[0].node, Some(NodeId(0)));
        }
    }

    #[test]
    fn a_network_that_is_full_is_said() {
        let mut snapshot = Snapshot::default();
        let network = "192.0.2.0/30".parse().expect("it is a network");
        Arc::make_mut(&mut snapshot.pod_networks).push(network);
        for name in ["a", "b", "c"] {
            workload(&mut snapshot, WorkloadKind::Deployment, name, None);
        }
        assert_eq!(assign_addresses(&mut snapshot).left_out, ["shop/c"]);
    }
}
