//! What workloads that do not exist yet could reach, and be reached by: for
//! every set of pods that policies speak of, a pod nobody has made is asked for.

use super::Reach;
use crate::compile;
use crate::labels::{Labels, Requirement, Selector};
use crate::lease::{Instant, LeaseTable};
use crate::model::{
    Clauses, Direction, Namespace, NamespaceScope, Peer, Peers, PodSet, Role, Workload, WorkloadId, WorkloadKind,
};
use crate::port::Traffic;
use crate::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a workload could exchange with a pod that does not exist yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exposure {
    pub workload: WorkloadId,
    /// Egress: the workload could reach the pod. Ingress: the pod could reach it.
    pub direction: Direction,
    /// Whom: `all pods` stands for any new pod whatever its labels.
    pub peer: String,
    pub traffic: Traffic,
}

/// Asks only the policies of workloads that exist: a pod that does not has none yet.
pub fn exposure(snapshot: &Snapshot) -> Vec<Exposure> {
    let mut imagined = snapshot.clone();
    let mut peers: Vec<(String, WorkloadId)> = Vec::new();
    let nobody = PodSet::all();
    let sets = sets(snapshot);
    for set in std::iter::once(&nobody).chain(&sets) {
        if let Some(id) = imagine(&mut imagined, set, peers.len()) {
            peers.push((set.to_string(), id));
        }
    }
    let (program, _) = compile(&imagined);
    let leases = LeaseTable::default();
    let reach = Reach { program: &program, leases: &leases, now: Instant::default() };
    let mut found = Vec::new();
    for workload in snapshot.workload_ids() {
        let end = program.endpoint_of(workload, snapshot.workload(workload).addresses.first().copied());
        if snapshot.workload(workload).host_network {
            continue;
        }
        for direction in [Direction::Egress, Direction::Ingress] {
            let mut anyone = Traffic::none();
            for (at, (text, peer)) in peers.iter().enumerate() {
                let peer = program.endpoint_of(*peer, None);
                let traffic = match direction {
                    Direction::Egress => reach.egress(&end, &peer),
                    Direction::Ingress => reach.ingress(&peer, &end),
                };
                // The first is the pod no selector asks for; others are told where they differ, be it for less.
                let told = if at == 0 { !traffic.is_none() } else { traffic != anyone };
                if at == 0 {
                    anyone = traffic.clone();
                }
                if told {
                    found.push(Exposure { workload, direction, peer: text.clone(), traffic });
                }
            }
        }
    }
    found
}

fn sets(snapshot: &Snapshot) -> Vec<PodSet> {
    let mut seen = BTreeSet::new();
    let rules = snapshot.policies.iter().flat_map(|policy| policy.egress.iter().chain(&policy.ingress));
    let peers = rules.flat_map(|rule| match &rule.clauses {
        Clauses::Match { peers: Peers::Listed(peers), .. } => peers.as_slice(),
        _ => &[],
    });
    let sets = peers.filter_map(|peer| match peer {
        Peer::Pods(set) if seen.insert(set.to_string()) => Some(set.clone()),
        _ => None,
    });
    sets.collect()
}

/// Adds a pod that the set selects; `None` if no labels could satisfy it.
fn imagine(snapshot: &mut Snapshot, set: &PodSet, number: usize) -> Option<WorkloadId> {
    let namespace = match &set.namespaces {
        NamespaceScope::Named(name) => snapshot.ensure_namespace(name),
        NamespaceScope::Matching(selector) => {
            let labels = satisfy(selector)?;
            // One that asks for a namespace by name means that one.
            let name: Arc<str> = match labels.get(crate::snapshot::NAMESPACE_NAME_LABEL) {
                Some(name) => name.as_str().into(),
                None => format!("(new namespace {number})").into(),
            };
            let labels = labels.into_iter().collect();
            snapshot.add_namespace(Namespace { name, labels, default_deny_ingress: false, source: None })
        }
    };
    let labels: Labels = satisfy(&set.pods)?.into_iter().collect();
    let role = snapshot.role_of(Role { namespace, labels, host_network: false });
    Some(snapshot.add_workload(Workload {
        kind: WorkloadKind::Deployment,
        namespace,
        name: format!("(new pod {number})").into(),
        role,
        addresses: Arc::default(),
        node: None,
        host_network: false,
        ports: Arc::new([]),
        owner: None,
        source: None,
    }))
}

fn satisfy(selector: &Selector) -> Option<BTreeMap<String, String>> {
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    for requirement in &selector.requirements {
        match requirement {
            Requirement::In { key, values } => {
                // One that the other requirements on the key take too.
                let fits = |value: &&Arc<str>| {
                    let alone: Labels = [(key.clone(), (*value).clone())].into_iter().collect();
                    selector
                        .requirements
                        .iter()
                        .filter(|other| other.key() == &**key)
                        .all(|other| other.matches(&alone))
                };
                labels.insert(key.to_string(), values.iter().find(fits)?.to_string());
            }
            Requirement::Exists { key } => {
                labels.entry(key.to_string()).or_insert_with(|| "any".to_owned());
            }
            Requirement::NotIn { .. } | Requirement::DoesNotExist { .. } => {}
        }
    }
    let as_labels: Labels = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    selector.matches(&as_labels).then_some(labels)
}
