//! Addresses that several pods claim (S1.9): a stale pod, or a status that is not true. Nobody can tell which of them
//! sends or gets a packet, so all of them must allow it.
//!
//! Pods that share an address form a **Joint**, and each of them is judged as all of them: by the policies of all, and
//! as a peer only where a rule speaks of all. A rule speaks of Roles, so a Joint of several Roles has a Role of its own,
//! numbered after those of the Snapshot.

use crate::bits::BitSet;
use crate::model::{NamedPort, NodeId, RoleId, WorkloadId};
use crate::snapshot::Snapshot;
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Pods that are judged as one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Joint {
    pub(super) pods: Vec<WorkloadId>,
    pub(super) role: RoleId,
    /// The node, if all of them are on it.
    pub(super) node: Option<NodeId>,
    /// The ports that all of them name.
    pub(super) ports: Arc<[NamedPort]>,
    /// The ports that only some of them name.
    pub(super) doubtful_ports: Arc<[NamedPort]>,
}

#[derive(Default, Debug)]
pub(super) struct Claims {
    pub(super) joints: Vec<Joint>,
    /// The Roles that each Role of a Joint stands for.
    roles: Vec<(RoleId, Vec<RoleId>)>,
}

impl Claims {
    /// The Joints of the pods that hold these addresses, each held by several.
    pub(super) fn new(snapshot: &Snapshot, shared: &FxHashMap<IpAddr, Vec<WorkloadId>>) -> Self {
        let mut claims = Self::default();
        for pods in joined(shared) {
            let joint = claims.joint(snapshot, pods);
            claims.joints.push(joint);
        }
        claims
    }

    fn joint(&mut self, snapshot: &Snapshot, pods: Vec<WorkloadId>) -> Joint {
        let all: Vec<_> = pods.iter().map(|&id| snapshot.workload(id)).collect();
        let mut roles: Vec<RoleId> = all.iter().map(|pod| pod.role).collect();
        roles.sort_unstable();
        roles.dedup();
        let mut named: Vec<NamedPort> = all.iter().flat_map(|pod| pod.ports.iter().cloned()).collect();
        named.sort_unstable();
        named.dedup();
        let (ports, doubtful): (Vec<_>, Vec<_>) =
            named.into_iter().partition(|port| all.iter().all(|pod| pod.ports.contains(port)));
        let node = all[0].node.filter(|_| all.iter().all(|pod| pod.node == all[0].node));
        let role = self.role(snapshot, roles);
        Joint { pods, role, node, ports: ports.into(), doubtful_ports: doubtful.into() }
    }

    fn role(&mut self, snapshot: &Snapshot, roles: Vec<RoleId>) -> RoleId {
        if let [only] = roles[..] {
            return only;
        }
        if let Some((known, _)) = self.roles.iter().find(|(_, known)| *known == roles) {
            return *known;
        }
        let role = RoleId((snapshot.roles.len() + self.roles.len()) as u32);
        self.roles.push((role, roles));
        role
    }

    /// How many Roles there are besides the Snapshot's.
    pub(super) fn role_count(&self) -> usize {
        self.roles.len()
    }

    /// The Roles of Joints whose pods are all among these Roles, and those of which only some are.
    pub(super) fn among(&self, selected: &BitSet) -> (Vec<RoleId>, Vec<RoleId>) {
        let (mut all, mut some) = (Vec::new(), Vec::new());
        for (joint, roles) in &self.roles {
            match roles.iter().filter(|role| selected.contains(role.index())).count() {
                0 => {}
                count if count == roles.len() => all.push(*joint),
                _ => some.push(*joint),
            }
        }
        (all, some)
    }

    /// Whether pods of one Joint name different ports.
    pub(super) fn have_doubtful_ports(&self) -> bool {
        self.joints.iter().any(|joint| !joint.doubtful_ports.is_empty())
    }
}

/// The pods that are joined by addresses, directly or through others; in order.
fn joined(shared: &FxHashMap<IpAddr, Vec<WorkloadId>>) -> Vec<Vec<WorkloadId>> {
    let mut addresses: FxHashMap<WorkloadId, Vec<IpAddr>> = FxHashMap::default();
    for (&address, holders) in shared {
        holders.iter().for_each(|&id| addresses.entry(id).or_default().push(address));
    }
    let mut order: Vec<WorkloadId> = addresses.keys().copied().collect();
    order.sort_unstable();
    let (mut seen, mut joints): (FxHashSet<WorkloadId>, _) = (FxHashSet::default(), Vec::new());
    for first in order {
        if !seen.insert(first) {
            continue;
        }
        let (mut pods, mut next) = (Vec::new(), vec![first]);
        while let Some(pod) = next.pop() {
            let others = addresses[&pod].iter().flat_map(|address| &shared[address]);
            next.extend(others.copied().filter(|other| seen.insert(*other)));
            pods.push(pod);
        }
        pods.sort_unstable();
        joints.push(pods);
    }
    joints
}
