//! The world outside the cluster as address ranges: within a range every
//! address fares the same.

use super::{Cuts, Reach, Reachable};
use crate::addr::{AddrRange, next_address};
use crate::flow::Endpoint;
use crate::model::{Direction, PolicyId};
use crate::node_ports::{DeniedPorts, FrontendAt};
use crate::program::{Holder, Matcher, Plan, Program};
use crate::unknown::judging;
use std::net::IpAddr;

/// A range outside, and what may be opened to it, or from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutsideRange {
    pub range: AddrRange,
    pub traffic: Reachable,
}

impl OutsideRange {
    /// An end in the range. A range may begin with a node's address and go on behind it: the end is a node only if
    /// the range fares as the node does.
    pub(super) fn end(&self, reach: &Reach<'_>, ask: impl Fn(&Endpoint) -> Reachable) -> Endpoint {
        let bare = Endpoint { address: Some(self.range.first), ..Endpoint::default() };
        let Some(&Holder::Node(node)) = reach.program.by_address.get(&self.range.first) else { return bare };
        let node = Endpoint { node: Some(node), ..bare.clone() };
        if ask(&node) == self.traffic { node } else { bare }
    }
}

/// Cuts the outside wherever one of the policies may see a difference, asks for
/// each piece, and joins neighbours that fare the same.
pub(super) fn ranges(
    reach: &Reach<'_>,
    plan: &Plan,
    more_cuts: &[IpAddr],
    ask: impl Fn(&Endpoint) -> Reachable,
) -> Vec<OutsideRange> {
    let mut cuts = Cuts::default();
    let directions = [Direction::Egress, Direction::Ingress];
    for &policy in directions.into_iter().flat_map(|direction| judging(plan, direction)) {
        cut_policy(reach.program, policy, &mut cuts);
    }
    for lease in reach.leases.iter() {
        cuts.address(lease.address);
    }
    more_cuts.iter().for_each(|&address| cuts.address(address));
    // Addresses of Services that a cluster gate closes for what is behind them.
    let closed = plan.each().filter_map(|plan| reach.program.closed_frontends(plan)).flat_map(DeniedPorts::keys);
    for frontend in closed {
        if let FrontendAt::Address(address) = frontend.at {
            cuts.address(address);
        }
    }
    cuts.set(&reach.program.pod_networks);

    let mut found: Vec<OutsideRange> = Vec::new();
    for range in cuts.pieces() {
        if reach.program.pod_networks.contains(range.first) {
            continue;
        }
        // Pods are not looked up by address here: they are workloads and have their own rows.
        let mut end = Endpoint { address: Some(range.first), ..Endpoint::default() };
        // A node's address speaks for itself alone, never for the rest of a longer range.
        if range.first == range.last
            && let Some(Holder::Node(node)) = reach.program.by_address.get(&range.first)
        {
            end.node = Some(*node);
        }
        let traffic = ask(&end);
        match found.last_mut() {
            Some(last) if last.traffic == traffic && next_address(last.range.last) == Some(range.first) => {
                last.range.last = range.last;
            }
            _ => found.push(OutsideRange { range, traffic }),
        }
    }
    found
}

fn cut_policy(program: &Program, policy: PolicyId, cuts: &mut Cuts) {
    let policy = program.policy(policy);
    for rule in policy.egress.clone().chain(policy.ingress.clone()) {
        if let Matcher::Clauses { peers, .. } = program.rules[rule as usize].matcher {
            cuts.set(&program.peer_set(peers).addresses);
        }
    }
}
#[cfg(test)]
mod tests {
    use crate::compile;
    use crate::labels::{Labels, Selector};
    use crate::lease::{Instant, LeaseTable};
    use crate::model::{
        Enforcement, NamespaceScope, Node, Placement, PodSet, Policy, PolicyKind, PolicyRef, Role, Subject, Workload,
        WorkloadId,
    };
    use crate::reach::{Matrix, Reach};
    use crate::snapshot::Snapshot;
    use std::net::IpAddr;

    fn pod(snapshot: &mut Snapshot, address: &str, host_network: bool) -> WorkloadId {
        let namespace = snapshot.ensure_namespace("n");
        let node = Some(snapshot.ensure_node("node-1"));
        let pod = snapshot.new_pod(Role { namespace, labels: Labels::default(), host_network }, address);
        let addresses: Vec<IpAddr> = vec![address.parse().unwrap()];
        snapshot.add_workload(Workload { addresses: addresses.into(), node, ..pod })
    }

    fn isolates_everyone() -> Policy {
        let pods = PodSet { namespaces: NamespaceScope::Named("n".into()), pods: Selector::everything() };
        Policy {
            id: PolicyRef { kind: PolicyKind::NetworkPolicy, namespace: Some("n".into()), name: "deny".into() },
            placement: Placement::Network { isolates_ingress: true, isolates_egress: false },
            enforcement: Enforcement::Enforce,
            subject: Subject { pods, nodes: None },
            egress: Vec::new(),
            ingress: Vec::new(),
            source: None,
        }
    }

    /// A node's address may be known only from a `hostNetwork` pod there. The exemption of the own node
    /// must not spread from it to the addresses behind it.
    #[test]
    fn a_node_address_known_from_a_pod_speaks_for_itself_alone() {
        let mut snapshot = Snapshot::default();
        let addresses = vec!["192.0.2.11".parse().unwrap()];
        snapshot.add_node(Node { name: "node-1".into(), labels: Labels::default(), addresses, source: None });
        let isolated = pod(&mut snapshot, "10.0.0.1", false);
        pod(&mut snapshot, "192.0.2.12", true);
        snapshot.policies = vec![isolates_everyone()].into();
        let (program, _) = compile(&snapshot);
        let leases = LeaseTable::default();
        let reach = Reach { program: &program, leases: &leases, now: Instant::default() };
        let matrix = Matrix::new(&snapshot, reach);
        let open: Vec<String> = matrix
            .outside_from(isolated)
            .iter()
            .filter(|outside| !outside.traffic.is_none())
            .map(|outside| outside.range.to_string())
            .collect();
        assert_eq!(open, ["192.0.2.11-192.0.2.12"]);
    }
}
