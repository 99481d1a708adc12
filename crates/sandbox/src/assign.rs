//! Addresses for workloads that have none: manifests from Git have Deployments,
//! and a sandbox needs pods. Pure.

use namewall_policy::Snapshot;
use namewall_policy::addr::{Cidr, next_address};
use namewall_policy::model::{Workload, WorkloadKind};
use rustc_hash::FxHashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The pod network where nothing says which.
const USUAL: (IpAddr, u8) = (IpAddr::V4(Ipv4Addr::new(10, 244, 0, 0)), 16);

/// What was made up.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Assigned {
    /// The networks that the addresses are from.
    pub networks: Vec<Cidr>,
    /// The workloads that have become pods, by `namespace/name`.
    pub workloads: Vec<String>,
    /// Workloads for which a network had no address left.
    pub left_out: Vec<String>,
}

/// Makes one pod of every template, and gives it and every pod without an
/// address one of each family from the cluster's pod networks, or from a usual
/// one. The Snapshot must be compiled anew afterwards.
pub fn assign_addresses(snapshot: &mut Snapshot) -> Assigned {
    if snapshot.pod_networks.is_empty() {
        Arc::make_mut(&mut snapshot.pod_networks).push(Cidr::new(USUAL.0, USUAL.1));
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
    // The first address of a network is often its gateway.
    let mut next: Vec<Option<IpAddr>> =
        assigned.networks.iter().map(|network| next_address(network.address()).and_then(next_address)).collect();
    let mut names: FxHashSet<String> = FxHashSet::default();
    for id in snapshot.workload_ids().collect::<Vec<_>>() {
        let workload = snapshot.workload(id).clone();
        let name = snapshot.workload_name(id);
        if !workload.is_template() && !workload.addresses.is_empty() {
            names.insert(name);
            continue;
        }
        let mut pod = Workload { kind: WorkloadKind::Pod, ..workload.clone() };
        if !names.insert(name.clone()) {
            // Two kinds may share a name; two pods may not.
            pod.name = format!("{}-{}", workload.name, workload.kind.name().to_lowercase()).into();
        }
        if !workload.host_network {
            let free =
                assigned.networks.iter().zip(&mut next).filter_map(|(network, next)| take(network, next, &mut used));
            pod.addresses = free.collect();
            if pod.addresses.is_empty() {
                assigned.left_out.push(name);
                continue;
            }
        }
        assigned.workloads.push(name);
        snapshot.workloads.set(id.index(), pod);
    }
    assigned
}

/// The next address of the network that nobody has.
fn take(network: &Cidr, next: &mut Option<IpAddr>, used: &mut FxHashSet<IpAddr>) -> Option<IpAddr> {
    loop {
        let address = (*next)?;
        *next = next_address(address);
        if Cidr::new(address, network.prefix()).address() != network.address() {
            *next = None;
            return None;
        }
        if used.insert(address) {
            return Some(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_policy::labels::Labels;
    use namewall_policy::model::Role;

    fn workload(snapshot: &mut Snapshot, (kind, name): (WorkloadKind, &str), address: Option<&str>) {
        let namespace = snapshot.ensure_namespace("shop");
        let role = snapshot.role_of(Role { namespace, labels: Labels::default(), host_network: false });
        snapshot.add_workload(Workload {
            kind,
            namespace,
            name: name.into(),
            role,
            addresses: address.map(|text| text.parse().expect("it is an address")).into_iter().collect(),
            node: None,
            host_network: false,
            ports: Arc::default(),
            owner: None,
            source: None,
        });
    }

    #[test]
    fn templates_become_pods_with_free_addresses() {
        let mut snapshot = Snapshot::default();
        workload(&mut snapshot, (WorkloadKind::Pod, "there"), Some("10.244.0.2"));
        workload(&mut snapshot, (WorkloadKind::Deployment, "web"), None);
        workload(&mut snapshot, (WorkloadKind::StatefulSet, "web"), None);
        let assigned = assign_addresses(&mut snapshot);
        assert_eq!(assigned.workloads, ["shop/web", "shop/web"]);
        let texts: Vec<String> =
            snapshot.workloads.iter().map(|pod| format!("{} {} {:?}", pod.kind, pod.name, pod.addresses)).collect();
        assert_eq!(texts, ["Pod there [10.244.0.2]", "Pod web [10.244.0.3]", "Pod web-statefulset [10.244.0.4]"]);
    }

    #[test]
    fn a_network_that_is_full_is_said() {
        let mut snapshot = Snapshot::default();
        let network = "192.0.2.0/30".parse().expect("it is a network");
        Arc::make_mut(&mut snapshot.pod_networks).push(network);
        for name in ["a", "b", "c"] {
            workload(&mut snapshot, (WorkloadKind::Deployment, name), None);
        }
        assert_eq!(assign_addresses(&mut snapshot).left_out, ["shop/c"]);
    }
}
