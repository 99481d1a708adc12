//! The world outside the cluster as address ranges: within a range every
//! address fares the same.

use super::{Cuts, Reach, Reachable};
use crate::addr::{AddrRange, next_address};
use crate::flow::Endpoint;
use crate::model::PolicyId;
use crate::program::{Matcher, Plan, Program};
use std::net::IpAddr;

/// A range outside, and what may be opened to it, or from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutsideRange {
    pub range: AddrRange,
    pub traffic: Reachable,
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
    let stages = [&plan.cluster_gate, &plan.namespace_gate, &plan.egress.admin, &plan.egress.network];
    let stages = stages.into_iter().chain([
        &plan.egress.baseline,
        &plan.ingress.admin,
        &plan.ingress.network,
        &plan.ingress.baseline,
    ]);
    for &policy in stages.flatten() {
        cut_policy(reach.program, policy, &mut cuts);
    }
    for lease in reach.leases.iter() {
        cuts.address(lease.address);
    }
    more_cuts.iter().for_each(|&address| cuts.address(address));
    cuts.set(&reach.program.pod_networks);

    let mut found: Vec<OutsideRange> = Vec::new();
    for range in cuts.pieces() {
        if reach.program.pod_networks.contains(range.first) {
            continue;
        }
        // Not by who has the address: pods are workloads, and have their own rows.
        let mut end = Endpoint { address: Some(range.first), ..Endpoint::default() };
        if let Some(crate::program::Holder::Node(node)) = reach.program.by_address.get(&range.first) {
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
