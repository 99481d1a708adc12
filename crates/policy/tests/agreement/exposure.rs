//! Random pods are added to random clusters. What they can do is listed by
//! `exposure` of the cluster without them, and what is listed they can do.

use crate::generate::{NewPod, PORTS, cases, new_pods};
use namewall_policy::model::{Clauses, Direction, NamedPort, Peer, Peers, WorkloadId};
use namewall_policy::port::{Protocol, Traffic, TransportPort};
use namewall_policy::reach::{Exposure, NewPods, Reach, exposure};
use namewall_policy::{Flow, Instant, LeaseTable, Prediction, Snapshot, compile};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use std::sync::Arc;

const PROTOCOLS: [Protocol; 4] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp, Protocol::Icmp];

fn check(count: u32, with_addresses: bool) {
    let strategy = (cases(), prop::collection::vec(new_pods(), 4));
    let result = TestRunner::new(crate::config(count)).run(&strategy, |(case, pods)| {
        let mut snapshot = case.snapshot;
        if with_addresses {
            forget_addresses(&mut snapshot);
        }
        let found = exposure(&snapshot);
        prop_assert!(found.unresolved.is_empty());
        found.rows.iter().try_for_each(says_on_what)?;
        pods.iter().try_for_each(|pod| fares_as_listed(&snapshot, &found.rows, pod, with_addresses))
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// Leaves only peers that do not look at addresses.
fn forget_addresses(snapshot: &mut Snapshot) {
    for policy in Arc::make_mut(&mut snapshot.policies) {
        for rule in policy.egress.iter_mut().chain(&mut policy.ingress) {
            if let Clauses::Match { peers: Peers::Listed(peers), .. } = &mut rule.clauses {
                peers.retain(|peer| matches!(peer, Peer::Pods(_)));
            }
        }
    }
}

fn fares_as_listed(
    before: &Snapshot,
    rows: &[Exposure],
    pod: &NewPod,
    with_addresses: bool,
) -> Result<(), TestCaseError> {
    let mut snapshot = before.clone();
    let new = pod.add(&mut snapshot, with_addresses);
    let (program, _) = compile(&snapshot);
    let leases = LeaseTable::default();
    let reach = Reach { program: &program, leases: &leases, now: Instant::default() };
    for id in before.workload_ids().filter(|id| !before.workload(*id).host_network) {
        for direction in [Direction::Egress, Direction::Ingress] {
            let row = row(&snapshot, rows.iter().filter(|row| row.workload == id && row.direction == direction), new)?;
            let (from, to) = if direction == Direction::Egress { (id, new) } else { (new, id) };
            let (from, to) = (program.endpoints(&snapshot, from), program.endpoints(&snapshot, to));
            let pairs = program.address_pairs(&from, &to);
            for protocol in PROTOCOLS {
                for port in PORTS {
                    let predicted: Vec<Prediction> = pairs
                        .iter()
                        .map(|(from, to)| {
                            let (from, to) = (from.clone(), to.clone());
                            let flow = Flow { from, to, protocol, port, via: None, hop: None, masker: None };
                            reach.predict(&flow).prediction
                        })
                        .collect();
                    let open = predicted.contains(&Prediction::Allow);
                    let [listed, depends] =
                        row.map(|row| lists(row, &pod.ports, TransportPort { protocol, port })).unwrap_or_default();
                    if !open {
                        prop_assert_eq!(depends, predicted.contains(&Prediction::Depends), "{:?}", row);
                    }
                    let name = snapshot.workload_name(id);
                    prop_assert_eq!(
                        listed,
                        open,
                        "{} {:?} {} {}: {:?}, row {:?}",
                        name,
                        direction,
                        protocol,
                        port,
                        pod,
                        row
                    );
                }
            }
        }
    }
    Ok(())
}

/// The one row that speaks of the pod, among those of a workload and a direction.
fn row<'r>(
    snapshot: &Snapshot,
    rows: impl Iterator<Item = &'r Exposure>,
    new: WorkloadId,
) -> Result<Option<&'r Exposure>, TestCaseError> {
    let role = snapshot.role(snapshot.workload(new).role);
    let namespace = snapshot.namespace(role.namespace);
    let (mut selected, mut others) = (Vec::new(), None);
    for row in rows {
        match &row.peer {
            NewPods::Selected(sets) if sets.iter().any(|set| set.selects(role, namespace)) => selected.push(row),
            NewPods::Selected(_) => {}
            NewPods::All | NewPods::Others => others = Some(row),
        }
    }
    prop_assert!(selected.len() < 2, "two rows speak of one pod: {:?}", selected);
    Ok(selected.pop().or(others))
}

/// Whether the row lists the port as open, and whether as one that depends on something.
fn lists(row: &Exposure, ports: &[NamedPort], port: TransportPort) -> [bool; 2] {
    let TransportPort { protocol, port } = port;
    let named = ports.iter().find(|named| named.protocol == protocol && named.port == port);
    match named.filter(|_| row.direction == Direction::Egress).and_then(|named| row.named(protocol, &named.name)) {
        Some(named) => [named.ports.contains(port), named.depends.contains(port)],
        None => [row.traffic.contains(protocol, port), row.depends.contains(protocol, port)],
    }
}

/// Every connection that depends on something has a condition, and no other has one (S10.5).
fn says_on_what(row: &Exposure) -> Result<(), TestCaseError> {
    let named = row.named.iter().map(|named| {
        let mut depends = Traffic::none();
        named.depends.ranges().iter().for_each(|&(low, high)| depends.insert(named.protocol, low, high));
        (depends, &named.depends_on)
    });
    for (depends, conditions) in named.chain([(row.depends.clone(), &row.depends_on)]) {
        let said = conditions.iter().map(|one| one.part.as_ref().unwrap_or(&depends));
        let said = said.fold(Traffic::none(), |all, part| all.union(part));
        prop_assert_eq!(&said, &depends, "{:?}", conditions);
        prop_assert_eq!(conditions.is_empty(), depends.is_none(), "{:?}", conditions);
    }
    Ok(())
}

#[test]
fn new_pods_can_do_just_what_is_listed() {
    check(500, false);
}

#[test]
fn new_pods_with_addresses_can_do_just_what_is_listed() {
    check(250, true);
}
